//! The side that accepts.

use super::error::{LoginError, Versions};
use super::keys::PublicKey;
use super::noise::Noise;
use super::script::{Script, body, body_len, check_blob};
use super::secret::{Secret, Token};
use super::table::LoginTable;
use super::wire::*;
use super::{Guard, LOGIN_DEADLINE, Seed, Session, Standing, Step};
use std::sync::Arc;
use std::time::Duration;
use zerocopy::little_endian::U16;
use zerocopy::{FromBytes, FromZeros, IntoBytes};

/// What the server knows beforehand.
#[derive(Clone, Debug)]
pub struct ServerParams {
    /// This listener's random number.
    pub listen_id: u64,
    /// This listener's secret.
    pub token: Token,
    /// What guards the stream beside the token.
    pub guard: Guard,
    /// Our capabilities, at most [`BLOB_MAX`] bytes; `None` to be asked once the client's are known.
    pub blob: Option<Vec<u8>>,
    /// Streams that have logged in at this listener.
    pub table: Arc<LoginTable>,
    /// Versions to accept.
    pub versions: Versions,
    /// Time the login may take.
    pub deadline: Duration,
}

impl ServerParams {
    /// Parameters with token guard, empty blob, our versions and the usual deadline.
    pub fn new(listen_id: u64, token: Token, table: Arc<LoginTable>) -> ServerParams {
        ServerParams {
            listen_id,
            token,
            guard: Guard::Token,
            blob: Some(Vec::new()),
            table,
            versions: Versions::OURS,
            deadline: LOGIN_DEADLINE,
        }
    }
}

enum State {
    Hello,
    Confirm,
    Asked(Vec<u8>),
    Over,
}

pub(super) struct Server {
    params: ServerParams,
    script: Script,
    nonce: Secret<32>,
    ephemeral: Option<Secret<32>>,
    noise: Option<Noise>,
    encrypt: bool,
    version: u16,
    conn_id: u64,
    stream: u16,
    peer_key: Option<PublicKey>,
    standing: Standing,
    state: State,
}

impl Server {
    pub(super) fn new(params: ServerParams, seed: Seed) -> Result<Server, LoginError> {
        check_blob(params.blob.as_deref().unwrap_or_default())?;
        if !params.versions.is_sound() {
            return Err(LoginError::Version { ours: params.versions, theirs: Versions::OURS });
        }
        Ok(Server {
            script: Script::new(params.token.clone()),
            nonce: seed.nonce,
            ephemeral: Some(seed.ephemeral),
            noise: None,
            encrypt: false,
            version: 0,
            conn_id: 0,
            stream: 0,
            peer_key: None,
            standing: Standing::Silent,
            state: State::Hello,
            params,
        })
    }

    pub(super) fn waiting(&self) -> (&'static str, &'static str) {
        match self.state {
            State::Hello => ("the hello", "a port scan, or a peer that gave up"),
            State::Confirm => ("the confirm", "the peer gave up or refused our reply; its log names the reason"),
            State::Asked(_) | State::Over => ("our own capabilities", "the peer gave up"),
        }
    }

    pub(super) fn standing(&self) -> Standing {
        self.standing
    }

    pub(super) fn asks(&self) -> bool {
        matches!(self.state, State::Asked(_))
    }

    pub(super) fn asked_blob(&self) -> Option<&[u8]> {
        match &self.state {
            State::Asked(blob) => Some(blob),
            _ => None,
        }
    }

    /// Ends a login early where the first bytes are wrong already.
    pub(super) fn glance(&self, bytes: &[u8]) -> Result<(), LoginError> {
        let n = bytes.len().min(4);
        match self.state {
            State::Hello if bytes[..n] != HELLO_MAGIC[..n] => Err(LoginError::Stranger),
            State::Confirm if bytes[..n] != CONFIRM_MAGIC[..n] => {
                Err(LoginError::Malformed { message: "confirm", why: "begins with other bytes than it should" })
            }
            _ => Ok(()),
        }
    }

