//! What both sides have in common: the running transcript under the token, the lead of the last two messages, and
//! the keys at the end.

use super::error::LoginError;
use super::noise::Noise;
use super::record::{Opener, Sealer};
use super::secret::{MAC_LEN, Secret, Token, derive, mac, mac_is};
use super::wire::{BLOB_MAX, LABEL_SESSION, LEAD_LEN, Lead};
use zerocopy::little_endian::U16;
use zerocopy::{FromBytes, IntoBytes};

/// Every message so far, whole, under the listener's token.
pub(super) struct Script {
    token: Token,
    said: Vec<u8>,
}

impl Script {
    pub(super) fn new(token: Token) -> Script {
        Script { token, said: Vec::new() }
    }

    pub(super) fn said(&self) -> &[u8] {
        &self.said
    }

    /// Writes the code into the last bytes of `message` and takes the message up.
    pub(super) fn seal(&mut self, label: &str, message: &mut [u8]) {
        let (body, code) = message.split_at_mut(message.len() - MAC_LEN);
        code.copy_from_slice(&mac(self.token.expose(), label, &[&self.said, body]));
        self.said.extend_from_slice(message);
    }

    /// Checks the code in the last bytes of `message` and takes the message up.
    pub(super) fn hear(&mut self, label: &str, name: &'static str, message: &[u8]) -> Result<(), LoginError> {
        let wrong = LoginError::Code { message: name };
        let (body, code) = message.split_last_chunk::<MAC_LEN>().ok_or(wrong.clone())?;
        if !mac_is(self.token.expose(), label, &[&self.said, body], code) {
            return Err(wrong);
        }
        self.said.extend_from_slice(message);
        Ok(())
    }

    /// A confirm or finish around `body`, sealed and taken up.
    pub(super) fn frame(&mut self, magic: [u8; 4], label: &str, body: &[u8]) -> Vec<u8> {
        let lead = Lead { magic, len: U16::new(body.len() as u16), reserved: [0; 2] };
        let mut message = Vec::with_capacity(LEAD_LEN + body.len() + MAC_LEN);
        message.extend_from_slice(lead.as_bytes());
        message.extend_from_slice(body);
        message.extend_from_slice(&[0; MAC_LEN]);
        self.seal(label, &mut message);
        message
    }

    /// Keys of the finished login. `sends_up` is true on the client.
    pub(super) fn keys(&self, noise: Option<Noise>, encrypt: bool, sends_up: bool) -> Keys {
        let Some(noise) = noise else {
            return (derive(self.token.expose(), LABEL_SESSION, &[&self.said]), None);
        };
        let (up, down) = noise.split();
        let up_key = derive(up.expose(), LABEL_SESSION, &[]);
        let key = derive(up_key.expose(), LABEL_SESSION, &[down.expose(), &self.said]);
        let (ours, theirs) = if sends_up { (&up, &down) } else { (&down, &up) };
        (key, encrypt.then(|| (Sealer::new(ours), Opener::new(theirs))))
    }
}

/// Session key, and ciphers where the stream is encrypted.
pub(super) type Keys = (Secret<32>, Option<(Sealer, Opener)>);

/// The body of a whole confirm or finish.
pub(super) fn body(message: &[u8]) -> &[u8] {
    message.get(LEAD_LEN..message.len().saturating_sub(MAC_LEN)).unwrap_or_default()
}

/// Length of a whole confirm or finish, once its lead is there.
pub(super) fn body_len(lead: &[u8], magic: [u8; 4], message: &'static str, extra: usize) -> Result<usize, LoginError> {
    let lead = Lead::ref_from_bytes(lead).map_err(|_| LoginError::Malformed { message, why: "is cut short" })?;
    if lead.magic != magic {
        return Err(LoginError::Malformed { message, why: "begins with other bytes than it should" });
    }
    let len = usize::from(lead.len.get());
    match len.checked_sub(extra) {
        None => Err(LoginError::Malformed { message, why: "is too short" }),
        Some(blob) if blob > BLOB_MAX => Err(LoginError::Blob { whose: "the peer's", len: blob }),
        Some(_) => Ok(LEAD_LEN + len + MAC_LEN),
    }
}

pub(super) fn check_blob(blob: &[u8]) -> Result<(), LoginError> {
    if blob.len() > BLOB_MAX { Err(LoginError::Blob { whose: "our", len: blob.len() }) } else { Ok(()) }
}
