//! Sending and fetching: from arguments to what the engine is told, and again after a lost connection.

use std::collections::BTreeSet;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use linkspan_files::client::{self, Client, Watcher};
use linkspan_files::fs::{Kind, RealFs};
use linkspan_files::name::{RelPath, escape};
use linkspan_files::source::{Load, Start};
use linkspan_files::wire::{Answer, Delete, FaultKind, LeftOut, PeerPath, Request};
use linkspan_files::{Error as FilesError, Outcome, Rules, sink};
use linkspan_topology::{Host, Roots};
use serde_json::{Value, json};

use crate::Error;
use crate::place::{self, Local, Place};

/// How often a transfer is taken up again after its connection was lost, while nothing of it moves.
const TRIES: u32 = 5;

/// Between two tries.
const PAUSE: Duration = Duration::from_millis(300);

/// How something is moved.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct How {
    /// User extended attributes travel.
    pub xattrs: bool,
    /// Nothing is changed, what would be is told.
    pub dry_run: bool,
    /// What was received is not synced to the disk.
    pub no_fsync: bool,
    /// Rules of gitignore(5): names that are passed over.
    pub exclude: Vec<String>,
    /// What the receiver has and the sender has not goes to the trash.
    pub delete: bool,
    /// How many names may go.
    pub max_delete: Option<u64>,
    /// What is replaced goes to the trash, also where nothing is deleted.
    pub keep_replaced: bool,
}

impl How {
    /// The rules, understood.
    ///
    /// # Errors
    /// [`FilesError::Rule`].
    pub fn rules(&self) -> Result<Arc<Rules>, Error> {
        Ok(Arc::new(Rules::new(&self.exclude).map_err(FilesError::from)?))
    }

    fn deletion(&self) -> Option<Delete> {
        match (self.delete, self.keep_replaced) {
            (true, _) => Some(Delete { most: self.max_delete, keep: self.exclude.clone() }),
            // A rule that leaves every name alone: nothing goes but what is replaced.
            (false, true) => Some(Delete { most: Some(0), keep: vec!["*".into()] }),
            (false, false) => None,
        }
    }

    /// As the user's service takes them, to be asked for once more. `own`: those of one kind.
    pub(crate) fn options(&self, own: Value) -> Value {
        let How { xattrs, dry_run, no_fsync, exclude, delete, max_delete, .. } = self;
        let mut all = json!({ "xattrs": xattrs, "dry_run": dry_run, "no_fsync": no_fsync, "exclude": exclude,
            "delete": delete, "max_delete": max_delete });
        if let (Some(all), Value::Object(own)) = (all.as_object_mut(), own) {
            all.extend(own);
        }
        all
    }
}

/// Where journals are: `$XDG_STATE_HOME/linkspan/files`.
///
/// # Errors
/// [`Error::System`].
pub fn journals() -> Result<OwnedFd, Error> {
    let dir = place::state_dir("files")?;
    RealFs::root(&dir).map_err(|error| Error::system(dir.display().to_string(), error))
}

/// Files of more bytes leave the page cache: half of this machine's memory.
pub fn large() -> u64 {
    Host::read(&Roots::default()).memory_bytes / 2
}

/// What of an entry does not travel, in words.
pub fn left_out(why: LeftOut) -> &'static str {
    match why {
        LeftOut::Special => "a device, socket or fifo",
        LeftOut::Acl => "an access control list",
        LeftOut::Security => "security attributes, such as capabilities (security.*)",
        LeftOut::HardLink => "another name of a file, which arrives as a file of its own",
        LeftOut::SetId => "a setuid, setgid or sticky bit",
        LeftOut::Attributes => "attributes: trusted.*, user.* without --xattrs or of directories",
    }
}

/// Entries of this host that go to a peer.
#[derive(Debug)]
pub struct Sending {
    sources: Vec<Local>,
    base: PeerPath,
    paths: Vec<RelPath>,
    rules: Arc<Rules>,
    how: How,
    large: u64,
}

impl Sending {
    /// Asks the peer what is at the place: into a directory, or under a name.
    ///
    /// # Errors
    /// [`Error::Usage`], [`Error::Files`].
    pub fn new(client: &mut Client, sources: Vec<Local>, to: &Place, how: How) -> Result<Sending, Error> {
        let rules = how.rules()?;
        let (base, paths) = destination(client, to, &sources)?;
        Ok(Sending { sources, base, paths, rules, how, large: large() })
    }

