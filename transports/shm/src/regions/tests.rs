use linkspan_proto::conn::RemoteSlice;
use linkspan_proto::{Head, Kind};
use linkspan_transport::{Rail, StaticBuf};

use super::*;
use crate::{Config, ShmRail, pair};

const KEY: u32 = 3 << 12 | 5;
const LEN: usize = 64 << 10;

/// Two ends, of which the second exposes memory and sleeps.
fn exposed(access: Access) -> (ShmRail, ShmRail, StaticBuf) {
    let (a, mut b) = pair(Config::default()).unwrap();
    let memory = StaticBuf::new(LEN);
    b.exposed(KEY, memory.slice(), access);
    assert!(b.arm().is_some());
    (a, b, memory)
}

fn at(offset: u64) -> RemoteSlice {
    RemoteSlice { key: KEY, offset }
}

fn sleeps(a: &ShmRail) -> bool {
    a.map().sleeping(Side::B).load(Ordering::SeqCst) != 0
}

#[test]
fn what_is_copied_for_a_peer_that_sleeps_is_there_when_the_call_returns_and_the_peer_sleeps_on() {
    let (mut a, mut b, memory) = exposed(Access::ReadWrite);
    let (src, dst) = (StaticBuf::new(100), StaticBuf::new(100));
    assert!(src.slice().fill(0, &[7; 100]));
    assert!(a.copy_alone(src.slice(), at(50), true));
    let bytes = memory.slice().to_vec();
    assert_eq!((&bytes[..50], &bytes[50..150], &bytes[150..200]), (&[0; 50][..], &[7; 100][..], &[0; 50][..]));
    assert!(a.copy_alone(dst.slice(), at(50), false));
    assert_eq!(dst.slice().to_vec(), [7; 100]);
    assert!(sleeps(&a), "it was not woken");
    assert_eq!(a.map().peek(4096), 0, "nothing is in the ring");
    assert_eq!((b.copied_by_peer(), b.copied_by_peer()), ([100, 100], [0, 0]));
}

#[test]
fn a_peer_that_is_awake_is_told_by_messages() {
    let (mut a, b, _memory) = exposed(Access::ReadWrite);
    let src = StaticBuf::new(8);
    assert!(a.copy_alone(src.slice(), at(0), true));
    b.map().sleeping(Side::B).store(0, Ordering::SeqCst);
    assert!(!a.copy_alone(src.slice(), at(0), true));
}

#[test]
fn nothing_is_copied_past_a_message_that_the_peer_has_not_been_told_of() {
    let (mut a, _b, _memory) = exposed(Access::ReadWrite);
    let src = StaticBuf::new(8);
    let mut head = Head::new(Kind::Eager);
    head.len.set(8);
    a.ctrl(&head, src.slice()).unwrap();
    assert!(sleeps(&a), "it is told by the next flush");
    assert!(!a.copy_alone(src.slice(), at(0), true));
    // Told while it was about to sleep, it has not found it either.
    a.flush().unwrap();
    a.map().sleeping(Side::B).store(1, Ordering::SeqCst);
    assert!(!a.copy_alone(src.slice(), at(0), true));
}

#[test]
fn nothing_is_copied_past_key_bounds_rights_or_size() {
    for (access, write) in [(Access::Read, false), (Access::Write, true)] {
        let (mut a, mut b, memory) = exposed(access);
        let (one, large) = (StaticBuf::new(1), StaticBuf::new((1 << 20) + 1));
        assert!(a.copy_alone(one.slice(), at(LEN as u64 - 1), write));
        assert!(!a.copy_alone(one.slice(), at(0), !write), "{access:?}");
        for offset in [LEN as u64, 1 << 32, u64::MAX] {
            assert!(!a.copy_alone(one.slice(), at(offset), write), "{access:?} at {offset}");
        }
        for key in [0, KEY + 1, KEY + (1 << 12)] {
            assert!(!a.copy_alone(one.slice(), RemoteSlice { key, offset: 0 }, write), "{access:?}, key {key:#x}");
        }
        assert!(!a.copy_alone(MemSlice::NONE, at(0), write));
        b.exposed(KEY + 1, large.slice(), access);
        assert!(
            !a.copy_alone(large.slice(), RemoteSlice { key: KEY + 1, offset: 0 }, write),
            "longer than a call may take"
        );
        // Another one at its place in the table: the first stays.
        b.exposed(KEY + (1 << 12), large.slice(), access);
        assert!(a.copy_alone(one.slice(), at(0), write));
        assert!(b.unexposed(KEY + (1 << 12)));
        assert!(a.copy_alone(one.slice(), at(0), write));
        assert!(b.unexposed(KEY));
        assert!(!a.copy_alone(one.slice(), at(0), write));
        // The first of all places, used and left, is not that of key 0.
        b.exposed(1 << 12, memory.slice(), access);
        assert!(b.unexposed(1 << 12));
        assert!(!a.copy_alone(one.slice(), RemoteSlice { key: 0, offset: 0 }, write));
        drop(memory);
    }
}

#[test]
fn a_region_is_not_at_rest_while_the_peer_may_be_copying() {
    let (a, mut b, _memory) = exposed(Access::ReadWrite);
    let inside = a.map().inside(Side::A);
    inside.store(1, Ordering::SeqCst);
    assert!(!b.unexposed(KEY));
    assert!(!b.unexposed(KEY), "however often it is asked");
    inside.store(0, Ordering::SeqCst);
    assert!(b.unexposed(KEY));
}

#[test]
fn a_rail_that_is_gone_exposes_nothing() {
    let (mut a, b, memory) = exposed(Access::ReadWrite);
    drop(b);
    let src = StaticBuf::new(8);
    assert!(sleeps(&a), "as it was");
    assert!(!a.copy_alone(src.slice(), at(0), true));
    drop(memory);
}

#[test]
fn a_side_that_can_prove_no_end_of_copies_exposes_nothing() {
    let map = Arc::new(Map::create(linkspan_shmring::layout::RING_MIN).unwrap());
    let memory = StaticBuf::new(8);
    let mut exposed = RegionTable::new(&map, Side::B, false);
    exposed.add(KEY, memory.slice(), Access::ReadWrite);
    assert_eq!(map.region(Side::B, KEY).find(KEY), None);
    assert!(exposed.remove(KEY));
}

#[test]
fn what_the_peer_writes_into_our_table_is_not_believed_by_us() {
    let (a, mut b, _memory) = exposed(Access::ReadWrite);
    let entry = a.map().region(Side::B, KEY);
    entry.withdraw();
    entry.publish(KEY + (1 << 12), Region { address: 0, len: u64::MAX, rights: u64::MAX });
    assert!(b.unexposed(KEY));
    assert_eq!(entry.find(KEY + (1 << 12)), None, "withdrawn, whatever stood there");
}

#[test]
fn an_address_that_is_none_falls_back_to_messages_and_is_told_once() {
    let (mut a, b, _memory) = exposed(Access::ReadWrite);
    let entry = b.map().region(Side::B, KEY);
    entry.withdraw();
    entry.publish(KEY, Region { address: 8, len: 64, rights: WRITE });
    let src = StaticBuf::new(8);
    assert!(!a.copy_alone(src.slice(), at(0), true));
    assert!(a.event().is_some_and(|line| line.contains("some memory cannot be copied directly")));
    entry.withdraw();
    entry.publish(KEY, Region { address: u64::MAX - 4, len: 64, rights: WRITE });
    assert!(!a.copy_alone(src.slice(), at(32), true), "past the end of all addresses");
}
