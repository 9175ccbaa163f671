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
