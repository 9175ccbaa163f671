//! linkspan's files on a disk whose power goes: what was reported as done is there afterwards, every name has all of its old or all of
//! its new content, and the same command once more ends the work.

use std::collections::BTreeMap;
use std::fs::File;
use std::time::Duration;

use super::tb;
use crate::error::{At, Error, Result, check};
use crate::guest::{Guest, Job, Spec};
use crate::lab::Lab;

/// Bytes of the disk.
const DISK: u64 = 512 << 20;

/// Longest that a transfer or a boot's preparations may take.
const SOON: Duration = tb::SOON.saturating_mul(4);

/// What each program of ours runs with.
const OURS: &str = "LINKSPAN_PSK_FILE=/tmp/key LINKSPAN_IFNAME==lan0 LINKSPAN_STATS_DIR=off";

/// Where the guests reach each other: the one with the disk, and the one with the sources.
const ADDRESSES: [&str; 2] = ["10.8.0.1", "10.8.0.2"];

/// File systems, and how one is made.
const EXT4: [&str; 2] = ["ext4", "/usr/bin/mke2fs -q -F -t ext4 -N 4096 -E lazy_itable_init=0,lazy_journal_init=0"];
const BTRFS: [&str; 2] = ["btrfs", "mkfs.btrfs -q -f"];

/// Trees that are sent: one file of more than the slots hold, many small ones, some of both that replace others. Of each: its name, and
/// bytes that any transfer of it has to bring and to write.
const TREES: [(&str, u64); 3] = [("large", 40_000_000), ("small", 8_900_000), ("replaced", 16_000_000)];

/// Makes them in `old` and `new`. Of a replaced file the first MiB is as it was, and every third has its old size: those differ by their
/// time, of which a kernel before 6.13 has only one for all that is made within a tick.
const SOURCES: &str = "put() { head -c $1 /dev/urandom; }
cd /tmp; mkdir -p old/large/t old/small/t old/replaced/t/deep new/large/t new/small/t/deep new/replaced/t/deep || exit
put 41000000 >new/large/t/file
n=0; while [ $n -lt 300 ]; do put $((n * n)) >new/small/t/deep/$n; n=$((n + 1)); done
n=0; while [ $n -lt 60 ]; do
put $((n * 100 + 1)) >old/replaced/t/deep/$n; put $((n * 100 + 1 + n % 3)) >new/replaced/t/deep/$n
n=$((n + 1)); done
n=0; while [ $n -lt 6 ]; do
put 4000000 >old/replaced/t/$n; { head -c 1048576 old/replaced/t/$n; put $((2951424 + n % 3)); } >new/replaced/t/$n
n=$((n + 1)); done
find old -type f -exec touch -d '2020-01-01 00:00' {} +";

/// Contents by path, as sums.
type Files = BTreeMap<String, String>;

/// One transfer and the way in which the power goes.
#[derive(Clone, Copy)]
struct Round {
    tree: &'static str,
    file_system: [&'static str; 2],
    how: How,
    when: Written,
    /// Where the receiver's journals are: in memory that keeps them, or on the disk that loses its power.
    state: &'static str,
    /// Whether QEMU is killed, or the disk forgets.
    boots: bool,
}

/// Whether the guest with the sources sends, or the one with the disk gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum How {
    Get,
    Send,
}

/// What writes to the disk: nothing but a sync, or the kernel by itself, all the time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Written {
    BySync,
    AtOnce,
}

