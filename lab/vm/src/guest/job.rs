//! A script that runs in a guest.

use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use crate::error::{Error, Result};
use crate::guest::link::Sender;
use crate::patience::Patience;
use crate::wire::Kind;

/// Most that a job may say, bytes: tests say little, and a guest is not trusted.
const MOST: usize = 32 << 20;

/// What a job said, and how it ended.
#[derive(Clone, Debug, Default)]
pub(crate) struct Output {
    /// Exit code; 128 + n signal n.
    pub(crate) code: i32,
    /// Standard output.
    pub(crate) out: String,
    /// Standard error.
    pub(crate) err: String,
}

/// A running script. Dropping it leaves it running in the guest.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) guest: String,
    pub(crate) number: u32,
    pub(crate) what: String,
    pub(crate) from: Receiver<(Kind, Vec<u8>)>,
    pub(crate) to: Sender,
    pub(crate) until: Instant,
    pub(crate) slow: u32,
    pub(crate) out: Vec<u8>,
    pub(crate) err: Vec<u8>,
    pub(crate) code: Option<i32>,
}

impl Job {
    /// Waits for its end; killed when that does not come in time.
    pub(crate) fn wait(mut self, limit: Duration) -> Result<Output> {
        let mut patience = Patience::new(limit * self.slow);
        while self.code.is_none() {
            if !self.step(&mut patience)? {
                self.kill();
                return Err(self.late(&self.what, limit));
            }
        }
        Ok(Output { code: self.code.unwrap_or(-1), out: text(&self.out), err: text(&self.err) })
    }

    /// Waits until its output (standard output and error) has a line with `part`; that line.
    pub(crate) fn expect(&mut self, part: &str, limit: Duration) -> Result<String> {
        let mut patience = Patience::new(limit * self.slow);
        loop {
            let said = format!("{}\n{}", text(&self.out), text(&self.err));
            if let Some(line) = said.lines().find(|line| line.contains(part)) {
                return Ok(line.to_owned());
            }
            if let Some(code) = self.code {
                let script = self.what.clone();
                let said = format!("no line has `{part}`{}", crate::proc::tail(&said, 15));
                return Err(Error::Script { guest: self.guest.clone(), script, code, said });
            }
            if !self.step(&mut patience)? {
                return Err(self.late(&format!("a line with `{part}` of {}", self.what), limit));
            }
        }
    }

    /// The last line with `part` of what it has said by now.
    pub(crate) fn latest(&mut self, part: &str) -> Result<Option<String>> {
        while self.code.is_none() {
            // What is there already, without a wait.
            let Ok((kind, bytes)) = self.from.try_recv() else { break };
            self.take(kind, bytes)?;
        }
        let said = format!("{}\n{}", text(&self.out), text(&self.err));
        Ok(said.lines().rfind(|line| line.contains(part)).map(str::to_owned))
    }

    /// The last lines with `part` of what it has said so far.
    pub(crate) fn lines(&self, part: &str) -> String {
        let said = format!("{}\n{}", text(&self.out), text(&self.err));
        let found: Vec<&str> = said.lines().filter(|line| line.contains(part)).collect();
        crate::proc::tail(&found.join("\n"), 30)
    }

    /// Whether it has ended.
    pub(crate) fn is_over(&self) -> bool {
        self.code.is_some()
    }

    /// The end of what it has said so far.
    pub(crate) fn tail(&self) -> String {
        crate::proc::tail(&format!("{}\n{}", text(&self.out), text(&self.err)), 30)
    }

    /// Kills it with all it started.
    pub(crate) fn kill(&self) {
        self.to.send(Kind::Kill, self.number, b"");
    }

    /// Takes one message, or looks at the time; false when that is over.
    fn step(&mut self, patience: &mut Patience) -> Result<bool> {
        let Some(wait) = patience.look() else { return Ok(false) };
        if Instant::now() >= self.until {
            return Ok(false);
        }
        match self.from.recv_timeout(wait) {
            Ok((kind, bytes)) => self.take(kind, bytes)?,
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return Err(self.gone("its agent does not answer any more")),
        }
        Ok(true)
    }

    fn take(&mut self, kind: Kind, bytes: Vec<u8>) -> Result<()> {
        match kind {
            Kind::Out => self.out.extend_from_slice(&bytes),
            Kind::Err => self.err.extend_from_slice(&bytes),
            Kind::Exit => self.code = Some(bytes.try_into().map_or(-1, i32::from_le_bytes)),
            _ => {}
        }
        if self.out.len() + self.err.len() > MOST {
            self.kill();
            return Err(self.gone("a job said more than it may"));
        }
        Ok(())
    }

    fn gone(&self, why: &str) -> Error {
        Error::Gone { guest: self.guest.clone(), why: why.to_owned() }
    }

    fn late(&self, what: &str, limit: Duration) -> Error {
        if Instant::now() >= self.until {
            let why = format!("all its time is over while it waits for {what}: its test takes too long for one boot");
            return Error::Gone { guest: self.guest.clone(), why };
        }
        let said = format!("{}\n{}", text(&self.out), text(&self.err));
        let (guest, tail) = (self.guest.clone(), crate::proc::tail(said.trim_end(), 15));
        Error::Deadline { guest, what: what.to_owned(), seconds: limit.as_secs(), tail }
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
