//! The join line: `LSP` and base 32 (RFC 4648, no padding) of
//!
//! | bytes | content |
//! |---|---|
//! | 1 | version, 1 |
//! | 4 | until when it is good, minutes since 1970, little-endian: for messages only, since clocks differ |
//! | 40 and the addresses | the handle up to the last byte in use |
//! | 4 | the first bytes of SHA-256 over all before: a line that was cut or mistyped is told at once |

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use data_encoding::BASE32_NOPAD;
use linkspan_fabric::HANDLE_LEN;
use linkspan_proto::handle::{Handle, HandleError, SCRATCH_AT};
use linkspan_proto::login::Secret;
use sha2::{Digest, Sha256};
use zeroize::Zeroizing;

const MARK: &str = "LSP";
const VERSION: u8 = 1;
const HEAD: usize = 5;
const SUM: usize = 4;

/// Bytes of a handle before its addresses.
const FIXED: usize = 40;

/// Where a handle says how many bytes its addresses use.
const USED_AT: usize = 7;

/// Why a text is no join line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LineError {
    /// It does not begin like one.
    #[error(
        "LS0541 this is not a join line: copy the whole line that `lspan pair` printed on the other host; it begins with {MARK}"
    )]
    Foreign,
    /// It was changed.
    #[error(
        "LS0542 the join line was cut or mistyped: copy the whole line that `lspan pair` printed on the other host"
    )]
    Damaged,
    /// Of another version.
    #[error(
        "LS0543 the join line is of version {0}, this linkspan reads version {VERSION}: install the same release on both hosts"
    )]
    Version(u8),
    /// Its handle is none.
    #[error("LS0544 the join line leads nowhere")]
    Handle(#[from] HandleError),
}

/// A join line. Secret: not shown by `Debug`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JoinLine {
    handle: Secret<HANDLE_LEN>,
    /// Minutes since 1970.
    until: u32,
}

fn minutes(time: SystemTime) -> u32 {
    (time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs() / 60) as u32
}

fn sum(bytes: &[u8]) -> [u8; SUM] {
    let hash = Sha256::digest(bytes);
    [hash[0], hash[1], hash[2], hash[3]]
}

impl JoinLine {
    /// The line of a listener with this handle.
    pub(super) fn new(handle: &[u8; HANDLE_LEN], until: SystemTime) -> Result<JoinLine, LineError> {
        Handle::decode(handle)?;
        Ok(JoinLine { handle: Secret::new(*handle), until: minutes(until) })
    }

    /// The text: upper case letters and digits only, so that a QR code of it is small and any keyboard has them.
    pub fn text(&self) -> String {
        let handle = self.handle.expose();
        let used = usize::from(handle[USED_AT]);
        let mut bytes = Zeroizing::new(vec![VERSION]);
        bytes.extend_from_slice(&self.until.to_le_bytes());
        bytes.extend_from_slice(&handle[..(FIXED + used).min(SCRATCH_AT)]);
        let sum = sum(&bytes);
        bytes.extend_from_slice(&sum);
        format!("{MARK}{}", BASE32_NOPAD.encode(&bytes))
    }

    /// Reads a line, whatever its case; white space, which terminals put where they break a long line, is passed over.
    /// Total over any text.
    ///
    /// # Errors
    /// Every [`LineError`].
    pub fn parse(text: &str) -> Result<JoinLine, LineError> {
        // No line is longer than one with all addresses.
        let plain = text.chars().filter(|c| !c.is_whitespace()).map(|c| c.to_ascii_uppercase());
        let plain: Zeroizing<String> = Zeroizing::new(plain.take(400).collect());
        let code = plain.strip_prefix(MARK).ok_or(LineError::Foreign)?;
        let bytes = Zeroizing::new(BASE32_NOPAD.decode(code.as_bytes()).map_err(|_| LineError::Damaged)?);
        let (bytes, code) = bytes.split_last_chunk::<SUM>().ok_or(LineError::Damaged)?;
        if sum(bytes) != *code {
            return Err(LineError::Damaged);
        }
        let (head, handle) = bytes.split_first_chunk::<HEAD>().ok_or(LineError::Damaged)?;
        if head[0] != VERSION {
            return Err(LineError::Version(head[0]));
        }
        if handle.len() < FIXED || handle.len() > SCRATCH_AT {
            return Err(LineError::Damaged);
        }
        let mut whole = [0; HANDLE_LEN];
        whole[..handle.len()].copy_from_slice(handle);
        Handle::decode(&whole)?;
        let until = u32::from_le_bytes([head[1], head[2], head[3], head[4]]);
        Ok(JoinLine { handle: Secret::new(whole), until })
    }

