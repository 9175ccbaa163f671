//! A peer's share as a file system, with the kernel's own FUSE and real processes at both ends.

use std::collections::HashSet;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, ErrorKind, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::os::unix::net::UnixDatagram;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};

use super::{World, noise, until};

/// A mount of the share at a directory, until this is dropped.
pub(super) struct Mount {
    child: Child,
    pub(super) at: PathBuf,
    /// What it says next: it must not find this closed.
    lines: BufReader<std::process::ChildStderr>,
}

impl Mount {
    /// With time for every answer.
    fn new(world: &World) -> Option<Mount> {
        Mount::with(world, "60")
    }

    /// With so many seconds for every answer.
    fn with(world: &World, seconds: &str) -> Option<Mount> {
        Mount::by(world, world.lspan(&["mount", "127.0.0.1:data", "mnt", "--timeout", seconds]))
    }

    /// By this command, at `mnt`.
    fn by(world: &World, command: Command) -> Option<Mount> {
        Mount::at(world, "mnt", command)
    }

    /// At this directory, to be written.
    pub(super) fn written(world: &World, at: &str, seconds: &str) -> Option<Mount> {
        Mount::at(world, at, world.lspan(&["mount", "127.0.0.1:data", at, "--rw", "--timeout", seconds]))
    }

    /// `None`, with a word: there is no FUSE here.
    fn at(world: &World, at: &str, mut command: Command) -> Option<Mount> {
        if let Err(error) = File::options().read(true).write(true).open("/dev/fuse") {
            eprintln!("skipped: /dev/fuse cannot be opened: {error}");
            return None;
        }
        let (is_mounted, at) = (format!("is mounted at {at}"), world.path(at));
        // Where a dead mount is, it cannot be seen that it is there.
        let _ = fs::create_dir_all(&at);
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stderr.take().unwrap());
        let mut mount = Mount { child, at, lines };
        let mut said = String::new();
        while !said.contains(&is_mounted) {
            assert_ne!(mount.lines.read_line(&mut said).unwrap(), 0, "{said}");
        }
        Some(mount)
    }

    /// As a user does.
    fn umount(&self) {
        self.umount_by(if rustix::process::geteuid().is_root() { &["umount"] } else { &["fusermount3", "-u"] });
    }

    fn umount_by(&self, program: &[&str]) {
        let done = Command::new(program[0]).args(&program[1..]).arg(&self.at).status().unwrap();
        assert!(done.success(), "{program:?}: {done}");
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let _ = kill_process(Pid::from_child(&self.child), Signal::INT);
        let end = Instant::now() + Duration::from_secs(20);
        while Instant::now() < end && matches!(self.child.try_wait(), Ok(None)) {
            std::thread::yield_now();
        }
        // Where it did not end by itself, no mount stays behind either.
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = Command::new("fusermount3").args(["-u", "-z", "-q"]).arg(&self.at).stderr(Stdio::null()).status();
    }
}

pub(super) fn signal(server: &super::Server, signal: Signal) {
    let process = Pid::from_child(&server.child);
    kill_process(process, signal).unwrap();
    if signal == Signal::STOP {
        // Its threads stop one after the other, and until then answer.
        let stopped = waitid(WaitId::Pid(process), WaitIdOptions::STOPPED).unwrap().unwrap();
        assert!(stopped.stopped());
    }
}

pub(super) fn is(error: &std::io::Error, errno: Errno) -> bool {
    error.raw_os_error() == Some(errno.raw_os_error())
}

#[test]
fn only_directories_are_mounted_and_only_at_directories() {
    let world = World::new("mount-none");
    fs::create_dir(world.path("share/dir")).unwrap();
    std::os::unix::fs::symlink("dir", world.path("share/link")).unwrap();
    fs::write(world.path("share/file"), b"x").unwrap();
    fs::write(world.path("own"), b"x").unwrap();
    fs::create_dir(world.path("mnt")).unwrap();
    let _server = world.serve(&[], ":ro");
    for (from, at, why, exit) in [
        ("data/link", "mnt", "LS1812 127.0.0.1:data/link is a symbolic link: name the directory", 2),
        ("data/file", "mnt", "LS1812 127.0.0.1:data/file is no directory", 2),
        ("data/dir", "own", "LS1824 cannot mount at own", 1),
        ("data/dir", "none", "LS1824 cannot mount at none", 1),
    ] {
        let refused = world.run(&["mount", &format!("127.0.0.1:{from}"), at]);
        assert_eq!(refused.status.code(), Some(exit), "{from} {at}: {}", super::err(&refused));
        assert!(super::err(&refused).contains(why), "{}", super::err(&refused));
    }
}

