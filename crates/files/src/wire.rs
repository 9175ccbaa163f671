//! What the two sides say on the control connection. Every message is one byte of kind and its fields; decoding is total.

mod codec;
mod request;

pub use codec::Malformed;
pub(crate) use codec::{Reader, Writer, end};
pub use request::{Answer, Delete, Entry, Fault, FaultKind, New, PeerPath, READ_MAX, RULES_MAX, Request, Sum};

use crate::fs::{Ident, Kind, Time};
use crate::hash::Value;
use crate::name::RelPath;

/// Version of all of it. A peer with another one is refused with a word.
pub const VERSION: u16 = 8;

/// Longest message, bytes.
pub const MESSAGE_MAX: usize = 256 << 10;

/// Bytes of an answer with data before the data.
pub(crate) const BYTES_HEAD: usize = 15;

/// Most items of a batch, and of a pack.
pub const ITEMS_MAX: usize = 512;

/// Most chunk values in one message, and most chunks that one message keeps.
pub const VALUES_MAX: usize = 64;

/// Most bytes of the extended attributes of one file.
pub const XATTRS_MAX: usize = 16 << 10;

/// Bytes of an encoded remote buffer.
pub const REMOTE_LEN: usize = 40;

/// One entry that the sender has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    /// Where it goes, from the place of the transfer.
    pub path: RelPath,
    /// What it is.
    pub what: What,
}

/// What an entry is, as far as it travels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// A directory with its permissions.
    Dir {
        /// Permission bits.
        mode: u32,
    },
    /// A symbolic link with its target.
    Link {
        /// As it stands there, unchecked: nobody follows it here.
        target: Vec<u8>,
    },
    /// A file.
    File(FileInfo),
    /// Something of this name is there and is not sent: the receiver's stays as it is.
    Present,
    /// All names of this directory follow, in the order of their bytes. Only where the receiver is to delete what the sender has not.
    Begin,
    /// They have been.
    End,
}

/// What the receiver has and the sender has not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extra {
    /// What it is.
    pub kind: Kind,
    /// Bytes of a file.
    pub size: u64,
    /// Last change of the content.
    pub mtime: Time,
}

/// What is told of a file before its bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileInfo {
    /// Identity at the sender; the size is that of the file.
    pub ident: Ident,
    /// It changed last long enough ago that its times would tell a later change.
    pub settled: bool,
    /// Bytes on the sender's disk.
    pub disk: u64,
    /// Permission bits.
    pub mode: u32,
    /// `user.*` attributes, where they were asked for.
    pub xattrs: Vec<(Vec<u8>, Vec<u8>)>,
}

impl FileInfo {
    /// Whether it has holes.
    pub fn sparse(&self) -> bool {
        self.disk < self.ident.size
    }
}

/// Which file of which batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    /// Number of the batch.
    pub batch: u32,
    /// Index in it.
    pub index: u16,
}

/// What the receiver answers to an item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is there already.
    Have,
    /// It was made, or would be: a directory or a link.
    Made,
    /// All of it is wanted.
    Want,
    /// The receiver has something to compare with: ask for chunk values.
    Compare,
    /// Not taken.
    Refused(Fault),
}

/// What the receiver knows of a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Known {
    /// Nothing.
    Nothing,
    /// It has this content, maybe of another version of the file.
    Content(Value),
    /// It has this content, which it got from this very version of the file.
    Verified(Value),
}

/// What one side says of an entry beside the transfer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Note {
    /// It could not be read.
    Failed(Fault),
    /// Something of it is left out by design.
    LeftOut(LeftOut),
    /// Said by the receiver: the sender has nothing of this name. It is in the trash now, or would be.
    Extra(Extra),
}

/// What is left out by design.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum LeftOut {
    /// A device, socket or fifo.
    Special = 0,
    /// An access control list.
    Acl = 1,
    /// `security.*` attributes, as capabilities of a program, but for the label of SELinux.
    Security = 2,
    /// Another name of a file: it arrives as a file of its own.
    HardLink = 3,
    /// The setuid, setgid or sticky bit.
    SetId = 4,
    /// Other attributes: `trusted.*`, those of users where they were not asked for, and of directories.
    Attributes = 5,
}

const LEFT_OUT: [LeftOut; 6] =
    [LeftOut::Special, LeftOut::Acl, LeftOut::Security, LeftOut::HardLink, LeftOut::SetId, LeftOut::Attributes];

impl LeftOut {
    /// What each connection of a transfer tells of; the others come with what is sent or made.
    pub const AGAIN: [LeftOut; 3] = [LeftOut::Special, LeftOut::HardLink, LeftOut::SetId];

