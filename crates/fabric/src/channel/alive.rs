//! Whether the peer is alive: the keepalive connection, and what is used where there is none.

use std::time::{Duration, Instant};

use linkspan_stream::{Ended, Keepalive, SILENCE};
use linkspan_transport::{Down, Rail, WaitFd};

use super::{Channel, ReconnectPolicy, cause};
use crate::Fabric;
use crate::reconnect::Reconnector;

/// Rounds in which the rails are read once more when the keepalive connection has ended. A round brings up to a MiB and the kernel
/// holds some tens at most, so a correct peer's last bytes fit; one that sends more does not hold this call.
const LAST_LOOKS: usize = 256;

/// The end of the keepalive connection and that of the rails are told as one within this time: a process that ends closes all of
/// them, and what its rails still carry is read before their end.
const TOGETHER: Duration = Duration::from_secs(1);

/// What is known of the end of a peer whose path was lost.
#[derive(Debug)]
pub enum PeerState {
    /// All its streams have ended without a word, as those of a process that has ended do. No proof of that: whoever is on the way
    /// can end streams too.
    Gone,
    /// It has closed the path and is still running, or nothing is known.
    Open,
    /// Its path has fallen silent or was reset on the way: it may live, and hear of that later than this side.
    Silent,
    /// Not known yet: ask the keepalive connection.
    Ask(PeerLiveness),
}

/// The keepalive connection of a connection whose rails are lost already. The peer is told that we live when it is dropped, and before
/// only where we have ended the rails: of a process that is killed with that byte unread the kernel sends a reset in place of the
/// end, and others send resets too.
#[derive(Debug)]
pub struct PeerLiveness(Keepalive);

impl PeerLiveness {
    /// What is known so far about the peer's process; makes one system call.
    pub fn ask(mut self) -> PeerState {
        if self.0.check().is_ok() {
            return PeerState::Ask(self);
        }
        match self.0.ended() {
            Some(Ended::Closed) => PeerState::Gone,
            Some(Ended::Broken) => PeerState::Silent,
            _ => PeerState::Open,
        }
    }

    /// The descriptor that becomes ready when the answer may have changed.
    pub fn wait_fd(&self) -> WaitFd {
        self.0.wait_fd()
    }
}

impl Drop for PeerLiveness {
    fn drop(&mut self) {
        self.0.leave();
    }
}

/// A keepalive connection that was lost with its path.
pub(super) struct Unwatched {
    /// When another path was last known to carry.
    since: Instant,
    /// Whether a line told it.
    reported: bool,
    /// Nothing carries, but the mesh still reports the peer's host: another route is awaited.
    waits: bool,
    /// A rail has come since, over whatever interface.
    renewed: bool,
    why: Down,
}

/// Whether the peer's host is known to live by what reaches us over others, and may be reached over them.
fn lives(fabric: &Fabric, peer: Option<u64>, policy: &ReconnectPolicy) -> bool {
    let arrives = match policy {
        ReconnectPolicy::Never => return false,
        ReconnectPolicy::Accepts { acceptor, conn, .. } => {
            acceptor.lock().unwrap_or_else(|e| e.into_inner()).meets(**conn)
        }
        ReconnectPolicy::Dials { reconnectors, .. } => reconnectors.iter().any(Reconnector::arrives),
    };
    let heard = |host| matches!(fabric.mesh(), Ok(Some(mesh)) if mesh.hears(host));
    !fabric.config().strict && (arrives || peer.is_some_and(heard))
}

