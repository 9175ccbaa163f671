use std::os::fd::AsFd;

use linkspan_transport::Buf;
use rustix::fs::MemfdFlags;

use super::*;

fn memfd(len: usize) -> std::os::fd::OwnedFd {
    let fd = rustix::fs::memfd_create("pages", MemfdFlags::CLOEXEC).unwrap();
    rustix::fs::ftruncate(&fd, len as u64).unwrap();
    fd
}

fn mem(pages: &Pages) -> MemSlice {
    // SAFETY: each handle is used before its pages are dropped.
    unsafe { pages.slice() }
}

#[test]
fn shared_pages_show_on_both_sides_and_private_ones_do_not() {
    let fd = memfd(3 << 16);
    let (a, b) = (
        Pages::map(fd.as_fd(), 1 << 16, 2 << 16, true).unwrap(),
        Pages::map(fd.as_fd(), 1 << 16, 2 << 16, true).unwrap(),
    );
    assert!(mem(&a).fill(5, b"hello"));
    assert_eq!(&mem(&b).to_vec()[..10], b"\0\0\0\0\0hello");
    let private = Pages::map(fd.as_fd(), 1 << 16, 1 << 16, false).unwrap();
    assert_eq!(&mem(&private).to_vec()[5..10], b"hello");
    assert!(mem(&private).fill(5, b"other"));
    assert_eq!(&mem(&a).to_vec()[5..10], b"hello");
}

#[test]
fn dropped_pages_are_unmapped() {
    let fd = memfd(1 << 16);
    let pages = Pages::map(fd.as_fd(), 0, 1 << 16, true).unwrap();
    assert!(mem(&pages).fill(0, b"x"));
    // Another thread's mapping may take the place at once, but of another file.
    let inode = format!(" {} ", rustix::fs::fstat(&fd).unwrap().st_ino);
    let name = format!("{:x}-", pages.base.as_ptr() as usize);
    let mapped = || {
        std::fs::read_to_string("/proc/self/maps").unwrap().lines().any(|l| l.starts_with(&name) && l.contains(&inode))
    };
    assert!(mapped());
    drop(pages);
    assert!(!mapped());
    assert_eq!(mem(&Pages::map(fd.as_fd(), 0, 1, true).unwrap()).to_vec(), b"x");
}

#[test]
fn pages_promise_to_tell_that_they_go_and_do() {
    let fd = memfd(1 << 16);
    let pages = Pages::map(fd.as_fd(), 0, 1 << 16, true).unwrap();
    let (range, mut seen, mut told) = (pages.range(), 0, false);
    assert!(gone::is_promised(range));
    gone::since(&mut seen, |_| {});
    let before = gone::settled();
    drop(pages);
    assert_ne!(gone::epoch(), before);
    gone::since(&mut seen, |gone| told |= gone == range);
    assert!(told);
}

#[test]
fn ranges_outside_the_file_are_refused() {
    let fd = memfd(1 << 16);
    for (offset, len) in [(0, 0), (0, (1 << 16) + 1), (1 << 16, 1), (u64::MAX, 2)] {
        let error = Pages::map(fd.as_fd(), offset, len, true).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{offset} {len}: {error}");
    }
    assert!(Pages::map(fd.as_fd(), 7, 100, true).is_err(), "an offset inside a page");
    let (pipe, _) = rustix::pipe::pipe().unwrap();
    assert!(Pages::map(pipe.as_fd(), 0, 4096, true).is_err(), "a pipe");
}