#[test]
fn a_terminal_that_closes_unmounts_unless_hang_ups_are_ignored() {
    let world = World::new("mount-hangup");
    fs::write(world.path("share/file"), b"x").unwrap();
    let _server = world.serve(&[], ":ro");
    let through = |program: &[&str]| {
        let plain = world.lspan(&["mount", "127.0.0.1:data", "mnt"]);
        let mut command = Command::new(program[0]);
        command.args(&program[1..]).arg(plain.get_program()).args(plain.get_args());
        command.stdout(Stdio::null()).stdin(Stdio::null());
        world.settings(&mut command);
        Mount::by(&world, command)
    };
    // The tests may run under nohup(1) themselves.
    let Some(mut mount) = through(&["env", "--default-signal=HUP"]) else { return };
    kill_process(Pid::from_child(&mount.child), Signal::HUP).unwrap();
    until("it does not end", || mount.child.try_wait().unwrap().is_some());
    assert_eq!(mount.child.wait().unwrap().code(), Some(130));
    assert_eq!(fs::read_dir(&mount.at).unwrap().count(), 0);
    let mut mount = through(&["nohup"]).unwrap();
    kill_process(Pid::from_child(&mount.child), Signal::HUP).unwrap();
    assert_eq!(fs::read(mount.at.join("file")).unwrap(), b"x");
    assert!(mount.child.try_wait().unwrap().is_none());
}

#[test]
fn a_mounted_share_is_what_it_is_there_and_cannot_be_written() {
    let world = World::new("mount");
    super::plant(&world.path("share"));
    let _server = world.serve(&[], ":rw");
    let Some(mount) = Mount::new(&world) else { return };
    let same = Command::new("diff").args(["-r", "--no-dereference", "share", "mnt"]).current_dir(&world.dir).output();
    let same = same.unwrap();
    assert!(same.status.success(), "{}", super::text(&same));
    for name in ["small", "sub/large", "sub/deep", "program", "dangling", "x".repeat(255).as_str()] {
        let path = |root| fs::symlink_metadata(world.path(root).join(name)).unwrap();
        let (there, here) = (path("share"), path("mnt"));
        let seen = |m: &fs::Metadata| (m.ino(), m.mode() & 0o170_777, m.size(), m.mtime(), m.mtime_nsec(), m.ctime());
        assert_eq!(seen(&here), seen(&there), "{name}");
        assert_eq!(here.uid(), rustix::process::geteuid().as_raw());
    }
    let mapped = linkspan::Memory::map(
        std::os::fd::AsFd::as_fd(&File::open(mount.at.join("sub/large")).unwrap()),
        0,
        21_000_003,
        false,
    );
    assert!(mapped.unwrap().to_vec() == fs::read(world.path("share/sub/large")).unwrap(), "it is another one, mapped");
    for result in [
        File::create(mount.at.join("new")).map(drop),
        File::options().append(true).open(mount.at.join("small")).map(drop),
        fs::remove_file(mount.at.join("small")),
        fs::rename(mount.at.join("small"), mount.at.join("tiny")),
    ] {
        assert_eq!(result.unwrap_err().kind(), ErrorKind::ReadOnlyFilesystem);
    }
    let table = fs::read_to_string("/proc/mounts").unwrap();
    let line = table.lines().find(|line| line.contains(mount.at.to_str().unwrap())).unwrap();
    assert!(line.starts_with("127.0.0.1:data ") && line.contains(" ro,nosuid,nodev"), "{line}");
    assert!(fs::metadata(mount.at.join("none such")).is_err_and(|e| is(&e, Errno::NOENT)));
}

