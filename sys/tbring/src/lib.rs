//! The device `/dev/linkspan/N` of our kernel module `linkspan.ko`: one link to one host over a Thunderbolt or USB4 cable.
//!
//! [`Ring::open`] waits for the link and sets up the queues. Memory is registered once ([`Ring::register`]); a channel,
//! opened under the same number on both hosts ([`Ring::open_channel`]), carries messages in order: [`Ring::send`] and
//! [`Ring::receive`] put entries into the submission queue, [`Ring::doorbell`] hands over all that were put since the last,
//! [`Ring::pop`] takes completions. None of the last four allocates; only the doorbell is a system call.
//!
//! When the link goes down every call fails with [`Error::Gone`]: open the device again.
//!
//! [`Swap`] is the same for simple programs: two buffers for each direction that change hands.
//!
//! [`Stream`] is the other device of such a cable, `/dev/tbstreamN` of the kernel itself.

pub mod abi;
mod device;
mod error;
mod queue;
mod ring;
mod stream;
mod swap;
#[doc(hidden)]
pub mod udmabuf;

pub use device::{Info, Pair, PairState, RingState, info, pairs};
pub use error::{Error, Result};
pub use ring::{Access, Completion, Operation, Options, Registrar, Ring, RingMr};
pub use stream::{PIECES, Stream};
pub use swap::Swap;
