//! Pipes between real processes: how they end, and what a peer can take.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::process::{Child, ChildStdin, Output, Stdio};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::{World, err, noise};

/// A service of this host: a port, and its name for `--allow`.
struct Port(TcpListener, String);

impl Port {
    fn new() -> Port {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let name = format!("tcp:{}", listener.local_addr().unwrap().port());
        Port(listener, name)
    }

    fn accept(&self) -> TcpStream {
        self.0.accept().unwrap().0
    }
}

fn pipe(world: &World, service: &str) -> Child {
    let mut command = world.lspan(&["pipe", "127.0.0.1", service]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// Runs it with this input.
fn piped(world: &World, service: &str, input: &[u8]) -> Output {
    let mut child = pipe(world, service);
    // It may end before it has read everything.
    let _ = child.stdin.take().unwrap().write_all(input);
    child.wait_with_output().unwrap()
}

#[test]
fn each_direction_of_a_pipe_ends_by_itself_and_everything_arrives() {
    let world = World::new("pipe");
    let port = Port::new();
    let _server = world.allow(&[&port.1]);
    let name = port.1.clone();
    let service = std::thread::spawn(move || {
        // The first says nothing before its input has ended.
        let (mut socket, mut got) = (port.accept(), Vec::new());
        socket.read_to_end(&mut got).unwrap();
        got.reverse();
        socket.write_all(&got).unwrap();
        drop(socket);
        // The second ends its own direction first, and goes on reading.
        let (mut socket, mut got) = (port.accept(), Vec::new());
        socket.write_all(b"over").unwrap();
        socket.shutdown(Shutdown::Write).unwrap();
        socket.read_to_end(&mut got).unwrap();
        got
    });
    let mut sent = noise(9_000_001, 1);
    let output = piped(&world, &name, &sent);
    assert_eq!(output.status.code(), Some(0), "{}", err(&output));
    sent.reverse();
    assert!(output.stdout == sent, "{} bytes came back", output.stdout.len());

    let mut child = pipe(&world, &name);
    let mut heard = Vec::new();
    child.stdout.take().unwrap().read_to_end(&mut heard).unwrap();
    assert_eq!(heard, b"over", "the end of the service's direction is passed on while the other goes on");
    child.stdin.take().unwrap().write_all(&sent).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert!(service.join().unwrap() == sent, "it ended before the service had everything");
}

/// Writes this again and again, until nothing more is taken or so much was; how much it was.
fn fills(input: &mut ChildStdin, piece: &[u8], all: usize) -> usize {
    rustix::io::ioctl_fionbio(&*input, true).unwrap();
    let mut sent = 0;
    while sent < all {
        match input.write(&piece[sent % piece.len()..]) {
            Ok(len) => sent += len,
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                // Where this is too short for a busy machine, less has been taken than could be.
                let limit = Timespec { tv_sec: 1, tv_nsec: 0 };
                if poll(&mut [PollFd::new(&input.as_fd(), PollFlags::OUT)], Some(&limit)).unwrap() == 0 {
                    break;
                }
            }
            Err(error) => panic!("{error}"),
        }
    }
    sent
}

#[test]
fn a_service_that_reads_no_further_stops_whoever_sends() {
    const ALL: usize = 256 << 20;
    // 64 KiB of standard input, four frames of 256 KiB at either end, and the buffers of sockets, which the kernel bounds (tcp(7)).
    const MOST: usize = 48 << 20;
    let world = World::new("pressure");
    let port = Port::new();
    let _server = world.allow(&[&port.1]);
    let mut child = pipe(&world, &port.1);
    let mut socket = port.accept();
    let mut input = child.stdin.take().unwrap();
    let piece = noise(64 << 10, 3);
    let sent = fills(&mut input, &piece, ALL);
    assert!(sent < MOST, "{sent} bytes were taken for a service that reads nothing");
    drop(input);
    let mut got = Vec::new();
    socket.read_to_end(&mut got).unwrap();
    assert_eq!(got.len(), sent);
    assert!(got.iter().zip(piece.iter().cycle()).all(|(a, b)| a == b), "bytes have changed");
    drop(socket);
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn of_a_peer_that_was_killed_nothing_is_kept_where_the_service_takes_nothing() {
    let world = World::new("taken");
    let port = Port::new();
    let server = world.allow(&[&port.1]);
    let pid = server.child.id();
    let sessions = || {
        let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap().flatten();
        let name = |task: &std::fs::DirEntry| std::fs::read_to_string(task.path().join("comm")).unwrap_or_default();
        tasks.filter(|task| ["files session\n", "pipe out\n"].contains(&&*name(task))).count()
    };
    let mut child = pipe(&world, &port.1);
    let _socket = port.accept();
    let mut input = child.stdin.take().unwrap();
    fills(&mut input, &[7; 64 << 10], 256 << 20);
    assert_eq!(sessions(), 2);
    child.kill().unwrap();
    child.wait().unwrap();
    super::until("its session is kept", || sessions() == 0);
}

#[test]
fn a_pipe_whose_other_end_is_killed_is_an_error_at_both_ends() {
    let world = World::new("cut");
    let port = Port::new();
    // The serving end: what has come is not all, and the service sees no end but a reset.
    let server = world.allow(&[&port.1]);
    let mut child = pipe(&world, &port.1);
    let mut socket = port.accept();
    socket.write_all(b"half").unwrap();
    let mut heard = [0; 4];
    child.stdout.as_mut().unwrap().read_exact(&mut heard).unwrap();
    server.kill();
    let error = socket.read(&mut [0; 16]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(4), "{}", err(&output));
    assert!(err(&output).contains("LS1820"), "{}", err(&output));

    // The asking end, with its input under way.
    let _server = world.allow(&[&port.1]);
    let mut child = pipe(&world, &port.1);
    let mut socket = port.accept();
    child.stdin.as_mut().unwrap().write_all(b"half").unwrap();
    socket.read_exact(&mut heard).unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    let error = socket.read(&mut [0; 16]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset, "a killed client looks like one that has said everything");
}

#[test]
fn a_service_that_fails_is_an_error_of_the_pipe() {
    let world = World::new("fails");
    let port = Port::new();
    let name = port.1.clone();
    let mut allowed = vec![name.as_str()];
    let sftp = linkspan_files::pipe::Service::parse("sftp:ro").is_ok();
    if sftp {
        allowed.push("sftp:ro");
    }
    let _server = world.allow(&allowed);
    let mut child = pipe(&world, &name);
    let mut socket = port.accept();
    socket.write_all(b"half").unwrap();
    child.stdout.as_mut().unwrap().read_exact(&mut [0; 4]).unwrap();
    // What closes with something unread, resets.
    rustix::net::sockopt::set_socket_linger(&socket, Some(std::time::Duration::ZERO)).unwrap();
    drop(socket);
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", err(&output));
    assert!(err(&output).contains("LS1819"), "{}", err(&output));

    drop(port);
    let output = piped(&world, &name, b"");
    assert_eq!(output.status.code(), Some(1), "{}", err(&output));
    assert!(err(&output).contains("LS1818 service tcp:"), "{}", err(&output));

    if !sftp {
        return eprintln!("skipped: a service that is a program; sftp-server is not installed");
    }
    let output = piped(&world, "sftp", b"");
    assert_eq!(output.status.code(), Some(0), "{}", err(&output));
    let output = piped(&world, "sftp", &[0xff; 64]);
    assert_eq!(output.status.code(), Some(1), "a message of 4 GiB: {}", err(&output));
    assert!(err(&output).contains("LS1822"), "{}", err(&output));
}

#[test]
fn nothing_is_allowed_that_was_not_named_and_no_command_line_goes_to_a_peer() {
    let world = World::new("allow");
    let port = Port::new();
    let _server = world.serve(&[], ":rw");
    for service in ["ssh", "rsync", "sftp", &port.1, "sh -c id", "data", ""] {
        let output = piped(&world, service, b"x");
        assert_eq!(output.status.code(), Some(5), "{service}: {}", err(&output));
        assert!(err(&output).contains("LS1817"), "{service}: {}", err(&output));
    }
    port.0.set_nonblocking(true).unwrap();
    assert_eq!(port.0.accept().unwrap_err().kind(), ErrorKind::WouldBlock, "somebody has connected");
    for words in
        [&["rsync", "--server", "--sender", ".", "/etc"][..], &["ssh", "id"], &["rsync", "--server", "--daemon"]]
    {
        let port = world.port.to_string();
        let args = [&["pipe", "--port", &port, "127.0.0.1"], words].concat();
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_lspan"));
        world.settings(&mut command);
        let output = command.args(args).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{words:?}: {}", err(&output));
        assert!(err(&output).contains("no command line goes to a peer"), "{}", err(&output));
    }
    let output = world.run(&["files", "serve", "--as-root", "--allow", "bash"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(err(&output).contains("LS1816 service \"bash\" is none"), "{}", err(&output));
}

#[test]
fn a_peer_has_no_more_than_its_connections() {
    let world = World::new("many");
    let port = Port::new();
    let server = world.allow(&[&port.1]);
    let mut open: Vec<(Child, TcpStream)> = (0..linkspan_files::serve::PER_PEER_MAX)
        .map(|_| {
            let child = pipe(&world, &port.1);
            (child, port.accept())
        })
        .collect();
    let output = piped(&world, &port.1, b"");
    assert_eq!(output.status.code(), Some(4), "{}", err(&output));
    assert!(err(&output).contains("LS1854 the peer refused the connection: the 16 connections"), "{}", err(&output));
    let (mut child, socket) = open.pop().unwrap();
    drop((child.stdin.take(), socket));
    assert_eq!(child.wait().unwrap().code(), Some(0));
    // Its place is free as soon as the server has seen it leave.
    super::until("no place is free after one has left", || {
        let child = pipe(&world, &port.1);
        port.0.set_nonblocking(true).unwrap();
        let mut child = child;
        drop(child.stdin.take());
        loop {
            if let Ok((socket, _)) = port.0.accept() {
                drop(socket);
                return child.wait().unwrap().code() == Some(0);
            }
            if child.try_wait().unwrap().is_some() {
                return false;
            }
            std::thread::yield_now();
        }
    });
    open.iter_mut().for_each(|(child, _)| {
        let _ = child.kill().and_then(|()| child.wait());
    });
    let said = server.kill();
    assert!(
        said.iter().any(|line| line.contains("a connection of cluster was refused: too many are open")),
        "{said:?}"
    );
}

#[test]
fn forwarded_connections_are_pipes_each_and_end_as_they_do() {
    let world = World::new("forward");
    let port = Port::new();
    let server = world.allow(&[&port.1]);
    let mut child =
        world.lspan(&["forward", "0", &format!("127.0.0.1:{}", port.1)]).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = std::io::BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    std::io::BufRead::read_line(&mut lines, &mut line).unwrap();
    let local = line.split("connections to ").nth(1).and_then(|rest| rest.split(' ').next()).unwrap().to_owned();
    let connect = || TcpStream::connect(&local).unwrap();

    let (mut one, mut to_one) = (connect(), port.accept());
    let (mut other, mut to_other) = (connect(), port.accept());
    one.write_all(b"1").unwrap();
    one.shutdown(Shutdown::Write).unwrap();
    let mut heard = Vec::new();
    to_one.read_to_end(&mut heard).unwrap();
    assert_eq!(heard, b"1");
    heard.clear();
    to_one.write_all(b"answer").unwrap();
    drop(to_one);
    one.read_to_end(&mut heard).unwrap();
    assert_eq!(heard, b"answer");
    // The other one still goes, until its far end is killed.
    to_other.write_all(b"half").unwrap();
    other.read_exact(&mut [0; 4]).unwrap();
    server.kill();
    assert_eq!(other.read(&mut [0; 8]).unwrap_err().kind(), ErrorKind::ConnectionReset);
    drop(connect());
    let said = std::io::BufRead::lines(lines).map_while(Result::ok).find(|line| line.contains("LS0732")).unwrap();
    assert!(!said.contains("LS1801"), "nothing had arrived: {said}");
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn an_idle_server_waits_without_a_time_limit() {
    let world = World::new("idle");
    let server = world.allow(&["tcp:9"]);
    let pid = server.child.id();
    // proc(5): the number of the system call and its arguments, of which the third of ppoll(2) is the time limit.
    let syscall = || std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/syscall"));
    let Ok(_) = syscall() else { return eprintln!("skipped: /proc/PID/syscall cannot be read here") };
    super::until("the server waits for anything but events", || {
        let now = syscall().unwrap();
        let words: Vec<&str> = now.split_whitespace().collect();
        words.len() > 3 && words[1] != "0x0" && words[3] == "0x0"
    });
    // And it hears Ctrl-C in that.
    let id = rustix::process::Pid::from_raw(pid as i32).unwrap();
    rustix::process::kill_process(id, rustix::process::Signal::INT).unwrap();
    let mut server = server;
    assert_eq!(server.child.wait().unwrap().code(), Some(130));
}
