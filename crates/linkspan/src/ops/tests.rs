//! Parts of a batch on their way to the connection.

use linkspan_sim::{LinkConfig, SimRail, World};
use linkspan_transport::{Conn, StaticBuf};

use super::*;
use crate::Memory;

/// What only tests ask.
impl Ops {
    pub(super) fn is_touched(&self, id: OpId) -> bool {
        self.get(id).is_some_and(|op| op.touched)
    }

    pub(super) fn is_expired(&self, id: OpId) -> bool {
        self.get(id).is_some_and(|op| op.expired)
    }
}

/// Takes every write and notes it; the first one is refused by the peer with this error, if there is one, and the rest stays under way.
#[derive(Default)]
struct Noted(Vec<(usize, RemoteSlice, Option<u64>)>, Option<OpError>);

impl Path for Noted {
    fn post_write(&mut self, src: MemSlice, to: RemoteSlice, notify: Option<u64>) -> Posted {
        self.0.push((src.len(), to, notify));
        Ok(Some(Ticket::from_u64(self.0.len() as u64)))
    }

    fn post_read(&mut self, dst: MemSlice, from: RemoteSlice) -> Posted {
        self.post_write(dst, from, None)
    }

    fn copy_alone(&mut self, _: MemSlice, _: RemoteSlice, _: bool) -> bool {
        false
    }

    fn post_send(&mut self, _: u32, _: MemSlice) -> Posted {
        Ok(None)
    }

    fn post_recv(&mut self, _: u32, _: MemSlice) -> Posted {
        Ok(None)
    }

    fn cancel(&mut self, _: Ticket) -> Cancel {
        Cancel::UnderWay
    }

    fn test(&mut self, ticket: Ticket) -> Result<Option<u64>, ChannelError> {
        match self.1.take_if(|_| ticket == Ticket::from_u64(1)) {
            Some(error) => Err(ChannelError::Op(error)),
            None => Ok(None),
        }
    }

    fn late_error(&mut self) -> Option<OpError> {
        None
    }
}

/// What a batch of `(memory, offset, length, key, remote offset)` is posted as: lengths, keys and remote offsets.
fn posted(parts: &[(&Memory, usize, usize, u32, u64)], kind: Kind) -> Vec<(usize, u32, u64)> {
    let (mut ops, mut path) = (Ops::default(), Noted::default());
    let id = ops.start(kind, None, None);
    ops.parts(
        id,
        parts.iter().map(|&(memory, at, len, key, offset)| {
            let view = memory.slice(at, len).unwrap();
            (Part { local: view.raw(), remote: RemoteSlice { key, offset } }, view.hold())
        }),
    );
    ops.submit(id);
    ops.pump(&mut path);
    path.0.iter().map(|&(len, to, _)| (len, to.key, to.offset)).collect()
}

#[test]
fn neighbours_on_both_sides_become_one_and_others_do_not() {
    let (a, b) = (Memory::host(100), Memory::host(100));
    for kind in [Kind::Write, Kind::Read] {
        let run = [(&a, 0, 10, 1, 50), (&a, 10, 20, 1, 60), (&a, 30, 0, 1, 80), (&a, 30, 5, 1, 80)];
        assert_eq!(posted(&run, kind), [(35, 1, 50)]);
        // A gap here, a gap there, another region, another memory, the wrong order.
        assert_eq!(posted(&[(&a, 0, 10, 1, 0), (&a, 11, 10, 1, 10)], kind).len(), 2);
        assert_eq!(posted(&[(&a, 0, 10, 1, 0), (&a, 10, 10, 1, 11)], kind).len(), 2);
        assert_eq!(posted(&[(&a, 0, 10, 1, 0), (&a, 10, 10, 2, 10)], kind).len(), 2);
        assert_eq!(posted(&[(&a, 0, 10, 1, 0), (&b, 10, 10, 1, 10)], kind).len(), 2);
        assert_eq!(posted(&[(&a, 10, 10, 1, 10), (&a, 0, 10, 1, 0)], kind).len(), 2);
        // Nothing follows the end of the address space.
        assert_eq!(posted(&[(&a, 0, 10, 1, u64::MAX - 5), (&a, 10, 10, 1, 4)], kind).len(), 2);
    }
}

