use std::collections::VecDeque;

use proptest::prelude::*;

use super::*;
use crate::device::RingDevice;
use crate::soft::{SoftRingLink, SoftStreamLink};
use crate::tier::{Cable, CableAddress};

const HOSTS: [[u8; 16]; 2] = [[1; 16], [2; 16]];

fn cable(side: usize, tier: Tier, place: CableAddress, hops: (u16, u16)) -> Cable {
    let (local, peer) = (HOSTS[side], HOSTS[1 - side]);
    let hops = if side == 0 { hops } else { (hops.1, hops.0) };
    Cable { tier, name: format!("side{side}"), link: String::new(), local, peer, hops, ring: 64, speed: 0, place }
}

fn setup(side: usize, cables: Vec<Cable>) -> Setup {
    let ports = Ports { cables, ..Ports::default() };
    let role = if side == 0 { Role::Caller } else { Role::Answerer };
    Setup::new(ports.shared(), role, Config::default()).expect("a cable")
}

fn both(link: &SoftRingLink, stream: &SoftStreamLink, sides: [(bool, bool); 2]) -> [Setup; 2] {
    [0, 1].map(|side| {
        let mut cables = Vec::new();
        if sides[side].0 {
            cables.push(cable(side, Tier::Ring, link.address(side), (0, 0)));
        }
        if sides[side].1 {
            cables.push(cable(side, Tier::Stream, stream.address(side), (8, 9)));
        }
        setup(side, cables)
    })
}

#[test]
fn the_best_tier_that_both_have_is_taken_and_the_reason_says_why() {
    for (sides, tier, why) in [
        ([(true, true), (true, true)], Tier::Ring, "our ring driver"),
        ([(true, true), (false, true)], Tier::Stream, "the peer has none"),
        ([(false, true), (true, true)], Tier::Stream, "this host has no such cable"),
    ] {
        let (link, stream) = (SoftRingLink::new(), SoftStreamLink::new(64).expect("descriptors"));
        let [a, b] = both(&link, &stream, sides);
        let (a, b) = join(a, b).expect("joined");
        let taken = [&a, &b].map(|rail| rail.info().path.contains(&tier.to_string()));
        assert_eq!(taken, [true; 2], "{a:?}, {b:?}");
        assert!(a.info().reason.contains(why), "{}", a.info().reason);
        assert!(a.info().path.contains("01010101 -> 02020202"), "{}", a.info().path);
    }
}

/// Every step of both in turn, as hosts of equal speed take them: each finds the stream taken that the other has just opened.
#[test]
fn hosts_that_call_each_other_at_once_take_different_streams() {
    let streams = [(8, 9), (10, 11)].map(|hops| (SoftStreamLink::new(64).expect("descriptors"), hops));
    let make = |side: usize, role: Role| {
        let one = |(link, hops): &(SoftStreamLink, (u16, u16))| cable(side, Tier::Stream, link.address(side), *hops);
        let ports = Ports { cables: streams.iter().map(one).collect(), ..Ports::default() };
        Setup::new(ports.shared(), role, Config::default()).expect("a cable")
    };
    let call = |from: usize| [make(from, Role::Caller), make(1 - from, Role::Answerer)];
    let mut calls = [call(0), call(1)];
    for _ in 0..100 {
        // All messages go out before any of them is received.
        let said: Vec<Vec<u8>> = calls.iter_mut().flatten().map(Setup::output).collect();
        for (call, said) in calls.iter_mut().zip(said.chunks(2)) {
            for (at, bytes) in said.iter().enumerate() {
                call[1 - at].input(bytes).expect("no word out of place");
                call[1 - at].poll().expect("a stream");
            }
        }
    }
    assert!(calls.iter().flatten().all(Setup::is_done));
}

#[test]
fn byte_by_byte_in_any_turn() {
    let (link, stream) = (SoftRingLink::new(), SoftStreamLink::new(64).expect("descriptors"));
    let [mut a, mut b] = both(&link, &stream, [(true, true), (true, true)]);
    let (mut turns, mut to_a, mut to_b) = (0, VecDeque::new(), VecDeque::new());
    while !a.is_done() || !b.is_done() {
        let turn = |from: &mut Setup, to: &mut Setup, way: &mut VecDeque<u8>| {
            way.extend(from.output());
            if let Some(byte) = way.pop_front() {
                assert_eq!(to.input(&[byte]).expect("good"), 1);
            }
        };
        turn(&mut a, &mut b, &mut to_b);
        turn(&mut b, &mut a, &mut to_a);
        a.poll().expect("a");
        b.poll().expect("b");
        turns += 1;
        assert!(turns < 2 * OFFER_LEN);
    }
    assert_eq!(a.input(b"more").expect("not its bytes"), 0);
    assert!(a.finish().is_ok() && b.finish().is_ok());
}

