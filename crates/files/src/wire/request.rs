//! Requests, answers, and why something was not done.

use std::io;

use rustix::io::Errno;

use super::{ITEMS_MAX, Malformed, Reader, Writer, end};
use crate::fs::{Change, Ident, Kind, OpenHow, Rename, Stat, Time};
use crate::hash::Value;
use crate::name::{Name, RelPath, escape};
use crate::serve::Share;

/// Most bytes that one request reads or writes: with them it is one message.
pub const READ_MAX: u32 = 192 << 10;

/// Most rules about names in one request, and most bytes of one.
pub const RULES_MAX: (usize, usize) = (256, 1024);

/// The receiver is to move to the trash what it has and the sender has not, and what it replaces.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Delete {
    /// Names that may go; without it as many as are no sign of a mistake.
    pub most: Option<u64>,
    /// Rules of gitignore(5): names that stay.
    pub keep: Vec<String>,
}

/// A place on the peer: a share and a path in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerPath {
    /// Name of the share.
    pub share: String,
    /// Path in it.
    pub path: RelPath,
}

/// What a client asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// The shares.
    Shares,
    /// What is known of an entry.
    Stat(PeerPath),
    /// Begins a listing; the answer is its first part.
    List(PeerPath),
    /// The next part of a listing.
    More(u32),
    /// Ends a listing before its end.
    Stop(u32),
    /// What is known of an entry; of a link, of itself.
    Look(PeerPath),
    /// Opens a file.
    Open(PeerPath, OpenHow),
    /// Reads from an open file.
    Read {
        /// Of the file.
        handle: u32,
        /// First byte.
        offset: u64,
        /// At most [`READ_MAX`].
        len: u32,
    },
    /// Writes to an open file.
    Write {
        /// Of the file.
        handle: u32,
        /// First byte; `None`: behind its end.
        offset: Option<u64>,
        /// At most [`READ_MAX`].
        bytes: Vec<u8>,
    },
    /// Changes what is known of a file that is open for writing, also where it has no name any more.
    Change(u32, Change),
    /// What is known of an open file, also where it has no name any more.
    Known(u32),
    /// Waits until an open file is on the disk.
    Sync(u32),
    /// Closes an open file.
    Close(u32),
    /// Waits until the names in a directory are on the disk.
    SyncDir(PeerPath),
    /// Makes something that has no name yet. What it is given must be on the disk by [`Request::SyncDir`], as all that follows up to
    /// [`Request::Move`].
    Make(PeerPath, New),
    /// Gives a file another name in the same share; where a device and a number are given, to that one alone.
    Link(PeerPath, Option<(u64, u64)>, RelPath),
    /// Changes what is known of an entry; where a device and a number are given, of that one alone.
    Set(PeerPath, Option<(u64, u64)>, Change),
    /// Takes a name from a file, or with the flag removes an empty directory.
    Unlink(PeerPath, bool),
    /// Gives an entry another name in the same share.
    Move(PeerPath, RelPath, Rename),
    /// A value that is another one after every boot of the peer: what was not on the disk before may be lost then.
    Boot,
    /// The target of a link.
    Follow(PeerPath),
    /// The size of the share's file system.
    Space(String),
    /// Removes an entry; with the flag a directory and all below it.
    Remove(PeerPath, bool),
    /// Gives an entry another name in the same share; nothing is replaced.
    Rename(PeerPath, RelPath),
    /// Makes a directory, and those above it that are missing.
    Mkdir(PeerPath),
    /// Takes the newest thing that the trash has of this path back to it; of this run alone where one is named.
    Restore(PeerPath, Option<String>),
    /// The mark of a mirror at this directory; sets it where one is given.
    Mark(PeerPath, Option<String>),
    /// Counts what lies below.
    Usage(PeerPath),
    /// The BLAKE3 hash of a file, read back from the disk.
    Hash(PeerPath),
    /// Makes the server the receiver of a transfer to this directory.
    Put {
        /// The directory.
        to: PeerPath,
        /// Say what would be done, change nothing.
        dry_run: bool,
        /// Say "done" without waiting for the disk.
        no_fsync: bool,
        /// Delete what the client has not.
        delete: Option<Delete>,
    },
    /// Makes the server the sender of these entries.
    Get {
        /// What is sent, and its path at the receiver.
        from: Vec<(PeerPath, RelPath)>,
        /// With `user.*` attributes.
        xattrs: bool,
        /// Only say what would be sent.
        dry_run: bool,
        /// Say which names there are, so that the client can delete the others.
        delete: bool,
        /// Rules of gitignore(5): names that are not sent.
        exclude: Vec<String>,
    },
}

