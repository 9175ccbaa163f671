//! The other end of linkspan.ko in software: logs in as docs/PROTOCOL.md says, sends short messages back, and lies when told
//! to, so that a guest's driver can be shown every wrong word that a host may say.

use super::{PeerIo, Service};
use crate::control::pdf;
use crate::nhi::Frame;
use crate::rng::Rng;
use crate::time::MS;
use crate::xdomain::property::Directory;
use crate::xdomain::{Message, Uuid};

/// UUID of the login, 6c73706e-9c1e-4f0a-a431-5e2b7710c38d.
const PROTOCOL: Uuid =
    Uuid([0x6c, 0x73, 0x70, 0x6e, 0x9c, 0x1e, 0x4f, 0x0a, 0xa4, 0x31, 0x5e, 0x2b, 0x77, 0x10, 0xc3, 0x8d]);
/// UUID of the property directory; any but the root has one.
const DIRECTORY: Uuid =
    Uuid([0xd3, 0xa1, 0xf6, 0xc2, 0x7b, 0x0e, 0x45, 0xd8, 0x9f, 0x21, 0x86, 0xe4, 0x0c, 0x5a, 0x31, 0x7d]);

const LOGIN: u32 = 1;
const READY: u32 = 2;
const LOGOUT: u32 = 3;
const ANSWER: u32 = 4;

const MSG: u8 = 1;
const RTS: u8 = 2;
const CTS: u8 = 3;
const CREDIT: u8 = 4;
const OPEN: u8 = 5;
const CLOSE: u8 = 6;
const ACK: u8 = 7;
const COUNT: u8 = 8;
const PROBE: u8 = 9;
const PART: u8 = 11;
const VOID: u8 = 12;
const EMPTY: u8 = 13;

/// In the length of a PROBE: the guest wants to be told what has arrived here.
const PROBE_ASKS: u8 = 1;

/// Words of a login packet behind its protocol.
const REQUEST: usize = 9;
const SESSION: usize = 11;
const NONCE: std::ops::Range<usize> = 18..22;

/// Bytes of a control frame's header.
const HEADER: usize = 32;
/// Bytes before the payload of each frame in the mode network, and the mark of such frames.
const NET_HEADER: usize = 22;
const NET_MARK: u8 = 2;
/// Between two of our requests.
const RETRY: u64 = 300 * MS;
/// Most frames or packets of one command.
const MOST: u64 = 10_000;

const USAGE: &str = "ring frame TYPE CHANNEL ID LENGTH BYTES, ring grant OFFSET, ring part FROM LENGTH, ring skip, ring short, ring told COUNT, ring fences BITS, ring empty COUNT, ring data BYTES NUMBER PAIR, ring next NAME=NUMBER..., \
                     ring quiet on|off, ring mirror on|off, ring mode direct|network, ring raw PAIR MARK BYTES HEX, ring packets SEED COUNT, \
                     ring flood SEED COUNT, ring fuzz SEED COUNT, ring new or ring state wanted";

/// Fields of our next LOGINs that are not what they should be.
#[derive(Clone, Copy, Debug, Default)]
struct Lies {
    version: Option<u32>,
    session: Option<u32>,
    hops: [Option<u32>; 2],
}

