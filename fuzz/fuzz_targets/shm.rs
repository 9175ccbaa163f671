//! A rail of shared memory whose peer writes what it likes into the half of the memory that is its own, and into ours:
//! records, positions of the rings, transfer slots. The victim's connection never panics and never writes outside what
//! it posted or exposed.
//!
//! With the direct copy on, the victim only receives: a peer may name any address of its own memory as destination, and
//! here that memory is ours.
#![no_main]

use libfuzzer_sys::fuzz_target;
use linkspan_fuzz::Input;
use linkspan_fuzz::frames::{self, Likely};
use linkspan_proto::{Buf, Head, Kind};
use linkspan_shm::{Config, ShmRail, pair};
use linkspan_transport::{Access, Conn, MemSlice, StaticBuf, Ticket};

/// The memory as `sys/shmring/src/layout.rs` lays it out; the victim is side A.
const LINE: usize = 64;
const SIDES: usize = 4096;
const SIDE: usize = 8 * LINE;
const TAIL_B: usize = SIDES + SIDE;
const HEAD_B: usize = TAIL_B + 2 * LINE;
const TAIL_A: usize = SIDES;
const INSIDE: [usize; 2] = [SIDES + 6 * LINE, SIDES + SIDE + 6 * LINE];
const SLOTS: usize = 8192;
const RINGS: usize = 32768;
const RING: usize = 64 << 10;

/// Ranges of the victim's buffer that may be written: posted receives, then a region.
const GRANTED: [(u64, u64); 4] = [(4096, 100), (8192, 20_000), (40_000, 8), (65_536, 50_000)];
const REGION: (u64, u64) = (120_000, 20_000);
const SECRET: (u64, u64) = (145_000, 9000);
const ALL: usize = 155_000;

fuzz_target!(|bytes: &[u8]| {
    let mut input = Input::new(bytes);
    let choice = input.u8();
    let cma = choice & 1 != 0;
    let config = Config { ring: RING, cma, cma_from: 4096, slice: 4096, batches: choice & 4 != 0, ..Config::default() };
    let (rail, peer) = pair(config).expect("shared memory with ourselves");
    let mut victim = Conn::new([rail], choice & 2 != 0);
    let memory = StaticBuf::new(ALL);
    let all = memory.slice();
    let mut enemy = Enemy { peer, tail: 0, likely: likely(), input };
    post(&mut victim, all, cma, &mut enemy.likely.ids);
    let mut sends: Vec<Ticket> = Vec::new();
    while !enemy.input.is_empty() {
        enemy.act();
        if enemy.input.u8() & 3 == 0 {
            continue;
        }
        if !cma && enemy.input.u8() & 7 == 0 {
            sends.extend(victim.post_send(1, all.sub(SECRET.0, SECRET.1).expect("inside")).ok().flatten());
        }
        sends.retain(|ticket| matches!(victim.test(*ticket), Ok(None)));
        if victim.progress().is_err() {
            break;
        }
    }
    // A peer that says that it is inside our memory forever is waited for until its end, which is ours here.
    INSIDE.into_iter().for_each(|at| enemy.peer.map().corrupt(at, 0));
    drop(victim);
    let bytes = all.to_vec();
    for (at, byte) in bytes.iter().enumerate().filter(|(_, byte)| **byte != 0) {
        let inside = |(from, len): &(u64, u64)| (*from..from + len).contains(&(at as u64));
        assert!(GRANTED.iter().chain([&REGION]).any(inside), "byte {at} became {byte} outside every grant");
    }
});

fn likely() -> Likely {
    // Names of the first receives of a connection, whatever generation they begin with.
    let ids = (0..4).flat_map(|n| [n, 1 << 10 | n]).chain([u32::MAX]).collect();
    Likely { ids, most: 30_000, ..Likely::default() }
}

fn post(victim: &mut Conn<ShmRail>, all: MemSlice, cma: bool, ids: &mut Vec<u32>) {
    for (tag, (at, len)) in GRANTED.into_iter().enumerate() {
        let posted = victim.post_recv(&[(tag as u32, all.sub(at, len).expect("inside"))]);
        assert!(matches!(posted, Ok(Some(_))), "a fresh connection takes a receive");
    }
    let region = all.sub(REGION.0, REGION.1).expect("inside");
    ids.extend(victim.expose(region, if cma { Access::Write } else { Access::ReadWrite }));
}

