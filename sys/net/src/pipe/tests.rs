use std::io::Read;
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd;

use linkspan_transport::StaticBuf;

use super::*;

fn streams() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let a = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    a.set_nonblocking(true).unwrap();
    (a, listener.accept().unwrap().0)
}

#[test]
fn bytes_pass_in_order_from_any_address() {
    let (a, mut b) = streams();
    let buf = StaticBuf::new(3 << 20);
    let bytes: Vec<u8> = (0..3 << 20).map(|i: u32| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    assert!(buf.slice().fill(0, &bytes));
    let (from, until) = (77, bytes.len() as u64 - 1234);
    let want = bytes[from as usize..until as usize].to_vec();
    let reader = std::thread::spawn(move || {
        let mut got = Vec::new();
        b.read_to_end(&mut got).unwrap();
        got
    });
    let mut pipe = Pipe::new(1 << 20).unwrap();
    let mut at = from;
    while at < until {
        if pipe.held() == 0 {
            pipe.fill(buf.slice().sub(at, (until - at).min(1 << 20)).unwrap()).unwrap();
        }
        match pipe.drain(a.as_fd()).unwrap() {
            Some(n) => at += n as u64,
            None => std::thread::yield_now(),
        }
    }
    assert_eq!(pipe.held(), 0);
    drop(a);
    assert!(reader.join().unwrap() == want);
}

#[test]
fn a_peer_that_is_gone_is_an_error_and_no_signal() {
    // The test harness ignores SIGPIPE as every Rust program does: here a handler that would end the process is back in place.
    // SAFETY: the default action, restored below; no other test of this crate relies on SIGPIPE being ignored.
    let old = unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
    let (a, b) = streams();
    drop(b);
    let buf = StaticBuf::new(64 << 10);
    let error = loop {
        let mut pipe = Pipe::new(64 << 10).unwrap();
        pipe.fill(buf.slice()).unwrap();
        match pipe.drain(a.as_fd()) {
            Err(e) if e.raw_os_error() == Some(libc::ECONNRESET) => {}
            Err(e) => break e,
            Ok(_) => std::thread::yield_now(),
        }
    };
    // SAFETY: an all-zero set is a value of the type, and the kernel writes it.
    let pending = unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigpending(&raw mut set);
        libc::sigismember(&raw const set, libc::SIGPIPE)
    };
    // SAFETY: what signal(2) returned.
    unsafe { libc::signal(libc::SIGPIPE, old) };
    assert_eq!(error.raw_os_error(), Some(libc::EPIPE));
    assert_eq!(pending, 0, "none is left behind");
}

#[test]
fn memory_without_pages_is_refused_and_holds_nothing() {
    let mut pipe = Pipe::new(64 << 10).unwrap();
    // SAFETY: never read by this process; the kernel refuses an address with nothing behind it.
    let nowhere = unsafe { MemSlice::new(std::ptr::without_provenance_mut(4096), 4096) };
    assert_eq!(pipe.fill(nowhere).unwrap_err().raw_os_error(), Some(libc::EFAULT));
    assert_eq!(pipe.held(), 0);
}
