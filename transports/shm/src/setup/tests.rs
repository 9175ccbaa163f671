use std::os::fd::AsFd;

use super::*;

fn soon() -> Instant {
    Instant::now() + SETUP_TIME
}

fn connect(offer: &ShmOffer) -> OwnedFd {
    let socket = socket().unwrap();
    rustix::net::connect(&socket, &address(offer).unwrap()).unwrap();
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

fn hello(offer: &ShmOffer, id: &Identity, map: &Map, nonce: [u64; 2]) -> Hello {
    Hello::new(*offer.token(), id, true, map.ring(), 0, nonce)
}

#[test]
fn strangers_are_turned_away_and_the_peer_still_gets_in() {
    let id = identity().unwrap();
    let (mut accepting, offer) = Accepting::new(Config::default(), &id, &id, soon()).unwrap();
    let map = Map::create(64 << 10).unwrap();
    let _silent = connect(&offer);
    let wrong = ShmOffer::new([0; 16], [9; 16]);
    let guess = connect(&offer);
    send(&guess, hello(&wrong, &id, &map, [0; 2]).as_bytes(), &[map.fd()]).unwrap();
    let short = connect(&offer);
    send(&short, b"hello", &[map.fd(), map.fd()]).unwrap();
    let long = connect(&offer);
    send(&long, &[0; 4000], &[]).unwrap();
    assert!(settle(&mut accepting).unwrap().is_none());
    let mut connecting = Connecting::new(Config::default(), &id, &id, &offer, soon()).unwrap();
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

#[test]
fn what_comes_with_the_hello_is_checked() {
    let id = identity().unwrap();
    let map = Map::create(64 << 10).unwrap();
    map.set_nonce(Side::A, [1, 2]);
    let file = std::fs::File::open("/proc/self/status").unwrap();
    let other = identity().unwrap();
    type Make<'a> = Box<dyn Fn(&ShmOffer) -> Hello + 'a>;
    let tests: [(&str, Make<'_>, Vec<BorrowedFd<'_>>); 6] = [
        ("no memory", Box::new(|o| hello(o, &id, &map, [1, 2])), vec![]),
        ("two memories", Box::new(|o| hello(o, &id, &map, [1, 2])), vec![map.fd(), map.fd()]),
        ("a file", Box::new(|o| hello(o, &id, &map, [1, 2])), vec![file.as_fd()]),
        ("another nonce", Box::new(|o| hello(o, &id, &map, [1, 3])), vec![map.fd()]),
        ("another identity", Box::new(|o| hello(o, &other, &map, [1, 2])), vec![map.fd()]),
        ("another ring size", Box::new(|o| Hello::new(*o.token(), &id, true, 128 << 10, 0, [1, 2])), vec![map.fd()]),
    ];
    for (what, make, fds) in tests {
        let (mut accepting, offer) = Accepting::new(Config::default(), &id, &id, soon()).unwrap();
        let socket = connect(&offer);
        let sent = {
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
            let mut control = SendAncillaryBuffer::new(&mut space);
            assert!(fds.is_empty() || control.push(SendAncillaryMessage::ScmRights(&fds)));
            let hello = make(&offer);
            rustix::net::sendmsg(&socket, &[IoSlice::new(hello.as_bytes())], &mut control, SendFlags::empty())
        };
        assert_eq!(sent, Ok(HELLO_LEN));
        assert!(settle(&mut accepting).is_err(), "{what} was taken");
        assert!(accepting.poll(Instant::now()).is_err(), "{what}: and it stays so");
    }
}

#[test]
fn a_peer_that_never_comes_is_a_timeout() {
    let id = identity().unwrap();
    let late = Instant::now() + SETUP_TIME + Duration::from_secs(1);
    let (mut accepting, offer) = Accepting::new(Config::default(), &id, &id, soon()).unwrap();
    assert!(matches!(accepting.poll(late), Err(SetupError::Timeout)));
    let mut connecting = Connecting::new(Config::default(), &id, &id, &offer, soon()).unwrap();
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
    let (mut accepting, offer) = Accepting::new(Config::default(), &id, &other, soon()).unwrap();
    let mut connecting = Connecting::new(Config::default(), &id, &other, &offer, soon()).unwrap();
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
    let (mut accepting, offer) = Accepting::new(Config::default(), &id, &other, soon()).unwrap();
    let mut connecting = Connecting::new(Config::default(), &other, &id, &offer, soon()).unwrap();
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
    assert!(Verdict::OFF.why("the connecting side").contains("switched off by the connecting side"));
}
