//! Rails of both kinds of this process as the suite wants them.

use linkspan_shm::{Config, ShmRail, pair};
use linkspan_transport::conformance::{Side, Testbed, Want};

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