const fn round(
    tree: &'static str,
    file_system: [&'static str; 2],
    how: How,
    when: Written,
    state: &'static str,
) -> Round {
    Round { tree, file_system, how, when, state, boots: false }
}

const KEPT: &str = "/tmp/state";
const LOST: &str = "/disk/state";

const ROUNDS: [Round; 11] = [
    round("large", EXT4, How::Get, Written::BySync, KEPT),
    round("large", EXT4, How::Send, Written::AtOnce, KEPT),
    round("large", BTRFS, How::Get, Written::AtOnce, KEPT),
    round("small", EXT4, How::Send, Written::BySync, LOST),
    round("small", EXT4, How::Get, Written::AtOnce, KEPT),
    round("small", BTRFS, How::Get, Written::BySync, KEPT),
    round("replaced", EXT4, How::Get, Written::BySync, KEPT),
    round("replaced", EXT4, How::Send, Written::AtOnce, LOST),
    round("replaced", BTRFS, How::Send, Written::BySync, KEPT),
    Round { boots: true, ..round("large", EXT4, How::Get, Written::AtOnce, LOST) },
    Round { boots: true, ..round("replaced", EXT4, How::Get, Written::AtOnce, LOST) },
];

impl Round {
    fn mount(&self) -> String {
        let (commit, every) = if self.when == Written::BySync { (300, 0) } else { (1, 10) };
        format!(
            "echo {every} >/proc/sys/vm/dirty_writeback_centisecs; echo 20 >/proc/sys/vm/dirty_expire_centisecs\n\
             mount -t {} -o commit={commit} /dev/dm-0 /disk",
            self.file_system[0]
        )
    }

    fn what(&self) -> String {
        let Round { tree, file_system: [name, _], how, when, state, boots } = self;
        let by = if *boots { "QEMU killed" } else { "writes dropped" };
        format!("{how:?} {tree}, {name}, written {when:?}, journal in {state}, {by}")
    }
}

/// What stays the same from round to round.
struct World<'a> {
    lab: &'a mut Lab,
    /// The guest with the disk, for its next boot.
    spec: &'a Spec,
    /// The one with the sources.
    b: &'a Guest,
    /// Old and new contents of each tree.
    files: BTreeMap<&'static str, [Files; 2]>,
    state: u64,
}

impl World<'_> {
    /// The next number of the seed's.
    fn random(&mut self) -> u64 {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        self.state
    }

    /// The power goes and comes back.
    fn lose(&mut self, a: Guest, round: &Round) -> Result<Guest> {
        let a = if round.boots {
            a.cut()?;
            let [a] = self.lab.boot([self.spec])?;
            up(&a, ADDRESSES[0])?;
            disk(&a)?;
            a
        } else {
            let (off, on) = (table("flakey /dev/vda 0 0 3600 1 drop_writes"), table("linear /dev/vda 0"));
            a.sh_for(SOON, &format!("{off} || exit\n{KILL}\nwhile ! umount /disk; do usleep 10000; done\n{on}"))?;
            a
        };
        self.b.sh(KILL)?;
        a.sh_for(SOON, &round.mount())?;
        Ok(a)
    }

    /// An empty file system with what is to be replaced in it. A transfer that makes no directory has no syncfs at its end, which would
    /// stand in for a sync that is missing.
    fn fresh(&self, a: &Guest, round: &Round) -> Result<()> {
        let [_, make] = round.file_system;
        a.sh_for(SOON, &format!(
            "umount /disk 2>/dev/null; rm -rf /tmp/state\n{make} /dev/dm-0 >/dev/null && {{ {}; }} && mkdir -p /disk/data/t",
            round.mount()
        ))?;
        if !self.files[round.tree][0].is_empty() {
            complete(a, self.b, round, "old", "")?;
            a.sh(KILL)?;
            self.b.sh(KILL)?;
        }
        a.sh_for(SOON, "sync").map(drop)
    }

    /// One transfer, cut in the middle and right after its end.
    fn round(&mut self, a: Guest, round: &Round) -> Result<(Guest, bool)> {
        self.fresh(&a, round)?;
        let [old, new] = self.files[round.tree].clone();
        let bytes = TREES.iter().find(|tree| tree.0 == round.tree).map_or(0, |tree| tree.1);
        let limit = bytes / 1000 * (20 + self.random() % 960);
        let (what, at) = match self.random() % 2 {
            0 => ("have arrived", "read -r at </sys/class/net/lan0/statistics/rx_bytes"),
            _ => ("are written", "read -r _ _ _ _ _ _ at _ </sys/block/dm-0/stat; at=$((at * 512))"),
        };
        let mut watch = a.spawn(&format!(
            "now() {{ {at}; }}; now; from=$at; echo watching\n\
             while now; [ $((at - from)) -lt {limit} ]; do sleep 0.1; done"
        ))?;
        watch.expect("watching", SOON)?;
        let _client = begin(&a, self.b, round, "new", "")?;
        watch.wait(SOON)?;
        let reported = reported(&a, self.b, round)?;
        let a = self.lose(a, round)?;
        let seen = contents(&a, "/disk/data")?;
        let (done, whole, all) = (reported.len(), count(&seen, &new), new.len());
        let cut = format!("{}, cut after {limit} bytes {what}", round.what());
        judge(&seen, &old, &new, &reported).map_err(|error| Error::Check(format!("{cut}: {error}")))?;

        complete(&a, self.b, round, "new", "")?;
        let a = self.lose(a, round)?;
        let ended = contents(&a, "/disk/data")?;
        check(ended == new, || format!("{cut}, run again, cut when done was said: {}", differ(&ended, &new)))?;
        self.lab
            .say(&format!("{cut}: {done} were reported, {whole} of {all} were new; run again and cut when done: all"));
        Ok((a, seen != new))
    }
}