#[test]
fn a_file_that_changed_is_seen_when_it_is_opened_and_one_that_did_not_is_read_from_memory() {
    let world = World::new("mount-open");
    let bytes = noise(300_000, 5);
    fs::write(world.path("share/same"), &bytes).unwrap();
    fs::write(world.path("share/other"), &bytes).unwrap();
    let server = world.serve(&[], "");
    let Some(mount) = Mount::with(&world, "3") else { return };
    let read = |name: &str| fs::read(mount.at.join(name)).unwrap();
    assert!(read("same") == bytes && read("other") == bytes);
    // At once, longer, and at the same place: neither pages nor size of before are believed.
    let later = noise(400_000, 6);
    fs::write(world.path("share/other"), &later).unwrap();
    assert!(read("other") == later, "an old version was read after the file was opened anew");
    // What has just changed could change once more without another time: its pages are not kept.
    let changed = fs::metadata(world.path("share/same")).unwrap().ctime();
    let now = || std::time::UNIX_EPOCH.elapsed().unwrap().as_secs() as i64;
    until("the file's last change is old", || now() > changed + 2);
    assert!(read("same") == bytes);
    let mut kept = File::open(mount.at.join("same")).unwrap();
    fs::write(world.path("share/other"), noise(400_000, 7)).unwrap();
    let mut dropped = File::open(mount.at.join("other")).unwrap();
    signal(&server, Signal::STOP);
    let mut got = Vec::new();
    kept.read_exact(&mut [0]).unwrap();
    kept.seek(SeekFrom::Start(0)).unwrap();
    got.resize(bytes.len(), 0);
    kept.read_exact(&mut got).unwrap();
    assert!(got == bytes, "pages of an unchanged file were dropped");
    assert!(dropped.read(&mut got).is_err_and(|e| is(&e, Errno::IO)), "pages of a changed file were kept");
    signal(&server, Signal::CONT);
}

/// Opened before the peer is gone, used after it.
struct Begun {
    read: File,
    direct: File,
    dir: fs::ReadDir,
}

fn begin(mount: &Mount) -> Begun {
    let open =
        |name: &str, flags: i32| File::options().read(true).custom_flags(flags).open(mount.at.join(name)).unwrap();
    let direct = rustix::fs::OFlags::DIRECT.bits() as i32;
    Begun { read: open("read", 0), direct: open("direct", direct), dir: fs::read_dir(mount.at.join("sub")).unwrap() }
}

/// Each call that waits for the peer ends, and says EIO.
fn all_fail(mount: &Mount, begun: Begun) {
    let Begun { read, direct, mut dir } = begun;
    let failed = |what: &str, result: std::io::Result<()>| {
        assert!(result.as_ref().is_err_and(|e| is(e, Errno::IO)), "{what}: {result:?}");
    };
    std::thread::scope(|scope| {
        scope.spawn(|| failed("stat", fs::metadata(mount.at.join("never asked")).map(drop)));
        scope.spawn(|| failed("open", File::open(mount.at.join("open")).map(drop)));
        scope.spawn(|| failed("read", read.read_at(&mut [0; 4096], 1 << 20).map(drop)));
        scope.spawn(|| failed("O_DIRECT", direct.read_at(&mut [0; 4096], 0).map(drop)));
        scope.spawn(move || failed("readdir", dir.next().unwrap().map(drop)));
        scope.spawn(|| failed("statfs", rustix::fs::statfs(&mount.at).map(drop).map_err(Into::into)));
    });
}

