//! linkspan's files on file systems that are no ext4: what each of them lacks costs what docs/files.md says, and nothing else.

use std::fs::File;
use std::time::Duration;

use super::power::{KILL, contents};
use super::tb;
use crate::error::{At, Result, check};
use crate::guest::{Guest, Job, Output};
use crate::lab::Lab;

/// Bytes of the disk; xfs takes none below 300 MiB.
const DISK: u64 = 512 << 20;

/// What each program of ours runs with.
const OURS: &str = "cd /tmp; LINKSPAN_PSK_FILE=/tmp/key LINKSPAN_IFNAME==lo LINKSPAN_PATH=tcp LINKSPAN_STATS_DIR=off XDG_STATE_HOME=/tmp/state";

const SOON: Duration = tb::SOON.saturating_mul(6);

/// A file system, and what it has.
struct Place {
    name: &'static str,
    /// Makes it on `/dev/vda`, and mounts it at `/disk`.
    mount: &'static str,
    /// Whether files can share blocks.
    shares: bool,
    /// Whether names are bytes, files have holes, and there are links.
    unix: bool,
    /// What is done between two transfers, as the server does not run.
    turn: &'static str,
}

const fn place(name: &'static str, mount: &'static str) -> Place {
    Place { name, mount, shares: false, unix: true, turn: ":" }
}

const PLACES: [Place; 7] = [
    Place {
        unix: false,
        ..place("vfat", "mkfs.vfat -F 32 /dev/vda >/dev/null && mount -t vfat -o utf8 /dev/vda /disk")
    },
    Place { unix: false, ..place("exfat", "mkfs.exfat -q /dev/vda >/dev/null && mount -t exfat /dev/vda /disk") },
    Place { shares: true, ..place("xfs", "mkfs.xfs -q -f /dev/vda && mount -t xfs /dev/vda /disk") },
    Place { shares: true, ..place("btrfs", "mkfs.btrfs -q -f /dev/vda && mount -t btrfs /dev/vda /disk") },
    place("f2fs", "mkfs.f2fs -q -f /dev/vda >/dev/null && mount -t f2fs /dev/vda /disk"),
    place("tmpfs", "mount -t tmpfs -o size=300m tmpfs /disk"),
    // As in a container: what is replaced lies in its image.
    Place {
        turn: "umount /disk && mv /below/upper/data /below/lower/ && \
               mount -t overlay -o lowerdir=/below/lower,upperdir=/below/upper,workdir=/below/work overlay /disk",
        ..place(
            "overlay",
            "/usr/bin/mke2fs -q -F -t ext4 /dev/vda && mkdir -p /below && mount -t ext4 /dev/vda /below && \
             mkdir -p /below/upper /below/work /below/lower && \
             mount -t overlay -o lowerdir=/below/lower,upperdir=/below/upper,workdir=/below/work overlay /disk",
        )
    },
];

/// Makes the trees that are sent: `old`, and `new` whose files replace those, of the large one 1 MiB; a file with a hole; names that differ by
/// case; names that FAT or exFAT cannot have, and a link. Times of `new` are those at which it is made, with all their digits.
const SOURCES: &str = "put() { head -c $1 /dev/urandom; }
cd /tmp; mkdir -p old/t/deep/er new/t/deep/er hole/t fold/t odd/t || exit
put 9000000 >old/t/large; { head -c 4194304 old/t/large; put 1048576; tail -c 3757120 old/t/large; } >new/t/large
n=0; while [ $n -lt 60 ]; do
put $((n * 150)) >old/t/deep/er/$n; put $((n * 150 + n % 3)) >new/t/deep/er/$n
n=$((n + 1)); done
chmod 600 new/t/deep/er/1; chmod 755 new/t/deep/er/2; chmod 444 new/t/deep/er/3
find old -type f -exec touch -d '2020-01-01 00:00:01' {} +
put 100000 >hole/t/file; dd if=/dev/urandom of=hole/t/file bs=1k count=100 seek=10000 2>/dev/null
echo one >fold/t/Name; echo two >fold/t/name; echo three >fold/t/other
echo a >odd/t/plain; echo b >'odd/t/a:b'; echo c >\"$(printf 'odd/t/\\377')\"; mkdir 'odd/t/d:d'; ln -s plain odd/t/link";

