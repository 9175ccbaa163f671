use std::os::fd::OwnedFd;

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};

use super::{Map, SEALS};
use crate::layout::{Side, total};

const RING: usize = 64 << 10;

fn memfd(size: u64, seals: SealFlags) -> OwnedFd {
    let fd = memfd_create("test", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
    ftruncate(&fd, size).unwrap();
    fcntl_add_seals(&fd, seals).unwrap();
    fd
}

#[test]
fn both_see_the_same_memory() {
    let a = Map::create(RING).unwrap();
    a.set_nonce(Side::A, [1, 2]);
    let b = Map::open(a.fd().try_clone_to_owned().unwrap(), RING).unwrap();
    assert_eq!(b.nonce(Side::A), [1, 2]);
    b.set_nonce(Side::B, [3, 4]);
    assert_eq!((a.nonce(Side::A), a.nonce(Side::B)), ([1, 2], [3, 4]));
    assert!(ftruncate(a.fd(), 0).is_err(), "sealed against SIGBUS");
}

#[test]
fn sizes_that_are_no_ring_are_refused() {
    for size in [0, 1, RING - 1, RING + 1, 3 * RING, usize::MAX, 128 << 20] {
        assert!(Map::create(size).is_err(), "{size}");
    }
}

#[test]
fn what_the_peer_sends_is_looked_at_before_it_is_used() {
    let size = total(RING) as u64;
    let bad = [
        ("a file", std::fs::File::open("/proc/self/status").unwrap().into()),
        ("not sealed", memfd(size, SealFlags::empty())),
        ("can shrink", memfd(size, SealFlags::GROW | SealFlags::SEAL)),
        ("too small", memfd(size - 1, SEALS)),
        ("too large", memfd(size + 4096, SEALS)),
        ("no header", memfd(size, SEALS)),
        ("not writable", memfd(size, SEALS | SealFlags::FUTURE_WRITE)),
    ];
    for (why, fd) in bad {
        assert!(Map::open(fd, RING).is_err(), "{why}");
    }
    let other = Map::create(2 * RING).unwrap();
    assert!(Map::open(other.fd().try_clone_to_owned().unwrap(), RING).is_err(), "another size");
}