#[test]
fn every_call_is_answered_while_the_peer_is_stopped_or_gone_and_the_mount_comes_back() {
    let world = World::new("mount-gone");
    let bytes = noise(3 << 20, 1);
    fs::create_dir(world.path("share/sub")).unwrap();
    ["read", "direct", "open", "mapped", "sub/f"]
        .iter()
        .for_each(|f| fs::write(world.path("share").join(f), &bytes).unwrap());
    let server = world.serve(&[], "");
    let Some(mount) = Mount::with(&world, "3") else { return };
    let (begun, goes_on, replaced) = (begin(&mount), begin(&mount), begin(&mount));
    let mut mapper = mapper(&mount);

    signal(&server, Signal::STOP);
    all_fail(&mount, begun);
    if let Some(mapper) = &mut mapper {
        mapper.stdin.take().unwrap().write_all(b"\n").unwrap();
        assert_eq!(mapper.wait().unwrap().signal(), Some(Signal::BUS.as_raw()), "mmap");
    }
    signal(&server, Signal::CONT);
    until("it does not come back", || fs::read(mount.at.join("open")).is_ok_and(|got| got == bytes));

    let begun = begin(&mount);
    server.kill();
    all_fail(&mount, begun);
    // The same file under its name goes on where it was, another one does not.
    fs::write(world.path("share/new"), &bytes).unwrap();
    fs::rename(world.path("share/new"), world.path("share/direct")).unwrap();
    let _server = world.serve(&[], "");
    until("it does not come back", || fs::read(mount.at.join("sub/f")).is_ok_and(|got| got == bytes));
    let mut got = vec![0; 100_000];
    goes_on.read.read_exact_at(&mut got, 2 << 20).unwrap();
    assert!(got[..] == bytes[2 << 20..][..100_000]);
    let error = replaced.direct.read_at(&mut got, 0).unwrap_err();
    assert!(is(&error, Errno::STALE), "{error}");
}

/// A process with a mapping, which touches it when it hears something.
fn mapper(mount: &Mount) -> Option<Child> {
    let script = "import mmap,os,sys\nf=os.open(sys.argv[1],os.O_RDONLY)\nm=mmap.mmap(f,0,prot=mmap.PROT_READ)\n\
                  print('mapped',flush=True)\nsys.stdin.readline()\nprint(m[2<<20])\n";
    let mut command = Command::new("python3");
    command.args(["-c", script]).arg(mount.at.join("mapped"));
    let Ok(mut child) = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn() else {
        eprintln!("skipped: the mapping; python3 is not installed");
        return None;
    };
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "mapped\n");
    Some(child)
}

#[test]
fn it_is_unmounted_while_the_peer_is_gone_and_mounted_again_with_the_same_numbers() {
    let world = World::new("mount-end");
    fs::write(world.path("share/f"), "x").unwrap();
    let server = world.serve(&[], "");
    let Some(mut mount) = Mount::new(&world) else { return };
    let ino = |mount: &Mount| fs::metadata(mount.at.join("f")).unwrap().ino();
    let before = ino(&mount);
    signal(&server, Signal::STOP);
    mount.umount();
    assert_eq!(mount.child.wait().unwrap().code(), Some(0));
    signal(&server, Signal::CONT);
    // Lazily, while a program has a file open: the name is free at once, the rest when the program lets go.
    let mut mount = Mount::new(&world).unwrap();
    let file = File::open(mount.at.join("f")).unwrap();
    signal(&server, Signal::STOP);
    mount.umount_by(&["fusermount3", "-u", "-z"]);
    let table = fs::read_to_string("/proc/mounts").unwrap();
    assert!(!table.contains(world.path("mnt").to_str().unwrap()), "umount -z leaves it mounted");
    drop(file);
    assert_eq!(mount.child.wait().unwrap().code(), Some(0));
    signal(&server, Signal::CONT);
    let mount = Mount::new(&world).unwrap();
    assert_eq!(ino(&mount), before);
    server.kill();
    drop(mount);
    let table = fs::read_to_string("/proc/mounts").unwrap();
    assert!(!table.contains(world.path("mnt").to_str().unwrap()), "Ctrl-C leaves it mounted");
}

#[test]
fn a_peer_opens_no_more_files_than_it_may() {
    let world = World::new("mount-many");
    fs::write(world.path("share/f"), "x").unwrap();
    let _server = world.serve(&[], "");
    let Some(mount) = Mount::new(&world) else { return };
    let open = || File::open(mount.at.join("f"));
    let mut files: Vec<File> = (0..linkspan_files::serve::FILES_MAX).map(|_| open().unwrap()).collect();
    assert!(open().is_err_and(|e| is(&e, Errno::MFILE)));
    files.pop();
    until("what was closed stays open there", || open().is_ok());
}

