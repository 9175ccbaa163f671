//! The login of one stream: mutual proof that both ends hold the listener's token (and the cluster key, or a key pair that
//! the other trusts, where those are set), agreement on a protocol version, exchange of capabilities. Sans-IO: bytes and time in, bytes out.
//!
//! ```text
//! client                                   server
//! hello   version range, ids, nonce, code  ->           a wrong code: no answer, and the stream is closed
//!                                          <-  reply    version, nonce, code over both; or a refusal
//! confirm capabilities, code               ->           only now does the server know that this is no replay
//!                                          <-  finish   capabilities, code; or a refusal
//! ```
//!
//! `docs/PROTOCOL.md`, "Login", gives every byte. One [`Login`] is driven by one thread at a time.

mod client;
mod error;
mod keys;
mod noise;
mod psk;
mod record;
mod script;
mod secret;
mod server;
mod session;
mod table;
mod wire;

pub use client::ClientParams;
pub use error::{LoginError, Versions};
pub use keys::{Admit, KeyPair, PublicKey, pair_fingerprint};
pub use psk::{PSK_FILE_MAX, PskError, check_mode, parse_psk};
pub use record::{Opener, RECORD_HEAD, RECORD_MAX, RECORD_TAG, RecordError, Sealer};
pub(crate) use secret::{MAC_LEN, derive, mac, mac_is};
pub use secret::{Psk, Secret, Token};
pub use server::ServerParams;
pub use session::{Guard, Seed, Session};
pub use table::{LoginTable, USED_BOUND};
pub use wire::BLOB_MAX;

use client::Client;
use server::Server;
use std::fmt;
use std::time::Duration;

/// Time that a login may take unless told otherwise: ample for four crossings of a slow network, short against the
/// patience of a job.
pub const LOGIN_DEADLINE: Duration = Duration::from_secs(5);

/// How a login stands.
#[derive(Debug)]
pub enum Progress {
    /// It wants bytes, time, or its output sent.
    Pending,
    /// A server without a prepared blob: read [`Login::peer_blob`], then [`Login::answer`].
    Asked,
    /// All is said and sent. Given once.
    Done(Box<Session>),
    /// It failed, and the stream is to be closed; a refusal, if one was due, has been handed out.
    Failed(LoginError),
}

/// What a server knows of the client of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It has said nothing, or not all of a hello.
    Silent,
    /// Its hello has the right code. A hello that was overheard and sent again has it too.
    Hello,
    /// It has answered our nonce, and shown that it has the same cluster key, or a key pair that is admitted.
    Proven,
}

/// What a side does next after a message.
enum Step {
    /// The message is longer: so many bytes in all.
    More(usize),
    /// Done with the message; the next one begins with so many bytes.
    Next(usize),
    /// No bytes until the caller answers.
    Ask,
    /// Logged in.
    Done(Box<Session>),
}

enum Side {
    Client(Client),
    Server(Server),
}

impl Side {
    /// What it waits for, and what to say where the stream ends instead.
    fn waiting(&self) -> (&'static str, &'static str) {
        match self {
            Side::Client(client) => client.waiting(),
            Side::Server(server) => server.waiting(),
        }
    }
}

enum End {
    Open,
    Done(Box<Session>),
    Failed(LoginError),
    Taken,
}

/// One side of one login.
pub struct Login {
    side: Side,
    inbox: Vec<u8>,
    want: usize,
    out: Vec<u8>,
    sent: usize,
    until: Duration,
    allowed: Duration,
    end: End,
}

impl Login {
    /// The side that connected. `now` is the caller's clock, whatever its origin.
    pub fn client(params: ClientParams, seed: Seed, now: Duration) -> Result<Login, LoginError> {
        let allowed = params.deadline;
        let (client, hello) = Client::new(params, seed)?;
        Ok(Login::new(Side::Client(client), hello, wire::REPLY_LEN, now, allowed))
    }

    /// The login of the side that accepted the stream.
    pub fn server(params: ServerParams, seed: Seed, now: Duration) -> Result<Login, LoginError> {
        let allowed = params.deadline;
        let server = Server::new(params, seed)?;
        Ok(Login::new(Side::Server(server), Vec::new(), wire::HELLO_LEN, now, allowed))
    }

    fn new(side: Side, out: Vec<u8>, want: usize, now: Duration, allowed: Duration) -> Login {
        let until = now.saturating_add(allowed);
        Login { side, inbox: Vec::with_capacity(want), want, out, sent: 0, until, allowed, end: End::Open }
    }

    /// Takes bytes from the stream and says how many; the rest belong to what follows the login. Takes none once
    /// the login has ended, and never more than the message at hand needs: the bytes of an unauthenticated client are
    /// bounded by one hello.
    ///
    /// The deadline is [`Login::poll`]'s: what arrived in time is not late because it was read late.
    pub fn feed(&mut self, bytes: &[u8]) -> usize {
        let mut used = 0;
        while matches!(self.end, End::Open) && used < bytes.len() && self.want > 0 {
            let n = (self.want - self.inbox.len()).min(bytes.len() - used);
            self.inbox.extend_from_slice(&bytes[used..used + n]);
            used += n;
            self.look();
        }
        used
    }