/// The service.
#[derive(Debug, Default)]
pub struct Ring {
    port: usize,
    uuids: Option<(Uuid, Uuid)>,
    session: u32,
    /// The guest's session and the HopIDs on which it receives, by ring pair.
    theirs: Option<(u32, [u16; 2])>,
    /// It has accepted our LOGIN.
    accepted: bool,
    /// It has said that it is ready, and has been told that we are.
    up: bool,
    ups: u64,
    logouts: u64,
    request: u32,
    seq: u32,
    /// The guest's control frames that came in order.
    got: u32,
    /// The guest's data frames that came, as it is told.
    told: u32,
    /// Round of the guest's last VOID.
    round: u32,
    /// Ring pairs over which the guest's PROBE came, as bits.
    heard: u32,
    /// Ours went over the data ring.
    probed: bool,
    received: u64,
    /// The guest's frames are not answered.
    quiet: bool,
    lies: Lies,
    /// The guest's last answer to a LOGIN of ours.
    status: Option<u32>,
    /// Channel and number of the message that the guest has announced last.
    announced: Option<(u16, u32)>,
    /// Number of the one that was granted last.
    granted: u32,
    /// The guest's nonces are given back to it as ours, and what it proves with them as our proof.
    mirror: bool,
    /// Number and sequence of the guest's LOGIN that waits for that.
    mirrored: Option<(u32, u8)>,
    /// The mode network: frames are parts of packets.
    network: bool,
}

/// HopIDs on which we receive, of two ring pairs, as a driver would take them. The first carries control.
const OWN_HOPS: [u32; 2] = [16, 17];

/// Marks of the data frame of this number over two ring pairs (docs/PROTOCOL.md).
fn marks(number: u64) -> (u8, u8) {
    let k = (number / 2 % 210) as u8;
    (2 + k / 15, 1 + k % 15)
}

impl Ring {
    /// One without a peer so far.
    pub fn new() -> Ring {
        Ring { session: 0x1000, ..Ring::default() }
    }

    /// Forgets the guest and begins with a new session.
    fn anew(&mut self) {
        self.session += 1;
        self.theirs = None;
        self.accepted = false;
        self.up = false;
        self.seq = 0;
        self.got = 0;
        self.told = 0;
        self.heard = 0;
        self.probed = false;
        self.announced = None;
    }

    /// A packet of the login: type, request, status, HopIDs.
    fn packet(&self, kind: u32, request: u32, status: u32, hops: [u32; 2]) -> Option<Vec<u32>> {
        let (own, remote) = self.uuids?;
        let lies = if kind == LOGIN { self.lies } else { Lies::default() };
        let mut words = own.words().to_vec();
        words.extend(remote.words());
        words.extend([kind, request, lies.version.unwrap_or(3), lies.session.unwrap_or(self.session)]);
        let mode = u32::from(kind == LOGIN && self.network);
        words.extend([self.theirs.map_or(0, |t| t.0), status | mode]);
        words.extend([lies.hops[0].unwrap_or(hops[0]), lies.hops[1].unwrap_or(hops[1]), 0, 0]);
        // No key: nothing to prove, no proof.
        words.extend([0; 8]);
        Some(words)
    }

    fn send(&self, io: &mut PeerIo, answer: bool, seq: u8, words: Option<Vec<u32>>) {
        let Some(words) = words else { return };
        let kind = if answer { pdf::XDOMAIN_RESPONSE } else { pdf::XDOMAIN_REQUEST };
        io.send_message(self.port, kind, Message { route: 0, seq, protocol: PROTOCOL, words }.encode());
    }

    /// The request that is due: LOGIN until it is accepted, then READY.
    fn ask(&mut self, io: &mut PeerIo) {
        if self.uuids.is_none() || self.up || self.mirror {
            return;
        }
        let kind = if self.accepted && self.theirs.is_some() { READY } else { LOGIN };
        self.request += 1;
        self.send(io, false, (self.request & 3) as u8, self.packet(kind, self.request, 0, OWN_HOPS));
    }

    fn control(&mut self, io: &mut PeerIo, kind: u8, channel: u16, id: u32, length: u32, payload: &[u8]) {
        let from = if kind == PROBE { self.theirs.map_or(0, |(session, _)| session.into()) } else { 0 };
        self.control_from(io, (kind, channel, id, length), from, payload);
    }