#[test]
fn a_directory_of_many_names_is_listed_once_each_and_from_any_place() {
    let world = World::new("mount-dir");
    (0..3000).for_each(|n| fs::write(world.path("share").join(format!("{n:0200}")), "").unwrap());
    let _server = world.serve(&[], "");
    let Some(mount) = Mount::new(&world) else { return };
    let names = |root: &std::path::Path| {
        let mut names: Vec<_> = fs::read_dir(root).unwrap().map(|e| e.unwrap().file_name()).collect();
        names.sort();
        names
    };
    assert!(names(&mount.at) == names(&world.path("share")));
    let mut dir = rustix::fs::Dir::new(
        rustix::fs::open(
            &mount.at,
            rustix::fs::OFlags::DIRECTORY | rustix::fs::OFlags::CLOEXEC,
            rustix::fs::Mode::empty(),
        )
        .unwrap(),
    )
    .unwrap();
    (0..1500).for_each(|_| drop(dir.read().unwrap().unwrap()));
    dir.rewind();
    let again: Result<Vec<_>, _> = dir.by_ref().collect();
    assert_eq!(again.unwrap().len(), 3002);
    // `ls -l`: what each name is comes with the listing. Each question of the kernel is a read of /dev/fuse.
    let reads = || {
        let io = fs::read_to_string(format!("/proc/{}/io", mount.child.id())).unwrap();
        io.lines().find_map(|line| line.strip_prefix("syscr: ")).unwrap().parse::<u64>().unwrap()
    };
    let before = reads();
    let sizes: u64 = fs::read_dir(&mount.at).unwrap().map(|entry| entry.unwrap().metadata().unwrap().len()).sum();
    let asked = reads() - before;
    assert!(sizes == 0 && asked < 2000, "{asked} questions for 3000 names");
    // Listings that are left before their end take no place there: more than a session may have.
    (0..40).for_each(|_| drop(fs::read_dir(&mount.at).unwrap().next().unwrap().unwrap()));
}

/// What begins a command of the user nobody.
const AS_NOBODY: [&str; 4] = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"];

/// Has /dev/fuse as udev makes it, for every user; that of containers is often root's alone.
const OPEN_FUSE: &str =
    "mount -t tmpfs -o mode=755,dev tmpfs dev && mknod -m 666 dev/fuse c 10 229 && mount --bind dev/fuse /dev/fuse";

#[test]
fn a_user_who_is_not_root_mounts_for_himself_without_user_allow_other() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: who is not root cannot become another user; the other tests of mounts have shown it");
        return;
    }
    // Where that user may come.
    let mut world = World::new("mount-nobody");
    let _ = fs::remove_dir_all(&world.dir);
    world.dir = std::env::temp_dir().join(format!("linkspan-mount-nobody-{}", std::process::id()));
    for sub in ["share", "state", "mnt", "program", "dev"] {
        fs::create_dir_all(world.path(sub)).unwrap();
    }
    fs::write(world.path("key"), "0123456789abcdef".repeat(4)).unwrap();
    fs::set_permissions(world.path("key"), fs::Permissions::from_mode(0o600)).unwrap();
    fs::write(world.path("share/f"), "read").unwrap();
    fs::copy(env!("CARGO_BIN_EXE_lspan"), world.path("program/lspan")).unwrap();
    let _server = world.serve(&[], "");
    for name in ["", "key", "mnt", "state"] {
        std::os::unix::fs::chown(world.path(name), Some(65534), Some(65534)).unwrap();
    }
    let may = Command::new("unshare").args(["-m", "sh", "-c", OPEN_FUSE]).current_dir(&world.dir).output().unwrap();
    if !may.status.success() {
        eprintln!("skipped: /dev/fuse cannot be had for another user: {}", super::err(&may));
        return;
    }
    let mut command = Command::new("unshare");
    let script = format!("{OPEN_FUSE} && exec \"$@\"");
    command.args(["-m", "sh", "-c", &script, "sh"]).args(AS_NOBODY).arg(world.path("program/lspan"));
    command.args(["mount", "127.0.0.1:data", "mnt", "--timeout", "60", "--port", &world.port.to_string()]);
    world.settings(&mut command);
    let Some(mut mount) = Mount::by(&world, command) else { return };
    let inside = |before: &[&str], args: &[&str]| {
        let mut command = Command::new("nsenter");
        command.args(["-m", "-t", &mount.child.id().to_string()]).args(before).args(args).arg(mount.at.join("f"));
        command.output().unwrap()
    };
    let read = inside(&AS_NOBODY, &["cat"]);
    assert_eq!(super::text(&read), "read", "{}", super::err(&read));
    assert_eq!(super::text(&inside(&AS_NOBODY, &["stat", "-c", "%u"])), "65534\n");
    let other = inside(&[], &["cat"]);
    assert!(!other.status.success() && super::err(&other).contains("Permission denied"), "{}", super::err(&other));
    let at = mount.at.clone();
    let umount = ["-m", "-t", &mount.child.id().to_string(), "--"].map(str::to_owned);
    let done = Command::new("nsenter").args(umount).args(AS_NOBODY).args(["fusermount3", "-u"]).arg(at).status();
    assert!(done.unwrap().success());
    assert_eq!(mount.child.wait().unwrap().code(), Some(0));
}