/// What [`Request::Make`] makes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum New {
    /// A directory with these permission bits.
    Dir(u32),
    /// A symbolic link with this target.
    Symlink(Vec<u8>),
}

/// What came of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It was done.
    Done,
    /// Names of shares, and whether they can be written.
    Shares(Vec<(String, bool)>),
    /// Of an entry.
    Stat(Entry),
    /// Entries, and the cursor for more where there are any.
    List(Vec<Entry>, Option<u32>),
    /// Below a directory.
    Usage(Sum),
    /// Of a file: its size and hash.
    Hash(u64, Value),
    /// The transfer begins when a bulk connection brings this token.
    Ready([u8; 16]),
    /// The file is open under this number, is this one, and was made then, where its file system knows: numbers are used again. With the
    /// flag a later change has another time, however coarse the clock of its file system.
    Opened(u32, Entry, Time, bool),
    /// What was read, or the target of a link.
    Bytes(Vec<u8>),
    /// Bytes of the file system, and of those the free ones.
    Space(u64, u64),
}

/// One entry of a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Name, any bytes.
    pub name: Vec<u8>,
    /// What it is.
    pub kind: Kind,
    /// Bytes.
    pub size: u64,
    /// Permission bits.
    pub mode: u32,
    /// Last change of the content.
    pub mtime: Time,
    /// Last change of anything.
    pub ctime: Time,
    /// Device of the file system there, less that of the share's root: 0 for most.
    pub dev: u64,
    /// Number within it.
    pub ino: u64,
    /// Bytes on the disk.
    pub disk: u64,
    /// Names that it has.
    pub links: u64,
}

impl Default for Entry {
    fn default() -> Entry {
        let (mtime, ctime) = Default::default();
        let (name, kind) = (Vec::new(), Kind::Special);
        Entry { name, kind, size: 0, mode: 0, mtime, ctime, dev: 0, ino: 0, disk: 0, links: 0 }
    }
}

impl Entry {
    /// `of_root`: device of the share's root, which is another number after some boots.
    pub(crate) fn new(name: &[u8], stat: &Stat, of_root: u64) -> Entry {
        let Stat { kind, size, mode, mtime, ctime, ino, disk, links, .. } = *stat;
        let dev = stat.dev.wrapping_sub(of_root);
        Entry { name: name.to_vec(), kind, size, mode, mtime, ctime, dev, ino, disk, links }
    }

    /// Which file it is, with a content that nobody has changed since.
    pub fn ident(&self) -> Ident {
        Ident { dev: self.dev, ino: self.ino, size: self.size, mtime: self.mtime, ctime: self.ctime }
    }
}

/// What lies below a directory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sum {
    /// Files.
    pub files: u64,
    /// Directories.
    pub dirs: u64,
    /// Everything else.
    pub others: u64,
    /// Bytes of the files.
    pub bytes: u64,
    /// Bytes that they take on the disk.
    pub disk: u64,
    /// Entries that could not be read.
    pub unread: u64,
}

/// What kind of failure it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
#[allow(missing_docs, reason = "the names say it")]
pub enum FaultKind {
    NotFound = 1,
    Denied = 2,
    Exists = 3,
    IsDir = 4,
    NotDir = 5,
    NoSpace = 6,
    ReadOnly = 7,
    Changed = 8,
    WrongData = 9,
    Busy = 10,
    Invalid = 11,
    Io = 12,
    Limit = 13,
    NotEmpty = 14,
    OtherDevice = 15,
    Forbidden = 16,
    Loop = 17,
    Unsupported = 18,
    Running = 19,
    TooManyLinks = 20,
    TooLarge = 21,
}