/// What is the end of a run that found all as it should be.
const NOTHING: &str = "nothing was to be transferred";

/// A guest with one of them, and the server of a share on it.
struct World<'a> {
    guest: &'a Guest,
    place: &'a Place,
    server: Option<Job>,
}

impl World<'_> {
    fn serve(&mut self) -> Result<()> {
        let server = self.guest.spawn(&format!("{OURS} exec lspan files serve data=/disk/data:rw --as-root 2>&1"))?;
        self.server.insert(server).expect("serving", SOON).map(drop)
    }

    fn stop(&mut self) -> Result<()> {
        self.server = None;
        self.guest.sh(KILL).map(drop)
    }

    /// One command to its end.
    fn lspan(&self, words: &str) -> Result<Output> {
        self.guest.run(SOON, &format!("{OURS} exec lspan {words} 2>&1"))
    }

    fn good(&self, words: &str) -> Result<String> {
        let said = self.lspan(words)?;
        self.check(said.code == 0, || format!("lspan {words} ended with {}: {}", said.code, said.out))?;
        Ok(said.out)
    }

    fn check(&self, holds: bool, why: impl FnOnce() -> String) -> Result<()> {
        check(holds, || format!("{}: {}", self.place.name, why()))
    }

    /// Both folders have the same files with the same contents.
    fn same(&self, is: &str, should: &str) -> Result<()> {
        let [is_there, should_be] = [contents(self.guest, is)?, contents(self.guest, should)?];
        let wrong = should_be.iter().find(|(path, sum)| is_there.get(*path) != Some(sum)).map(|(path, _)| path);
        self.check(is_there == should_be, || {
            format!("{is} has {} files, not the {} of {should}; not so: {wrong:?}", is_there.len(), should_be.len())
        })
    }

    /// KiB in use.
    fn used(&self) -> Result<u64> {
        let said = self.guest.sh("sync; df -k /disk | tail -n 1")?;
        Ok(said.split_whitespace().nth(2).and_then(|word| word.parse().ok()).unwrap_or(0))
    }

    fn sent(&mut self) -> Result<()> {
        self.good("send old/t 127.0.0.1:data/")?;
        self.same("/disk/data/t", "/tmp/old/t")?;
        self.stop()?;
        self.guest.sh_for(SOON, self.place.turn)?;
        self.serve()?;
        if self.place.shares {
            // The old blocks stay in use.
            self.guest.sh("ln /disk/data/t/large /disk/kept")?;
        }
        let before = self.used()?;
        self.good("send new/t 127.0.0.1:data/")?;
        self.same("/disk/data/t", "/tmp/new/t")?;
        let more = self.used()?.saturating_sub(before);
        self.check(!self.place.shares || more < 4 << 10, || format!("a file of which 1 MiB is new takes {more} KiB"))?;
        let again = self.good("send new/t 127.0.0.1:data/")?;
        self.check(again.contains(NOTHING), || format!("sent once more, it was: {again}"))?;
        self.good("get 127.0.0.1:data/t /disk/got/")?;
        self.same("/disk/got/t", "/tmp/new/t")?;
        let left = self.guest.sh("find /disk -name '.lspan-*'; find /disk/data/.lspan -type f 2>/dev/null; true")?;
        self.check(left.is_empty(), || format!("it has left {left}"))
    }

    fn odd(&self) -> Result<()> {
        self.good("send hole/t 127.0.0.1:data/hole/")?;
        self.same("/disk/data/hole", "/tmp/hole")?;
        let blocks = self.guest.sh("stat -c %b /disk/data/hole/t/file")?.trim().parse().unwrap_or(0);
        self.check(!self.place.unix || blocks < 2_000, || format!("the hole takes {blocks} blocks"))?;

        for (tree, refused) in
            [("fold", &["/name: something has got this name"][..]), ("odd", &["/a:b: ", "/d:d: ", "/link: "])]
        {
            let said = self.lspan(&format!("send {tree}/t 127.0.0.1:data/{tree}/"))?;
            if self.place.unix {
                self.check(said.code == 0, || format!("{tree}: {}", said.out))?;
                self.same(&format!("/disk/data/{tree}"), &format!("/tmp/{tree}"))?;
            } else {
                let named = refused.iter().all(|refused| said.out.contains(refused));
                self.check(said.code == 1 && named, || format!("{tree}: {}", said.out))?;
            }
        }
        if !self.place.unix {
            let kept = self.guest.sh("cd /disk/data; cat fold/t/Name fold/t/other odd/t/plain")?;
            self.check(kept == "one\nthree\na\n", || {
                format!("of names that are taken for one and others there is {kept:?}")
            })?;
        }
        Ok(())
    }

    /// Of a file for which there is no space nothing stays.
    fn full(&self) -> Result<()> {
        self.guest.sh_for(
            SOON,
            "mkdir /disk/data/full; free=$(df -k /disk | tail -n 1 | awk '{ print $4 }')\n\
             dd if=/dev/zero of=/disk/filler bs=1M count=$((free / 1024 - 4)) 2>/dev/null",
        )?;
        let before = self.used()?;
        let said = self.lspan("send old/t/large 127.0.0.1:data/full/")?;
        self.check(said.code == 1 && said.out.contains("space"), || {
            format!("on a full disk {}: {}", said.code, said.out)
        })?;
        let more = self.used()?.saturating_sub(before);
        self.check(more < 1 << 10, || format!("a file that did not fit has left {more} KiB"))?;
        self.guest.sh("rm /disk/filler").map(drop)
    }

    fn mirrored(&self) -> Result<()> {
        self.guest.sh("rm -rf /tmp/m; cp -a /tmp/old/t /tmp/m; touch /tmp/m/deep/er/5")?;
        self.good("mirror m 127.0.0.1:data/m --init")?;
        let again = self.good("mirror m 127.0.0.1:data/m")?;
        self.check(again.contains(NOTHING), || format!("mirrored once more, it was: {again}"))?;
        let trash = self.good("trash list 127.0.0.1:data")?;
        self.check(!trash.contains("/m/"), || format!("in the trash after nothing has changed: {trash}"))?;

        self.guest.sh("cd /tmp/m; cp -a /tmp/new/t/. .; mv deep/er/7 deep/seven; rm deep/er/8")?;
        self.good("mirror m 127.0.0.1:data/m")?;
        self.same("/disk/data/m", "/tmp/m")?;
        self.good("verify m 127.0.0.1:data/m")?;
        let trash = self.good("trash list 127.0.0.1:data")?;
        self.check(trash.contains("/m/deep/er/8"), || format!("a removed file is not in the trash: {trash}"))?;
        self.good("mv 127.0.0.1:data/m/large 127.0.0.1:data/m/moved")?;
        self.good("rm -r 127.0.0.1:data/m/deep")?;
        self.guest.sh("cmp /tmp/new/t/large /disk/data/m/moved && ! test -e /disk/data/m/deep").map(drop)
    }
}