#[test]
fn a_mount_whose_process_was_killed_gives_way_to_the_next_one() {
    let world = World::new("mount-killed");
    fs::write(world.path("share/a"), "a").unwrap();
    let _server = world.serve(&[], "");
    let Some(mut dead) = Mount::new(&world) else { return };
    dead.child.kill().unwrap();
    dead.child.wait().unwrap();
    assert!(fs::read_dir(&dead.at).is_err_and(|e| is(&e, Errno::NOTCONN)));
    let Some(mount) = Mount::new(&world) else { return };
    assert_eq!(fs::read_to_string(mount.at.join("a")).unwrap(), "a");
}

#[test]
fn a_service_manager_hears_that_it_is_mounted_and_answers_also_while_the_peer_does_not() {
    let world = World::new("mount-watchdog");
    let server = world.serve(&[], "");
    let socket = UnixDatagram::bind(world.path("notify")).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let mut command = world.lspan(&["mount", "127.0.0.1:data", "mnt", "--timeout", "1"]);
    command.env("NOTIFY_SOCKET", world.path("notify")).env("WATCHDOG_USEC", "300000").env_remove("WATCHDOG_PID");
    let Some(mut mount) = Mount::by(&world, command) else { return };
    let hear = || {
        let mut line = [0; 100];
        let len = socket.recv(&mut line).unwrap();
        String::from_utf8_lossy(&line[..len]).trim().to_owned()
    };
    assert_eq!(hear(), "READY=1");
    assert_eq!(hear(), "WATCHDOG=1");
    signal(&server, Signal::STOP);
    // Some were on their way; what comes after them was said while the peer was stopped.
    (0..5).for_each(|_| assert_eq!(hear(), "WATCHDOG=1"));
    // Killed while it is being asked, as by a service manager that has waited for long enough, it ends.
    mount.child.kill().unwrap();
    let since = Instant::now();
    while mount.child.try_wait().unwrap().is_none() {
        assert!(since.elapsed() < Duration::from_secs(60), "killed, and it has not ended");
    }
    signal(&server, Signal::CONT);
}

#[test]
fn a_mounted_directory_that_was_something_else_for_a_while_is_there_again() {
    let world = World::new("mount-base");
    let (base, moved) = (world.path("share/base"), world.path("share/moved"));
    fs::create_dir(&base).unwrap();
    fs::write(base.join("f"), "x").unwrap();
    let _server = world.serve(&[], "");
    let Some(mount) = Mount::by(&world, world.lspan(&["mount", "127.0.0.1:data/base", "mnt"])) else { return };
    assert!(fs::metadata(&mount.at).unwrap().is_dir());
    for file in [false, true] {
        fs::rename(&base, &moved).unwrap();
        if file { fs::write(&base, "") } else { std::os::unix::fs::symlink("moved", &base) }.unwrap();
        let mut said = None;
        until("what is no directory is believed to be one", || {
            said = fs::metadata(&mount.at).err();
            said.is_some()
        });
        assert!(said.as_ref().is_some_and(|error| is(error, Errno::STALE)), "{said:?}");
        fs::remove_file(&base).unwrap();
        fs::rename(&moved, &base).unwrap();
        until("it does not come back", || fs::read(mount.at.join("f")).is_ok_and(|got| got == b"x"));
    }
}

