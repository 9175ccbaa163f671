//! The cluster key's file.

use super::secret::Psk;
use zeroize::Zeroize;

/// Largest file that is a key file: more is refused unread (64 digits and a few line ends).
pub const PSK_FILE_MAX: usize = 80;

/// Why a file is not a key file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PskError {
    /// Neither of the two forms. The content is not shown.
    #[error(
        "LS0241 LINKSPAN_PSK_FILE holds {len} bytes that are not a key: write 64 hexadecimal digits (`openssl rand -hex 32`) or 32 random bytes"
    )]
    Form {
        /// Bytes in the file.
        len: usize,
    },
    /// All bytes alike.
    #[error(
        "LS0242 LINKSPAN_PSK_FILE holds one byte repeated, which is easy to guess: make a key with `openssl rand -hex 32`"
    )]
    Weak,
    /// Not a regular file.
    #[error("LS0243 LINKSPAN_PSK_FILE is not a regular file (mode {mode:o}): name the file that holds the key")]
    NotAFile {
        /// `st_mode`.
        mode: u32,
    },
    /// Others may read or write it.
    #[error("LS0244 LINKSPAN_PSK_FILE has mode {:04o}, so other users may read or change it: chmod 600 it", .mode & 0o7777)]
    Open {
        /// `st_mode`.
        mode: u32,
    },
    /// Owned by another user.
    #[error(
        "LS0245 LINKSPAN_PSK_FILE belongs to user {owner}, this process runs as user {user}: it must be owned by that user or by root"
    )]
    Owner {
        /// `st_uid`.
        owner: u32,
        /// Effective user of this process.
        user: u32,
    },
}

/// Reads the content of `LINKSPAN_PSK_FILE`: 64 hexadecimal digits with optional white space at both ends, or exactly
/// 32 bytes that are not all printable text. Passphrases are refused: from a recorded login they could be tried offline.
pub fn parse_psk(content: &[u8]) -> Result<Psk, PskError> {
    let text = content.trim_ascii();
    let mut psk = Psk::new([0; 32]);
    if let (pairs, []) = text.as_chunks::<2>()
        && pairs.len() == 32
    {
        for (byte, pair) in psk.expose_mut().iter_mut().zip(pairs) {
            match (digit(pair[0]), digit(pair[1])) {
                (Some(high), Some(low)) => *byte = high << 4 | low,
                _ => return Err(PskError::Form { len: content.len() }),
            }
        }
    } else if content.len() == 32 && !content.iter().all(|b| b.is_ascii_graphic() || b.is_ascii_whitespace()) {
        psk.expose_mut().copy_from_slice(content);
    } else {
        return Err(PskError::Form { len: content.len() });
    }
    if psk.expose().iter().all(|b| *b == psk.expose()[0]) {
        psk.expose_mut().zeroize();
        return Err(PskError::Weak);
    }
    Ok(psk)
}

fn digit(c: u8) -> Option<u8> {
    char::from(c).to_digit(16).map(|d| d as u8)
}

/// Checks `st_mode` and `st_uid` of the open key file (fstat(2), inode(7)) against the effective user.
pub fn check_mode(mode: u32, owner: u32, user: u32) -> Result<(), PskError> {
    const S_IFMT: u32 = 0o170_000;
    const S_IFREG: u32 = 0o100_000;
    if mode & S_IFMT != S_IFREG {
        Err(PskError::NotAFile { mode })
    } else if mode & 0o077 != 0 {
        Err(PskError::Open { mode })
    } else if owner != user && owner != 0 {
        Err(PskError::Owner { owner, user })
    } else {
        Ok(())
    }
}
