//! An eventfd: what one thread rings to wake another out of poll(2).

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

use linkspan_fabric::WaitFd;
use rustix::event::{EventfdFlags, eventfd};

use crate::Error;

#[derive(Debug)]
pub(crate) struct Bell {
    fd: OwnedFd,
    rung: AtomicBool,
}

impl Bell {
    pub(crate) fn new() -> Result<Bell, Error> {
        let fd = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(Error::system("eventfd"))?;
        Ok(Bell { fd, rung: AtomicBool::new(false) })
    }

    /// Wakes whoever sleeps on it. One system call, and none while it has not been heard.
    pub(crate) fn ring(&self) {
        if !self.rung.swap(true, Ordering::SeqCst) {
            // It can only fail when the counter is full, and then it is heard anyway.
            let _ = rustix::io::write(&self.fd, &1u64.to_ne_bytes());
        }
    }

    /// Silences it before the look at what it may have been rung for.
    ///
    /// Between the two halves of a ring there is nothing to read yet. Then it stays rung: were it not, what is written next would
    /// never be read, and whoever sleeps on it would be awake for good.
    pub(crate) fn hear(&self) {
        if self.rung.load(Ordering::SeqCst) && rustix::io::read(&self.fd, &mut [0; 8]).is_ok() {
            // Not a store: it has to see what was done before the rings that it takes back.
            self.rung.swap(false, Ordering::SeqCst);
        }
    }

    pub(crate) fn wait_fd(&self) -> WaitFd {
        WaitFd { fd: self.fd.as_raw_fd(), read: true, write: false }
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU32;
    use std::time::Duration;

    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    use super::*;

    fn readable(bell: &Bell, wait: Duration) -> bool {
        let wait = Timespec { tv_sec: 0, tv_nsec: wait.subsec_nanos().into() };
        let mut fds = [PollFd::new(&bell.fd, PollFlags::IN)];
        poll(&mut fds, Some(&wait)).is_ok_and(|n| n > 0)
    }

    #[test]
    fn a_bell_rung_while_it_is_heard_is_heard_and_then_silent() {
        const ROUNDS: u32 = 20_000;
        let (bell, round, done) = (Bell::new().unwrap(), AtomicU32::new(0), AtomicU32::new(0));
        let wrong = std::thread::scope(|s| {
            s.spawn(|| {
                for n in 1..=ROUNDS {
                    while round.load(Ordering::Acquire) < n {
                        std::thread::yield_now();
                    }
                    bell.ring();
                    done.store(n, Ordering::Release);
                }
            });
            let mut wrong = None;
            for n in 1..=ROUNDS {
                round.store(n, Ordering::Release);
                let mut heard = false;
                while done.load(Ordering::Acquire) < n {
                    for _ in 0..64 {
                        bell.hear();
                    }
                    heard = true;
                    std::thread::yield_now();
                }
                if !heard && !readable(&bell, Duration::from_millis(500)) {
                    wrong = wrong.or(Some(format!("round {n}: a ring was lost")));
                }
                bell.hear();
                if readable(&bell, Duration::ZERO) {
                    wrong = wrong.or(Some(format!("round {n}: it rings on after it was heard")));
                }
            }
            wrong
        });
        assert_eq!(wrong, None);
    }
}