const KINDS: [FaultKind; 21] = [
    FaultKind::NotFound,
    FaultKind::Denied,
    FaultKind::Exists,
    FaultKind::IsDir,
    FaultKind::NotDir,
    FaultKind::NoSpace,
    FaultKind::ReadOnly,
    FaultKind::Changed,
    FaultKind::WrongData,
    FaultKind::Busy,
    FaultKind::Invalid,
    FaultKind::Io,
    FaultKind::Limit,
    FaultKind::NotEmpty,
    FaultKind::OtherDevice,
    FaultKind::Forbidden,
    FaultKind::Loop,
    FaultKind::Unsupported,
    FaultKind::Running,
    FaultKind::TooManyLinks,
    FaultKind::TooLarge,
];

/// Why something was not done, as it travels.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub struct Fault {
    /// For programs.
    pub kind: FaultKind,
    /// For people.
    pub text: String,
}

/// Longest text of a fault, bytes.
const TEXT_MAX: usize = 300;

impl Fault {
    /// A failure with a text of ours.
    pub fn new(kind: FaultKind, text: impl Into<String>) -> Fault {
        let mut text = text.into();
        text.truncate(text.floor_char_boundary(TEXT_MAX));
        Fault { kind, text }
    }

    /// Bytes that are not those that were sent.
    pub(crate) fn wrong_data(what: &str) -> Fault {
        let text = format!("LS1807 {what} arrived with another hash than it was sent with; send it again");
        Fault::new(FaultKind::WrongData, text)
    }

    /// Bytes that the disk did not take.
    pub(crate) fn unwritten(call: &str, error: &io::Error) -> Fault {
        Fault::io(&format!("LS1808 writing the data to the disk failed ({call})"), error)
    }

    /// A name that the disk did not take.
    pub(crate) fn unnamed(call: &str, error: &io::Error) -> Fault {
        Fault::io(&format!("LS1809 writing the name to the disk failed ({call})"), error)
    }

    /// A system call that failed at something.
    pub fn io(what: &str, error: &io::Error) -> Fault {
        use io::ErrorKind as E;
        let kind = match error.kind() {
            _ if error.raw_os_error() == Some(Errno::PERM.raw_os_error()) => FaultKind::Forbidden,
            _ if error.raw_os_error() == Some(Errno::LOOP.raw_os_error()) => FaultKind::Loop,
            E::NotFound => FaultKind::NotFound,
            E::PermissionDenied => FaultKind::Denied,
            E::AlreadyExists => FaultKind::Exists,
            E::DirectoryNotEmpty => FaultKind::NotEmpty,
            E::IsADirectory => FaultKind::IsDir,
            E::NotADirectory => FaultKind::NotDir,
            E::StorageFull | E::QuotaExceeded => FaultKind::NoSpace,
            E::FileTooLarge => FaultKind::TooLarge,
            E::Unsupported => FaultKind::Unsupported,
            E::ExecutableFileBusy => FaultKind::Running,
            E::TooManyLinks => FaultKind::TooManyLinks,
            E::ReadOnlyFilesystem => FaultKind::ReadOnly,
            E::ResourceBusy => FaultKind::Busy,
            E::InvalidInput | E::InvalidFilename => FaultKind::Invalid,
            E::CrossesDevices => FaultKind::OtherDevice,
            _ => FaultKind::Io,
        };
        Fault::new(kind, format!("{what}: {error}"))
    }

    pub(crate) fn encode<'a>(&self, w: &'a mut Writer) -> &'a mut Writer {
        w.u8(self.kind as u8).bytes(self.text.as_bytes())
    }

    /// Of the text only what can be shown is kept.
    pub(crate) fn decode(r: &mut Reader<'_>) -> Result<Fault, Malformed> {
        let kind = r.u8()?;
        let kind = KINDS.into_iter().find(|k| *k as u8 == kind).ok_or(Malformed("a failure is of no known kind"))?;
        let text = r.bytes()?;
        let text = text.get(..TEXT_MAX).unwrap_or(text);
        // Our own texts hold names that were escaped before: a backslash stays one.
        Ok(Fault::new(kind, escape(text).replace("\\\\", "\\")))
    }
}

