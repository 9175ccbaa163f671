//! A file system that answers at once from memory: `empty DIR BYTES` mounts one with a file `f` of zeros, until it is unmounted. What it
//! reaches is what FUSE reaches here, and no mount of a peer's share can be faster.
#![allow(clippy::unwrap_used, reason = "an instrument: whatever fails ends it")]

use std::ffi::OsStr;
use std::time::{Duration, UNIX_EPOCH};

use fuser::{
    Config, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo, LockOwner, MountOption,
    OpenFlags, ReplyAttr, ReplyData, ReplyEntry, ReplyOpen, Request, Session,
};

const TTL: Duration = Duration::from_secs(1);

/// Longest read of the kernel.
const READ: usize = 1 << 20;

struct Zeros {
    size: u64,
    bytes: Vec<u8>,
}

impl Zeros {
    fn attr(&self, ino: INodeNo) -> FileAttr {
        let root = ino == INodeNo::ROOT;
        FileAttr {
            ino,
            size: if root { 0 } else { self.size },
            blocks: 0,
            atime: UNIX_EPOCH,
            mtime: UNIX_EPOCH,
            ctime: UNIX_EPOCH,
            crtime: UNIX_EPOCH,
            kind: if root { FileType::Directory } else { FileType::RegularFile },
            perm: if root { 0o755 } else { 0o444 },
            nlink: 1,
            uid: 0,
            gid: 0,
            rdev: 0,
            blksize: 4096,
            flags: 0,
        }
    }
}

impl Filesystem for Zeros {
    fn lookup(&self, _: &Request, _: INodeNo, name: &OsStr, reply: ReplyEntry) {
        match name == "f" {
            true => reply.entry(&TTL, &self.attr(INodeNo(2)), Generation(0)),
            false => reply.error(Errno::ENOENT),
        }
    }

    fn getattr(&self, _: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        reply.attr(&TTL, &self.attr(ino));
    }

    fn open(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        reply.opened(FileHandle(0), FopenFlags::empty());
    }

    fn read(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let len = u64::from(size).min(self.size.saturating_sub(offset)) as usize;
        reply.data(&self.bytes[..len.min(READ)]);
    }
}

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let [_, dir, size] = &args[..] else { panic!("usage: empty DIR BYTES") };
    let mut config = Config::default();
    config.mount_options = vec![MountOption::RO, MountOption::FSName("empty".into())];
    config.n_threads = Some(2);
    let zeros = Zeros { size: size.parse().unwrap(), bytes: vec![0; READ] };
    let session = Session::new(zeros, std::path::Path::new(dir), &config).unwrap();
    eprintln!("mounted");
    session.run().unwrap();
}