    pub(super) fn step(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> Result<Step, LoginError> {
        match self.state {
            State::Hello => self.hello(bytes, out),
            State::Confirm if bytes.len() == LEAD_LEN => {
                let extra = self.noise.as_ref().map_or(0, Noise::extra);
                body_len(bytes, CONFIRM_MAGIC, "confirm", extra).map(Step::More)
            }
            State::Confirm => self.confirm(bytes, out),
            State::Asked(_) | State::Over => Ok(Step::Ask),
        }
    }

    fn hello(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> Result<Step, LoginError> {
        // Up to the proof of the token every failure is silent.
        let hello = Hello::ref_from_bytes(bytes).map_err(|_| LoginError::Stranger)?;
        let ours = self.params.listen_id;
        let asked = hello.listen_id.get();
        if hello.magic != HELLO_MAGIC || hello.role != ROLE_CLIENT {
            return Err(LoginError::Stranger);
        }
        if asked != ours {
            return Err(LoginError::Listener { asked, ours });
        }
        self.script.hear(LABEL_HELLO, "hello", bytes)?;
        self.standing = Standing::Hello;
        (self.conn_id, self.stream) = (hello.conn_id.get(), hello.stream.get());
        // With key pairs it shows at the confirm: only then is it known whose stream it is.
        if self.params.table.is_used(self.conn_id, self.stream) {
            return Err(LoginError::Used { conn_id: self.conn_id, stream: self.stream });
        }
        let theirs = Versions { min: hello.version_min.get(), max: hello.version_max.get() };
        if !theirs.is_sound() {
            return Err(LoginError::Malformed { message: "hello", why: "offers an empty span of versions" });
        }

        let ours = self.params.versions;
        let flags = self.params.guard.flags();
        let refusal = match ours.common(theirs) {
            None => Some((Reason::Version, LoginError::Version { ours, theirs })),
            Some(_) if (hello.flags ^ flags) & FLAGS_METHOD != 0 => Some(match (flags, hello.flags) {
                (ours, _) if ours & FLAG_PSK != 0 => (Reason::PskNeeded, LoginError::PskMissingThere),
                (ours, _) if ours & FLAG_KEYS != 0 => (Reason::KeysNeeded, LoginError::KeysMissingThere),
                (_, theirs) if theirs & FLAG_PSK != 0 => (Reason::PskUnknown, LoginError::PskMissingHere),
                _ => (Reason::KeysUnknown, LoginError::KeysMissingHere),
            }),
            Some(version) if !(Versions::OURS.min..=Versions::OURS.max).contains(&version) => {
                Some((Reason::Version, LoginError::Version { ours: Versions::OURS, theirs }))
            }
            Some(version) => {
                self.version = version;
                None
            }
        };
        self.encrypt = (hello.flags | flags) & FLAG_ENCRYPT != 0 && flags & FLAGS_METHOD != 0;

        let mut reply = Reply::new_zeroed();
        reply.magic = REPLY_MAGIC;
        reply.kind = if refusal.is_some() { KIND_REFUSAL } else { KIND_WELCOME };
        reply.flags = flags | if self.encrypt { FLAG_ENCRYPT } else { 0 };
        reply.version = U16::new(self.version);
        reply.version_min = U16::new(ours.min);
        reply.version_max = U16::new(ours.max);
        reply.reason = U16::new(refusal.as_ref().map_or(0, |(reason, _)| *reason as u16));
        reply.nonce = *self.nonce.expose();
        if let (None, Guard::Keys { own, .. }) = (&refusal, &self.params.guard)
            && let Some(ephemeral) = self.ephemeral.take()
        {
            let prologue = [self.script.said(), &reply.as_bytes()[..REPLY_FIXED]].concat();
            let (noise, first) = Noise::keys_server(own, &prologue, ephemeral)?;
            (self.noise, reply.nonce) = (Some(noise), first);
        }
        let mut reply = reply.as_bytes().to_vec();
        self.script.seal(LABEL_REPLY, &mut reply);
        out.extend_from_slice(&reply);
        if let Some((_, error)) = refusal {
            return Err(error);
        }
        if let (Guard::Psk { psk, .. }, Some(ephemeral)) = (&self.params.guard, self.ephemeral.take()) {
            self.noise = Some(Noise::psk(false, psk, self.script.said(), ephemeral)?);
        }
        self.state = State::Confirm;
        Ok(Step::Next(LEAD_LEN))
    }

    fn confirm(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> Result<Step, LoginError> {
        self.script.hear(LABEL_CONFIRM, "confirm", bytes)?;
        let read = match &mut self.noise {
            Some(noise) => noise.read(body(bytes)),
            None => Ok(body(bytes).to_vec()),
        };
        let judged = read.and_then(|blob| Ok((blob, self.params.guard.judge(self.noise.as_ref())?)));
        let (peer_blob, peer_key) = match judged {
            Ok(judged) => judged,
            Err(error) => {
                let reason = match error {
                    LoginError::PskDiffers => Reason::PskDiffers,
                    LoginError::KeyNotAdmittedHere { .. } => Reason::KeyNotAdmitted,
                    // Whoever cannot prove its key is told nothing.
                    error => return Err(error),
                };
                let reason = (reason as u16).to_le_bytes();
                out.extend_from_slice(&self.script.frame(REFUSAL_MAGIC, LABEL_REFUSAL, &reason));
                return Err(error);
            }
        };
        self.peer_key = peer_key;
        // Between hello and here another stream may have claimed the same number.
        self.params.table.claim(self.conn_id, self.stream, peer_key)?;
        self.standing = Standing::Proven;
        self.state = State::Asked(peer_blob);
        match self.params.blob.take() {
            Some(blob) => self.answer(&blob, out),
            None => Ok(Step::Ask),
        }
    }

    pub(super) fn answer(&mut self, blob: &[u8], out: &mut Vec<u8>) -> Result<Step, LoginError> {
        check_blob(blob)?;
        let State::Asked(peer_blob) = std::mem::replace(&mut self.state, State::Over) else {
            return Err(LoginError::Over("the server is not asked for capabilities"));
        };
        let finish = match &mut self.noise {
            Some(noise) => {
                let message = noise.write(blob)?;
                self.script.frame(FINISH_MAGIC, LABEL_FINISH, &message)
            }
            None => self.script.frame(FINISH_MAGIC, LABEL_FINISH, blob),
        };
        out.extend_from_slice(&finish);
        let psk = matches!(self.params.guard, Guard::Psk { .. });
        let (session_key, ciphers) = self.script.keys(self.noise.take(), self.encrypt, false);
        let (conn_id, stream, version) = (self.conn_id, self.stream, self.version);
        let peer_key = self.peer_key;
        Ok(Step::Done(Box::new(Session { version, conn_id, stream, peer_blob, session_key, psk, peer_key, ciphers })))
    }
}
