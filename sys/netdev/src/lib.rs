//! Network cards as the kernel's generic netlink shows and sets them, and the system calls of device-memory TCP.
//!
//! The families `netdev` (queues, bindings of device memory) and `ethtool` (rings, header split, channels), spoken over a
//! socket of our own: a few commands of them are all that is needed. Numbers from include/uapi/linux of Linux 6.18:
//! genetlink.h, netlink.h, netdev.h, ethtool_netlink_generated.h; asm-generic/socket.h; Documentation/networking/devmem.rst.

mod ethtool;
mod message;
mod netdev;
mod pools;
mod receive;
mod send;
mod socket;
mod steer;

pub use ethtool::{Channels, HeaderSplit, Rings, channels, rings, split_headers};
pub use message::BadMessage;
pub use netdev::{Binding, Queue, QueueKind, bind_receive, bind_send, may_bind_receive, may_bind_send, queues};
pub use pools::{PagePool, PoolCounts, page_pools, starved};
pub use receive::{CONTROL_LEN, Received, foreign_interface, give_back, receive};
pub use send::send_bound;
pub use socket::{Error, Socket};
pub use steer::{
    Rule, begin_rule, end_rule, set_spread, spread, steerable, take_rules, takes_large_segments, takes_rules,
};
