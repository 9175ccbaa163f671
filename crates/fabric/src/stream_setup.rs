//! A stream on its way into a connection: dialled, logged in, and with rails set up beside it where both sides have them. The same for a
//! connection that comes up, a rail that is dialled again, and the side that is connected to.

use linkspan_mesh::Approach;
use linkspan_mesh::hops::Hops;
use linkspan_proto::greeting::Greeting;
use linkspan_proto::login::{ClientParams, LoginError, Session};
use linkspan_setup::handshake::Handshake;
use linkspan_setup::logins::{LoginFailed, LoginRun, LoginStep};
use linkspan_setup::secured::Secured;
use linkspan_setup::stats::Event;
use linkspan_stream::{Dial, Stream};
use linkspan_transport::{BoxRail, Role, WaitFd};

use crate::chain;
use crate::route::Beside;

/// How far a stream has come.
pub(crate) enum SetupState {
    /// It is being connected.
    Dial(Dial),
    /// The same over other hosts.
    Approach(Box<Approach>),
    /// Both sides prove themselves and say what they have.
    Login(Box<LoginRun>),
    /// Rails are being set up beside it.
    Rails(Box<(Secured, Handshake)>),
    /// It may be part of a connection.
    Up(Box<Secured>),
    /// Its owner has it.
    Taken,
    /// It came to nothing; why.
    Failed(String),
}

/// What has happened to it.
pub(crate) enum Step {
    /// Nothing that its owner has to do with.
    Pending,
    /// It is connected, and goes on with [`StreamSetup::login`]; where it leads over others, what those say of the hops.
    Connected(Stream, Option<Hops>),
    /// The peer has greeted, and waits for [`StreamSetup::answer`].
    Asked(Greeting),
    /// Both have proven themselves.
    LoggedIn(Box<Session>),
    /// It is [`SetupState::Up`].
    Up,
}

/// Why it came to nothing.
pub(crate) struct SetupError {
    pub(crate) why: String,
    /// The answer of a peer, or to one, that another try would end with too.
    pub(crate) refusal: Option<LoginError>,
    /// How it is counted.
    pub(crate) event: Event,
}

impl SetupError {
    fn login(error: &LoginFailed, run: &LoginRun) -> SetupError {
        SetupError { why: chain(error), refusal: error.refusal().cloned(), event: error.event(run) }
    }
}

/// What the peer says of itself inside the login.
fn greeting(blob: &[u8]) -> Result<Greeting, SetupError> {
    Greeting::decode(blob).ok_or_else(|| SetupError {
        why: "its greeting cannot be read: it is of another version of linkspan, install the same on both hosts".into(),
        refusal: None,
        event: Event::RefusedVersion,
    })
}

impl<S: Into<String>> From<S> for SetupError {
    fn from(why: S) -> SetupError {
        SetupError { why: why.into(), refusal: None, event: Event::SetupsDropped }
    }
}

pub(crate) struct StreamSetup {
    pub(crate) state: SetupState,
    role: Role,
    /// What the peer has said inside the login.
    pub(crate) greeting: Greeting,
    /// What rails are set up with beside it.
    pub(crate) beside: Option<Beside>,
    /// Rails that are up beside it, or why there are none; empty where nobody need be told.
    pub(crate) rails: Result<Vec<BoxRail>, String>,
    /// Why there are fewer of them than there could be.
    pub(crate) missing: Vec<String>,
}

impl StreamSetup {
    fn new(state: SetupState, role: Role) -> StreamSetup {
        StreamSetup {
            state,
            role,
            greeting: Greeting::default(),
            beside: None,
            rails: Err(String::new()),
            missing: Vec::new(),
        }
    }

    /// Of a stream that connects, or cannot.
    pub(crate) fn dial(begun: Result<SetupState, String>) -> StreamSetup {
        StreamSetup::new(begun.unwrap_or_else(SetupState::Failed), Role::Caller)
    }

    /// Of one that was accepted.
    pub(crate) fn accept(run: LoginRun) -> StreamSetup {
        StreamSetup::new(SetupState::Login(Box::new(run)), Role::Answerer)
    }

    /// A connected stream logs in; with which rails beside it.
    pub(crate) fn login(
        &mut self,
        stream: Stream,
        params: ClientParams,
        beside: Option<Beside>,
    ) -> Result<(), LoginError> {
        self.state = SetupState::Login(Box::new(LoginRun::client(stream, params)?));
        self.beside = beside;
        Ok(())
    }

    /// Answers the peer's greeting; with which rails beside the stream.
    pub(crate) fn answer(&mut self, answer: &Greeting, beside: Option<Beside>) -> Result<(), SetupError> {
        self.beside = beside;
        let SetupState::Login(run) = &mut self.state else { return Ok(()) };
        run.login.answer(&answer.encode()).map_err(|error| SetupError::login(&error.into(), run))
    }

