//! Names and paths inside a share. They are bytes; what they may not be is checked here, once, for every one that comes
//! from a peer or a user.

use std::fmt::Write;

/// Longest name of one entry, bytes: NAME_MAX of limits.h.
pub const NAME_MAX: usize = 255;

/// Longest path inside a share, bytes: PATH_MAX of limits.h.
pub const PATH_MAX: usize = 4096;

/// Most directories within each other. Each level of a walk holds one descriptor.
pub const DEPTH_MAX: usize = 128;

/// The folder at the root of a share in which replaced files are kept.
pub const PRIVATE: &[u8] = b".lspan";

/// Behind the name of a share it names the share's trash.
pub const TRASH: &str = "/.lspan/trash";

/// Why bytes are no name or no path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BadName {
    /// An empty component.
    #[error("a name in it is empty")]
    Empty,
    /// `.` or `..`.
    #[error("\".\" and \"..\" cannot stand in it")]
    Dots,
    /// A NUL byte, or in a name a slash.
    #[error("it contains a byte that no name can have")]
    Byte,
    /// Too long.
    #[error("it is longer than names ({NAME_MAX} bytes) or paths ({PATH_MAX} bytes, {DEPTH_MAX} levels) can be")]
    Long,
    /// A name that linkspan keeps for itself.
    #[error("names like .lspan and .lspan-<16 hex digits>.part are kept for linkspan itself")]
    Reserved,
}

/// The name of one entry of a directory.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(Vec<u8>);

impl std::fmt::Debug for Name {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&escape(&self.0))
    }
}

impl Name {
    /// Checks a name that users may give to a file.
    ///
    /// # Errors
    /// Every [`BadName`].
    pub fn new(bytes: &[u8]) -> Result<Name, BadName> {
        let name = Name::any(bytes)?;
        if is_reserved(bytes) { Err(BadName::Reserved) } else { Ok(name) }
    }

    /// As [`Name::new`], with the names that linkspan keeps for itself.
    pub(crate) fn any(bytes: &[u8]) -> Result<Name, BadName> {
        match bytes {
            [] => Err(BadName::Empty),
            b"." | b".." => Err(BadName::Dots),
            _ if bytes.len() > NAME_MAX => Err(BadName::Long),
            _ if bytes.iter().any(|&b| b == 0 || b == b'/') => Err(BadName::Byte),
            _ => Ok(Name(bytes.to_vec())),
        }
    }

    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }
}

/// Whether linkspan keeps this name for itself; listings leave it out.
pub fn is_reserved(name: &[u8]) -> bool {
    name == PRIVATE || is_partial(name)
}

/// Whether a file of this name is one that is being received: `.lspan-<16 hex>.part`.
pub fn is_partial(name: &[u8]) -> bool {
    id_of(name).is_some()
}

/// The number in the name of a partial file.
pub(crate) fn id_of(name: &[u8]) -> Option<u64> {
    let hex = name.strip_prefix(b".lspan-").and_then(|rest| rest.strip_suffix(b".part"));
    let hex = hex.filter(|hex| hex.len() == 16 && hex.iter().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f')))?;
    u64::from_str_radix(std::str::from_utf8(hex).ok()?, 16).ok()
}

/// The name of a partial file.
pub(crate) fn partial(id: u64) -> Name {
    Name(format!(".lspan-{id:016x}.part").into_bytes())
}

/// A path below the root of a share: names joined by slashes, none at either end. Empty: the root itself.
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RelPath(Vec<u8>);

impl std::fmt::Debug for RelPath {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&escape(&self.0))
    }
}

impl RelPath {
    /// Checks every name of a path. Slashes at its ends are dropped.
    ///
    /// # Errors
    /// Every [`BadName`].
    pub fn new(bytes: &[u8]) -> Result<RelPath, BadName> {
        let mut bytes = bytes;
        while let [b'/', rest @ ..] | [rest @ .., b'/'] = bytes {
            bytes = rest;
        }
        if bytes.len() > PATH_MAX || bytes.iter().filter(|&&b| b == b'/').count() >= DEPTH_MAX {
            return Err(BadName::Long);
        }
        if !bytes.is_empty() {
            bytes.split(|&b| b == b'/').try_for_each(|name| Name::new(name).map(drop))?;
        }
        Ok(RelPath(bytes.to_vec()))
    }

    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// Whether it is the root.
    pub fn is_root(&self) -> bool {
        self.0.is_empty()
    }

    /// The path of an entry of this directory.
    ///
    /// # Errors
    /// [`BadName::Long`]: it would be too long or too deep.
    pub fn join(&self, name: &Name) -> Result<RelPath, BadName> {
        if self.is_root() {
            return Ok(RelPath(name.0.clone()));
        }
        let mut bytes = Vec::with_capacity(self.0.len() + 1 + name.0.len());
        bytes.extend_from_slice(&self.0);
        bytes.push(b'/');
        bytes.extend_from_slice(&name.0);
        RelPath::new(&bytes)
    }

    /// `self` and then `below`.
    ///
    /// # Errors
    /// [`BadName::Long`]: it would be too long or too deep.
    pub fn join_path(&self, below: &RelPath) -> Result<RelPath, BadName> {
        RelPath::new(&[&self.0[..], &below.0].join(&b'/'))
    }

    /// The directory and the name in it; `None` for the root.
    pub fn split(&self) -> Option<(RelPath, Name)> {
        let (dir, name) = match self.0.iter().rposition(|&b| b == b'/') {
            Some(at) => (&self.0[..at], &self.0[at + 1..]),
            None => (&[][..], &self.0[..]),
        };
        (!name.is_empty()).then(|| (RelPath(dir.to_vec()), Name(name.to_vec())))
    }
}

/// A name or path for people: control characters, bytes that are no UTF-8 and characters that change the direction of text are
/// written as `\xNN` or `\u{N}`, a backslash as two.
pub fn escape(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len());
    for part in bytes.utf8_chunks() {
        for c in part.valid().chars() {
            let turns =
                matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}');
            // Writing into a string cannot fail.
            let _ = match c {
                '\\' => out.write_str("\\\\"),
                c if c.is_ascii_control() => write!(out, "\\x{:02x}", c as u32),
                c if c.is_control() || turns => write!(out, "\\u{{{:x}}}", c as u32),
                c => out.write_char(c),
            };
        }
        for b in part.invalid() {
            let _ = write!(out, "\\x{b:02x}");
        }
    }
    out
}

#[cfg(test)]
mod tests;
