//! The rows: what is moved, by whom, and what is asked of it.

use super::Sample;
use super::peers::{Peers, SOCAT};
use crate::run;

/// All rows.
pub(super) const NAMES: [&str; 15] = [
    "single",
    "disk",
    "hash",
    "small",
    "same",
    "delta",
    "pipe-in",
    "pipe-out",
    "mount-seq",
    "mount-mmap",
    "mount-random",
    "mount-random-16",
    "mount-names",
    "mount-write",
    "mount-tree",
];

/// One of those that are compared.
pub(super) struct Entry {
    pub(super) name: &'static str,
    /// Before each run, not measured.
    pub(super) prepare: String,
    /// What mounts at `mnt` for the run.
    pub(super) mount: Option<String>,
    pub(super) command: String,
    /// Whose processor time counts as well.
    pub(super) servers: Vec<u32>,
    /// Reads a number from the output.
    pub(super) number: Option<fn(&str) -> Option<f64>>,
}

type Of<'a> = &'a dyn Fn(&str) -> Option<Sample>;

/// What is asked.
pub(super) struct Goal {
    pub(super) what: &'static str,
    pub(super) value: fn(Of<'_>) -> Option<f64>,
    pub(super) bound: f64,
    /// At least the bound, or at most.
    pub(super) least: bool,
}

/// One row.
pub(super) struct Row {
    pub(super) what: String,
    pub(super) bytes: u64,
    pub(super) plant: String,
    pub(super) clean: String,
    /// lspan first.
    pub(super) entries: Vec<Entry>,
    pub(super) goals: Vec<Goal>,
    /// What the number of the entries is.
    pub(super) number: Option<&'static str>,
}

fn least(what: &'static str, bound: f64, value: fn(Of<'_>) -> Option<f64>) -> Goal {
    Goal { what, value, bound, least: true }
}

fn most(what: &'static str, bound: f64, value: fn(Of<'_>) -> Option<f64>) -> Goal {
    Goal { what, value, bound, least: false }
}

/// How many times as fast as this one.
fn speed(of: Of<'_>, other: &str) -> Option<f64> {
    Some(of(other)?.seconds / of("lspan")?.seconds)
}

fn over_rsync(of: Of<'_>) -> Option<f64> {
    speed(of, "rsync daemon")
}

fn over_scp(of: Of<'_>) -> Option<f64> {
    speed(of, "scp")
}

fn over_sshfs(of: Of<'_>) -> Option<f64> {
    speed(of, "sshfs")
}

fn over_empty(of: Of<'_>) -> Option<f64> {
    speed(of, "empty server")
}

/// The last number behind `key`, in a line of JSON or of rsync's --stats.
fn after(text: &str, key: &str) -> Option<f64> {
    let rest = text.rsplit_once(key)?.1.trim_start_matches(['"', ':', ' ']);
    let digits: String =
        rest.chars().take_while(|c| c.is_ascii_digit() || matches!(c, ',' | '.')).filter(|c| *c != ',').collect();
    digits.parse().ok()
}

fn moved(text: &str) -> Option<f64> {
    after(text, "\"moved_bytes\"").map(|bytes| bytes / 1e6)
}

fn rsync_sent(text: &str) -> Option<f64> {
    after(text, "Total bytes sent").map(|bytes| bytes / 1e6)
}

fn plain(text: &str) -> Option<f64> {
    text.trim().parse().ok()
}

/// Milliseconds that 99 of 100 names of `mnt/names` take at most, each asked for what it is once.
const STATS: &str = "python3 -c \"import os,time\nt=[]\nfor n in sorted(os.listdir('mnt/names')):\n b=time.monotonic(); os.lstat('mnt/names/'+n); t.append(time.monotonic()-b)\n\
     t.sort(); print(t[len(t)*99//100]*1000)\"";

