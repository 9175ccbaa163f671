//! Which memory of this process went back to the system: code that has registered some with a device forgets that, for the device goes
//! on using the pages that it knows, whatever is mapped at their addresses next.
//!
//! [`Pages`](crate::Pages) say so themselves before they go, and so do owners who have promised it ([`promise`]). Of other memory whoever hears of it tells ([`hear`]).

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// Ranges remembered: a reader that is further behind is told that all may be gone.
const KEPT: usize = 1024;

/// A range of addresses: from, to.
pub type Range = (u64, u64);

/// Said to a reader that has missed some.
pub const ALL: Range = (0, u64::MAX);

struct Log {
    ranges: [Range; KEPT],
    /// Ranges told so far.
    count: u64,
}

static LOG: Mutex<Log> = Mutex::new(Log { ranges: [(0, 0); KEPT], count: 0 });

/// Two for each range that was told, and odd while somebody hears of more.
static EPOCH: AtomicU64 = AtomicU64::new(0);

/// Under the lock nothing is allocated or freed: whoever frees memory may wait for a thread that tells.
fn push(range: Range) {
    let mut log = LOG.lock().unwrap_or_else(PoisonError::into_inner);
    let at = (log.count % KEPT as u64) as usize;
    log.ranges[at] = range;
    log.count += 1;
}

/// Ranges of which their owners have promised to tell.
static PROMISED: Mutex<Vec<Range>> = Mutex::new(Vec::new());

/// For memory that the kernel does not watch, as a file's: its owner will [`tell`] of exactly this range before it goes.
pub fn promise(range: Range) {
    PROMISED.lock().unwrap_or_else(PoisonError::into_inner).push(range);
}

/// Whether the owner of all of this range has promised to tell.
pub fn is_promised((from, to): Range) -> bool {
    PROMISED.lock().unwrap_or_else(PoisonError::into_inner).iter().any(|known| known.0 <= from && to <= known.1)
}

/// To be called before these addresses can be mapped anew, from any thread.
pub fn tell(range: Range) {
    PROMISED.lock().unwrap_or_else(PoisonError::into_inner).retain(|known| *known != range);
    push(range);
    EPOCH.fetch_add(2, Ordering::AcqRel);
}

/// Tells each range that `next` returns until it returns `None`. For one thread at a time.
///
/// [`epoch`] is odd meanwhile: where taking a range from `next` lets the thread return that gave the memory back, a reader that
/// finds the number it knew, and even, has missed nothing that was given back by calls that have returned.
pub fn hear(mut next: impl FnMut() -> Option<Range>) {
    EPOCH.fetch_add(1, Ordering::AcqRel);
    while let Some(range) = next() {
        push(range);
    }
    EPOCH.fetch_add(1, Ordering::AcqRel);
}

/// Another number when something has gone since; odd while somebody hears of more. A load.
#[inline]
pub fn epoch() -> u64 {
    EPOCH.load(Ordering::Acquire)
}

/// Waits until nobody hears of more, and returns [`epoch`], which is even then. Any thread may call it.
pub fn settled() -> u64 {
    loop {
        match epoch() {
            epoch if epoch.is_multiple_of(2) => return epoch,
            _ => std::thread::yield_now(),
        }
    }
}

/// Calls `f` with each range that has gone since `seen`, which is moved on; with [`ALL`] where more have gone than are remembered.
/// From 0: everything so far.
pub fn since(seen: &mut u64, mut f: impl FnMut(Range)) {
    loop {
        // Not under the lock: what `f` frees tells that it goes.
        let range = {
            let log = LOG.lock().unwrap_or_else(PoisonError::into_inner);
            if *seen >= log.count {
                return;
            }
            if log.count - *seen > KEPT as u64 {
                *seen = log.count;
                ALL
            } else {
                *seen += 1;
                log.ranges[((*seen - 1) % KEPT as u64) as usize]
            }
        };
        f(range);
    }
}

#[cfg(test)]
mod tests;
