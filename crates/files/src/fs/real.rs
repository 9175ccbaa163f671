//! The file system of this machine.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;

use rustix::fs::{self, AtFlags, FallocateFlags, FlockOperation, Mode, OFlags, RenameFlags, ResolveFlags, SeekFrom};
use rustix::io::Errno;

use super::{Change, Entry, Fs, Kind, Links, OpenHow, Rename, Stat, Time};
use crate::name::{Name, RelPath};

/// Calls that the kernel may ask to repeat while somebody renames directories (openat2(2): EAGAIN).
const TRIES: usize = 64;

/// System calls, by descriptor.
#[derive(Clone, Copy, Debug, Default)]
pub struct RealFs;

impl RealFs {
    /// Opens the root of a share or of a transfer: the one place where a path of the whole system is used.
    ///
    /// # Errors
    /// The error of open(2), as ENOENT, EACCES or ENOTDIR.
    pub fn root(path: &Path) -> io::Result<OwnedFd> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(fs::openat(fs::CWD, path, flags, Mode::empty())?)
    }

    /// A regular file as a program opens it. Where it is made it has these permission bits, whatever this process's umask says.
    ///
    /// # Errors
    /// The error of openat2(2); ELOOP for a link; EOPNOTSUPP for a device, socket or fifo.
    pub(crate) fn open_as(&self, at: &OwnedFd, name: &Name, how: OpenHow) -> io::Result<(OwnedFd, Stat)> {
        let access = match (how.read, how.write) {
            (_, false) => OFlags::RDONLY,
            (false, true) => OFlags::WRONLY,
            (true, true) => OFlags::RDWR,
        };
        let made = |mode| {
            let (bits, flags) = (plain(mode)?, access | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW);
            let file = open_beneath(at, name.bytes(), flags, bits, Links::Refuse)?;
            fs::fchmod(&file, bits)?;
            let stat = known(fs::fstat(&file)?);
            Ok((file, stat))
        };
        let is = |result: &io::Result<_>, kind| result.as_ref().is_err_and(|e: &io::Error| e.kind() == kind);
        // What is not there when it is opened may be there when it is made, and the other way round.
        for _ in 0..TRIES {
            if !how.exclusive {
                let opened = match open_regular(at, name, access, Links::Refuse) {
                    Err(error) if how.again && how.write && error.kind() == io::ErrorKind::PermissionDenied => {
                        open_own(at, name, access)
                    }
                    opened => opened,
                };
                let opened = opened
                    .and_then(|(file, stat)| if how.write { plain_file(&stat) } else { Ok(()) }.map(|()| (file, stat)));
                if how.create.is_none() || !is(&opened, io::ErrorKind::NotFound) {
                    return opened;
                }
            }
            let Some(mode) = how.create else { break };
            let result = made(mode);
            if how.exclusive || !is(&result, io::ErrorKind::AlreadyExists) {
                return result;
            }
        }
        Err(Errno::BUSY.into())
    }

    /// Writes behind the end of a file, wherever that is by now.
    pub(crate) fn append(&self, file: &OwnedFd, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            let piece = [io::IoSlice::new(bytes)];
            match rustix::io::pwritev2(file, &piece, 0, rustix::io::ReadWriteFlags::APPEND) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(n) => bytes = &bytes[n..],
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Changes an entry of a directory, or without a name the directory itself; `which`: only if it has this device and number.
    ///
    /// # Errors
    /// Of fchmodat(2), ftruncate(2) and utimensat(2); ENOENT where it is another one.
    pub(crate) fn change(
        &self,
        at: &OwnedFd,
        name: Option<&Name>,
        which: Option<(u64, u64)>,
        change: &Change,
    ) -> io::Result<Stat> {
        let path = name.map_or(&b"."[..], Name::bytes);
        let (it, stat) = only(at, path, which)?;
        if let Some(size) = change.size {
            plain_file(&stat)?;
            let name = name.ok_or(Errno::ISDIR)?;
            let (file, opened) = open_regular(at, name, OFlags::WRONLY, Links::Refuse)?;
            if (opened.dev, opened.ino) != (stat.dev, stat.ino) {
                return Err(Errno::NOENT.into());
            }
            fs::ftruncate(&file, size)?;
        }
        set_known(&it, &stat, change)
    }

    /// Changes a file that is open for writing.
    ///
    /// # Errors
    /// As [`RealFs::change`]; EACCES where it is open for reading alone.
    pub(crate) fn change_open(&self, file: &OwnedFd, change: &Change) -> io::Result<Stat> {
        // Whoever may not write to a share has none of these.
        if !fs::fcntl_getfl(file)?.intersects(OFlags::WRONLY | OFlags::RDWR) {
            return Err(Errno::ACCESS.into());
        }
        if let Some(size) = change.size {
            fs::ftruncate(file, size)?;
        }
        set_known(file, &known(fs::fstat(file)?), change)
    }

    /// Another name of a file, which is not followed; `which`: only of the one with this device and number.
    ///
    /// # Errors
    /// Of linkat(2); ENOENT where it is another one.
    pub(crate) fn link(
        &self,
        from: (&OwnedFd, &Name),
        which: Option<(u64, u64)>,
        to: (&OwnedFd, &Name),
    ) -> io::Result<()> {
        let (it, _) = only(from.0, from.1.bytes(), which)?;
        // AT_EMPTY_PATH is root's alone before Linux 6.10.
        let (own, number) = (own_fds()?, it.as_raw_fd().to_string());
        Ok(fs::linkat(&own, number, to.0, to.1.bytes(), AtFlags::SYMLINK_FOLLOW)?)
    }
}

