//! Files between real processes: what arrives, what is refused, and what a killed end leaves behind.

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::{Duration, Instant};

mod attributes;
mod killed;
mod many;
mod mirror;
mod mount;
mod pipe;
mod places;
mod programs;
mod strangers;
mod written;

/// A folder with a cluster key, a share and a source; gone with the value.
pub(crate) struct World {
    pub(crate) dir: PathBuf,
    pub(crate) port: u16,
}

/// A port that nobody has, none of those that the kernel gives to outgoing connections (from 32768 on): one of them would be taken by the time
/// that a server wants it.
fn free_port() -> u16 {
    static TRIED: AtomicU32 = AtomicU32::new(0);
    let next = || std::process::id().wrapping_mul(101).wrapping_add(TRIED.fetch_add(1, Relaxed));
    std::iter::repeat_with(|| 10_000 + (next() % 20_000) as u16)
        // Some tests count on nobody at the usual ones.
        .filter(|port| !(24_680..=24_682).contains(port))
        .find(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok())
        .expect("a free port")
}

impl World {
    pub(crate) fn new(name: &str) -> World {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        // Also where two tests call theirs the same.
        let unique = format!("files-{name}-{}-{}", std::process::id(), NEXT.fetch_add(1, Relaxed));
        let dir = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(unique);
        let _ = fs::remove_dir_all(&dir);
        for sub in ["share", "src", "out", "state"] {
            fs::create_dir_all(dir.join(sub)).unwrap();
        }
        fs::write(dir.join("key"), "0123456789abcdef".repeat(4)).unwrap();
        fs::set_permissions(dir.join("key"), fs::Permissions::from_mode(0o600)).unwrap();
        World { dir, port: free_port() }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    pub(crate) fn place(&self, path: &str) -> String {
        format!("127.0.0.1:{path}")
    }

    pub(crate) fn settings(&self, command: &mut Command) {
        command
            .env("LINKSPAN_PSK_FILE", self.path("key"))
            .env("LINKSPAN_IFNAME", "=lo")
            .env("LINKSPAN_STATS_DIR", "off");
        command.env("LINKSPAN_LOG", "warn").env("XDG_STATE_HOME", self.path("state")).env("HOME", &self.dir);
        command.current_dir(&self.dir);
    }

    /// `lspan` with these arguments and the port of the server.
    pub(crate) fn lspan(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_lspan"));
        command.args(args).args(["--port", &self.port.to_string()]);
        self.settings(&mut command);
        command
    }

    pub(crate) fn run(&self, args: &[&str]) -> Output {
        self.lspan(args).output().unwrap()
    }

    pub(crate) fn ok(&self, args: &[&str]) -> Output {
        let output = self.run(args);
        assert_eq!(output.status.code(), Some(0), "{args:?}: {}", err(&output));
        output
    }

    /// Serves `share` as `data`, in front of it maybe another program.
    pub(crate) fn serve(&self, before: &[&str], rights: &str) -> Server {
        self.try_serve(before, rights).expect("the server ended before it served")
    }

    /// The same; `None` where it ends at once.
    pub(crate) fn try_serve(&self, before: &[&str], rights: &str) -> Option<Server> {
        let mut command = match before {
            [] => Command::new(env!("CARGO_BIN_EXE_lspan")),
            [program, args @ ..] => {
                let mut command = Command::new(program);
                command.args(args).arg(env!("CARGO_BIN_EXE_lspan"));
                command
            }
        };
        command.args(["files", "serve", &format!("data=share{rights}"), "--port", &self.port.to_string(), "--as-root"]);
        self.start(command)
    }

    /// Serves these services, and nothing else.
    pub(crate) fn allow(&self, services: &[&str]) -> Server {
        let mut command = Command::new(env!("CARGO_BIN_EXE_lspan"));
        command.args(["files", "serve", "--port", &self.port.to_string(), "--as-root"]);
        services.iter().for_each(|service| {
            command.args(["--allow", service]);
        });
        self.start(command).expect("the server ended before it served")
    }

    fn start(&self, mut command: Command) -> Option<Server> {
        self.settings(&mut command);
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap());
        let mut first = String::new();
        while !first.contains("serving") {
            first.clear();
            if lines.read_line(&mut first).unwrap() == 0 {
                child.wait().unwrap();
                return None;
            }
        }
        let rest = std::thread::spawn(move || lines.lines().map_while(Result::ok).collect());
        Some(Server { child, rest: Some(rest) })
    }

    pub(crate) fn same(&self, a: &str, b: &str) {
        same(&self.path(a), &self.path(b));
    }
}