/// A row by its name.
pub(super) fn row(name: &str, peers: &Peers, small: bool) -> Result<Row, String> {
    let bytes: u64 = match (small, name.starts_with("mount")) {
        (true, _) => 256 << 20,
        (false, true) => 2 << 30,
        (false, false) => 4 << 30,
    };
    let mib = bytes >> 20;
    let (port, rsync) = (peers.port(), peers.rsync_place());
    let (files, disk) = (peers.files.id(), peers.disk.display().to_string());
    let entry = |name, prepare: &str, command: String, servers: &[u32]| {
        let (prepare, servers) = (prepare.to_owned(), servers.to_vec());
        Entry { name, prepare, mount: None, command, servers, number: None }
    };
    let mut row = Row {
        what: String::new(),
        bytes,
        plant: format!("dd if=/dev/urandom of=src/f bs=1M count={mib} status=none"),
        clean: "rm -rf src/* dst/*".to_owned(),
        entries: Vec::new(),
        goals: Vec::new(),
        number: None,
    };
    let fresh = "rm -rf dst/*";
    let daemon = peers.rsync.as_ref();
    match name {
        "single" => {
            row.what = format!("one file of {mib} MiB, tmpfs, verified, without fsync");
            let send = format!("lspan send --no-fsync src/f 127.0.0.1:dst/ {port}");
            row.entries.push(entry("lspan", fresh, send, &[files]));
            row.entries.extend(
                daemon.map(|d| entry("rsync daemon", fresh, format!("rsync -aW src/f {rsync}/dst/"), &[d.id()])),
            );
            if let Some(ssh) = &peers.ssh {
                let scp = format!("scp -q -F conf src/f spark:{}/dst/", peers.dir.display());
                row.entries.push(entry("scp", fresh, scp, &[ssh.id()]));
            }
            row.entries.push(entry("cp", fresh, "cp src/f dst/".into(), &[]));
            if run::which("rclone").is_some() {
                row.entries.push(entry("rclone", fresh, "rclone copy src/f dst/".into(), &[]));
            }
            row.entries.push(entry("hash, 1 thread", "", "hash_file src/f 1".into(), &[]));
            let bandwidth = format!("lspan perf bw {} --path tcp -s 4M -n {}", peers.perf_place(), mib / 4);
            row.entries.push(entry("perf bw", "", bandwidth, &[peers.perf.id()]));
            row.goals = vec![
                most("CPU over that of perf bw, twice the hash and cp", 1.15, |of| {
                    let parts = of("perf bw")?.cpu + 2.0 * of("hash, 1 thread")?.cpu + of("cp")?.cpu;
                    Some(of("lspan")?.cpu / parts)
                }),
                least("speed over the rsync daemon", 2.0, over_rsync),
                least("speed over scp", 4.0, over_scp),
            ];
        }
        "disk" => {
            row.what = format!("one file of {mib} MiB from tmpfs to a disk, with fsync");
            row.clean = format!("rm -rf src/* {disk}/*");
            let fresh = format!("rm -rf {disk}/*; sync");
            row.entries.push(entry("lspan", &fresh, format!("lspan send src/f 127.0.0.1:disk/ {port}"), &[files]));
            let sync = format!("rsync -aW --fsync src/f {rsync}/disk/");
            row.entries.extend(daemon.map(|d| entry("rsync daemon", &fresh, sync, &[d.id()])));
            let dd = format!("dd if=src/f of={disk}/f bs=4M conv=fsync status=none");
            row.entries.push(entry("dd", &fresh, dd, &[]));
            let bandwidth = format!("lspan perf bw {} --path tcp -s 4M -n {}", peers.perf_place(), mib / 4);
            row.entries.push(entry("perf bw", "", bandwidth, &[peers.perf.id()]));
            row.goals = vec![least("share of the slower of link and disk", 0.9, |of| {
                Some(of("dd")?.seconds.max(of("perf bw")?.seconds) / of("lspan")?.seconds)
            })];
        }
        "hash" => {
            row.what = format!("hashing one file of {mib} MiB");
            row.entries.push(entry("2 threads", "", "hash_file src/f 2".into(), &[]));
            row.entries.push(entry("1 thread", "", "hash_file src/f 1".into(), &[]));
            row.goals =
                vec![least("2 threads over 1", 1.7, |of| Some(of("1 thread")?.seconds / of("2 threads")?.seconds))];
        }
        "small" | "same" => {
            let count = match (name, small) {
                ("small", false) => 10_000,
                ("small", true) => 1_000,
                (_, false) => 100_000,
                (_, true) => 10_000,
            };
            row.bytes = count * 4096;
            row.plant = format!(
                "mkdir src/t; cd src/t; dd if=/dev/urandom bs=4096 count={count} status=none | split -a 6 -d -b 4096 --additional-suffix=.bin - f"
            );
            let fresh = if name == "small" { fresh } else { "" };
            let send = format!("lspan send --no-fsync src/t 127.0.0.1:dst/ {port}");
            row.entries.push(entry("lspan", fresh, send.clone(), &[files]));
            row.entries.extend(
                daemon.map(|d| entry("rsync daemon", fresh, format!("rsync -a src/t {rsync}/dst/"), &[d.id()])),
            );
            if name == "small" {
                row.what = format!("{count} files of 4 KiB, tmpfs, without fsync");
                row.entries.push(entry("cp -a", fresh, "cp -a src/t dst/".into(), &[]));
                row.goals = vec![
                    least("speed over the rsync daemon", 1.5, over_rsync),
                    most("time over that of cp -a", 2.0, |of| Some(of("lspan")?.seconds / of("cp -a")?.seconds)),
                ];
            } else {
                row.what = format!("{count} files of which none has changed");
                row.plant += &format!("; cd ../..; {send}");
                row.goals = vec![most("seconds", 1.0, |of| Some(of("lspan")?.seconds))];
            }
        }
        "delta" => {
            let bytes: u64 = if small { 1 << 30 } else { 4 << 30 };
            row.bytes = bytes;
            row.number = Some("MB on the link");
            // So many runs as make 1 %, evenly spread and off the bounds of chunks.
            let runs = (bytes / 100) >> 20;
            row.what = format!("{} MiB rewritten in place, 1 % in {runs} runs of 1 MiB each", bytes >> 20);
            let step = (bytes >> 20) / runs;
            row.plant = format!(
                "dd if=/dev/urandom of=src/old bs=1M count={} status=none; cp src/old src/f; \
                 for n in $(seq 0 {}); do dd if=/dev/urandom of=src/f bs=1M count=1 seek=$((n * {step} * 1048576 + 12345)) oflag=seek_bytes conv=notrunc status=none; done",
                bytes >> 20,
                runs - 1
            );
            let old = "rm -rf dst/*; cp src/old dst/f";
            let send = format!("lspan send --no-fsync --json src/f 127.0.0.1:dst/ {port}");
            row.entries.push(Entry { number: Some(moved), ..entry("lspan", old, send, &[files]) });
            row.entries.extend(daemon.map(|d| Entry {
                number: Some(rsync_sent),
                ..entry("rsync daemon", old, format!("rsync -a --no-W --stats src/f {rsync}/dst/"), &[d.id()])
            }));
            row.goals = vec![match small {
                true => most("MB on the link", 0.03 * 1073.8, |of| of("lspan")?.number),
                false => most("MB on the link", 0.03 * 4295.0, |of| of("lspan")?.number),
            }];
        }
        "pipe-in" | "pipe-out" => piped(name == "pipe-in", peers, &mut row),
        "mount-write" | "mount-tree" => written(name, peers, &mut row),
        mount => mounts(mount, peers, small, &mut row)?,
    }
    Ok(row)
}

