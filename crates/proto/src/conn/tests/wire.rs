//! Memory in vectors, queues for rails, and two engines joined by them.

use std::cell::Cell;
use std::collections::VecDeque;

use super::super::{Action, Body, Broken, Config, Engine, MAX_RAILS, OpError, Outcome, Refused, RemoteSlice, Ticket};
use crate::{Buf, Head, Kind};

/// Leaked bytes: handles stay valid for the whole test.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mem(&'static [Cell<u8>]);

impl Mem {
    pub(super) fn new(len: usize) -> Mem {
        Mem(Box::leak(vec![Cell::new(0); len].into_boxed_slice()))
    }

    pub(super) fn of(bytes: &[u8]) -> Mem {
        let mem = Mem::new(bytes.len());
        assert!(mem.fill(0, bytes));
        mem
    }

    pub(super) fn filled(len: usize, byte: u8) -> Mem {
        Mem::of(&vec![byte; len])
    }

    pub(super) fn set_all(self, byte: u8) {
        self.0.iter().for_each(|b| b.set(byte));
    }

    pub(super) fn is_all(self, byte: u8) -> bool {
        self.0.iter().all(|b| b.get() == byte)
    }

    /// Whether it is the same memory.
    pub(super) fn is(self, other: Mem) -> bool {
        std::ptr::eq(self.0, other.0)
    }

    pub(super) fn bytes(self) -> Vec<u8> {
        self.0.iter().map(Cell::get).collect()
    }
}

thread_local! {
    /// No memory can be copied, as that of a device that has failed.
    static FAILED: Cell<bool> = const { Cell::new(false) };
}

pub(super) fn memory_fails(fails: bool) {
    FAILED.set(fails);
}

impl Buf for Mem {
    const EMPTY: Mem = Mem(&[]);

    fn len(&self) -> usize {
        self.0.len()
    }

    fn sub(&self, offset: u64, len: u64) -> Option<Mem> {
        let end = offset.checked_add(len)?;
        let range = usize::try_from(offset).ok()?..usize::try_from(end).ok()?;
        self.0.get(range).map(Mem)
    }

    fn fill(&self, offset: u64, bytes: &[u8]) -> bool {
        let Some(to) = self.sub(offset, bytes.len() as u64).filter(|to| to.is_empty() || !FAILED.get()) else {
            return false;
        };
        to.0.iter().zip(bytes).for_each(|(to, from)| to.set(*from));
        true
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> bool {
        let Some(from) = self.sub(offset, out.len() as u64).filter(|from| from.is_empty() || !FAILED.get()) else {
            return false;
        };
        out.iter_mut().zip(from.0).for_each(|(to, from)| *to = from.get());
        true
    }
}

#[derive(Clone, Debug)]
pub(super) struct Item {
    pub(super) head: Head,
    pub(super) body: Vec<u8>,
}

impl Item {
    pub(super) fn kind(&self) -> Kind {
        Kind::from_u8(self.head.kind).expect("sent by an engine")
    }
}

/// What one side has put on its rails.
#[derive(Default)]
pub(super) struct Wire {
    pub(super) queues: [VecDeque<Item>; MAX_RAILS],
    pub(super) dead: [bool; MAX_RAILS],
    accepted: [u64; MAX_RAILS],
    kinds: Vec<Kind>,
    /// Items a rail holds before it is busy.
    pub(super) depth: usize,
}

impl Wire {
    /// Messages of this kind that were put on it so far.
    pub(super) fn sent(&self, kind: Kind) -> usize {
        self.kinds.iter().filter(|&&k| k == kind).count()
    }

    fn put(&mut self, rail: usize, head: &Head, body: Vec<u8>) -> Option<u64> {
        assert!(!self.dead[rail], "sent on a rail that is down");
        let bytes = head.as_wire();
        Head::decode(bytes).expect("a head");
        assert_eq!(head.len.get() as usize, body.len());
        if self.queues[rail].len() >= self.depth {
            return None;
        }
        self.queues[rail].push_back(Item { head: *head, body });
        self.accepted[rail] += 1;
        self.kinds.extend(Kind::from_u8(head.kind));
        Some(self.accepted[rail])
    }
}

impl Wire {
    /// Number of the item, or `None`: busy.
    fn take(&mut self, action: Action<'_, Mem>) -> Option<u64> {
        match action {
            Action::Ctrl { rail, head, body: Body::Mem(mem) } => self.put(rail, head, mem.bytes()),
            Action::Ctrl { rail, head, body: Body::Bytes(bytes) } => self.put(rail, head, bytes.to_vec()),
            Action::Grant { rail, head, .. } => self.put(rail, head, Vec::new()),
            Action::Data { rail, head, src, .. } => self.put(rail, head, src.bytes()),
        }
    }

    pub(super) fn taken(&self, rail: usize) -> u64 {
        self.accepted[rail] - self.queues[rail].len() as u64
    }

