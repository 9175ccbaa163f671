//! One-sided operations where refusals, acknowledgements and notifications cross.

use super::super::{Access, Action, MAX_OPS, OpError, Outcome, RemoteSlice};
use super::wire::memory_fails;
use super::{Joined, Mem};
use crate::{Buf, Head, Kind};

fn at(key: u32) -> RemoteSlice {
    RemoteSlice { key, offset: 0 }
}

#[test]
fn a_refusal_is_not_overtaken_by_the_acknowledgement_of_what_it_refuses() {
    let mut joined = Joined::new(1, true);
    let write = joined.write(0, Mem::new(8), at(77 << 12), None);
    joined.deliver(0, 0).unwrap();
    // The refusal waits in the queue; anything that leaves now carries acknowledgements too.
    joined.send(1, 1, Mem::new(4)).unwrap();
    while joined.deliver(1, 0).unwrap() {}
    let error = joined.failed(0, write.unwrap());
    assert_eq!(error, OpError::RemoteAccess { key: 77 << 12 });
}

#[test]
fn a_refusal_acknowledges_nothing_that_is_refused_after_it() {
    let mut joined = Joined::new(1, true);
    joined.wires[1].depth = 1;
    let writes = [1, 2, 3].map(|n| joined.write(0, Mem::new(8), at(n << 12), None).unwrap());
    while joined.deliver(0, 0).unwrap() {}
    // The refusals leave one at a time.
    for (n, write) in writes.into_iter().enumerate() {
        joined.pump(1, true);
        joined.deliver(1, 0).unwrap();
        let key = (n as u32 + 1) << 12;
        assert_eq!(joined.failed(0, write), OpError::RemoteAccess { key });
        for &later in &writes[n + 1..] {
            assert_eq!(joined.test(0, later), Outcome::Pending, "its refusal is still to come");
        }
    }
}

#[test]
fn a_refused_small_write_does_not_notify() {
    let mut joined = Joined::new(1, true);
    let key = joined.ends[1].expose(Mem::new(8), Access::Write).unwrap();
    let mut writes = Vec::new();
    for (n, key) in [(1, key), (2, 77 << 12), (3, key), (4, 78 << 12)] {
        writes.push(joined.write(0, Mem::new(8), at(key), Some(n)).unwrap());
    }
    joined.settle();
    assert_eq!(joined.ends[1].take_notify(), Some(1));
    assert_eq!(joined.ends[1].take_notify(), Some(3));
    assert_eq!(joined.ends[1].take_notify(), None);
    for (n, write) in writes.into_iter().enumerate() {
        match joined.test(0, write) {
            Outcome::Done(8) if n % 2 == 0 => {}
            Outcome::Failed(OpError::RemoteAccess { .. }) if n % 2 == 1 => {}
            other => panic!("write {n}: {other:?}"),
        }
    }
}

/// Small writes whose notifications have to wait behind that of a large one, and cannot leave before their refusals come back:
/// the side that refuses is told of each all the same, and keeps nothing of them.
#[test]
fn a_refused_write_whose_notification_was_held_back_leaves_nothing_behind() {
    let mut joined = Joined::new(1, true);
    let key = joined.ends[1].expose(Mem::new(20_000), Access::Write).unwrap();
    for round in 0..600u64 {
        let (large, small) = (Mem::new(20_000), Mem::new(8));
        let first = joined.write(0, large, at(key), Some(round)).unwrap();
        let second = joined.write(0, small, at(77 << 12), Some(u64::MAX)).unwrap();
        let third = joined.write(0, small, at(key), Some(round)).unwrap();
        // The refusal comes back before the acknowledgement of the chunks lets the notifications go.
        let small_first =
            joined.wires[0].queues[0].iter().filter(|i| !i.kind().is_payload()).cloned().collect::<Vec<_>>();
        joined.wires[0].queues[0].retain(|i| i.kind().is_payload());
        for item in small_first {
            super::wire::arrive(&mut joined.ends[1], 0, &item).unwrap();
        }
        joined.pump(1, true);
        while joined.deliver(1, 0).unwrap() {}
        assert_eq!(joined.failed(0, second), OpError::RemoteAccess { key: 77 << 12 });
        joined.settle();
        assert_eq!((joined.done(0, first), joined.done(0, third)), (20_000, 8));
        assert_eq!(joined.ends[1].take_notify(), Some(round));
        assert_eq!(joined.ends[1].take_notify(), Some(round));
        assert_eq!(joined.ends[1].take_notify(), None);
        assert_eq!(joined.ends[1].onesided.disowned.len(), 0, "round {round}");
        let (seen, refused) = (joined.ends[1].notifies_seen(), joined.ends[1].notifies_refused());
        assert_eq!(seen, 3 * (round + 1));
        for n in seen.saturating_sub(512)..seen {
            assert_eq!(refused[(n / 64 % 8) as usize] >> (n % 64) & 1 == 1, n % 3 == 1, "notification {n} of {seen}");
        }
    }
}

