//! What the engines ask of a file system. Every call names a directory by a descriptor and in it one name, or below it a
//! path that cannot leave it; no call takes a path of the whole system.

use std::io;

use crate::name::{Name, RelPath};

mod real;
mod sorted;
pub use real::{Listing, RealFs};
pub(crate) use sorted::Sorted;

/// What an entry is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A regular file.
    File,
    /// A directory.
    Dir,
    /// A symbolic link.
    Symlink,
    /// A device, socket or fifo.
    Special,
}

/// A time of a file: seconds and nanoseconds since 1970.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time {
    /// Seconds.
    pub sec: i64,
    /// Nanoseconds, below 1e9.
    pub nsec: u32,
}

/// What is known of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stat {
    /// What it is.
    pub kind: Kind,
    /// Device of its file system.
    pub dev: u64,
    /// Number within it.
    pub ino: u64,
    /// Bytes; of a link, of its target.
    pub size: u64,
    /// Bytes on the disk.
    pub disk: u64,
    /// Permission bits with setuid, setgid and sticky.
    pub mode: u32,
    /// Names that it has.
    pub links: u64,
    /// User number of its owner.
    pub uid: u32,
    /// Last change of its content.
    pub mtime: Time,
    /// Last change of anything.
    pub ctime: Time,
}

impl Stat {
    /// Which file it is, with a content that nobody has changed since.
    pub fn ident(&self) -> Ident {
        Ident { dev: self.dev, ino: self.ino, size: self.size, mtime: self.mtime, ctime: self.ctime }
    }
}

/// Identity of a file's content, as long as its host keeps time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ident {
    /// Device of the file system.
    pub dev: u64,
    /// Number within it.
    pub ino: u64,
    /// Bytes.
    pub size: u64,
    /// Last change of the content.
    pub mtime: Time,
    /// Last change of anything; renaming the file changes it too.
    pub ctime: Time,
}

/// How a file is opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpenHow {
    /// It will be read.
    pub read: bool,
    /// It will be written.
    pub write: bool,
    /// It is made with these permission bits where there is none.
    pub create: Option<u32>,
    /// It must be made.
    pub exclusive: bool,
    /// It was open before for that: its owner may go on writing it, whatever its permission bits are.
    pub again: bool,
}

impl OpenHow {
    /// A file that is there, for reading.
    pub const READ: OpenHow = OpenHow { read: true, write: false, create: None, exclusive: false, again: false };
}

/// What is to be another in what is known of an entry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Change {
    /// Permission bits, without setuid, setgid and sticky.
    pub mode: Option<u32>,
    /// Bytes.
    pub size: Option<u64>,
    /// Last change of its content; `Some(None)`: now.
    pub mtime: Option<Option<Time>>,
}

/// How a name is given to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rename {
    /// Only if nothing has the new name.
    NoReplace,
    /// Both change their names.
    Exchange,
    /// What has the new name is gone; only for file systems that can do neither of the others.
    Replace,
}

/// Whether symbolic links on the way are followed. They cannot lead out in either case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Links {
    /// For reading.
    Follow,
    /// For everything that writes, renames or removes.
    Refuse,
}

/// One entry of a directory as it was listed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its name, unchecked.
    pub name: Vec<u8>,
}

