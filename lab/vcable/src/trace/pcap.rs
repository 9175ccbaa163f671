//! Traces as pcap-ng: one interface per host, a short header of ours before each packet.
//!
//! Format: draft-ietf-opsawg-pcapng. Link type 147 is the first that is free for private use.

use std::io::{BufWriter, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::{Direction, Record, Sink, What};

/// Private link type of our packets: `LINKTYPE_USER0`.
pub const LINK_TYPE: u16 = 147;
/// First bytes of the header before each packet: a letter and a version.
pub(super) const HEADER_MAGIC: [u8; 2] = [b'v', 1];
/// Bytes of the header before each packet.
pub(super) const HEADER_LEN: usize = 12;

/// Kinds of packets in our header.
pub(super) const CONTROL: u8 = 1;
/// A frame.
pub(super) const FRAME: u8 = 2;
/// Text.
pub(super) const EVENT: u8 = 3;

/// Switches a trace on and off while it runs.
#[derive(Clone, Debug)]
pub struct Switch(Arc<AtomicBool>);

impl Switch {
    /// On or off.
    pub fn set(&self, on: bool) {
        self.0.store(on, Ordering::Relaxed);
    }
}

/// Writes pcap-ng.
#[derive(Debug)]
pub struct Pcap<W: Write> {
    out: BufWriter<W>,
    snap: usize,
    on: Switch,
}

impl<W: Write> Pcap<W> {
    /// Begins a file with an interface per host and one for the world; `snap` payload bytes of a frame are kept.
    /// Errors of writing are not reported: a trace never stops the world.
    pub fn new(out: W, hosts: &[String], snap: usize) -> (Pcap<W>, Switch) {
        let on = Switch(Arc::new(AtomicBool::new(true)));
        let mut pcap = Pcap { out: BufWriter::new(out), snap, on: on.clone() };
        // Section header: byte order magic, version 1.0, section length unknown.
        let mut section = 0x1a2b_3c4d_u32.to_le_bytes().to_vec();
        section.extend([1, 0, 0, 0]);
        section.extend([0xff; 8]);
        pcap.block(0x0a0d_0d0a, &section);
        for name in hosts.iter().map(String::as_str).chain(["world"]) {
            let mut body = u32::from(LINK_TYPE).to_le_bytes().to_vec();
            body.extend([0; 4]); // no limit on length
            option(&mut body, 2, name.as_bytes()); // if_name
            option(&mut body, 9, &[9]); // if_tsresol: nanoseconds
            body.extend([0; 4]); // end of options
            pcap.block(1, &body);
        }
        (pcap, on)
    }

    fn block(&mut self, kind: u32, body: &[u8]) {
        let padding = body.len().next_multiple_of(4) - body.len();
        let len = (12 + body.len() + padding) as u32;
        let parts: [&[u8]; 5] = [&kind.to_le_bytes(), &len.to_le_bytes(), body, &[0; 3][..padding], &len.to_le_bytes()];
        for part in parts {
            let _ = self.out.write_all(part);
        }
    }
}

fn option(body: &mut Vec<u8>, code: u16, value: &[u8]) {
    body.extend(code.to_le_bytes());
    body.extend((value.len() as u16).to_le_bytes());
    body.extend_from_slice(value);
    body.resize(body.len().next_multiple_of(4), 0);
}

impl<W: Write + Send> Sink for Pcap<W> {
    fn flush(&mut self) {
        let _ = self.out.flush();
    }

    fn record(&mut self, record: &Record<'_>) {
        if !self.on.0.load(Ordering::Relaxed) {
            return;
        }
        let mut header = [0; HEADER_LEN];
        header[..2].copy_from_slice(&HEADER_MAGIC);
        let bytes = match record.what {
            What::Control { direction, pdf, bytes } => {
                header[2..6].copy_from_slice(&[CONTROL, u8::from(direction == Direction::In), pdf, 0]);
                bytes
            }
            What::Frame { direction, hop, ring, sof, eof, damaged, bytes } => {
                let incoming = u8::from(direction == Direction::In);
                header[2..7].copy_from_slice(&[FRAME, incoming, eof, sof, u8::from(damaged)]);
                header[8..10].copy_from_slice(&hop.to_le_bytes());
                header[10..12].copy_from_slice(&ring.to_le_bytes());
                bytes
            }
            What::Event(text) => {
                header[2] = EVENT;
                text.as_bytes()
            }
        };
        let keep = if matches!(record.what, What::Frame { .. }) { bytes.len().min(self.snap) } else { bytes.len() };
        let mut body = (record.host as u32).to_le_bytes().to_vec();
        body.extend(((record.at >> 32) as u32).to_le_bytes());
        body.extend((record.at as u32).to_le_bytes());
        body.extend(((HEADER_LEN + keep) as u32).to_le_bytes());
        body.extend(((HEADER_LEN + bytes.len()) as u32).to_le_bytes());
        body.extend(header);
        body.extend_from_slice(&bytes[..keep]);
        body.resize(body.len().next_multiple_of(4), 0);
        self.block(6, &body); // enhanced packet
    }
}

impl<W: Write> Drop for Pcap<W> {
    fn drop(&mut self) {
        let _ = self.out.flush();
    }
}