/// To a region that was taken back, say. Each reports at once, and its notification has to wait behind that of a large write.
#[test]
fn a_sender_of_refused_writes_waits_rather_than_have_the_peer_keep_more_than_it_can() {
    let mut joined = Joined::new(1, true);
    let key = joined.ends[1].expose(Mem::new(20_000), Access::Write).unwrap();
    let large = joined.write(0, Mem::new(20_000), at(key), Some(1)).unwrap();
    let chunks = std::mem::take(&mut joined.wires[0].queues[0]);
    let mut refused = 0;
    while let Ok(small) = joined.write(0, Mem::new(8), at(77 << 12), Some(2)) {
        assert!(joined.deliver(0, 0).unwrap());
        joined.pump(1, true);
        while joined.deliver(1, 0).unwrap() {}
        assert_eq!(joined.failed(0, small), OpError::RemoteAccess { key: 77 << 12 });
        refused += 1;
    }
    assert_eq!(refused, MAX_OPS - 1);
    let silent = joined.write(0, Mem::new(8), at(key), None).unwrap();
    joined.wires[0].queues[0].extend(chunks);
    joined.settle();
    let last = joined.write(0, Mem::new(8), at(key), Some(3)).unwrap();
    joined.settle();
    assert_eq!([large, silent, last].map(|write| joined.done(0, write)), [20_000, 8, 8]);
    assert_eq!([(); 3].map(|()| joined.ends[1].take_notify()), [Some(1), Some(3), None]);
}

#[test]
fn an_operation_whose_memory_cannot_be_copied_fails_and_sends_nothing() {
    let mut joined = Joined::new(1, true);
    let target = Mem::new(8);
    let key = joined.ends[1].expose(target, Access::Write).unwrap();
    // The second one waits behind the first, which is too long to leave without its receive.
    let large = joined.send(0, 1, Mem::filled(20_000, 1)).unwrap();
    let waits = joined.send(0, 1, Mem::filled(8, 2)).unwrap();
    let (before, src) = (joined.wires[0].sent(Kind::Eager), Mem::filled(8, 3));
    memory_fails(true);
    let write = joined.write(0, src, at(key), Some(1)).unwrap();
    assert_eq!(joined.failed(0, write), OpError::Memory);
    let send = joined.send(0, 2, src).unwrap();
    assert_eq!(joined.failed(0, send), OpError::Memory);
    assert!(joined.wires[0].queues[0].is_empty());
    let [dst, small] = [20_000, 8].map(Mem::new);
    let recvs = [dst, small].map(|dst| joined.recv(1, &[(1, dst)]));
    joined.deliver(1, 0).unwrap();
    joined.deliver(1, 0).unwrap();
    joined.pump(0, false);
    assert_eq!(joined.failed(0, waits), OpError::Memory);
    assert_eq!(joined.wires[0].sent(Kind::Eager), before);
    memory_fails(false);
    // What follows takes the place of those that have failed.
    let (after, arrives) = (joined.send(0, 1, Mem::filled(8, 5)).unwrap(), joined.send(0, 3, Mem::new(8)).unwrap());
    joined.write(0, Mem::filled(8, 6), at(key), Some(2)).unwrap();
    joined.settle();
    assert_eq!([large, after, arrives].map(|send| joined.done(0, send)), [20_000, 8, 8]);
    assert_eq!(recvs.map(|recv| joined.done(1, recv)), [20_000, 8]);
    assert!(dst.is_all(1) && small.is_all(5) && target.is_all(6));
    assert_eq!([(); 2].map(|()| joined.ends[1].take_notify()), [Some(2), None]);
    // One that was long enough and could not be written says so.
    memory_fails(true);
    let recv = joined.recv(1, &[(3, Mem::new(8))]);
    assert_eq!(joined.failed(1, recv), OpError::Memory);
    memory_fails(false);
}

