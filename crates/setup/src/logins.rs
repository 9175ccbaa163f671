//! Streams that were accepted and are not part of a connection yet: how many a process keeps, which of them give way, and
//! one stream through its login.

use std::io;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use linkspan_net::{Quota, Share};
use linkspan_proto::login::{ClientParams, Login, LoginError, Progress, Seed, ServerParams, Session, Standing};
use linkspan_stream::Stream;
use linkspan_transport::WaitFd;
use rustix::process::{Resource, getrlimit};

use crate::clock;
use crate::stats::{Event, Stats};

/// Streams of a process that are half open at a time, at listeners and the mesh server together: a quarter of the descriptors that
/// it may have when the first of them comes (256 by default).
static HALF_OPEN: LazyLock<Quota> = LazyLock::new(|| {
    let files = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    Quota::new((files / 4).clamp(FEWEST, MOST))
});

/// Bounds of [`HALF_OPEN`].
const FEWEST: u64 = 16;
const MOST: u64 = 1024;

/// How long a stream keeps its slot when others want it and its peer has not proven itself. An honest peer says its hello at
/// once; one that was too slow connects again.
const UNPROVEN: Duration = Duration::from_secs(1);

/// The right to keep one half-open stream. Given back when it is dropped.
pub struct Slot {
    since: Instant,
    _share: Share,
}

impl Slot {
    /// One, unless all are taken.
    pub fn take() -> Option<Slot> {
        HALF_OPEN.take(1).map(|share| Slot { since: Instant::now(), _share: share })
    }

    /// Whether none is left. What waits in the kernel's queues stays there then.
    pub fn all_taken() -> bool {
        HALF_OPEN.left() == 0
    }

    /// Counts the time that a peer without a word spent in the kernel's queue.
    pub fn count_silence(&mut self, run: &LoginRun) {
        if run.login.standing() == Standing::Silent {
            let quiet = run.stream.tcp_info().map_or(Duration::ZERO, |info| info.quiet);
            self.since = self.since.checked_sub(quiet).unwrap_or(self.since);
        }
    }
}

/// A stream whose login is under way.
pub struct LoginRun {
    /// The stream.
    pub stream: Stream,
    /// The state of its login.
    pub login: Login,
}

/// Ends logins of peers that have had their time, for others to have their slots: those that have said nothing, or where
/// there is none, those whose hello may be another's that was overheard. Never one that is young, nor one that is proven.
pub fn drop_unproven<T>(pending: &mut Vec<T>, stats: &Stats, of: impl Fn(&T) -> Option<(&LoginRun, &Slot)>) {
    for standing in [Standing::Silent, Standing::Hello] {
        let before = pending.len();
        pending.retain(|p| {
            let Some((run, slot)) = of(p) else { return true };
            let stays = run.login.standing() != standing || slot.since.elapsed() < UNPROVEN;
            if !stays {
                stats.count(run.unproven());
            }
            stays
        });
        if pending.len() < before {
            return;
        }
    }
}

/// Why it did not get through.
#[derive(Debug, thiserror::Error)]
pub enum LoginFailed {
    /// The two do not agree, or one has not proven itself.
    #[error(transparent)]
    Login(#[from] LoginError),
    /// The stream failed.
    #[error("{0}")]
    Io(#[from] io::Error),
}

impl LoginFailed {
    /// How it is counted.
    pub fn event(&self, run: &LoginRun) -> Event {
        use LoginError as E;
        let LoginFailed::Login(error) = self else { return run.unproven() };
        match error {
            E::Stranger | E::Malformed { .. } | E::Code { .. } | E::Listener { .. } | E::KeyProof => {
                Event::StrangersUnknown
            }
            E::Used { .. } => Event::LoginsReplayed,
            E::Version { .. } | E::Refused { .. } => Event::RefusedVersion,
            error if error.is_refusal() => Event::RefusedKey,
            _ => run.unproven(),
        }
    }

    /// The answer of a peer, or to one, that another try would end with too.
    pub fn refusal(&self) -> Option<&LoginError> {
        match self {
            LoginFailed::Login(error) if error.is_refusal() => Some(error),
            _ => None,
        }
    }
}

/// How far a login has come.
pub enum LoginStep {
    /// It waits for the peer.
    Pending,
    /// The server side is asked for its capabilities.
    Asked,
    /// It is over.
    Done(Box<Session>),
}

impl LoginRun {
    /// The side that connected.
    ///
    /// # Errors
    /// [`LoginError::Random`]: the OS gives no random numbers. Those of [`Login::client`].
    pub fn client(stream: Stream, params: ClientParams) -> Result<LoginRun, LoginError> {
        let login = Login::client(params, Seed::random()?, clock::now())?;
        Ok(LoginRun { stream, login })
    }

    /// The side that was connected to.
    ///
    /// # Errors
    /// [`LoginError::Random`]: the OS gives no random numbers. Those of [`Login::server`].
    pub fn server(stream: Stream, params: ServerParams) -> Result<LoginRun, LoginError> {
        let login = Login::server(params, Seed::random()?, clock::now())?;
        Ok(LoginRun { stream, login })
    }

    /// What becomes ready when [`LoginRun::poll`] can make progress.
    pub fn wait_fd(&self) -> WaitFd {
        self.stream.wait_fd(!self.login.output().is_empty())
    }

    /// How it is counted where it ends at this point.
    pub fn unproven(&self) -> Event {
        match self.login.standing() {
            Standing::Silent => Event::StrangersSilent,
            Standing::Hello => Event::LoginsUnproven,
            Standing::Proven => Event::SetupsDropped,
        }
    }

    /// Moves bytes both ways as far as they go. The deadline counts only where nothing has arrived: what is read late because
    /// we were not called need not have come late.
    pub fn poll(&mut self) -> Result<LoginStep, LoginFailed> {
        loop {
            while !self.login.output().is_empty() {
                match self.stream.try_write(self.login.output())? {
                    Some(n) => self.login.sent(n),
                    None => break,
                }
            }
            let mut bytes = [0; 256];
            let want = self.login.wants().min(bytes.len());
            if want > 0 {
                match self.stream.try_read(&mut bytes[..want])? {
                    None => {}
                    Some(0) => self.login.closed(),
                    Some(n) => {
                        self.login.feed(&bytes[..n]);
                        continue;
                    }
                }
            }
            return match self.login.poll(clock::now()) {
                Progress::Pending => Ok(LoginStep::Pending),
                Progress::Asked => Ok(LoginStep::Asked),
                Progress::Done(session) => Ok(LoginStep::Done(session)),
                Progress::Failed(error) => Err(error.into()),
            };
        }
    }
}

#[cfg(test)]
mod tests;