#[test]
fn taken_channels_are_passed_over_and_a_full_link_falls_to_the_next_tier() {
    let (link, stream) = (SoftRingLink::new(), SoftStreamLink::new(64).expect("descriptors"));
    let mut other = link.open(1).expect("open");
    // Every second pair is taken on the far side.
    for channel in (0..256).filter(|c| c % 4 < 2) {
        other.open_channel(channel).expect("free");
    }
    let [a, b] = both(&link, &stream, [(true, true), (true, true)]);
    let (a, _b) = join(a, b).expect("joined");
    assert!(a.info().path.contains(&Tier::Ring.to_string()), "{a:?}");
    for channel in 0..256 {
        let _ = other.open_channel(channel);
    }
    let [a, b] = both(&link, &stream, [(true, true), (true, true)]);
    let (c, _d) = join(a, b).expect("joined");
    assert!(c.info().path.contains(&Tier::Stream.to_string()), "{c:?}");
    assert!(c.info().reason.contains("the peer cannot open its end"), "{}", c.info().reason);
}

#[test]
fn reasons_are_named() {
    let code = |e: Error| e.to_string().split(' ').next().map(str::to_owned);
    let none = Setup::new(Ports::default().shared(), Role::Caller, Config::default());
    assert_eq!(none.err().and_then(code).as_deref(), Some("LS1521"));
    let (link, stream) = (SoftRingLink::new(), SoftStreamLink::new(64).expect("descriptors"));
    let [a, b] = both(&link, &stream, [(true, false), (false, true)]);
    assert_eq!(join(a, b).err().and_then(code).as_deref(), Some("LS1528"));
    let in_use = stream.open(0).expect("free");
    let [a, b] = both(&link, &stream, [(false, true), (false, true)]);
    let refused = join(a, b).expect_err("in use").to_string();
    assert!(refused.starts_with("LS1521") && refused.contains("another connection has it"), "{refused}");
    drop(in_use);
    let mut late = setup(0, vec![cable(0, Tier::Ring, link.address(0), (0, 0))]);
    late.config.deadline = Duration::ZERO;
    assert_eq!(late.check(Instant::now()).err().and_then(code).as_deref(), Some("LS1523"));
    assert!(late.finish().is_err(), "not done");
}

#[test]
fn a_cable_that_leads_to_another_program_is_found_out() {
    let (link, stream) = (SoftRingLink::new(), SoftStreamLink::new(64).expect("descriptors"));
    let [mut a, mut b] = both(&link, &stream, [(false, true), (false, true)]);
    let offers = [a.output(), b.output()];
    // Another host's offer reaches b in place of a's.
    let mut forged = CableOffer::decode(&offers[0]).expect("an offer");
    forged.nonce[0] ^= 1;
    b.input(&forged.encode()).expect("good");
    a.input(&offers[1]).expect("good");
    b.input(&a.output()).expect("asked");
    a.input(&b.output()).expect("yes");
    for _ in 0..100 {
        a.poll().expect("a is told what it expects");
        b.poll().expect("the caller may know of another cable");
    }
    a.output();
    let refused = a.input(&b.output()).expect_err("there is no other").to_string();
    assert!(
        refused.starts_with("LS1521") && refused.contains("receives nothing, or data of another host, over it"),
        "{refused}"
    );
    let refused = b.input(&a.output()).expect_err("found out").to_string();
    assert!(refused.starts_with("LS1524"), "{refused}");
}

