//! The connection against a peer that sends anything, in any order, over up to three rails that come and go, while the
//! victim posts, tests and takes access back. The engine never panics, never gives out a place that was not granted,
//! never reports an operation whose memory a rail may still touch, and never holds more than its bounds.
#![no_main]

use std::collections::VecDeque;

use libfuzzer_sys::fuzz_target;
use linkspan_fuzz::Input;
use linkspan_fuzz::arena::{self, Mem};
use linkspan_fuzz::frames::{self, Likely};
use linkspan_proto::conn::{Access, Action, Body, Config, Engine, MAX_RAILS, Outcome, Refused, RemoteSlice, Ticket};
use linkspan_proto::{Buf, Head, Kind};

/// Id of an acknowledgement that stands outside the numbered order (`docs/PROTOCOL.md`, Ack).
const NO_RAIL: u32 = u32::MAX;

fuzz_target!(|bytes: &[u8]| {
    let mut input = Input::new(bytes);
    let mut victim = Victim::new(&mut input);
    while !input.is_empty() && victim.step(&mut input) {
        victim.check_bounds();
    }
    victim.end();
});

/// What the victim's rails hold, and what the peer has seen of it.
#[derive(Default)]
struct Wire {
    up: [bool; MAX_RAILS],
    /// Accepted and not yet taken, with the memory that is still to be read.
    waiting: [VecDeque<Mem>; MAX_RAILS],
    accepted: [u64; MAX_RAILS],
    taken: [u64; MAX_RAILS],
    /// Names of receives that the peer has been told.
    told: Vec<u32>,
    /// Control messages the peer has seen.
    sent: u32,
    chunks: [u32; MAX_RAILS],
}

impl Wire {
    fn put(&mut self, rail: usize, head: &Head, src: Mem) -> Option<u64> {
        assert!(self.up[rail], "sent on a rail that is down");
        let (_, kind) = Head::decode(head.as_wire()).expect("a head");
        if self.waiting[rail].len() >= 16 {
            return None;
        }
        match kind {
            Kind::Grant => self.told.push(head.id.get()),
            Kind::Read => self.told.push(head.tag.get()),
            Kind::Chunk | Kind::Put => self.chunks[rail] += 1,
            _ => {}
        }
        if !kind.is_payload() && !(kind == Kind::Ack && head.id.get() == NO_RAIL) {
            self.sent = head.seq.get().wrapping_add(1);
        }
        self.waiting[rail].push_back(src);
        self.accepted[rail] += 1;
        Some(self.accepted[rail])
    }
}

impl Wire {
    /// Number of the item, or `None`: busy.
    fn accept(&mut self, action: Action<'_, Mem>) -> Option<u64> {
        let (rail, head, src) = match action {
            Action::Ctrl { rail, head, body } => {
                let len = match body {
                    // A rail copies the body at once.
                    Body::Mem(mem) => {
                        assert!(mem.is_readable(), "a message out of {mem:?}, which must not be read");
                        mem.len()
                    }
                    Body::Bytes(bytes) => bytes.len(),
                };
                assert_eq!(head.len.get() as usize, len);
                (rail, head, Mem::EMPTY)
            }
            Action::Grant { rail, head, into } => {
                assert!(into.is_writable(), "a grant of {into:?}, which must not be written to");
                (rail, head, Mem::EMPTY)
            }
            Action::Data { rail, head, src, .. } => {
                assert_eq!(head.len.get() as usize, src.len());
                assert!(src.is_readable(), "a chunk out of {src:?}, which must not be read");
                (rail, head, src)
            }
        };
        self.put(rail, head, src)
    }
}

/// Chunk size of the rails.
const CHUNK: usize = 20_000;

struct Victim {
    engine: Engine<Mem>,
    wire: Wire,
    acked: bool,
    next_rail: u32,
    /// Operations that have not reported, with their memory.
    open: Vec<(Ticket, Vec<Mem>)>,
    regions: Vec<(u32, Mem)>,
    withdrawn: Vec<(u32, Mem)>,
    /// Chunks on their way in, per rail.
    places: [VecDeque<(Head, Option<Mem>)>; MAX_RAILS],
    landed: [u32; MAX_RAILS],
    /// Number of the next control message of an honest peer.
    due: u32,
}

impl Victim {
    fn new(input: &mut Input<'_>) -> Victim {
        arena::reset();
        let choice = input.u8();
        let rails = 1 + u32::from(choice % 3);
        let acked = rails > 1 || choice & 4 != 0;
        let mut victim = Victim {
            engine: Engine::new(Config { acked }),
            wire: Wire::default(),
            acked,
            next_rail: 0,
            open: Vec::new(),
            regions: Vec::new(),
            withdrawn: Vec::new(),
            places: Default::default(),
            landed: [0; MAX_RAILS],
            due: 0,
        };
        (0..rails).for_each(|id| victim.rail_up(id));
        for access in [Access::ReadWrite, Access::Read, Access::Write] {
            victim.expose(20_000, access);
        }
        victim
    }

