//! How tasks wait: in the kernel, or in their own memory.

use std::path::Path;
use std::time::{Duration, Instant};

use linkspan_tbring::{Completion, Options, Ring};

use super::{LONG, expect, text};

/// How a task waits.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum How {
    /// In the kernel, until an interrupt.
    Sleep,
    /// In the kernel, spinning on the rings.
    Poll,
    /// In its own memory, where a thread of the kernel puts completions; that one sleeps after so long.
    Thread(Duration),
}

impl How {
    pub(super) fn of(words: &[&str]) -> How {
        if words.contains(&"poll") {
            How::Poll
        } else if words.contains(&"thread") {
            How::Thread(Duration::from_secs(1))
        } else if words.contains(&"nap") {
            How::Thread(Duration::from_micros(100))
        } else {
            How::Sleep
        }
    }

    pub(super) fn open(self, device: &str) -> Result<Ring, String> {
        let thread = if let How::Thread(idle) = self { Some(idle) } else { None };
        let options = Options { wait: Duration::from_secs(30), thread, ..Options::default() };
        Ring::open(Path::new(device), options).map_err(text)
    }
}

/// The next completion, which must be a success.
pub(super) fn next(ring: &mut Ring, how: How) -> Result<Completion, String> {
    let done = any(ring, how, LONG)?.ok_or("nothing happens")?;
    expect(done.result.is_ok(), || format!("{done:?}"))?;
    Ok(done)
}

/// Looks between two of which the clock is looked at, a system call in guests.
const LOOKS: u32 = 1 << 22;

/// The next completion, if one comes in time.
pub(super) fn any(ring: &mut Ring, how: How, wait: Duration) -> Result<Option<Completion>, String> {
    if let How::Thread(_) = how {
        ring.submit().map_err(text)?;
        let mut begun = None;
        loop {
            for _ in 0..LOOKS {
                if let Some(done) = ring.pop().map_err(text)? {
                    return Ok(Some(done));
                }
                std::hint::spin_loop();
            }
            if begun.get_or_insert_with(Instant::now).elapsed() > wait {
                return Ok(None);
            }
        }
    }
    let begun = Instant::now();
    loop {
        if let Some(done) = ring.pop().map_err(text)? {
            return Ok(Some(done));
        }
        let left = wait.saturating_sub(begun.elapsed());
        if left.is_zero() {
            return Ok(None);
        }
        ring.doorbell(1, left, how == How::Poll).map_err(text)?;
    }
}
