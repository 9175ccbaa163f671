//! USB4NET in software: logs in as Linux's `thunderbolt_net` does, answers ARP and ICMP echo, and sends UDP datagrams
//! back, so that a guest's network over the cable can be tested without a second guest.

use super::{PeerIo, Service};
use crate::control::pdf;
use crate::nhi::Frame;
use crate::time::SEC;
use crate::xdomain::property::Directory;
use crate::xdomain::{Message, Uuid};

/// UUID of the login protocol, 798f589e-3616-8a47-97c6-5664a920c8dd.
pub(crate) const PROTOCOL: Uuid =
    Uuid([0x79, 0x8f, 0x58, 0x9e, 0x36, 0x16, 0x8a, 0x47, 0x97, 0xc6, 0x56, 0x64, 0xa9, 0x20, 0xc8, 0xdd]);
/// UUID of the property directory, c66189ca-1cce-4195-bdb8-49592e5f5a4f.
const DIRECTORY: Uuid =
    Uuid([0xc6, 0x61, 0x89, 0xca, 0x1c, 0xce, 0x41, 0x95, 0xbd, 0xb8, 0x49, 0x59, 0x2e, 0x5f, 0x5a, 0x4f]);

const LOGIN: u32 = 0;
const LOGIN_RESPONSE: u32 = 1;
const LOGOUT: u32 = 2;
const STATUS: u32 = 3;

/// Between logins without an answer: the other host's interface may not be up yet.
const RETRY: u64 = SEC;
/// Bytes before the payload of each frame: size, index, packet, number of frames.
const HEADER: usize = 12;
/// Most payload of one frame.
const PAYLOAD: usize = 4096 - HEADER;
/// Most frames of one packet: 64 KiB.
const MAX_FRAMES: u32 = 17;

/// One link.
#[derive(Debug, Default)]
struct Link {
    uuids: Option<(Uuid, Uuid)>,
    /// The other host answered our login.
    answered: bool,
    /// Number of the last login: only its timer counts.
    last: u32,
    /// HopID on which the other host sends, from its login.
    receive_hop: Option<u16>,
    packet: Vec<u8>,
    /// Frames of the packet that were received.
    frames: u32,
}

/// The service.
#[derive(Debug)]
pub struct Network {
    hop: u16,
    mac: [u8; 6],
    links: std::collections::BTreeMap<usize, Link>,
    command: u32,
}

impl Network {
    /// A network interface that sends on a HopID, from 8.
    pub fn new(hop: u16) -> Network {
        // A locally administered address.
        Network { hop, mac: [2, 0, 0, 0x50, 0xf7, 1], links: Default::default(), command: 0 }
    }

    fn login(&mut self, io: &mut PeerIo, port: usize) {
        let Some(link) = self.links.get_mut(&port) else { return };
        let Some((own, remote)) = link.uuids else { return };
        self.command = (self.command + 1) & 0xff_ffff;
        link.last = self.command;
        let rest = [1, u32::from(self.hop), 0, 0, 0, 0]; // protocol version, transmit HopID
        send(io, port, 0, (own, remote), [LOGIN, self.command], &rest);
        io.timer(io.now() + RETRY, token(port, self.command));
    }

    /// A whole Ethernet frame. The answer, if there is one.
    fn answer(&self, packet: &[u8]) -> Option<Vec<u8>> {
        let mut out = packet.to_vec();
        match packet.get(12..14)? {
            [8, 6] => {
                // ARP, Ethernet and IPv4, request: the host that is asked for is here.
                if packet.get(14..22)? != [0, 1, 8, 0, 6, 4, 0, 1] || packet.len() < 42 {
                    return None;
                }
                let (asker, wanted) = (packet.get(22..32)?, packet.get(38..42)?);
                if asker.get(6..10) == Some(wanted) {
                    return None;
                }
                out[21] = 2;
                out[22..28].copy_from_slice(&self.mac);
                out[28..32].copy_from_slice(wanted);
                out[32..42].copy_from_slice(asker);
            }
            [8, 0] => {
                let start = 14 + usize::from(packet.get(14)? & 0xf) * 4;
                if packet.len() < start + 8 || start < 34 {
                    return None;
                }
                out.copy_within(30..34, 26);
                out[30..34].copy_from_slice(&packet[26..30]);
                match packet[23] {
                    // Echo request to echo reply: the type falls by 8, the checksum rises by as much.
                    1 if packet[start] == 8 => {
                        out[start] = 0;
                        let sum = u32::from(u16::from_be_bytes([packet[start + 2], packet[start + 3]])) + 0x800;
                        let sum = (sum & 0xffff) + (sum >> 16);
                        out[start + 2..start + 4].copy_from_slice(&(sum as u16).to_be_bytes());
                    }
                    // UDP: the ports change places, which leaves the checksum right.
                    17 => {
                        out.copy_within(start + 2..start + 4, start);
                        out[start + 2..start + 4].copy_from_slice(&packet[start..start + 2]);
                    }
                    _ => return None,
                }
            }
            _ => return None,
        }
        out[..6].copy_from_slice(&packet[6..12]);
        out[6..12].copy_from_slice(&self.mac);
        Some(out)
    }
}