/// The caller has no cable of its own: what it is answered over ours never leaves.
#[test]
fn a_caller_that_asks_without_end_is_refused_and_no_try_waits() {
    let (link, stream) = (SoftRingLink::new(), SoftStreamLink::new(64).expect("descriptors"));
    let [mut a, mut b] = both(&link, &stream, [(true, false), (true, false)]);
    b.input(&a.output()).expect("an offer");
    let mut tries = (0..256).map(|n| Word::Try { own: 0, their: 0, channels: (n % 64 * 4, n % 64 * 4 + 1) });
    let refused = tries.find_map(|word| b.input(&word.encode()).err()).expect("tries without end").to_string();
    assert!(refused.starts_with("LS1522") && refused.contains("try number 129"), "{refused}");
    drop(b);
    assert_eq!(link.waits(), 0, "for what cannot leave");
}

/// As where two ends of the caller's look like the other end of one of ours.
#[test]
fn an_end_that_is_asked_for_again_is_let_go_of_first() {
    for sides in [[(true, false); 2], [(false, true); 2]] {
        let (link, stream) = (SoftRingLink::new(), SoftStreamLink::new(64).expect("descriptors"));
        let [mut a, mut b] = both(&link, &stream, sides);
        b.input(&a.output()).expect("an offer");
        b.output();
        for of in [1, 2] {
            b.input(&Word::Try { own: 0, their: 0, channels: (2, 3) }.encode()).expect("a try");
            assert_eq!(Word::decode(&b.output()).expect("an answer"), Word::Yes { of });
        }
    }
}

/// Two cables between the same host interfaces, which each host finds in an order of its own.
#[test]
fn cables_that_look_alike_are_told_apart_by_what_comes_over_them() {
    let links = [SoftRingLink::new(), SoftRingLink::new()];
    let side = |side: usize, order: [usize; 2], wanted: Option<usize>| {
        let one = |n: usize| Cable {
            link: format!("0-{n}"),
            name: format!("side{side}/{n}"),
            ..cable(side, Tier::Ring, links[n].address(side), (0, 0))
        };
        let ports = Ports { cables: order.map(one).to_vec(), ..Ports::default() };
        let role = if side == 0 { Role::Caller } else { Role::Answerer };
        let link = wanted.map(|n| format!("0-{n}"));
        Setup::new(ports.shared(), role, Config { link, one_of_many: true, ..Config::default() }).expect("a cable")
    };
    let pairs = [0, 1].map(|n| {
        let (a, b) = join(side(0, [0, 1], Some(n)), side(1, [1, 0], None)).expect("joined");
        assert_eq!(a.info().plug, Some(format!("0-{n}")));
        assert_eq!(b.info().plug, Some(format!("0-{n}")), "the other end of the same cable");
        (a, b)
    });
    assert_eq!(pairs.len(), 2);
}

/// The answerer's memory, then the caller's alone: a rail takes about 1.5 MiB.
#[test]
fn a_cable_whose_rail_gets_no_memory_is_passed_over_for_the_next() {
    for limit in [0, 5 << 19] {
        let links = [SoftRingLink::new(), SoftRingLink::new()];
        links[0].limit(limit);
        let side = |side: usize| {
            let one =
                |n: usize| Cable { link: format!("0-{n}"), ..cable(side, Tier::Ring, links[n].address(side), (0, 0)) };
            setup(side, vec![one(0), one(1)])
        };
        let (a, b) = join(side(0), side(1)).expect("joined");
        for rail in [&a, &b] {
            assert_eq!(rail.info().plug.as_deref(), Some("0-1"), "with {limit} bytes");
        }
    }
}

/// Each of two cables between the same host interfaces, offered alone as when it was lost: a wrong one is waited for seconds.
#[test]
fn a_lost_cable_is_the_second_at_most_that_is_tried() {
    let ends = SoftStreamLink::new(64).expect("descriptors");
    let streams = |side: usize, plugs: &[usize]| -> Vec<Cable> {
        let one = |plug: usize, n: u16| Cable {
            link: format!("0-{plug}"),
            ..cable(side, Tier::Stream, ends.address(side), (9 + 2 * n, 10 + 2 * n))
        };
        plugs.iter().flat_map(|plug| (0..4).map(move |n| one(*plug, n))).collect()
    };
    for (caller, lost) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
        let (ours, theirs) = (streams(caller, &[lost]), streams(1 - caller, &[0, 1]));
        let plugs: Vec<String> = theirs.iter().map(|cable| cable.link.clone()).collect();
        let ports = |cables| Ports { cables, ..Ports::default() }.shared();
        let mut a = Setup::new(ports(ours), Role::Caller, Config::default()).expect("a cable");
        let mut b = Setup::new(ports(theirs), Role::Answerer, Config::default()).expect("a cable");
        a.input(&b.output()).expect("an offer");
        let tried: Vec<&String> = a.joins.iter().map(|(_, their)| &plugs[*their]).collect();
        assert!(tried.chunks(2).all(|two| two.contains(&&format!("0-{lost}"))), "{tried:?}");
    }
}

