//! Pairing: two users exchange their public keys once, and trust each other from then on.
//!
//! One side [offers](PairingOffer): it listens, and shows a join line, which holds the addresses of its listener and the listener's
//! token, 128 random bits that are good for one pairing within ten minutes. The other side [joins](join) with the line. Both log in
//! by key pairs; every message of that login is under the token, so whoever does not have the line can neither join nor
//! come between. Over the connection each tells its name and its addresses, and both store the other's key.

mod exchange;
mod line;

pub use line::{JoinLine, LineError};

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use linkspan_fabric::keys::{KeyError, Keyring, Peer};
use linkspan_fabric::{Channel, Config, Device, Error, Fabric, Listener, Log, PathChoice, chain};
use linkspan_net::WaitSet;
use linkspan_proto::login::pair_fingerprint;
use linkspan_topology::{Interface, Kind, Verdict};
use rustix::time::{ClockId, clock_gettime};

/// How long a join line is good.
pub const LIFETIME: Duration = Duration::from_secs(600);

/// How long the joining side tries to reach the other.
const REACH: Duration = Duration::from_secs(10);

/// Why two hosts are not paired.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PairError {
    /// The join line cannot be read.
    #[error(transparent)]
    Line(#[from] LineError),
    /// Our keys cannot be used, or the peer's not stored.
    #[error(transparent)]
    Keys(#[from] KeyError),
    /// The fabric fails.
    #[error(transparent)]
    Fabric(#[from] Error),
    /// Nobody joined in time.
    #[error("LS0545 nobody used the join line within {} minutes, and it is void now: begin again", LIFETIME.as_secs() / 60)]
    Expired,
    /// The listener of a join line does not answer, or does not know the line.
    #[error("LS0546 nobody answers to this join line: {why}; begin again with `lspan pair` on the other host")]
    Unanswered {
        /// The likeliest reason.
        why: String,
        /// How it failed.
        #[source]
        source: Box<Error>,
    },
    /// The connection ended, or the peer said something else than it should.
    #[error("LS0547 the pairing was broken off: {why}; nothing was stored here, begin again")]
    Broken {
        /// Why.
        why: String,
    },
    /// The caller wants to stop.
    #[error("LS0548 the pairing was cancelled")]
    Cancelled,
    /// A join line from here would have loopback's address alone.
    #[error(
        "LS0549 no other host could join: no network interface of this one is usable ({reasons}); set LINKSPAN_IFNAME to the one that leads to the other host"
    )]
    NoInterface {
        /// Each interface with its reason.
        reasons: String,
    },
}

/// Whom this side says that it is, and what it calls the other.
#[derive(Clone, Debug)]
pub struct Names {
    /// What we tell the peer that we are called.
    pub own: String,
    /// What the peer is called here; `None`: as it says, with a number behind it where another has that name.
    pub peer: Option<String>,
}

/// A pairing that was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Paired {
    /// The peer, as it is stored.
    pub peer: Peer,
    /// What the peer calls itself.
    pub says: String,
    /// The same on both sides.
    pub fingerprint: String,
    /// The peer has said that it has stored our key. Otherwise it may not have: the connection ended before.
    pub confirmed: bool,
}

/// The settings of a connection that pairs: whatever the environment says of cluster keys, meshes and paths is for others.
fn settings(mut config: Config, ring: &Keyring) -> Config {
    config.guard = ring.guard_of_pairing();
    (config.mesh_port, config.mesh_file, config.stats_dir) = (0, None, None);
    (config.path, config.strict) = (PathChoice::named("tcp"), false);
    config
}

/// The time since the machine began, also that in which it slept, which `Instant` leaves out.
fn since_boot() -> Duration {
    let time = clock_gettime(ClockId::Boottime);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec as u32)
}

/// The side that is joined.
pub struct PairingOffer {
    ring: Arc<Keyring>,
    fabric: Fabric,
    listener: Listener,
    line: JoinLine,
    clock: fn() -> Duration,
    until: Duration,
}

impl PairingOffer {
    /// Listens on every usable interface, for [`LIFETIME`].
    ///
    /// # Errors
    /// [`PairError::NoInterface`]: only this host would be reached. [`PairError::Fabric`]: there is no socket.
    pub fn open(config: Config, ring: Arc<Keyring>, log: Log) -> Result<PairingOffer, PairError> {
        let fabric = Fabric::new(settings(config, &ring), log, false, linkspan_transports::all())?;
        reaches_others(&fabric)?;
        let listener = fabric.listen(0)?;
        let line = JoinLine::new(&listener.handle(), SystemTime::now() + LIFETIME)?;
        Ok(PairingOffer { ring, fabric, listener, line, clock: since_boot, until: since_boot() + LIFETIME })
    }

