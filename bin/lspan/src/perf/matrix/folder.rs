//! The folder by which the ranks of a job find each other and take turns. Small files of JSON, each with one writer: rank 0 makes the folder,
//! says whose turn it is and removes it; every rank puts itself and its results in.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::super::once::Once;

/// What is in the files, and how they are used. Another number is another way.
pub(super) const FORMAT: u32 = 1;

/// Longest file that is read, bytes: a result with sixteen downgrades of 400 characters.
const FILE_MAX: u64 = 64 << 10;

/// What every rank says of itself, rank 0 before all others.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub(super) struct Member {
    pub(super) format: u32,
    /// Of `lspan`.
    pub(super) version: String,
    pub(super) size: usize,
    pub(super) host: String,
    /// The same in two ranks that reach each other by loopback: boot and network namespace.
    pub(super) place: String,
    /// Where its server waits, as ADDRESS:PORT.
    pub(super) addrs: Vec<String>,
    /// Of its server's listener: tells it from others at the same address.
    pub(super) handle: String,
    /// Why it has no server.
    pub(super) error: Option<String>,
}

/// Whose turn it is, and a count that shows that rank 0 lives.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq, Serialize)]
pub(super) struct Turn {
    pub(super) beat: u64,
    pub(super) number: usize,
    pub(super) pair: Option<(usize, usize)>,
    /// There are no further turns; where it ends early, why.
    pub(super) end: Option<String>,
}

/// What a turn led to.
pub(super) type Outcome = Result<Once, String>;

/// The folder of one job.
#[derive(Clone, Debug)]
pub(super) struct Folder(PathBuf);

impl Folder {
    /// The folder of this job below `dir`, which all ranks see; not made yet.
    pub(super) fn of(dir: &Path, job: &str) -> Folder {
        Folder(dir.join(format!("lspan-matrix-{job}")))
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }

    /// Makes it, for this user alone. It must not be there.
    pub(super) fn make(&self) -> io::Result<()> {
        DirBuilder::new().mode(0o700).create(&self.0)
    }

    pub(super) fn is_there(&self) -> bool {
        // A folder that is opened is looked up again on NFS, a name that was not there may be remembered as such.
        fs::read_dir(&self.0).is_ok()
    }

    pub(super) fn remove(&self) {
        let _ = fs::remove_dir_all(&self.0);
    }

    pub(super) fn key(&self) -> PathBuf {
        self.0.join("key")
    }

    /// A new file for this user alone.
    pub(super) fn put_key(&self, text: &[u8]) -> io::Result<()> {
        create(&self.key(), text)
    }

    pub(super) fn member(&self, rank: usize) -> Option<Member> {
        self.read(&format!("rank-{rank}"))
    }

    /// Puts this rank in; it must not be there, or two processes are the same rank.
    pub(super) fn put_member(&self, rank: usize, member: &Member) -> io::Result<()> {
        create(&self.0.join(format!("rank-{rank}")), &serde_json::to_vec(member)?)
    }

    /// Tells rank 0 that this rank has read the end.
    pub(super) fn leave(&self, rank: usize) {
        let _ = fs::remove_file(self.0.join(format!("rank-{rank}")));
    }

    pub(super) fn turn(&self) -> Option<Turn> {
        self.read("turn")
    }

    pub(super) fn put_turn(&self, turn: &Turn) -> io::Result<()> {
        self.replace("turn", &serde_json::to_vec(turn)?)
    }

    pub(super) fn outcome(&self, turn: usize) -> Option<Outcome> {
        self.read(&format!("result-{turn}"))
    }

    pub(super) fn put_outcome(&self, turn: usize, outcome: &Outcome) -> io::Result<()> {
        self.replace(&format!("result-{turn}"), &serde_json::to_vec(outcome)?)
    }

    /// None: it is not there, or not whole yet.
    fn read<T: DeserializeOwned>(&self, name: &str) -> Option<T> {
        let _ = self.is_there();
        let mut bytes = Vec::new();
        fs::File::open(self.0.join(name)).ok()?.take(FILE_MAX).read_to_end(&mut bytes).ok()?;
        serde_json::from_slice(&bytes).ok()
    }

    fn replace(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let part = self.0.join(format!(".{name}"));
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&part)?;
        file.write_all(bytes)?;
        drop(file);
        fs::rename(&part, self.0.join(name))
    }
}

fn create(path: &Path, bytes: &[u8]) -> io::Result<()> {
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?.write_all(bytes)
}
