//! Whether the peer is alive, and sleeping until it does something.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use linkspan_shmring::{Map, Side, doorbell, peer};
use linkspan_transport::WaitFd;
use rustix::event::{PollFd, PollFlags, Timespec, epoll};
use rustix::net::{RecvFlags, SendFlags};

/// Idle polls between two looks at the clock: a look costs 25 ns, an idle poll about 5.
const IDLE_POLLS: u32 = 32;

/// Time between two looks at the peer process, each a system call of 0.2 us.
pub(crate) const LOOK_EVERY: Duration = Duration::from_millis(1);

/// What tells of the peer, and what wakes it: the socket of the set-up, on which every byte is a notification.
#[derive(Debug)]
pub(crate) struct Watch {
    map: Arc<Map>,
    side: Side,
    /// The peer process. `None` on systems without pidfds: then its socket alone tells.
    pidfd: Option<Arc<OwnedFd>>,
    socket: OwnedFd,
    all: OwnedFd,
    idle: u32,
    looked: Instant,
    armed: bool,
    gone: bool,
}

impl Watch {
    pub(crate) fn new(map: &Arc<Map>, side: Side, pidfd: Option<Arc<OwnedFd>>, socket: OwnedFd) -> io::Result<Watch> {
        let all = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        for fd in [Some(&socket), pidfd.as_deref()].into_iter().flatten() {
            epoll::add(&all, fd, epoll::EventData::new_u64(0), epoll::EventFlags::IN | epoll::EventFlags::RDHUP)?;
        }
        let looked = Instant::now();
        let map = map.clone();
        Ok(Watch { map, side, pidfd, socket, all, idle: 0, looked, armed: false, gone: false })
    }

    /// What to wait for.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.all.as_fd()
    }

    /// Whether the peer process has ended, beyond doubt: only its pidfd tells.
    pub(crate) fn ended(&self) -> bool {
        self.pidfd.as_ref().is_some_and(peer::ended)
    }

    /// Whether the peer is gone, by its process or by its end of the socket. Seldom a system call, mostly a counter.
    pub(crate) fn lost(&mut self) -> Option<&'static str> {
        self.idle += 1;
        if !self.gone && self.idle < IDLE_POLLS {
            return None;
        }
        self.idle = 0;
        let now = Instant::now();
        if !self.gone && now.duration_since(self.looked) < LOOK_EVERY {
            return None;
        }
        self.looked = now;
        if self.ended() {
            self.gone = true;
            return Some("process ended");
        }
        let mut fds = [PollFd::new(&self.socket, PollFlags::RDHUP)];
        let found = rustix::event::poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }));
        if found == Ok(0) {
            return None;
        }
        self.gone = found.is_ok();
        self.gone.then_some("its end of the control socket closed")
    }

    /// Looks at the peer process at the next idle poll.
    pub(crate) fn look_soon(&mut self) {
        self.idle = IDLE_POLLS;
        self.looked = self.looked.checked_sub(LOOK_EVERY).unwrap_or(self.looked);
    }

    /// Whether the peer has closed the rail in order.
    pub(crate) fn closed(&self) -> bool {
        self.map.closed(self.side.other()).load(std::sync::atomic::Ordering::Acquire) != 0
    }

    /// Says that we have.
    pub(crate) fn close(&self) {
        self.map.closed(self.side).store(1, std::sync::atomic::Ordering::Release);
    }

    /// Whether the peer sleeps, at this moment.
    pub(crate) fn peer_sleeps(&self) -> bool {
        self.map.sleeping(self.side.other()).load(std::sync::atomic::Ordering::Relaxed) != 0
    }

    /// Wakes the peer if it sleeps.
    #[inline]
    pub(crate) fn notify(&self) {
        if doorbell::should_notify(self.map.sleeping(self.side.other())) {
            // A full socket is as good as a written one: it wakes too. Flags by call, since the peer shares no
            // descriptor with us that it could make blocking.
            let _ = rustix::net::send(&self.socket, &[1], SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
        }
    }

    /// Says that we sleep; the caller looks at everything once more and calls [`Watch::disarm`] or sleeps.
    pub(crate) fn arm(&mut self) -> WaitFd {
        self.armed = true;
        doorbell::arm(self.map.sleeping(self.side));
        WaitFd { fd: self.all.as_raw_fd(), read: true, write: false }
    }

    /// Awake again; costs nothing where [`Watch::arm`] was not called.
    #[inline]
    pub(crate) fn disarm(&mut self) {
        if self.armed {
            self.armed = false;
            doorbell::disarm(self.map.sleeping(self.side));
            let mut byte = [0; 1];
            // What is left after a few rounds wakes us once more, for nothing.
            for _ in 0..4 {
                match rustix::net::recv(&self.socket, &mut byte, RecvFlags::DONTWAIT) {
                    Ok((1.., _)) => {}
                    _ => break,
                }
            }
            // Slept: the clock has moved, and what woke us may have been the end of the peer.
            self.look_soon();
        }
    }
}