/// From standard input to a service at a port of the other host's loopback, or from one to standard output. socat reaches it as the pipe does,
/// by a program there that passes on, and directly, as only a service is reached that waits for every host.
fn piped(into: bool, peers: &Peers, row: &mut Row) {
    let (what, ends) = match into {
        true => ("from standard input to a service of the other host", "< src/f > /dev/null"),
        false => ("from a service of the other host to standard output", "< /dev/null > /dev/null"),
    };
    row.what = format!("{} MiB {what}, tmpfs", row.bytes >> 20);
    let Some(service) = peers.services.as_ref().map(|all| &all[usize::from(!into)]) else { return };
    let (end, port, forwarder) = (service.end.id(), service.port, service.forwarder.id());
    let mut add = |name, command: String, servers: &[u32]| {
        let (command, servers) = (format!("{command} {ends}"), servers.to_vec());
        row.entries.push(Entry { name, prepare: String::new(), mount: None, command, servers, number: None });
    };
    add("lspan", format!("lspan pipe {} 127.0.0.1 tcp:{port}", peers.port()), &[end, peers.files.id()]);
    add("socat", format!("{SOCAT} - TCP:127.0.0.1:{}", service.forwarder_port), &[end, forwarder]);
    add("socat, directly", format!("{SOCAT} - TCP:127.0.0.1:{port}"), &[end]);
    row.goals = vec![least("speed over socat", 0.8, |of| speed(of, "socat"))];
}

