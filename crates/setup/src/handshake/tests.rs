use std::net::Ipv4Addr;

use linkspan_stream::{Dial, Listen, Options};
use linkspan_verbs::{Config, Domain, Pairs};
use linkspan_verbs_sys::soft::{SoftConfig, SoftNet};
use proptest::prelude::*;

use super::*;

fn streams() -> (Secured, Secured) {
    let mut listen = Listen::bind("127.0.0.1:0".parse().unwrap(), &Options::default()).unwrap();
    let mut dial = Dial::start(None, listen.local_addr(), &Options::default(), Duration::from_secs(20)).unwrap();
    let (mut a, mut b) = (None, None);
    let since = Instant::now();
    while a.is_none() || b.is_none() {
        assert!(since.elapsed() < Duration::from_secs(20));
        a = a.or_else(|| dial.poll().unwrap());
        b = b.or_else(|| listen.accept().unwrap().map(|b| b.0));
    }
    (Secured::new(a.unwrap(), None), Secured::new(b.unwrap(), None))
}

fn setups(net: &SoftNet, last: u8, n: usize) -> Vec<Box<dyn Setup>> {
    let nic = net.nic(SoftConfig::roce("soft", Ipv4Addr::new(10, 0, 0, last), 1));
    Pairs::new(Domain::new(nic), Config::default(), n).make(n, Role::Caller).unwrap()
}

fn none(_: usize) -> Result<Vec<Box<dyn Setup>>, String> {
    Err("nothing here".into())
}

/// Plays both sides to their ends.
fn play(mut a: Handshake, mut b: Handshake, make: &Make<'_>) -> [HandshakeOutcome; 2] {
    let (mut x, mut y) = streams();
    let (mut here, mut there) = (None, None);
    let since = Instant::now();
    while here.is_none() || there.is_none() {
        assert!(since.elapsed() < Duration::from_secs(20));
        if here.is_none() {
            here = a.poll(&mut x, &none).unwrap();
        }
        if there.is_none() {
            there = b.poll(&mut y, make).unwrap();
        }
    }
    // The stream is free for what follows.
    assert!(matches!(x.stream.try_read(&mut [0; 8]), Ok(None)));
    assert!(matches!(y.stream.try_read(&mut [0; 8]), Ok(None)));
    [here.unwrap(), there.unwrap()]
}

#[test]
fn both_sides_end_with_all_or_with_none() {
    for n in [1, 3, QPS_MAX] {
        let net = SoftNet::new(1);
        let ends = play(Handshake::call(setups(&net, 1, n)), Handshake::answer(), &|n| Ok(setups(&net, 2, n)));
        assert!(ends.iter().all(|end| end.as_ref().is_ok_and(|rails| rails.len() == n)), "{n}");
    }
    let net = SoftNet::new(1);
    let [a, b] = play(Handshake::call(setups(&net, 1, 2)), Handshake::answer(), &none);
    assert_eq!(a.err().as_deref(), Some("the peer says: nothing here"));
    assert_eq!(b.err().as_deref(), Some("nothing here"));
    let [a, b] = play(Handshake::decline("ä".repeat(200)), Handshake::answer(), &none);
    assert!(a.is_err() && b.err().is_some_and(|why| why.starts_with("the peer says: ää") || why == "nothing here"));
}

/// As where a process is stopped, or waits for its GPU, right after its last word.
#[test]
fn the_peers_last_message_counts_however_late_it_is_read() {
    let net = SoftNet::new(1);
    let (mut a, mut b) = (Handshake::call(setups(&net, 1, 2)), Handshake::answer());
    let (mut x, mut y) = streams();
    let since = Instant::now();
    let mut there = None;
    while there.is_none() {
        assert!(since.elapsed() < Duration::from_secs(20));
        // All but the peer's last message.
        a.advance(Instant::now());
        a.out.drain(..).for_each(|message| x.send(&message).unwrap());
        if a.ours.is_none()
            && let Some(message) = x.read().unwrap()
        {
            a.input(&message, &none, Instant::now()).unwrap();
        }
        there = b.poll(&mut y, &|n| Ok(setups(&net, 2, n))).unwrap();
    }
    let ago = Instant::now() - 13 * LAST_WORD;
    (a.since, a.ours.as_mut().unwrap().1) = (ago, ago);
    assert!(a.poll(&mut x, &none).unwrap().is_some_and(|rails| rails.is_ok()));
    // Where there is none it does not wait any longer.
    let (mut z, _silent) = streams();
    let mut alone = Handshake::call(setups(&net, 3, 1));
    alone.since = ago;
    assert!(matches!(alone.poll(&mut z, &none), Err(MessageError::Silent)));
}

