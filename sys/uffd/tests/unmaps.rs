//! On the kernel at hand. One without userfaultfd says so, and nothing is shown.

use std::ptr::NonNull;

use linkspan_mem::gone;
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

fn watched() -> Option<NonNull<u8>> {
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
    Some(at)
}

/// Whether a range that holds `at` has gone since `epoch`, as the very next look tells.
fn has_gone(epoch: u64, seen: &mut u64, at: NonNull<u8>) -> bool {
    assert_ne!(gone::epoch(), epoch, "the unmapping has returned and the number is the old one");
    gone::settled();
    let (at, mut found) = (at.as_ptr() as u64, false);
    gone::since(seen, |(from, to)| found |= from <= at && at < to);
    found
}

#[test]
fn what_is_unmapped_moved_or_given_back_is_told_before_the_call_returns() {
    let Some(at) = watched() else { return };
    let mut seen = 0;
    gone::since(&mut seen, |_| {});

    let epoch = gone::settled();
    // SAFETY: the test's own memory, used no more.
    assert_eq!(unsafe { libc::munmap(at.as_ptr().cast(), LEN) }, 0);
    assert!(has_gone(epoch, &mut seen, at), "munmap");

    let Some(at) = watched() else { return };
    let epoch = gone::settled();
    map(Some(at));
    assert!(has_gone(epoch, &mut seen, at), "another mapping in its place");

    let Some(at) = watched() else { return };
    let epoch = gone::settled();
    // SAFETY: as above; anonymous memory reads as zeros behind it.
    assert_eq!(unsafe { libc::madvise(at.as_ptr().cast(), LEN, libc::MADV_DONTNEED) }, 0);
    assert!(has_gone(epoch, &mut seen, at), "madvise");

    let epoch = gone::settled();
    // SAFETY: as above.
    let to = unsafe { libc::mremap(at.as_ptr().cast(), LEN, 4 * LEN, libc::MREMAP_MAYMOVE) };
    assert_ne!(to, libc::MAP_FAILED);
    if to != at.as_ptr().cast() {
        assert!(has_gone(epoch, &mut seen, at), "mremap");
    }

    // Memory that is not watched causes no event, and reads and writes of watched memory neither.
    let other = map(None);
    // SAFETY: as above.
    assert_eq!(unsafe { libc::munmap(other.as_ptr().cast(), LEN) }, 0);
    let Some(at) = watched() else { return };
    gone::settled();
    gone::since(&mut seen, |_| {});
    // SAFETY: mapped above.
    let mem = unsafe { MemSlice::new(at.as_ptr(), LEN) };
    assert!(mem.fill(100, &[9; 5000]) && mem.read(0, &mut [0; 100]));
    gone::settled();
    let (from, to) = (at.as_ptr() as u64, at.as_ptr() as u64 + LEN as u64);
    gone::since(&mut seen, |range| assert!(range.1 <= from || range.0 >= to, "{range:x?} is still there"));
}

/// The pages of a file in memory can go while they are mapped, of which there is no event.
#[test]
fn shared_memory_is_not_watched_wherever_in_a_range_it_is_and_private_memory_that_was_never_touched_is() {
    let Ok(unmaps) = Unmaps::of_process() else { return };
    if watched().is_none() {
        return;
    }
    for shared in [&[] as &[usize], &[0], &[1], &[0, 1]] {
        let at = map(None).as_ptr();
        for half in shared {
            let flags = libc::MAP_SHARED | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
            // SAFETY: half of the test's own memory, used by nothing.
            let part = unsafe { at.add(half * LEN / 2) };
            // SAFETY: as above.
            let got = unsafe { libc::mmap(part.cast(), LEN / 2, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0) };
            assert_eq!(got, part.cast());
        }
        // SAFETY: mapped for as long as the process lives.
        let watched = unmaps.watch(unsafe { MemSlice::new(at, LEN) });
        let refused = watched.err().and_then(|why| why.raw_os_error());
        assert_eq!(refused, (!shared.is_empty()).then_some(libc::EINVAL), "{shared:?}");
    }
}

#[test]
fn many_threads_unmap_at_once_and_each_is_heard() {
    let threads: Vec<_> = (0..8)
        .map(|_| {
            std::thread::spawn(|| {
                let mut seen = 0;
                for _ in 0..100 {
                    let Some(at) = watched() else { return };
                    let epoch = gone::settled();
                    // SAFETY: the test's own memory, used no more.
                    assert_eq!(unsafe { libc::munmap(at.as_ptr().cast(), LEN) }, 0);
                    assert!(has_gone(epoch, &mut seen, at));
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().expect("a thread");
    }
}