/// Two paths over the simulator, and a message on the first that waits for its receive.
struct Waiting {
    ops: Ops,
    id: OpId,
    a: Conn<SimRail>,
    b: Conn<SimRail>,
    world: World,
    memory: Memory,
}

fn waiting(len: usize, timeout: Option<Duration>) -> Waiting {
    let world = World::new(1);
    let (left, right) = world.link(LinkConfig::default());
    let (a, b) = (Conn::new([left], true), Conn::new([right], true));
    let mut it =
        Waiting { ops: Ops::default(), id: OpId { index: 0, generation: 0 }, a, b, world, memory: Memory::host(len) };
    it.memory.fill(0, &vec![7; len]).unwrap();
    it.id = it.send(len, timeout);
    it.ops.pump(&mut it.a);
    assert_eq!((it.a.waiting(), it.a.moving()), (1, 0));
    assert!(it.ops.is_touched(it.id));
    it
}

// Miri copies it byte by byte.
const LARGE: usize = if cfg!(miri) { 10_000 } else { 100_000 };

impl Waiting {
    fn send(&mut self, len: usize, timeout: Option<Duration>) -> OpId {
        let view = self.memory.slice(0, len).unwrap();
        let id = self.ops.start_within(Kind::Send(5), None, timeout);
        self.ops.part(id, Part { local: view.raw(), remote: RemoteSlice { key: 0, offset: 0 } }, view.hold());
        self.ops.submit(id);
        id
    }

    /// The connection has forgotten it: when a receive comes nothing is sent, and the memory is free.
    fn nothing_comes(&mut self) {
        self.memory.fill(0, &vec![0xDD; LARGE]).unwrap();
        let dst = StaticBuf::new(LARGE);
        let recv = self.b.post_recv(&[(5, dst.slice())]).unwrap().unwrap();
        for _ in 0..100 {
            let _ = (self.a.progress().unwrap(), self.b.progress().unwrap());
            self.world.advance(1_000_000);
        }
        assert!(matches!(self.b.test(recv), Ok(None)));
        assert_eq!((self.a.waiting(), self.a.moving()), (0, 0));
    }
}

#[test]
fn a_message_that_only_waited_times_out_without_its_path_being_revoked() {
    let mut it = waiting(LARGE, Some(Duration::from_millis(1)));
    let now = Instant::now();
    it.ops.date(now);
    assert!(!it.ops.expire(now + Duration::from_secs(1), Some(&mut it.a)), "nothing is under way");
    assert!(matches!(it.ops.take(it.id), Some((Err(Fail::Timeout), _))));
    it.nothing_comes();
}

#[test]
fn a_write_for_which_the_path_was_too_busy_times_out_without_its_path_being_revoked() {
    let world = World::new(1);
    let (left, _right) = world.link(LinkConfig { queue: 1, ..LinkConfig::default() });
    let (mut a, memory) = (Conn::new([left], true), Memory::host(8));
    let mut ops = Ops::default();
    let write = |ops: &mut Ops, a: &mut Conn<SimRail>, timeout| {
        let view = memory.slice(0, 8).unwrap();
        let id = ops.start_within(Kind::Write, Some(Notify::COUNT), timeout);
        ops.part(id, Part { local: view.raw(), remote: RemoteSlice { key: 1 << 12, offset: 0 } }, view.hold());
        ops.submit(id);
        ops.pump(a);
        id
    };
    let first = write(&mut ops, &mut a, None);
    let second = write(&mut ops, &mut a, Some(Duration::from_millis(1)));
    assert!(ops.is_touched(first) && !ops.is_touched(second) && ops.has_unposted());
    let now = Instant::now();
    ops.date(now);
    assert!(!ops.expire(now + Duration::from_secs(1), Some(&mut a)), "nothing of it is under way");
    assert!(matches!(ops.take(second), Some((Err(Fail::Timeout), _))));
    // What was given to the path needs the revocation.
    let third = write(&mut ops, &mut a, None);
    assert!(!ops.is_touched(third) && ops.is_under_way());
}

