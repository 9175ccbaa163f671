//! Each range that is watched apart splits a mapping of the process, which may have so many only. A program of its own: others would be refused.

use linkspan_transport::MemSlice;
use linkspan_uffd::Unmaps;

#[test]
fn ranges_that_lie_apart_leave_the_process_mappings_to_go_on_with_and_are_watched_again_once_they_are_gone() {
    let most = std::fs::read_to_string("/proc/sys/vm/max_map_count").ok().and_then(|n| n.trim().parse::<usize>().ok());
    let (Ok(unmaps), Some(most)) = (Unmaps::of_process(), most.filter(|most| *most <= 1 << 20)) else {
        println!("nothing shown here: no userfaultfd, or more mappings than a test should make");
        return;
    };
    let page = linkspan_mem::page_size();
    let (len, flags) = (2 * most * page, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE);
    let map = || {
        // SAFETY: new memory.
        let at = unsafe { libc::mmap(std::ptr::null_mut(), len, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0) };
        assert_ne!(at, libc::MAP_FAILED, "no mapping is left");
        at.cast::<u8>()
    };
    // SAFETY: inside of what was mapped, and watched before it is unmapped.
    let watch = |at: *mut u8, n: usize| unmaps.watch(unsafe { MemSlice::new(at.add(2 * n * page), page) });
    let refused = |at, from| (from..most).find_map(|n| watch(at, n).err());
    let (one, other) = (map(), map());
    let why = refused(one, 0).expect("all mappings of the process are used up");
    assert_eq!(why.raw_os_error(), Some(libc::ENOMEM), "{why}");
    std::thread::spawn(|| ()).join().expect("a thread can be had");
    // SAFETY: the test's own memory, used no more.
    assert_eq!(unsafe { libc::munmap(one.cast(), len) }, 0);
    assert!((0..most).any(|n| watch(other, n).is_ok()), "never again");
}
