//! Time that a thread spends on a processor.

use rustix::time::{ClockId, clock_gettime};

/// Processor time of the calling thread, nanoseconds (CLOCK_THREAD_CPUTIME_ID of clock_gettime(2)). A process may run several tests at
/// once, so that its own clock would say more than one's; helper threads of network cards, which tests may share, are in none.
pub fn thread_cpu_ns() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    (time.tv_sec as u64).saturating_mul(1_000_000_000).saturating_add(time.tv_nsec as u64)
}
