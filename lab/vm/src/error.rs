//! What can go wrong between here and a guest.

use std::io;
use std::path::PathBuf;

/// Shorthand of this crate.
pub(crate) type Result<T> = std::result::Result<T, Error>;

/// An error of the lab. Guests are named, deadlines are seconds.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// The system refused something on this machine.
    #[error("LS1001: {what}: {source}")]
    Io {
        /// File or deed.
        what: String,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// A program of ours, of Debian or of the root failed.
    #[error("LS1002: {command}: {status}{said}")]
    Command {
        /// What was run.
        command: String,
        /// How it ended.
        status: String,
        /// The end of what it said.
        said: String,
    },
    /// The cache lacks something that setup fetches.
    #[error("LS1003: {path} is not there: run `cargo xtask lab {words}`")]
    NotSetUp {
        /// What is missing.
        path: PathBuf,
        /// The command that fetches or builds it.
        words: String,
    },
    /// There are no Debian packages of ours.
    #[error("LS1012: no packages in {path}: `cargo xtask package deb --on {suite}` makes them")]
    NotPacked {
        /// Where they should be.
        path: PathBuf,
        /// The release that they are made on.
        suite: String,
    },
    /// This machine cannot hold the lab.
    #[error("LS1004: the lab cannot be set up here: {0}")]
    Unfit(String),
    /// Something took longer than it may.
    #[error("LS1005: guest {guest}: {what}: not within {seconds} s{tail}")]
    Deadline {
        /// Name of the guest.
        guest: String,
        /// What was waited for.
        what: String,
        /// How long.
        seconds: u64,
        /// Last lines of its console.
        tail: String,
    },
    /// A command in a guest failed.
    #[error("LS1006: guest {guest}: `{script}` ended with {code}: {said}")]
    Script {
        /// Name of the guest.
        guest: String,
        /// Its first line.
        script: String,
        /// Exit code; 124 its deadline, 128 + n signal n.
        code: i32,
        /// What it said.
        said: String,
    },
    /// The kernel of a guest complained.
    #[error("LS1007: guest {guest}: the kernel says:\n{lines}\nits whole log: {log}")]
    Kernel {
        /// Name of the guest.
        guest: String,
        /// The complaint and what stands around it.
        lines: String,
        /// Where all that it said is kept.
        log: PathBuf,
    },
    /// QEMU ended, or the guest does not answer any more.
    #[error("LS1008: guest {guest} is gone: {why}")]
    Gone {
        /// Name of the guest.
        guest: String,
        /// What is known.
        why: String,
    },
    /// Something is not as the test wants it.
    #[error("LS1009: {0}")]
    Check(String),
    /// A name that is not in a list.
    #[error("LS1010: there is no {kind} {name}: one of {known}")]
    Unknown {
        /// Kind of the thing.
        kind: &'static str,
        /// What was asked for.
        name: String,
        /// What there is.
        known: String,
    },
    /// What came from a guest is not what its agent sends.
    #[error("LS1011: guest {guest}: frame of {len} bytes, kind {kind}: not what an agent sends")]
    Frame {
        /// Name of the guest.
        guest: String,
        /// Length it gave.
        len: u32,
        /// Kind it gave.
        kind: u8,
    },
}

/// Gives an I/O error its place.
pub(crate) trait At<T> {
    /// Names what was being done.
    fn at(self, what: impl std::fmt::Display) -> Result<T>;
}

impl<T> At<T> for io::Result<T> {
    fn at(self, what: impl std::fmt::Display) -> Result<T> {
        self.map_err(|source| Error::Io { what: what.to_string(), source })
    }
}

/// An error of a test unless `held`.
pub(crate) fn check(held: bool, why: impl FnOnce() -> String) -> Result<()> {
    if held { Ok(()) } else { Err(Error::Check(why())) }
}
