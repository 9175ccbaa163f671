//! The behaviours of memory and views that users of RdmaMemory know, under their names.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use linkspan_transport::StaticBuf;

use super::*;

#[test]
fn basic_construction() {
    let memory = Memory::host(1000);
    assert_eq!((memory.len(), memory.is_empty(), memory.kind()), (1000, false, MemoryKind::Host));
    assert!(memory.is_writable() && !memory.as_ptr().is_null());
    assert!(memory.to_vec().iter().all(|&b| b == 0));
    let base = memory.as_ptr();
    assert!(memory.contains(base, 1000) && memory.contains(base, 0));
    assert!(memory.contains(base.wrapping_add(1000), 0), "no bytes at the very end");
    assert!(!memory.contains(base.wrapping_add(1000), 1));
    assert!(!memory.contains(base.wrapping_sub(1), 1) && !memory.contains(base, 1001));
    assert!(!memory.contains(base.wrapping_add(8), usize::MAX));
}

#[test]
fn bytes_are_lent_while_nobody_else_holds_them() {
    let mut memory = Memory::copy_of(b"some bytes");
    memory.get_mut().unwrap()[..4].copy_from_slice(b"more");
    assert_eq!(memory.to_vec(), b"more bytes");
    let view = memory.slice(0, 4).unwrap().shared();
    assert!(memory.get_mut().is_none(), "a view may be read from meanwhile");
    drop(view);
    let other = memory.clone();
    assert!(memory.get_mut().is_none());
    drop(other);
    assert!(memory.get_mut().is_some());
    assert!(Memory::host(0).get_mut().unwrap().is_empty());
}

#[test]
fn view_creation() {
    let memory = Memory::copy_of(b"some bytes");
    assert_eq!(memory.view().len(), 10);
    assert_eq!(memory.view().as_ptr(), memory.as_ptr());
    assert_eq!(memory.view_mut().unwrap().len(), 10);
    assert_eq!(memory.view().to_vec(), b"some bytes");
}

#[test]
fn view_creation_with_offset_length() {
    let memory = Memory::copy_of(b"some bytes");
    let view = memory.slice(5, 5).unwrap();
    assert_eq!(view.to_vec(), b"bytes");
    assert_eq!(view.as_ptr() as usize - memory.as_ptr() as usize, 5);
    assert_eq!(view.slice(1, 3).unwrap().to_vec(), b"yte");
    assert_eq!(memory.slice_mut(2, 3).unwrap().slice(1, 1).unwrap().view().to_vec(), b"e");
}

#[test]
fn view_creation_with_buffer_pointer() {
    let memory = Memory::copy_of(b"some bytes");
    let at = memory.as_ptr().wrapping_add(5);
    assert_eq!(memory.slice_at(at, 5).unwrap().to_vec(), b"bytes");
    assert_eq!(memory.slice_mut_at(at, 4).unwrap().len(), 4);
}

#[test]
fn view_bounds_checking() {
    let memory = Memory::host(100);
    for (offset, len) in [(0, 101), (100, 1), (101, 0), (50, 51), (usize::MAX, 1), (1, usize::MAX)] {
        assert!(matches!(memory.slice(offset, len), Err(Error::Bounds { .. })), "{offset} {len}");
        assert!(matches!(memory.slice_mut(offset, len), Err(Error::Bounds { .. })), "{offset} {len}");
    }
    let outside = memory.as_ptr().wrapping_add(90);
    let error = memory.slice_at(outside, 11).unwrap_err();
    assert!(matches!(error, Error::NotInside { len: 11, have: 100, .. }), "{error}");
    assert!(matches!(memory.slice_mut_at(memory.as_ptr().wrapping_sub(1), 1), Err(Error::NotInside { .. })));
    let view = memory.slice(10, 10).unwrap();
    assert!(matches!(view.slice(5, 6), Err(Error::Bounds { have: 10, .. })));
}

#[test]
fn view_edge_cases() {
    let memory = Memory::host(100);
    for offset in [0, 50, 100] {
        let view = memory.slice(offset, 0).unwrap();
        assert!(view.is_empty() && memory.slice_mut(offset, 0).unwrap().is_empty());
    }
    assert_eq!(memory.slice(99, 1).unwrap().len(), 1);
    let none = Memory::host(0);
    assert!(none.is_empty() && none.view().is_empty() && none.slice(0, 0).unwrap().is_empty());
    assert!(none.slice(0, 1).is_err());
}

#[test]
fn multiple_views() {
    let memory = Memory::copy_of(b"0123456789");
    let (all, a, b) = (memory.view(), memory.slice(0, 6).unwrap(), memory.slice(4, 6).unwrap());
    memory.fill(4, b"xy").unwrap();
    assert_eq!((a.to_vec(), b.to_vec()), (b"0123xy".to_vec(), b"xy6789".to_vec()));
    assert_eq!(all.clone().to_vec(), memory.to_vec());
}