    /// Its login, while that is under way.
    pub(crate) fn login_run(&self) -> Option<&LoginRun> {
        match &self.state {
            SetupState::Login(run) => Some(run),
            _ => None,
        }
    }

    /// Whether rails are being set up beside it.
    pub(crate) fn is_handshake(&self) -> bool {
        matches!(self.state, SetupState::Rails(_))
    }

    /// Whether it is up, and nobody has it.
    pub(crate) fn is_up(&self) -> bool {
        matches!(self.state, SetupState::Up(_))
    }

    /// The stream, where it is up and nobody has it.
    pub(crate) fn up(&mut self) -> Option<&mut Secured> {
        match &mut self.state {
            SetupState::Up(secured) => Some(secured),
            _ => None,
        }
    }

    /// Takes it.
    pub(crate) fn take(&mut self) -> Option<Secured> {
        match std::mem::replace(&mut self.state, SetupState::Taken) {
            SetupState::Up(secured) => Some(*secured),
            other => {
                self.state = other;
                None
            }
        }
    }

    /// Adds what becomes ready when [`StreamSetup::poll`] can make progress, or a message has come.
    pub(crate) fn wait_fds(&self, fds: &mut Vec<WaitFd>) {
        match &self.state {
            SetupState::Dial(dial) => fds.extend(dial.wait_fd().map(|(fd, _)| fd)),
            SetupState::Approach(approach) => approach.wait_fds(fds),
            SetupState::Login(run) => fds.push(run.wait_fd()),
            SetupState::Rails(meet) => fds.push(meet.0.wait_fd()),
            SetupState::Up(secured) => fds.push(secured.wait_fd()),
            SetupState::Taken | SetupState::Failed(_) => {}
        }
    }

    /// Moves on, until its owner has something to do with it.
    pub(crate) fn poll(&mut self) -> Result<Step, SetupError> {
        match &mut self.state {
            SetupState::Dial(dial) => Ok(match dial.poll().map_err(|error| chain(&error))? {
                None => Step::Pending,
                Some(stream) => Step::Connected(stream, None),
            }),
            SetupState::Approach(approach) => Ok(match approach.poll()? {
                None => Step::Pending,
                Some((stream, text)) => Step::Connected(stream, Some(Hops::parse(&text))),
            }),
            SetupState::Login(run) => match run.poll() {
                Ok(LoginStep::Pending) => Ok(Step::Pending),
                Ok(LoginStep::Asked) => greeting(run.login.peer_blob().unwrap_or_default()).map(Step::Asked),
                Ok(LoginStep::Done(session)) => self.logged_in(session),
                Err(error) => Err(SetupError::login(&error, run)),
            },
            SetupState::Rails(meet) => {
                let ((secured, handshake), beside, role) = (&mut **meet, &self.beside, self.role);
                let make = |n| match beside {
                    Some(beside) => beside.offer.make(n, role),
                    None => Err("no device".into()),
                };
                let met = handshake.poll(secured, &make).map_err(|error| chain(&error))?;
                let Some(met) = met else { return Ok(Step::Pending) };
                if met.is_ok() {
                    self.missing = handshake.missing();
                }
                self.rails = met;
                if let SetupState::Rails(meet) = std::mem::replace(&mut self.state, SetupState::Taken) {
                    self.state = SetupState::Up(Box::new(meet.0));
                }
                Ok(Step::Up)
            }
            SetupState::Up(_) => Ok(Step::Up),
            SetupState::Taken => Ok(Step::Pending),
            SetupState::Failed(why) => Err(why.clone().into()),
        }
    }

    fn logged_in(&mut self, mut session: Box<Session>) -> Result<Step, SetupError> {
        let SetupState::Login(run) = std::mem::replace(&mut self.state, SetupState::Taken) else {
            return Ok(Step::Pending);
        };
        let mut secured = Secured::new(run.stream, session.ciphers.take());
        let greeting = greeting(&session.peer_blob)?;
        // Device-memory TCP knows no encryption.
        self.greeting = Greeting { devmem: greeting.devmem && !secured.is_sealed(), ..greeting };
        let begun = match &self.beside {
            Some(beside) => beside.begin(self.role, &mut secured, &self.greeting)?,
            None => Err(String::new()),
        };
        self.state = match begun {
            Ok(handshake) => SetupState::Rails(Box::new((secured, handshake))),
            Err(why) => {
                if !why.is_empty() {
                    self.rails = Err(why);
                }
                SetupState::Up(Box::new(secured))
            }
        };
        Ok(Step::LoggedIn(session))
    }
}