#[test]
fn an_open_directory_that_was_empty_shows_what_has_come_since_when_it_is_listed_again() {
    let world = World::new("mount-rewind");
    fs::create_dir(world.path("share/sub")).unwrap();
    let _server = world.serve(&[], "");
    let Some(mount) = Mount::new(&world) else { return };
    let mut dir = rustix::fs::Dir::new(File::open(mount.at.join("sub")).unwrap()).unwrap();
    for names in [2, 3, 4] {
        assert_eq!(dir.by_ref().map(Result::unwrap).count(), names);
        fs::write(world.path(&format!("share/sub/{names}")), "").unwrap();
        dir.rewind();
    }
}

#[test]
fn an_open_file_that_has_another_size_is_read_as_it_is_now_also_where_it_was_read_ahead() {
    let world = World::new("mount-ahead");
    // Whole pages: the kernel has none that the new end is in.
    let (before, after) = (noise(700_416, 1), noise(704_512, 2));
    fs::write(world.path("share/f"), &before).unwrap();
    let _server = world.serve(&[], "");
    let Some(mount) = Mount::new(&world) else { return };
    let mut file = File::open(mount.at.join("f")).unwrap();
    let mut got = Vec::new();
    file.read_to_end(&mut got).unwrap();
    assert!(got == before);
    fs::write(world.path("share/f"), &after).unwrap();
    until("its size stays what it was", || file.metadata().unwrap().len() == after.len() as u64);
    got.clear();
    file.rewind().unwrap();
    file.read_to_end(&mut got).unwrap();
    let old = got.chunks(4096).zip(before.chunks(4096)).filter(|(got, before)| got == before).count();
    assert!(got == after, "{} bytes, {old} pages of before", got.len());
}

/// The names that come with one call, in a buffer of 4 KiB, without the two that all directories have.
fn some_names(dir: &File) -> Vec<String> {
    let mut buffer = [const { std::mem::MaybeUninit::uninit() }; 4096];
    let mut dir = rustix::fs::RawDir::new(dir, &mut buffer);
    let mut names = Vec::new();
    while names.is_empty() || !dir.is_buffer_empty() {
        let Some(entry) = dir.next() else { break };
        names.push(entry.unwrap().file_name().to_str().unwrap().to_owned());
    }
    names.retain(|name| !name.starts_with('.'));
    names
}

#[test]
fn more_directories_are_listed_at_the_same_time_than_a_session_may_have_listings() {
    let world = World::new("mount-dirs");
    let dirs: Vec<String> = (0..18).map(|n| format!("{n}")).collect();
    for dir in &dirs {
        fs::create_dir(world.path("share").join(dir)).unwrap();
        // More than one part of a listing.
        (0..260).for_each(|n| fs::write(world.path("share").join(dir).join(n.to_string()), "").unwrap());
    }
    let _server = world.serve(&[], "");
    let Some(mount) = Mount::new(&world) else { return };
    let mut open: Vec<_> = dirs.iter().map(|dir| (File::open(mount.at.join(dir)).unwrap(), Vec::new())).collect();
    for (dir, names) in &mut open {
        names.extend(some_names(dir));
    }
    for (dir, mut names) in open {
        while let more = some_names(&dir)
            && !more.is_empty()
        {
            names.extend(more);
        }
        let (told, names) = (names.len(), names.into_iter().collect::<HashSet<_>>());
        assert_eq!((told, names.len()), (260, 260));
    }
}