impl Channel {
    /// Asks the keepalive connection. Its end, with that of the rails, tells that the process is gone; alone it tells nothing where
    /// rails tell their end themselves, for a proxy may close what carries nothing. Its silence or a reset tells that its own
    /// path is gone, and the peer with it where no other path carries, unless the mesh reports the peer's host: then it is the
    /// cable that is dead, and a way around may need longer than the keepalive connection, which counts from the last answer
    /// before the cut.
    pub(super) fn watch(&mut self, now: Instant) {
        if let Some(keepalive) = self.keepalive.as_mut()
            && let Err(why) = keepalive.check()
        {
            let (path_lost, ended) = (keepalive.path_lost(), keepalive.ended());
            self.ended = ended.map(|ended| (ended, now));
            // We live, whatever has become of the peer: it may be asking the same. Where it is closed over there nobody reads that, and
            // a proxy that has closed it may live on.
            if ended != Some(Ended::Closed) {
                keepalive.leave();
            }
            // The end of the keepalive connection may overtake bytes that are still in the rails: read them first.
            for _ in 0..LAST_LOOKS {
                if !self.read_first() {
                    break;
                }
            }
            self.keepalive = None;
            if ended == Some(Ended::Closed)
                && self.conn.lost().is_none()
                && self.conn.rails().all(|(_, rail)| rail.info().caps.tells_end)
            {
                let line = format!("the keepalive connection was closed, the rails stay in use: {}", cause(&why));
                return self.fabric.log().info(&line);
            }
            self.unwatched = Some(Unwatched { since: now, reported: false, waits: false, renewed: false, why });
            if !path_lost {
                self.end_unwatched();
            }
        }
        let Some(gone) = self.unwatched.as_mut() else { return };
        // Rails over the keepalive connection's own interface prove nothing: idle ones end a little later. Others do until they count
        // as dead: one that is stalled at this moment may have its cable back, and its next transmission still to come.
        let interface = gone.why.path().split(' ').next().unwrap_or_default();
        let any = gone.reported || gone.renewed;
        let counts = |rail: &(dyn Rail + Send)| (any || rail.info().interface != interface) && !rail.health().dead;
        if self.conn.rails().any(|(_, rail)| counts(rail)) {
            // From here on the rails' own TCP keepalive, and the grace, detect a dead host.
            gone.since = now;
            if !std::mem::replace(&mut gone.reported, true) {
                let (path, why) = (gone.why.path(), cause(&gone.why));
                let line = format!("the keepalive connection is lost, other paths carry on: {path}: {why}");
                self.fabric.log().warn(&line);
            }
        } else if gone.reported || gone.waits {
            // No path may carry for as long as keepalive takes.
            if now.duration_since(gone.since) >= SILENCE {
                self.end_unwatched();
            }
        } else if lives(&self.fabric, self.peer, &self.policy) {
            (gone.since, gone.waits) = (now, true);
            let line = format!(
                "the path to the peer is dead, but its host answers: waiting for another route, {} s at most: {}: {}",
                SILENCE.as_secs(),
                gone.why.path(),
                cause(&gone.why)
            );
            self.fabric.log().warn(&line);
        } else {
            self.end_unwatched();
        }
    }

    /// Whether the peer has closed the path of its own will.
    pub(super) fn peer_closed(&self) -> bool {
        self.conn.peer_sent_goaway() || self.ended.is_some_and(|(ended, _)| ended == Ended::Left)
    }

    /// Keeps in mind which host of the mesh the peer is on, as long as the keepalive connection's path shows it: when that is dead the
    /// host no longer tells of its end of the cable.
    pub(super) fn know_peer(&mut self) {
        if self.peer.is_none()
            && let (Some(keepalive), Ok(Some(mesh))) = (&self.keepalive, self.fabric.mesh())
        {
            self.peer = mesh.host_at(keepalive.peer_addr().ip().to_canonical());
        }
    }

    /// A rail has come up: what was lost before it proves nothing of it.
    pub(super) fn renewed(&mut self) {
        if let Some(gone) = &mut self.unwatched {
            gone.renewed = true;
        }
    }

    /// Whether a reroute is waited for.
    pub(super) fn waits_for_way(&self) -> bool {
        self.unwatched.as_ref().is_some_and(|gone| gone.waits && !gone.reported)
    }

    /// What is known of the peer of a connection that is lost.
    pub fn peer_state(mut self) -> PeerState {
        match (self.ended, self.keepalive.take()) {
            (Some((Ended::Closed, when)), _) if when.elapsed() < TOGETHER => PeerState::Gone,
            (Some((Ended::Broken, _)), _) => PeerState::Silent,
            (Some(_), _) | (None, None) => PeerState::Open,
            (None, Some(keepalive)) => PeerLiveness(keepalive).ask(),
        }
    }

    /// No keepalive connection watches a peer that is reached over other hosts: there the rails' own state counts. TCP keepalive alone would not
    /// do, for it waits while bytes are outstanding.
    pub(super) fn watch_unguarded(&mut self) {
        if self.keepalive.is_some() || self.unwatched.is_some() {
            return;
        }
        let mut rails = self.conn.rails();
        let dead = |rail: &(dyn Rail + Send)| rail.health().dead;
        if rails.next().is_some_and(|(_, rail)| dead(rail)) && rails.all(|(_, rail)| dead(rail)) {
            drop(rails);
            let why = "nothing has been acknowledged for more than 10 s, and no other path is left".into();
            self.conn.fail(Down::PeerGone { path: self.describe(), why });
        }
    }

    pub(super) fn end_unwatched(&mut self) {
        if let Some(gone) = self.unwatched.take() {
            self.conn.fail(gone.why);
        }
    }
}