    /// Whether the receiver has less than the sender in a way that nothing on its side can recreate.
    pub fn is_loss(self) -> bool {
        matches!(self, LeftOut::Special | LeftOut::Acl | LeftOut::Security)
    }
}

/// Work of the five stages, nanoseconds of thread time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stages {
    /// Reading the source.
    pub read: u64,
    /// The sender's hashing.
    pub hash: u64,
    /// Writing over the link.
    pub link: u64,
    /// The receiver's hashing.
    pub check: u64,
    /// The receiver's writing and syncing.
    pub write: u64,
}

/// A message on the control connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// First of a client on its control connection.
    Hello {
        /// [`VERSION`].
        version: u16,
        /// Number of the session, the same after a reconnect.
        session: [u8; 16],
    },
    /// The answer.
    Welcome {
        /// [`VERSION`].
        version: u16,
        /// By which name the server knows the client.
        identity: String,
    },
    /// First and only message of a client on its bulk connection.
    Bulk {
        /// From [`Answer::Ready`].
        token: [u8; 16],
    },
    /// First message of a client on a connection that becomes a pipe.
    Pipe {
        /// [`VERSION`].
        version: u16,
        /// What its owner calls it.
        service: String,
    },
    /// Asks for something.
    Request {
        /// Counted from 1 in each session.
        number: u64,
        /// For what.
        what: Request,
    },
    /// The answer to the request of this number.
    Answer {
        /// Its number.
        number: u64,
        /// What came of it.
        result: Result<Answer, Fault>,
    },
    /// The receiver's slots.
    Slots {
        /// The exposed memory.
        remote: [u8; REMOTE_LEN],
        /// Bytes of a slot.
        size: u32,
        /// How many.
        count: u16,
    },
    /// Entries that the sender has.
    Batch {
        /// Counted from 0.
        id: u32,
        /// At most [`ITEMS_MAX`].
        items: Vec<Item>,
    },
    /// One verdict for each item of a batch.
    Verdicts {
        /// The batch.
        id: u32,
        /// In the same order.
        verdicts: Vec<Verdict>,
    },
    /// The sender asks what the receiver knows of chunks.
    Need {
        /// The file.
        key: Key,
        /// First chunk.
        first: u64,
        /// At most [`VALUES_MAX`].
        count: u16,
    },
    /// The answer.
    Values {
        /// The file.
        key: Key,
        /// First chunk.
        first: u64,
        /// For each chunk.
        known: Vec<Known>,
    },
    /// Chunks have been written into a slot.
    Data {
        /// The file.
        key: Key,
        /// First chunk.
        first: u64,
        /// Where.
        slot: u16,
        /// Values of the chunks.
        values: Vec<Value>,
    },
    /// These chunks are zeros that have no place on the sender's disk.
    Hole {
        /// The file.
        key: Key,
        /// First chunk.
        first: u64,
        /// At most [`VALUES_MAX`].
        count: u16,
    },
    /// These chunks are what the receiver has.
    Keep {
        /// The file.
        key: Key,
        /// First chunk.
        first: u64,
        /// At most [`VALUES_MAX`].
        count: u16,
    },
    /// Small files, one behind the other, have been written into a slot.
    Pack {
        /// Where.
        slot: u16,
        /// The files, with their length and hash.
        files: Vec<(Key, u32, Value)>,
    },
    /// All chunks were sent; the hash of the whole.
    End {
        /// The file.
        key: Key,
        /// BLAKE3.
        hash: Value,
    },
    /// The sender gives this file up; another batch may offer it again.
    Drop {
        /// The file.
        key: Key,
    },
    /// Chunks are in the receiver's file, or were not taken because the file had failed; their slot is free.
    Landed {
        /// The file.
        key: Key,
        /// First chunk.
        first: u64,
    },
    /// A pack was unpacked: its slot is free, and of each of its files [`Message::Committed`] holds.
    Unpacked {
        /// The slot.
        slot: u16,
        /// The files of the pack.
        results: Vec<(Key, Result<Value, Fault>)>,
    },
    /// The file has its name, and its content is on the disk; or why not.
    Committed {
        /// The file.
        key: Key,
        /// The hash, or what is wrong.
        result: Result<Value, Fault>,
    },
    /// Something that does not come, and why.
    Note {
        /// Where it would have gone.
        path: RelPath,
        /// Why not.
        what: Note,
    },
    /// The sender has nothing more.
    Over,
    /// The receiver has finished everything.
    Finished {
        /// What its stages took.
        stages: Stages,
        /// Names that the receiver has and the sender has not, and all names that were compared.
        extra: (u64, u64),
        /// A failure of the last sync, or that more would have been deleted than may be.
        result: Result<(), Fault>,
    },
}