impl PeerPath {
    fn encode<'a>(&self, w: &'a mut Writer) -> &'a mut Writer {
        w.bytes(self.share.as_bytes()).bytes(self.path.bytes())
    }

    fn decode(r: &mut Reader<'_>) -> Result<PeerPath, Malformed> {
        Ok(PeerPath { share: r.text()?, path: path(r)? })
    }
}

fn path(r: &mut Reader<'_>) -> Result<RelPath, Malformed> {
    RelPath::new(r.bytes()?).map_err(|_| Malformed("a path is none that can be given to a file"))
}

fn share(r: &mut Reader<'_>) -> Result<String, Malformed> {
    Some(r.text()?).filter(|name| Share::is_name(name)).ok_or(Malformed("a share has a name that none can have"))
}

fn listed(r: &mut Reader<'_>) -> Result<Entry, Malformed> {
    Some(Entry::decode(r)?)
        .filter(|entry| !entry.name.is_empty())
        .ok_or(Malformed("an entry of a directory has no name"))
}

fn some(r: &mut Reader<'_>) -> Result<Option<String>, Malformed> {
    Ok(Some(r.text()?).filter(|text| !text.is_empty()))
}

fn which_out(w: &mut Writer, which: Option<(u64, u64)>) -> &mut Writer {
    let (dev, ino) = which.unwrap_or_default();
    w.flag(which.is_some()).u64(dev).u64(ino)
}

fn which(r: &mut Reader<'_>) -> Result<Option<(u64, u64)>, Malformed> {
    let (one, which) = (r.flag()?, (r.u64()?, r.u64()?));
    Ok(one.then_some(which))
}

fn change_out<'a>(w: &'a mut Writer, Change { mode, size, mtime }: &Change) -> &'a mut Writer {
    w.flag(mode.is_some()).u32(mode.unwrap_or(0)).flag(size.is_some()).u64(size.unwrap_or(0));
    w.flag(mtime.is_some()).flag(*mtime == Some(None)).time(mtime.flatten().unwrap_or_default())
}

fn change(r: &mut Reader<'_>) -> Result<Change, Malformed> {
    let (changes_mode, mode, changes_size, size) = (r.flag()?, r.u32()?, r.flag()?, r.u64()?);
    let (changes_time, now, time) = (r.flag()?, r.flag()?, r.time()?);
    let (mode, size) = (changes_mode.then_some(mode), changes_size.then_some(size));
    Ok(Change { mode, size, mtime: changes_time.then_some((!now).then_some(time)) })
}

fn rules_out<'a>(w: &'a mut Writer, rules: &[String]) -> &'a mut Writer {
    w.u16(rules.len() as u16);
    rules.iter().for_each(|rule| end(w.bytes(rule.as_bytes())));
    w
}

fn rules(r: &mut Reader<'_>) -> Result<Vec<String>, Malformed> {
    let rules = r.list(RULES_MAX.0, Reader::text)?;
    if rules.iter().any(|rule| rule.len() > RULES_MAX.1) {
        return Err(Malformed("a rule about names is too long"));
    }
    Ok(rules)
}