    /// Works on what lies in the inbox.
    fn look(&mut self) {
        let step = match &mut self.side {
            Side::Client(client) => client.glance(&self.inbox),
            Side::Server(server) => server.glance(&self.inbox),
        };
        let step = step.and_then(|()| {
            if self.inbox.len() < self.want {
                return Ok(Step::More(self.want));
            }
            match &mut self.side {
                Side::Client(client) => client.step(&self.inbox, &mut self.out),
                Side::Server(server) => server.step(&self.inbox, &mut self.out),
            }
        });
        self.take(step);
    }

    fn take(&mut self, step: Result<Step, LoginError>) {
        match step {
            Ok(Step::More(want)) => self.want = want,
            Ok(Step::Next(want)) => {
                self.inbox.clear();
                self.want = want;
            }
            Ok(Step::Ask) => self.want = 0,
            Ok(Step::Done(session)) => self.end = End::Done(session),
            Err(error) => self.end = End::Failed(error),
        }
    }

    fn tick(&mut self, now: Duration) {
        // A session whose last message is still in the output is not done either.
        let open = match self.end {
            End::Open => true,
            End::Done(_) | End::Failed(_) => !self.output().is_empty(),
            End::Taken => false,
        };
        if open && now >= self.until {
            let waiting = if self.output().is_empty() { self.side.waiting().0 } else { "the peer to take our bytes" };
            self.out.clear();
            self.sent = 0;
            if !matches!(self.end, End::Failed(_)) {
                self.end = End::Failed(LoginError::Deadline { allowed: self.allowed, waiting });
            }
        }
    }

    /// Bytes that the login wants next, at most: reading no more leaves what follows in the stream. 0 where it
    /// wants none.
    pub fn wants(&self) -> usize {
        if matches!(self.end, End::Open) { self.want - self.inbox.len().min(self.want) } else { 0 }
    }

    /// Bytes to send.
    pub fn output(&self) -> &[u8] {
        &self.out[self.sent..]
    }

    /// Notes that the first `n` bytes of [`Login::output`] have been sent.
    pub fn sent(&mut self, n: usize) {
        self.sent = (self.sent + n).min(self.out.len());
        if self.sent == self.out.len() {
            self.out.clear();
            self.sent = 0;
        }
    }

    /// To be called when the peer closed the stream.
    pub fn closed(&mut self) {
        if matches!(self.end, End::Open) {
            let (waiting, hint) = self.side.waiting();
            self.end = End::Failed(LoginError::Closed { waiting, hint });
        }
    }

    /// The state of the login at `now`; it fails where its deadline is over.
    pub fn poll(&mut self, now: Duration) -> Progress {
        self.tick(now);
        if !self.output().is_empty() {
            return Progress::Pending;
        }
        match std::mem::replace(&mut self.end, End::Taken) {
            End::Open => {
                self.end = End::Open;
                match &self.side {
                    Side::Server(server) if server.asks() => Progress::Asked,
                    _ => Progress::Pending,
                }
            }
            End::Done(session) => Progress::Done(session),
            End::Failed(error) => {
                self.end = End::Failed(error.clone());
                Progress::Failed(error)
            }
            End::Taken => Progress::Failed(LoginError::Over("its session was taken")),
        }
    }

    /// The deadline, after which [`Login::poll`] fails.
    pub fn deadline(&self) -> Duration {
        self.until
    }

    /// What a server knows of its client; of a client's server nothing is asked.
    pub fn standing(&self) -> Standing {
        match &self.side {
            Side::Client(_) => Standing::Proven,
            Side::Server(server) => server.standing(),
        }
    }

    /// The client's capabilities, where a server is [`Progress::Asked`] for its own.
    pub fn peer_blob(&self) -> Option<&[u8]> {
        match &self.side {
            Side::Server(server) => server.asked_blob(),
            Side::Client(_) => None,
        }
    }

    /// The server's capabilities, in answer to [`Progress::Asked`].
    pub fn answer(&mut self, blob: &[u8]) -> Result<(), LoginError> {
        let Side::Server(server) = &mut self.side else {
            return Err(LoginError::Over("a client is not asked"));
        };
        if !matches!(self.end, End::Open) || !server.asks() {
            return Err(LoginError::Over("the server is not asked for capabilities"));
        }
        let step = server.answer(blob, &mut self.out);
        let result = step.as_ref().map(|_| ()).map_err(Clone::clone);
        self.take(step);
        result
    }
}

impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let side = if matches!(self.side, Side::Client(_)) { "client" } else { "server" };
        f.debug_struct("Login")
            .field("side", &side)
            .field("waiting", &self.side.waiting().0)
            .field("until", &self.until)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
