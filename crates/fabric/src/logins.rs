//! One stream through its login.

use std::io;

use linkspan_proto::login::{Login, LoginError, Progress, Session};
use linkspan_tcp::Stream;

use crate::clock;

/// A stream whose login is under way.
pub(crate) struct LoginRun {
    pub(crate) stream: Stream,
    pub(crate) login: Login,
}

/// Why it did not get through.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LoginFailed {
    #[error(transparent)]
    Login(#[from] LoginError),
    #[error("{0}")]
    Io(#[from] io::Error),
}

pub(crate) enum LoginStep {
    Pending,
    /// The server side is asked for its capabilities.
    Asked,
    Done(Box<Session>),
}

impl LoginRun {
    /// Moves bytes both ways as far as they go.
    pub(crate) fn poll(&mut self) -> Result<LoginStep, LoginFailed> {
        loop {
            while !self.login.output().is_empty() {
                match self.stream.try_write(self.login.output())? {
                    Some(n) => self.login.sent(n),
                    None => break,
                }
            }
            match self.login.poll(clock::now()) {
                Progress::Pending => {}
                Progress::Asked => return Ok(LoginStep::Asked),
                Progress::Done(session) => return Ok(LoginStep::Done(session)),
                Progress::Failed(error) => return Err(error.into()),
            }
            let mut bytes = [0; 256];
            let want = self.login.wants().min(bytes.len());
            if want == 0 {
                return Ok(LoginStep::Pending);
            }
            match self.stream.try_read(&mut bytes[..want])? {
                None => return Ok(LoginStep::Pending),
                Some(0) => self.login.closed(),
                Some(n) => {
                    self.login.feed(&bytes[..n], clock::now());
                }
            }
        }
    }
}