struct Enemy<'a> {
    peer: ShmRail,
    /// Bytes written into its ring.
    tail: u64,
    likely: Likely,
    input: Input<'a>,
}

impl Enemy<'_> {
    fn act(&mut self) {
        match self.input.below(8) {
            0..=3 => self.record(),
            4 => self.corrupt(),
            5 => {
                let consumed = self.peer.map().peek(TAIL_A);
                let value = self.input.near(consumed);
                self.peer.map().corrupt(HEAD_B, value);
            }
            6 => {
                let at = SLOTS + 8 * (usize::from(self.input.u16()) % 768);
                let value = self.input.near(self.peer.map().peek(at));
                self.peer.map().corrupt(at, value);
            }
            _ => {
                let value = self.input.near(self.tail);
                self.peer.map().corrupt(TAIL_B, value);
            }
        }
    }

    /// Any word of the first pages: names, positions, flags.
    fn corrupt(&mut self) {
        let at = 8 * (usize::from(self.input.u16()) % (RINGS / 8));
        let value = self.input.near(self.peer.map().peek(at));
        self.peer.map().corrupt(at, value);
    }

    /// A record that is almost right (`transports/shm/src/record.rs` gives its bytes).
    fn record(&mut self) {
        let (mut head, kind) = frames::head(&mut self.input, &self.likely);
        let len = head.len.get() as usize;
        let mut bytes = vec![0; LINE];
        let tag = match (kind.is_payload(), self.input.below(8)) {
            (_, 0) => self.input.u8(),
            (false, _) => 1,
            (true, 1) => 3,
            (true, 2 | 3) => 4,
            (true, 4) => 5,
            (true, 6) => 7,
            (true, _) => 2,
        };
        if tag == 4 {
            head.len.set(self.input.near(20_000).min(1 << 20) as u32);
        }
        bytes[8..48].copy_from_slice(head.as_wire());
        let mut count = match tag {
            1 => {
                bytes.resize((48 + len).next_multiple_of(LINE), 0xCD);
                len
            }
            4 => {
                // An address that can be read, or anything.
                let address = self.input.near(bytes.as_ptr() as u64 & !4095);
                bytes[48..56].copy_from_slice(&address.to_le_bytes());
                bytes[56] = self.input.u8() % 20;
                bytes[58..60].copy_from_slice(&(self.input.near(1) as u16).to_le_bytes());
                bytes[60..64].copy_from_slice(&(self.input.near(1) as u32).to_le_bytes());
                0
            }
            7 => {
                // A row of one chunk.
                let address = self.input.near(bytes.as_ptr() as u64 & !4095);
                bytes[8..LINE].fill(0);
                bytes[8..12].copy_from_slice(&(self.input.near(1) as u32).to_le_bytes());
                bytes[12] = self.input.u8() % 20;
                bytes.extend_from_slice(head.as_wire());
                bytes.extend_from_slice(&address.to_le_bytes());
                bytes.resize(2 * LINE, 0xCD);
                48
            }
            _ => {
                if tag == 5 {
                    bytes[8..12].copy_from_slice(&(self.input.near(1) as u32).to_le_bytes());
                    bytes[12] = self.input.u8() % 20;
                    bytes[16..24].copy_from_slice(&self.input.near(0).to_le_bytes());
                }
                let part = if self.input.u8() < 200 { len } else { self.input.below(256) };
                bytes.resize(LINE + part.next_multiple_of(LINE), 0xCD);
                part
            }
        };
        count = self.input.near(count as u64) as usize;
        bytes[..4].copy_from_slice(&(count as u32).to_le_bytes());
        bytes[4] = tag;
        self.write(&bytes);
        self.count(&head, kind);
    }

    /// Into the ring, and published.
    fn write(&mut self, bytes: &[u8]) {
        let map = self.peer.map();
        for (n, word) in bytes.chunks_exact(8).enumerate() {
            let at = (self.tail as usize + 8 * n) % RING;
            map.corrupt(RINGS + RING + at, u64::from_le_bytes(word.try_into().expect("8 bytes")));
        }
        self.tail += bytes.len() as u64;
        map.corrupt(TAIL_B, self.tail);
    }

    /// What an honest peer would say next.
    fn count(&mut self, head: &Head, kind: Kind) {
        if kind.is_payload() {
            self.likely.chunk = head.seq.get().wrapping_add(1);
        } else if !(kind == Kind::Ack && head.id.get() == u32::MAX) {
            self.likely.seq = head.seq.get().wrapping_add(1);
        }
    }
}
