//! Reads traces back. The file is not trusted: whatever it holds, reading ends with records or an error.

use super::pcap::{CONTROL, EVENT, FRAME, HEADER_LEN, HEADER_MAGIC};
use super::{Direction, What};
use crate::error::Error;
use crate::time::Time;

/// One packet of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry<'a> {
    /// When.
    pub at: Time,
    /// Index into [`Trace::names`].
    pub host: usize,
    /// What.
    pub what: What<'a>,
    /// Bytes that it had before the trace cut it.
    pub full_len: usize,
}

/// A trace.
#[derive(Debug)]
pub struct Trace<'a> {
    /// Names of the interfaces: hosts, and the world.
    pub names: Vec<String>,
    /// Packets in their order.
    pub entries: Vec<Entry<'a>>,
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    let raw: [u8; 4] = bytes.get(at..at.checked_add(4)?)?.try_into().ok()?;
    Some(u32::from_le_bytes(raw))
}

impl<'a> Trace<'a> {
    /// Reads a file's bytes. A last block that is cut short, as when the writer still runs, ends the trace.
    ///
    /// # Errors
    /// [`Error::Trace`]: it is not a pcap-ng file of this program.
    pub fn parse(bytes: &'a [u8]) -> Result<Trace<'a>, Error> {
        let wrong = |what: &str| Error::Trace(what.to_owned());
        if word(bytes, 0) != Some(0x0a0d_0d0a) || word(bytes, 8) != Some(0x1a2b_3c4d) {
            return Err(wrong("not a little-endian pcap-ng file"));
        }
        let mut trace = Trace { names: Vec::new(), entries: Vec::new() };
        let mut rest = bytes;
        while let (Some(kind), Some(len)) = (word(rest, 0), word(rest, 4)) {
            let len = len as usize;
            if len < 12 || !len.is_multiple_of(4) {
                return Err(wrong(&format!("a block of {len} bytes")));
            }
            let Some(block) = rest.get(..len) else { break };
            let body = &block[8..len - 4];
            match kind {
                1 => trace.names.push(interface_name(body).unwrap_or_else(|| format!("#{}", trace.names.len()))),
                6 => trace.entries.extend(entry(body)),
                _ => {}
            }
            rest = &rest[len..];
        }
        Ok(trace)
    }
}

fn interface_name(body: &[u8]) -> Option<String> {
    let mut at = 8;
    loop {
        let head = word(body, at)?;
        let (code, len) = (head & 0xffff, (head >> 16) as usize);
        let value = body.get(at + 4..at + 4 + len)?;
        match code {
            0 => return None,
            2 => return Some(String::from_utf8_lossy(value).into_owned()),
            _ => at += 4 + len.next_multiple_of(4),
        }
    }
}

fn entry(body: &[u8]) -> Option<Entry<'_>> {
    let at = u64::from(word(body, 4)?) << 32 | u64::from(word(body, 8)?);
    let (kept, full) = (word(body, 12)? as usize, word(body, 16)? as usize);
    let packet = body.get(20..20_usize.checked_add(kept)?)?;
    let (header, bytes) = packet.split_at_checked(HEADER_LEN)?;
    if header[..2] != HEADER_MAGIC {
        return None;
    }
    let direction = if header[3] == 1 { Direction::In } else { Direction::Out };
    let what = match header[2] {
        CONTROL => What::Control { direction, pdf: header[4], bytes },
        FRAME => What::Frame {
            direction,
            eof: header[4],
            sof: header[5],
            damaged: header[6] != 0,
            hop: u16::from_le_bytes([header[8], header[9]]),
            ring: u16::from_le_bytes([header[10], header[11]]),
            bytes,
        },
        EVENT => What::Event(std::str::from_utf8(bytes).ok()?),
        _ => return None,
    };
    Some(Entry { at, host: word(body, 0)? as usize, what, full_len: full.saturating_sub(HEADER_LEN) })
}

#[cfg(test)]
mod tests;
