use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd;

use super::*;

fn soon() -> Instant {
    Instant::now() + SETUP_TIME
}

fn connect(listener: &Identity) -> OwnedFd {
    let socket = socket().unwrap();
    rustix::net::connect(&socket, &address(listener).unwrap()).unwrap();
    socket
}

/// Polls a few times: long enough for anything that is going to happen here.
fn settle(accepting: &mut Accepting) -> Result<Option<ShmRail>, SetupError> {
    for _ in 0..10 {
        if let Some(rail) = accepting.poll(Instant::now())? {
            return Ok(Some(rail));
        }
    }
    Ok(None)
}

fn hello(listener: &Identity, ring: usize, nonce: [u64; 2]) -> Message {
    Message::new(Kind::Hello, listener.token(), 1).with_ring(ring).guarded(0, nonce)
}

#[test]
fn strangers_are_turned_away_and_the_peer_still_gets_in() {
    let id = identity().unwrap();
    let mut accepting = Accepting::new(Config::default(), &id, &id, soon()).unwrap();
    let map = Map::create(64 << 10).unwrap();
    let _silent = connect(&id);
    let wrong = identity().unwrap();
    let guess = connect(&id);
    send(&guess, hello(&wrong, map.ring(), [0; 2]).as_bytes(), &[map.fd()]).unwrap();
    let short = connect(&id);
    send(&short, b"hello", &[map.fd(), map.fd()]).unwrap();
    let long = connect(&id);
    send(&long, &[0; 4000], &[]).unwrap();
    assert!(settle(&mut accepting).unwrap().is_none());
    let mut connecting = Connecting::new(Config::default(), &id, &id, soon()).unwrap();
    let mut up = (None, None);
    for _ in 0..50 {
        up.0 = up.0.or(connecting.poll(Instant::now()).ok().flatten());
        up.1 = up.1.or(accepting.poll(Instant::now()).unwrap());
        if up.0.is_some() && up.1.is_some() {
            return;
        }
    }
    panic!("unauthenticated clients keep the peer out");
}

/// A socket whose last close takes until the other one, which comes second, is read: an hour at most.
fn lingering() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut full = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    full.set_nonblocking(true).unwrap();
    while full.write(&[0; 65536]).is_ok() {}
    rustix::net::sockopt::set_socket_linger(&full, Some(Duration::from_secs(3600))).unwrap();
    (full, listener.accept().unwrap().0)
}

#[test]
fn a_stranger_whose_socket_takes_long_to_close_holds_up_nobody() {
    for accepted in [true, false] {
        // Of its own: the name of the one before is free once a thread has closed its listener.
        let id = identity().unwrap();
        let mut bytes = id.encode();
        bytes[44] ^= 1;
        let other = Identity::decode(&bytes).unwrap();
        let mut accepting = Accepting::new(Config::default(), &id, &other, soon()).unwrap();
        let (stranger, (full, peer)) = (connect(&id), lingering());
        send(&stranger, &[0; MESSAGE_LEN], &[full.as_fd()]).unwrap();
        drop(full);
        if accepted {
            assert!(settle(&mut accepting).unwrap().is_none());
        }
        drop(accepting);
        // All of it is still there to be read.
        assert!(peer.peek(&mut [0]).unwrap() > 0);
        assert_eq!(
            rustix::net::connect(socket().unwrap(), &address(&id).unwrap()),
            Err(rustix::io::Errno::CONNREFUSED)
        );
    }
}

#[test]
fn nothing_is_listened_for_while_too_much_of_a_stranger_waits_to_be_closed() {
    const NAME: &str = "setup::tests::nothing_is_listened_for_while_too_much_of_a_stranger_waits_to_be_closed";
    if std::env::var_os("LSPAN_TEST_FULL").is_none() {
        // In a process of its own: in it nobody else listens meanwhile.
        let mut child = std::process::Command::new(std::env::current_exe().unwrap());
        let out = child.args(["--exact", NAME, "--nocapture"]).env("LSPAN_TEST_FULL", "1").output().unwrap();
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
        return;
    }
    let id = identity().unwrap();
    let mut bytes = id.encode();
    bytes[44] ^= 1;
    let other = Identity::decode(&bytes).unwrap();
    let (full, peer) = lingering();
    drop_aside(4242, full);
    while aside_full().is_none() {
        drop_aside(4242, ());
    }
    // The thread may not have taken the first yet.
    drop_aside(4242, ());
    let refused = Accepting::new(Config::default(), &id, &other, soon());
    assert!(refused.is_err_and(|why| why.to_string().contains("user 4242")));
    drop(peer);
    while aside_full().is_some() {
        std::thread::yield_now();
    }
    assert!(Accepting::new(Config::default(), &id, &other, soon()).is_ok());
}

