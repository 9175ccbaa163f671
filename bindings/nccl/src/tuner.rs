//! Keeps LL128 away from the network.
//!
//! LL128 trusts that the last 8 bytes of a 128-byte line never become visible before the rest. Bytes from a socket are
//! copied by the kernel, which promises no order within a line, so NCCL must not choose LL128 between nodes. The
//! verdict depends on what all ranks know alike, so it is the same on each of them.

use std::ffi::CStr;

use linkspan_ncclnet::tuner::Tuner;

use crate::plugin::{Machine, Plugin};

impl<M: Machine> Tuner for Plugin<M> {
    const NAME: &'static CStr = c"linkspan";

    fn forbids_ll128(_ranks: usize, nodes: usize) -> bool {
        nodes > 1
    }
}