impl Message {
    /// The bytes as they travel.
    pub fn encode(&self) -> Vec<u8> {
        let mut w = Writer::default();
        match self {
            Message::Hello { version, session } => w.u8(1).u16(*version).raw(session),
            Message::Welcome { version, identity } => w.u8(2).u16(*version).bytes(identity.as_bytes()),
            Message::Bulk { token } => w.u8(3).raw(token),
            Message::Request { number, what } => what.encode(w.u8(4).u64(*number)),
            Message::Answer { number, result } => match result {
                Ok(answer) => answer.encode(w.u8(5).u64(*number).u8(1)),
                Err(fault) => fault.encode(w.u8(5).u64(*number).u8(0)),
            },
            Message::Slots { remote, size, count } => w.u8(6).raw(remote).u32(*size).u16(*count),
            Message::Batch { id, items } => {
                w.u8(7).u32(*id).u16(items.len() as u16);
                items.iter().for_each(|item| item.encode(&mut w));
                &mut w
            }
            Message::Verdicts { id, verdicts } => {
                w.u8(8).u32(*id).u16(verdicts.len() as u16);
                for verdict in verdicts {
                    match verdict {
                        Verdict::Have => w.u8(0),
                        Verdict::Want => w.u8(1),
                        Verdict::Compare => w.u8(2),
                        Verdict::Refused(fault) => fault.encode(w.u8(3)),
                        Verdict::Made => w.u8(4),
                    };
                }
                &mut w
            }
            Message::Need { key, first, count } => key.encode(w.u8(9)).u64(*first).u16(*count),
            Message::Values { key, first, known } => {
                key.encode(w.u8(10)).u64(*first).u16(known.len() as u16);
                for known in known {
                    match known {
                        Known::Nothing => w.u8(0),
                        Known::Content(value) => w.u8(1).raw(value),
                        Known::Verified(value) => w.u8(2).raw(value),
                    };
                }
                &mut w
            }
            Message::Data { key, first, slot, values } => {
                key.encode(w.u8(11)).u64(*first).u16(*slot).u16(values.len() as u16);
                values.iter().for_each(|value| end(w.raw(value)));
                &mut w
            }
            Message::Hole { key, first, count } => key.encode(w.u8(12)).u64(*first).u16(*count),
            Message::Keep { key, first, count } => key.encode(w.u8(13)).u64(*first).u16(*count),
            Message::Pack { slot, files } => {
                w.u8(14).u16(*slot).u16(files.len() as u16);
                files.iter().for_each(|(key, len, hash)| end(key.encode(&mut w).u32(*len).raw(hash)));
                &mut w
            }
            Message::End { key, hash } => key.encode(w.u8(15)).raw(hash),
            Message::Drop { key } => key.encode(w.u8(16)),
            Message::Landed { key, first } => key.encode(w.u8(17)).u64(*first),
            Message::Unpacked { slot, results } => {
                w.u8(18).u16(*slot).u16(results.len() as u16);
                results.iter().for_each(|(key, result)| committed(&mut w, key, result));
                &mut w
            }
            Message::Committed { key, result } => {
                committed(w.u8(19), key, result);
                &mut w
            }
            Message::Note { path, what } => match what {
                Note::Failed(fault) => fault.encode(w.u8(22).bytes(path.bytes()).u8(0)),
                Note::LeftOut(why) => w.u8(22).bytes(path.bytes()).u8(1).u8(*why as u8),
                Note::Extra(Extra { kind, size, mtime }) => {
                    w.u8(22).bytes(path.bytes()).u8(2).kind(*kind).u64(*size).time(*mtime)
                }
            },
            Message::Over => w.u8(20),
            Message::Pipe { version, service } => w.u8(23).u16(*version).bytes(service.as_bytes()),
            Message::Finished { stages, extra, result } => {
                let Stages { read, hash, link, check, write } = stages;
                w.u8(21).u64(*read).u64(*hash).u64(*link).u64(*check).u64(*write).u64(extra.0).u64(extra.1);
                match result {
                    Ok(()) => w.u8(1),
                    Err(fault) => fault.encode(w.u8(0)),
                }
            }
        };
        w.0
    }

    /// What stands before the data of an answer that is its data: what is read is put behind it in its place.
    pub(crate) fn head_of_bytes(number: u64, len: usize) -> [u8; BYTES_HEAD] {
        let mut head = [0; BYTES_HEAD];
        head[0] = 5;
        head[1..9].copy_from_slice(&number.to_le_bytes());
        head[9] = 1;
        head[10] = 9;
        head[11..].copy_from_slice(&(len as u32).to_le_bytes());
        head
    }

