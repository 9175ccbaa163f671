//! Both ends in two processes, plain and encrypted.

use crate::common::ciphers::{client, server, session};
use crate::common::{PATIENCE, V4, until, zero_copy};
use linkspan_proto::login::{Login, Opener, Sealer};
use linkspan_stream::{Dial, Listen, Options, Stream};
use linkspan_tcp::{RailConfig, SealedRail, TcpRail, ZeroCopyPolicy};
use linkspan_transport::conformance::{Joint, PeerPipe, Side};

/// This side's end of a stream between the processes.
fn stream(side: Side, link: &mut PeerPipe) -> Stream {
    let options = Options::default();
    if side == Side::A {
        let listener = String::from_utf8(link.recv()).unwrap().parse().unwrap();
        let mut dial = Dial::start(None, listener, &options, PATIENCE).unwrap();
        until("connect", || dial.poll().unwrap())
    } else {
        let mut listen = Listen::bind(V4.parse().unwrap(), &options).unwrap();
        link.send(listen.local_addr().to_string().as_bytes());
        until("accept", || listen.accept().unwrap()).0
    }
}

/// The ciphers of this end of a stream, by a login with another process.
fn login(mut login: Login, link: &mut PeerPipe) -> (Sealer, Opener) {
    loop {
        let out = login.output().to_vec();
        if !out.is_empty() {
            link.send(&out);
            login.sent(out.len());
        }
        if let Some(session) = session(&mut login) {
            return session.ciphers.expect("an encrypted session");
        }
        // What the last step has made goes first.
        if login.output().is_empty() {
            login.feed(&link.recv());
        }
    }
}

struct Plain;

impl Joint for Plain {
    type R = TcpRail;

    fn rail(&mut self, side: Side, link: &mut PeerPipe) -> TcpRail {
        zero_copy(stream(side, link), ZeroCopyPolicy::Never)
    }
}

struct Sealed;

impl Joint for Sealed {
    type R = SealedRail;

    fn rail(&mut self, side: Side, link: &mut PeerPipe) -> SealedRail {
        let ciphers = login(if side == Side::A { client() } else { server() }, link);
        SealedRail::new(stream(side, link), RailConfig::default(), ciphers)
    }
}

linkspan_transport::processes_suite!(tcp, Plain);
linkspan_transport::processes_suite!(encrypted, Sealed);