    pub(super) fn handle(&self) -> [u8; HANDLE_LEN] {
        *self.handle.expose()
    }

    /// Until when it is good, by the clock of the host that made it.
    pub fn until(&self) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(u64::from(self.until) * 60)
    }

    /// Why nobody may answer to it now.
    pub(super) fn why_unanswered(&self, now: SystemTime) -> String {
        let late = minutes(now).saturating_sub(self.until);
        let to = Handle::decode(self.handle.expose())
            .map(|handle| handle.addrs().iter().map(|a| a.ip.to_string()).collect());
        let to: Vec<String> = to.unwrap_or_default();
        match late {
            0 => format!(
                "it was used already, `lspan pair` has ended there, or this host does not reach {}",
                to.join(", ")
            ),
            late => format!("it was good until {late} min ago"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use linkspan_proto::handle::Addr;
    use linkspan_proto::login::Token;

    fn line(addrs: usize) -> JoinLine {
        let mut handle = Handle::new(7, Token::new(*b"0123456789abcdef"), 9);
        handle.keys = true;
        for n in 0..addrs {
            handle.push(Addr { ip: [10, 0, n as u8, 1].into(), port: 4000 + n as u16, prefix: 24 }).unwrap();
        }
        JoinLine::new(&handle.encode(), UNIX_EPOCH + Duration::from_secs(1_800_000_000)).unwrap()
    }

    #[test]
    fn lines_travel_through_terminals_without_loss() {
        for addrs in 1..=6 {
            let (line, text) = (line(addrs), line(addrs).text());
            assert!(text.bytes().all(|b| b.is_ascii_uppercase() || b.is_ascii_digit()), "{text}");
            assert_eq!(JoinLine::parse(&text).unwrap(), line);
            let broken: String = text.to_lowercase().chars().flat_map(|c| [c, '\n']).collect();
            assert_eq!(JoinLine::parse(&broken).unwrap(), line);
        }
        assert!(!format!("{:?}", line(1)).contains("0123"), "{:?}", line(1));
    }

    #[test]
    fn every_changed_or_missing_character_is_told() {
        let text = line(2).text();
        for at in 3..text.len() {
            let mut changed = text.clone().into_bytes();
            changed[at] = if changed[at] == b'A' { b'B' } else { b'A' };
            let changed = String::from_utf8(changed).unwrap();
            assert!(JoinLine::parse(&changed).is_err(), "character {at}");
            assert!(JoinLine::parse(&text[..at]).is_err(), "cut at {at}");
        }
        assert_eq!(JoinLine::parse("curl | sh"), Err(LineError::Foreign));
        assert_eq!(JoinLine::parse(""), Err(LineError::Foreign));
        assert_eq!(JoinLine::parse(&format!("{text}{text}")), Err(LineError::Damaged));
        assert_eq!(JoinLine::parse(&"LSP".repeat(10_000)), Err(LineError::Damaged));
    }

    #[test]
    fn another_version_is_named() {
        let mut bytes = BASE32_NOPAD.decode(&line(1).text().as_bytes()[3..]).unwrap();
        bytes[0] = 2;
        let at = bytes.len() - SUM;
        let code = sum(&bytes[..at]);
        bytes[at..].copy_from_slice(&code);
        let text = format!("{MARK}{}", BASE32_NOPAD.encode(&bytes));
        assert_eq!(JoinLine::parse(&text), Err(LineError::Version(2)));
    }

    #[test]
    fn a_line_that_is_too_old_is_told_apart_from_one_that_was_used() {
        let line = line(1);
        assert!(line.why_unanswered(line.until()).contains("used already"));
        assert!(line.why_unanswered(line.until()).contains("10.0.0.1"));
        let late = line.until() + Duration::from_secs(180);
        assert_eq!(line.why_unanswered(late), "it was good until 3 min ago");
    }
}