#[test]
fn what_comes_with_the_hello_is_checked() {
    let id = identity().unwrap();
    let map = Map::create(64 << 10).unwrap();
    map.set_nonce(Side::A, [1, 2]);
    let file = std::fs::File::open("/proc/self/status").unwrap();
    let tests: [(&str, Message, Vec<BorrowedFd<'_>>); 5] = [
        ("no memory", hello(&id, map.ring(), [1, 2]), vec![]),
        ("two memories", hello(&id, map.ring(), [1, 2]), vec![map.fd(), map.fd()]),
        ("a file", hello(&id, map.ring(), [1, 2]), vec![file.as_fd()]),
        ("another nonce", hello(&id, map.ring(), [1, 3]), vec![map.fd()]),
        ("another ring size", hello(&id, 128 << 10, [1, 2]), vec![map.fd()]),
    ];
    for (what, hello, fds) in tests {
        let mut accepting = Accepting::new(Config::default(), &id, &id, soon()).unwrap();
        let socket = connect(&id);
        let sent = {
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
            let mut control = SendAncillaryBuffer::new(&mut space);
            assert!(fds.is_empty() || control.push(SendAncillaryMessage::ScmRights(&fds)));
            rustix::net::sendmsg(&socket, &[IoSlice::new(hello.as_bytes())], &mut control, SendFlags::empty())
        };
        assert_eq!(sent, Ok(MESSAGE_LEN));
        assert!(settle(&mut accepting).is_err(), "{what} was taken");
        assert!(accepting.poll(Instant::now()).is_err(), "{what}: and it stays so");
    }
}

#[test]
fn a_peer_that_never_comes_is_a_timeout() {
    let id = identity().unwrap();
    let late = Instant::now() + SETUP_TIME + Duration::from_secs(1);
    let mut accepting = Accepting::new(Config::default(), &id, &id, soon()).unwrap();
    assert!(matches!(accepting.poll(late), Err(SetupError::Timeout)));
    let mut connecting = Connecting::new(Config::default(), &id, &id, soon()).unwrap();
    assert!(connecting.poll(Instant::now()).unwrap().is_none());
    assert!(matches!(connecting.poll(late), Err(SetupError::Timeout)));
    drop(accepting);
    assert!(connecting.poll(Instant::now()).is_err(), "the listener is gone");
}

#[test]
fn the_announced_process_must_be_the_one_that_comes() {
    let id = identity().unwrap();
    let mut bytes = id.encode();
    bytes[44] ^= 1;
    let other = Identity::decode(&bytes).unwrap();
    assert_ne!(other.pid(), id.pid());
    let mut accepting = Accepting::new(Config::default(), &id, &other, soon()).unwrap();
    let mut connecting = Connecting::new(Config::default(), &id, &other, soon()).unwrap();
    assert!(matches!(connecting.poll(Instant::now()), Err(SetupError::Peer(_))));
    assert!(settle(&mut accepting).unwrap().is_none(), "turned away");
}

#[test]
fn another_pid_namespace_costs_the_direct_copy_and_says_so() {
    let id = identity().unwrap();
    let mut bytes = id.encode();
    bytes[24] ^= 1;
    let other = Identity::decode(&bytes).unwrap();
    // Each side believes that the other is elsewhere; numbers are not compared then.
    let mut accepting = Accepting::new(Config::default(), &id, &other, soon()).unwrap();
    let mut connecting = Connecting::new(Config::default(), &other, &id, soon()).unwrap();
    let mut up = (None, None);
    while up.0.is_none() || up.1.is_none() {
        up.0 = up.0.or(connecting.poll(Instant::now()).unwrap());
        up.1 = up.1.or(accepting.poll(Instant::now()).unwrap());
    }
    for rail in [up.0.unwrap(), up.1.unwrap()] {
        let reason = linkspan_transport::Rail::info(&rail).reason.clone();
        assert!(reason.contains("pid namespaces"), "{reason}");
    }
}

#[test]
fn verdicts_are_told_in_words() {
    assert!(Verdict(1001).why("the listening side").contains("process_vm_readv by the listening side"));
    assert!(Verdict(u32::MAX).why("x").contains('x') && Verdict(500).why("x").contains('x'));
    assert!(Verdict::OFF.why("the connecting side").contains("switched off (LINKSPAN_CMA=0) by the connecting side"));
}