impl Request {
    pub(super) fn encode<'a>(&self, w: &'a mut Writer) -> &'a mut Writer {
        match self {
            Request::Shares => w.u8(1),
            Request::Stat(path) => path.encode(w.u8(2)),
            Request::List(path) => path.encode(w.u8(3)),
            Request::More(cursor) => w.u8(4).u32(*cursor),
            Request::Remove(path, below) => path.encode(w.u8(5)).flag(*below),
            Request::Stop(cursor) => w.u8(11).u32(*cursor),
            Request::Look(path) => path.encode(w.u8(12)),
            Request::Open(path, how) => {
                let OpenHow { read, write, create, exclusive, again } = *how;
                path.encode(w.u8(13)).flag(read).flag(write).flag(create.is_some()).u32(create.unwrap_or(0));
                w.flag(exclusive).flag(again)
            }
            Request::Read { handle, offset, len } => w.u8(14).u32(*handle).u64(*offset).u32(*len),
            Request::Close(handle) => w.u8(15).u32(*handle),
            Request::Write { handle, offset, bytes } => {
                w.u8(21).u32(*handle).flag(offset.is_none()).u64(offset.unwrap_or(0));
                w.u32(bytes.len() as u32).raw(bytes)
            }
            Request::Change(handle, change) => change_out(w.u8(22).u32(*handle), change),
            Request::Known(handle) => w.u8(23).u32(*handle),
            Request::Sync(handle) => w.u8(24).u32(*handle),
            Request::SyncDir(path) => path.encode(w.u8(25)),
            Request::Make(path, New::Dir(mode)) => path.encode(w.u8(26)).u32(*mode),
            Request::Make(path, New::Symlink(target)) => path.encode(w.u8(27)).bytes(target),
            Request::Link(path, which, to) => which_out(path.encode(w.u8(28)), *which).bytes(to.bytes()),
            Request::Set(path, which, change) => change_out(which_out(path.encode(w.u8(29)), *which), change),
            Request::Unlink(path, dir) => path.encode(w.u8(30)).flag(*dir),
            Request::Move(path, to, how) => path.encode(w.u8(31)).bytes(to.bytes()).u8(*how as u8),
            Request::Boot => w.u8(32),
            Request::Follow(path) => path.encode(w.u8(16)),
            Request::Space(share) => w.u8(17).bytes(share.as_bytes()),
            Request::Rename(from, to) => from.encode(w.u8(6)).bytes(to.bytes()),
            Request::Usage(path) => path.encode(w.u8(7)),
            Request::Hash(path) => path.encode(w.u8(8)),
            Request::Mkdir(path) => path.encode(w.u8(18)),
            Request::Restore(path, run) => path.encode(w.u8(19)).bytes(run.as_deref().unwrap_or("").as_bytes()),
            Request::Mark(path, mark) => path.encode(w.u8(20)).bytes(mark.as_deref().unwrap_or("").as_bytes()),
            Request::Put { to, dry_run, no_fsync, delete } => {
                to.encode(w.u8(9)).flag(*dry_run).flag(*no_fsync).flag(delete.is_some());
                if let Some(Delete { most, keep }) = delete {
                    w.flag(most.is_some()).u64(most.unwrap_or(0));
                    rules_out(w, keep);
                }
                w
            }
            Request::Get { from, xattrs, dry_run, delete, exclude } => {
                w.u8(10).flag(*xattrs).flag(*dry_run).flag(*delete);
                rules_out(w, exclude).u16(from.len() as u16);
                from.iter().for_each(|(path, to)| end(path.encode(w).bytes(to.bytes())));
                w
            }
        }
    }

    pub(super) fn decode(r: &mut Reader<'_>) -> Result<Request, Malformed> {
        Ok(match r.u8()? {
            1 => Request::Shares,
            2 => Request::Stat(PeerPath::decode(r)?),
            3 => Request::List(PeerPath::decode(r)?),
            4 => Request::More(r.u32()?),
            5 => Request::Remove(PeerPath::decode(r)?, r.flag()?),
            6 => Request::Rename(PeerPath::decode(r)?, path(r)?),
            7 => Request::Usage(PeerPath::decode(r)?),
            8 => Request::Hash(PeerPath::decode(r)?),
            9 => {
                let (to, dry_run, no_fsync) = (PeerPath::decode(r)?, r.flag()?, r.flag()?);
                let delete = match r.flag()? {
                    true => {
                        let (limited, most) = (r.flag()?, r.u64()?);
                        Some(Delete { most: limited.then_some(most), keep: rules(r)? })
                    }
                    false => None,
                };
                Request::Put { to, dry_run, no_fsync, delete }
            }
            10 => {
                let (xattrs, dry_run, delete, exclude) = (r.flag()?, r.flag()?, r.flag()?, rules(r)?);
                let from = r.list(32, |r| Ok((PeerPath::decode(r)?, path(r)?)))?;
                Request::Get { from, xattrs, dry_run, delete, exclude }
            }
            18 => Request::Mkdir(PeerPath::decode(r)?),
            19 => Request::Restore(PeerPath::decode(r)?, some(r)?),
            20 => Request::Mark(PeerPath::decode(r)?, some(r)?),
            11 => Request::Stop(r.u32()?),
            12 => Request::Look(PeerPath::decode(r)?),
            13 => {
                let (at, read, write) = (PeerPath::decode(r)?, r.flag()?, r.flag()?);
                let (made, mode) = (r.flag()?, r.u32()?);
                let (create, exclusive, again) = (made.then_some(mode), r.flag()?, r.flag()?);
                Request::Open(at, OpenHow { read, write, create, exclusive, again })
            }
            14 => Request::Read { handle: r.u32()?, offset: r.u64()?, len: r.u32()? },
            15 => Request::Close(r.u32()?),
            16 => Request::Follow(PeerPath::decode(r)?),
            17 => Request::Space(r.text()?),
            21 => {
                let (handle, end, offset, len) = (r.u32()?, r.flag()?, r.u64()?, r.u32()?);
                if len > READ_MAX {
                    return Err(Malformed("a write is too long"));
                }
                Request::Write { handle, offset: (!end).then_some(offset), bytes: r.raw(len as usize)?.to_vec() }
            }
            22 => Request::Change(r.u32()?, change(r)?),
            23 => Request::Known(r.u32()?),
            24 => Request::Sync(r.u32()?),
            25 => Request::SyncDir(PeerPath::decode(r)?),
            26 => Request::Make(PeerPath::decode(r)?, New::Dir(r.u32()?)),
            27 => Request::Make(PeerPath::decode(r)?, New::Symlink(r.bytes()?.to_vec())),
            28 => Request::Link(PeerPath::decode(r)?, which(r)?, path(r)?),
            29 => Request::Set(PeerPath::decode(r)?, which(r)?, change(r)?),
            30 => Request::Unlink(PeerPath::decode(r)?, r.flag()?),
            31 => {
                let (at, to) = (PeerPath::decode(r)?, path(r)?);
                let how = match r.u8()? {
                    0 => Rename::NoReplace,
                    1 => Rename::Exchange,
                    2 => Rename::Replace,
                    _ => return Err(Malformed("a name is to be given in no known way")),
                };
                Request::Move(at, to, how)
            }
            32 => Request::Boot,
            _ => return Err(Malformed("a request is of no known kind")),
        })
    }

    /// What it is about, and whether that has to be writable; `None` for those that are no matter of one place.
    pub(crate) fn place(&self) -> Option<(&PeerPath, bool)> {
        match self {
            Request::Stat(at) | Request::Look(at) | Request::Follow(at) | Request::Usage(at) | Request::Hash(at) => {
                Some((at, false))
            }
            Request::Mark(at, mark) => Some((at, mark.is_some())),
            Request::Mkdir(at) | Request::Remove(at, _) | Request::Rename(at, _) | Request::Restore(at, _) => {
                Some((at, true))
            }
            Request::SyncDir(at) | Request::Make(at, _) | Request::Link(at, ..) | Request::Set(at, ..) => {
                Some((at, true))
            }
            Request::Unlink(at, _) | Request::Move(at, ..) => Some((at, true)),
            _ => None,
        }
    }

    /// Whether repeating it would do something twice, or be answered in another way.
    pub fn changes(&self) -> bool {
        match self {
            Request::Remove(..) | Request::Rename(..) | Request::Restore(..) | Request::Make(..) => true,
            Request::Link(..) | Request::Unlink(..) | Request::Move(..) => true,
            // An error of a disk is told once (fsync(2)): a second sync would be good.
            Request::Sync(..) | Request::SyncDir(..) => true,
            Request::Open(_, how) => how.create.is_some() && how.exclusive,
            Request::Write { offset, .. } => offset.is_none(),
            _ => false,
        }
    }
}