impl Drop for World {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.dir);
    }
}

/// A program that does not outlive its test.
pub(crate) struct Running(pub(crate) Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub(crate) struct Server {
    pub(crate) child: Child,
    rest: Option<std::thread::JoinHandle<Vec<String>>>,
}

impl Server {
    /// Kills it; what it said.
    pub(crate) fn kill(mut self) -> Vec<String> {
        let _ = self.child.kill();
        let _ = self.child.wait();
        self.rest.take().map(|rest| rest.join().unwrap()).unwrap_or_default()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(crate) fn err(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

pub(crate) fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Bytes that are nowhere the same.
pub(crate) fn noise(len: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut out = Vec::with_capacity(len + 8);
    while out.len() < len {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        out.extend_from_slice(&state.to_le_bytes());
    }
    out.truncate(len);
    out
}

/// Both trees have the same names, kinds, contents, permissions and times.
pub(crate) fn same(a: &Path, b: &Path) {
    let (one, other) =
        (fs::symlink_metadata(a).unwrap(), fs::symlink_metadata(b).unwrap_or_else(|e| panic!("{}: {e}", b.display())));
    assert_eq!(one.file_type(), other.file_type(), "{}", a.display());
    if one.is_symlink() {
        return assert_eq!(fs::read_link(a).unwrap(), fs::read_link(b).unwrap());
    }
    assert_eq!(one.mode() & 0o777, other.mode() & 0o777, "{}", a.display());
    if one.is_dir() {
        let names = |dir: &Path| {
            let mut names: Vec<_> = fs::read_dir(dir).unwrap().map(|e| e.unwrap().file_name()).collect();
            names.sort();
            names
        };
        assert_eq!(names(a), names(b), "{}", a.display());
        names(a).iter().for_each(|name| same(&a.join(name), &b.join(name)));
        return;
    }
    assert_eq!((one.mtime(), one.mtime_nsec()), (other.mtime(), other.mtime_nsec()), "{}", a.display());
    assert!(fs::read(a).unwrap() == fs::read(b).unwrap(), "{} differs", a.display());
}

/// A tree with everything that travels.
fn plant(src: &Path) {
    use std::ffi::OsStr;
    fs::create_dir_all(src.join("sub/deep/deeper")).unwrap();
    fs::create_dir_all(src.join("empty")).unwrap();
    fs::write(src.join("none"), b"").unwrap();
    fs::write(src.join("small"), b"small").unwrap();
    fs::write(src.join("chunk"), noise(1 << 20, 1)).unwrap();
    fs::write(src.join("chunk and one"), noise((1 << 20) + 1, 2)).unwrap();
    fs::write(src.join("sub/large"), noise(21_000_003, 3)).unwrap();
    fs::write(src.join("sub/deep/deeper/file"), noise(70_000, 4)).unwrap();
    fs::write(src.join("new\nline\x1b[31m"), b"x").unwrap();
    fs::write(src.join(OsStr::from_bytes(b"no\xffutf8")), b"y").unwrap();
    fs::write(src.join("x".repeat(255)), b"z").unwrap();
    fs::write(src.join("program"), b"#!/bin/sh\n").unwrap();
    fs::set_permissions(src.join("program"), fs::Permissions::from_mode(0o750)).unwrap();
    std::os::unix::fs::symlink("../../blobs/x", src.join("sub/link")).unwrap();
    std::os::unix::fs::symlink("nowhere", src.join("dangling")).unwrap();
    for n in 0..300 {
        fs::write(src.join(format!("empty/{n}")), noise(n * 40, n as u64)).unwrap();
    }
    let sparse = fs::File::create(src.join("sparse")).unwrap();
    sparse.set_len(40 << 20).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&sparse, b"data", 17 << 20).unwrap();
}

#[test]
fn a_tree_arrives_whole_both_ways_and_is_known_the_second_time() {
    let world = World::new("tree");
    let _server = world.serve(&[], ":rw");
    plant(&world.path("src"));
    let sent = world.ok(&["send", "src", &world.place("data/")]);
    assert!(err(&sent).contains("slowest stage: ") && !err(&sent).contains("entries and"), "{}", err(&sent));
    assert!(err(&sent).contains("; 7 directories and links made"), "{}", err(&sent));
    world.same("src", "share/src");
    let again = world.ok(&["send", "src", &world.place("data/"), "--json"]);
    for (file, output) in [
        ("files-1.json", &again),
        ("files-1.json", &world.ok(&["get", &world.place("data/src"), "out", "--dry-run", "--json"])),
        ("ls-1.json", &world.ok(&["ls", "--json", &world.place("data/src")])),
        ("ls-1.json", &world.ok(&["ls", "--json", "127.0.0.1:"])),
        ("du-1.json", &world.ok(&["du", "--json", &world.place("data")])),
    ] {
        for line in text(output).lines() {
            let problems = crate::schema::problems(file, &serde_json::from_str(line).unwrap());
            assert!(problems.is_empty(), "{file}: {problems:?}: {line}");
        }
    }
    assert!(err(&again).contains("nothing was to be transferred; 3"), "{}", err(&again));
    let path = err(&again).lines().next().unwrap_or_default().to_owned();
    assert!(path.contains(" -> ") && path.ends_with(')'), "its path, and why: {path}");
    let end = text(&again).lines().last().unwrap().to_owned();
    assert!(end.contains("\"moved_bytes\":0") && end.contains("\"files_done\":0"), "{end}");
    world.ok(&["get", &world.place("data/src"), "out"]);
    world.same("src", "out/src");
    world.ok(&["get", &world.place("data/src/sub/large"), "out/one"]);
    world.same("src/sub/large", "out/one");
    world.ok(&["verify", "src", &world.place("data/src")]);
    let disk = |path: &str| fs::metadata(world.path(path)).unwrap().blocks();
    assert!(disk("share/src/sparse") <= disk("src/sparse") + 2048, "holes are filled");
    // What is on the disk is compared, whatever the times say.
    let old = fs::metadata(world.path("share/src/small")).unwrap().modified().unwrap();
    fs::write(world.path("share/src/small"), b"smalL").unwrap();
    fs::File::options().write(true).open(world.path("share/src/small")).unwrap().set_modified(old).unwrap();
    let found = world.run(&["verify", "src", &world.place("data/src")]);
    assert_eq!(found.status.code(), Some(6));
    assert!(err(&found).contains("LS1813") && err(&found).contains("src/small"), "{}", err(&found));
    let names = text(&world.ok(&["ls", &world.place("data/src")]));
    assert!(
        names.contains("new\\x0aline\\x1b[31m") && names.contains("no\\xffutf8") && !names.contains('\x1b'),
        "{names}"
    );
    let json = text(&world.ok(&["ls", "--json", &world.place("data/src")]));
    assert!(json.contains("\"path_hex\":\"6e6fff75746638\"") && json.contains("new\\nline"), "{json}");
    world.ok(&["mv", &world.place("data/src/small"), &world.place("data/src/tiny")]);
    assert_eq!(world.run(&["mv", &world.place("data/src/tiny"), &world.place("data/src/none")]).status.code(), Some(1));
    assert_eq!(world.run(&["rm", &world.place("data/src")]).status.code(), Some(1), "a directory without -r");
    world.ok(&["rm", "-r", &world.place("data/src")]);
    assert_eq!(fs::read_dir(world.path("share")).unwrap().count(), 0);
}

#[test]
fn of_a_changed_file_only_the_changed_chunks_are_sent_and_the_old_one_is_replaced_whole() {
    let world = World::new("delta");
    let _server = world.serve(&[], ":rw");
    let mut bytes = noise(40 << 20, 9);
    fs::write(world.path("src/f"), &bytes).unwrap();
    world.ok(&["send", "src/f", &world.place("data/")]);
    bytes[7 << 20] ^= 1;
    bytes[(30 << 20) + 5] ^= 1;
    fs::write(world.path("src/f"), &bytes).unwrap();
    let sent = text(&world.ok(&["send", "src/f", &world.place("data/"), "--json"]));
    let end: serde_json::Value = serde_json::from_str(sent.lines().last().unwrap()).unwrap();
    assert_eq!(end["moved_bytes"], 2 << 20, "{end}");
    world.same("src/f", "share/f");
    let hash = sent.lines().find(|line| line.contains("\"done\"")).unwrap().to_owned();
    let b3sum = blake3::hash(&bytes).to_hex().to_string();
    assert!(hash.contains(&b3sum), "{hash} is not {b3sum}");
    assert_eq!(fs::read_dir(world.path("share")).unwrap().count(), 1, "something else is left in the share");
}

#[test]
fn a_share_is_read_only_unless_said_and_nobody_serves_without_a_key_or_as_root() {
    let world = World::new("rights");
    let server = world.serve(&[], "");
    fs::write(world.path("src/f"), b"x").unwrap();
    fs::write(world.path("share/kept"), b"x").unwrap();
    let place = world.place("data/");
    for args in [
        &["send", "src/f", &place][..],
        &["rm", &world.place("data/kept")],
        &["mv", &world.place("data/kept"), &world.place("data/x")],
    ] {
        let output = world.run(args);
        assert_eq!(output.status.code(), Some(5), "{args:?}: {}", err(&output));
        assert!(err(&output).contains("read-only"), "{}", err(&output));
    }
    let shares = text(&world.ok(&["ls", "127.0.0.1:"]));
    assert_eq!(shares, "data  (read-only)\n");
    let unknown = world.run(&["ls", "127.0.0.1:other"]);
    assert!(err(&unknown).contains("there is no share \"other\""), "{}", err(&unknown));
    for (to, why) in [("other/", "LS1803 there is no share \"other\""), ("data/none/", "LS1803 none: ")] {
        let missing = world.run(&["send", "src/f", &world.place(to)]);
        assert_eq!(missing.status.code(), Some(1), "{to}: {}", err(&missing));
        assert!(err(&missing).contains(why), "{to}: {}", err(&missing));
    }
    drop(server);
    let serve = ["files", "serve", "data=share"];
    let bare = world
        .lspan(&[&serve[..], &["--as-root"]].concat())
        .env_remove("LINKSPAN_PSK_FILE")
        .env("XDG_CONFIG_HOME", world.path("none"))
        .output()
        .unwrap();
    assert_eq!(bare.status.code(), Some(5));
    assert!(err(&bare).contains("LS1815"), "{}", err(&bare));
    if rustix::process::geteuid().is_root() {
        let output = world.run(&serve);
        assert_eq!(output.status.code(), Some(5));
        assert!(err(&output).contains("LS1814"), "{}", err(&output));
    }
}

#[test]
fn what_does_not_travel_is_said_and_counted() {
    let world = World::new("left");
    let _server = world.serve(&[], ":rw");
    fs::write(world.path("src/f"), b"x").unwrap();
    fs::hard_link(world.path("src/f"), world.path("src/g")).unwrap();
    let plain = world.run(&["send", "src", &world.place("data/")]);
    assert_eq!(plain.status.code(), Some(0), "hard links arrive as files: {}", err(&plain));
    assert!(err(&plain).contains("left out 2 times: another name of a file"), "{}", err(&plain));
    let _socket = std::os::unix::net::UnixListener::bind(world.path("src/socket")).unwrap();
    let output = world.run(&["send", "src", &world.place("data/")]);
    assert_eq!(output.status.code(), Some(3), "{}", err(&output));
    assert!(err(&output).contains("src/socket: left out: a device, socket or fifo"), "{}", err(&output));
}

#[test]
fn an_output_that_cannot_be_written_is_named_and_is_no_ctrl_c() {
    let world = World::new("full");
    let _server = world.serve(&[], ":rw");
    for n in 0..20 {
        fs::write(world.path(&format!("src/{n}")), b"x").unwrap();
    }
    let (into, all) = (world.place("data/"), world.place("data"));
    for args in [
        &["send", "--json", "src", &into][..],
        &["send", "--dry-run", "src", &into],
        &["mirror", "--init", "--json", "src", &all],
    ] {
        let full = fs::File::options().write(true).open("/dev/full").unwrap();
        let output = world.lspan(args).stdout(full).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{args:?}: {}", err(&output));
        assert!(err(&output).contains("standard output: No space left on device"), "{args:?}: {}", err(&output));
    }
}

#[test]
fn a_dry_run_says_what_would_be_sent_and_changes_nothing() {
    let world = World::new("dry");
    let _server = world.serve(&[], ":rw");
    fs::create_dir(world.path("src/sub")).unwrap();
    fs::write(world.path("src/sub/f"), noise(3 << 20, 1)).unwrap();
    let output = world.ok(&["send", "src", &world.place("data/"), "--dry-run"]);
    assert_eq!(text(&output), "src/\nsrc/sub/\nsrc/sub/f\n");
    assert!(err(&output).contains("3 entries would be sent or made; 0 entries there already"), "{}", err(&output));
    assert_eq!(fs::read_dir(world.path("share")).unwrap().count(), 0);
    world.ok(&["send", "src", &world.place("data/")]);
    assert_eq!(text(&world.ok(&["get", &world.place("data/src/sub"), "out", "--dry-run"])), "sub/\nsub/f\n");
    assert_eq!(fs::read_dir(world.path("out")).unwrap().count(), 0);
}

/// Waits until `done`, as long as a busy machine may take.
pub(crate) fn until(what: &str, mut done: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(180);
    while !done() {
        assert!(Instant::now() < end, "{what}");
        std::thread::yield_now();
    }
}
