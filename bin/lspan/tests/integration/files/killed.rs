//! Either end is killed at any byte, and every system call on files fails or kills in turn: what has arrived is kept, what has not
//! comes with the next run, and nothing is half.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Command, Stdio};

use super::{Running, Server, World, err, noise, text, until};

/// What is moved twice after a kill, at most: the slots, which hold what is under way.
pub(super) const WINDOW: u64 = 8 * (4 << 20);

/// How often either end is killed in `cargo test`; `LINKSPAN_KILLS=100` is the full number.
fn kills() -> u64 {
    std::env::var("LINKSPAN_KILLS").ok().and_then(|text| text.parse().ok()).unwrap_or(6)
}

/// Bytes that a partial file has on the disk, of content of which no chunk begins with a zero; 0 where there is none. One byte of each
/// chunk is read, for the transfer goes on meanwhile.
fn received(world: &World) -> u64 {
    let is_part = |name: &str| name.starts_with(".lspan-") && name.ends_with(".part");
    let files = fs::read_dir(world.path("share")).unwrap().flatten();
    let parts = files.filter(|entry| is_part(&entry.file_name().to_string_lossy()));
    parts.filter_map(|part| fs::File::open(part.path()).ok()).map(|file| begun(&file) << 20).sum()
}

fn begun(file: &fs::File) -> u64 {
    let first = |n: u64| {
        let mut byte = [0];
        (file.read_at(&mut byte, n << 20).ok()? > 0).then_some(byte[0])
    };
    (0..).map_while(first).filter(|byte| *byte != 0).count() as u64
}

#[test]
fn an_end_that_is_killed_at_any_byte_costs_at_most_the_window() {
    let world = World::new("kill");
    let size: u64 = 96 << 20;
    // No chunk begins with a zero.
    let mut bytes = noise(size as usize, 5);
    bytes.chunks_mut(1 << 20).for_each(|chunk| chunk[0] |= 1);
    fs::write(world.path("src/f"), &bytes).unwrap();
    let mut inside = 0;
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
            inside += u64::from(had < size * 9 / 10);
            assert!(
                moved + had <= size + WINDOW,
                "round {round}: {had} bytes were there and {moved} were sent of {size}"
            );
        }
        assert!(fs::read(world.path("share/f")).unwrap() == bytes, "round {round}: another content");
        assert_eq!(fs::read_dir(world.path("share")).unwrap().count(), 1, "round {round}: something is left");
        fs::remove_file(world.path("share/f")).unwrap();
    }
    assert!(inside * 2 >= kills(), "of {} kills {inside} were in the middle", kills());
}