#[test]
fn a_listing_that_goes_on_takes_nothing_of_a_file_that_has_grown_since_it_was_listed() {
    let world = World::new("mount-grown");
    (0..80).for_each(|n| fs::write(world.path(&format!("share/{n:03}")), "x").unwrap());
    let server = world.serve(&[], "");
    let Some(mount) = Mount::with(&world, "3") else { return };
    let dir = File::open(&mount.at).unwrap();
    let first = some_names(&dir);
    let grown: Vec<String> = (0..80).map(|n| format!("{n:03}")).filter(|name| !first.contains(name)).collect();
    let files: Vec<(String, File)> = grown
        .into_iter()
        .map(|name| {
            fs::write(world.path("share").join(&name), noise(20_000, 1)).unwrap();
            let file = File::open(mount.at.join(&name)).unwrap();
            file.read_exact_at(&mut [0; 20_000], 0).unwrap();
            (name, file)
        })
        .collect();
    let listed = some_names(&dir);
    assert!(!listed.is_empty() && listed.len() < files.len(), "{} names in one call", listed.len());
    // What is in the kernel's pages is there also while the peer is not.
    signal(&server, Signal::STOP);
    for (name, file) in files.iter().filter(|(name, _)| listed.contains(name)) {
        let read = file.read_exact_at(&mut [0], 19_999);
        assert!(read.is_ok(), "{name} was made shorter: {read:?}");
    }
    signal(&server, Signal::CONT);
}

/// Root without what makes all files his; another user is without it.
pub(super) fn as_owner() -> &'static [&'static str] {
    let root = rustix::process::geteuid().is_root();
    if root { &["setpriv", "--bounding-set=-dac_override,-dac_read_search"] } else { &[] }
}

#[test]
fn what_the_peer_cannot_look_at_is_listed_and_gives_its_error_at_once() {
    let world = World::new("mount-dead");
    let _server = world.serve(&[], "");
    let Some(mut dead) = Mount::at(&world, "share/dead", world.lspan(&["mount", "127.0.0.1:data", "share/dead"]))
    else {
        return;
    };
    dead.child.kill().unwrap();
    dead.child.wait().unwrap();
    let mount = Mount::new(&world).unwrap();
    assert_eq!(some_names(&File::open(&mount.at).unwrap()), ["dead"]);
    let looked = fs::symlink_metadata(mount.at.join("dead"));
    assert!(looked.as_ref().is_err_and(|error| is(error, Errno::IO)), "{looked:?}");
}

#[test]
fn what_was_read_ahead_of_a_content_of_before_is_not_read_after_the_file_is_opened_anew() {
    let world = World::new("mount-anew");
    let (before, after) = (noise(4 << 20, 1), noise(4 << 20, 2));
    fs::write(world.path("share/f"), &before).unwrap();
    let server = world.serve(&[], "");
    let Some(mount) = Mount::new(&world) else { return };
    let taken = || {
        let io = fs::read_to_string(format!("/proc/{}/io", server.child.id())).unwrap();
        io.lines().find_map(|line| line.strip_prefix("rchar: ")?.parse::<u64>().ok()).unwrap()
    };
    let (begun, read) = (taken(), File::open(mount.at.join("f")).unwrap());
    let piece = |file: &File, n: u64| {
        let mut got = vec![0; 128 << 10];
        file.read_exact_at(&mut got, n * (128 << 10)).unwrap();
        got
    };
    (0..4).for_each(|n| drop(piece(&read, n)));
    until("it reads nothing ahead", || taken() >= begun + (1 << 20));
    // The kernel asks nothing when it is opened: what it is told there is all.
    read.metadata().unwrap();
    fs::write(world.path("share/f"), &after).unwrap();
    let anew = File::open(mount.at.join("f")).unwrap();
    for n in 4..12 {
        piece(&read, n);
        assert!(piece(&anew, n) == after[n as usize * (128 << 10)..][..128 << 10], "piece {n} is of before");
    }
}

#[test]
fn a_mount_that_is_ended_while_a_program_is_in_it_leaves_the_directory_as_it_was() {
    let world = World::new("mount-busy");
    fs::write(world.path("share/f"), "x").unwrap();
    let _server = world.serve(&[], "");
    let Some(mut mount) = Mount::new(&world) else { return };
    let inside = Command::new("cat").current_dir(&mount.at).stdin(Stdio::piped()).stdout(Stdio::null()).spawn();
    let _inside = super::Running(inside.unwrap());
    kill_process(Pid::from_child(&mount.child), Signal::INT).unwrap();
    assert_eq!(mount.child.wait().unwrap().code(), Some(130));
    assert_eq!(fs::read_dir(&mount.at).unwrap().count(), 0);
}
