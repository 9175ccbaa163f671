//! The programs that docs/files.md names, over `lspan pipe`: each the real one, where it is installed.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, Command, Stdio};

use super::{Server, World, noise, until};

fn has(program: &str) -> bool {
    let found = Command::new("sh").args(["-c", &format!("command -v {program}")]).stdout(Stdio::null()).status();
    let found = found.is_ok_and(|status| status.success());
    if !found {
        eprintln!("skipped: {program} is not installed");
    }
    found
}

/// A program that waits on a port, until this is dropped.
struct Daemon(Child);

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.0.kill().and_then(|()| self.0.wait());
    }
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// Starts it, and waits until it waits.
fn daemon(world: &World, port: u16, command: &str) -> Daemon {
    let mut shell = Command::new("sh");
    world.settings(&mut shell);
    let log = fs::File::create(world.path("daemon.log")).unwrap();
    let child = shell.args(["-ec", &format!("exec {command}")]).stdout(log.try_clone().unwrap()).stderr(log);
    let mut child = child.stdin(Stdio::null()).spawn().unwrap();
    until("the program does not wait on its port", || {
        let log = || fs::read_to_string(world.path("daemon.log")).unwrap();
        assert!(child.try_wait().unwrap().is_none(), "{command}: {}", log());
        std::net::TcpStream::connect(("127.0.0.1", port)).is_ok()
    });
    Daemon(child)
}

/// What a script says; it must end well.
fn shell(world: &World, script: &str) -> String {
    let mut shell = Command::new("sh");
    world.settings(&mut shell);
    let lspan = format!("{} pipe --port {}", env!("CARGO_BIN_EXE_lspan"), world.port);
    let output = shell.args(["-ec", script]).env("PIPE", lspan).stdin(Stdio::null()).output().unwrap();
    let (out, err) = (super::text(&output), super::err(&output));
    assert_eq!(output.status.code(), Some(0), "{script}: {out}{err}");
    out
}

/// The same names and contents: not every program keeps times to the nanosecond.
fn equal(world: &World, a: &str, b: &str) {
    shell(world, &format!("diff -r {a} {b}"));
}

fn plant(world: &World) {
    fs::create_dir_all(world.path("src/sub")).unwrap();
    fs::write(world.path("src/large"), noise(5_000_011, 1)).unwrap();
    (0..40).for_each(|n| fs::write(world.path(&format!("src/sub/{n}")), noise(n * 999, n as u64)).unwrap());
}

#[test]
fn rsync_reaches_a_peer_s_modules() {
    if !has("rsync") {
        return;
    }
    let world = World::new("rsync");
    plant(&world);
    let own = if rustix::process::geteuid().is_root() { "uid = 0\ngid = 0\n" } else { "" };
    let modules = format!("{own}use chroot = no\n[data]\npath = {}\nread only = no\n", world.path("share").display());
    fs::write(world.path("rsyncd.conf"), modules).unwrap();
    let _server = world.allow(&["rsync=rsyncd.conf"]);
    shell(&world, "rsync -a -e \"$PIPE\" src/ 127.0.0.1::data/");
    equal(&world, "src", "share");
    shell(&world, "RSYNC_CONNECT_PROG=\"$PIPE %H rsync\" rsync -a rsync://127.0.0.1/data/ out/");
    equal(&world, "src", "out");
}

