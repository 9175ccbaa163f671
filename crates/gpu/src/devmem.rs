//! Device-memory TCP as the kernel defines it, without I/O: from the control messages of recvmsg(2) to pieces for the
//! [`crate::unpack`], and the tokens that give the pages back.
//!
//! Sources of the numbers: Linux 6.12 and later, `Documentation/networking/devmem.rst`, `include/uapi/linux/uio.h`
//! (`dmabuf_cmsg`, `dmabuf_token`), `include/uapi/asm-generic/socket.h`.

mod assembly;
mod control;
mod tokens;

pub use assembly::{Assembly, Placed, Unplaced};
pub use control::{BadControl, Fragment, Fragments, fragments};
pub use tokens::{PER_CALL, RUNS, Run, Tokens};

#[cfg(test)]
mod tests;
