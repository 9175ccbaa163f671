//! A peer's share that can be written, with the kernel's own FUSE and real processes at both ends.

use std::fs::{self, File, Permissions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::fs::{CWD, Dir, RenameFlags, renameat_with};
use rustix::io::Errno;
use rustix::process::Signal;

use super::mount::{Mount, as_owner, is, signal};
use super::{World, err, noise, same, until};

fn world(name: &str) -> World {
    World::new(&format!("written-{name}"))
}

fn refused<T>(result: std::io::Result<T>, errno: Errno) {
    let error = result.err().expect("it was done");
    assert!(is(&error, errno), "{error} in place of {errno}");
}

#[test]
fn what_is_done_in_a_mount_that_may_be_written_the_peer_has_when_the_call_returns() {
    let world = world("all");
    let _server = world.serve(&[], ":rw");
    let Some(mount) = Mount::written(&world, "mnt", "60") else { return };
    let (here, there) = (|name: &str| mount.at.join(name), |name: &str| world.path("share").join(name));
    let bytes = noise(3_000_001, 1);
    fs::write(here("f"), &bytes).unwrap();
    assert!(fs::read(there("f")).unwrap() == bytes, "a write returned and the peer has it not");
    let mut file = File::options().read(true).write(true).open(here("f")).unwrap();
    file.seek(SeekFrom::Start(1_000_000)).unwrap();
    file.write_all(b"in the midst").unwrap();
    file.set_len(1_000_020).unwrap();
    File::options().append(true).open(here("f")).unwrap().write_all(b"end").unwrap();
    let mut expected = bytes[..1_000_020].to_vec();
    expected[1_000_000..1_000_012].copy_from_slice(b"in the midst");
    expected.extend_from_slice(b"end");
    assert!(fs::read(there("f")).unwrap() == expected && fs::read(here("f")).unwrap() == expected);
    drop(file);
    fs::write(here("f"), "short").unwrap();
    assert_eq!(fs::read(there("f")).unwrap(), b"short", "O_TRUNC");

    fs::create_dir_all(here("d/e")).unwrap();
    fs::set_permissions(here("d/e"), Permissions::from_mode(0o750)).unwrap();
    fs::rename(here("f"), here("d/e/g")).unwrap();
    let deep = File::open(here("d/e/g")).unwrap();
    fs::rename(here("d"), here("moved")).unwrap();
    fs::write(here("moved/e/h"), "h").unwrap();
    // By its number, whose path is another now.
    assert_eq!(deep.metadata().unwrap().len(), 5);
    fs::hard_link(here("moved/e/g"), here("other name")).unwrap();
    assert_eq!((fs::metadata(here("other name")).unwrap().nlink(), deep.metadata().unwrap().nlink()), (2, 2));
    symlink("moved/e/g", here("link")).unwrap();
    assert_eq!(fs::read(here("link")).unwrap(), b"short");
    let at = std::time::UNIX_EPOCH + Duration::new(1_000_000_000, 5);
    File::options().write(true).open(here("other name")).unwrap().set_modified(at).unwrap();
    fs::set_permissions(here("other name"), Permissions::from_mode(0o000)).unwrap();
    fs::set_permissions(here("other name"), Permissions::from_mode(0o604)).unwrap();
    let known = fs::metadata(there("other name")).unwrap();
    assert_eq!((known.mode() & 0o7777, known.mtime(), known.mtime_nsec()), (0o604, 1_000_000_000, 5));
    let early = std::time::UNIX_EPOCH - Duration::new(1, 300_000_000);
    deep.set_modified(early).unwrap();
    for seen in [here("other name"), there("other name")].map(fs::metadata) {
        assert_eq!(seen.unwrap().modified().unwrap(), early);
    }
    // A directory that is open is listed where it is by then.
    let open = Dir::new(File::open(here("moved")).unwrap()).unwrap();
    fs::rename(here("moved"), here("elsewhere")).unwrap();
    assert!(open.flatten().any(|entry| entry.file_name() == c"e"), "another directory is listed, or none");
    fs::rename(here("elsewhere"), here("moved")).unwrap();

    let rename = |from: &str, to: &str, how| renameat_with(CWD, here(from), CWD, here(to), how).map_err(Into::into);
    fs::write(here("new"), "new").unwrap();
    refused(rename("new", "link", RenameFlags::NOREPLACE), Errno::EXIST);
    rename("new", "moved/e/h", RenameFlags::EXCHANGE).unwrap();
    assert_eq!((fs::read(there("new")).unwrap(), fs::read(there("moved/e/h")).unwrap()), (b"h".into(), b"new".into()));
    assert_eq!((fs::read(here("new")).unwrap(), fs::read(here("moved/e/h")).unwrap()), (b"h".into(), b"new".into()));
    fs::rename(here("new"), here("moved/e/h")).unwrap();
    assert_eq!(fs::read(there("moved/e/h")).unwrap(), b"h", "a name that something has is taken over");
    same(&world.path("share"), &mount.at);

    refused(File::create_new(here("link")), Errno::EXIST);
    refused(fs::remove_dir(here("moved/e")), Errno::NOTEMPTY);
    refused(fs::write(here(".lspan"), ""), Errno::ACCESS);
    refused(fs::write(here(&"x".repeat(256)), ""), Errno::NAMETOOLONG);
    refused(fs::set_permissions(here("link"), Permissions::from_mode(0o4755)), Errno::PERM);
    refused(std::os::unix::fs::chown(here("link"), Some(12345), None), Errno::PERM);
    let fifo = rustix::fs::mknodat(CWD, here("fifo"), rustix::fs::FileType::Fifo, 0o600.into(), 0);
    refused(fifo.map_err(Into::into), Errno::PERM);
    for name in ["link", "other name", "moved/e/g", "moved/e/h"] {
        fs::remove_file(here(name)).unwrap();
    }
    fs::remove_dir(here("moved/e")).unwrap();
    fs::remove_dir(here("moved")).unwrap();
    assert_eq!(fs::read_dir(there("")).unwrap().count(), 0);
    // What is open stays what it is without a name.
    let mut file = File::options().read(true).write(true).create_new(true).open(here("temporary")).unwrap();
    fs::remove_file(here("temporary")).unwrap();
    file.write_all(b"still here").unwrap();
    file.set_len(5).unwrap();
    let mut text = String::new();
    file.rewind().unwrap();
    file.read_to_string(&mut text).unwrap();
    assert_eq!((text.as_str(), file.metadata().unwrap().nlink()), ("still", 0));
    file.set_permissions(Permissions::from_mode(0o640)).unwrap();
    file.set_modified(at).unwrap();
    let known = file.metadata().unwrap();
    assert_eq!((known.mode() & 0o777, known.mtime(), known.mtime_nsec()), (0o640, 1_000_000_000, 5));
}

#[test]
fn a_file_is_linked_and_a_link_is_read_by_the_name_that_it_has_where_the_other_one_is_gone_or_of_another_one() {
    let world = world("names");
    let _server = world.serve(&[], ":rw");
    let Some(mount) = Mount::written(&world, "mnt", "60") else { return };
    let at = |name: &str| mount.at.join(name);
    for (old, other, third) in [("a", "b", "c"), ("A", "B", "C")] {
        fs::write(at(old), "old").unwrap();
        fs::hard_link(at(old), at(other)).unwrap();
        fs::remove_file(at(other)).unwrap();
        if other == "B" {
            fs::write(at(other), "new").unwrap();
        }
        fs::hard_link(at(old), at(third)).unwrap();
        assert_eq!(fs::read_to_string(world.path("share").join(third)).unwrap(), "old");
    }
    for (old, other) in [("l", "m"), ("L", "M")] {
        symlink("target", at(old)).unwrap();
        fs::hard_link(at(old), at(other)).unwrap();
        fs::remove_file(at(other)).unwrap();
        if other == "M" {
            fs::write(at(other), "new").unwrap();
        }
        assert_eq!(fs::read_link(at(old)).unwrap(), Path::new("target"));
    }
    same(&world.path("share"), &mount.at);
}

/// Where names were given to files of two file systems: in both numbers begin anew.
const TWO_DEVICES: &str = "mkdir a b; mount -t tmpfs none a; mount -t tmpfs none b; mkdir a/all b/all b/work
    for n in 1 2 3 4 5 6; do echo old > a/all/old$n; done
    mount -t overlay none -o lowerdir=a/all,upperdir=b/all,workdir=b/work,xino=off share
    for n in 1 2 3 4 5 6; do echo old > share/new$n; done
    stat -c '%i %d' share/* | sort -u | cut -d' ' -f1 | uniq -d | grep -q .";

#[test]
fn files_of_one_number_on_two_devices_are_two_files() {
    let world = world("devices");
    let Some(_server) = super::places::on_disk(&world, TWO_DEVICES) else { return };
    let Some(mount) = Mount::written(&world, "mnt", "60") else { return };
    let all: Vec<String> = ["old", "new"].iter().flat_map(|kind| (1..7).map(move |n| format!("{kind}{n}"))).collect();
    let files: Vec<File> =
        all.iter().map(|name| File::options().read(true).write(true).open(mount.at.join(name)).unwrap()).collect();
    for (file, name) in files.iter().zip(&all) {
        file.set_len(0).unwrap();
        file.write_all_at(name.as_bytes(), 0).unwrap();
    }
    let numbers: std::collections::HashSet<u64> = files.iter().map(|file| file.metadata().unwrap().ino()).collect();
    assert_eq!(numbers.len(), all.len());
    world.ok(&["get", &world.place("data"), "out"]);
    for name in &all {
        assert_eq!(fs::read_to_string(world.path("out").join(name)).unwrap(), *name);
        assert_eq!(fs::read_to_string(mount.at.join(name)).unwrap(), *name);
    }
}

#[test]
fn a_share_that_is_read_only_is_not_mounted_to_be_written() {
    let world = world("only");
    fs::create_dir(world.path("mnt")).unwrap();
    let _server = world.serve(&[], "");
    let output = world.run(&["mount", "127.0.0.1:data", "mnt", "--rw"]);
    assert_eq!(output.status.code(), Some(5), "{}", err(&output));
    assert!(
        err(&output).contains("LS1852 share data is read-only there: its owner serves it with data=DIR:rw"),
        "{}",
        err(&output)
    );
}

#[test]
fn what_two_hosts_append_to_one_file_is_all_there() {
    let world = world("append");
    fs::write(world.path("share/log"), "").unwrap();
    let _server = world.serve(&[], ":rw");
    let (Some(one), Some(two)) = (Mount::written(&world, "mnt", "60"), Mount::written(&world, "mnt2", "60")) else {
        return;
    };
    std::thread::scope(|scope| {
        for (mount, name) in [(&one, "one"), (&two, "two")] {
            scope.spawn(move || {
                let mut log = File::options().append(true).open(mount.at.join("log")).unwrap();
                (0..300).for_each(|n| log.write_all(format!("{name} {n}\n").as_bytes()).unwrap());
            });
        }
    });
    let text = fs::read_to_string(world.path("share/log")).unwrap();
    for name in ["one", "two"] {
        let lines: Vec<&str> = text.lines().filter(|line| line.starts_with(name)).collect();
        let expected: Vec<String> = (0..300).map(|n| format!("{name} {n}")).collect();
        assert!(lines == expected, "of {name} {} lines", lines.len());
    }
    assert_eq!((text.lines().count(), fs::read_to_string(one.at.join("log")).unwrap()), (600, text));
}

/// Read past the kernel's own pages.
fn direct(path: &Path) -> File {
    let flags = rustix::fs::OFlags::DIRECT.bits() as i32;
    File::options().read(true).custom_flags(flags).open(path).unwrap()
}

#[test]
fn what_was_read_ahead_is_not_read_after_it_was_written_or_cut_off() {
    let world = world("ahead");
    let bytes = noise(4 << 20, 3);
    fs::write(world.path("share/f"), &bytes).unwrap();
    let _server = world.serve(&[], ":rw");
    let Some(mount) = Mount::written(&world, "mnt", "60") else { return };
    let reader = direct(&mount.at.join("f"));
    let writer = File::options().write(true).open(mount.at.join("f")).unwrap();
    let read = |at: usize| {
        let mut got = vec![0; 64 << 10];
        let len = reader.read_at(&mut got, at as u64).unwrap();
        got.truncate(len);
        got
    };
    let mut expected = bytes;
    for round in 0..8 {
        let at = round * (256 << 10);
        (0..4).for_each(|n| assert!(read(at + n * (64 << 10)) == expected[at + n * (64 << 10)..][..64 << 10]));
        let (next, new) = (at + (256 << 10), noise(128 << 10, round as u64 + 7));
        writer.write_all_at(&new, next as u64).unwrap();
        expected[next..][..128 << 10].copy_from_slice(&new);
    }
    assert!(read(2 << 20) == expected[2 << 20..][..64 << 10], "what was written is not what is read");
    writer.set_len((2 << 20) + 100).unwrap();
    assert_eq!(read(2 << 20).len(), 100, "what was cut off is read");
}

#[test]
fn a_sync_is_the_peer_s_and_so_is_what_fails_of_it() {
    let world = world("sync");
    if Command::new("strace").arg("-V").stdout(Stdio::null()).status().is_err() {
        eprintln!("skipped: strace is not installed");
        return;
    }
    let log = world.path("log").display().to_string();
    let strace = ["strace", "-f", "-qq", "-o", &log, "--trace=fsync,openat2", "--inject=fsync:error=EIO:when=3"];
    let Some(server) = world.try_serve(&strace, ":rw") else {
        eprintln!("skipped: strace may not trace (kernel.yama.ptrace_scope)");
        return;
    };
    let Some(mount) = Mount::written(&world, "mnt", "60") else { return super::killed::stop(server) };
    let count = || fs::read_to_string(&log).unwrap().lines().filter(|line| line.contains("fsync(")).count();
    let mut file = File::create(mount.at.join("f")).unwrap();
    file.write_all(b"x").unwrap();
    assert_eq!(count(), 0, "nobody has asked for it");
    file.sync_all().unwrap();
    assert_eq!(count(), 1);
    File::open(&mount.at).unwrap().sync_all().unwrap();
    assert_eq!(count(), 2, "names in a directory");
    refused(file.sync_all(), Errno::IO);
    file.sync_all().unwrap();
    let before = count();
    let dsync = rustix::fs::OFlags::DSYNC.bits() as i32;
    let mut log = File::options().append(true).custom_flags(dsync).open(mount.at.join("f")).unwrap();
    log.write_all(b"a line\n").unwrap();
    assert_eq!(count(), before + 1, "a line that is to be on the disk is not asked to be there");
    drop(mount);
    super::killed::stop(server);
}

#[test]
fn calls_that_change_something_end_in_time_while_the_peer_is_gone_and_go_on_when_it_is_back() {
    let world = world("gone");
    let server = world.serve(&[], ":rw");
    let Some(mount) = Mount::written(&world, "mnt", "3") else { return };
    let at = |name: &str| mount.at.join(name);
    ["a", "b", "c", "d"].iter().for_each(|name| fs::write(at(name), "old").unwrap());
    let begun = || File::options().write(true).open(at("a")).unwrap();
    let (fails, goes_on) = (begun(), begun());
    goes_on.write_all_at(b"first ", 0).unwrap();
    signal(&server, Signal::STOP);
    let since = Instant::now();
    std::thread::scope(|scope| {
        scope.spawn(|| refused(fails.write_at(b"never", 100), Errno::IO));
        scope.spawn(|| refused(fails.sync_all(), Errno::IO));
        scope.spawn(|| refused(fails.set_len(1000), Errno::IO));
        scope.spawn(|| refused(File::create_new(at("new")), Errno::IO));
        scope.spawn(|| refused(fs::create_dir(at("dir")), Errno::IO));
        scope.spawn(|| refused(fs::rename(at("b"), at("b2")), Errno::IO));
        scope.spawn(|| refused(fs::remove_file(at("c")), Errno::IO));
        scope.spawn(|| refused(fs::set_permissions(at("d"), Permissions::from_mode(0o600)), Errno::IO));
    });
    assert!(since.elapsed() < Duration::from_secs(30), "three seconds were said: {:?}", since.elapsed());
    signal(&server, Signal::CONT);
    until("it does not come back", || fs::write(at("back"), "x").is_ok());
    server.kill();
    let _server = world.serve(&[], ":rw");
    until("it does not come back", || fs::write(at("back"), "y").is_ok());
    // Open since before: the same file there, and its sync is good, for that host has not booted.
    goes_on.write_all_at(b"second", 6).unwrap();
    goes_on.sync_all().unwrap();
    assert!(fs::read(world.path("share/a")).unwrap().starts_with(b"first second"));
}

#[test]
fn a_file_whose_bits_keep_its_owner_out_goes_on_being_written_when_the_peer_is_back() {
    let world = world("owner");
    let Some(server) = world.try_serve(as_owner(), ":rw") else {
        eprintln!("skipped: a capability cannot be given up here");
        return;
    };
    let Some(mount) = Mount::written(&world, "mnt", "60") else { return };
    let file = File::options().write(true).create_new(true).mode(0o444).open(mount.at.join("f")).unwrap();
    file.write_all_at(b"one", 0).unwrap();
    server.kill();
    let _server = world.serve(as_owner(), ":rw");
    file.write_all_at(b"two", 3).unwrap();
    let there = world.path("share/f");
    assert_eq!((fs::read(&there).unwrap(), fs::metadata(&there).unwrap().mode() & 0o7777), (b"onetwo".into(), 0o444));
    refused(File::options().write(true).open(mount.at.join("f")), Errno::ACCESS);
}

#[test]
fn a_file_that_is_open_while_the_peer_starts_anew_is_never_another_one_of_its_number() {
    let world = world("number");
    let server = world.serve(&[], ":rw");
    let Some(mount) = Mount::written(&world, "mnt", "60") else { return };
    let (here, there) = (|name: &str| mount.at.join(name), |name: &str| world.path("share").join(name));
    let open =
        |name: &str| File::options().read(true).write(true).create(true).truncate(false).open(here(name)).unwrap();
    let (nameless, replaced) = (open("nameless"), open("replaced"));
    nameless.write_all_at(b"ours", 0).unwrap();
    replaced.write_all_at(b"ours", 0).unwrap();
    let numbers = [&nameless, &replaced].map(|file| file.metadata().unwrap().ino());
    fs::remove_file(here("nameless")).unwrap();
    server.kill();
    fs::remove_file(there("replaced")).unwrap();
    // ext4 gives the numbers out again at once.
    for name in ["replaced", "other"] {
        fs::write(there(name), "theirs").unwrap();
    }
    let again = ["replaced", "other"].map(|name| fs::metadata(there(name)).unwrap().ino());
    if !again.iter().any(|number| numbers.contains(number)) {
        eprintln!("skipped: this file system gives no number out again so soon");
    }
    let _server = world.serve(&[], ":rw");
    until("it does not come back", || fs::metadata(here("other")).is_ok());
    for file in [&nameless, &replaced] {
        refused(file.write_at(b"ours", 0), Errno::STALE);
    }
    for name in ["replaced", "other"] {
        let number = |path| fs::metadata(path).unwrap().ino();
        until("an old name is believed", || number(here(name)) == number(there(name)));
        for path in [here(name), there(name)] {
            assert_eq!(fs::read(path).unwrap(), b"theirs");
        }
    }
    // The kernel has pages of those by now, and none of them is for who has these open.
    for file in [&nameless, &replaced] {
        let error = file.read_at(&mut [0; 6], 0).expect_err("another file was read");
        assert!(is(&error, Errno::STALE) || is(&error, Errno::IO), "{error}");
    }
}

#[test]
fn a_directory_of_the_number_of_one_that_was_removed_while_a_process_is_in_it_can_be_used() {
    let world = world("removed");
    let _server = world.serve(&[], ":rw");
    let Some(mount) = Mount::written(&world, "mnt", "60") else { return };
    let at = |name: &str| mount.at.join(name);
    let inside = |name: &str| {
        let cat = Command::new("cat").current_dir(at(name)).stdin(Stdio::piped()).stdout(Stdio::null()).spawn();
        super::Running(cat.unwrap())
    };
    let number = |name: &str| fs::metadata(at(name)).unwrap().ino();
    ["removed", "replaced", "moved"].iter().for_each(|name| fs::create_dir(at(name)).unwrap());
    let (_removed, _replaced) = (inside("removed"), inside("replaced"));
    let before = ["removed", "replaced"].map(number);
    fs::remove_dir(at("removed")).unwrap();
    fs::rename(at("moved"), at("replaced")).unwrap();
    ["one", "two"].iter().for_each(|name| fs::create_dir(at(name)).unwrap());
    if !["one", "two"].map(number).iter().any(|number| before.contains(number)) {
        eprintln!("skipped: this file system gives no number out again so soon");
    }
    for name in ["one/f", "two/f", "replaced/f"] {
        fs::write(at(name), "x").unwrap();
        fs::create_dir(at(name).with_file_name("d")).unwrap();
    }
    same(&world.path("share"), &mount.at);
}

#[test]
fn a_connection_that_is_lost_while_a_file_is_read_ahead_costs_no_call() {
    let world = world("lost-ahead");
    let bytes = noise(8 << 20, 5);
    fs::write(world.path("share/f"), &bytes).unwrap();
    let server = world.serve(&[], ":rw");
    let Some(mount) = Mount::written(&world, "mnt", "60") else { return };
    let reader = direct(&mount.at.join("f"));
    let writer = File::options().write(true).open(mount.at.join("f")).unwrap();
    let read = |at: usize| {
        let mut got = vec![0; 64 << 10];
        reader.read_exact_at(&mut got, at as u64).unwrap_or_else(|error| panic!("at {at}: {error}"));
        assert!(got == bytes[at..][..64 << 10], "at {at}");
    };
    // The server has read the bytes before it answers, and answers one call after the other.
    let taken = || {
        let io = fs::read_to_string(format!("/proc/{}/io", server.child.id())).unwrap();
        io.lines().find_map(|line| line.strip_prefix("rchar: ")?.parse::<u64>().ok()).unwrap()
    };
    let before = taken();
    (0..16).for_each(|n| read(n << 16));
    until("it reads nothing ahead", || taken() >= before + (24 << 16));
    assert!(fs::metadata(mount.at.join("none")).is_err());
    // What is there already is read while the peer is stopped, and has more asked for, for which nobody waits.
    signal(&server, Signal::STOP);
    (16..19).for_each(|n| read(n << 16));
    server.kill();
    let _server = world.serve(&[], ":rw");
    read(6 << 20);
    writer.write_all_at(&bytes[..1 << 20], 0).unwrap();
    assert!(fs::read(world.path("share/f")).unwrap()[..1 << 20] == bytes[..1 << 20]);
}

fn shell(dir: &Path, script: &str) {
    let mut command = Command::new("sh");
    command
        .args(["-ec", script])
        .current_dir(dir)
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_NOSYSTEM", "1");
    let output = command.env_remove("CARGO_TARGET_DIR").output().unwrap();
    assert!(output.status.success(), "{script}: {}{}", super::text(&output), err(&output));
}

#[test]
fn git_and_cargo_work_inside() {
    let world = world("programs");
    let _server = world.serve(&[], ":rw");
    let Some(mount) = Mount::written(&world, "mnt", "60") else { return };
    if Command::new("git").arg("--version").stdout(Stdio::null()).status().is_err() {
        eprintln!("skipped: git is not installed");
    } else {
        let commit = "git -c user.name=n -c user.email=e commit -qm";
        shell(
            &mount.at,
            &format!(
                "git init -q one; cd one; seq 20000 > a; git add a; {commit} one; git gc -q; seq 30000 > a; {commit} two -a; cd ..; \
                 git clone -q --no-local one two; cd two; git fsck --strict; git log --oneline | wc -l | grep -qx 2; \
                 git checkout -q HEAD~1; seq 20000 | cmp - a; test -z \"$(git status --porcelain)\""
            ),
        );
    }
    fs::create_dir_all(mount.at.join("crate/src")).unwrap();
    fs::write(mount.at.join("crate/Cargo.toml"), "[package]\nname = \"inside\"\nedition = \"2024\"\n[workspace]\n")
        .unwrap();
    for version in ["one", "another"] {
        fs::write(mount.at.join("crate/src/main.rs"), format!("fn main() {{ println!(\"{version}\") }}")).unwrap();
        let cargo = env!("CARGO");
        shell(
            &mount.at.join("crate"),
            &format!("{cargo} build -q --offline; test \"$(target/debug/inside)\" = {version}"),
        );
    }
    same(&world.path("share"), &mount.at);
}