    fn control_from(&mut self, io: &mut PeerIo, words: (u8, u16, u32, u32), from: u64, payload: &[u8]) {
        let Some((_, [hop, _])) = self.theirs else { return };
        let (kind, channel, id, length) = words;
        let counted = kind != COUNT && kind != PROBE;
        let seq = if counted { self.seq } else { 0 };
        self.seq = self.seq.wrapping_add(u32::from(counted));
        let mut data = self.header(kind, channel, seq, id, length, from);
        data.extend_from_slice(payload);
        io.send_frame(self.port, hop, Frame { data, sof: 1, eof: 2, damaged: false });
    }

    fn header(&self, kind: u8, channel: u16, seq: u32, id: u32, length: u32, from: u64) -> Vec<u8> {
        let mut data = seq.to_le_bytes().to_vec();
        data.extend([kind, 0]);
        data.extend(channel.to_le_bytes());
        data.extend(id.to_le_bytes());
        data.extend(length.to_le_bytes());
        data.extend(self.got.to_le_bytes());
        data.extend(self.told.to_le_bytes());
        data.extend(from.to_le_bytes());
        data
    }

    /// The guest's PROBE: ours over the data ring once, and what has arrived here, where it asks.
    fn probe(&mut self, io: &mut PeerIo, asks: bool) {
        let Some((session, [_, hop])) = self.theirs else { return };
        self.heard |= 1;
        if !std::mem::replace(&mut self.probed, true) && hop != 0 {
            let data = self.header(PROBE, 0, 0, self.session, 0, session.into());
            io.send_frame(self.port, hop, Frame { data, sof: 1, eof: 1, damaged: false });
        }
        if asks {
            self.control(io, PROBE, 0, self.session, self.heard, &[]);
        }
    }

    /// Where the guest receives over this ring pair.
    fn hop(&self, pair: u64) -> Result<u16, String> {
        let (_, hops) = self.theirs.ok_or("no peer is logged in")?;
        hops.get(pair as usize).copied().ok_or_else(|| "pair 0 or 1 wanted".to_owned())
    }

    /// The guest's PROBE in the mode network: it is answered over the same ring pair.
    fn probed(&mut self, io: &mut PeerIo, pair: usize, frame: &Frame) {
        let Some((session, hops)) = self.theirs.filter(|_| frame.sof == 1 && frame.data.len() >= HEADER) else {
            return;
        };
        self.heard |= 1 << pair;
        let asks = if self.up { 0 } else { u32::from(PROBE_ASKS) << 8 };
        let data = self.header(PROBE, 0, 0, self.session, self.heard | asks, session.into());
        io.send_frame(self.port, hops[pair], Frame { data, sof: 1, eof: 1, damaged: false });
    }

    /// Random frames of packets, most of them with a header that is nearly right.
    fn packets(&mut self, io: &mut PeerIo, seed: u64, count: u64) -> Result<(), String> {
        let hops = [self.hop(0)?, self.hop(1)?];
        let mut rng = Rng::new(seed);
        let most = (4096 - NET_HEADER) as u64;
        for packet in 0..count as u32 {
            let length = [rng.below(most), most + rng.below(most), rng.below(80_000), rng.next_u64() >> 32]
                [rng.below(4) as usize] as u32;
            let frame = [0, 1, rng.below(20), rng.below(65_536)][rng.below(4) as usize] as u16;
            let right = u64::from(length).saturating_sub(u64::from(frame) * most).min(most);
            let bytes = if rng.below(4) == 0 { rng.below(most + 1) } else { right } as usize;
            let mut data = packet.wrapping_add(rng.below(2) as u32).to_le_bytes().to_vec();
            data.extend(length.to_le_bytes());
            data.extend(frame.to_le_bytes());
            data.extend([0; 2]);
            // Flags, kind and sizes of what is left to compute and to cut.
            let mut offload = [0u8; 10];
            if rng.below(2) == 0 {
                offload.iter_mut().for_each(|byte| *byte = rng.next_u64() as u8);
                offload[0] = rng.below(2) as u8;
                offload[1] = [0, 1, 4, 5, 0x81][rng.below(5) as usize];
            }
            data.extend(offload);
            data.extend(std::iter::repeat_with(|| rng.next_u64() as u8).take(bytes));
            if rng.below(16) == 0 {
                data.truncate(rng.below(NET_HEADER as u64) as usize + 1);
            }
            let sof = if rng.below(8) == 0 { 1 + rng.below(15) as u8 } else { NET_MARK };
            let hop = hops[rng.below(2) as usize];
            io.send_frame(self.port, hop, Frame { data, sof, eof: sof, damaged: rng.below(16) == 0 });
        }
        Ok(())
    }