    fn starts(&self) -> Vec<Start<RealFs>> {
        let start = |(from, path): (&Local, &RelPath)| Start {
            dir: from.dir.clone(),
            name: Some(from.name.clone()),
            path: path.clone(),
            shallow: false,
            opened: from.opened.clone(),
        };
        self.sources.iter().zip(&self.paths).map(start).collect()
    }

    /// Bytes of all of it. What cannot be counted is not.
    pub fn bytes(&self) -> u64 {
        bytes(&self.sources)
    }

    /// Sends.
    ///
    /// # Errors
    /// As [`Client::send`].
    pub fn run(&self, client: &mut Client, watcher: &mut dyn Watcher) -> Result<Outcome, FilesError> {
        let How { xattrs, dry_run, no_fsync, delete, .. } = self.how;
        let load = Load { xattrs, dry_run, delete, ..Load::new(Arc::new(RealFs), self.large) };
        let load = Load { rules: self.rules.clone(), ..load };
        client.send(load, self.starts(), &self.base, no_fsync, self.how.deletion(), watcher)
    }
}

/// Bytes of these entries and all below them. What cannot be counted is not.
pub fn bytes(of: &[Local]) -> u64 {
    let one = |from: &Local| {
        let usage = match &from.opened {
            Some(dir) => client::usage(dir, &RelPath::default()),
            None => client::usage(&from.dir, &RelPath::new(from.name.bytes()).unwrap_or_default()),
        };
        usage.map_or(0, |sum| sum.bytes)
    };
    of.iter().map(one).sum()
}

/// The paths of several sources, where none is another one's or has it below: each would take what the other brings for something that it
/// has not, which goes with --delete.
fn apart(paths: Vec<RelPath>) -> Result<Vec<RelPath>, Error> {
    let mut seen = BTreeSet::new();
    let twice = paths.iter().find(|path| !seen.insert(*path));
    match twice.or_else(|| seen.first().copied().filter(|path| path.is_root() && seen.len() > 1)) {
        None => Ok(paths),
        Some(path) if path.is_root() => Err(Error::Usage(
            "a whole share goes into no directory together with other sources: name one at a time".into(),
        )),
        Some(path) => {
            let name = escape(path.bytes());
            Err(Error::Usage(format!("two of the sources get the name {name}: name one at a time")))
        }
    }
}

/// The directory at the peer, and the path of each source in it.
fn destination(client: &mut Client, to: &Place, sources: &[Local]) -> Result<(PeerPath, Vec<RelPath>), Error> {
    let kind = match client.request(Request::Stat(to.at())) {
        Ok(Answer::Stat(entry)) => Ok(entry.kind),
        Ok(_) => Ok(Kind::Special),
        Err(FilesError::Refused(fault)) if fault.kind == FaultKind::NotFound => Err(fault),
        Err(error) => return Err(error.into()),
    };
    let bad = |why: &str| Error::Usage(format!("{}:{}/{:?} {why}", to.peer_word(), to.share, to.path));
    if kind == Ok(Kind::Dir) || to.dir || to.path.is_root() {
        kind.map_err(FilesError::Refused)?;
        let path = |from: &Local| {
            RelPath::new(&from.called).map_err(|why| bad(&format!("cannot take {}: {why}", escape(&from.called))))
        };
        return Ok((to.at(), apart(sources.iter().map(path).collect::<Result<_, _>>()?)?));
    }
    if sources.len() > 1 {
        return Err(bad("is no directory there, and several sources need one"));
    }
    let (parent, name) = to.path.split().ok_or_else(|| bad("is no directory there"))?;
    let path = RelPath::default().join(&name).map_err(|why| bad(&why.to_string()))?;
    Ok((PeerPath { share: to.share.clone(), path: parent }, vec![path]))
}

/// Entries of a peer that come to this host.
#[derive(Debug)]
pub struct Fetching {
    root: Arc<OwnedFd>,
    from: Vec<(PeerPath, RelPath)>,
    state: Option<Arc<OwnedFd>>,
    how: How,
    large: u64,
}

