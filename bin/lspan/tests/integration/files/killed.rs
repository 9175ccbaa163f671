//! Either end is killed at any byte, and every system call on files fails or kills in turn: what has arrived is kept, what has not
//! comes with the next run, and nothing is half.

use std::collections::BTreeMap;
use std::fs;
use std::process::{Command, Stdio};

use super::{World, err, noise, text, until};

/// What is moved twice after a kill, at most: the slots, which hold what is under way.
const WINDOW: u64 = 8 * (4 << 20);

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
            server.take().map(super::Server::kill);
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
const CALLS: &str = "openat2,newfstatat,fstat,getdents64,pread64,pwrite64,fallocate,ftruncate,fchmod,utimensat,fsync,syncfs,\
                     renameat2,unlinkat,mkdirat,symlinkat,readlinkat,flock,copy_file_range,flistxattr,lseek";

/// Twenty files of all sizes.
fn plant(world: &World) {
    fs::create_dir_all(world.path("src/sub")).unwrap();
    for n in 0..18 {
        fs::write(world.path(&format!("src/sub/{n}")), noise(n * 1000, n as u64)).unwrap();
    }
    fs::write(world.path("src/large"), noise(5 << 20, 77)).unwrap();
    fs::write(world.path("src/larger"), noise((6 << 20) + 9, 78)).unwrap();
    std::os::unix::fs::symlink("large", world.path("src/link")).unwrap();
}

/// Whatever is visible is whole.
fn nothing_is_half(world: &World) {
    fn walk(world: &World, below: &str) {
        let Ok(entries) = fs::read_dir(world.path("share").join(below)) else { return };
        for entry in entries.flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            if name == ".lspan" || name.starts_with(".lspan-") {
                continue;
            }
            let path = if below.is_empty() { name } else { format!("{below}/{name}") };
            if entry.file_type().unwrap().is_dir() {
                walk(world, &path);
            } else if entry.file_type().unwrap().is_file() {
                let there = fs::read(world.path("share").join(&path)).unwrap();
                assert!(there == fs::read(world.path(&path)).unwrap(), "{path} is half");
            }
        }
    }
    walk(world, "");
}

/// How often each call is made, by call, from strace's own output.
fn counts(log: &str) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for line in log.lines() {
        let call = line.split_whitespace().find(|word| word.contains('(')).unwrap_or_default();
        let call = call.split('(').next().unwrap_or_default();
        if CALLS.split(',').any(|name| name == call) {
            *counts.entry(call.to_owned()).or_insert(0) += 1;
        }
    }
    counts
}

#[test]
fn every_call_on_files_that_kills_or_fails_is_made_good_by_the_next_run() {
    if Command::new("strace").arg("-V").stdout(Stdio::null()).status().is_err() {
        eprintln!("skipped: strace is not installed");
        return;
    }
    let full = std::env::var_os("LINKSPAN_STRACE").is_some();
    let world = World::new("strace");
    plant(&world);
    let log = world.path("log");
    let trace = |inject: Option<&str>| {
        let mut args: Vec<String> = ["strace", "-f", "-qq", "-o"].map(str::to_owned).to_vec();
        args.push(log.display().to_string());
        args.push(format!("--trace={CALLS}"));
        args.extend(inject.map(|inject| format!("--inject={inject}")));
        args
    };
    // How often each call is made when nothing happens, at the receiver.
    let args = trace(None);
    let server = world.serve(&args.iter().map(String::as_str).collect::<Vec<_>>(), ":rw");
    let before = counts(&fs::read_to_string(&log).unwrap());
    world.ok(&["send", "src", &world.place("data/")]);
    let after = counts(&fs::read_to_string(&log).unwrap());
    stop(server);
    for (call, &total) in &after {
        let first = before.get(call).copied().unwrap_or(0) + 1;
        // In `cargo test` the first, one in the middle and the last of each; LINKSPAN_STRACE=all takes every one.
        let mut turns: Vec<usize> =
            if full { (first..=total).collect() } else { vec![first, (first + total) / 2, total] };
        turns.retain(|turn| (first..=total).contains(turn));
        turns.dedup();
        for what in ["error=EIO", "signal=SIGKILL"] {
            for &turn in &turns {
                let _ = fs::remove_dir_all(world.path("share"));
                fs::create_dir(world.path("share")).unwrap();
                let args = trace(Some(&format!("{call}:{what}:when={turn}")));
                let args: Vec<&str> = args.iter().map(String::as_str).collect();
                // The log of the run before lags behind: this call may be one of the start.
                let Some(server) = world.try_serve(&args, ":rw") else { continue };
                let mut client =
                    world.lspan(&["send", "src", &world.place("data/")]).stderr(Stdio::null()).spawn().unwrap();
                if what.contains("KILL") {
                    // The server dies somewhere; the client would look for another one.
                    until("neither end ends", || gone(&server) || client.try_wait().unwrap().is_some());
                    let _ = client.kill();
                }
                client.wait().unwrap();
                stop(server);
                nothing_is_half(&world);
                let server = world.serve(&[], ":rw");
                let output = world.run(&["send", "src", &world.place("data/")]);
                assert_eq!(output.status.code(), Some(0), "{call} {what} {turn}: {}", err(&output));
                drop(server);
                let (src, share) = (world.path("src"), world.path("share/src"));
                super::same(&src.join("large"), &share.join("large"));
                super::same(&src.join("larger"), &share.join("larger"));
                super::same(&src.join("sub"), &with_no_partials(&share.join("sub")));
            }
        }
    }
}

/// Partial files of packs stay after a kill, hidden, until they are swept.
fn with_no_partials(dir: &std::path::Path) -> std::path::PathBuf {
    for entry in fs::read_dir(dir).unwrap().flatten() {
        if entry.file_name().to_string_lossy().starts_with(".lspan-") {
            fs::remove_file(entry.path()).unwrap();
        }
    }
    dir.to_owned()
}

/// The traced program is the child of strace.
fn traced(server: &super::Server) -> Option<u32> {
    let id = server.child.id();
    fs::read_to_string(format!("/proc/{id}/task/{id}/children")).ok()?.split_whitespace().next()?.parse().ok()
}

fn gone(server: &super::Server) -> bool {
    traced(server).is_none()
}

pub(super) fn stop(mut server: super::Server) {
    if let Some(pid) = traced(&server).and_then(|pid| rustix::process::Pid::from_raw(pid as i32)) {
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
    }
    let _ = server.child.wait();
}