    /// Random words where a login's would be: kinds and sessions that may fit, all else as chance has it.
    fn flood(&mut self, io: &mut PeerIo, seed: u64, count: u64) {
        let mut rng = Rng::new(seed);
        for _ in 0..count {
            let Some(mut words) = self.packet(rng.below(6) as u32, rng.next_u64() as u32, 0, OWN_HOPS) else { return };
            for word in &mut words[10..] {
                if rng.below(2) == 0 {
                    *word = if rng.below(2) == 0 { rng.below(20) as u32 } else { rng.next_u64() as u32 };
                }
            }
            if rng.below(8) == 0 {
                words.truncate(rng.below(18) as usize);
            }
            self.send(io, rng.below(4) == 0, rng.below(4) as u8, Some(words));
        }
    }

    /// Random control frames, most of them with a header that is nearly right.
    fn fuzz(&mut self, io: &mut PeerIo, seed: u64, count: u64) {
        let mut rng = Rng::new(seed);
        for _ in 0..count {
            let channel = if rng.below(8) == 0 { rng.next_u64() as u16 } else { rng.below(4) as u16 };
            let id = if rng.below(3) == 0 { rng.next_u64() as u32 } else { rng.below(18) as u32 };
            let bytes = if rng.below(4) == 0 { rng.below(4065) } else { rng.below(40) } as usize;
            let length = if rng.below(4) == 0 { rng.next_u64() as u32 } else { bytes as u32 };
            self.control(io, rng.below(16) as u8, channel, id, length, &vec![0xa5; bytes]);
        }
    }
}

impl Service for Ring {
    fn key(&self) -> &str {
        "linkspan"
    }

    fn properties(&self) -> Directory {
        Directory::with_uuid(DIRECTORY)
            .number("prtcid", 1)
            .number("prtcvers", 1)
            .number("prtcrevs", 1)
            .number("prtcstns", 0)
    }

    fn ready(&mut self, io: &mut PeerIo, port: usize, uuids: (Uuid, Uuid), _remote: &Directory) {
        if self.uuids.replace(uuids).is_none() {
            self.port = port;
            io.timer(io.now() + RETRY, 0);
        }
    }

    fn lost(&mut self, _io: &mut PeerIo, _port: usize) {
        self.uuids = None;
        self.anew();
    }

    fn timer(&mut self, io: &mut PeerIo, _token: u32) {
        if self.uuids.is_some() {
            self.ask(io);
            io.timer(io.now() + RETRY, 0);
        }
    }

