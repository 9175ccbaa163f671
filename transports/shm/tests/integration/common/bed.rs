//! Rails inside of this process and to another one as the suite wants them.

use std::time::Instant;

use linkspan_shm::{Accepting, Config, Connecting, Identity, SETUP_TIME, ShmRail, identity, pair};
use linkspan_transport::conformance::{Joint, PeerPipe, Side, Testbed, Want};

/// The smallest ring, and every chunk copied directly.
pub(crate) fn tiny() -> Config {
    Config { ring: 64 << 10, cma_from: 1, slice: 4096, ..Config::default() }
}

/// To the other process.
pub(crate) struct Processes(pub(crate) Config);

impl Joint for Processes {
    type R = ShmRail;

    fn rail(&mut self, side: Side, link: &mut PeerPipe) -> ShmRail {
        let own = identity().expect("this process");
        link.send(&own.encode());
        let peer = Identity::decode(&link.recv()).expect("an identity");
        // Ample: a machine may be busy with other things.
        let deadline = Instant::now() + 20 * SETUP_TIME;
        let mut poll: Box<dyn FnMut() -> Option<ShmRail>> = if side == Side::A {
            let mut accepting = Accepting::new(self.0, &own, &peer, deadline).expect("a socket");
            link.send(b"listening");
            Box::new(move || accepting.poll(Instant::now()).expect("a rail"))
        } else {
            assert_eq!(link.recv(), b"listening");
            let mut connecting = Connecting::new(self.0, &own, &peer, deadline).expect("a connection");
            Box::new(move || connecting.poll(Instant::now()).expect("a rail"))
        };
        loop {
            if let Some(rail) = poll() {
                return rail;
            }
            std::thread::yield_now();
        }
    }
}

pub(crate) struct Shm(pub(crate) Config);

impl Testbed for Shm {
    type R = ShmRail;

    fn rail(&mut self, _: Want, _: usize) -> (ShmRail, ShmRail) {
        pair(self.0).expect("a rail")
    }

    fn rails(&self) -> usize {
        2
    }

    fn stall(&mut self, _: Side, _: usize) {
        panic!("nothing lies below a rail inside of one process");
    }

    fn release(&mut self) {}

    /// Nothing lies below a rail but its process, which ends in the tests of two processes. Here the memory stays and the
    /// rail is dropped.
    fn kill(&mut self, _: Side) {}
}
