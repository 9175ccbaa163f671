//! What is known of a partial file: for each chunk its value, and for which version of the source it was verified. One file in
//! the user's state directory for each partial file. It is never synced: it is believed only within the boot and the mount that wrote it, after
//! another one every chunk is hashed again.

use std::io;
use std::sync::Arc;

use crate::fs::{Fs, Ident, Time, read_full, write_full};
use crate::hash::Value;
use crate::name::{Name, RelPath};

const MAGIC: [u8; 8] = *b"LSPANJ01";

/// Where the records begin: behind the header and the longest path.
const RECORDS: u64 = 8192;

/// Bytes of a record: the value, the tag of the version, a checksum.
pub const RECORD_LEN: usize = 48;

/// Which version of a source a chunk belongs to, as far as this boot and this mount of the partial file can tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tag([u8; 8]);

impl Tag {
    /// The tag of a version. One whose times would not tell a later change gets a tag that no other run has; so does one whose mount is
    /// not known: a file system that was taken away and came back may have lost what was not synced.
    ///
    /// # Errors
    /// The error of getrandom(2): the system gives no random numbers.
    pub fn new(ident: &Ident, settled: bool, boot: [u8; 16], mount: Option<u64>) -> io::Result<Tag> {
        let mut once = [0; 16];
        if !settled || mount.is_none() {
            getrandom::fill(&mut once).map_err(|error| io::Error::other(error.to_string()))?;
        }
        let mut hasher = blake3::Hasher::new();
        for n in [ident.dev, ident.ino, ident.size] {
            hasher.update(&n.to_le_bytes());
        }
        for time in [ident.mtime, ident.ctime] {
            hasher.update(&time.sec.to_le_bytes()).update(&time.nsec.to_le_bytes());
        }
        hasher.update(&boot).update(&mount.unwrap_or(0).to_le_bytes()).update(&once);
        Ok(Tag(first_eight(&hasher.finalize())))
    }
}

fn first_eight(hash: &blake3::Hash) -> [u8; 8] {
    let mut eight = [0; 8];
    eight.copy_from_slice(&hash.as_bytes()[..8]);
    eight
}

fn checksum(index: u64, value: &Value, tag: Tag) -> [u8; 8] {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&index.to_le_bytes()).update(value).update(&tag.0);
    first_eight(&hasher.finalize())
}

/// The record of chunk `index`; `None` for bytes that are none, or half of one.
pub fn decode(index: u64, bytes: &[u8; RECORD_LEN]) -> Option<(Value, Tag)> {
    let (mut value, mut tag) = ([0; 32], [0; 8]);
    value.copy_from_slice(&bytes[..32]);
    tag.copy_from_slice(&bytes[32..40]);
    let tag = Tag(tag);
    (checksum(index, &value, tag) == bytes[40..]).then_some((value, tag))
}

/// The reverse.
pub fn encode(index: u64, value: &Value, tag: Tag) -> [u8; RECORD_LEN] {
    let mut bytes = [0; RECORD_LEN];
    bytes[..32].copy_from_slice(value);
    bytes[32..40].copy_from_slice(&tag.0);
    bytes[40..].copy_from_slice(&checksum(index, value, tag));
    bytes
}

/// No file is in this file system and has this number.
pub const UNDERWAY: (u64, u64) = (0, 0);

/// The name of the journal of a partial file, by its number, file system and inode.
pub(crate) fn journal_of(id: u64, part: (u64, u64)) -> Option<Name> {
    Name::any(format!("{id:016x}-{:x}-{:x}.journal", part.0, part.1).as_bytes()).ok()
}

/// Where a partial file lies, for whoever sweeps old ones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Whereabouts {
    /// File system ([`Fs::number`]) and inode of the root of the share.
    pub root: (u64, u64),
    /// Directory below it.
    pub dir: RelPath,
    /// Number in the name of the partial file.
    pub id: u64,
    /// File system and inode of the partial file; [`UNDERWAY`]: all that have no journal, in the directory and below it.
    pub part: (u64, u64),
    /// When it was made.
    pub born: Time,
}

