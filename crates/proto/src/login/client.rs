//! The side that connects.

use super::error::{LoginError, Versions};
use super::noise::Noise;
use super::script::{Script, body, body_len, check_blob};
use super::secret::{Secret, Token};
use super::wire::*;
use super::{Guard, LOGIN_DEADLINE, Seed, Session, Step};
use std::time::Duration;
use zerocopy::little_endian::{U16, U64};
use zerocopy::{FromBytes, FromZeros, IntoBytes};

/// What the client knows beforehand.
#[derive(Clone, Debug)]
pub struct ClientParams {
    /// From the handle.
    pub listen_id: u64,
    /// From the handle.
    pub token: Token,
    /// Random, the same for all streams of one connection.
    pub conn_id: u64,
    /// Which stream of the connection: a number that it has not used lately.
    pub stream: u16,
    /// What guards the stream beside the token.
    pub guard: Guard,
    /// Our capabilities, at most [`BLOB_MAX`] bytes.
    pub blob: Vec<u8>,
    /// Versions to offer.
    pub versions: Versions,
    /// Time the login may take.
    pub deadline: Duration,
}

impl ClientParams {
    /// Parameters with token guard, empty blob, our versions and the usual deadline.
    pub fn new(listen_id: u64, token: Token, conn_id: u64, stream: u16) -> ClientParams {
        ClientParams {
            listen_id,
            token,
            conn_id,
            stream,
            guard: Guard::Token,
            blob: Vec::new(),
            versions: Versions::OURS,
            deadline: LOGIN_DEADLINE,
        }
    }
}

enum State {
    Reply,
    Finish,
}

pub(super) struct Client {
    params: ClientParams,
    script: Script,
    ephemeral: Option<Secret<32>>,
    noise: Option<Noise>,
    encrypt: bool,
    version: u16,
    state: State,
}

impl Client {
    pub(super) fn new(params: ClientParams, seed: Seed) -> Result<(Client, Vec<u8>), LoginError> {
        check_blob(&params.blob)?;
        if !params.versions.is_sound() {
            return Err(LoginError::Version { ours: params.versions, theirs: Versions::OURS });
        }
        let mut hello = Hello::new_zeroed();
        hello.magic = HELLO_MAGIC;
        hello.version_min = U16::new(params.versions.min);
        hello.version_max = U16::new(params.versions.max);
        hello.role = ROLE_CLIENT;
        hello.flags = params.guard.flags();
        hello.stream = U16::new(params.stream);
        hello.listen_id = U64::new(params.listen_id);
        hello.conn_id = U64::new(params.conn_id);
        hello.nonce = *seed.nonce.expose();
        let mut script = Script::new(params.token.clone());
        let mut hello = hello.as_bytes().to_vec();
        script.seal(LABEL_HELLO, &mut hello);
        let client = Client {
            script,
            ephemeral: Some(seed.ephemeral),
            noise: None,
            encrypt: false,
            version: 0,
            state: State::Reply,
            params,
        };
        Ok((client, hello))
    }

    pub(super) fn waiting(&self) -> (&'static str, &'static str) {
        match (&self.state, &self.params.guard) {
            (State::Reply, _) => (
                "the reply",
                "it does not know this handle's listener or token (a handle from an earlier run?), the stream was used before, or it is not a linkspan; start all ranks of the job anew",
            ),
            (State::Finish, Guard::Token) => ("the finish", "the peer's log names the reason"),
            (State::Finish, Guard::Psk { .. }) => {
                ("the finish", "the peer went away, or its cluster key differs; its log names the reason")
            }
            (State::Finish, Guard::Keys { .. }) => {
                ("the finish", "the peer went away, or does not trust our key; its log names the reason")
            }
        }
    }

    /// Ends a login early where the first bytes are wrong already.
    pub(super) fn glance(&self, bytes: &[u8]) -> Result<(), LoginError> {
        let (magics, message) = match self.state {
            State::Reply => (&[REPLY_MAGIC][..], "reply"),
            State::Finish => (&[FINISH_MAGIC, REFUSAL_MAGIC][..], "finish"),
        };
        let n = bytes.len().min(4);
        if magics.iter().any(|magic| bytes[..n] == magic[..n]) {
            Ok(())
        } else {
            Err(LoginError::Malformed {
                message,
                why: "begins with other bytes than it should: no linkspan listens there",
            })
        }
    }