#[test]
fn sftp_reaches_a_peer_s_files_and_writes_none_where_it_may_only_read() {
    if !has("sftp") {
        return;
    }
    if linkspan_files::pipe::Service::parse("sftp").is_err() {
        return eprintln!("skipped: sftp-server is not installed");
    }
    let world = World::new("sftp");
    plant(&world);
    let (src, out) = (world.path("src/large"), world.path("out/large"));
    let get = format!("printf 'get {} {}\\n' | sftp -q -b - -D \"$PIPE 127.0.0.1 sftp\"", src.display(), out.display());
    let put =
        format!("printf 'put {} {}2\\n' | sftp -q -b - -D \"$PIPE 127.0.0.1 sftp\"", src.display(), out.display());
    let server = world.allow(&["sftp:ro"]);
    shell(&world, &get);
    assert!(fs::read(&src).unwrap() == fs::read(&out).unwrap());
    shell(&world, &format!("! {put}"));
    assert!(!world.path("out/large2").exists());
    drop(server);
    let _server = world.allow(&["sftp"]);
    shell(&world, &put);
    assert!(fs::read(&src).unwrap() == fs::read(world.path("out/large2")).unwrap());
}

#[test]
fn git_reaches_a_peer_s_daemon() {
    if !has("git") {
        return;
    }
    let (world, port) = (World::new("git"), free_port());
    plant(&world);
    shell(&world, "cd src; git init -q; git add .; git -c user.name=n -c user.email=e commit -qm one");
    let base = world.dir.display();
    let start = format!(
        "$(git --exec-path)/git-daemon --listen=127.0.0.1 --port={port} --export-all --base-path={base} --reuseaddr"
    );
    let _daemon = daemon(&world, port, &start);
    let _server = world.allow(&[&format!("tcp:{port}")]);
    shell(
        &world,
        &format!("git -c protocol.ext.allow=always clone -q \"ext::$PIPE 127.0.0.1 tcp:{port} %G/src\" out/src"),
    );
    assert!(fs::read(world.path("src/large")).unwrap() == fs::read(world.path("out/src/large")).unwrap());
}

#[test]
fn socat_joins_by_a_socket_whose_end_is_passed_on() {
    if !has("socat") {
        return;
    }
    let (world, port) = (World::new("socat"), free_port());
    plant(&world);
    let _daemon =
        daemon(&world, port, &format!("socat TCP-LISTEN:{port},bind=127.0.0.1,fork,reuseaddr EXEC:'tar c src'"));
    let _server = world.allow(&[&format!("tcp:{port}")]);
    // With EXEC standard input and output of the pipe are one socket.
    shell(&world, &format!("socat -u EXEC:\"$PIPE 127.0.0.1 tcp\\:{port}\" - | tar x -C out"));
    equal(&world, "src", "out/src");
}

/// A daemon of ssh with keys of its own, and `ssh -F conf spark` that reaches it over a pipe.
fn ssh(world: &World) -> Option<(Daemon, Server)> {
    if !has("ssh") || !has("/usr/sbin/sshd") {
        return None;
    }
    let port = free_port();
    shell(world, "ssh-keygen -qt ed25519 -N '' -f host; ssh-keygen -qt ed25519 -N '' -f user; cp user.pub allowed");
    let at = world.dir.display();
    let server = format!(
        "ListenAddress 127.0.0.1\nPort {port}\nHostKey {at}/host\nAuthorizedKeysFile {at}/allowed\nPidFile none\nStrictModes no\nUsePAM no\nPermitRootLogin yes\nSubsystem sftp internal-sftp\n"
    );
    fs::write(world.path("sshd"), server).unwrap();
    // root's sshd wants a directory that is made at boot where it is installed as a service.
    let run = match rustix::process::geteuid().is_root() {
        true => "unshare -m sh -ec 'mount -t tmpfs none /run; mkdir /run/sshd; exec \"$@\"' sh /usr/sbin/sshd",
        false => "/usr/sbin/sshd",
    };
    let tried = shell(world, &format!("{run} -t -f {at}/sshd 2>&1 || echo cannot"));
    if tried.contains("cannot") {
        eprintln!("skipped: sshd does not start here: {tried}");
        return None;
    }
    let daemon = daemon(world, port, &format!("{run} -D -e -f {at}/sshd"));
    let name = shell(world, "id -un");
    let lspan = env!("CARGO_BIN_EXE_lspan");
    let client = format!(
        "Host spark\nUser {name}HostKeyAlias spark\nIdentityFile {at}/user\nIdentitiesOnly yes\nUserKnownHostsFile {at}/known\nStrictHostKeyChecking accept-new\nLogLevel ERROR\nProxyCommand {lspan} pipe --port {} 127.0.0.1 ssh\n",
        world.port
    );
    fs::write(world.path("conf"), client).unwrap();
    fs::set_permissions(world.path("conf"), fs::Permissions::from_mode(0o600)).unwrap();
    let served = world.allow(&[&format!("ssh={port}")]);
    Some((daemon, served))
}