pub(super) const KILL: &str = "killall -9 lspan 2>/dev/null; while pidof lspan >/dev/null; do usleep 10000; done";

/// A script that exchanges what is below the file system without a word to it: nothing is written first.
fn table(target: &str) -> String {
    let table = format!("0 {} {target}", DISK / 512);
    format!("dmsetup load power --table '{table}' && dmsetup resume --noudevsync --nolockfs power")
}

/// What a guest has not after its boot.
fn up(guest: &Guest, address: &str) -> Result<()> {
    let key = "0123456789abcdef".repeat(4);
    let network = format!("ip addr add {address}/24 dev lan0 && ip link set lan0 up");
    guest.sh_for(SOON, &format!("{network} && echo {key} >/tmp/key && chmod 600 /tmp/key")).map(drop)
}

fn disk(guest: &Guest) -> Result<()> {
    guest
        .sh_for(
            SOON,
            &format!(
                "modprobe crc32c_generic 2>/dev/null; mkdir -p /disk\n\
             for module in virtio_blk dm_flakey ext4 btrfs; do modprobe $module || exit; done\n\
             dmsetup create power --noudevsync --table '0 {} linear /dev/vda 0'",
                DISK / 512
            ),
        )
        .map(drop)
}

/// Starts a transfer, each time with a server of its own.
fn begin(a: &Guest, b: &Guest, round: &Round, age: &str, words: &str) -> Result<Job> {
    let Round { tree, how, state, .. } = round;
    let ours = format!("{OURS} XDG_STATE_HOME={state} exec lspan");
    let (server, share) =
        if *how == How::Send { (a, "/disk/data:rw".to_owned()) } else { (b, format!("/tmp/{age}/{tree}")) };
    server.spawn(&format!("{ours} files serve data={share} --as-root 2>&1"))?.expect("serving", SOON)?;
    let [here, there] = ADDRESSES;
    match how {
        How::Send => b.spawn(&format!("{ours} send /tmp/{age}/{tree}/t {here}:data/ --json {words} >/tmp/out")),
        How::Get => a.spawn(&format!("{ours} get {there}:data/t /disk/data/ --json {words} >/tmp/out")),
    }
}

/// The same to its end.
fn complete(a: &Guest, b: &Guest, round: &Round, age: &str, words: &str) -> Result<()> {
    let said = begin(a, b, round, age, words)?.wait(SOON)?;
    check(said.code == 0, || format!("{}: it ended with {}: {}", round.what(), said.code, said.err))
}