    /// What the other side needs; a secret until it was used.
    pub fn line(&self) -> &JoinLine {
        &self.line
    }

    /// Waits until somebody has joined. Peers that fail in doing so end nothing. `stop` is asked ten times a second.
    ///
    /// # Errors
    /// [`PairError::Expired`], [`PairError::Cancelled`], [`PairError::Keys`], [`PairError::Fabric`].
    pub fn wait(self, names: &Names, stop: &dyn Fn() -> bool) -> Result<Paired, PairError> {
        let (mut waits, mut fds) = (WaitSet::new(), Vec::new());
        loop {
            let left = self.until.saturating_sub((self.clock)());
            if left.is_zero() {
                return Err(PairError::Expired);
            }
            match self.listener.accept() {
                Ok(Some(channel)) => match exchange::run(channel, &self.fabric, &self.ring, names, stop) {
                    Err(PairError::Broken { why }) => self.fabric.log().warn(&format!("a peer did not pair: {why}")),
                    // After this the listener is gone, and its token with it: a line pairs once.
                    other => return other,
                },
                Ok(None) => {}
                Err(error) => self.fabric.log().warn(&format!("a peer did not connect: {}", chain(&error))),
            }
            if stop() {
                return Err(PairError::Cancelled);
            }
            waits.clear();
            fds.clear();
            self.listener.wait_fds(&mut fds);
            fds.iter().for_each(|fd| {
                waits.add(*fd);
            });
            let _ = waits.wait(Some(left.min(Duration::from_millis(100))));
        }
    }
}

/// Joins with a line. `stop` is asked while it waits.
///
/// # Errors
/// [`PairError::Unanswered`]: the line was used, is too old, or its host is not reached. [`PairError::Broken`],
/// [`PairError::Cancelled`], [`PairError::Keys`], [`PairError::Fabric`].
pub fn join(
    mut config: Config,
    ring: &Arc<Keyring>,
    log: Log,
    line: &JoinLine,
    names: &Names,
    stop: &dyn Fn() -> bool,
) -> Result<Paired, PairError> {
    config.connect_timeout = REACH;
    let fabric = Fabric::new(settings(config, ring), log, false, linkspan_transports::all())?;
    let unanswered =
        |source| PairError::Unanswered { why: line.why_unanswered(SystemTime::now()), source: Box::new(source) };
    // Who refuses now has used the line, or has ended: another try ends the same way.
    let mut connecting = fabric.connect(0, &line.handle()).map_err(unanswered)?.once();
    let (mut waits, mut fds) = (WaitSet::new(), Vec::new());
    let channel: Channel = loop {
        match connecting.poll() {
            Ok(Some(channel)) => break channel,
            Ok(None) if stop() => return Err(PairError::Cancelled),
            Ok(None) => {}
            Err(error @ (Error::Unreachable { .. } | Error::Timeout { .. } | Error::Vanished { .. })) => {
                return Err(unanswered(error));
            }
            Err(error) => return Err(error.into()),
        }
        waits.clear();
        fds.clear();
        connecting.wait_fds(&mut fds);
        fds.iter().for_each(|fd| {
            waits.add(*fd);
        });
        let _ = waits.wait(Some(Duration::from_millis(5)));
    };
    exchange::run(channel, &fabric, ring, names, stop)
}

/// Whoever asks for loopback by name pairs two users of one host.
fn reaches_others(fabric: &Fabric) -> Result<(), PairError> {
    let asked = fabric.config().interfaces.as_ref();
    let loops = |device: &Device| {
        device.loopback && !device.ports.iter().any(|port| asked.is_some_and(|list| list.asks_for(&port.name)))
    };
    if !fabric.devices().iter().all(loops) {
        return Ok(());
    }
    let why = |(interface, verdict): &(Interface, Verdict)| match verdict {
        Verdict::LeftOut(reason) if interface.kind != Kind::Loopback => Some(format!("{} {reason}", interface.name)),
        _ => None,
    };
    let reasons: Vec<String> = fabric.survey().iter().filter_map(why).collect();
    let reasons = if reasons.is_empty() { "there is loopback alone".to_owned() } else { reasons.join("; ") };
    Err(PairError::NoInterface { reasons })
}

/// What both sides show.
fn shown(ring: &Keyring, peer: &Peer) -> String {
    pair_fingerprint(&ring.public(), &peer.key)
}

#[cfg(test)]
mod tests;
