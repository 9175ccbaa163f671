//! A rail that is dialled again: one that was lost, or one that could not be had when the connection was made.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use linkspan_proto::greeting::Greeting;
use linkspan_proto::handle::Handle;
use linkspan_proto::login::{ClientParams, Login, Seed};

use crate::logins::{LoginRun, LoginStep};
use crate::reach::{Arriving, Reach};
use crate::secured::Secured;
use crate::{Fabric, clock};

/// Time between the first two tries; it doubles with each one in vain.
const REDIAL: Duration = Duration::from_secs(1);

/// Longest time between two tries: a cable that is plugged in is used soon, one that never will be costs next to nothing.
const SELDOM: Duration = Duration::from_secs(8);

/// One rail's way back.
pub(crate) struct Redial {
    reach: Reach,
    /// Of the rail that is or was up; empty before the first one.
    path: String,
    wait: Duration,
    state: State,
}

enum State {
    Up,
    Down { next: Instant },
    Dialing(Arriving),
    Login(Box<LoginRun>, u16),
}

impl Redial {
    /// Of a rail that is up.
    pub(crate) fn new(reach: Reach, path: String) -> Redial {
        Redial { reach, path, wait: REDIAL, state: State::Up }
    }

    /// Of one that could not be had yet.
    pub(crate) fn later(reach: Reach) -> Redial {
        Redial { reach, path: String::new(), wait: REDIAL, state: State::Down { next: Instant::now() + REDIAL } }
    }

    /// Of one that is wanted at once.
    pub(crate) fn now(reach: Reach) -> Redial {
        Redial { state: State::Down { next: Instant::now() }, ..Redial::later(reach) }
    }

    /// Its way.
    pub(crate) fn reach(&self) -> &Reach {
        &self.reach
    }

    /// The address it dials from, where that is fixed.
    pub(crate) fn from(&self) -> Option<SocketAddr> {
        self.reach.from()
    }

    /// The rail of this path is down; it may be ours.
    pub(crate) fn lost(&mut self, path: &str, now: Instant) {
        if self.path == path && matches!(self.state, State::Up) {
            self.wait = REDIAL;
            self.state = State::Down { next: now + REDIAL };
        }
    }

    /// Whether it must be looked after often: a try is under way. One that waits for its next is looked after each second.
    pub(crate) fn is_busy(&self) -> bool {
        matches!(self.state, State::Dialing(_) | State::Login(..))
    }

    fn again(&mut self, now: Instant) -> State {
        let next = now + self.wait;
        self.wait = (self.wait * 2).min(SELDOM);
        State::Down { next }
    }

    /// Moves on. `Some` when the stream is there, under a number of its own taken from `numbers`.
    pub(crate) fn poll(
        &mut self,
        fabric: &Fabric,
        handle: &Handle,
        conn: u64,
        numbers: &mut u16,
        now: Instant,
    ) -> Option<(u16, Secured)> {
        self.state = match std::mem::replace(&mut self.state, State::Up) {
            State::Up => State::Up,
            State::Down { next } if now < next => State::Down { next },
            State::Down { .. } => match self.reach.start(fabric, REDIAL * 2) {
                Ok(dial) => State::Dialing(dial),
                Err(_) => self.again(now),
            },
            State::Dialing(mut dial) => match dial.poll() {
                Ok(None) => State::Dialing(dial),
                Ok(Some(stream)) => {
                    let number = *numbers;
                    // The last number is tried for ever, in vain: after 65,000 logins that came to nothing.
                    *numbers = number.saturating_add(1);
                    let params = ClientParams {
                        guard: fabric.config().guard.clone(),
                        blob: Greeting { relays: self.reach.relays() as u8, ..Greeting::default() }.encode(),
                        ..ClientParams::new(handle.listen_id, handle.token.clone(), conn, number)
                    };
                    match Seed::random().and_then(|seed| Login::client(params, seed, clock::now())) {
                        Ok(login) => State::Login(Box::new(LoginRun { stream, login }), number),
                        Err(_) => self.again(now),
                    }
                }
                Err(_) => self.again(now),
            },
            State::Login(mut run, number) => match run.poll() {
                Ok(LoginStep::Done(session)) => {
                    let secured = Secured::new(run.stream, session.ciphers);
                    self.path = secured.stream.path();
                    self.wait = REDIAL;
                    return Some((number, secured));
                }
                Ok(_) => State::Login(run, number),
                Err(_) => self.again(now),
            },
        };
        None
    }
}