#[test]
fn what_was_killed_and_is_not_taken_up_for_a_month_goes_with_a_line() {
    let world = World::new("swept");
    let _server = world.serve(&[], "");
    fs::write(world.path("share/f"), noise(96 << 20, 5)).unwrap();
    fs::write(world.path("share/other"), b"x").unwrap();
    let (out, get) = (world.path("out"), world.place("data/f"));
    let mut client = Running(world.lspan(&["get", &get, "out"]).stderr(Stdio::null()).spawn().unwrap());
    let is_left =
        || fs::read_dir(&out).unwrap().flatten().any(|e| e.file_name().as_encoded_bytes().ends_with(b".part"));
    until("nothing arrives", is_left);
    client.0.kill().unwrap();
    client.0.wait().unwrap();
    world.ok(&["get", &world.place("data/other"), "out"]);
    assert!(is_left(), "it goes before anybody could take it up");
    let month = std::time::Duration::from_secs(30 * 24 * 3600 + 60);
    // A kill may have come before the journal knew the partial file, whose own time counts then.
    let of = |dir: &str| fs::read_dir(world.path(dir)).unwrap().flatten();
    for entry in of("state/linkspan/files").chain(of("out")) {
        let file = fs::File::options().write(true).open(entry.path()).unwrap();
        file.set_modified(std::time::SystemTime::now() - month).unwrap();
    }
    let output = world.ok(&["get", &world.place("data/other"), "out"]);
    assert!(err(&output).contains("nobody has taken up for 30 days") && !is_left(), "{}", err(&output));
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

/// From which turn to which a thread makes each call, by call, from strace's own output: those from the first look-up below a root on.
/// A client looks for its paths before that.
fn turns(log: &str) -> BTreeMap<String, (usize, usize)> {
    let mut threads: BTreeMap<(&str, &str), (usize, usize)> = BTreeMap::new();
    let mut begun = false;
    for line in log.lines() {
        let mut words = line.split_whitespace();
        if let (Some(thread), Some((call, _))) = (words.next(), words.next().and_then(|word| word.split_once('('))) {
            begun |= call == "openat2";
            let (before, all) = threads.entry((call, thread)).or_default();
            *all += 1;
            if !begun {
                *before += 1;
            }
        }
    }
    let mut turns = BTreeMap::new();
    for ((call, _), (before, all)) in threads.into_iter().filter(|(_, (before, all))| before < all) {
        let (first, last) = turns.entry(call.to_owned()).or_insert((before + 1, all));
        (*first, *last) = ((*first).min(before + 1), (*last).max(all));
    }
    turns
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

/// Whose calls fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Server,
    Client,
}

/// A transfer with one end traced, whose calls fail or kill it as told; whether the client says that all is well. `None`, with a word: nothing
/// may be traced here.
fn traced_run(world: &World, args: &[&str], end: End, inject: Option<&str>) -> Option<bool> {
    let mut server = world.serve(&[], ":rw");
    if end == End::Client {
        let lspan = world.lspan(args);
        let mut command = Command::new("strace");
        command.args(["-f", "-o"]).arg(world.path("log")).arg(format!("--trace={CALLS}"));
        command.args(inject.map(|inject| format!("--inject={inject}"))).arg(lspan.get_program()).args(lspan.get_args());
        world.settings(&mut command);
        let mut client = Running(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().ok()?);
        until("the client does not end", || client.0.try_wait().unwrap().is_some());
        assert!(server.child.try_wait().unwrap().is_none(), "the server ended with its client");
        return Some(client.0.wait().unwrap().success());
    }
    let mut strace = attach(world, &server, inject)?;
    let mut client = Running(world.lspan(args).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
    // A server that dies is not looked for: another one comes.
    let ended = || server.child.try_wait().unwrap().is_some() || client.0.try_wait().unwrap().is_some();
    until("neither end ends", ended);
    let done = server.child.try_wait().unwrap().is_none() && client.0.wait().unwrap().success();
    drop((client, server));
    strace.0.wait().unwrap();
    Some(done)
}

/// A transfer of these files, again and again: each call of either end on files fails once, and kills it once, and the next run makes good
/// what is missing.
fn each_call_in_turn(world: &World, args: &[&str], from: &Path, to: &Path) {
    let full = std::env::var_os("LINKSPAN_STRACE").is_some();
    plant(&from.join("src"));
    let clean = || {
        let _ = fs::remove_dir_all(to);
        fs::create_dir(to).unwrap();
    };
    let all_is_there = || {
        let (there, here) = (from.join("src"), to.join("src"));
        super::same(&there.join("large"), &here.join("large"));
        super::same(&there.join("larger"), &here.join("larger"));
        super::same(&there.join("link"), &here.join("link"));
        super::same(&there.join("sub"), &with_no_partials(&here.join("sub")));
    };
    let (mut tried, mut met) = (0, 0);
    for end in [End::Server, End::Client] {
        clean();
        let Some(done) = traced_run(world, args, end, None) else { return };
        let calls = turns(&fs::read_to_string(world.path("log")).unwrap());
        assert!(
            done && calls.len() > 5 && calls.values().map(|(_, last)| last).sum::<usize>() > 20,
            "{end:?}: {calls:?}"
        );
        for (n, (call, &(first, last))) in calls.iter().enumerate() {
            // In `cargo test` the first of a call fails and the last kills, of every other call at either end; LINKSPAN_STRACE=all takes every
            // one for both.
            let mut mishaps = vec![("error=EIO", first), ("signal=SIGKILL", last)];
            if full {
                mishaps = (first..=last).flat_map(|turn| [("error=EIO", turn), ("signal=SIGKILL", turn)]).collect();
            } else if n % 2 != end as usize {
                continue;
            }
            for (what, turn) in mishaps {
                clean();
                let inject = format!("{call}:{what}:when={turn}");
                let Some(done) = traced_run(world, args, end, Some(&inject)) else { return };
                let log = fs::read_to_string(world.path("log")).unwrap();
                tried += 1;
                met += u64::from(log.contains("(INJECTED)") || log.contains("killed by SIGKILL"));
                nothing_is_half(from, to);
                if done {
                    all_is_there();
                }
                let server = world.serve(&[], ":rw");
                let output = world.run(args);
                assert_eq!(output.status.code(), Some(0), "{end:?} {inject}: {}", err(&output));
                drop(server);
                all_is_there();
            }
        }
    }
    // Not each thread comes to each turn every time.
    assert!(met * 2 > tried, "of {tried} mishaps {met} happened");
}

#[test]
fn every_call_on_files_of_either_end_of_a_send_that_kills_or_fails_is_made_good_by_the_next_run() {
    let world = World::new("strace-send");
    each_call_in_turn(&world, &["send", "src", &world.place("data/")], &world.dir, &world.path("share"));
}

#[test]
fn every_call_on_files_of_either_end_of_a_get_that_kills_or_fails_is_made_good_by_the_next_run() {
    let world = World::new("strace-get");
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
