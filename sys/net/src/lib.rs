//! The system calls of the TCP transport that no safe crate offers as the data path needs them.
//!
//! Set-up (open, bind, connect, most options) goes through `socket2` in the transport itself. Here are the calls that
//! move payload between a socket and [`linkspan_transport::MemSlice`], and the few options, lists and messages that
//! `socket2` lacks. Every function is safe to call with any argument; all may be called from any thread.
//!
//! Calls on the data path never block, never raise SIGPIPE, repeat themselves after EINTR, and answer `Ok(None)`
//! where the socket cannot serve them at the moment.

mod accept;
mod data;
mod errqueue;
mod gather;
mod group;
mod info;
mod interfaces;
mod limit;
mod notifier;
mod options;
mod ping;
mod wait;

pub use accept::{AcceptPause, is_shortage};
pub use data::{queued, recv, recv_mem, recv_row, recv_two, send, send_mem};
pub use errqueue::{Sent, enable_zerocopy, sent_notice};
pub use gather::{GATHER_MAX, Gather};
pub use group::WaitPair;
pub use info::{TcpInfo, tcp_info};
pub use interfaces::{Interface, interface_of, interfaces};
pub use limit::{LineLimit, Quota, Share};
pub use linkspan_thread::{Aside, aside_full, block_signals, drop_aside};
pub use notifier::Notifier;
pub use options::{bind_late_port, disconnect, peer_of};
pub use ping::{NEIGHBOURS_MAX, Ping, neighbours};
pub use wait::WaitSet;

use std::io;

/// The result of a system call that moves bytes: what it returned, or `None` for EAGAIN. EINTR asks for a repeat,
/// which the caller's loop does.
fn moved(n: isize) -> Result<Option<usize>, Repeat> {
    if let Ok(n) = usize::try_from(n) {
        return Ok(Some(n));
    }
    let error = io::Error::last_os_error();
    match error.raw_os_error() {
        Some(libc::EAGAIN) => Ok(None),
        Some(libc::EINTR) => Err(Repeat::Now),
        _ => Err(Repeat::Never(error)),
    }
}

/// Why [`moved`] has no answer.
enum Repeat {
    /// A signal came in between.
    Now,
    /// The call failed.
    Never(io::Error),
}

/// Repeats `call` until no signal interrupts it.
fn retry(mut call: impl FnMut() -> isize) -> io::Result<Option<usize>> {
    loop {
        match moved(call()) {
            Ok(n) => return Ok(n),
            Err(Repeat::Now) => {}
            Err(Repeat::Never(error)) => return Err(error),
        }
    }
}
