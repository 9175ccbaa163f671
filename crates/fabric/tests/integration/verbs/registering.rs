//! Registrations where devices go, refuse, or share memory between connections.

use super::*;

#[test]
fn a_connection_that_outlives_its_card_registers_memory_without_it() {
    let world = world([&[], &[]], true);
    let (mut a, mut b) = world.pair();
    message(&mut a, &mut b, 1 << 20, 1).unwrap();
    world.net.remove(&world.nics[1]);
    let since = Instant::now();
    while !world.said(1, "TCP carries on in place of RDMA") {
        assert!(since.elapsed() < Duration::from_secs(60), "{}", world.all(1));
        message(&mut a, &mut b, 1 << 20, 2).unwrap();
    }
    let buf = StaticBuf::new(1 << 20);
    let _held = b.memory().register(buf.slice(), true).unwrap();
    assert!(b.memory().register_device(None, buf.slice(), true).is_ok());
}

#[test]
fn a_message_that_is_larger_than_what_may_be_locked_goes_over_rdma_and_one_line_says_that_it_is_slower() {
    for acked in [false, true] {
        let world = world_of([&[], &[]], acked, |config| config.locked = 4 << 20);
        let (mut a, mut b) = world.pair();
        for seed in 0..3 {
            message(&mut a, &mut b, 16 << 20, seed).unwrap();
        }
        assert_eq!((a.rails_lost(), b.rails_lost()), (0, 0), "{}", world.all(0));
        let until = Instant::now() + Duration::from_secs(30);
        while [0, 1].iter().any(|n| !world.said(*n, "no more memory may be locked")) {
            assert!(Instant::now() < until, "{}", world.all(0));
            message(&mut a, &mut b, 16 << 20, 9).unwrap();
        }
        assert_eq!(world.all(0).matches("no more memory may be locked").count(), 1, "{}", world.all(0));
    }
}

/// The peer of the second has a key of the memory that was registered for it.
#[test]
fn memory_inside_what_another_connection_gives_back_stays_open_where_it_was_registered_itself() {
    for inner_first in [false, true] {
        let world = world([&[], &[]], false);
        let (_a, b) = world.pair();
        let (mut c, mut d) = world.pair();
        let buf = StaticBuf::new(1 << 20);
        let half = buf.slice().sub(0, 1 << 19).unwrap();
        let (outer, inner) = if inner_first {
            let inner = d.memory().register(half, true).unwrap();
            (b.memory().register(buf.slice(), true).unwrap(), inner)
        } else {
            (b.memory().register(buf.slice(), true).unwrap(), d.memory().register(half, true).unwrap())
        };
        let recv = d.post_recv(&[(3, half)]).unwrap().unwrap();
        d.progress().unwrap();
        drop(outer);
        fill(&mut c, &mut d, recv, 1 << 19);
        drop(inner);
        assert_eq!(targets(&world, half), []);
    }
}
