//! On the kernel at hand. One without userfaultfd says so, and nothing is shown.

use std::ptr::NonNull;

use linkspan_transport::{Buf, MemSlice};
use linkspan_uffd::Unmaps;

const LEN: usize = 1 << 20;

fn map(at: Option<NonNull<u8>>) -> NonNull<u8> {
    let (hint, fixed) = at.map_or((std::ptr::null_mut(), 0), |at| (at.as_ptr().cast(), libc::MAP_FIXED));
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | fixed;
    // SAFETY: new memory, or memory of this test's own that nothing uses any more.
    let at = unsafe { libc::mmap(hint, LEN, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0) };
    assert_ne!(at, libc::MAP_FAILED);
    NonNull::new(at.cast()).expect("mapped")
}

fn watched() -> Option<(&'static Unmaps, NonNull<u8>)> {
    let unmaps = match Unmaps::of_process() {
        Ok(unmaps) => unmaps,
        Err(why) => {
            println!("nothing shown here: {why}");
            return None;
        }
    };
    let at = map(None);
    // SAFETY: mapped until the test unmaps it, and used no more then.
    let mem = unsafe { MemSlice::new(at.as_ptr(), LEN) };
    assert!(mem.fill(0, &[7; LEN]));
    if let Err(why) = unmaps.watch(mem) {
        println!("nothing shown here: {why}");
        return None;
    }
    unmaps.watch(mem).expect("again is no error");
    Some((unmaps, at))
}

/// Whether a range that holds `at` has gone since `epoch`, as the very next look tells.
fn gone(unmaps: &Unmaps, epoch: u64, seen: &mut u64, at: NonNull<u8>) -> bool {
    assert_ne!(unmaps.epoch(), epoch, "the unmapping has returned and the number is the old one");
    unmaps.settled();
    let (at, mut found) = (at.as_ptr() as u64, false);
    unmaps.gone(seen, |(from, to)| found |= from <= at && at < to);
    found
}

#[test]
fn what_is_unmapped_moved_or_given_back_is_told_before_the_call_returns() {
    let Some((unmaps, at)) = watched() else { return };
    let mut seen = 0;
    unmaps.gone(&mut seen, |_| {});

    let epoch = unmaps.settled();
    // SAFETY: the test's own memory, used no more.
    assert_eq!(unsafe { libc::munmap(at.as_ptr().cast(), LEN) }, 0);
    assert!(gone(unmaps, epoch, &mut seen, at), "munmap");

    let Some((_, at)) = watched() else { return };
    let epoch = unmaps.settled();
    map(Some(at));
    assert!(gone(unmaps, epoch, &mut seen, at), "another mapping in its place");

    let Some((_, at)) = watched() else { return };
    let epoch = unmaps.settled();
    // SAFETY: as above; anonymous memory reads as zeros behind it.
    assert_eq!(unsafe { libc::madvise(at.as_ptr().cast(), LEN, libc::MADV_DONTNEED) }, 0);
    assert!(gone(unmaps, epoch, &mut seen, at), "madvise");

    let epoch = unmaps.settled();
    // SAFETY: as above.
    let to = unsafe { libc::mremap(at.as_ptr().cast(), LEN, 4 * LEN, libc::MREMAP_MAYMOVE) };
    assert_ne!(to, libc::MAP_FAILED);
    if to != at.as_ptr().cast() {
        assert!(gone(unmaps, epoch, &mut seen, at), "mremap");
    }

    // Memory that is not watched causes no event, and reads and writes of watched memory neither.
    let other = map(None);
    // SAFETY: as above.
    assert_eq!(unsafe { libc::munmap(other.as_ptr().cast(), LEN) }, 0);
    let Some((_, at)) = watched() else { return };
    unmaps.settled();
    unmaps.gone(&mut seen, |_| {});
    // SAFETY: mapped above.
    let mem = unsafe { MemSlice::new(at.as_ptr(), LEN) };
    assert!(mem.fill(100, &[9; 5000]) && mem.read(0, &mut [0; 100]));
    unmaps.settled();
    let (from, to) = (at.as_ptr() as u64, at.as_ptr() as u64 + LEN as u64);
    unmaps.gone(&mut seen, |gone| assert!(gone.1 <= from || gone.0 >= to, "{gone:x?} is still there"));
}

#[test]
fn many_threads_unmap_at_once_and_each_is_heard() {
    let threads: Vec<_> = (0..8)
        .map(|_| {
            std::thread::spawn(|| {
                let mut seen = 0;
                for _ in 0..100 {
                    let Some((unmaps, at)) = watched() else { return };
                    let epoch = unmaps.settled();
                    // SAFETY: the test's own memory, used no more.
                    assert_eq!(unsafe { libc::munmap(at.as_ptr().cast(), LEN) }, 0);
                    assert!(gone(unmaps, epoch, &mut seen, at));
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().expect("a thread");
    }
}
