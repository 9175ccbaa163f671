use std::net::Ipv4Addr;

use linkspan_gpu::{Gpu, SimConfig, SimGpu};
use linkspan_transport::{HostBuf, StaticBuf};
use linkspan_verbs_sys::mock::MockNic;
use linkspan_verbs_sys::soft::{SoftConfig, SoftNet, SoftNic};
use proptest::prelude::*;

use super::*;

fn domain() -> Domain<MockNic<SoftNic>> {
    Domain::new(MockNic::new(SoftNet::new(1).nic(SoftConfig::roce("a", Ipv4Addr::LOCALHOST, 1))))
}

fn part(buf: &StaticBuf, from: usize, len: usize) -> MemSlice {
    buf.slice().sub(from as u64, len as u64).expect("inside")
}

#[test]
fn a_hit_registers_nothing() {
    let domain = domain();
    let buf = StaticBuf::new(1 << 20);
    let (mut one, mut two) = (Cache::new(domain.clone()), Cache::new(domain.clone()));
    let whole = one.get(buf.slice(), true).expect("registered");
    for cache in [&mut one, &mut two] {
        for from in [0, 1, 4096, (1 << 20) - 10] {
            for target in [false, true] {
                let hit = cache.get(part(&buf, from, 10), target).expect("a hit");
                assert_eq!(hit.keys(), whole.keys());
            }
        }
    }
    assert_eq!(domain.registrations(), 1);
}

#[test]
fn what_is_only_read_is_not_the_peers_to_write() {
    let domain = domain();
    let buf = StaticBuf::new(4096);
    let mut cache = Cache::new(domain.clone());
    let source = cache.get(buf.slice(), false).expect("registered");
    let target = cache.get(buf.slice(), true).expect("registered");
    assert_ne!(source.keys(), target.keys());
    assert_eq!(domain.registrations(), 2);
}

#[test]
fn invalidated_regions_are_registered_anew_and_their_keys_die_with_the_last_use() {
    let domain = domain();
    let buf = StaticBuf::new(1 << 16);
    let mut cache = Cache::new(domain.clone());
    let old = cache.get(buf.slice(), true).expect("registered");
    domain.invalidate(part(&buf, 100, 1));
    let new = cache.get(buf.slice(), true).expect("registered");
    assert_ne!(old.keys().rkey(), new.keys().rkey());
    assert_eq!(Arc::strong_count(&old), 1, "no other reference to the old one exists");
    domain.invalidate(StaticBuf::new(10).slice());
    let same = cache.get(buf.slice(), true).expect("a hit");
    assert_eq!(same.keys(), new.keys(), "another range is not affected");
    assert_eq!(domain.registrations(), 2);
}

#[test]
fn what_was_forgotten_is_not_shared_with_a_later_holder_although_an_idle_rail_knows_it() {
    for target in [false, true] {
        let domain = domain();
        let buf = StaticBuf::new(1 << 16);
        let mut idle = Cache::new(domain.clone());
        let old = idle.get(buf.slice(), target).expect("registered");
        domain.invalidate(buf.slice());
        let _held = domain.hold(buf.slice(), target).expect("registered");
        assert_eq!(domain.registrations(), 2);
        let new = idle.get(buf.slice(), target).expect("a hit");
        assert_ne!(old.keys(), new.keys());
        assert_eq!(domain.registrations(), 2, "the one that is held is used");
    }
}

#[test]
fn what_is_sent_from_is_not_what_a_peer_may_be_refused() {
    let domain = domain();
    let buf = StaticBuf::new(1 << 16);
    let mut cache = Cache::new(domain.clone());
    let target = domain.hold(buf.slice(), true).expect("registered");
    let source = domain.hold(buf.slice(), false).expect("registered");
    let sent = cache.get(part(&buf, 100, 10), false).expect("a hit");
    drop(target);
    assert_eq!(cache.get(part(&buf, 100, 10), false).expect("a hit").keys(), sent.keys());
    drop(source);
    assert_eq!(domain.kept(), 0);
}

#[test]
fn a_refusal_is_told_and_leaves_nothing() {
    let domain = domain();
    let buf = StaticBuf::new(4096);
    domain.nic().script().register = Some((1, 14));
    let mut cache = Cache::new(domain.clone());
    let refused = cache.get(buf.slice(), true).err().expect("scripted");
    assert_eq!(refused.os(), Some(14));
    cache.get(buf.slice(), true).expect("the next one");
    assert_eq!(domain.registrations(), 1);
}

#[test]
fn where_no_more_memory_may_be_locked_what_nothing_uses_gives_way() {
    let domain = domain();
    let buf = StaticBuf::new(6 * 4096);
    let (mut one, mut two) = (Cache::new(domain.clone()), Cache::new(domain.clone()));
    for n in 0..3 {
        one.get(part(&buf, n * 4096, 10), n == 0).expect("registered");
        two.get(part(&buf, n * 4096, 10), n == 0).expect("a hit");
    }
    let used = one.get(part(&buf, 3 * 4096, 10), false).expect("registered");
    let held = domain.hold(part(&buf, 4 * 4096, 10), true).expect("registered");
    assert_eq!(domain.kept(), 5);
    domain.nic().script().register = Some((1, ENOMEM));
    two.get(part(&buf, 5 * 4096, 10), false).expect("something could go");
    assert_eq!(domain.kept(), 3, "what is used, what is held and the new one");
    let registered = domain.registrations();
    assert_eq!(one.get(part(&buf, 3 * 4096, 10), false).expect("a hit").keys(), used.keys());
    assert_eq!(domain.registrations(), registered);
    one.get(part(&buf, 0, 10), true).expect("registered anew");
    assert_eq!(domain.registrations(), registered + 1);
    domain.nic().script().register = Some((1, ENOMEM));
    let _another = domain.hold(part(&buf, 0, 4096), false).expect("space for a holder too");
    drop(held);
}

