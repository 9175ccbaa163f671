//! Rails set up beside one stream, queue pairs or a cable: both sides make theirs, exchange what the transport needs, and tell each other whether they are
//! up. Symmetric; what it ends with is the same on both sides: either all of them or none. Of several cables some may lead to other hosts,
//! or carry nothing: both sides agree on those that do.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use linkspan_transport::{BoxRail, Offer, Role, Setup};

use crate::secured::{MessageError, Secured};

/// Bytes of a message of the handshake.
pub const MESSAGE_LEN: usize = 128;

/// ... before its content.
const FRONT: usize = 8;

/// Bytes of content.
const CONTENT: usize = MESSAGE_LEN - FRONT;

/// Most queue pairs of one stream: a connection has eight rails, and one may be kept on standby.
pub const QPS_MAX: usize = 7;

const BYTES: u8 = 1;
const REFUSED: u8 = 2;
const UP: u8 = 3;

/// Messages of a peer, at most: those of seven rails are some dozens.
const MESSAGES_MAX: u32 = 1024;

/// How long the peer may take for its last message after our own.
const LAST_WORD: Duration = Duration::from_secs(5);

/// Makes the sides of `n` rails, or says why there are none.
pub type Make<'a> = dyn Fn(usize) -> Result<Vec<Box<dyn Setup>>, String> + 'a;

/// A handshake under way.
pub struct Handshake {
    setups: Vec<Box<dyn Setup>>,
    /// Why there are none, not said yet.
    refusal: Option<String>,
    /// How many there are to be; 0 until the side that connects has said it.
    count: usize,
    /// Messages that have not been given to the stream.
    out: VecDeque<[u8; MESSAGE_LEN]>,
    /// What our last message said, and when it was sent.
    ours: Option<(Result<(), String>, Instant)>,
    theirs: Option<Result<(), String>>,
    /// Messages of the peer so far.
    heard: u32,
    since: Instant,
    /// Why some did not come up that need not have.
    missing: Vec<String>,
}

/// How a handshake ended.
pub type HandshakeOutcome = Result<Vec<BoxRail>, String>;

impl Handshake {
    /// The side that connected, with what it has: as many rails as it wants.
    pub fn begin(offer: &dyn Offer) -> Handshake {
        let made = offer.make(offer.wanted().clamp(1, QPS_MAX), Role::Caller);
        made.map_or_else(Handshake::decline, Handshake::call)
    }

    /// The same, with the rails it wants.
    pub fn call(setups: Vec<Box<dyn Setup>>) -> Handshake {
        Handshake { count: setups.len(), setups, ..Handshake::answer() }
    }

    /// The side that connected and has none after all.
    pub fn decline(why: String) -> Handshake {
        Handshake { refusal: Some(why), ..Handshake::answer() }
    }

    /// The side that was connected to.
    pub fn answer() -> Handshake {
        Handshake {
            setups: Vec::new(),
            refusal: None,
            count: 0,
            out: VecDeque::new(),
            ours: None,
            theirs: None,
            heard: 0,
            since: Instant::now(),
            missing: Vec::new(),
        }
    }

    /// Why there are fewer rails than there could be, once it is over; empty where the user need not be told.
    pub fn missing(&mut self) -> Vec<String> {
        std::mem::take(&mut self.missing)
    }

    fn say(&mut self, kind: u8, which: usize, content: &[u8]) {
        let mut message = [0; MESSAGE_LEN];
        let len = content.len().min(CONTENT);
        message[0] = kind;
        message[1] = len as u8;
        message[2..4].copy_from_slice(&(which as u16).to_le_bytes());
        message[4..8].copy_from_slice(&(self.count as u32).to_le_bytes());
        message[FRONT..FRONT + len].copy_from_slice(&content[..len]);
        self.out.push_back(message);
    }

    /// Our last message.
    fn end(&mut self, how: Result<(), String>, now: Instant) {
        if self.ours.is_none() {
            let mut text = how.as_ref().err().cloned().unwrap_or_default();
            while text.len() > CONTENT {
                text.pop();
            }
            self.say(if how.is_ok() { UP } else { REFUSED }, 0, text.as_bytes());
            self.ours = Some((how, now));
        }
    }