/// Every file system in turn.
pub(crate) fn places(lab: &mut Lab) -> Result<()> {
    let file = lab.run().join("disk");
    File::create(&file).and_then(|file| file.set_len(DISK)).at(file.display())?;
    let mut spec = lab.guest("a");
    spec.deadline = SOON * 20;
    spec.memory = 1024;
    spec.disk = Some(file);
    let [guest] = lab.boot([&spec])?;
    let key = "0123456789abcdef".repeat(4);
    guest.sh_for(
        SOON,
        &format!(
            "ip link set lo up && mkdir -p /disk && echo {key} >/tmp/key && chmod 600 /tmp/key\n\
             modprobe crc32c_generic 2>/dev/null; modprobe crc32_generic 2>/dev/null\n\
             for module in virtio_blk ext4 xfs btrfs f2fs overlay vfat nls_cp437 nls_ascii exfat; do modprobe $module || exit; done"
        ),
    )?;
    guest.sh_for(SOON, SOURCES)?;
    for place in &PLACES {
        let mut world = World { guest: &guest, place, server: None };
        guest.sh_for(
            SOON,
            &format!("umount /disk /below 2>/dev/null; rm -rf /tmp/state; {} && mkdir -p /disk/data/hole /disk/data/fold /disk/data/odd", place.mount),
        )?;
        world.serve()?;
        world.sent()?;
        world.odd()?;
        world.full()?;
        world.mirrored()?;
        world.stop()?;
        lab.say(&format!("{}: as it should be", place.name));
    }
    lab.finish([guest])
}