/// An entry, which may be a link, and what is known of it; `which`: only the one with this device and number. It can be had without any permission,
/// and stays the same whatever has its name.
fn only(at: &OwnedFd, path: &[u8], which: Option<(u64, u64)>) -> io::Result<(OwnedFd, Stat)> {
    let it = open_beneath(at, path, OFlags::PATH | OFlags::NOFOLLOW, Mode::empty(), Links::Refuse)?;
    let stat = known(fs::fstat(&it)?);
    match which {
        Some(which) if which != (stat.dev, stat.ino) => Err(Errno::NOENT.into()),
        _ => Ok((it, stat)),
    }
}

/// A program that runs as its owner is none to be written: the kernel takes these bits from one that root writes to not away.
fn plain_file(stat: &Stat) -> io::Result<()> {
    if stat.mode & 0o6000 == 0 { Ok(()) } else { Err(Errno::PERM.into()) }
}

/// Mode and times of something that need not be open for anything.
fn set_known(it: &OwnedFd, stat: &Stat, change: &Change) -> io::Result<Stat> {
    if let Some(mode) = change.mode {
        // What the asker does not see stays: setgid and sticky of a directory.
        let mode = plain(mode)? | Mode::from_raw_mode(stat.mode & 0o7000);
        if stat.kind == Kind::Symlink {
            return Err(Errno::OPNOTSUPP.into());
        }
        set_mode(it, mode)?;
    }
    if let Some(mtime) = change.mtime {
        let now = fs::Timespec { tv_sec: 0, tv_nsec: fs::UTIME_NOW as _ };
        let omit = fs::Timespec { tv_sec: 0, tv_nsec: fs::UTIME_OMIT as _ };
        let last_modification =
            mtime.map_or(now, |time| fs::Timespec { tv_sec: time.sec as _, tv_nsec: time.nsec as _ });
        let times = fs::Timestamps { last_access: omit, last_modification };
        fs::utimensat(it, "", &times, AtFlags::EMPTY_PATH)?;
    }
    Ok(known(fs::fstat(it)?))
}

/// proc_pid_fd(5): the one way to the mode of what may not be opened, on kernels without fchmodat2(2) (6.6).
fn set_mode(it: &OwnedFd, mode: Mode) -> io::Result<()> {
    Ok(fs::chmodat(&own_fds()?, it.as_raw_fd().to_string(), mode, AtFlags::empty())?)
}

fn own_fds() -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(fs::openat(fs::CWD, "/proc/self/fd", flags, Mode::empty())?)
}

