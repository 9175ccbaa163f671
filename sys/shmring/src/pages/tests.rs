use std::os::fd::AsFd;

use linkspan_transport::Buf;
use rustix::fs::MemfdFlags;

use super::*;

fn memfd(len: usize) -> std::os::fd::OwnedFd {
    let fd = rustix::fs::memfd_create("pages", MemfdFlags::CLOEXEC).unwrap();
    rustix::fs::ftruncate(&fd, len as u64).unwrap();
    fd
}

#[test]
fn shared_pages_show_on_both_sides_and_private_ones_do_not() {
    let fd = memfd(3 << 16);
    let (a, b) = (
        Pages::map(fd.as_fd(), 1 << 16, 2 << 16, true).unwrap(),
        Pages::map(fd.as_fd(), 1 << 16, 2 << 16, true).unwrap(),
    );
    assert!(a.slice().fill(5, b"hello"));
    assert_eq!(&b.slice().to_vec()[..10], b"\0\0\0\0\0hello");
    let private = Pages::map(fd.as_fd(), 1 << 16, 1 << 16, false).unwrap();
    assert_eq!(&private.slice().to_vec()[5..10], b"hello");
    assert!(private.slice().fill(5, b"other"));
    assert_eq!(&a.slice().to_vec()[5..10], b"hello");
}

#[test]
fn a_handle_outlives_its_pages() {
    let fd = memfd(1 << 16);
    let pages = Pages::map(fd.as_fd(), 0, 1 << 16, true).unwrap();
    let handle = pages.slice();
    assert!(handle.fill(0, b"x"));
    drop(pages);
    assert_eq!(handle.to_vec()[0], 0, "empty memory in its place");
    assert!(handle.fill(0, b"y"));
    assert_eq!(Pages::map(fd.as_fd(), 0, 1, true).unwrap().slice().to_vec(), b"x");
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