#[test]
fn an_acknowledgement_is_held_for_the_answer_and_no_longer() {
    let mut joined = Joined::new(1, true);
    let keys = [0, 1].map(|end| joined.ends[end].expose(Mem::new(8), Access::Write).unwrap());
    joined.ends[1].hold_acks(true);
    let write = |joined: &mut Joined, end: usize| joined.write(end, Mem::new(8), at(keys[1 - end]), Some(5)).unwrap();
    // The answer carries it.
    let first = write(&mut joined, 0);
    joined.deliver(0, 0).unwrap();
    joined.pump(1, true);
    assert!(joined.wires[1].queues[0].is_empty() && joined.ends[1].owes_ack());
    assert_eq!(joined.ends[1].take_notify(), Some(5));
    let second = write(&mut joined, 1);
    assert_eq!(joined.wires[1].queues[0].len(), 1);
    assert!(!joined.ends[1].owes_ack());
    joined.deliver(1, 0).unwrap();
    assert_eq!(joined.done(0, first), 8);
    joined.settle();
    assert_eq!(joined.done(1, second), 8);
    // No answer: the first quiet pump sends it.
    let third = write(&mut joined, 0);
    joined.deliver(0, 0).unwrap();
    joined.pump(1, true);
    assert!(joined.wires[1].queues[0].is_empty());
    joined.pump(1, false);
    assert!(joined.deliver(1, 0).unwrap());
    assert_eq!(joined.done(0, third), 8);
    // Many messages: it is told of them although none was quiet.
    for _ in 0..20 {
        let _ = write(&mut joined, 0);
        joined.deliver(0, 0).unwrap();
        joined.pump(1, true);
    }
    assert!(!joined.wires[1].queues[0].is_empty());
}

#[test]
fn a_peer_cannot_fail_a_receive_and_then_write_into_it() {
    let mut joined = Joined::new(2, true);
    let dst = Mem::new(20_000);
    let recv = joined.recv(1, &[(1, dst)]);
    joined.settle();
    let send = joined.send(0, 1, Mem::filled(20_000, 1)).unwrap();
    let chunk = joined.wires[0].queues[1].pop_front().or_else(|| joined.wires[0].queues[0].pop_front());
    let chunk = chunk.unwrap();
    let place = joined.ends[1].place(1, &fix_seq(chunk.head)).unwrap().unwrap();
    // While the chunk is half landed, the peer says that the message was too long after all.
    let mut head = Head::new(Kind::Truncated);
    head.id.set(chunk.head.id.get());
    head.seq.set(joined.ends[0].control.next());
    joined.ends[1].on_ctrl(0, &head, &[]).unwrap();
    assert_eq!(joined.test(1, recv), Outcome::Pending, "its memory is still being written");
    assert!(place.fill(0, &chunk.body));
    joined.ends[1].landed(1, &fix_seq(chunk.head)).unwrap();
    assert!(matches!(joined.test(1, recv), Outcome::Failed(_)));
    dst.set_all(0xEE);
    // The rest of the message has no place.
    joined.wires[0].queues[1].clear();
    while let Some(mut item) = joined.wires[0].queues[0].pop_front() {
        if item.kind() == Kind::Chunk {
            item.head.seq.set(joined.ends[1].rails_landed(0));
            super::wire::arrive(&mut joined.ends[1], 0, &item).unwrap();
        }
    }
    assert!(dst.is_all(0xEE));
    let _ = send;
}

fn fix_seq(mut head: Head) -> Head {
    head.seq.set(0);
    head
}

#[test]
fn a_refusal_by_index_cannot_end_a_receive() {
    let mut joined = Joined::new(1, true);
    let recv = joined.recv(1, &[(1, Mem::new(20_000))]);
    for index in 0..8 {
        let mut joined = Joined::new(1, true);
        joined.recv(1, &[(1, Mem::new(20_000))]);
        let mut head = Head::new(Kind::Refused);
        head.tag.set(index);
        assert!(joined.ends[1].on_ctrl(0, &head, &[]).is_err());
    }
    assert_eq!(joined.test(1, recv), Outcome::Pending);
}

