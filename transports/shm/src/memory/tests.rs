use std::sync::atomic::AtomicBool;
use std::sync::mpsc::channel;
use std::time::Duration;

use linkspan_shmring::layout::RING_MIN;
use linkspan_shmring::map::Slots;
use linkspan_transport::{Buf, StaticBuf};

use super::*;

#[test]
fn a_number_that_is_another_process_s_by_now_is_not_written_to() {
    let map = Arc::new(Map::create(RING_MIN).unwrap());
    let slots = Slots::new(&map, Side::A);
    let (src, dst) = (StaticBuf::new(4096), StaticBuf::new(4096));
    assert!(src.slice().fill(0, &[7; 4096]));
    let me = std::process::id() as i32;
    let push = |memory: &PeerMemory| {
        let mut ranges = Ranges::new();
        assert!(ranges.add(src.slice(), dst.slice().as_ptr() as u64));
        memory.push(&slots.get(0).unwrap(), 0, &mut ranges)
    };
    // The peer has ended, and its number is this very process's.
    let mut child = std::process::Command::new("true").spawn().unwrap();
    let pidfd = Arc::new(peer::of_pid(child.id() as i32).unwrap());
    child.wait().unwrap();
    let theirs = AccessGuard::new([1, 2]).unwrap();
    let remote = Some(Remote::new(me, theirs.address()));
    let mut memory = PeerMemory::new(
        &map,
        &Config::default(),
        Side::A,
        (me, Some(pidfd)),
        remote,
        AccessGuard::new([0; 2]).unwrap(),
    );
    memory.looked = Cell::new(Instant::now() - LOOK_EVERY);
    assert!(matches!(push(&memory), Copied::Stopped));
    assert_eq!(dst.slice().to_vec(), [0; 4096]);
    // It is the peer's.
    memory.pidfd = Some(Arc::new(peer::of_pid(me).unwrap()));
    memory.looked = Cell::new(Instant::now() - LOOK_EVERY);
    assert!(matches!(push(&memory), Copied::Whole));
    assert_eq!(dst.slice().to_vec(), [7; 4096]);
}

#[test]
fn a_peer_that_only_reads_is_not_waited_for_while_it_stands_still_in_a_copy() {
    let map = Arc::new(Map::create(RING_MIN).unwrap());
    let me = std::process::id() as i32;
    let theirs = AccessGuard::new([1, 2]).unwrap();
    let guard = AccessGuard::new([0; 2]).unwrap();
    let remote = Some(Remote::new(me, theirs.address()));
    let mut memory = PeerMemory::new(&map, &Config::default(), Side::A, (me, None), remote, guard);
    memory.prove_nothing();
    // Of a thread that runs nothing can be proven.
    let (goes_on, (told, tells), (ended, ends)) = (Arc::new(AtomicBool::new(true)), channel(), channel());
    let until = goes_on.clone();
    std::thread::spawn(move || {
        told.send(this_thread()).unwrap();
        while until.load(Ordering::Relaxed) {
            std::hint::spin_loop();
        }
    });
    assert!(revoke::enter(map.inside(Side::B), tells.recv().unwrap(), || true));
    std::thread::spawn(move || {
        memory.quiesce(|| false);
        ended.send(()).unwrap();
    });
    let waits = ends.recv_timeout(Duration::from_secs(20)).is_err();
    goes_on.store(false, Ordering::Relaxed);
    assert!(!waits, "it waits for a peer that stands still");
}