    fn rail_up(&mut self, id: u32) {
        let Some(slot) = self.engine.free_rail() else { return };
        if self.engine.rail_up(slot, id, CHUNK) {
            self.wire.up[slot] = true;
            self.wire.accepted[slot] = 0;
            self.wire.taken[slot] = 0;
            self.wire.chunks[slot] = 0;
            self.landed[slot] = 0;
            self.next_rail = self.next_rail.max(id.saturating_add(1));
        }
    }

    /// False: it was the last one.
    fn rail_down(&mut self, slot: usize) -> bool {
        self.wire.up[slot] = false;
        self.wire.waiting[slot].clear();
        self.places[slot].clear();
        self.engine.rail_down(slot)
    }

    /// What a connection does after each round of arrivals.
    fn pump(&mut self, busy: bool) -> bool {
        self.engine.round(|rail| self.wire.taken[rail], busy);
        self.carry();
        self.obey()
    }

    fn carry(&mut self) {
        while let Some(action) = self.engine.next_action() {
            match self.wire.accept(action) {
                Some(item) => self.engine.accepted(item),
                None => self.engine.busy(),
            }
        }
    }

    /// What became of a post of `mems`.
    fn posted(&mut self, post: Result<(), Refused>, mems: Vec<Mem>) {
        if post.is_ok() {
            self.carry();
        }
        match post.ok().and_then(|()| self.engine.posted()) {
            Some(ticket) => self.open.push((ticket, mems)),
            None => mems.into_iter().for_each(Mem::forbid),
        }
    }

    fn obey(&mut self) -> bool {
        while let Some(slot) = self.engine.peer_closed() {
            if !self.rail_down(slot) {
                return false;
            }
        }
        true
    }

    fn step(&mut self, input: &mut Input<'_>) -> bool {
        match input.below(20) {
            0..=7 => return self.arrive(input),
            8 | 9 => return self.land(input.below(MAX_RAILS)),
            10 => {
                let rail = input.below(MAX_RAILS);
                if self.wire.up[rail] {
                    return self.rail_down(rail);
                }
            }
            11 if self.acked => {
                let id = input.near(self.next_rail.into()) as u32;
                self.rail_up(id);
            }
            11..=13 => {
                let busy = input.u8() & 1 == 0;
                return self.pump(busy);
            }
            14 => self.take(input),
            15 => self.test(),
            16 => self.receive(input),
            17 => self.send(input),
            18 => self.one_sided(input),
            _ => self.misc(input),
        }
        true
    }

    /// A message of the peer.
    fn arrive(&mut self, input: &mut Input<'_>) -> bool {
        let live: Vec<usize> = (0..MAX_RAILS).filter(|&r| self.wire.up[r]).collect();
        let rail = input.pick(&live);
        let mut ids = self.wire.told.clone();
        ids.extend(self.regions.iter().chain(&self.withdrawn).map(|r| r.0));
        ids.extend([NO_RAIL, 0, 1]);
        let coming = self.places[rail].len() as u32;
        let likely = Likely {
            seq: self.due,
            chunk: self.landed[rail].wrapping_add(coming),
            ack: self.wire.sent,
            ids,
            most: 30_000,
        };
        let (mut head, kind) = frames::head(input, &likely);
        if kind == Kind::Ack || kind == Kind::RailDown {
            // Of a rail: what it is said to have brought there.
            head.total.set(input.near(self.wire.chunks[rail].into()));
        }
        let len = head.len.get() as usize;
        if kind.is_payload() {
            let Ok(place) = self.engine.place(rail, &head) else { return self.noticed() };
            if let Some(place) = place {
                assert_eq!(place.len(), len, "a place of another size");
                assert!(place.is_writable(), "{place:?} was never granted");
            }
            self.places[rail].push_back((head, place));
            return true;
        }
        let body = vec![0xCD; len.min(kind.max_len())];
        if self.engine.on_ctrl(rail, &head, &body).is_err() {
            return self.noticed();
        }
        if head.seq.get() == self.due && !(kind == Kind::Ack && head.id.get() == NO_RAIL) {
            self.due = self.due.wrapping_add(1);
        }
        if input.u8() & 7 == 0 { self.obey() } else { self.pump(true) }
    }

    fn noticed(&self) -> bool {
        assert!(self.engine.is_broken(), "an attack is seen and forgotten");
        false
    }

    fn land(&mut self, rail: usize) -> bool {
        let Some((head, _)) = self.places[rail].pop_front() else { return true };
        if self.engine.landed(rail, &head).is_err() {
            return self.noticed();
        }
        self.landed[rail] = self.landed[rail].wrapping_add(1);
        true
    }