    fn message(&mut self, io: &mut PeerIo, _port: usize, _request: bool, message: &Message) -> bool {
        if message.protocol != PROTOCOL {
            return false;
        }
        let Some([kind, request, _, session, peer, status, control, data]) = message.words.get(8..16) else {
            return true;
        };
        match *kind {
            LOGIN if self.mirror => {
                self.mirrored = Some((*request, message.seq));
                let Some(mut words) = self.packet(LOGIN, *request, 0, OWN_HOPS) else { return true };
                words[SESSION] = *session;
                words[NONCE].copy_from_slice(message.words.get(NONCE).unwrap_or(&[0; 4]));
                self.send(io, false, message.seq, Some(words));
            }
            ANSWER if self.mirror => {
                self.status = Some(*status);
                let Some((request, seq)) = self.mirrored.take() else { return true };
                let mut words = message.words.clone();
                words[REQUEST] = request;
                self.send(io, true, seq, Some(words));
            }
            LOGIN => {
                self.theirs = Some((*session, [*control as u16, *data as u16]));
                self.send(io, true, message.seq, self.packet(ANSWER, *request, 0, [0; 2]));
            }
            READY => {
                // What the guest may send from now on has somewhere to arrive: here, always.
                self.send(io, true, message.seq, self.packet(ANSWER, *request, 0, [0; 2]));
            }
            LOGOUT => {
                self.logouts += 1;
                self.send(io, true, message.seq, self.packet(ANSWER, *request, 0, [0; 2]));
                self.anew();
            }
            ANSWER => {
                let was = self.accepted && self.theirs.is_some();
                self.status = Some(*status);
                // One that was on its way when this host began anew is about a session that is over.
                let ok = *status == 0 && *peer == self.session;
                if ok && was && !self.up {
                    self.up = true;
                    self.ups += 1;
                }
                self.accepted |= ok;
            }
            _ => {}
        }
        true
    }

    fn frame(&mut self, io: &mut PeerIo, _port: usize, hop: u16, frame: &Frame) -> bool {
        if self.network {
            let Some(pair) = OWN_HOPS.iter().position(|own| *own == u32::from(hop)) else { return false };
            self.received += 1;
            self.probed(io, pair, frame);
            return true;
        }
        if u32::from(hop) != OWN_HOPS[0] {
            let ours = u32::from(hop) == OWN_HOPS[1];
            self.heard |= u32::from(ours) << 1;
            return ours;
        }
        self.received += 1;
        let Some(head) = frame.data.get(..HEADER).filter(|_| !self.quiet) else { return true };
        match head[4] {
            COUNT => return true,
            PROBE => {
                self.probe(io, head[13] & PROBE_ASKS != 0);
                return true;
            }
            _ if u32::from_le_bytes([head[0], head[1], head[2], head[3]]) != self.got => {
                self.control(io, COUNT, 0, 0, 0, &[]);
                return true;
            }
            _ => {
                self.got = self.got.wrapping_add(1);
                self.control(io, COUNT, 0, 0, 0, &[]);
            }
        }
        let channel = u16::from_le_bytes([head[6], head[7]]);
        match head[4] {
            OPEN => self.control(io, OPEN, channel, 16, 0, &[]),
            CLOSE => self.control(io, ACK, channel, 0, 0, &[]),
            MSG => {
                let message = frame.data[HEADER..].to_vec();
                self.control(io, CREDIT, channel, 1, 0, &[]);
                self.control(io, MSG, channel, 0, message.len() as u32, &message);
            }
            RTS => self.announced = Some((channel, u32::from_le_bytes([head[8], head[9], head[10], head[11]]))),
            VOID => self.round = u32::from_le_bytes([head[8], head[9], head[10], head[11]]),
            _ => {}
        }
        true
    }

    fn command(&mut self, io: &mut PeerIo, words: &[&str]) -> Option<Result<String, String>> {
        let ["ring", rest @ ..] = words else { return None };
        Some(self.told(io, rest))
    }
}

