//! What an entry of the peer is to the kernel.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fuser::{FileAttr, FileType, INodeNo};
use linkspan_files::fs::{Kind, Time};
use linkspan_files::wire::Entry;

/// statfs(2): what space is counted in.
pub(crate) const BLOCK: u32 = 4096;

/// Files show this owner, whoever has them there.
pub(crate) fn attr(owner: (u32, u32), number: u64, entry: &Entry) -> FileAttr {
    let when = |time: Time| {
        let since = Duration::from_secs(time.sec.unsigned_abs());
        let at = if time.sec < 0 { UNIX_EPOCH.checked_sub(since) } else { UNIX_EPOCH.checked_add(since) };
        // The nanoseconds count upwards before 1970, too.
        let at = at.and_then(|at| at.checked_add(Duration::from_nanos(time.nsec.into())));
        at.unwrap_or(SystemTime::UNIX_EPOCH)
    };
    let mtime = when(entry.mtime);
    FileAttr {
        ino: INodeNo(number),
        size: entry.size,
        // stat(2): blocks count 512 bytes.
        blocks: entry.disk.div_ceil(512),
        atime: mtime,
        mtime,
        ctime: when(entry.ctime),
        crtime: UNIX_EPOCH,
        kind: kind(entry.kind),
        perm: (entry.mode & 0o777) as u16,
        nlink: entry.links.try_into().unwrap_or(u32::MAX),
        uid: owner.0,
        gid: owner.1,
        rdev: 0,
        blksize: BLOCK,
        flags: 0,
    }
}

pub(crate) fn since_1970(time: SystemTime) -> Time {
    match time.duration_since(UNIX_EPOCH) {
        Ok(since) => Time { sec: since.as_secs() as i64, nsec: since.subsec_nanos() },
        // fuser 0.18 takes both from 1970; the kernel's nanoseconds count upwards there, too.
        Err(before) => Time { sec: -(before.duration().as_secs() as i64), nsec: before.duration().subsec_nanos() },
    }
}

/// Sockets, devices and fifos cannot be told apart here, and cannot be opened.
pub(crate) fn kind(kind: Kind) -> FileType {
    match kind {
        Kind::File => FileType::RegularFile,
        Kind::Dir => FileType::Directory,
        Kind::Symlink => FileType::Symlink,
        Kind::Special => FileType::Socket,
    }
}