    /// A rail puts some of what it holds on the wire.
    fn take(&mut self, input: &mut Input<'_>) {
        let rail = input.below(MAX_RAILS);
        for _ in 0..=input.below(16) {
            if self.wire.waiting[rail].pop_front().is_some() {
                self.wire.taken[rail] += 1;
            }
        }
    }

    fn test(&mut self) {
        let mut open = std::mem::take(&mut self.open);
        open.retain(|(ticket, parts)| {
            let outcome = self.engine.test(|rail| self.wire.taken[rail], *ticket);
            if outcome == Outcome::Pending {
                return true;
            }
            if let Outcome::Done(bytes) = outcome {
                assert!(bytes <= parts.iter().map(|m| m.len() as u64).sum(), "{bytes} bytes in {parts:?}");
            }
            parts.iter().for_each(|mem| self.is_free(*mem));
            false
        });
        self.open = open;
    }

    /// From here on the memory belongs to the other side.
    fn is_free(&self, mem: Mem) {
        for (_, place) in self.places.iter().flatten() {
            assert!(!place.is_some_and(|p| p.overlaps(mem)), "{mem:?} is free and will be written to");
        }
        for src in self.wire.waiting.iter().flatten() {
            assert!(!src.overlaps(mem), "{mem:?} is free and will be read");
        }
        mem.forbid();
    }

    fn receive(&mut self, input: &mut Input<'_>) {
        let mut parts = Vec::new();
        for _ in 0..=input.below(3) {
            let Some(mem) = Mem::new(size(input)) else { return };
            mem.allow_writes();
            parts.push((input.below(5) as u32, mem));
        }
        let mems = parts.iter().map(|p| p.1).collect();
        let post = self.engine.post_recv(&parts);
        self.posted(post, mems);
    }

    fn send(&mut self, input: &mut Input<'_>) {
        let Some(mem) = Mem::new(size(input)) else { return };
        mem.allow_reads();
        let post = self.engine.post_send(input.below(5) as u32, mem);
        self.posted(post, vec![mem]);
    }

    fn one_sided(&mut self, input: &mut Input<'_>) {
        let Some(mem) = Mem::new(size(input)) else { return };
        let to = RemoteSlice { key: u32::from(input.u8()), offset: input.near(0) };
        let write = input.u8() & 1 == 0;
        let post = if write {
            mem.allow_reads();
            let notify = (input.u8() & 1 == 0).then_some(7);
            self.engine.post_write(mem, to, notify)
        } else {
            mem.allow_writes();
            self.engine.post_read(mem, to)
        };
        self.posted(post, vec![mem]);
    }

    fn expose(&mut self, len: usize, access: Access) {
        let Some(mem) = Mem::new(len) else { return };
        if let Some(key) = self.engine.expose(mem, access) {
            if access != Access::Read {
                mem.allow_writes();
            }
            if access != Access::Write {
                mem.allow_reads();
            }
            self.regions.push((key, mem));
        }
    }

    fn misc(&mut self, input: &mut Input<'_>) {
        match input.below(6) {
            0 => self.expose(size(input), [Access::Read, Access::Write, Access::ReadWrite][input.below(3)]),
            1 if !self.regions.is_empty() => {
                let (key, mem) = self.regions.swap_remove(input.below(256) % self.regions.len());
                if self.engine.unexpose(key) {
                    self.is_free(mem);
                } else {
                    // Nothing new lands there or leaves from there, though it is not free yet.
                    mem.forbid();
                    self.withdrawn.push((key, mem));
                }
            }
            2 => {
                for (key, mem) in std::mem::take(&mut self.withdrawn) {
                    match self.engine.unexpose(key) {
                        true => self.is_free(mem),
                        false => self.withdrawn.push((key, mem)),
                    }
                }
            }
            3 => drop(self.engine.take_notify()),
            4 => drop(self.engine.late_error()),
            _ => {
                self.engine.flush_lazy();
                let _ = self.engine.settled();
            }
        }
    }

    fn check_bounds(&self) {
        // The engine tells it where it is fuzzed; the gate only compiles this.
        #[cfg(fuzzing)]
        for (name, len, most) in self.engine.held() {
            assert!(len <= most, "{len} {name}, the bound is {most}");
        }
    }

    /// However it ended, the rails are dropped; what had reported by then still says so.
    fn end(mut self) {
        self.engine.goaway();
        (0..MAX_RAILS).filter(|&r| self.wire.up[r]).collect::<Vec<_>>().into_iter().for_each(|rail| {
            self.rail_down(rail);
        });
        self.test();
        self.check_bounds();
    }
}

fn size(input: &mut Input<'_>) -> usize {
    match input.u8() {
        0 => 0,
        n @ 1..=99 => usize::from(n),
        100..=139 => 8192,
        140..=199 => 8193,
        200..=239 => 20_000,
        _ => 45_000,
    }
}