    /// The number of the answer, if a message of `len` bytes with this head is one whose rest is its data.
    pub(crate) fn bytes_head(head: &[u8], len: usize) -> Option<u64> {
        let number = u64::from_le_bytes(head.get(1..9)?.try_into().ok()?);
        let rest = len.checked_sub(BYTES_HEAD)?;
        (*head == Message::head_of_bytes(number, rest)).then_some(number)
    }

    /// Total over any bytes.
    ///
    /// # Errors
    /// [`Malformed`]: it is cut, longer than its fields, or a field has a value that it cannot have.
    pub fn decode(bytes: &[u8]) -> Result<Message, Malformed> {
        let r = &mut Reader(bytes);
        let message = match r.u8()? {
            1 => Message::Hello { version: r.u16()?, session: r.array()? },
            2 => Message::Welcome { version: r.u16()?, identity: r.text()? },
            3 => Message::Bulk { token: r.array()? },
            4 => Message::Request { number: r.u64()?, what: Request::decode(r)? },
            5 => {
                let number = r.u64()?;
                let result = if r.flag()? { Ok(Answer::decode(r)?) } else { Err(Fault::decode(r)?) };
                Message::Answer { number, result }
            }
            6 => Message::Slots { remote: r.array()?, size: r.u32()?, count: r.u16()? },
            7 => Message::Batch { id: r.u32()?, items: r.list(ITEMS_MAX, Item::decode)? },
            8 => {
                let verdict = |r: &mut Reader<'_>| {
                    Ok(match r.u8()? {
                        0 => Verdict::Have,
                        1 => Verdict::Want,
                        2 => Verdict::Compare,
                        3 => Verdict::Refused(Fault::decode(r)?),
                        4 => Verdict::Made,
                        _ => return Err(Malformed("a verdict is unknown")),
                    })
                };
                Message::Verdicts { id: r.u32()?, verdicts: r.list(ITEMS_MAX, verdict)? }
            }
            9 => Message::Need { key: Key::decode(r)?, first: r.u64()?, count: count(r)? },
            10 => {
                let known = |r: &mut Reader<'_>| {
                    Ok(match r.u8()? {
                        0 => Known::Nothing,
                        1 => Known::Content(r.array()?),
                        2 => Known::Verified(r.array()?),
                        _ => return Err(Malformed("a chunk value is of no known kind")),
                    })
                };
                Message::Values { key: Key::decode(r)?, first: r.u64()?, known: r.list(VALUES_MAX, known)? }
            }
            11 => {
                let (key, first, slot) = (Key::decode(r)?, r.u64()?, r.u16()?);
                Message::Data { key, first, slot, values: r.list(VALUES_MAX, Reader::array)? }
            }
            12 => Message::Hole { key: Key::decode(r)?, first: r.u64()?, count: count(r)? },
            13 => Message::Keep { key: Key::decode(r)?, first: r.u64()?, count: count(r)? },
            14 => {
                let file = |r: &mut Reader<'_>| Ok((Key::decode(r)?, r.u32()?, r.array()?));
                Message::Pack { slot: r.u16()?, files: r.list(ITEMS_MAX, file)? }
            }
            15 => Message::End { key: Key::decode(r)?, hash: r.array()? },
            16 => Message::Drop { key: Key::decode(r)? },
            17 => Message::Landed { key: Key::decode(r)?, first: r.u64()? },
            18 => {
                let file = |r: &mut Reader<'_>| Ok((Key::decode(r)?, outcome(r)?));
                Message::Unpacked { slot: r.u16()?, results: r.list(ITEMS_MAX, file)? }
            }
            19 => Message::Committed { key: Key::decode(r)?, result: outcome(r)? },
            20 => Message::Over,
            23 => Message::Pipe { version: r.u16()?, service: r.text()? },
            21 => {
                let stages =
                    Stages { read: r.u64()?, hash: r.u64()?, link: r.u64()?, check: r.u64()?, write: r.u64()? };
                let extra = (r.u64()?, r.u64()?);
                let result = if r.flag()? { Ok(()) } else { Err(Fault::decode(r)?) };
                Message::Finished { stages, extra, result }
            }
            22 => {
                let path =
                    RelPath::new(r.bytes()?).map_err(|_| Malformed("a path is none that can be given to a file"))?;
                let what = match r.u8()? {
                    0 => Note::Failed(Fault::decode(r)?),
                    1 => {
                        let why = LEFT_OUT.get(usize::from(r.u8()?));
                        Note::LeftOut(*why.ok_or(Malformed("something unknown is left out"))?)
                    }
                    2 => Note::Extra(Extra { kind: r.kind()?, size: r.u64()?, mtime: r.time()? }),
                    _ => return Err(Malformed("a note is of no known kind")),
                };
                Message::Note { path, what }
            }
            _ => return Err(Malformed("a message is of no known kind")),
        };
        if r.0.is_empty() { Ok(message) } else { Err(Malformed("a message is longer than its fields")) }
    }
}

