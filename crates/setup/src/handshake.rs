//! Rails set up beside one stream, queue pairs or a cable: both sides make theirs, exchange what the transport needs, and tell each other whether they are
//! up. Symmetric; what it ends with is the same on both sides: either all of them or none. Of several cables some may lead to other hosts,
//! or carry nothing: both sides agree on those that do.

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
    /// Packed bytes that wait for the stream.
    out: Vec<u8>,
    inbox: Vec<u8>,
    ours: Option<Result<(), String>>,
    theirs: Option<Result<(), String>>,
    since: Instant,
    /// When we sent our last message.
    said: Option<Instant>,
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
            out: Vec::new(),
            inbox: Vec::new(),
            ours: None,
            theirs: None,
            since: Instant::now(),
            said: None,
            missing: Vec::new(),
        }
    }

    /// Why there are fewer rails than there could be, once it is over; empty where the user need not be told.
    pub fn missing(&mut self) -> Vec<String> {
        std::mem::take(&mut self.missing)
    }

    fn pack(&mut self, stream: &mut Secured, kind: u8, which: usize, content: &[u8]) -> Result<(), MessageError> {
        let mut message = [0; MESSAGE_LEN];
        let len = content.len().min(CONTENT);
        message[0] = kind;
        message[1] = len as u8;
        message[2..4].copy_from_slice(&(which as u16).to_le_bytes());
        message[4..8].copy_from_slice(&(self.count as u32).to_le_bytes());
        message[FRONT..FRONT + len].copy_from_slice(&content[..len]);
        self.out.extend_from_slice(&stream.pack(&message)?);
        Ok(())
    }

    /// Sends our last message.
    fn end(&mut self, stream: &mut Secured, how: Result<(), String>) -> Result<(), MessageError> {
        if self.ours.is_none() {
            let mut text = how.as_ref().err().cloned().unwrap_or_default();
            while text.len() > CONTENT {
                text.pop();
            }
            self.pack(stream, if how.is_ok() { UP } else { REFUSED }, 0, text.as_bytes())?;
            self.said = Some(Instant::now());
            self.ours = Some(how);
        }
        Ok(())
    }

    /// Moves on; `Some` when it is over. The stream is at a message's border then.
    ///
    /// # Errors
    /// [`MessageError`]: the stream ended, or it carries something else than these messages.
    pub fn poll(&mut self, stream: &mut Secured, make: &Make<'_>) -> Result<Option<HandshakeOutcome>, MessageError> {
        if let Some(why) = self.refusal.take() {
            self.end(stream, Err(why))?;
        }
        loop {
            for at in 0..self.setups.len() {
                let setup = &mut self.setups[at];
                let step = setup.poll(Instant::now());
                // Done is done, however late.
                if let Err(why) = step
                    && !self.setups[at].is_done()
                {
                    self.end(stream, Err(why))?;
                }
                let bytes = self.setups[at].output();
                if self.ours.is_none() {
                    bytes.chunks(CONTENT).try_for_each(|part| self.pack(stream, BYTES, at, part))?;
                }
            }
            if self.is_done() {
                self.end(stream, Ok(()))?;
            }
            while !self.out.is_empty() {
                match stream.stream.try_write(&self.out)? {
                    Some(n) => drop(self.out.drain(..n)),
                    None => break,
                }
            }
            if let (Some(ours), Some(theirs), true) = (&self.ours, &self.theirs, self.out.is_empty()) {
                let met = ours.clone().and_then(|()| theirs.clone());
                return Ok(Some(met.and_then(|()| self.rails())));
            }
            if self.said.is_some_and(|at| at.elapsed() > LAST_WORD) || self.since.elapsed() > 12 * LAST_WORD {
                return Err(MessageError::Silent);
            }
            if self.theirs.is_some() {
                return Ok(None);
            }
            let Some(message) = stream.read::<MESSAGE_LEN>(&mut self.inbox)? else { return Ok(None) };
            self.inbox.clear();
            self.heard(stream, &message, make)?;
        }
    }

    fn heard(&mut self, stream: &mut Secured, message: &[u8], make: &Make<'_>) -> Result<(), MessageError> {
        let (which, count) = (usize::from(u16::from_le_bytes([message[2], message[3]])), usize::from(message[4]));
        let content = message[FRONT..].get(..usize::from(message[1])).ok_or(MessageError::Handshake("a length"))?;
        if message[5..8] != [0; 3] || count > QPS_MAX || which >= count.max(1) {
            return Err(MessageError::Handshake("impossible numbers"));
        }
        if self.count == 0 && count > 0 && self.ours.is_none() {
            match make(count) {
                Ok(setups) => (self.count, self.setups) = (count, setups),
                Err(why) => self.end(stream, Err(why))?,
            }
        }
        match message[0] {
            BYTES if self.ours.as_ref().is_some_and(Result::is_err) => {}
            BYTES => {
                let setup = self.setups.get_mut(which).ok_or(MessageError::Handshake("a message for no rail"))?;
                match setup.input(content) {
                    Ok(n) if n == content.len() => {}
                    Ok(_) => self.end(stream, Err("the peer sent more than a handshake".into()))?,
                    Err(why) => self.end(stream, Err(why))?,
                }
            }
            // It says so after its last message of each handshake, so ours are done too.
            UP if self.is_done() || self.ours.is_some() => self.theirs = Some(Ok(())),
            UP => return Err(MessageError::Handshake("its last message too early")),
            REFUSED => {
                let text: String = String::from_utf8_lossy(content).chars().filter(|c| !c.is_control()).collect();
                let why = Err(if text.is_empty() { text } else { format!("the peer says: {text}") });
                self.theirs = Some(why.clone());
                self.end(stream, why)?;
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
