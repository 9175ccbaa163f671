use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::time::Instant;

use super::*;

#[test]
fn wakes_for_what_was_asked_and_keeps_the_time_limit() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut a = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let b = listener.accept().unwrap().0;
    let mut set = WaitSet::new();
    let read = set.add(WaitFd { fd: b.as_raw_fd(), read: true, write: false });
    let start = Instant::now();
    assert_eq!(set.wait(Some(Duration::from_millis(20))).unwrap(), 0);
    assert!(start.elapsed() >= Duration::from_millis(20));
    a.write_all(b"x").unwrap();
    assert_eq!(set.wait(None).unwrap(), 1);
    assert!(set.woke(read) && !set.woke(read + 1));
    set.clear();
    set.add(WaitFd { fd: b.as_raw_fd(), read: false, write: true });
    assert_eq!(set.wait(Some(Duration::ZERO)).unwrap(), 1);
}

#[test]
fn nothing_to_wait_for_is_a_sleep() {
    assert_eq!(WaitSet::new().wait(Some(Duration::from_millis(1))).unwrap(), 0);
}
