//! Property directories: what a host says about itself and its services.
//!
//! A block of words. The root begins with a magic word and its length in words; an entry has four words: a key of
//! eight characters, length and type, and a value or the offset of the data. Source: USB4 inter-domain service
//! protocol and `drivers/thunderbolt/property.c` of Linux.

use super::Uuid;

/// "UXD" and version 1.
const MAGIC: u32 = 0x5558_4401;
/// Deepest nesting, and most entries altogether, that are read: a peer is not trusted.
const MAX_DEPTH: usize = 8;
/// Most entries of a block.
const MAX_ENTRIES: usize = 256;
/// Longest block in words that Linux reads.
pub const MAX_BLOCK: usize = 500;

/// Value of one property.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// A directory.
    Directory(Directory),
    /// Words of data.
    Data(Vec<u32>),
    /// Text, without the padding.
    Text(String),
    /// A number.
    Number(u32),
    /// Of a type that is not known.
    Unknown(u8),
}

/// A list of keys with values; the root has no UUID.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Directory {
    /// Identifies what is described.
    pub uuid: Option<Uuid>,
    /// Keys of up to eight characters, in their order.
    pub entries: Vec<(String, Value)>,
}

/// Why a block is not a property directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PropertyError {
    /// The first word is another.
    #[error("LS0909 properties: the block does not begin with the magic word")]
    Magic,
    /// Something reaches beyond the block.
    #[error("LS0910 properties: an entry reaches beyond the block of {0} words")]
    Beyond(usize),
    /// Directories in directories in directories.
    #[error("LS0911 properties: nested deeper than 8, or more than 256 entries")]
    TooMuch,
}

impl Directory {
    /// A directory of a service.
    pub fn with_uuid(uuid: Uuid) -> Directory {
        Directory { uuid: Some(uuid), entries: Vec::new() }
    }

    /// Adds a number.
    pub fn number(mut self, key: &str, value: u32) -> Directory {
        self.entries.push((key.to_owned(), Value::Number(value)));
        self
    }

    /// Adds text.
    pub fn text(mut self, key: &str, value: &str) -> Directory {
        self.entries.push((key.to_owned(), Value::Text(value.to_owned())));
        self
    }

    /// Adds a directory.
    pub fn directory(mut self, key: &str, value: Directory) -> Directory {
        self.entries.push((key.to_owned(), Value::Directory(value)));
        self
    }

    /// The first value of a key.
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.entries.iter().find(|(k, _)| k == key).map(|(_, v)| v)
    }

    /// The first directory of a key.
    pub fn get_directory(&self, key: &str) -> Option<&Directory> {
        self.entries.iter().find_map(|(k, v)| match v {
            Value::Directory(d) if k == key => Some(d),
            _ => None,
        })
    }

    /// Reads a block.
    ///
    /// # Errors
    /// [`PropertyError::Magic`], [`PropertyError::Beyond`], [`PropertyError::TooMuch`].
    pub fn parse(block: &[u32]) -> Result<Directory, PropertyError> {
        let [magic, len, ..] = block else {
            return Err(PropertyError::Beyond(block.len()));
        };
        if *magic != MAGIC {
            return Err(PropertyError::Magic);
        }
        let entries = range(block, 2, *len as usize)?;
        let mut budget = MAX_ENTRIES;
        Ok(Directory { uuid: None, entries: parse_entries(block, entries, 0, &mut budget)? })
    }

    /// The block of a root directory.
    pub fn block(&self) -> Vec<u32> {
        let mut block = vec![MAGIC, 4 * self.entries.len() as u32];
        block.resize(2 + 4 * self.entries.len(), 0);
        write_entries(&self.entries, &mut block, 2);
        block
    }
}

fn range(block: &[u32], at: usize, len: usize) -> Result<&[u32], PropertyError> {
    at.checked_add(len).and_then(|end| block.get(at..end)).ok_or(PropertyError::Beyond(block.len()))
}

fn bytes(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|w| w.to_be_bytes()).collect()
}

fn text(words: &[u32]) -> String {
    let bytes = bytes(words);
    let end = bytes.iter().position(|b| *b == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}

fn parse_entries(
    block: &[u32],
    words: &[u32],
    depth: usize,
    budget: &mut usize,
) -> Result<Vec<(String, Value)>, PropertyError> {
    if depth > MAX_DEPTH {
        return Err(PropertyError::TooMuch);
    }
    let mut entries = Vec::new();
    for entry in words.chunks_exact(4) {
        *budget = budget.checked_sub(1).ok_or(PropertyError::TooMuch)?;
        let (len, kind, at) = ((entry[2] & 0xffff) as usize, (entry[2] >> 24) as u8, entry[3] as usize);
        let value = match kind {
            b'v' => Value::Number(entry[3]),
            b'd' => Value::Data(range(block, at, len)?.to_vec()),
            b't' => Value::Text(text(range(block, at, len)?)),
            b'D' => {
                let words = range(block, at, len)?;
                let Some((uuid, inner)) = words.split_first_chunk::<4>() else {
                    return Err(PropertyError::Beyond(block.len()));
                };
                let entries = parse_entries(block, inner, depth + 1, budget)?;
                Value::Directory(Directory { uuid: Some(Uuid::from_words(*uuid)), entries })
            }
            other => Value::Unknown(other),
        };
        entries.push((text(&entry[..2]), value));
    }
    Ok(entries)
}

/// Writes entries whose space in the block is already there; their data goes to its end.
fn write_entries(entries: &[(String, Value)], block: &mut Vec<u32>, from: usize) {
    for (index, (key, value)) in entries.iter().enumerate() {
        let at = from + 4 * index;
        let key = words_of(key.as_bytes(), 2);
        block[at..at + 2].copy_from_slice(&key[..2]);
        let end = block.len() as u32;
        let (kind, len, value) = match value {
            Value::Number(n) => (b'v', 1, *n),
            Value::Data(words) => {
                block.extend_from_slice(words);
                (b'd', words.len(), end)
            }
            Value::Text(text) => {
                // Whole words, with at least one zero at the end.
                let words = words_of(text.as_bytes(), text.len() / 4 + 1);
                block.extend_from_slice(&words);
                (b't', words.len(), end)
            }
            Value::Directory(dir) => {
                let len = 4 + 4 * dir.entries.len();
                block.extend(dir.uuid.unwrap_or_default().words());
                block.resize(end as usize + len, 0);
                write_entries(&dir.entries, block, end as usize + 4);
                (b'D', len, end)
            }
            Value::Unknown(kind) => (*kind, 1, 0),
        };
        block[at + 2] = len as u32 & 0xffff | u32::from(kind) << 24;
        block[at + 3] = value;
    }
}

fn words_of(bytes: &[u8], len: usize) -> Vec<u32> {
    let byte = |i: usize| u32::from(bytes.get(i).copied().unwrap_or(0));
    (0..len).map(|w| (0..4).fold(0, |v, i| v << 8 | byte(4 * w + i))).collect()
}

#[cfg(test)]
mod tests;