impl Ring {
    fn told(&mut self, io: &mut PeerIo, words: &[&str]) -> Result<String, String> {
        let number = |word: &str| word.parse::<u64>().map_err(|_| format!("'{word}': a number wanted"));
        match words {
            ["state"] => Ok(format!(
                "up={} ups={} logouts={} received={} session={} status={:?}",
                self.up, self.ups, self.logouts, self.received, self.session, self.status
            )),
            ["new"] => {
                self.anew();
                self.lies = Lies::default();
                self.status = None;
                Ok(String::new())
            }
            ["quiet", word] => {
                self.quiet = *word == "on";
                Ok(String::new())
            }
            ["mirror", word] => {
                self.mirror = *word == "on";
                self.mirrored = None;
                self.anew();
                Ok(String::new())
            }
            ["mode", word @ ("direct" | "network")] => {
                self.network = *word == "network";
                self.anew();
                Ok(String::new())
            }
            ["raw", pair, mark, bytes, hex] => {
                let (hop, mark) = (self.hop(number(pair)?)?, number(mark)? as u8);
                let digits = hex.as_bytes().chunks(2).map(|two| {
                    let two = std::str::from_utf8(two).unwrap_or_default();
                    u8::from_str_radix(two, 16).map_err(|_| format!("'{two}': two hexadecimal digits wanted"))
                });
                let mut data = digits.collect::<Result<Vec<u8>, String>>()?;
                data.resize(number(bytes)?.clamp(1, 4096) as usize, 0x5a);
                io.send_frame(self.port, hop, Frame { data, sof: mark, eof: mark, damaged: false });
                Ok(String::new())
            }
            ["packets", seed, count] => {
                self.packets(io, number(seed)?, number(count)?.min(MOST)).map(|()| String::new())
            }
            ["frame", kind, channel, id, length, bytes] => {
                let payload = vec![0x5a; number(bytes)?.min(4096 - HEADER as u64) as usize];
                let (kind, channel) = (number(kind)? as u8, number(channel)? as u16);
                self.control(io, kind, channel, number(id)? as u32, number(length)? as u32, &payload);
                Ok(String::new())
            }
            ["grant", offset] => {
                let (channel, id) = self.announced.take().ok_or("nothing is announced")?;
                self.granted = id;
                self.control(io, CTS, channel, id, number(offset)? as u32, &[]);
                Ok(String::new())
            }
            ["part", from, length] => {
                self.control_from(io, (PART, 0, self.granted, number(length)? as u32), number(from)?, &[]);
                Ok(String::new())
            }
            ["skip"] => {
                self.seq = self.seq.wrapping_add(1);
                self.control(io, CREDIT, 0, 0, 0, &[]);
                Ok(String::new())
            }
            ["short"] => {
                let (_, [hop, _]) = self.theirs.ok_or("no peer is logged in")?;
                io.send_frame(self.port, hop, Frame { data: vec![0; 8], sof: 1, eof: 2, damaged: false });
                Ok(String::new())
            }
            ["told", count] => {
                self.told = number(count)? as u32;
                self.control(io, COUNT, 0, 0, 0, &[]);
                Ok(String::new())
            }
            ["fences", bits] => {
                self.control_from(io, (VOID, 0, 1, 0), number(bits)?, &[]);
                Ok(String::new())
            }
            ["empty", count] => {
                self.control_from(io, (EMPTY, 0, self.round, 0), number(count)?, &[]);
                Ok(String::new())
            }
            ["data", bytes, index, pair] => {
                let hop = self.hop(number(pair)?)?;
                let bytes = number(bytes)?.clamp(1, 4096) as usize;
                let (sof, eof) = marks(number(index)?);
                io.send_frame(self.port, hop, Frame { data: vec![0x3c; bytes], sof, eof, damaged: false });
                Ok(String::new())
            }
            ["next", lies @ ..] => {
                self.anew();
                self.status = None;
                self.lies = Lies::default();
                for lie in lies {
                    let (name, value) = lie.split_once('=').ok_or("NAME=NUMBER wanted")?;
                    let value = Some(number(value)? as u32);
                    match name {
                        "version" => self.lies.version = value,
                        "session" => self.lies.session = value,
                        "first" => self.lies.hops[0] = value,
                        "second" => self.lies.hops[1] = value,
                        _ => return Err(format!("'{name}': version, session, first or second wanted")),
                    }
                }
                self.ask(io);
                Ok(String::new())
            }
            ["flood", seed, count] => {
                self.flood(io, number(seed)?, number(count)?.min(MOST));
                Ok(String::new())
            }
            ["fuzz", seed, count] => {
                self.fuzz(io, number(seed)?, number(count)?.min(MOST));
                Ok(String::new())
            }
            _ => Err(USAGE.to_owned()),
        }
    }
}
