use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd;

use linkspan_transport::StaticBuf;

use super::*;
use crate::{Gather, recv};

#[test]
fn loopback_reports_each_call_once_and_that_it_copied() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let a = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let b = listener.accept().unwrap().0;
    enable_zerocopy(a.as_fd()).unwrap();
    assert_eq!(sent_notice(a.as_fd()).unwrap(), None);
    let mem = StaticBuf::new(16 << 10);
    for _ in 0..2 {
        let mut gather = Gather::new();
        assert!(gather.push_mem(mem.slice()));
        assert_eq!(gather.send_zerocopy(a.as_fd()).unwrap(), Some(16 << 10));
    }
    let mut buf = vec![0; 64 << 10];
    let mut got = 0;
    while got < 32 << 10 {
        got += recv(b.as_fd(), &mut buf).unwrap().unwrap_or(0);
    }
    let mut seen = Vec::new();
    for _ in 0..5000 {
        while let Some(sent) = sent_notice(a.as_fd()).unwrap() {
            assert!(sent.copied, "loopback always copies");
            seen.extend(sent.first..=sent.last);
        }
        if seen.len() == 2 {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    seen.sort_unstable();
    assert_eq!(seen, [0, 1]);
}