#[test]
fn a_message_that_is_under_way_when_its_time_is_up_still_revokes_its_path() {
    let mut it = waiting(LARGE, Some(Duration::from_millis(1)));
    let dst = StaticBuf::new(LARGE);
    it.b.post_recv(&[(5, dst.slice())]).unwrap().unwrap();
    while it.a.waiting() > 0 {
        let _ = (it.a.progress().unwrap(), it.b.progress().unwrap());
        it.world.pass();
    }
    let now = Instant::now();
    it.ops.date(now);
    assert!(it.ops.expire(now + Duration::from_secs(1), Some(&mut it.a)));
    assert!(it.ops.is_expired(it.id));
}

#[test]
fn a_message_that_waits_is_dropped_without_its_path_being_revoked() {
    let mut it = waiting(LARGE, None);
    assert_eq!(it.ops.forget(it.id, Some(&mut it.a)), (None, false));
    it.nothing_comes();
    // A small one is not copied while it waits behind a large one.
    let mut it = waiting(LARGE, None);
    let id = it.send(8, None);
    it.ops.pump(&mut it.a);
    assert_eq!(it.a.waiting(), 2);
    assert_eq!(it.ops.forget(id, Some(&mut it.a)), (None, false));
    assert_eq!(it.a.waiting(), 1);
}

#[test]
fn a_message_that_waits_when_its_path_ends_goes_over_the_next_one() {
    let mut it = waiting(LARGE, None);
    it.ops.reap(&mut it.a);
    it.ops.withdraw_all(&mut it.a);
    assert!(!it.ops.is_under_way());
    it.ops.relink(0, &Refused::default());
    assert!(!it.ops.is_reported(it.id), "it was not interrupted");
    let (left, right) = it.world.link(LinkConfig::default());
    (it.a, it.b) = (Conn::new([left], true), Conn::new([right], true));
    it.ops.pump(&mut it.a);
    let dst = StaticBuf::new(LARGE);
    let recv = it.b.post_recv(&[(5, dst.slice())]).unwrap().unwrap();
    let mut got = None;
    for _ in 0..100_000 {
        let _ = (it.a.progress().unwrap(), it.b.progress().unwrap());
        it.ops.reap(&mut it.a);
        if got.is_none() {
            got = it.b.test(recv).unwrap();
        }
        if got.is_some() && it.ops.is_reported(it.id) {
            break;
        }
        it.world.pass();
    }
    assert!(matches!(it.ops.take(it.id), Some((Ok(bytes), _)) if bytes == LARGE as u64));
    assert!(dst.slice().to_vec().iter().all(|&byte| byte == 7));
}

#[test]
fn a_batch_of_which_a_part_was_refused_has_failed_when_its_path_is_lost() {
    let refused = OpError::RemoteAccess { key: 1 };
    let (mut ops, mut path) = (Ops::default(), Noted(Vec::new(), Some(refused)));
    let memory = Memory::copy_of(&[7; 64]);
    let id = ops.start(Kind::Write, None, None);
    let part = |at: usize, offset| {
        let view = memory.slice(at, 8).unwrap();
        (Part { local: view.raw(), remote: RemoteSlice { key: 1, offset } }, view.hold())
    };
    ops.parts(id, [part(0, 100), part(32, 200)].into_iter());
    ops.submit(id);
    ops.pump(&mut path);
    ops.reap(&mut path);
    assert!(!ops.is_reported(id), "the second part is under way");
    ops.relink(0, &Refused::default());
    assert!(matches!(ops.take(id), Some((Err(Fail::Op(error)), _)) if error == refused));
}

#[test]
fn a_write_whose_memory_could_not_be_read_is_not_counted_among_those_that_have_notified() {
    let (mut ops, mut path) = (Ops::default(), Noted(Vec::new(), Some(OpError::Memory)));
    let memory = Memory::host(8);
    let [failed, written] = [1, 2].map(|value| {
        let id = ops.start(Kind::Write, Some(Notify::value(value)), None);
        let remote = RemoteSlice { key: 1, offset: 0 };
        ops.part(id, Part { local: memory.view().raw(), remote }, memory.view().hold());
        ops.submit(id);
        ops.pump(&mut path);
        id
    });
    ops.reap(&mut path);
    assert!(matches!(ops.take(failed), Some((Err(Fail::Op(OpError::Memory)), _))));
    // The path is lost, and the peer has heard of one.
    ops.relink(1, &Refused::default());
    assert!(matches!(ops.take(written), Some((Ok(8), _))), "it would notify twice");
}