#[test]
fn what_lies_inside_a_region_that_was_let_go_is_known_again() {
    let domain = domain();
    let buf = StaticBuf::new(1 << 16);
    let mut cache = Cache::new(domain.clone());
    cache.get(buf.slice(), false).expect("registered");
    domain.lock().shed();
    let new = cache.get(part(&buf, 4096, 10), false).expect("registered");
    assert_eq!(cache.known(gone::epoch(), part(&buf, 4096, 10), false).expect("known").keys(), new.keys());
}

proptest! {
    /// Against a list that is searched from end to end: a range is a hit exactly when some live region covers it.
    #[test]
    fn the_map_finds_what_a_list_finds(steps in proptest::collection::vec((0usize..4, 0usize..2000, 1usize..600), 1..80)) {
        let domain = domain();
        let buf = StaticBuf::new(4096);
        let mut cache = Cache::new(domain.clone());
        let mut list: Vec<(usize, usize)> = Vec::new();
        for (kind, from, len) in steps {
            if kind == 0 {
                domain.invalidate(part(&buf, from, len));
                list.retain(|&(a, n)| a + n <= from || a >= from + len);
                continue;
            }
            let hit = list.iter().any(|&(a, n)| a <= from && from + len <= a + n);
            let before = domain.registrations();
            let region = cache.get(part(&buf, from, len), true).expect("registered");
            prop_assert!(region.keys().covers(buf.slice().as_ptr() as u64 + from as u64, len as u64));
            prop_assert_eq!(domain.registrations() == before, hit);
            if !hit {
                // One inside another is not kept.
                list.retain(|&(a, n)| a < from || a + n > from + len);
                list.push((from, len));
            }
        }
    }
}

#[test]
fn a_buffer_that_went_back_to_the_system_is_forgotten_without_a_watch_and_a_held_one_too() {
    let domain = domain();
    let mut cache = Cache::new(domain.clone());
    for held in [false, true] {
        let buf = HostBuf::new(8 << 20);
        // SAFETY: the double of a card touches no memory of its own accord.
        #[allow(unsafe_code)]
        let mem = unsafe { buf.slice() };
        let hold = held.then(|| domain.hold(mem, true).expect("registered"));
        let old = cache.get(mem, true).expect("registered");
        let before = domain.registrations();
        drop(buf);
        let new = cache.get(mem, true).expect("registered");
        assert_ne!(old.keys().rkey(), new.keys().rkey(), "its pages are those of before");
        assert_eq!(domain.registrations(), before + 1);
        assert!(old.mr.lock().expect("not poisoned").is_none(), "a peer can still write by the old key");
        drop(hold);
    }
}

#[test]
fn where_it_is_unknown_what_has_gone_the_key_of_a_receive_under_way_stays_valid_and_no_other_uses_it() {
    let domain = domain();
    let buf = StaticBuf::new(1 << 16);
    let is_open = |region: &CachedRegion<_>| region.mr.lock().expect("not poisoned").is_some();
    let mut cache = Cache::new(domain.clone());
    let lost = || domain.forget(gone::ALL.0, gone::ALL.1, Cause::Unknown);
    let receive = cache.get(buf.slice(), true).expect("registered");
    lost();
    assert!(is_open(&receive), "the peer's next write is refused");
    let new = cache.get(buf.slice(), true).expect("registered");
    assert_ne!(new.keys(), receive.keys(), "it may be of what has gone");
    domain.forget(buf.slice().as_ptr() as u64, 1, Cause::Gone);
    assert!(!is_open(&receive) && !is_open(&new), "this is known to have gone");
    let receive = cache.get(buf.slice(), true).expect("registered");
    lost();
    let held = domain.hold(buf.slice(), true).expect("registered");
    assert_ne!(held.region.keys(), receive.keys(), "a later holder shares what may have gone");
    domain.invalidate(buf.slice());
    assert!(!is_open(&receive) && is_open(&held.region), "its owner has taken it back");
    lost();
    assert!(is_open(&held.region));
    drop(held);
    assert_eq!(domain.kept(), 0);
}

#[test]
fn memory_of_a_device_that_is_taken_back_is_deregistered_although_nobody_asks_about_it_again() {
    for target in [false, true] {
        let gpu = SimGpu::new(SimConfig::default()).expect("a device");
        let card = SoftConfig { peer_memory: true, ..SoftConfig::roce("a", Ipv4Addr::LOCALHOST, 1) };
        let domain = Domain::new(SoftNet::new(1).nic(card));
        let mem = gpu.alloc(1 << 16).expect("memory");
        let mut idle = Registered::new(domain.clone());
        let held = domain.hold(mem, target).expect("registered");
        assert!(idle.reaches(mem, target));
        let region = Arc::downgrade(&held.region);
        drop(held);
        assert_eq!(region.strong_count(), 0, "it stays pinned");
        assert!(!idle.reaches(mem, target));
    }
}