/// A mount that can be written. sshfs says that something is written before it is; with the sync of each file both have to wait.
fn written(name: &str, peers: &Peers, row: &mut Row) {
    let mib = row.bytes >> 20;
    let (what, command) = match name {
        "mount-tree" => {
            row.plant =
                "mkdir src/names; for n in $(seq 1000); do head -c 4096 /dev/urandom > src/names/$n; done".into();
            row.bytes = 1000 * 4096;
            ("a tree of 1,000 files of 4 KiB, copied into the mount by cp -r".into(), "cp -r src/names mnt/names")
        }
        _ => (
            format!("a file of {mib} MiB, 1 MiB at a time, synced"),
            "dd if=src/f of=mnt/f bs=1M conv=fsync status=none",
        ),
    };
    row.what = format!("written in a mount, mounted anew each time: {what}");
    let to = peers.dir.join("dst").display().to_string();
    let mut add = |name, mount: String, servers: &[u32]| {
        let (prepare, command) = ("rm -rf dst/*".to_owned(), command.to_owned());
        row.entries.push(Entry { name, prepare, mount: Some(mount), command, servers: servers.to_vec(), number: None });
    };
    add("lspan", format!("lspan mount --rw 127.0.0.1:dst mnt {}", peers.port()), &[peers.files.id()]);
    if let Some(ssh) = peers.ssh.as_ref().filter(|_| run::which("sshfs").is_some()) {
        add("sshfs", format!("sshfs -f -F {}/conf spark:{to} mnt", peers.dir.display()), &[ssh.id()]);
    }
    row.goals = vec![least("speed over sshfs", 1.0, over_sshfs)];
}

fn mounts(name: &str, peers: &Peers, small: bool, row: &mut Row) -> Result<(), String> {
    let source = peers.dir.join("src").display().to_string();
    let reads = if small { 2_000 } else { 10_000 };
    let mib = row.bytes >> 20;
    let (what, command): (_, String) = match name {
        "mount-seq" => ("read front to back, 1 MiB at a time", "dd if=mnt/f of=/dev/null bs=1M status=none".into()),
        "mount-mmap" => (
            "mapped, front to back",
            "python3 -c \"import mmap;f=open('mnt/f','rb');m=mmap.mmap(f.fileno(),0,prot=mmap.PROT_READ);[m[i:i+1048576] for i in range(0,len(m),1<<20)]\"".into(),
        ),
        "mount-names" => {
            let send = format!("lspan send --no-fsync src/f 127.0.0.1:dst/ {}", peers.port());
            let fill = format!("rm -f failed; (while rm -f dst/f; {send}; do :; done; touch failed) >/dev/null 2>&1 & fill=$!");
            let full = "if test -e failed; then echo 'the link was not filled: a send failed' >&2; exit 1; fi";
            let end = "pkill -P $fill || :; kill $fill 2>/dev/null || :; wait $fill || :";
            ("", format!("{fill}; {STATS}; {full}; {end}"))
        }
        "mount-random-16" => {
            ("4 KiB at random places, 16 at a time", format!("readers mnt/f 16 {}", reads / 4))
        }
        _ => ("4 KiB at random places, one at a time", format!("readers mnt/f 1 {reads}")),
    };
    row.what = format!("mount of a file of {mib} MiB, mounted anew each time: {what}");
    if name == "mount-names" {
        row.what = "lstat of 1,000 names in the mount while a send fills the link".into();
        row.plant += "; mkdir src/names; for n in $(seq 1000); do echo $n > src/names/$n; done";
    }
    let mut add = |name, mount: String, servers: &[u32]| {
        let (command, servers) = (command.clone(), servers.to_vec());
        row.entries.push(Entry { name, prepare: String::new(), mount: Some(mount), command, servers, number: None });
    };
    add("lspan", format!("lspan mount 127.0.0.1:src mnt {}", peers.port()), &[peers.files.id()]);
    if name == "mount-names" {
        row.number = Some("ms, 99 of 100");
        row.entries[0].number = Some(plain);
        row.goals = vec![most("ms, 99 of 100", 10.0, |of| of("lspan")?.number)];
        return Ok(());
    }
    add("empty server", format!("empty mnt {}", row.bytes), &[]);
    if let Some(ssh) = peers.ssh.as_ref().filter(|_| run::which("sshfs").is_some()) {
        add("sshfs", format!("sshfs -f -F {}/conf spark:{source} mnt", peers.dir.display()), &[ssh.id()]);
    }
    row.goals = match name {
        "mount-random" | "mount-random-16" => {
            row.number = Some("1000/s");
            row.entries.iter_mut().for_each(|entry| entry.number = Some(plain));
            let bound = if name == "mount-random" { 2.0 } else { 4.0 };
            vec![
                least("rate over sshfs's", bound, |of| Some(of("lspan")?.number? / of("sshfs")?.number?)),
                least("share of the empty server", 0.5, |of| Some(of("lspan")?.number? / of("empty server")?.number?)),
            ]
        }
        _ => vec![least("share of the empty server", 0.7, over_empty), least("speed over sshfs", 3.0, over_sshfs)],
    };
    Ok(())
}
