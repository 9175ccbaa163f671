use super::*;
use crate::{HostBuf, StaticBuf};

#[test]
fn ranges_stay_inside_of_their_memory() {
    let buf = StaticBuf::new(100);
    let all = buf.slice();
    assert!(all.is_host() && Buf::len(&all) == 100 && buf.len() == 100 && !buf.is_empty());
    assert!(all.fill(97, b"abc") && !all.fill(98, b"abc") && !all.fill(u64::MAX, b"abc"));
    let mut out = [0; 3];
    assert!(all.read(97, &mut out) && out == *b"abc");
    assert!(!all.read(98, &mut out) && out == *b"abc");
    assert!(all.sub(100, 0).is_some() && all.sub(101, 0).is_none() && all.sub(1, u64::MAX).is_none());
    let part = all.sub(96, 4).unwrap();
    assert_eq!(part.to_vec(), b"\0abc");
    assert!(part.sub(1, 3).unwrap().fill(0, b"xyz") && !part.fill(2, b"xyz"));
    assert_eq!(all.sub(96, 4).unwrap().to_vec(), b"\0xyz");
    assert_eq!(MemSlice::NONE.to_vec(), b"");
}

#[test]
fn what_does_not_fit_in_order_is_not_written() {
    let buf = StaticBuf::new(16);
    let (all, bytes) = (buf.slice(), StaticBuf::new(8));
    assert!(!all.fill_ascending(9, &[1; 8]) && !all.fill_ascending(u64::MAX, &[1; 8]));
    assert!(!bytes.slice().copy_to_host(all));
    assert_eq!(all.to_vec(), [0; 16]);
    assert!(all.fill_ascending(16, &[]) && all.fill_ascending(8, &[1; 8]));
    assert_eq!(all.to_vec(), [[0; 8], [1; 8]].concat());
}

/// Bytes of memory that this process has: the second field of statm(5), in pages.
#[cfg(not(miri))]
fn resident() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap();
    // SAFETY: asks for a number.
    text.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as u64
}

#[cfg(not(miri))]
#[test]
fn dropped_buffers_go_back_to_the_system() {
    const EACH: usize = 64 << 20;
    let before = resident();
    for i in 0..8 {
        let buf = HostBuf::new(EACH + (i << 16));
        assert!((0..EACH >> 20).all(|mib| buf.fill(mib as u64 * (1 << 20), &[1; 1 << 20])));
        // What other tests give back meanwhile is less than half of one.
        assert!(resident() >= before + EACH as u64 / 2);
        drop(buf);
    }
    // Other tests of this program have less than one of the eight.
    let after = resident();
    assert!(after < before + EACH as u64, "{} MiB before, {} MiB after", before >> 20, after >> 20);
}

#[test]
fn memory_of_a_static_buffer_serves_again_as_new() {
    // A size that no other test has.
    const LEN: usize = (3 << 16) - 7;
    let first = StaticBuf::new(LEN);
    let at = first.slice().as_ptr();
    let ends = [0, LEN as u64 - 64];
    assert!(ends.iter().all(|&at| first.slice().fill(at, &[0xEE; 64])));
    let other = StaticBuf::new(LEN);
    assert_ne!(other.slice().as_ptr(), at);
    let stale = first.slice();
    drop(first);
    let again = StaticBuf::new(LEN);
    assert_eq!(again.slice().as_ptr(), at);
    assert!(ends.iter().all(|&at| again.slice().sub(at, 64).unwrap().to_vec() == [0; 64]));
    // A handle that lived too long reaches memory that is mapped still.
    assert!(stale.fill(5, b"late"));
    assert_eq!(again.slice().sub(5, 4).unwrap().to_vec(), b"late");
}

#[test]
fn several_threads_copy_in_and_out_of_their_parts() {
    let buf = StaticBuf::new(64);
    std::thread::scope(|s| {
        for n in 0..4u8 {
            let part = buf.slice().sub(u64::from(n) * 16, 16).unwrap();
            s.spawn(move || {
                for round in 0..8 {
                    assert!(part.fill(0, &[n * 8 + round; 16]));
                    assert_eq!(part.to_vec(), [n * 8 + round; 16]);
                }
            });
        }
    });
    let ends: Vec<u8> = (0..4).map(|n| buf.slice().to_vec()[n * 16]).collect();
    assert_eq!(ends, [7, 15, 23, 31]);
}

#[test]
fn memory_of_a_device_that_is_gone_is_not_touched() {
    struct Dead;
    // SAFETY: touches nothing.
    unsafe impl domain::DeviceMemory for Dead {
        fn write(&self, _: MemSlice, _: &[u8]) -> bool {
            true
        }
        fn read(&self, _: MemSlice, _: &mut [u8]) -> bool {
            true
        }
    }
    let device: std::sync::Arc<dyn domain::DeviceMemory> = std::sync::Arc::new(Dead);
    let place = domain::register_device(std::sync::Arc::downgrade(&device)).unwrap();
    // As `on_device` makes it.
    let mem = MemSlice::at(std::ptr::without_provenance_mut(0x1000), 8, place);
    assert!(!mem.is_host() && mem.place() == place);
    assert!(mem.fill(0, b"abc") && !mem.fill(6, b"abc"));
    drop(device);
    assert!(!mem.fill(0, b"abc") && !mem.read(0, &mut [0; 3]));
}
