//! What the transport can do, what may be set, and why a faster path is not taken.

use linkspan_shmring::layout::{RING_MAX, RING_MIN};
use linkspan_transport::Caps;

/// Settings of a rail. The connecting side's ring size counts for both; direct copy is used where both allow it.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Bytes of the ring of each direction: a power of two from 64 KiB to 16 MiB. The default, 4 MiB, is what a stream of pages
    /// of 16 KiB goes through fastest: as many as a connection has in flight, and larger than a second-level cache of 1 MiB.
    /// Light traffic stays in the first 128 KiB, the rest takes memory once there was a stream.
    pub ring: usize,
    /// Whether both processes may copy each other's memory directly (process_vm_readv(2), process_vm_writev(2)).
    pub cma: bool,
    /// Smallest chunk that is copied directly, bytes.
    pub cma_from: usize,
    /// Bytes of the slices in which both sides copy a chunk directly; rounded to pages, and up where a chunk would
    /// have more than 64.
    pub slice: usize,
    /// Chunks of a few pages go in batches from the first on, however short they are; for tests.
    #[doc(hidden)]
    pub batches: bool,
    /// Called between the claim of a slice and its copy; for tests that stop a process exactly there.
    #[doc(hidden)]
    #[cfg(feature = "sim")]
    pub between: Option<fn()>,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            ring: 4 << 20,
            cma: true,
            cma_from: 48 << 10,
            slice: 128 << 10,
            batches: false,
            #[cfg(feature = "sim")]
            between: None,
        }
    }
}

impl Config {
    /// The same with a ring size that is allowed.
    pub(crate) fn checked(mut self) -> Config {
        self.ring = self.ring.clamp(RING_MIN, RING_MAX).next_power_of_two();
        self.slice = self.slice.clamp(PAGE, SLICE_MAX).next_multiple_of(PAGE);
        self
    }
}

/// Unit of slice sizes in a descriptor.
pub(crate) const PAGE: usize = 4096;

/// Largest slice, 1 MiB: its copy, under a millisecond, is the longest that a call or a closing rail can last.
pub(crate) const SLICE_MAX: usize = 1 << 20;

/// Chunk that is copied directly, 1 MiB: long enough that its descriptor does not count, short enough that the
/// receiver learns soon where the next one goes.
const DIRECT: usize = 1 << 20;

pub(crate) fn caps(cma: bool) -> Caps {
    Caps {
        one_sided: false,
        device_memory: false,
        // A small message may overtake a chunk that is being copied directly.
        ordered: !cma,
        // Direct: few descriptors. Ring: pieces small enough that both copies of one stay in cache.
        chunk: if cma { DIRECT } else { 128 << 10 },
        speed: 0,
        local: true,
        tells_end: true,
    }
}

/// Whether one side may read the other's memory, as it travels in the set-up: 0, one of these, or `ERRNO` + errno.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Verdict(pub(crate) u32);

impl Verdict {
    pub(crate) const OK: Verdict = Verdict(0);
    pub(crate) const OFF: Verdict = Verdict(1);
    pub(crate) const PID_NAMESPACE: Verdict = Verdict(2);
    pub(crate) const NONCE: Verdict = Verdict(3);
    pub(crate) const NO_PIDFD: Verdict = Verdict(4);
    const ERRNO: u32 = 1000;

    pub(crate) fn of(result: std::io::Result<()>) -> Verdict {
        match result {
            Ok(()) => Verdict::OK,
            Err(e) => match e.raw_os_error() {
                Some(n) => Verdict(Verdict::ERRNO + n as u32),
                None => Verdict::NONCE,
            },
        }
    }

    /// In words, for the path line.
    pub(crate) fn why(self, whose: &str) -> String {
        match self {
            Verdict::OK => "allowed".into(),
            Verdict::OFF => format!("switched off (LINKSPAN_CMA=0) by {whose}"),
            Verdict::PID_NAMESPACE => "the processes are in different pid namespaces".into(),
            Verdict::NO_PIDFD => {
                format!("{whose} could open no pidfd of the other (no free descriptors, or a filter forbids it)")
            }
            Verdict::NONCE => format!("{whose} found another process at the announced pid"),
            Verdict(n) => {
                let error = std::io::Error::from_raw_os_error(n.saturating_sub(Verdict::ERRNO) as i32);
                let hint = match rustix::io::Errno::from_io_error(&error) {
                    Some(rustix::io::Errno::PERM) => hint(),
                    Some(rustix::io::Errno::NOSYS) => "; the kernel lacks it or a seccomp filter forbids it".into(),
                    _ => String::new(),
                };
                format!("process_vm_readv by {whose}: {error}{hint}")
            }
        }
    }
}

/// What forbids it here, as far as the system tells.
fn hint() -> String {
    let scope = std::fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope").unwrap_or_default();
    match scope.trim() {
        "" | "0" => "; a seccomp filter, a missing capability or a process that is not dumpable forbids it".into(),
        n => format!("; kernel.yama.ptrace_scope is {n}, 0 allows it"),
    }
}