/// A file system by descriptors. Offsets and lengths are bytes; reads and writes may be short.
///
/// # Errors
/// Every call fails with the error of the system call that it stands for.
#[allow(missing_docs, reason = "each stands for the system call that its comment names")]
pub trait Fs: Send + Sync + 'static {
    type Dir: Send + Sync + 'static;
    type File: Send + Sync + 'static;
    type List: Iterator<Item = io::Result<Entry>> + Send;

    /// openat2(2) with RESOLVE_BENEATH. The root of `path` is `at` itself.
    fn open_dir(&self, at: &Self::Dir, path: &RelPath, links: Links) -> io::Result<Self::Dir>;
    /// A directory by one name, which may be one of ours; never through a link.
    fn open_child(&self, at: &Self::Dir, name: &Name) -> io::Result<Self::Dir>;
    /// A regular file for reading; anything else fails.
    fn open_read(&self, at: &Self::Dir, name: &Name, links: Links) -> io::Result<(Self::File, Stat)>;
    /// An existing regular file of our own for reading and writing.
    fn open_write(&self, at: &Self::Dir, name: &Name) -> io::Result<(Self::File, Stat)>;
    /// A new file with mode 0600 (O_EXCL).
    fn create(&self, at: &Self::Dir, name: &Name) -> io::Result<Self::File>;
    /// fstatat(2) without following a link.
    fn stat(&self, at: &Self::Dir, name: &Name) -> io::Result<Stat>;
    fn stat_dir(&self, dir: &Self::Dir) -> io::Result<Stat>;
    fn stat_file(&self, file: &Self::File) -> io::Result<Stat>;
    /// When the file was made, where the file system knows (statx(2), STATX_BTIME): numbers of files are used again.
    fn born(&self, file: &Self::File) -> io::Result<Time>;
    /// The mount that the file was reached through, by a number that no other one has in this boot (statx(2), STATX_MNT_ID_UNIQUE);
    /// `None`: the kernel has none (before 6.8).
    fn mount(&self, file: &Self::File) -> io::Result<Option<u64>>;
    /// getdents64(2), without `.` and `..`, in the order of the file system.
    fn list(&self, at: &Self::Dir) -> io::Result<Self::List>;
    fn mkdir(&self, at: &Self::Dir, name: &Name, mode: u32) -> io::Result<()>;
    fn symlink(&self, at: &Self::Dir, name: &Name, target: &[u8]) -> io::Result<()>;
    fn read_link(&self, at: &Self::Dir, name: &Name) -> io::Result<Vec<u8>>;
    fn rename(&self, from: (&Self::Dir, &Name), to: (&Self::Dir, &Name), how: Rename) -> io::Result<()>;
    fn unlink(&self, at: &Self::Dir, name: &Name) -> io::Result<()>;
    fn rmdir(&self, at: &Self::Dir, name: &Name) -> io::Result<()>;

    /// pread(2).
    fn read_at(&self, file: &Self::File, offset: u64, out: &mut [u8]) -> io::Result<usize>;
    /// pwrite(2).
    fn write_at(&self, file: &Self::File, offset: u64, bytes: &[u8]) -> io::Result<usize>;
    /// The next range with data from `offset` (SEEK_DATA, SEEK_HOLE); `None`: only a hole follows.
    fn next_data(&self, file: &Self::File, offset: u64) -> io::Result<Option<(u64, u64)>>;
    /// fallocate(2) of the whole length, where the file system can.
    fn reserve(&self, file: &Self::File, len: u64) -> io::Result<()>;
    /// fallocate(2) with FALLOC_FL_PUNCH_HOLE.
    fn punch(&self, file: &Self::File, offset: u64, len: u64) -> io::Result<()>;
    fn truncate(&self, file: &Self::File, len: u64) -> io::Result<()>;
    /// copy_file_range(2), which shares blocks where the file system can.
    fn copy_range(&self, from: &Self::File, to: &Self::File, offset: u64, len: u64) -> io::Result<u64>;
    /// A copy of a file that shares its blocks and has no name (O_TMPFILE, FICLONE).
    fn clone_file(&self, at: &Self::Dir, file: &Self::File) -> io::Result<Self::File>;
    fn set_times(&self, file: &Self::File, mtime: Time) -> io::Result<()>;
    /// What remains of a time that a file in this directory is given: FAT has 2 s, exFAT 10 ms.
    fn kept_time(&self, at: &Self::Dir, mtime: Time) -> Time;
    fn set_mode(&self, file: &Self::File, mode: u32) -> io::Result<()>;
    fn set_dir_mode(&self, dir: &Self::Dir, mode: u32) -> io::Result<()>;
    /// Names of extended attributes.
    fn list_xattrs(&self, file: &Self::File) -> io::Result<Vec<Vec<u8>>>;
    fn list_dir_xattrs(&self, dir: &Self::Dir) -> io::Result<Vec<Vec<u8>>>;
    fn get_xattr(&self, file: &Self::File, name: &[u8]) -> io::Result<Vec<u8>>;
    fn set_xattr(&self, file: &Self::File, name: &[u8], value: &[u8]) -> io::Result<()>;
    /// fsync(2).
    fn sync(&self, file: &Self::File) -> io::Result<()>;
    fn sync_dir(&self, dir: &Self::Dir) -> io::Result<()>;
    /// Opens a directory for [`Fs::sync_all`].
    fn open_sync(&self, dir: &Self::Dir) -> io::Result<Self::Dir>;
    /// syncfs(2): tells of what could not be written since the descriptor was opened, whoever else was told of it.
    fn sync_all(&self, opened: &Self::Dir) -> io::Result<()>;
    /// flock(2), exclusive; `false`: somebody else has it.
    fn try_lock(&self, file: &Self::File) -> io::Result<bool>;
    /// The number of a directory's file system: its own, which stays where its device gets another one (statvfs(3)), or that of its device.
    fn number(&self, dir: &Self::Dir) -> io::Result<u64>;
    /// Bytes of the file system, and of those the ones that we may still write.
    fn space(&self, dir: &Self::Dir) -> io::Result<(u64, u64)>;
    /// Writes a range to the disk and takes it out of the page cache.
    fn write_behind(&self, file: &Self::File, offset: u64, len: u64) -> io::Result<()>;
    /// Takes a range that was read out of the page cache.
    fn forget(&self, file: &Self::File, offset: u64, len: u64);
    fn now(&self) -> Time;
    /// Lets time pass.
    fn pause(&self, time: std::time::Duration);
    /// Another one after every boot.
    fn boot_id(&self) -> [u8; 16];
}

/// Age of a change, in seconds, from which on a later change has another time, however coarse the clock of a file system.
const SETTLED: i64 = 2;

/// Whether what changes from now on has another time than this one.
pub(crate) fn is_settled<F: Fs>(fs: &F, changed: Time) -> bool {
    changed.sec.saturating_add(SETTLED) < fs.now().sec
}

/// Longest tick of the clocks of file systems that a peer is likely to have, but FAT's: a jiffy at 100 Hz, and one more.
const TICK: std::time::Duration = std::time::Duration::from_millis(20);

/// A file that is being written may change once more in the same tick, and no time would tell. Reading begins after it.
pub(crate) fn await_tick<F: Fs>(fs: &F, changed: Time) {
    let nanos = |time: Time| i128::from(time.sec) * 1_000_000_000 + i128::from(time.nsec);
    if (nanos(fs.now()) - nanos(changed)).unsigned_abs() < TICK.as_nanos() {
        fs.pause(TICK);
    }
}

/// Reads until `out` is full or the file ends.
pub(crate) fn read_full<F: Fs>(fs: &F, file: &F::File, offset: u64, out: &mut [u8]) -> io::Result<usize> {
    let mut have = 0;
    while have < out.len() {
        match fs.read_at(file, offset + have as u64, &mut out[have..]) {
            Ok(0) => break,
            Ok(n) => have += n,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(have)
}

/// Writes all of it.
pub(crate) fn write_full<F: Fs>(fs: &F, file: &F::File, offset: u64, bytes: &[u8]) -> io::Result<()> {
    let mut done = 0;
    while done < bytes.len() {
        match fs.write_at(file, offset + done as u64, &bytes[done..]) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(n) => done += n,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