fn committed(w: &mut Writer, key: &Key, result: &Result<Value, Fault>) {
    match result {
        Ok(hash) => key.encode(w).u8(1).raw(hash),
        Err(fault) => fault.encode(key.encode(w).u8(0)),
    };
}

fn outcome(r: &mut Reader<'_>) -> Result<Result<Value, Fault>, Malformed> {
    Ok(if r.flag()? { Ok(r.array()?) } else { Err(Fault::decode(r)?) })
}

fn count(r: &mut Reader<'_>) -> Result<u16, Malformed> {
    match r.u16()? {
        n if (1..=VALUES_MAX).contains(&usize::from(n)) => Ok(n),
        _ => Err(Malformed("a number of chunks is out of range")),
    }
}

impl Key {
    fn encode<'a>(&self, w: &'a mut Writer) -> &'a mut Writer {
        w.u32(self.batch).u16(self.index)
    }

    fn decode(r: &mut Reader<'_>) -> Result<Key, Malformed> {
        Ok(Key { batch: r.u32()?, index: r.u16()? })
    }
}

impl Item {
    /// Bytes that it takes in a message, at most.
    pub(crate) fn weight(&self) -> usize {
        let more = match &self.what {
            What::Dir { .. } => 4,
            What::Link { target } => 2 + target.len(),
            What::Present | What::Begin | What::End => 0,
            What::File(info) => {
                80 + info.xattrs.iter().map(|(name, value)| 4 + name.len() + value.len()).sum::<usize>()
            }
        };
        3 + self.path.bytes().len() + more
    }

    fn encode(&self, w: &mut Writer) {
        w.bytes(self.path.bytes());
        match &self.what {
            What::Dir { mode } => w.u8(0).u32(*mode),
            What::Link { target } => w.u8(1).bytes(target),
            What::File(info) => {
                w.u8(2).ident(&info.ident).flag(info.settled).u64(info.disk).u32(info.mode);
                w.u16(info.xattrs.len() as u16);
                info.xattrs.iter().for_each(|(name, value)| end(w.bytes(name).bytes(value)));
                w
            }
            What::Present => w.u8(3),
            What::Begin => w.u8(4),
            What::End => w.u8(5),
        };
    }

    fn decode(r: &mut Reader<'_>) -> Result<Item, Malformed> {
        let path = RelPath::new(r.bytes()?).map_err(|_| Malformed("a path is none that can be given to a file"))?;
        let what = match r.u8()? {
            0 => What::Dir { mode: r.u32()? },
            1 => What::Link { target: link(r)? },
            2 => {
                let (ident, settled, disk, mode) = (r.ident()?, r.flag()?, r.u64()?, r.u32()?);
                let xattrs = r.list(64, |r| Ok((r.bytes()?.to_vec(), r.bytes()?.to_vec())))?;
                let bytes: usize = xattrs.iter().map(|(name, value)| name.len() + value.len()).sum();
                if bytes > XATTRS_MAX || !xattrs.iter().all(|(name, _)| is_user_xattr(name)) {
                    return Err(Malformed("extended attributes are too long, or not the user's"));
                }
                What::File(FileInfo { ident, settled, disk, mode, xattrs })
            }
            3 => What::Present,
            4 => What::Begin,
            5 => What::End,
            _ => return Err(Malformed("an item is of no known kind")),
        };
        Ok(Item { path, what })
    }
}

/// An attribute that users set themselves (xattr(7)).
pub(crate) fn is_user_xattr(name: &[u8]) -> bool {
    name.starts_with(b"user.") && name.len() <= 255 && !name.contains(&0)
}

fn link(r: &mut Reader<'_>) -> Result<Vec<u8>, Malformed> {
    let target = r.bytes()?;
    let fits = !target.is_empty() && target.len() < crate::name::PATH_MAX && !target.contains(&0);
    if fits { Ok(target.to_vec()) } else { Err(Malformed("a link has a target that no link can have")) }
}

impl FileInfo {
    /// The time that the file is given.
    pub fn mtime(&self) -> Time {
        self.ident.mtime
    }
}

#[cfg(test)]
mod tests;