#[test]
fn memory_read_by_a_peer_is_free_only_when_the_last_chunk_is_acknowledged() {
    let mut joined = Joined::new(1, true);
    joined.wires[1].depth = 3;
    let (region, dst) = (Mem::filled(60_000, 1), Mem::new(60_000));
    let key = joined.ends[1].expose(region, Access::Read).unwrap();
    let read = joined.read(0, dst, at(key)).unwrap();
    joined.deliver(0, 0).unwrap();
    joined.pump(1, true);
    assert!(!joined.ends[1].unexpose(key), "three chunks are being read from it");
    for _ in 0..100 {
        if joined.ends[1].unexpose(key) {
            break;
        }
        joined.deliver(1, 0).unwrap();
        joined.pump(0, true);
        while joined.deliver(0, 0).unwrap() {}
        joined.pump(1, true);
    }
    assert!(joined.ends[1].unexpose(key));
    region.set_all(2);
    joined.settle();
    assert_eq!(joined.failed(0, read), OpError::RemoteAccess { key });
    assert!(!dst.bytes().contains(&2), "what the memory holds now was read");
}

#[test]
fn regions_under_keys_of_the_caller_leave_nothing_behind_when_they_are_taken_back() {
    let mut joined = Joined::new(1, true);
    for generation in 1..10_000 {
        let keys = [generation << 12, generation << 12 | 5];
        assert!(keys.iter().all(|&key| joined.ends[0].expose_at(key, Mem::new(0), Access::Read)));
        assert!(keys.iter().all(|&key| joined.ends[0].unexpose(key)));
        assert!(joined.ends[0].onesided.free.len() <= keys.len());
    }
}

#[test]
fn one_sided_kinds_are_refused_without_acknowledgements() {
    for kind in [Kind::InlinePut, Kind::Notify, Kind::Read, Kind::Refused] {
        let mut joined = Joined::new(1, false);
        let head = Head::new(kind);
        assert!(joined.ends[0].on_ctrl(0, &head, &[]).is_err(), "{kind:?}");
    }
    let mut joined = Joined::new(1, false);
    let mut head = Head::new(Kind::Put);
    head.len.set(1);
    assert!(joined.ends[0].place(0, &head).is_err());
}

/// A rail stalls with the refusal still on it, and the other one is given what the first has acknowledged so far, as
/// [`Engine::report`] says that any rail may.
#[test]
fn a_refusal_is_not_overtaken_by_a_report_on_another_rail() {
    let mut joined = Joined::new(2, true);
    let write = joined.write(0, Mem::new(8), at(77 << 12), None).unwrap();
    joined.deliver(0, 0).unwrap();
    joined.pump(1, true);
    assert_eq!(joined.wires[1].sent(Kind::Refused), 1, "it is on its way");
    let report = joined.ends[1].report();
    joined.ends[0].on_ctrl(1, &report, &[]).unwrap();
    assert_eq!(joined.test(0, write), Outcome::Pending, "its refusal is still to come");
    while joined.deliver(1, 0).unwrap() {}
    assert_eq!(joined.failed(0, write), OpError::RemoteAccess { key: 77 << 12 });
}

/// The refusals are lost with their rail. Another one has space for them only after something else, an acknowledgement say, was offered.
#[test]
fn a_refusal_is_not_overtaken_by_a_report_while_it_waits_to_be_sent_again() {
    let mut joined = Joined::new(2, true);
    let writes = [1, 2].map(|n| joined.write(0, Mem::new(8), at(n << 12), None).unwrap());
    while joined.deliver(0, 0).unwrap() {}
    joined.pump(1, true);
    assert!(joined.lose(1, 0));
    joined.wires[1].queues[0].clear();
    let end = &mut joined.ends[1];
    end.round(|_| 0, false);
    assert!(matches!(end.next_action(), Some(Action::Ctrl { head, .. }) if head.kind == Kind::Refused as u8));
    end.busy();
    joined.wires[1].carry(&mut joined.ends[1]);
    while joined.deliver(1, 1).unwrap() {}
    assert_eq!(writes.map(|write| joined.test(0, write)), [Outcome::Pending; 2], "their refusals are still to come");
    joined.settle();
    assert_eq!(joined.failed(0, writes[0]), OpError::RemoteAccess { key: 1 << 12 });
    assert_eq!(joined.failed(0, writes[1]), OpError::RemoteAccess { key: 2 << 12 });
}