#[test]
fn ssh_and_what_uses_it_reach_a_peer_through_a_proxy_command() {
    let world = World::new("ssh");
    plant(&world);
    let Some((_daemon, _server)) = ssh(&world) else { return };
    let at = world.dir.display();
    shell(&world, "ssh -F conf spark true; ssh -F conf spark 'exit 7' || test $? = 7");
    shell(&world, "ssh -F conf spark cat < src/large | cmp - src/large");
    shell(&world, &format!("tar c src | ssh -F conf spark tar x -C {at}/out"));
    equal(&world, "src", "out/src");
    shell(&world, "ssh -F conf spark tar c -C \"$PWD\" src | tar x -C state");
    equal(&world, "src", "state/src");
    if has("rsync") {
        shell(&world, &format!("rsync -a -e 'ssh -F conf' src/ spark:{at}/out/rsync/"));
        equal(&world, "src", "out/rsync");
    }
    if has("git") {
        shell(
            &world,
            "mkdir repo; cd repo; git init -q; cp ../src/large .; git add .; git -c user.name=n -c user.email=e commit -qm one",
        );
        shell(&world, &format!("GIT_SSH_COMMAND='ssh -F {at}/conf' git clone -q spark:{at}/repo out/clone"));
        assert!(fs::read(world.path("src/large")).unwrap() == fs::read(world.path("out/clone/large")).unwrap());
    }
    if has("borg") {
        let env = format!("export BORG_RSH='ssh -F {at}/conf' BORG_BASE_DIR={at}/borg; ");
        shell(&world, &format!("{env} borg init -e none spark:{at}/backup; borg create spark:{at}/backup::one src"));
        shell(&world, &format!("{env} cd out; mkdir borg; cd borg; borg extract spark:{at}/backup::one"));
        equal(&world, "src", "out/borg/src");
    }
    if has("sshfs") && has("fusermount3") && fs::File::open("/dev/fuse").is_ok() {
        shell(
            &world,
            &format!("mkdir mnt; sshfs -F {at}/conf spark:{at}/src mnt; diff -r src mnt; fusermount3 -u mnt"),
        );
    }
}

#[test]
fn unison_mirrors_both_ways_and_leaves_a_conflict_alone() {
    if !has("unison") {
        return;
    }
    let world = World::new("unison");
    plant(&world);
    let Some((_daemon, _server)) = ssh(&world) else { return };
    let at = world.dir.display();
    let run = format!("UNISON={at}/unison unison -batch -silent -sshargs '-F {at}/conf' {at}/src ssh://spark/{at}/out");
    shell(&world, &run);
    equal(&world, "src", "out");
    for (path, text) in [("src/sub/1", "here"), ("out/sub/2", "there"), ("src/sub/3", "mine"), ("out/sub/3", "yours")] {
        fs::write(world.path(path), text).unwrap();
    }
    // unison(1): 1, everything was carried over but what was skipped.
    shell(&world, &format!("{run} || test $? = 1"));
    let read = |path: &str| fs::read_to_string(world.path(path)).unwrap();
    assert_eq!((read("out/sub/1").as_str(), read("src/sub/2").as_str()), ("here", "there"));
    assert_eq!(
        (read("src/sub/3").as_str(), read("out/sub/3").as_str()),
        ("mine", "yours"),
        "one side has overwritten the other"
    );
}