/// One of several that leads to another host ends on both sides, and both know.
#[test]
fn one_of_many_may_end_without_a_rail() {
    let link = SoftRingLink::new();
    for (other, why) in [([9; 16], ""), (HOSTS[1], "LS1521")] {
        let mut one = cable(0, Tier::Ring, link.address(0), (0, 0));
        one.peer = other;
        let many = Config { one_of_many: true, ..Config::default() };
        let ports = |cable: Cable| Ports { cables: vec![cable], ..Ports::default() }.shared();
        let mut a = Setup::new(ports(one), Role::Caller, many.clone()).expect("a cable");
        let two = cable(1, Tier::Ring, link.address(1), (0, 0));
        let mut b = Setup::new(ports(two), Role::Answerer, many).expect("a cable");
        let mut taken: Vec<_> = Vec::new();
        if other == HOSTS[1] {
            let mut full = link.open(1).expect("open");
            (0..256).for_each(|channel| full.open_channel(channel).expect("free"));
            taken.push(full);
        }
        while !a.is_done() || !b.is_done() {
            b.input(&a.output()).expect("no error");
            a.input(&b.output()).expect("no error");
        }
        assert!(a.why_not().starts_with(why) && a.why_not().is_empty() == why.is_empty(), "{}", a.why_not());
        assert!(matches!((a.finish(), b.finish()), (Ok(None), Ok(None))));
    }
}

/// Both sides of one of several cables, the answerer's end open and its bytes of the cable written.
fn asked(mut cables: [Vec<Cable>; 2]) -> [Setup; 2] {
    let [mut a, mut b] = [0, 1].map(|side| {
        let mut setup = setup(side, std::mem::take(&mut cables[side]));
        setup.config.one_of_many = true;
        setup
    });
    b.input(&a.output()).expect("an offer");
    a.input(&b.output()).expect("an offer");
    b.input(&a.output()).expect("a try");
    [a, b]
}

fn is_without(setup: Setup) -> bool {
    matches!(setup.finish(), Ok(None))
}

/// What a side says before it knows how the other's has ended is part of the handshake, however that ended.
#[test]
fn words_that_cross_the_end_of_one_of_many_are_taken() {
    let (link, stream) = (SoftRingLink::new(), SoftStreamLink::new(64).expect("descriptors"));
    let unplug: [(_, &dyn Fn()); 2] = [
        ([0, 1].map(|side| vec![cable(side, Tier::Ring, link.address(side), (0, 0))]), &|| link.unplug()),
        ([0, 1].map(|side| vec![cable(side, Tier::Stream, stream.address(side), (8, 9))]), &|| stream.unplug()),
    ];
    link.stall(Some(0));
    stream.stall(Some(0));
    for (cables, unplug) in unplug {
        let [mut a, mut b] = asked(cables);
        a.input(&b.output()).expect("a yes");
        unplug();
        a.poll().expect("one of many");
        b.poll().expect("the caller may know of another cable");
        let (from_a, from_b) = (a.output(), b.output());
        assert!(a.is_done() && !from_a.is_empty() && !from_b.is_empty());
        assert_eq!(a.input(&from_b).expect("no word out of place"), from_b.len());
        assert_eq!(b.input(&from_a).expect("no word out of place"), from_a.len());
        assert!(a.is_done() && b.is_done() && is_without(a) && is_without(b));
    }
}