/// Permission bits; setuid, setgid and sticky no peer gives to a file of ours.
fn plain(mode: u32) -> Result<Mode, Errno> {
    if mode & !0o777 == 0 { Ok(Mode::from_raw_mode(mode)) } else { Err(Errno::PERM) }
}

/// `EAGAIN`: a rename somewhere was in the way; ask again.
fn retried<T>(mut call: impl FnMut() -> Result<T, Errno>) -> io::Result<T> {
    for _ in 0..TRIES {
        match call() {
            Err(Errno::AGAIN | Errno::INTR) => std::thread::yield_now(),
            other => return Ok(other?),
        }
    }
    Err(Errno::BUSY.into())
}

fn beneath(links: Links) -> ResolveFlags {
    let always = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS | ResolveFlags::NO_XDEV;
    if links == Links::Refuse { always | ResolveFlags::NO_SYMLINKS } else { always }
}

fn open_beneath(at: &OwnedFd, path: &[u8], flags: OFlags, mode: Mode, links: Links) -> io::Result<OwnedFd> {
    // openat2(2) refuses with O_PATH what it would ignore.
    let more = if flags.contains(OFlags::PATH) { OFlags::CLOEXEC } else { OFlags::CLOEXEC | OFlags::NOCTTY };
    let flags = flags | more;
    retried(|| fs::openat2(at, path, flags, mode, beneath(links)))
}

/// A regular file and what is known of it; opened so that a fifo or a device does nothing.
fn open_regular(at: &OwnedFd, name: &Name, flags: OFlags, links: Links) -> io::Result<(OwnedFd, Stat)> {
    let flags = flags | OFlags::NONBLOCK;
    let flags = if links == Links::Refuse { flags | OFlags::NOFOLLOW } else { flags };
    let file = open_beneath(at, name.bytes(), flags, Mode::empty(), links)?;
    let stat = known(fs::fstat(&file)?);
    match stat.kind {
        Kind::File => Ok((file, stat)),
        Kind::Dir => Err(Errno::ISDIR.into()),
        _ => Err(Errno::OPNOTSUPP.into()),
    }
}

/// A file whose permission bits keep its owner out, as this process is: they are others for the moment. EACCES: it has another owner.
fn open_own(at: &OwnedFd, name: &Name, access: OFlags) -> io::Result<(OwnedFd, Stat)> {
    let (it, stat) = only(at, name.bytes(), None)?;
    plain_file(&stat)?;
    let mode = Mode::from_raw_mode(stat.mode);
    if stat.kind != Kind::File || set_mode(&it, mode | Mode::RUSR | Mode::WUSR).is_err() {
        return Err(Errno::ACCESS.into());
    }
    let opened = open_regular(at, name, access, Links::Refuse);
    set_mode(&it, mode)?;
    let (file, _) = opened?;
    let stat = known(fs::fstat(&file)?);
    Ok((file, stat))
}

#[allow(clippy::unnecessary_cast, reason = "the types of the fields differ between processors")]
fn known(stat: fs::Stat) -> Stat {
    let mode = stat.st_mode as u32;
    let kind = match fs::FileType::from_raw_mode(mode) {
        fs::FileType::RegularFile => Kind::File,
        fs::FileType::Directory => Kind::Dir,
        fs::FileType::Symlink => Kind::Symlink,
        _ => Kind::Special,
    };
    Stat {
        kind,
        dev: stat.st_dev as u64,
        ino: stat.st_ino as u64,
        size: stat.st_size as u64,
        // stat(2): st_blocks counts 512 bytes.
        disk: stat.st_blocks as u64 * 512,
        mode: mode & 0o7777,
        links: stat.st_nlink as u64,
        uid: stat.st_uid,
        mtime: Time { sec: stat.st_mtime as i64, nsec: stat.st_mtime_nsec as u32 },
        ctime: Time { sec: stat.st_ctime as i64, nsec: stat.st_ctime_nsec as u32 },
    }
}

/// The entries of a directory, a buffer of them at a time.
#[derive(Debug)]
pub struct Listing(fs::Dir);

impl Iterator for Listing {
    type Item = io::Result<Entry>;

