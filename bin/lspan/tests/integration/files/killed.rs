//! Either end is killed at any byte, and every system call on files fails or kills in turn: what has arrived is kept, what has not
//! comes with the next run, and nothing is half.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use super::{Running, Server, World, err, noise, text, until};

/// What is moved twice after a kill, at most: the slots, which hold what is under way.
pub(super) const WINDOW: u64 = 8 * (4 << 20);

/// How often either end is killed in `cargo test`; `LINKSPAN_KILLS=100` is the full number.
fn kills() -> u64 {
    std::env::var("LINKSPAN_KILLS").ok().and_then(|text| text.parse().ok()).unwrap_or(6)
}

/// Bytes that a partial file has on the disk; 0 where there is none.
fn received(world: &World) -> u64 {
    let is_part = |name: &str| name.starts_with(".lspan-") && name.ends_with(".part");
    let files = fs::read_dir(world.path("share")).unwrap().flatten();
    let parts = files.filter(|entry| is_part(&entry.file_name().to_string_lossy()));
    parts.filter_map(|part| fs::read(part.path()).ok()).map(|bytes| non_zero(&bytes)).sum()
}

/// Whole chunks that are there.
fn non_zero(bytes: &[u8]) -> u64 {
    bytes
        .chunks(1 << 20)
        .filter(|chunk| chunk[0] != 0 || chunk[chunk.len() - 1] != 0)
        .map(|chunk| chunk.len() as u64)
        .sum()
}

#[test]
fn an_end_that_is_killed_at_any_byte_costs_at_most_the_window() {
    let world = World::new("kill");
    let size: u64 = 96 << 20;
    // No chunk begins with a zero.
    let mut bytes = noise(size as usize, 5);
    bytes.chunks_mut(1 << 20).for_each(|chunk| chunk[0] |= 1);
    fs::write(world.path("src/f"), &bytes).unwrap();
    for round in 0..kills() {
        let at = (round * 2_654_435_761 + 7_000_000) % (size * 3 / 4);
        let mut server = Some(world.serve(&[], ":rw"));
        let mut client = world
            .lspan(&["send", "src/f", &world.place("data/"), "--json"])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        until("nothing arrives", || received(&world) > at || client.try_wait().unwrap().is_some());
        if round % 2 == 0 {
            client.kill().unwrap();
            client.wait().unwrap();
            // The server notices, and lets the file go.
        } else {
            server.take().map(Server::kill);
            client.kill().unwrap();
            client.wait().unwrap();
        }
        drop(server);
        assert!(!world.path("share/f").exists() || fs::read(world.path("share/f")).unwrap() == bytes, "half a file");
        let had = received(&world);
        let server = world.serve(&[], ":rw");
        let output = world.ok(&["send", "src/f", &world.place("data/"), "--json"]);
        drop(server);
        let end: serde_json::Value = serde_json::from_str(text(&output).lines().last().unwrap()).unwrap();
        let moved = end["moved_bytes"].as_u64().unwrap();
        if had > 0 {
            assert!(
                moved + had <= size + WINDOW,
                "round {round}: {had} bytes were there and {moved} were sent of {size}"
            );
        }
        assert!(fs::read(world.path("share/f")).unwrap() == bytes, "round {round}: another content");
        assert_eq!(fs::read_dir(world.path("share")).unwrap().count(), 1, "round {round}: something is left");
        fs::remove_file(world.path("share/f")).unwrap();
    }
}

/// Calls on files that a transfer makes, as strace names them.
const CALLS: &str = "openat,openat2,newfstatat,fstat,statx,getdents64,pread64,pwrite64,fallocate,ftruncate,fchmod,utimensat,fsync,\
                     syncfs,sync_file_range,fadvise64,renameat2,unlinkat,mkdirat,symlinkat,readlinkat,flock,copy_file_range,ioctl,\
                     flistxattr,lseek,fstatfs";

/// Twenty files of all sizes.
fn plant(dir: &Path) {
    fs::create_dir_all(dir.join("sub")).unwrap();
    for n in 0..18 {
        fs::write(dir.join(format!("sub/{n}")), noise(n * 1000, n as u64)).unwrap();
    }
    fs::write(dir.join("large"), noise(5 << 20, 77)).unwrap();
    fs::write(dir.join("larger"), noise((6 << 20) + 9, 78)).unwrap();
    std::os::unix::fs::symlink("large", dir.join("link")).unwrap();
}

/// Whatever is visible is whole.
fn nothing_is_half(from: &Path, to: &Path) {
    for entry in fs::read_dir(to).into_iter().flatten().flatten() {
        let name = entry.file_name();
        if name == ".lspan" || name.to_string_lossy().starts_with(".lspan-") {
            continue;
        }
        let (from, to, kind) = (from.join(&name), to.join(&name), entry.file_type().unwrap());
        if kind.is_dir() {
            nothing_is_half(&from, &to);
        } else if kind.is_file() {
            assert!(fs::read(&to).unwrap() == fs::read(&from).unwrap(), "{} is half", to.display());
        }
    }
}