    pub(super) fn step(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> Result<Step, LoginError> {
        match self.state {
            State::Reply => self.reply(bytes, out),
            State::Finish if bytes.starts_with(&REFUSAL_MAGIC) => self.refusal(bytes),
            State::Finish if bytes.len() == LEAD_LEN => {
                let extra = self.noise.as_ref().map_or(0, Noise::extra);
                body_len(bytes, FINISH_MAGIC, "finish", extra).map(Step::More)
            }
            State::Finish => self.finish(bytes),
        }
    }

    fn reply(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> Result<Step, LoginError> {
        let malformed = |why| LoginError::Malformed { message: "reply", why };
        self.script.hear(LABEL_REPLY, "reply", bytes)?;
        let reply = Reply::ref_from_bytes(bytes).map_err(|_| malformed("has a wrong length"))?;
        let ours = self.params.versions;
        let theirs = Versions { min: reply.version_min.get(), max: reply.version_max.get() };
        match reply.kind {
            KIND_WELCOME => {}
            KIND_REFUSAL => return Err(self.refused(reply.reason.get(), ours, theirs)),
            _ => return Err(malformed("is neither a welcome nor a refusal")),
        }
        let version = reply.version.get();
        if ours.common(theirs) != Some(version) {
            return Err(malformed("chooses a version that was not offered"));
        }
        if !(Versions::OURS.min..=Versions::OURS.max).contains(&version) {
            return Err(LoginError::Version { ours: Versions::OURS, theirs });
        }
        self.version = version;
        self.encrypt = reply.flags & FLAG_ENCRYPT != 0;
        let wanted = self.params.guard.flags();
        if (reply.flags ^ wanted) & FLAGS_METHOD != 0
            || wanted & !reply.flags & FLAG_ENCRYPT != 0
            || self.encrypt && reply.flags & FLAGS_METHOD == 0
        {
            return Err(malformed("grants another protection than was asked for"));
        }
        self.noise = match (&self.params.guard, self.ephemeral.take()) {
            (Guard::Psk { psk, .. }, Some(ephemeral)) => Some(Noise::psk(true, psk, self.script.said(), ephemeral)?),
            (Guard::Keys { own, .. }, Some(ephemeral)) => {
                let prologue = &self.script.said()[..HELLO_LEN + REPLY_FIXED];
                Some(Noise::keys_client(own, prologue, &reply.nonce, ephemeral)?)
            }
            _ => None,
        };
        let confirm = match &mut self.noise {
            Some(noise) => {
                let message = noise.write(&self.params.blob)?;
                self.script.frame(CONFIRM_MAGIC, LABEL_CONFIRM, &message)
            }
            None => self.script.frame(CONFIRM_MAGIC, LABEL_CONFIRM, &self.params.blob),
        };
        out.extend_from_slice(&confirm);
        self.state = State::Finish;
        Ok(Step::Next(LEAD_LEN))
    }

    /// A refusal in place of the finish.
    fn refusal(&mut self, bytes: &[u8]) -> Result<Step, LoginError> {
        if bytes.len() < REFUSAL_LEN {
            return Ok(Step::More(REFUSAL_LEN));
        }
        self.script.hear(LABEL_REFUSAL, "refusal", bytes)?;
        let reason = match *body(bytes) {
            [low, high] => u16::from_le_bytes([low, high]),
            _ => 0,
        };
        let version = Versions { min: self.version, max: self.version };
        Err(self.refused(reason, self.params.versions, version))
    }

    fn finish(&mut self, bytes: &[u8]) -> Result<Step, LoginError> {
        self.script.hear(LABEL_FINISH, "finish", bytes)?;
        let peer_blob = match &mut self.noise {
            Some(noise) => noise.read(body(bytes))?,
            None => body(bytes).to_vec(),
        };
        let psk = matches!(self.params.guard, Guard::Psk { .. });
        let peer_key = self.params.guard.judge(self.noise.as_ref())?;
        let (session_key, ciphers) = self.script.keys(self.noise.take(), self.encrypt, true);
        let (conn_id, stream, version) = (self.params.conn_id, self.params.stream, self.version);
        Ok(Step::Done(Box::new(Session { version, conn_id, stream, peer_blob, session_key, psk, peer_key, ciphers })))
    }

    fn refused(&self, reason: u16, ours: Versions, theirs: Versions) -> LoginError {
        match (reason, &self.params.guard) {
            (r, _) if r == Reason::Version as u16 => LoginError::Version { ours, theirs },
            (r, _) if r == Reason::PskNeeded as u16 => LoginError::PskMissingHere,
            (r, _) if r == Reason::PskUnknown as u16 => LoginError::PskMissingThere,
            (r, _) if r == Reason::PskDiffers as u16 => LoginError::PskDiffers,
            (r, _) if r == Reason::KeysNeeded as u16 => LoginError::KeysMissingHere,
            (r, _) if r == Reason::KeysUnknown as u16 => LoginError::KeysMissingThere,
            (r, Guard::Keys { own, .. }) if r == Reason::KeyNotAdmitted as u16 => {
                LoginError::KeyNotAdmittedThere { key: own.public() }
            }
            (reason, _) => LoginError::Refused { reason, ours, theirs },
        }
    }
}