/// The files that it has reported as done.
fn reported(a: &Guest, b: &Guest, round: &Round) -> Result<Vec<String>> {
    let said = if round.how == How::Send { b } else { a }.sh("cat /tmp/out")?;
    let lines = said.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
    let done = lines.filter(|line| line["what"] == "done");
    Ok(done.filter_map(|line| line["path"].as_str().map(str::to_owned)).collect())
}

/// What is in a directory, but for what linkspan keeps.
pub(super) fn contents(guest: &Guest, dir: &str) -> Result<Files> {
    let said = guest.sh_for(SOON, &format!("cd {dir} && find . -type f -exec md5sum {{}} +"))?;
    let files = said.lines().filter_map(|line| line.split_once("  ./"));
    let files = files.filter(|(_, path)| !path.split('/').any(|name| name.starts_with(".lspan")));
    Ok(files.map(|(sum, path)| (path.to_owned(), sum.to_owned())).collect())
}

fn count(seen: &Files, new: &Files) -> usize {
    seen.iter().filter(|(path, sum)| new.get(*path) == Some(sum)).count()
}

/// The first path that is not as it should be.
fn differ(seen: &Files, new: &Files) -> String {
    let path = seen.keys().chain(new.keys()).find(|path| seen.get(*path) != new.get(*path));
    format!("{} of {} are whole; not so {}", count(seen, new), new.len(), path.map_or("", |path| path))
}

/// Every name has all of its old or all of its new content, or is missing where it is new; what was reported is new.
fn judge(seen: &Files, old: &Files, new: &Files, reported: &[String]) -> Result<()> {
    for path in seen.keys().chain(old.keys()).chain(reported) {
        let (is, done) = (seen.get(path), reported.contains(path));
        let whole = is.is_some() && is == new.get(path);
        check(whole || !done && is == old.get(path), || {
            let done = if done { "was reported as done" } else { "was not reported" };
            format!("{path} {done} and is {}", if is.is_some() { "neither old nor new" } else { "gone" })
        })?;
    }
    Ok(())
}

/// Every round, and before them that the power does go.
pub(crate) fn power(lab: &mut Lab) -> Result<()> {
    let file = lab.run().join("disk");
    File::create(&file).and_then(|file| file.set_len(DISK)).at(file.display())?;
    let [mut one, mut two] = ["a", "b"].map(|name| lab.guest(name));
    one.ethernet(&mut two);
    for spec in [&mut one, &mut two] {
        spec.deadline = SOON * 20;
    }
    one.disk = Some(file);
    let [mut a, b] = lab.boot([&one, &two])?;
    for (guest, address) in [&a, &b].into_iter().zip(ADDRESSES) {
        up(guest, address)?;
    }
    disk(&a)?;
    b.sh_for(SOON, SOURCES)?;
    let mut files = BTreeMap::new();
    for (tree, _) in TREES {
        let [old, new] = ["old", "new"].map(|age| contents(&b, &format!("/tmp/{age}/{tree}")));
        files.insert(tree, [old?, new?]);
    }
    let state = lab.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut world = World { lab, spec: &one, b: &b, files, state };
    for file_system in [EXT4, BTRFS] {
        let round = round("small", file_system, How::Get, Written::BySync, KEPT);
        world.fresh(&a, &round)?;
        complete(&a, &b, &round, "new", "--no-fsync")?;
        a = world.lose(a, &round)?;
        let (seen, new) = (contents(&a, "/disk/data")?, &world.files["small"][1]);
        let whole = format!("{} of {} are whole", count(&seen, new), new.len());
        check(seen != *new, || format!("{}: without a sync {whole}: the power did not go", file_system[0]))?;
        world.lab.say(&format!("{}: with --no-fsync {whole}", file_system[0]));
    }
    let mut in_the_middle = 0;
    for round in &ROUNDS {
        let (guest, cut) = world.round(a, round)?;
        (a, in_the_middle) = (guest, in_the_middle + usize::from(cut));
    }
    let all = ROUNDS.len();
    check(in_the_middle > all / 2, || format!("of {all} transfers {in_the_middle} were cut before their end"))?;
    lab.finish([a, b])
}