#[test]
fn it_needs_no_stream_but_messages_that_arrive_in_order() {
    let net = SoftNet::new(1);
    let mut sides = [Handshake::call(setups(&net, 1, 3)), Handshake::answer()];
    let since = Instant::now();
    while sides.iter().any(|side| side.outcome().is_none()) {
        assert!(since.elapsed() < Duration::from_secs(20));
        for at in 0..2 {
            sides[at].advance(Instant::now());
            while let Some(message) = sides[at].out.pop_front() {
                sides[1 - at].input(&message, &|n| Ok(setups(&net, 2, n)), Instant::now()).unwrap();
            }
        }
    }
    assert!(sides.iter_mut().all(|side| side.rails().is_ok_and(|rails| rails.len() == 3)));
}

#[test]
fn impossible_messages_end_it() {
    let good = [BYTES, 0, 0, 0, 1, 0, 0, 0];
    for (at, value) in [(0, 0), (0, 4), (1, 121), (2, 1), (3, 1), (4, 8), (5, 1), (7, 1)] {
        let net = SoftNet::new(1);
        let (mut a, mut b) = streams();
        let mut message = [0; MESSAGE_LEN];
        message[..FRONT].copy_from_slice(&good);
        message[at] = value;
        assert_eq!(a.stream.try_write(&message).unwrap(), Some(MESSAGE_LEN));
        let mut handshake = Handshake::answer();
        let since = Instant::now();
        let end = loop {
            assert!(since.elapsed() < Duration::from_secs(20), "byte {at} = {value} is taken");
            match handshake.poll(&mut b, &|n| Ok(setups(&net, 2, n))) {
                Ok(None) => {}
                other => break other,
            }
        };
        assert!(matches!(end, Err(MessageError::Handshake(_))), "byte {at} = {value}");
    }
}

#[test]
fn a_peer_that_goes_on_with_empty_messages_is_given_up_after_a_bounded_number() {
    let net = SoftNet::new(1);
    let mut empty = [0; MESSAGE_LEN];
    empty[..FRONT].copy_from_slice(&[BYTES, 0, 0, 0, 1, 0, 0, 0]);
    let mut handshake = Handshake::answer();
    let mut hear = || handshake.input(&empty, &|n| Ok(setups(&net, 2, n)), Instant::now());
    (0..MESSAGES_MAX).for_each(|_| hear().unwrap());
    assert!(matches!(hear(), Err(MessageError::Handshake(_))));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]
    #[test]
    fn a_peer_that_says_anything_gets_no_rail(
        messages in proptest::collection::vec((0u8..5, 0u8..130, 0u8..4, 0u8..9, any::<[u8; 16]>()), 1..6),
    ) {
        let net = SoftNet::new(1);
        let (mut a, mut b) = streams();
        for (kind, len, which, count, content) in messages {
            let mut message = [0; MESSAGE_LEN];
            (message[0], message[1], message[2], message[4]) = (kind, len, which, count);
            message[FRONT..FRONT + 16].copy_from_slice(&content);
            prop_assert_eq!(a.stream.try_write(&message).unwrap(), Some(MESSAGE_LEN));
        }
        drop(a);
        let mut handshake = Handshake::answer();
        loop {
            match handshake.poll(&mut b, &|n| Ok(setups(&net, 2, n))) {
                Ok(None) => {}
                Ok(Some(met)) => { prop_assert!(met.is_err()); break; }
                Err(_) => break,
            }
        }
    }
}