/// Timer of a login on a port.
fn token(port: usize, login: u32) -> u64 {
    u64::from(login) << 8 | port as u64 & 0xff
}

fn send(io: &mut PeerIo, port: usize, seq: u8, (own, remote): (Uuid, Uuid), [what, command]: [u32; 2], rest: &[u32]) {
    let mut words = own.words().to_vec();
    words.extend(remote.words());
    words.extend([what, command]);
    words.extend_from_slice(rest);
    io.send_message(port, pdf::XDOMAIN_RESPONSE, Message { route: 0, seq, protocol: PROTOCOL, words }.encode());
}

impl Service for Network {
    fn key(&self) -> &str {
        "network"
    }

    fn properties(&self) -> Directory {
        // Settings 0: packets are not numbered, no end-to-end flow control on what this side receives.
        Directory::with_uuid(DIRECTORY)
            .number("prtcid", 1)
            .number("prtcvers", 1)
            .number("prtcrevs", 1)
            .number("prtcstns", 0)
    }

    fn ready(&mut self, io: &mut PeerIo, port: usize, uuids: (Uuid, Uuid), remote: &Directory) {
        let link = self.links.entry(port).or_default();
        let known = link.uuids.replace(uuids).is_some();
        if !known && remote.get_directory("network").is_some() {
            self.login(io, port);
        } else if remote.get_directory("network").is_none() {
            link.uuids = None;
        }
    }

    fn lost(&mut self, _io: &mut PeerIo, port: usize) {
        self.links.remove(&port);
    }

    fn timer(&mut self, io: &mut PeerIo, token: u32) {
        let port = (token & 0xff) as usize;
        if self.links.get(&port).is_some_and(|l| !l.answered && l.last == token >> 8) {
            self.login(io, port);
        }
    }

    fn message(&mut self, io: &mut PeerIo, port: usize, _request: bool, message: &Message) -> bool {
        if message.protocol != PROTOCOL {
            return false;
        }
        let (Some(link), Some([what, command])) = (self.links.get_mut(&port), message.words.get(8..10)) else {
            return true;
        };
        let Some(uuids) = link.uuids else { return true };
        let again = [*what, *command];
        // Linux sends all of these as responses, requests too: the type tells.
        match *what {
            LOGIN => {
                link.receive_hop = message.words.get(11).map(|h| *h as u16);
                let mac = self.mac;
                let low = u32::from_le_bytes([mac[0], mac[1], mac[2], mac[3]]);
                let rest = [0, low, u32::from_le_bytes([mac[4], mac[5], 0, 0]), 6, 0, 0, 0, 0];
                send(io, port, message.seq, uuids, [LOGIN_RESPONSE, again[1]], &rest);
                // Its interface is up now: our own login will be answered.
                if !link.answered {
                    self.login(io, port);
                }
            }
            LOGOUT => {
                link.receive_hop = None;
                link.answered = false;
                send(io, port, message.seq, uuids, [STATUS, again[1]], &[0]);
                io.timer(io.now() + RETRY, token(port, link.last));
            }
            LOGIN_RESPONSE => {
                // Status 0 is success.
                link.answered |= message.words.get(10) == Some(&0);
            }
            _ => {}
        }
        true
    }

    fn frame(&mut self, io: &mut PeerIo, port: usize, hop: u16, frame: &Frame) -> bool {
        let Some(link) = self.links.get_mut(&port).filter(|l| l.receive_hop == Some(hop)) else { return false };
        let Some((head, rest)) = frame.data.split_first_chunk::<HEADER>() else { return true };
        let size = u32::from_le_bytes([head[0], head[1], head[2], head[3]]) as usize;
        let index = u32::from(u16::from_le_bytes([head[4], head[5]]));
        let count = u32::from_le_bytes([head[8], head[9], head[10], head[11]]);
        if index == 0 {
            link.packet.clear();
            link.frames = 0;
        }
        let Some(payload) = rest.get(..size).filter(|_| !frame.damaged && count <= MAX_FRAMES && index == link.frames)
        else {
            io.note("peer: a USB4NET frame that does not fit its packet");
            return true;
        };
        link.packet.extend_from_slice(payload);
        link.frames += 1;
        if link.frames < count {
            return true;
        }
        let packet = std::mem::take(&mut link.packet);
        link.frames = 0;
        if let Some(answer) = self.answer(&packet) {
            let count = answer.len().div_ceil(PAYLOAD) as u32;
            for (index, part) in answer.chunks(PAYLOAD).enumerate() {
                let mut data = (part.len() as u32).to_le_bytes().to_vec();
                data.extend((index as u16).to_le_bytes());
                data.extend([0; 2]);
                data.extend(count.to_le_bytes());
                data.extend_from_slice(part);
                io.send_frame(port, self.hop, Frame { data, sof: 1, eof: 2, damaged: false });
            }
        }
        true
    }
}

#[cfg(test)]
mod tests;