    fn next(&mut self) -> Option<io::Result<Entry>> {
        loop {
            match self.0.next()? {
                Err(error) => return Some(Err(error.into())),
                Ok(entry) => match entry.file_name().to_bytes() {
                    b"." | b".." => {}
                    name => return Some(Ok(Entry { name: name.to_vec() })),
                },
            }
        }
    }
}

impl Fs for RealFs {
    type Dir = OwnedFd;
    type File = OwnedFd;
    type List = Listing;

    fn open_dir(&self, at: &OwnedFd, path: &RelPath, links: Links) -> io::Result<OwnedFd> {
        let path = if path.is_root() { b"." } else { path.bytes() };
        open_beneath(at, path, OFlags::PATH | OFlags::DIRECTORY, Mode::empty(), links)
    }

    fn open_child(&self, at: &OwnedFd, name: &Name) -> io::Result<OwnedFd> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW;
        open_beneath(at, name.bytes(), flags, Mode::empty(), Links::Refuse)
    }

    fn open_read(&self, at: &OwnedFd, name: &Name, links: Links) -> io::Result<(OwnedFd, Stat)> {
        open_regular(at, name, OFlags::RDONLY, links)
    }

    fn open_write(&self, at: &OwnedFd, name: &Name) -> io::Result<(OwnedFd, Stat)> {
        open_regular(at, name, OFlags::RDWR, Links::Refuse)
    }

    fn create(&self, at: &OwnedFd, name: &Name) -> io::Result<OwnedFd> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
        open_beneath(at, name.bytes(), flags, Mode::RUSR | Mode::WUSR, Links::Refuse)
    }

    fn stat(&self, at: &OwnedFd, name: &Name) -> io::Result<Stat> {
        Ok(known(fs::statat(at, name.bytes(), AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT)?))
    }

    fn stat_dir(&self, dir: &OwnedFd) -> io::Result<Stat> {
        Ok(known(fs::fstat(dir)?))
    }

    fn stat_file(&self, file: &OwnedFd) -> io::Result<Stat> {
        Ok(known(fs::fstat(file)?))
    }

    fn born(&self, file: &OwnedFd) -> io::Result<Time> {
        let stat = fs::statx(file, "", AtFlags::EMPTY_PATH, fs::StatxFlags::BTIME)?;
        let known = stat.stx_mask & fs::StatxFlags::BTIME.bits() != 0;
        let born = Time { sec: stat.stx_btime.tv_sec, nsec: stat.stx_btime.tv_nsec };
        Ok(if known { born } else { Time::default() })
    }

    fn mount(&self, file: &OwnedFd) -> io::Result<Option<u64>> {
        // STATX_MNT_ID_UNIQUE of linux/stat.h, which rustix does not name.
        let unique = fs::StatxFlags::from_bits_retain(0x4000);
        let stat = fs::statx(file, "", AtFlags::EMPTY_PATH, unique)?;
        Ok((stat.stx_mask & unique.bits() != 0).then_some(stat.stx_mnt_id))
    }

    fn list(&self, at: &OwnedFd) -> io::Result<Listing> {
        Ok(Listing(fs::Dir::new(self.open_sync(at)?)?))
    }

    fn mkdir(&self, at: &OwnedFd, name: &Name, mode: u32) -> io::Result<()> {
        Ok(fs::mkdirat(at, name.bytes(), Mode::from_raw_mode(mode))?)
    }

    fn symlink(&self, at: &OwnedFd, name: &Name, target: &[u8]) -> io::Result<()> {
        Ok(fs::symlinkat(target, at, name.bytes())?)
    }

    fn read_link(&self, at: &OwnedFd, name: &Name) -> io::Result<Vec<u8>> {
        Ok(fs::readlinkat(at, name.bytes(), Vec::new())?.into_bytes())
    }

    fn rename(&self, from: (&OwnedFd, &Name), to: (&OwnedFd, &Name), how: Rename) -> io::Result<()> {
        let flags = match how {
            Rename::NoReplace => RenameFlags::NOREPLACE,
            Rename::Exchange => RenameFlags::EXCHANGE,
            Rename::Replace => RenameFlags::empty(),
        };
        Ok(fs::renameat_with(from.0, from.1.bytes(), to.0, to.1.bytes(), flags)?)
    }

    fn unlink(&self, at: &OwnedFd, name: &Name) -> io::Result<()> {
        Ok(fs::unlinkat(at, name.bytes(), AtFlags::empty())?)
    }

    fn rmdir(&self, at: &OwnedFd, name: &Name) -> io::Result<()> {
        Ok(fs::unlinkat(at, name.bytes(), AtFlags::REMOVEDIR)?)
    }

    fn read_at(&self, file: &OwnedFd, offset: u64, out: &mut [u8]) -> io::Result<usize> {
        Ok(rustix::io::pread(file, out, offset)?)
    }

    fn write_at(&self, file: &OwnedFd, offset: u64, bytes: &[u8]) -> io::Result<usize> {
        Ok(rustix::io::pwrite(file, bytes, offset)?)
    }

    fn next_data(&self, file: &OwnedFd, offset: u64) -> io::Result<Option<(u64, u64)>> {
        let data = match fs::seek(file, SeekFrom::Data(offset)) {
            Ok(data) => data,
            // lseek(2): nothing but a hole follows.
            Err(Errno::NXIO) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        Ok(Some((data, fs::seek(file, SeekFrom::Hole(data))?)))
    }

    fn reserve(&self, file: &OwnedFd, len: u64) -> io::Result<()> {
        match fs::fallocate(file, FallocateFlags::empty(), 0, len) {
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => Ok(()),
            other => Ok(other?),
        }
    }

    fn punch(&self, file: &OwnedFd, offset: u64, len: u64) -> io::Result<()> {
        Ok(fs::fallocate(file, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, offset, len)?)
    }

    fn truncate(&self, file: &OwnedFd, len: u64) -> io::Result<()> {
        Ok(fs::ftruncate(file, len)?)
    }

    fn copy_range(&self, from: &OwnedFd, to: &OwnedFd, offset: u64, len: u64) -> io::Result<u64> {
        let (mut there, mut here) = (offset, offset);
        let copied = fs::copy_file_range(from, Some(&mut there), to, Some(&mut here), len as usize)?;
        Ok(copied as u64)
    }

    fn clone_file(&self, at: &OwnedFd, file: &OwnedFd) -> io::Result<OwnedFd> {
        let copy = open_beneath(at, b".", OFlags::RDWR | OFlags::TMPFILE, Mode::RUSR | Mode::WUSR, Links::Refuse)?;
        fs::ioctl_ficlone(&copy, file)?;
        Ok(copy)
    }

    fn set_times(&self, file: &OwnedFd, mtime: Time) -> io::Result<()> {
        let now = fs::Timespec { tv_sec: 0, tv_nsec: fs::UTIME_NOW as _ };
        let mtime = fs::Timespec { tv_sec: mtime.sec as _, tv_nsec: mtime.nsec as _ };
        Ok(fs::futimens(file, &fs::Timestamps { last_access: now, last_modification: mtime })?)
    }

    fn kept_time(&self, at: &OwnedFd, Time { sec, nsec }: Time) -> Time {
        // Numbers of linux/magic.h. Both round down.
        match fs::fstatfs(at).map(|about| about.f_type) {
            Ok(0x4d44) => Time { sec: sec & !1, nsec: 0 },
            Ok(0x2011_bab0) => Time { sec, nsec: nsec - nsec % 10_000_000 },
            _ => Time { sec, nsec },
        }
    }

    fn set_mode(&self, file: &OwnedFd, mode: u32) -> io::Result<()> {
        Ok(fs::fchmod(file, Mode::from_raw_mode(mode))?)
    }

    fn set_dir_mode(&self, dir: &OwnedFd, mode: u32) -> io::Result<()> {
        set_mode(dir, Mode::from_raw_mode(mode))
    }

    fn list_xattrs(&self, file: &OwnedFd) -> io::Result<Vec<Vec<u8>>> {
        // Most files have none, and few have many.
        let mut few = [0; 512];
        let mut names = Vec::new();
        let listed = match fs::flistxattr(file, &mut few[..]) {
            Err(Errno::RANGE) => {
                // XATTR_LIST_MAX of limits.h.
                names.resize(65536, 0);
                fs::flistxattr(file, &mut names[..])
            }
            listed => {
                names.extend_from_slice(&few[..listed.unwrap_or(0)]);
                listed
            }
        };
        match listed {
            Err(Errno::OPNOTSUPP) => Ok(Vec::new()),
            Err(error) => Err(error.into()),
            Ok(len) => {
                let each = names[..len].split(|&b| b == 0).filter(|name| !name.is_empty());
                Ok(each.map(<[u8]>::to_vec).collect())
            }
        }
    }

    fn list_dir_xattrs(&self, dir: &OwnedFd) -> io::Result<Vec<Vec<u8>>> {
        self.list_xattrs(&self.open_sync(dir)?)
    }

    fn get_xattr(&self, file: &OwnedFd, name: &[u8]) -> io::Result<Vec<u8>> {
        // XATTR_SIZE_MAX of limits.h.
        let mut value = vec![0; 65536];
        let len = fs::fgetxattr(file, name, &mut value[..])?;
        value.truncate(len);
        Ok(value)
    }

    fn set_xattr(&self, file: &OwnedFd, name: &[u8], value: &[u8]) -> io::Result<()> {
        Ok(fs::fsetxattr(file, name, value, fs::XattrFlags::empty())?)
    }

    fn sync(&self, file: &OwnedFd) -> io::Result<()> {
        Ok(fs::fsync(file)?)
    }

    fn sync_dir(&self, dir: &OwnedFd) -> io::Result<()> {
        Ok(fs::fsync(self.open_sync(dir)?)?)
    }

    fn open_sync(&self, dir: &OwnedFd) -> io::Result<OwnedFd> {
        open_beneath(dir, b".", OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty(), Links::Refuse)
    }

    fn sync_all(&self, opened: &OwnedFd) -> io::Result<()> {
        Ok(fs::syncfs(opened)?)
    }

    fn try_lock(&self, file: &OwnedFd) -> io::Result<bool> {
        match fs::flock(file, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK) => Ok(false),
            other => Ok(other.map(|()| true)?),
        }
    }

    fn number(&self, dir: &OwnedFd) -> io::Result<u64> {
        match fs::fstatvfs(dir)?.f_fsid {
            // NFS and FUSE have none.
            0 => Ok(fs::fstat(dir)?.st_dev),
            number => Ok(number),
        }
    }

    fn space(&self, dir: &OwnedFd) -> io::Result<(u64, u64)> {
        let stat = fs::fstatvfs(dir)?;
        Ok((stat.f_blocks.saturating_mul(stat.f_frsize), stat.f_bavail.saturating_mul(stat.f_frsize)))
    }

    fn write_behind(&self, file: &OwnedFd, offset: u64, len: u64) -> io::Result<()> {
        fs::fdatasync(file)?;
        self.forget(file, offset, len);
        Ok(())
    }

    fn forget(&self, file: &OwnedFd, offset: u64, len: u64) {
        let len = std::num::NonZeroU64::new(len);
        // Advice: that it is not taken costs only memory of the page cache.
        let _ = fs::fadvise(file.as_fd(), offset, len, fs::Advice::DontNeed);
    }

    fn now(&self) -> Time {
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        Time { sec: since.as_secs() as i64, nsec: since.subsec_nanos() }
    }

    fn pause(&self, time: std::time::Duration) {
        std::thread::sleep(time);
    }

    fn boot_id(&self) -> [u8; 16] {
        // random(4): a number of its own for every boot. Without it no journal is believed.
        let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
        let mut id = [0; 16];
        match digits.len() {
            32 => id.iter_mut().zip(digits.chunks(2)).for_each(|(byte, pair)| {
                let digit = |b: u8| (b as char).to_digit(16).unwrap_or(0) as u8;
                *byte = digit(pair[0]) << 4 | digit(pair[1]);
            }),
            _ => {
                let _ = getrandom::fill(&mut id);
            }
        }
        id
    }
}
