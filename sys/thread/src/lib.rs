//! Threads that a library starts in the program of others.

mod aside;

pub use aside::{Aside, aside_full, drop_aside};

/// Blocks every signal that can be blocked in the calling thread, so that the process's handlers run on threads of its
/// own (pthread_sigmask(3)).
pub fn block_signals() {
    // SAFETY: an all-zero set is a value of the type, which sigfillset overwrites.
    let mut all: libc::sigset_t = unsafe { std::mem::zeroed() };
    // SAFETY: the set is ours and lives during both calls; no old mask is asked for. They fail on bad arguments only.
    unsafe {
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_BLOCK, &raw const all, std::ptr::null_mut());
    }
}