impl Answer {
    pub(super) fn encode<'a>(&self, w: &'a mut Writer) -> &'a mut Writer {
        match self {
            Answer::Done => w.u8(1),
            Answer::Shares(shares) => {
                w.u8(2).u16(shares.len() as u16);
                shares.iter().for_each(|(name, writable)| end(w.bytes(name.as_bytes()).flag(*writable)));
                w
            }
            Answer::Stat(entry) => entry.encode(w.u8(3)),
            Answer::List(entries, more) => {
                w.u8(4).flag(more.is_some()).u32(more.unwrap_or(0)).u16(entries.len() as u16);
                entries.iter().for_each(|entry| end(entry.encode(w)));
                w
            }
            Answer::Usage(sum) => {
                let Sum { files, dirs, others, bytes, disk, unread } = sum;
                w.u8(5).u64(*files).u64(*dirs).u64(*others).u64(*bytes).u64(*disk).u64(*unread)
            }
            Answer::Hash(size, hash) => w.u8(6).u64(*size).raw(hash),
            Answer::Ready(token) => w.u8(7).raw(token),
            Answer::Opened(handle, entry, born, settled) => {
                entry.encode(w.u8(8).u32(*handle).time(*born).flag(*settled))
            }
            Answer::Bytes(bytes) => w.u8(9).u32(bytes.len() as u32).raw(bytes),
            Answer::Space(all, free) => w.u8(10).u64(*all).u64(*free),
        }
    }

    pub(super) fn decode(r: &mut Reader<'_>) -> Result<Answer, Malformed> {
        Ok(match r.u8()? {
            1 => Answer::Done,
            2 => Answer::Shares(r.list(1024, |r| Ok((share(r)?, r.flag()?)))?),
            3 => Answer::Stat(Entry::decode(r)?),
            4 => {
                let (more, cursor) = (r.flag()?, r.u32()?);
                Answer::List(r.list(ITEMS_MAX, listed)?, more.then_some(cursor))
            }
            5 => Answer::Usage(Sum {
                files: r.u64()?,
                dirs: r.u64()?,
                others: r.u64()?,
                bytes: r.u64()?,
                disk: r.u64()?,
                unread: r.u64()?,
            }),
            6 => Answer::Hash(r.u64()?, r.array()?),
            7 => Answer::Ready(r.array()?),
            8 => {
                let (handle, born, settled) = (r.u32()?, r.time()?, r.flag()?);
                Answer::Opened(handle, Entry::decode(r)?, born, settled)
            }
            9 => {
                let len = r.u32()?;
                Answer::Bytes(r.raw(len as usize)?.to_vec())
            }
            10 => Answer::Space(r.u64()?, r.u64()?),
            _ => return Err(Malformed("an answer is of no known kind")),
        })
    }
}

impl Entry {
    fn encode<'a>(&self, w: &'a mut Writer) -> &'a mut Writer {
        w.bytes(&self.name).kind(self.kind).u64(self.size).u32(self.mode).time(self.mtime).time(self.ctime);
        w.u64(self.dev).u64(self.ino).u64(self.disk).u64(self.links)
    }

    fn decode(r: &mut Reader<'_>) -> Result<Entry, Malformed> {
        let name = r.bytes()?.to_vec();
        // The root of a share has none.
        if !name.is_empty() && Name::any(&name).is_err() {
            return Err(Malformed("an entry has a name that none can have"));
        }
        let kind = r.kind()?;
        let (size, mode, mtime, ctime) = (r.u64()?, r.u32()?, r.time()?, r.time()?);
        let (dev, ino, disk, links) = (r.u64()?, r.u64()?, r.u64()?, r.u64()?);
        Ok(Entry { name, kind, size, mode, mtime, ctime, dev, ino, disk, links })
    }
}
