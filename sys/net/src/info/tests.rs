use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsFd;

use super::*;

#[test]
fn a_connection_counts_its_bytes() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut a = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let mut b = listener.accept().unwrap().0;
    a.write_all(&[7; 1000]).unwrap();
    let mut buf = [0; 1000];
    b.read_exact(&mut buf).unwrap();
    // The acknowledgement of the last bytes may be delayed by up to 40 ms.
    for _ in 0..5000 {
        if tcp_info(a.as_fd()).unwrap().bytes_acked >= 1000 {
            break;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    let (ours, theirs) = (tcp_info(a.as_fd()).unwrap(), tcp_info(b.as_fd()).unwrap());
    // The kernel counts the SYN as one acknowledged byte.
    assert!((1000..=1001).contains(&ours.bytes_acked), "{ours:?}");
    assert_eq!(theirs.bytes_received, 1000);
    assert!(ours.mss > 500 && ours.window > 0 && ours.rtt < Duration::from_secs(1), "{ours:?}");
    assert_eq!((ours.unsent, ours.unacked, ours.bytes_received), (0, 0, 0));
}

#[test]
fn a_socket_that_is_not_tcp_is_an_error() {
    let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
    assert!(tcp_info(udp.as_fd()).is_err());
}

#[test]
fn a_connection_that_was_reset_is_closed_on_both_sides_and_one_that_ends_in_good_order_is_not() {
    for resets in [true, false] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let a = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let mut b = listener.accept().unwrap().0;
        assert!(!tcp_info(a.as_fd()).unwrap().closed && !tcp_info(b.as_fd()).unwrap().closed);
        match resets {
            true => crate::disconnect(a.as_fd()).unwrap(),
            false => a.shutdown(std::net::Shutdown::Write).unwrap(),
        }
        // Waits for it.
        assert_eq!(b.read(&mut [0]).is_err(), resets);
        assert_eq!([&a, &b].map(|end| tcp_info(end.as_fd()).unwrap().closed), [resets; 2]);
    }
}
