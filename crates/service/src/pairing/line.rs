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

/// `lspan pair`, as a line's text is read.
const COMMAND: &str = "LSPANPAIR";

const VERSION: u8 = 1;
const HEAD: usize = 5;
const SUM: usize = 4;

/// Bytes of a handle before its addresses.
const FIXED: usize = 40;

/// Most characters of a line that are read: none is longer, with all addresses.
const LONGEST: usize = 400;

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
    #[error("LS0544 the join line holds no valid address")]
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
        // A vector that grows leaves what it had where it was.
        let mut bytes = Zeroizing::new(Vec::with_capacity(HEAD + HANDLE_LEN + SUM));
        bytes.push(VERSION);
        bytes.extend_from_slice(&self.until.to_le_bytes());
        bytes.extend_from_slice(&handle[..(FIXED + used).min(SCRATCH_AT)]);
        let sum = sum(&bytes);
        bytes.extend_from_slice(&sum);
        let mut text = String::with_capacity(MARK.len() + BASE32_NOPAD.encode_len(bytes.len()));
        text.push_str(MARK);
        BASE32_NOPAD.encode_append(&bytes, &mut text);
        text
    }

    /// Reads a line, whatever its case; white space, which terminals put where they break a long line, is passed over.
    /// Total over any text.
    ///
    /// # Errors
    /// Every [`LineError`].
    pub fn parse(text: &str) -> Result<JoinLine, LineError> {
        let characters = text.chars().filter(|c| !c.is_whitespace()).map(|c| c.to_ascii_uppercase());
        // As above: a character has up to four bytes.
        let mut plain = Zeroizing::new(String::with_capacity(4 * LONGEST));
        plain.extend(characters.take(LONGEST));
        // The command that was printed with it, where all of that is pasted; no line begins so.
        let line = plain.strip_prefix(COMMAND).filter(|line| line.starts_with(MARK)).unwrap_or(&plain);
        let code = line.strip_prefix(MARK).ok_or(LineError::Foreign)?.as_bytes();
        let mut bytes = Zeroizing::new(vec![0; BASE32_NOPAD.decode_len(code.len()).map_err(|_| LineError::Damaged)?]);
        let len = BASE32_NOPAD.decode_mut(code, &mut bytes).map_err(|_| LineError::Damaged)?;
        bytes.truncate(len);
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
            assert_eq!(JoinLine::parse(&format!("lspan pair {text}\n")).unwrap(), line, "pasted with its command");
        }
        assert!(!format!("{:?}", line(1)).contains("0123"), "{:?}", line(1));
    }

    /// Looks for these bytes, each inverted so that it is not found here, in all memory but this thread's stack, as a core dump would show it.
    fn in_memory(sought: &[[u8; 8]]) -> Option<String> {
        use std::os::unix::fs::FileExt;
        let memory = std::fs::File::open("/proc/self/mem").unwrap();
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let mut block = [0; 1 << 16];
        let here = block.as_ptr() as u64;
        for map in maps.lines() {
            let (range, rest) = map.split_once(' ').unwrap();
            let (from, to) = range.split_once('-').unwrap();
            let [from, to] = [from, to].map(|hex| u64::from_str_radix(hex, 16).unwrap());
            if !rest.starts_with("rw") || (from..to).contains(&here) {
                continue;
            }
            for at in (from..to).step_by(block.len() - 8) {
                let Ok(len) = memory.read_at(&mut block, at) else { break };
                let is = |here: &[u8], sought: &[u8]| here.iter().zip(sought).all(|(a, b)| *a == !b);
                if block[..len].windows(8).any(|here| sought.iter().any(|sought| is(here, sought))) {
                    return Some(map.to_owned());
                }
            }
        }
        None
    }

    #[test]
    fn of_a_line_nothing_is_left_in_memory_that_was_freed() {
        // In a process of its own: to look through what other tests have in memory takes a minute.
        let alone = "TEST_ALONE";
        if std::env::var_os(alone).is_none() {
            let thread = std::thread::current();
            let mut test = std::process::Command::new(std::env::current_exe().unwrap());
            let ran = test.args([thread.name().unwrap(), "--exact"]).env(alone, "1").output().unwrap();
            let said = String::from_utf8_lossy(&ran.stdout);
            assert!(ran.status.success() && said.contains("1 passed"), "{said}");
            return;
        }
        let inverted = |bytes: &[u8]| std::array::from_fn(|n| !bytes[n]);
        let token = Token::random().unwrap();
        let raw = inverted(&token.expose()[4..]);
        let mut handle = Handle::new(7, token, 9);
        (0..6).for_each(|n| handle.push(Addr { ip: [10, 0, n, 1].into(), port: 4000, prefix: 24 }).unwrap());
        let line = JoinLine::new(&handle.encode(), UNIX_EPOCH).unwrap();
        drop(handle);
        // Made before: what is allocated later may lie where the line was.
        let mut kept: Vec<u8> = Vec::with_capacity(LONGEST);
        let text = Zeroizing::new(line.text());
        kept.extend(text.bytes().map(|byte| !byte));
        drop((line, text));
        // Characters of the token.
        let sought = [raw, std::array::from_fn(|n| kept[52 + n])];
        assert_eq!(in_memory(&sought), None);
        for (what, end, wrong) in
            [("whole", kept.len(), None), ("cut", kept.len() - 1, None), ("no base 32", kept.len(), Some(70))]
        {
            let mut text = Zeroizing::new(String::with_capacity(LONGEST));
            let characters = kept[..end].iter().map(|byte| char::from(!byte)).enumerate();
            text.extend(characters.map(|(n, c)| if Some(n) == wrong { '1' } else { c }));
            let parsed = JoinLine::parse(&text);
            assert_eq!(parsed.is_ok(), what == "whole");
            drop((parsed, text));
            assert_eq!(in_memory(&sought), None, "{what}");
        }
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
