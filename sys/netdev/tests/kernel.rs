//! The encoding and every error path against the kernel of this machine, which has cards that cannot (lo) at least.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used)]

use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd;

use linkspan_gpu::devmem::{Run, fragments};
use linkspan_netdev::{
    CONTROL_LEN, Error, QueueKind, Socket, channels, foreign_interface, give_back, may_bind_receive, may_bind_send,
    page_pools, queues, receive, rings, starved,
};
use linkspan_transport::StaticBuf;

/// The loopback interface is number 1 in every network namespace.
const LO: u32 = 1;

/// None on kernels before 6.8, with a line that says so.
fn netdev<T>(asked: Result<T, Error>) -> Option<Result<T, Error>> {
    match asked {
        Err(error @ Error::NoFamily(_)) => {
            eprintln!("cannot be tested here: {error}");
            None
        }
        other => Some(other),
    }
}

#[test]
fn queues_of_interfaces() {
    let mut socket = Socket::open().unwrap();
    let Some(of_lo) = netdev(queues(&mut socket, LO)) else { return };
    let of_lo = of_lo.unwrap();
    assert!(of_lo.iter().all(|q| q.dmabuf.is_none() && q.id < 4096), "{of_lo:?}");
    if !of_lo.is_empty() {
        assert!(of_lo.iter().any(|q| q.kind == QueueKind::Receive), "{of_lo:?}");
    }
    let none = queues(&mut socket, 0x7fff_fff0).unwrap_err();
    assert_eq!(none.errno(), Some(19), "{none}");
    // The socket goes on after an error.
    assert_eq!(queues(&mut socket, LO).unwrap(), of_lo);
}

#[test]
fn loopback_binds_nothing_and_says_so() {
    let Some(answer) = netdev(may_bind_receive(LO)) else { return };
    let error = answer.unwrap_err();
    // EPERM without the capability, EOPNOTSUPP from the driver, EINVAL from kernels that look at the queue first.
    assert!(matches!(error.errno(), Some(1 | 95 | 22)), "{error}");
    assert!(error.to_string().starts_with("LS1333 the kernel refuses binding device memory for receiving"), "{error}");
    let error = may_bind_send(LO).unwrap_err();
    assert!(matches!(error.errno(), Some(1 | 95 | 22)), "{error}");
}

#[test]
fn rings_and_channels_of_loopback_are_not_there() {
    let mut socket = Socket::open().unwrap();
    for error in [rings(&mut socket, LO).err(), channels(&mut socket, LO).err()].into_iter().flatten() {
        assert!(matches!(error, Error::NoFamily(_)) || error.errno() == Some(95), "{error}");
    }
}

#[test]
fn a_plain_socket_gives_plain_data_and_takes_no_tokens() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut from = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (to, _) = listener.accept().unwrap();
    let (linear, mut control) = (StaticBuf::new(4096), vec![0; CONTROL_LEN / 8]);
    let linear = linear.slice();
    assert_eq!(receive(to.as_fd(), linear, &mut control).unwrap(), None);
    from.write_all(b"hello").unwrap();
    let got = loop {
        if let Some(got) = receive(to.as_fd(), linear, &mut control).unwrap() {
            break got;
        }
    };
    // What was not steered into device memory comes as ever, without a fragment.
    assert_eq!((got.bytes, got.control, &linear.to_vec()[..5]), (5, 0, &b"hello"[..]));
    assert_eq!(fragments(got.bytes, &[]).count(), 1, "the bytes of the call's own buffer");
    match give_back(to.as_fd(), &[Run { start: 0, count: 1 }]) {
        Ok(taken) => assert_eq!(taken, 0),
        // Kernels before 6.12 do not know the option.
        Err(error) => assert_eq!(error.raw_os_error(), Some(92), "{error}"),
    }
    assert!(!foreign_interface(to.as_fd()));
    drop(from);
    while receive(to.as_fd(), linear, &mut control).unwrap().is_none_or(|got| got.bytes > 0) {}
}

/// Of every interface: numbers that make sense, and none where a driver has no such pages.
#[test]
fn page_pools_of_this_machine() {
    let mut socket = Socket::open().unwrap();
    let Some(of_lo) = netdev(page_pools(&mut socket, LO)) else { return };
    assert!(of_lo.unwrap().iter().all(|pool| pool.dmabuf.is_none()));
    for interface in 1..32 {
        for pool in page_pools(&mut socket, interface).unwrap() {
            assert!(pool.id > 0 && pool.pages < 1 << 40 && pool.bytes < 1 << 52, "{pool:?}");
        }
        match starved(&mut socket, interface) {
            Ok(queues) => assert!(queues.iter().all(|(queue, _)| *queue < 4096), "{queues:?}"),
            // Kernels before 6.10 do not know the question, others no such interface.
            Err(error) => assert!(matches!(error.errno(), Some(19 | 22 | 95)), "{error}"),
        }
    }
}