    /// Carries it out over its stream; `Some` when it is over. The stream is at a message's border then.
    ///
    /// # Errors
    /// [`MessageError`]: the stream ended, or it carries something else than these messages.
    pub fn poll(&mut self, stream: &mut Secured, make: &Make<'_>) -> Result<Option<HandshakeOutcome>, MessageError> {
        loop {
            let now = Instant::now();
            self.advance(now);
            while let Some(message) = self.out.pop_front() {
                stream.send(&message)?;
            }
            let sent = stream.flush()?;
            if let Some(outcome) = self.outcome().filter(|_| sent) {
                return Ok(Some(outcome.and_then(|()| self.rails())));
            }
            // What has arrived counts, however late it is read.
            if self.theirs.is_none()
                && let Some(message) = stream.read()?
            {
                self.input(&message, make, now)?;
                continue;
            }
            if self.ours.as_ref().is_some_and(|(_, at)| now > *at + LAST_WORD) || now > self.since + 12 * LAST_WORD {
                return Err(MessageError::Silent);
            }
            return Ok(None);
        }
    }

    /// What both sides have said.
    fn outcome(&self) -> Option<Result<(), String>> {
        let ((ours, _), theirs) = (self.ours.clone()?, self.theirs.clone()?);
        Some(ours.and(theirs))
    }

    /// Moves our sides of the rails on.
    fn advance(&mut self, now: Instant) {
        if let Some(why) = self.refusal.take() {
            self.end(Err(why), now);
        }
        for at in 0..self.setups.len() {
            // Done is done, however late.
            if let Err(why) = self.setups[at].poll(now)
                && !self.setups[at].is_done()
            {
                self.end(Err(why), now);
            }
            let bytes = self.setups[at].output();
            if self.ours.is_none() {
                bytes.chunks(CONTENT).for_each(|part| self.say(BYTES, at, part));
            }
        }
        if self.is_done() {
            self.end(Ok(()), now);
        }
    }

    /// A message of the peer.
    fn input(&mut self, message: &[u8; MESSAGE_LEN], make: &Make<'_>, now: Instant) -> Result<(), MessageError> {
        let (which, count) = (usize::from(u16::from_le_bytes([message[2], message[3]])), usize::from(message[4]));
        let content = message[FRONT..].get(..usize::from(message[1])).ok_or(MessageError::Handshake("a length"))?;
        self.heard += 1;
        if self.heard > MESSAGES_MAX {
            return Err(MessageError::Handshake("more messages than a handshake has"));
        }
        if message[5..8] != [0; 3] || count > QPS_MAX || which >= count.max(1) {
            return Err(MessageError::Handshake("impossible numbers"));
        }
        if self.count == 0 && count > 0 && self.ours.is_none() {
            match make(count) {
                Ok(setups) => (self.count, self.setups) = (count, setups),
                Err(why) => self.end(Err(why), now),
            }
        }
        match message[0] {
            BYTES if self.ours.as_ref().is_some_and(|(how, _)| how.is_err()) => {}
            BYTES => {
                let setup = self.setups.get_mut(which).ok_or(MessageError::Handshake("a message for no rail"))?;
                match setup.input(content) {
                    Ok(n) if n == content.len() => {}
                    Ok(_) => self.end(Err("the peer sent more than a handshake".into()), now),
                    Err(why) => self.end(Err(why), now),
                }
            }
            // It says so after its last message of each handshake, so ours are done too.
            UP if self.is_done() || self.ours.is_some() => self.theirs = Some(Ok(())),
            UP => return Err(MessageError::Handshake("its last message too early")),
            REFUSED => {
                let text: String = String::from_utf8_lossy(content).chars().filter(|c| !c.is_control()).collect();
                let why = Err(if text.is_empty() { text } else { format!("the peer says: {text}") });
                self.theirs = Some(why.clone());
                self.end(why, now);
            }
            _ => return Err(MessageError::Handshake("a message of an unknown kind")),
        }
        Ok(())
    }

    fn is_done(&self) -> bool {
        self.count > 0 && self.setups.len() == self.count && self.setups.iter().all(|setup| setup.is_done())
    }

    fn rails(&mut self) -> HandshakeOutcome {
        let mut rails = Vec::new();
        for setup in std::mem::take(&mut self.setups) {
            match setup.finish() {
                Ok(rail) => rails.push(rail),
                Err(why) if why.is_empty() => {}
                Err(why) => self.missing.push(why),
            }
        }
        if rails.is_empty() { Err(self.missing().join("; ")) } else { Ok(rails) }
    }
}

#[cfg(test)]
mod tests;