impl Whereabouts {
    /// The first bytes of a journal.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        for n in [
            self.root.0,
            self.root.1,
            self.id,
            self.part.0,
            self.part.1,
            self.born.sec as u64,
            u64::from(self.born.nsec),
            self.dir.bytes().len() as u64,
        ] {
            bytes.extend_from_slice(&n.to_le_bytes());
        }
        bytes.extend_from_slice(self.dir.bytes());
        bytes
    }

    /// Total over any bytes.
    pub fn decode(bytes: &[u8]) -> Option<Whereabouts> {
        let (fields, rest) = bytes.strip_prefix(&MAGIC)?.split_at_checked(64)?;
        let mut numbers = fields.chunks_exact(8).map(|eight| eight.try_into().map_or(0, u64::from_le_bytes));
        let mut next = || numbers.next().unwrap_or(0);
        let (root, id, part) = ((next(), next()), next(), (next(), next()));
        let (born, len) = (Time { sec: next() as i64, nsec: next() as u32 }, next());
        let dir = RelPath::new(rest.get(..usize::try_from(len).ok()?)?).ok()?;
        Some(Whereabouts { root, dir, id, part, born })
    }

    /// The name of its journal.
    pub(crate) fn name(&self) -> Option<Name> {
        journal_of(self.id, self.part)
    }

    /// Reads the head of a journal.
    pub(crate) fn of<F: Fs>(fs: &F, state: &F::Dir, name: &Name) -> Option<Whereabouts> {
        let (file, _) = fs.open_read(state, name, crate::fs::Links::Refuse).ok()?;
        let mut head = vec![0; RECORDS as usize];
        let len = read_full(fs, &file, 0, &mut head).ok()?;
        Whereabouts::decode(&head[..len])
    }
}

/// Beside the journals while a transfer is under way: its small files and links have partial ones without a journal, large ones until it is written. Gone with the value; of
/// one that a kill has left whoever sweeps finds them.
pub(crate) struct Underway<F: Fs> {
    fs: Arc<F>,
    state: Arc<F::Dir>,
    name: Name,
}

impl<F: Fs> Underway<F> {
    pub(crate) fn begin(fs: Arc<F>, state: Arc<F::Dir>, place: &Whereabouts) -> io::Result<Underway<F>> {
        let name = place.name().ok_or(io::ErrorKind::InvalidInput)?;
        let file = fs.create(&state, &name)?;
        let underway = Underway { fs, state, name };
        write_full(&*underway.fs, &file, 0, &place.encode())?;
        Ok(underway)
    }
}

impl<F: Fs> Drop for Underway<F> {
    fn drop(&mut self) {
        // One that stays costs a later sweep time.
        let _ = self.fs.unlink(&self.state, &self.name);
    }
}

/// The journal of one partial file.
pub(crate) struct Journal<F: Fs> {
    file: F::File,
    pub(crate) name: Name,
    tag: Tag,
}

impl<F: Fs> Journal<F> {
    /// Whether that of this partial file is here.
    pub(crate) fn is_there(fs: &F, state: &F::Dir, place: &Whereabouts) -> bool {
        place.name().and_then(|name| Whereabouts::of(fs, state, &name)).as_ref() == Some(place)
    }

    /// That of this partial file. `resumed`: the file was there before, and a journal of it may be.
    pub(crate) fn open(fs: &F, state: &F::Dir, place: &Whereabouts, resumed: bool, tag: Tag) -> io::Result<Journal<F>> {
        let name = place.name().ok_or(io::ErrorKind::InvalidInput)?;
        if let Ok((file, _)) = fs.open_write(state, &name) {
            let mut head = vec![0; RECORDS as usize];
            let len = read_full(fs, &file, 0, &mut head)?;
            if resumed && Whereabouts::decode(&head[..len]).as_ref() == Some(place) {
                return Ok(Journal { file, name, tag });
            }
            // Of another file, which had the same number.
            fs.unlink(state, &name)?;
        }
        let file = fs.create(state, &name)?;
        write_full(fs, &file, 0, &place.encode())?;
        Ok(Journal { file, name, tag })
    }

    /// What is written of a chunk, and whether it was verified for this version of the source in this boot and mount.
    pub(crate) fn get(&self, fs: &F, index: u64) -> Option<(Value, bool)> {
        let mut bytes = [0; RECORD_LEN];
        let at = RECORDS + index * RECORD_LEN as u64;
        if read_full(fs, &self.file, at, &mut bytes).ok()? < RECORD_LEN {
            return None;
        }
        let (value, tag) = decode(index, &bytes)?;
        Some((value, tag == self.tag))
    }

    /// Takes back what is written of a chunk, before its bytes become others.
    pub(crate) fn clear(&self, fs: &F, index: u64) -> io::Result<()> {
        let (at, mut bytes) = (RECORDS + index * RECORD_LEN as u64, [0; RECORD_LEN]);
        if read_full(fs, &self.file, at, &mut bytes).is_ok() && bytes == [0; RECORD_LEN] {
            return Ok(());
        }
        write_full(fs, &self.file, at, &[0; RECORD_LEN])
    }

    /// Takes back what is written of the chunks from this one on.
    pub(crate) fn cut(&self, fs: &F, index: u64) -> io::Result<()> {
        fs.truncate(&self.file, RECORDS + index * RECORD_LEN as u64)
    }

    /// Notes a chunk, whose bytes must have been written before.
    pub(crate) fn put(&self, fs: &F, index: u64, value: &Value) -> io::Result<()> {
        let at = RECORDS + index * RECORD_LEN as u64;
        write_full(fs, &self.file, at, &encode(index, value, self.tag))
    }
}

#[cfg(test)]
mod tests;