impl Fetching {
    /// Into a directory, which is made where it is missing and `to` ends in a slash, or one of them under a new name. `state`: the directory of journals.
    ///
    /// # Errors
    /// [`Error::Usage`], [`Error::System`].
    pub fn new(places: &[Place], to: &Path, state: Option<OwnedFd>, how: How) -> Result<Fetching, Error> {
        how.rules()?;
        let shown = escape(to.as_os_str().as_bytes());
        let failed = |error: std::io::Error| Error::system(shown.clone(), error);
        let bad = |why: String| Error::Usage(format!("{shown}: {why}"));
        let whole_share = places.len() == 1 && places[0].path.is_root();
        let (there, slash) = (to.is_dir(), to.as_os_str().as_bytes().ends_with(b"/"));
        let (root, from) = if there || whole_share || slash {
            let named = |place: &Place| match place.path.split() {
                Some((_, name)) => RelPath::default().join(&name).unwrap_or_default(),
                None => RelPath::default(),
            };
            let paths = apart(places.iter().map(named).collect())?;
            if !there && !how.dry_run {
                std::fs::create_dir(to).map_err(failed)?;
            }
            (to, places.iter().map(Place::at).zip(paths).collect::<Vec<_>>())
        } else if places.len() == 1 {
            let name = to.file_name().ok_or_else(|| bad("it is no directory".into()))?;
            let path = RelPath::new(name.as_bytes()).map_err(|why| bad(why.to_string()))?;
            let parent = to.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
            (parent, vec![(places[0].at(), path)])
        } else {
            return Err(bad("it is no directory, and several sources need one".into()));
        };
        let root = Arc::new(RealFs::root(root).map_err(failed)?);
        Ok(Fetching { root, from, state: state.map(Arc::new), how, large: large() })
    }

    fn place(&self) -> sink::DestDir<RealFs> {
        let (fs, at) = (Arc::new(RealFs), RelPath::default());
        let place = sink::DestDir::new(fs, self.root.clone(), at, self.state.clone(), self.large);
        place.with(self.how.dry_run, self.how.no_fsync, self.how.deletion())
    }

    /// Bytes of all of it, as the peer counts them.
    ///
    /// # Errors
    /// As [`Client::request`].
    pub fn bytes(&self, client: &mut Client) -> Result<u64, Error> {
        let mut total = 0;
        for (at, _) in &self.from {
            if let Answer::Usage(sum) = client.request(Request::Usage(at.clone()))? {
                total += sum.bytes;
            }
        }
        Ok(total)
    }

    /// Removes what earlier transfers to here have left for too long.
    pub fn sweep(&self, say: &dyn Fn(&str)) {
        client::sweep(&self.place(), say);
    }

    /// Fetches.
    ///
    /// # Errors
    /// As [`Client::get`].
    pub fn run(&self, client: &mut Client, watcher: &mut dyn Watcher) -> Result<Outcome, FilesError> {
        client.get(self.from.clone(), self.how.xattrs, self.how.exclude.clone(), self.place(), watcher)
    }
}

/// Who is told of a transfer that goes on over several connections.
pub trait Patient: Watcher {
    /// What has arrived: grows with each file, and with the bytes of one.
    fn arrived(&self) -> u64;
    /// Whether it is to end.
    fn stopped(&self) -> bool;
    /// The connection was lost, and is made again.
    fn lost(&mut self, why: &str);
}

/// Runs a transfer; again after a lost connection, as long as each time something moves.
///
/// # Errors
/// [`FilesError::Lost`] where tries in a row moved nothing, or it was told to stop; every other error of `once` at once.
pub fn drive<P: Patient>(
    patient: &mut P,
    mut once: impl FnMut(&mut P) -> Result<Outcome, FilesError>,
) -> Result<Outcome, FilesError> {
    let mut tries = 0;
    loop {
        let before = patient.arrived();
        match once(patient) {
            Err(error @ FilesError::Lost(_)) if tries < TRIES && !patient.stopped() => {
                tries = if patient.arrived() > before { 0 } else { tries + 1 };
                patient.lost(&error.to_string());
                std::thread::sleep(PAUSE);
            }
            other => return other,
        }
    }
}
