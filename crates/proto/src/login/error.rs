//! Everything that ends a login without a session.

use super::keys::PublicKey;
use super::wire::BLOB_MAX;
use std::fmt;
use std::time::Duration;

/// A span of protocol versions, ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Versions {
    /// Oldest that is supported.
    pub min: u16,
    /// Newest that is supported.
    pub max: u16,
}

impl Versions {
    /// The versions of this build.
    pub const OURS: Versions = Versions { min: 2, max: 2 };

    /// The newest version that both support.
    pub fn common(self, other: Versions) -> Option<u16> {
        let newest = self.max.min(other.max);
        (newest >= self.min.max(other.min)).then_some(newest)
    }

    pub(super) fn is_sound(self) -> bool {
        self.min >= 1 && self.min <= self.max
    }
}

impl fmt::Display for Versions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.min == self.max { write!(f, "{}", self.min) } else { write!(f, "{} to {}", self.min, self.max) }
    }
}

impl LoginError {
    /// Whether the peer, or this side, refuses for a reason that does not pass: another try ends the same way. Such an
    /// answer is under the listener's token.
    pub fn is_refusal(&self) -> bool {
        matches!(
            self,
            LoginError::Version { .. }
                | LoginError::PskMissingHere
                | LoginError::PskMissingThere
                | LoginError::PskDiffers
                | LoginError::KeysMissingHere
                | LoginError::KeysMissingThere
                | LoginError::KeyNotAdmittedHere { .. }
                | LoginError::KeyNotAdmittedThere { .. }
                | LoginError::Refused { .. }
        )
    }
}

/// Why a login failed. No variant holds a secret.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LoginError {
    /// Not a hello of ours.
    #[error("LS0210 a client connected whose first bytes are not a linkspan login; dropped without a reply")]
    Stranger,
    /// A message of the peer's, yet of the wrong form.
    #[error("LS0211 the peer's {message} message {why}; both hosts need an unmodified linkspan")]
    Malformed {
        /// hello, reply, confirm or finish.
        message: &'static str,
        /// What is wrong.
        why: &'static str,
    },
    /// The code of a message is wrong.
    #[error(
        "LS0212 the authentication code of the peer's {message} message is wrong: the peer does not hold this listener's token (a handle from an earlier run?), or the message was changed in transit"
    )]
    Code {
        /// hello, reply, confirm, finish or refusal.
        message: &'static str,
    },
    /// A hello for another listener.
    #[error(
        "LS0213 the peer asks for listener {asked:016x}, this is listener {ours:016x}: its handle is from an earlier run or another job"
    )]
    Listener {
        /// As in the hello.
        asked: u64,
        /// As configured.
        ours: u64,
    },
    /// No common version.
    #[error(
        "LS0214 this linkspan uses protocol version {ours}, the peer uses {theirs}: install the same release on both hosts"
    )]
    Version {
        /// This side.
        ours: Versions,
        /// The other side.
        theirs: Versions,
    },
    /// The peer has a cluster key, we have none.
    #[error(
        "LS0215 the peer requires the cluster key and this process has none: set LINKSPAN_PSK_FILE to the same key on every host"
    )]
    PskMissingHere,
    /// We have a cluster key, the peer has none.
    #[error(
        "LS0216 this process requires the cluster key and the peer has none: set LINKSPAN_PSK_FILE to the same key on every host, or unset it on all"
    )]
    PskMissingThere,
    /// Both have one, and they differ.
    #[error("LS0217 the peer's cluster key differs from ours: put the same key into LINKSPAN_PSK_FILE on every host")]
    PskDiffers,
    /// The peer logs in by key pairs, we do not.
    #[error(
        "LS0227 the peer logs in by key pairs and this side does not: pair the two hosts with `lspan pair` and name the peer as it is listed by `lspan key list`"
    )]
    KeysMissingHere,
    /// We log in by key pairs, the peer does not.
    #[error(
        "LS0228 this side logs in by key pairs and the peer does not: pair the two hosts with `lspan pair`, and use the peer's name on both"
    )]
    KeysMissingThere,
    /// The peer's key is not one of those that we trust.
    #[error(
        "LS0229 the peer has the key {key:?}, which is not trusted here: pair the two hosts with `lspan pair`, or `lspan key add` the peer's key"
    )]
    KeyNotAdmittedHere {
        /// The peer's.
        key: PublicKey,
    },
    /// The peer does not trust our key.
    #[error(
        "LS0230 the peer does not trust our key {key:?}: pair the two hosts with `lspan pair`, or `lspan key add` it on the peer's host"
    )]
    KeyNotAdmittedThere {
        /// Ours.
        key: PublicKey,
    },
    /// The peer's part of the Noise exchange is wrong.
    #[error(
        "LS0231 the peer did not prove that it has the private half of its key: somebody who read the handle is between the hosts, or the messages were changed in transit"
    )]
    KeyProof,
    /// Time is up.
    #[error(
        "LS0218 the login was not done within {allowed:?}, still waiting for {waiting}: the peer is stopped, overloaded or not a linkspan"
    )]
    Deadline {
        /// The limit.
        allowed: Duration,
        /// What did not come.
        waiting: &'static str,
    },
    /// The stream ended early.
    #[error("LS0219 the peer closed the stream while we waited for {waiting}: {hint}")]
    Closed {
        /// What did not come.
        waiting: &'static str,
        /// The likely reason and the way out.
        hint: &'static str,
    },
    /// The stream has logged in before.
    #[error(
        "LS0220 stream {stream} of connection {conn_id:016x} has logged in already: a repeated or replayed login; dropped without a reply"
    )]
    Used {
        /// The connection.
        conn_id: u64,
        /// The stream.
        stream: u16,
    },
    /// A blob over the limit.
    #[error("LS0221 {whose} capabilities take {len} bytes, the limit is {BLOB_MAX}")]
    Blob {
        /// `our` or `the peer's`.
        whose: &'static str,
        /// Bytes.
        len: usize,
    },
    /// A refusal for a reason that this version does not know.
    #[error(
        "LS0222 the peer uses protocol version {theirs} and refused the login for reason {reason}, which version {ours} does not know: install the same release on both hosts"
    )]
    Refused {
        /// Number in the refusal.
        reason: u16,
        /// This side.
        ours: Versions,
        /// The other side.
        theirs: Versions,
    },
    /// The operating system has no randomness.
    #[error("LS0224 the operating system gave no random bytes (getrandom): nothing can be authenticated without them")]
    Random,
    /// Cryptography refused our own input.
    #[error("LS0225 the Noise handshake could not be made: {0}")]
    Noise(String),
    /// The caller took the session already, or answered twice.
    #[error("LS0226 this login is over: {0}")]
    Over(&'static str),
}