#[test]
fn bytes_go_in_and_out() {
    let memory = Memory::host(10);
    memory.fill(3, b"abc").unwrap();
    let mut out = [0; 4];
    memory.read(2, &mut out).unwrap();
    assert_eq!(&out, b"\0abc");
    assert!(matches!(memory.fill(8, b"abc"), Err(Error::Bounds { .. })));
    assert!(matches!(memory.read(8, &mut out), Err(Error::Bounds { .. })));
}

struct Owner<'a>(&'a AtomicBool, StaticBuf);

impl Drop for Owner<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

#[test]
fn lent_memory_lives_as_long_as_anything_holds_it() {
    static GONE: AtomicBool = AtomicBool::new(false);
    let owner = Owner(&GONE, StaticBuf::new(64));
    let memory = Memory::lend(owner.1.slice(), true, owner);
    assert_eq!(memory.kind(), MemoryKind::Lent);
    let (other, shared) = (memory.clone(), memory.view().shared());
    drop(memory);
    drop(other);
    assert!(!GONE.load(Ordering::SeqCst), "a shared view holds it");
    assert_eq!(shared.len(), 64);
    drop(shared);
    assert!(GONE.load(Ordering::SeqCst));
}

#[test]
fn read_only_memory_stays_so() {
    let buf = StaticBuf::new(8);
    let memory = Memory::lend(buf.slice(), false, buf);
    assert!(matches!(memory.view_mut(), Err(Error::ReadOnly)));
    assert!(matches!(memory.slice_mut_at(memory.as_ptr(), 1), Err(Error::ReadOnly)));
    assert!(matches!(memory.fill(0, b"x"), Err(Error::ReadOnly)));
    assert_eq!(memory.view().len(), 8);
}

#[test]
fn mapped_memory_is_the_descriptors() {
    use std::os::fd::AsFd;
    let fd = rustix::fs::memfd_create("memory", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
    rustix::fs::ftruncate(&fd, 1 << 17).unwrap();
    let (all, part) =
        (Memory::map(fd.as_fd(), 0, 1 << 17, true).unwrap(), Memory::map(fd.as_fd(), 1 << 16, 100, false).unwrap());
    assert_eq!((all.kind(), part.kind(), part.len()), (MemoryKind::Mapped, MemoryKind::Mapped, 100));
    all.fill(1 << 16, b"hello").unwrap();
    assert_eq!(&part.to_vec()[..5], b"hello");
    assert!(matches!(part.fill(0, b"x"), Err(Error::ReadOnly)));
    let outside = Memory::map(fd.as_fd(), 1 << 16, 1 << 17, true).unwrap_err();
    assert_eq!(outside.code(), "LS1117", "{outside}");
}

#[cfg(not(miri))]
#[test]
fn dropped_memory_goes_back_to_the_system() {
    // Bytes of memory that this process has: the second field of statm(5), in pages.
    let resident = || {
        let text = std::fs::read_to_string("/proc/self/statm").unwrap();
        text.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * rustix::param::page_size()
    };
    const EACH: usize = 64 << 20;
    let before = resident();
    for i in 0..8 {
        let memory = Memory::host(EACH + (i << 16));
        (0..EACH >> 20).for_each(|mib| memory.fill(mib << 20, &[1; 1 << 20]).unwrap());
        let view = memory.view().shared();
        drop(memory);
        assert_eq!(view.to_vec()[EACH - 1], 1, "a view holds it");
    }
    // Other tests of this program have less than two of the eight.
    let after = resident();
    assert!(after < before + 2 * EACH, "{} MiB before, {} MiB after", before >> 20, after >> 20);
}

#[test]
fn move_only_semantics() {
    // A handle may be moved and cloned; the bytes stay where they are, and are given back once, with the last of them.
    struct Owner(Arc<AtomicU32>);
    impl Drop for Owner {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }
    let (buf, dropped) = (StaticBuf::new(64), Arc::new(AtomicU32::new(0)));
    let memory = Memory::lend(buf.slice(), true, Owner(dropped.clone()));
    let (base, clone) = (memory.as_ptr(), memory.clone());
    let moved = std::thread::spawn(move || {
        memory.fill(0, b"moved").unwrap();
        memory
    });
    let moved = moved.join().unwrap();
    assert_eq!((moved.as_ptr(), clone.as_ptr()), (base, base));
    assert_eq!(&clone.to_vec()[..5], b"moved");
    drop(clone);
    assert_eq!(dropped.load(Ordering::SeqCst), 0);
    drop(moved);
    assert_eq!(dropped.load(Ordering::SeqCst), 1);
}