/// How often a thread makes each call, at most, by call, from strace's own output.
fn counts(log: &str) -> BTreeMap<String, usize> {
    let mut threads: BTreeMap<(&str, &str), usize> = BTreeMap::new();
    for line in log.lines() {
        let mut words = line.split_whitespace();
        if let (Some(thread), Some((call, _))) = (words.next(), words.next().and_then(|word| word.split_once('('))) {
            *threads.entry((call, thread)).or_insert(0) += 1;
        }
    }
    let mut counts = BTreeMap::new();
    for ((call, _), count) in threads {
        let most = counts.entry(call.to_owned()).or_insert(0);
        *most = count.max(*most);
    }
    counts
}

/// Traces a server that runs: its calls count from here on, thread by thread, as strace does it. `None`, with a word: it may not.
fn attach(world: &World, server: &Server, inject: Option<&str>) -> Option<Running> {
    let mut command = Command::new("strace");
    command.args(["-f", "-o"]).arg(world.path("log")).arg(format!("--trace={CALLS}"));
    command.args(inject.map(|inject| format!("--inject={inject}"))).args(["-p", &server.child.id().to_string()]);
    let Ok(mut strace) = command.stderr(Stdio::piped()).spawn() else {
        eprintln!("skipped: strace is not installed");
        return None;
    };
    let mut lines = BufReader::new(strace.stderr.take().unwrap()).lines().map_while(Result::ok);
    let first = lines.next().unwrap_or_default();
    let strace = Running(strace);
    if !first.contains("attached") {
        eprintln!("skipped: strace may not attach (kernel.yama.ptrace_scope): {first}");
        return None;
    }
    // What it says of each thread must find somebody.
    std::thread::spawn(move || lines.for_each(drop));
    Some(strace)
}

/// A transfer of these files, again and again: each call of the server on files fails once, and kills it once, and the next run makes
/// good what is missing.
fn each_call_in_turn(world: &World, args: &[&str], from: &Path, to: &Path) {
    let full = std::env::var_os("LINKSPAN_STRACE").is_some();
    plant(&from.join("src"));
    let clean = || {
        let _ = fs::remove_dir_all(to);
        fs::create_dir(to).unwrap();
    };
    let server = world.serve(&[], ":rw");
    let Some(mut strace) = attach(world, &server, None) else { return };
    world.ok(args);
    drop(server);
    strace.0.wait().unwrap();
    let counts = counts(&fs::read_to_string(world.path("log")).unwrap());
    assert!(counts.len() > 5 && counts.values().sum::<usize>() > 20, "{counts:?}");
    for (call, &most) in &counts {
        // In `cargo test` the first of each fails and the last kills; LINKSPAN_STRACE=all takes every one for both.
        let mut turns = vec![("error=EIO", 1), ("signal=SIGKILL", most)];
        if full {
            turns = (1..=most).flat_map(|turn| [("error=EIO", turn), ("signal=SIGKILL", turn)]).collect();
        }
        for (what, turn) in turns {
            clean();
            let mut server = world.serve(&[], ":rw");
            let Some(mut strace) = attach(world, &server, Some(&format!("{call}:{what}:when={turn}"))) else { return };
            let mut client = Running(world.lspan(args).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
            // A server that dies is not looked for: another one comes.
            let ended = || server.child.try_wait().unwrap().is_some() || client.0.try_wait().unwrap().is_some();
            until("neither end ends", ended);
            if server.child.try_wait().unwrap().is_none() {
                client.0.wait().unwrap();
            }
            drop((client, server));
            strace.0.wait().unwrap();
            nothing_is_half(from, to);
            let server = world.serve(&[], ":rw");
            let output = world.run(args);
            assert_eq!(output.status.code(), Some(0), "{call} {what} {turn}: {}", err(&output));
            drop(server);
            let (there, here) = (from.join("src"), to.join("src"));
            super::same(&there.join("large"), &here.join("large"));
            super::same(&there.join("larger"), &here.join("larger"));
            super::same(&there.join("sub"), &with_no_partials(&here.join("sub")));
        }
    }
}

#[test]
fn every_call_of_the_receiver_on_files_that_kills_or_fails_is_made_good_by_the_next_run() {
    let world = World::new("strace-receiver");
    each_call_in_turn(&world, &["send", "src", &world.place("data/")], &world.dir, &world.path("share"));
}

#[test]
fn every_call_of_the_sender_on_files_that_kills_or_fails_is_made_good_by_the_next_run() {
    let world = World::new("strace-sender");
    each_call_in_turn(&world, &["get", &world.place("data/src"), "out"], &world.path("share"), &world.path("out"));
}

/// Partial files of packs stay after a kill, hidden, until they are swept.
fn with_no_partials(dir: &Path) -> std::path::PathBuf {
    for entry in fs::read_dir(dir).unwrap().flatten() {
        if entry.file_name().to_string_lossy().starts_with(".lspan-") {
            fs::remove_file(entry.path()).unwrap();
        }
    }
    dir.to_owned()
}

/// The traced program is the child of strace.
fn traced(server: &Server) -> Option<u32> {
    let id = server.child.id();
    fs::read_to_string(format!("/proc/{id}/task/{id}/children")).ok()?.split_whitespace().next()?.parse().ok()
}

pub(super) fn stop(mut server: Server) {
    if let Some(pid) = traced(&server).and_then(|pid| rustix::process::Pid::from_raw(pid as i32)) {
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
    }
    let _ = server.child.wait();
}
