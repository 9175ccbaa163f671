//! What goes wrong on purpose.

use std::io;

/// What a file system gets wrong, as if the engine had not asked for it: the histories must find each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bug {
    /// Directories are not synced.
    NoDirSync,
    /// Files are not synced.
    NoFileSync,
    /// syncfs does nothing.
    NoSyncAll,
    /// An error of fsync is taken for success.
    SyncErrorIgnored,
    /// Names are replaced without a look at what they were.
    BlindRename,
    /// Only the time of a change counts: no ctime, no inode number.
    MtimeAlone,
    /// The journal is written before the data that it is about.
    JournalFirst,
    /// A journal is believed after a power loss.
    BootForgotten,
    /// A short write is taken for a whole one.
    ShortWriteIgnored,
    /// The version of the source is not part of what a journal says.
    SourceUnchecked,
    /// A call that has to be repeated is taken for one that found nothing.
    AgainNotFound,
    /// No names are exchanged, as on NFS and FUSE: that is none, and nothing is to be lost.
    NoSwap,
    /// A listing that fails is taken for one that has ended.
    ListingCut,
}

/// Those that the histories of transfers find; the others are found by those of mirrors.
pub const BUGS: [Bug; 10] = [
    Bug::NoDirSync,
    Bug::NoFileSync,
    Bug::NoSyncAll,
    Bug::SyncErrorIgnored,
    Bug::BlindRename,
    Bug::MtimeAlone,
    Bug::JournalFirst,
    Bug::BootForgotten,
    Bug::ShortWriteIgnored,
    Bug::SourceUnchecked,
];

/// What happens at a call that was chosen before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mishap {
    /// The process is killed: nothing answers any more.
    Kill,
    /// This call fails, with data that was not synced lost where it is a sync.
    Fail(io::ErrorKind),
}
