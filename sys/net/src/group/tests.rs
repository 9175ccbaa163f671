#![allow(clippy::unwrap_used)]

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use super::*;
use crate::WaitSet;

fn streams() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let a = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (a, listener.accept().unwrap().0)
}

fn wakes(fd: WaitFd) -> bool {
    let mut set = WaitSet::new();
    set.add(fd);
    set.wait(Some(Duration::from_millis(20))).unwrap() == 1
}

#[test]
fn either_wakes_and_what_is_waited_for_may_change() {
    let ((mut a, ours), (mut b, other)) = (streams(), streams());
    let on = |stream: &TcpStream, write| Some(WaitFd { fd: stream.as_raw_fd(), read: true, write });
    let mut pair = WaitPair::new().unwrap();
    let fd = pair.arm([on(&ours, false), on(&other, false)]).unwrap();
    assert!(!wakes(fd));
    b.write_all(b"x").unwrap();
    assert!(wakes(fd));
    (&other).read_exact(&mut [0]).unwrap();
    assert!(!wakes(pair.arm([on(&ours, false), on(&other, false)]).unwrap()));
    a.write_all(b"x").unwrap();
    assert!(wakes(pair.arm([on(&ours, false), None]).unwrap()));
    (&ours).read_exact(&mut [0]).unwrap();
    // Only what is asked for counts.
    b.write_all(b"x").unwrap();
    assert!(!wakes(pair.arm([on(&ours, false), None]).unwrap()));
    assert!(wakes(pair.arm([on(&ours, true), None]).unwrap()));
    assert!(wakes(pair.arm([on(&other, false), on(&ours, false)]).is_ok().then_some(fd).unwrap()));
    assert!(pair.arm([Some(WaitFd { fd: -1, read: true, write: false }), None]).is_err());
}
