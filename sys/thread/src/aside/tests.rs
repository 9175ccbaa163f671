//! With sockets whose last close waits until their peer reads.

#![allow(clippy::unwrap_used, reason = "helpers of tests are not tests to the lint")]

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;

use super::*;

/// A socket whose last close takes until the other one, which comes second, is read: an hour at most.
fn lingering() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut full = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let peer = listener.accept().unwrap().0;
    full.set_nonblocking(true).unwrap();
    while full.write(&[0; 65536]).is_ok() {}
    let linger = libc::linger { l_onoff: 1, l_linger: 3600 };
    let len = size_of::<libc::linger>() as libc::socklen_t;
    // SAFETY: the option's value is such a structure, alive during the call.
    let set = unsafe {
        libc::setsockopt(full.as_raw_fd(), libc::SOL_SOCKET, libc::SO_LINGER, (&raw const linger).cast(), len)
    };
    assert_eq!(set, 0);
    (full, peer)
}

/// They share the threads of users.
static ALONE: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

#[test]
fn what_takes_long_to_close_holds_up_its_user_alone() {
    let _alone = alone();
    let (full, mut peer) = lingering();
    let ((mut behind, first), (mut other, second)) = (UnixStream::pair().unwrap(), UnixStream::pair().unwrap());
    drop(Aside::new(1, full));
    drop_aside(1, first);
    drop_aside(2, second);
    assert_eq!(other.read(&mut [0]).unwrap(), 0, "another user's is closed");
    behind.set_nonblocking(true).unwrap();
    let waits = behind.read(&mut [0]).map_err(|error| error.kind());
    assert_eq!(waits, Err(ErrorKind::WouldBlock), "its own waits behind it");
    behind.set_nonblocking(false).unwrap();
    std::io::copy(&mut peer, &mut std::io::sink()).unwrap();
    assert_eq!(behind.read(&mut [0]).unwrap(), 0);
}

#[test]
fn users_without_a_thread_of_their_own_share_one() {
    let _alone = alone();
    let held: Vec<(TcpStream, TcpStream)> = (0..USERS).map(|_| lingering()).collect();
    let (held, peers): (Vec<TcpStream>, Vec<TcpStream>) = held.into_iter().unzip();
    held.into_iter().zip(1000..).for_each(|(full, user)| drop_aside(user, full));
    for user in [1, 2] {
        let (mut end, closed) = UnixStream::pair().unwrap();
        drop_aside(user, closed);
        assert_eq!(end.read(&mut [0]).unwrap(), 0);
    }
    assert!(waiting().len() <= USERS + 1);
    drop(peers);
}

#[test]
fn the_user_for_whom_too_many_wait_is_told() {
    let _alone = alone();
    let ((full, mut peer), (other, unread)) = (lingering(), lingering());
    let (mut end, last) = UnixStream::pair().unwrap();
    drop_aside(3, full);
    drop_aside(4, other);
    // What a thread has taken has no descriptor any more.
    while waiting().values().any(|queue| !queue.things.is_empty()) {
        std::thread::yield_now();
    }
    (1..WAIT_MAX).for_each(|n| drop_aside(3, n));
    assert_eq!(aside_full(), None);
    drop_aside(3, last);
    assert_eq!(aside_full(), Some(3));
    std::io::copy(&mut peer, &mut std::io::sink()).unwrap();
    assert_eq!(end.read(&mut [0]).unwrap(), 0);
    assert_eq!(aside_full(), None);
    drop(unread);
}