/// What the caller has written arrives when it just gives up: the answerer takes the cable for good.
#[test]
fn one_of_many_that_the_caller_gives_up_is_none_for_an_answerer_that_was_done() {
    let stream = SoftStreamLink::new(64).expect("descriptors");
    // The answerer's bytes alone.
    stream.stall(Some(1));
    let [mut a, mut b] = asked([0, 1].map(|side| vec![cable(side, Tier::Stream, stream.address(side), (8, 9))]));
    a.input(&b.output()).expect("a yes");
    a.poll().expect("the answerer's bytes");
    b.poll().expect("nothing yet");
    b.input(&a.output()).expect("that it passes");
    assert!(!a.is_done() && !b.is_done());
    stream.stall(None);
    let late = Instant::now() + a.config.deadline * 4 / 5;
    a.check(late).expect("before the deadline");
    assert!(a.is_done() && a.why_not().contains("the peer received nothing over it"), "{}", a.why_not());
    b.poll().expect("the caller's bytes");
    assert!(b.is_done());
    let (from_a, from_b) = (a.output(), b.output());
    assert_eq!(b.input(&from_a).expect("no word out of place"), from_a.len());
    assert_eq!(a.input(&from_b).expect("no word out of place"), from_b.len());
    assert!(is_without(a) && is_without(b));
}

#[test]
fn a_cable_that_carries_nothing_to_the_answerer_is_passed_over_for_the_next() {
    let (link, stream) = (SoftRingLink::new(), SoftStreamLink::new(64).expect("descriptors"));
    // The answerer's bytes alone.
    link.stall(Some(1 + NONCE_LEN as u64));
    let [mut a, mut b] = asked([0, 1].map(|side| {
        let ring = cable(side, Tier::Ring, link.address(side), (0, 0));
        vec![ring, cable(side, Tier::Stream, stream.address(side), (8, 9))]
    }));
    a.input(&b.output()).expect("a yes");
    a.poll().expect("the answerer's bytes");
    let told = a.output();
    // However long ago it came up: the caller's bytes are to be there when it says that ours are.
    let long_ago = |b: &mut Setup| {
        let State::Up { since, .. } = &mut b.state else { panic!("not up") };
        *since = Instant::now().checked_sub(2 * HELLO_WAIT).expect("up for longer");
    };
    long_ago(&mut b);
    b.poll().expect("nothing yet");
    b.input(&told).expect("that it passes");
    b.poll().expect("nothing yet");
    assert_eq!(b.output(), [], "not given up");
    long_ago(&mut b);
    b.poll().expect("the caller may know of another cable");
    a.input(&b.output()).expect("a no");
    let (a, b) = join(a, b).expect("over the stream");
    assert!([&a, &b].map(|rail| rail.info().path.contains(&Tier::Stream.to_string())) == [true; 2], "{a:?}");
}

#[test]
fn golden_bytes() {
    let stream = SoftStreamLink::new(64).expect("descriptors");
    let offer = CableOffer::new(&[cable(0, Tier::Stream, stream.address(0), (8, 9))], [7; NONCE_LEN]);
    let mut want = Vec::from(*b"LSTo\x01\x01\x00\x00");
    want.extend_from_slice(&[7; 16]);
    want.extend_from_slice(b"\x02\x00\x40\x00\x08\x00\x09\x00");
    want.extend_from_slice(&[1; 16]);
    want.extend_from_slice(&[2; 16]);
    want.resize(OFFER_LEN, 0);
    assert_eq!(offer.encode().to_vec(), want);
    assert_eq!(CableOffer::decode(&want).expect("an offer"), offer);
    let word = Word::Try { own: 1, their: 2, channels: (4, 5) };
    assert_eq!(&word.encode()[..], b"LSTt\x01\x00\x02\x00\x04\x00\x00\x00\x05\x00\x00\x00");
}

proptest! {
    #[test]
    fn any_bytes_are_an_offer_or_refused(bytes in proptest::collection::vec(any::<u8>(), OFFER_LEN), keep in any::<bool>()) {
        let mut bytes = bytes;
        if keep {
            bytes[..8].copy_from_slice(b"LSTo\x01\x01\x00\x00");
        }
        if let Ok(offer) = CableOffer::decode(&bytes) {
            prop_assert_eq!(offer.encode().to_vec(), bytes);
        }
    }

    #[test]
    fn any_bytes_are_a_word_or_refused(bytes in proptest::collection::vec(any::<u8>(), WORD_LEN), tag in 0..6usize) {
        let mut bytes = bytes;
        if let Some(tag) = [b"LSTt", b"LSTy", b"LSTn", b"LST0", b"LSTp"].get(tag) {
            bytes[..4].copy_from_slice(&tag[..]);
        }
        if let Ok(word) = Word::decode(&bytes) {
            prop_assert_eq!(word.encode().to_vec(), bytes);
        }
    }
}