    /// Puts on the rails what `engine` says, and tells it what they took.
    pub(super) fn carry(&mut self, engine: &mut Engine<Mem>) {
        while let Some(first) = engine.next_action() {
            // To look changes nothing.
            let first = what(&first);
            let action = engine.next_action().expect("it had something to say");
            assert_eq!(what(&action), first);
            match self.take(action) {
                Some(item) => engine.accepted(item),
                None => engine.busy(),
            }
        }
    }
}

/// The rail and the head of an action.
fn what(action: &Action<'_, Mem>) -> (usize, Head) {
    match *action {
        Action::Ctrl { rail, head, .. } | Action::Grant { rail, head, .. } | Action::Data { rail, head, .. } => {
            (rail, *head)
        }
    }
}

/// Chunk size of the rails.
pub(super) const CHUNK: usize = 4096;

/// Two engines, each with its own wire.
pub(super) struct Joined {
    pub(super) ends: [Engine<Mem>; 2],
    pub(super) wires: [Wire; 2],
}

impl Joined {
    pub(super) fn new(rails: usize, acked: bool) -> Joined {
        let mut joined = Joined {
            ends: [0, 1].map(|_| Engine::new(Config { acked })),
            wires: [0, 1].map(|_| Wire { depth: 1000, ..Wire::default() }),
        };
        for end in &mut joined.ends {
            (0..rails).for_each(|r| assert!(end.rail_up(r, r as u32, CHUNK)));
        }
        joined
    }

    /// Posts something at `end`.
    pub(super) fn post(
        &mut self,
        end: usize,
        post: impl FnOnce(&mut Engine<Mem>) -> Result<(), Refused>,
    ) -> Result<Ticket, Refused> {
        post(&mut self.ends[end])?;
        self.wires[end].carry(&mut self.ends[end]);
        self.ends[end].posted().ok_or(Refused::Busy)
    }

    pub(super) fn send(&mut self, end: usize, tag: u32, src: Mem) -> Result<Ticket, Refused> {
        self.post(end, |engine| engine.post_send(tag, src))
    }

    pub(super) fn write(
        &mut self,
        end: usize,
        src: Mem,
        to: RemoteSlice,
        notify: Option<u64>,
    ) -> Result<Ticket, Refused> {
        self.post(end, |engine| engine.post_write(src, to, notify))
    }

    pub(super) fn read(&mut self, end: usize, dst: Mem, from: RemoteSlice) -> Result<Ticket, Refused> {
        self.post(end, |engine| engine.post_read(dst, from))
    }

    pub(super) fn recv(&mut self, end: usize, parts: &[(u32, Mem)]) -> Ticket {
        self.post(end, |engine| engine.post_recv(parts)).expect("receives are free")
    }

    pub(super) fn test(&mut self, end: usize, ticket: Ticket) -> Outcome {
        self.ends[end].test(|rail| self.wires[end].taken(rail), ticket)
    }

    /// Brings the first item of a rail from `end` to the other side. False: there was none.
    pub(super) fn deliver(&mut self, end: usize, rail: usize) -> Result<bool, Broken> {
        let Some(item) = self.wires[end].queues[rail].pop_front() else {
            return Ok(false);
        };
        if self.wires[1 - end].dead[rail] {
            return Ok(true); // it is not read any more
        }
        arrive(&mut self.ends[1 - end], rail, &item)?;
        Ok(true)
    }

    pub(super) fn pump(&mut self, end: usize, busy: bool) {
        self.ends[end].round(|rail| self.wires[end].taken(rail), busy);
        self.wires[end].carry(&mut self.ends[end]);
    }

    /// A rail is lost at one end: what was coming is lost, and nothing more is sent there.
    pub(super) fn lose(&mut self, end: usize, rail: usize) -> bool {
        self.wires[end].dead[rail] = true;
        self.wires[1 - end].queues[rail].clear();
        self.ends[end].rail_down(rail)
    }

    /// Drops what the other side has declared down.
    pub(super) fn obey(&mut self) {
        for end in [0, 1] {
            while let Some(rail) = self.ends[end].peer_closed() {
                self.lose(end, rail);
            }
        }
    }

    /// Everything that can move does, long enough for lazily held messages too.
    pub(super) fn settle(&mut self) {
        for _ in 0..2000 {
            let mut moved = false;
            for end in [0, 1] {
                for rail in 0..MAX_RAILS {
                    if self.wires[1 - end].dead[rail] {
                        self.wires[end].queues[rail].clear();
                    }
                    while self.deliver(end, rail).expect("honest") {
                        moved = true;
                    }
                }
                self.obey();
                self.pump(end, false);
            }
            let empty = self.wires.iter().flat_map(|w| &w.queues).all(VecDeque::is_empty);
            if !moved && empty && self.ends.iter().all(Engine::settled) {
                return;
            }
        }
        panic!("two engines never come to rest");
    }

    pub(super) fn done(&mut self, end: usize, ticket: Ticket) -> u64 {
        match self.test(end, ticket) {
            Outcome::Done(n) => n,
            other => panic!("{other:?}"),
        }
    }

    pub(super) fn failed(&mut self, end: usize, ticket: Ticket) -> OpError {
        match self.test(end, ticket) {
            Outcome::Failed(error) => error,
            other => panic!("{other:?}"),
        }
    }
}

/// One item reaches an engine whole.
pub(super) fn arrive(engine: &mut Engine<Mem>, rail: usize, item: &Item) -> Result<(), Broken> {
    if !item.kind().is_payload() {
        return engine.on_ctrl(rail, &item.head, &item.body);
    }
    if let Some(place) = engine.place(rail, &item.head)? {
        assert_eq!(place.len(), item.body.len());
        assert!(place.fill(0, &item.body));
    }
    engine.landed(rail, &item.head)
}
