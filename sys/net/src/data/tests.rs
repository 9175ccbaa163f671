use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd;

use linkspan_transport::StaticBuf;

use super::*;
use crate::Gather;

fn pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let a = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (a, listener.accept().unwrap().0)
}

/// Bytes travel through the kernel's loopback in the sender's call; a short sleep covers a busy machine.
fn eventually<T>(mut f: impl FnMut() -> Option<T>) -> T {
    for _ in 0..5000 {
        if let Some(t) = f() {
            return t;
        }
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    panic!("nothing came within 5 s");
}

#[test]
fn an_empty_socket_an_answer_and_an_end() {
    let (mut a, b) = pair();
    let mut buf = [0; 16];
    assert_eq!(recv(b.as_fd(), &mut buf).unwrap(), None);
    a.write_all(b"hello").unwrap();
    assert_eq!(eventually(|| recv(b.as_fd(), &mut buf).unwrap()), 5);
    assert_eq!(&buf[..5], b"hello");
    drop(a);
    assert_eq!(eventually(|| recv(b.as_fd(), &mut buf).unwrap()), 0);
}

#[test]
fn sending_to_a_closed_peer_is_an_error_and_no_signal() {
    let (a, b) = pair();
    drop(b);
    let error = eventually(|| send(a.as_fd(), b"x").err());
    assert!(matches!(error.raw_os_error(), Some(libc::EPIPE | libc::ECONNRESET)), "{error}");
}

#[test]
fn a_full_socket_takes_no_more() {
    let (a, _b) = pair();
    let block = vec![0; 1 << 20];
    let mut total = 0;
    while let Some(n) = send(a.as_fd(), &block).unwrap() {
        total += n;
        assert!(total < 1 << 30, "a socket without reader took 1 GiB");
    }
    assert!(total > 0);
}

#[test]
fn two_ranges_fill_in_order() {
    let (mut a, b) = pair();
    let place = StaticBuf::new(10);
    let mut scratch = [0; 32];
    assert_eq!(recv_two(b.as_fd(), place.slice(), &mut scratch).unwrap(), None);
    a.write_all(b"0123456789abcdef").unwrap();
    let n = eventually(|| recv_two(b.as_fd(), place.slice(), &mut scratch).unwrap());
    assert_eq!(n, 16);
    assert_eq!(place.slice().to_vec(), b"0123456789");
    assert_eq!(&scratch[..6], b"abcdef");
}

#[test]
fn a_gather_sends_borrowed_and_mapped_ranges_in_order() {
    let (a, b) = pair();
    let mem = StaticBuf::new(4);
    assert!(mem.slice().fill(0, b"MEM!"));
    let mut gather = Gather::new();
    assert!(gather.is_empty());
    assert!(gather.push(b"head") && gather.push(b"") && gather.push_mem(mem.slice()) && gather.push(b"tail"));
    assert_eq!((gather.bytes(), gather.capacity()), (12, crate::GATHER_MAX - 3));
    assert_eq!(gather.send(a.as_fd()).unwrap(), Some(12));
    let mut buf = [0; 32];
    assert_eq!(eventually(|| recv(b.as_fd(), &mut buf).unwrap()), 12);
    assert_eq!(&buf[..12], b"headMEM!tail");
}

#[test]
fn a_full_gather_refuses() {
    let mut gather = Gather::new();
    for _ in 0..crate::GATHER_MAX {
        assert!(gather.push(b"x"));
    }
    assert!(!gather.push(b"x"));
    assert!(gather.push(b""), "nothing always fits");
    assert_eq!(gather.bytes(), crate::GATHER_MAX);
}

#[test]
fn a_row_fills_in_order_and_no_further() {
    let (mut a, b) = pair();
    let bytes: Vec<u8> = (0..200).collect();
    let places: Vec<StaticBuf> = [10, 20, 30].into_iter().map(StaticBuf::new).collect();
    let more: Vec<_> = places[1..].iter().map(StaticBuf::slice).collect();
    let mut then = [0; 40];
    assert_eq!(recv_row(b.as_fd(), places[0].slice(), &more, &mut then).unwrap(), None);
    a.write_all(&bytes).unwrap();
    let got = eventually(|| recv_row(b.as_fd(), places[0].slice(), &more, &mut then).unwrap());
    assert_eq!(got, 100);
    let all: Vec<u8> = places.iter().flat_map(|p| p.slice().to_vec()).chain(then).collect();
    assert_eq!(all, bytes[..100]);
    // More places than one call takes: those behind are left alone, and what would be theirs stays in the socket.
    let many = StaticBuf::new(100);
    let more: Vec<_> = (1..100).map(|at| many.slice().sub(at, 1).unwrap()).collect();
    assert_eq!(eventually(|| recv_row(b.as_fd(), many.slice().sub(0, 1).unwrap(), &more, &mut []).unwrap()), 63);
    assert_eq!(many.slice().to_vec()[..63], bytes[100..163]);
    assert!(many.slice().to_vec()[63..].iter().all(|&b| b == 0));
}
