//! A sender and a receiver that do not keep to the protocol: what is refused, and what they can make the other side hold.

use std::fs;
use std::sync::Arc;
use std::time::Instant;

use linkspan::{Memory, Transport};
use linkspan_files::Error;
use linkspan_files::engine::{Clock, Engine, Event, Geometry, Happened, LinkLost, Outlet, SlotReader, Violation};
use linkspan_files::fs::{Fs, Ident, Links, OpenHow, Time};
use linkspan_files::hash::value;
use linkspan_files::name::RelPath;
use linkspan_files::serve::PER_PEER_MAX;
use linkspan_files::sim::SimFs;
use linkspan_files::sink::{DestDir, Sink};
use linkspan_files::source::{Load, Source, Start};
use linkspan_files::wire::{
    Answer, Fault, FaultKind, FileInfo, ITEMS_MAX, Item, Key, MESSAGE_MAX, Message, New, REMOTE_LEN, Request, VERSION,
    Verdict, What,
};

use crate::sessions::{Folder, LONG, Peer, TAG, hear, in_share, place, say, try_hear, try_say};

const GEOMETRY: Geometry = Geometry { chunk: 1024, per_slot: 2, slots: 3 };

/// Slots full of sevens.
struct Sevens;

impl SlotReader for Sevens {
    fn read(&self, _: u16, _: usize, out: &mut [u8]) {
        out.fill(7);
    }
}

/// Slots whose receiver is not looked at.
struct Nowhere(Vec<u8>);

impl Outlet for Nowhere {
    fn staging(&mut self) -> &mut [u8] {
        &mut self.0
    }

    fn write(&mut self, _: u16, _: usize) -> Result<(), LinkLost> {
        Ok(())
    }
}

fn path(text: &str) -> RelPath {
    RelPath::new(text.as_bytes()).unwrap()
}

fn sink(fs: &SimFs) -> Sink<SimFs> {
    let root = Arc::new(fs.root());
    let mut place = DestDir::new(Arc::new(fs.clone()), root, RelPath::default(), None, u64::MAX);
    place.geometry = GEOMETRY;
    Sink::new(place, Arc::default()).unwrap()
}

fn file(name: &str, size: u64) -> Item {
    let ident = Ident { dev: 1, ino: 1, size, mtime: Time::default(), ctime: Time::default() };
    let info = FileInfo { ident, settled: true, disk: size, mode: 0o644, xattrs: Vec::new() };
    Item { path: path(name), what: What::File(info) }
}

/// Offers files, and does every job that comes of it.
fn offer(sink: &mut Sink<SimFs>, items: Vec<Item>) -> Vec<Verdict> {
    sink.on(Message::Batch { id: 0, items }).unwrap();
    sink.pump();
    match sink.message() {
        Some(Message::Verdicts { verdicts, .. }) => verdicts,
        other => panic!("{other:?}"),
    }
}

fn work(sink: &mut Sink<SimFs>) -> Vec<Message> {
    let mut said = Vec::new();
    let mut scratch = vec![0; GEOMETRY.chunk as usize];
    loop {
        sink.pump();
        said.extend(std::iter::from_fn(|| sink.message()));
        let Some(job) = sink.job() else { return said };
        let place = sink.place().clone();
        let done = Sink::work(&place, job, &Sevens, &Clock::default(), &mut scratch);
        assert!(sink.done(done).is_ok());
    }
}

const KEY: Key = Key { batch: 0, index: 0 };

fn data(first: u64, values: usize, slot: u16) -> Message {
    Message::Data { key: KEY, first, slot, values: vec![[0; 32]; values] }
}

#[test]
fn messages_that_no_sender_has_reason_for_end_the_transfer() {
    let key = KEY;
    let zero = [0; 32];
    let bad: [(&str, Vec<Message>); 12] = [
        ("a file that was not offered", vec![Message::Need { key: Key { batch: 9, index: 9 }, first: 0, count: 1 }]),
        ("chunks behind the end", vec![data(4, 2, 0)]),
        ("a first chunk that overflows", vec![data(u64::MAX, 2, 0)]),
        ("a slot that there is not", vec![data(0, 1, 3)]),
        ("more than a slot has", vec![data(0, 3, 0)]),
        ("a chunk twice", vec![data(0, 1, 0), data(0, 1, 1)]),
        ("a large file as a small one", vec![Message::Pack { slot: 0, files: vec![(key, 5000, zero)] }]),
        ("an end twice", vec![data(0, 1, 0), Message::End { key, hash: zero }, Message::End { key, hash: zero }]),
        ("the end of nothing", vec![Message::End { key, hash: zero }]),
        ("a batch out of its order", vec![Message::Batch { id: 7, items: Vec::new() }]),
        ("verdicts", vec![Message::Verdicts { id: 0, verdicts: Vec::new() }]),
        ("too many questions", (0..65).map(|_| Message::Need { key, first: 0, count: 1 }).collect()),
    ];
    for (what, messages) in bad {
        let fs = SimFs::new(1, None, false);
        let mut sink = sink(&fs);
        assert_eq!(offer(&mut sink, vec![file("f", 5000)]), [Verdict::Want]);
        let (last, before) = messages.split_last().unwrap();
        before.iter().for_each(|message| sink.on(message.clone()).unwrap());
        assert!(matches!(sink.on(last.clone()), Err(Violation(_))), "{what} is taken");
    }
}

#[test]
fn chunks_with_another_hash_are_refused_and_leave_nothing_visible() {
    let fs = SimFs::new(1, None, false);
    let mut sink = sink(&fs);
    offer(&mut sink, vec![file("f", 5000)]);
    sink.on(data(0, 1, 0)).unwrap();
    let said = work(&mut sink);
    let failed = |message: &Message| matches!(message, Message::Committed { result: Err(fault), .. } if fault.kind == FaultKind::WrongData);
    assert!(said.iter().any(failed), "{said:?}");
    // A whole hash that is another one is found as well.
    sink.on(Message::Drop { key: KEY }).unwrap();
    sink.on(Message::Batch { id: 1, items: vec![file("f", 2048)] }).unwrap();
    let key = Key { batch: 1, index: 0 };
    let values = vec![value(0, &[7; 1024]), value(1024, &[7; 1024])];
    sink.on(Message::Data { key, first: 0, slot: 0, values }).unwrap();
    sink.on(Message::End { key, hash: [1; 32] }).unwrap();
    let said = work(&mut sink);
    assert!(said.iter().any(failed), "{said:?}");
    fs.users(|users| assert!(!users.files().contains_key("f")));
}

#[test]
fn what_a_sender_can_have_under_way_is_bounded() {
    let fs = SimFs::new(1, None, false);
    let mut sink = sink(&fs);
    let mut taken = 0;
    for id in 0..100 {
        let items = (0..ITEMS_MAX).map(|n| file(&format!("{id}-{n}"), 5000)).collect();
        if sink.on(Message::Batch { id, items }).is_err() {
            break;
        }
        taken += ITEMS_MAX;
    }
    assert_eq!(taken, 4 * ITEMS_MAX, "files that are wanted and not here");
    let begin = |sink: &mut Sink<SimFs>, index| {
        sink.on(Message::Hole { key: Key { batch: 0, index }, first: 0, count: 1 }).is_ok()
    };
    let begun = (0..100).take_while(|&index| begin(&mut sink, index)).count();
    assert_eq!(begun, 16, "files that are open");
    let more = (1..100)
        .take_while(|&first| sink.on(Message::Hole { key: KEY, first: first % 4 + 1, count: 1 }).is_ok())
        .count();
    assert!(begun + more <= 64, "chunks under way");
}

#[test]
fn directories_that_a_sender_can_have_held_open_are_bounded() {
    let fs = SimFs::new(1, None, false);
    fs.users(|users| (0..600).for_each(|n| users.write(&format!("{n}/keep"), b"", false)));
    let mut sink = sink(&fs);
    let one = |id: u32| Message::Batch { id, items: vec![file(&format!("{id}/f"), 5000)] };
    let held = (0..600).take_while(|&id| sink.on(one(id)).is_ok()).count();
    assert_eq!(held, 512);
    // What a batch of a sender has at most is taken beside two others.
    let mut sink = self::sink(&fs);
    for id in 0..3 {
        let items = (0..ITEMS_MAX).map(|n| file(&format!("{}/{n}", id * 64 + n as u32 / 8), 5000)).collect();
        sink.on(Message::Batch { id, items }).unwrap();
    }
}

#[test]
fn a_file_that_is_too_large_for_any_disk_is_refused_before_anything_is_made() {
    let fs = SimFs::new(1, None, false);
    let mut sink = sink(&fs);
    let verdicts = offer(&mut sink, vec![file("f", u64::MAX), file("missing/f", 5000), file("g", 65 << 40)]);
    assert!(verdicts.iter().all(|verdict| matches!(verdict, Verdict::Refused(_))), "{verdicts:?}");
    fs.users(|users| assert!(users.files().is_empty()));
}

#[test]
fn a_name_that_the_directory_takes_for_another_is_refused() {
    let fs = SimFs::new(1, None, true);
    fs.users(|users| users.write("Readme", b"first", false));
    let mut sink = sink(&fs);
    let verdicts = offer(&mut sink, vec![file("README", 5000), file("Readme", 5000)]);
    assert!(matches!(&verdicts[0], Verdict::Refused(fault) if fault.kind == FaultKind::Exists), "{verdicts:?}");
    assert_eq!(verdicts[1], Verdict::Compare);
}

/// The sender of one large file, which was offered.
fn source(fs: &SimFs) -> Source<SimFs> {
    fs.users(|users| users.write("d/f", &[7; 5000], false));
    let dir = Arc::new(fs.open_dir(&fs.root(), &path("d"), Links::Refuse).unwrap());
    let mut load = Load::new(Arc::new(fs.clone()), u64::MAX);
    load.geometry = GEOMETRY;
    let starts = vec![Start { dir, name: None, path: RelPath::default(), shallow: false, opened: None }];
    let mut source = Source::new(load, Arc::default(), starts);
    source.pump();
    source
}

#[test]
fn messages_that_no_receiver_has_reason_for_end_the_sending() {
    let key = KEY;
    let slots = Message::Slots { remote: [0; REMOTE_LEN], size: 2048, count: 3 };
    let bad: [(&str, Vec<Message>); 6] = [
        ("slots twice", vec![slots.clone(), slots.clone()]),
        ("verdicts on nothing", vec![Message::Verdicts { id: 3, verdicts: vec![Verdict::Want] }]),
        ("too few verdicts", vec![Message::Verdicts { id: 0, verdicts: Vec::new() }]),
        ("chunks that were not sent", vec![Message::Landed { key, first: 0 }]),
        ("a pack that was not sent", vec![Message::Unpacked { slot: 0, results: Vec::new() }]),
        ("a file that was not sent", vec![Message::Committed { key: Key { batch: 5, index: 0 }, result: Ok([0; 32]) }]),
    ];
    for (what, messages) in bad {
        let mut source = source(&SimFs::new(1, None, false));
        let (last, before) = messages.split_last().unwrap();
        before.iter().for_each(|message| source.on(message.clone()).unwrap());
        assert!(matches!(source.on(last.clone()), Err(Violation(_))), "{what} is taken");
        let events: Vec<Event> = std::iter::from_fn(|| source.event()).collect();
        assert!(!events.iter().any(|event| matches!(event.what, Happened::Done(..))));
    }
}

#[test]
fn a_failure_that_crosses_the_drop_of_its_file_is_passed_over_once() {
    let fs = SimFs::new(1, None, false);
    let mut source = source(&fs);
    source.on(Message::Slots { remote: [0; REMOTE_LEN], size: 2048, count: 3 }).unwrap();
    source.on(Message::Verdicts { id: 0, verdicts: vec![Verdict::Want] }).unwrap();
    source.pump();
    // It has changed when its first chunks are read.
    fs.users(|users| users.write("d/f", &[8; 500], false));
    let (job, load) = (source.job().unwrap(), source.load().clone());
    let done = Source::work(&load, job, &mut Nowhere(vec![0; 2048]), &Clock::default());
    assert!(source.done(done).is_ok());
    let said: Vec<Message> = std::iter::from_fn(|| source.message()).collect();
    assert!(said.contains(&Message::Drop { key: KEY }), "{said:?}");
    let failed = Message::Committed { key: KEY, result: Err(Fault::new(FaultKind::NoSpace, "")) };
    source.on(failed.clone()).unwrap();
    assert!(matches!(source.on(failed), Err(Violation(_))), "twice");
}

#[test]
fn a_file_that_was_given_up_has_neither_arrived_nor_failed_after_the_verdicts_on_the_next_batch() {
    let given_up = || {
        let fs = SimFs::new(1, None, false);
        let mut source = source(&fs);
        source.on(Message::Slots { remote: [0; REMOTE_LEN], size: 2048, count: 3 }).unwrap();
        source.on(Message::Verdicts { id: 0, verdicts: vec![Verdict::Want] }).unwrap();
        fs.users(|users| users.write("d/f", &[8; 4000], false));
        // It is dropped, and offered again as it is now.
        source.pump();
        source.pump();
        let said: Vec<Message> = std::iter::from_fn(|| source.message()).collect();
        assert!(matches!(&said[1..], [Message::Drop { key: KEY }, Message::Batch { id: 1, .. }]), "{said:?}");
        source
    };
    let mut source = given_up();
    assert!(source.on(Message::Committed { key: KEY, result: Ok([0; 32]) }).is_err());
    let mut source = given_up();
    source.on(Message::Verdicts { id: 1, verdicts: vec![Verdict::Want] }).unwrap();
    let failed = Message::Committed { key: KEY, result: Err(Fault::new(FaultKind::NoSpace, "")) };
    assert!(source.on(failed).is_err());
}

#[test]
fn the_slots_of_all_transfers_of_one_peer_are_bounded_by_its_connections() {
    let folder = Folder::new("slots");
    let peer = Peer::serve(&folder);
    let (mut open, mut bytes) = (Vec::new(), 0);
    for number in 0..100 {
        let control = peer.dial();
        say(&control, &Message::Hello { version: VERSION, session: [number; 16] });
        if let Message::Answer { result: Err(fault), .. } = hear(&control) {
            assert!(fault.kind == FaultKind::Limit && fault.text.contains("16 connections"), "{fault:?}");
            break;
        }
        let what = Request::Put { to: place(), dry_run: false, no_fsync: true, delete: None };
        say(&control, &Message::Request { number: 1, what });
        let Message::Answer { result: Ok(Answer::Ready(token)), .. } = hear(&control) else { panic!("no transfer") };
        let bulk = peer.dial();
        say(&bulk, &Message::Bulk { token });
        let Message::Slots { size, count, .. } = hear(&control) else { panic!("no slots") };
        bytes += u64::from(size) * u64::from(count);
        open.push((control, bulk));
    }
    assert_eq!((open.len() as u64, bytes), (PER_PEER_MAX / 2, 8 * (32 << 20)));
    assert!(peer.said().contains("too many are open"));
    let client = peer.client().map(drop);
    assert!(matches!(&client, Err(Error::Full(_))), "{client:?}");
    // Those who do not listen are not waited for in any number.
    let mut silent = Vec::new();
    let closed = (0..64).any(|_| {
        silent.push(peer.dial());
        let one = peer.dial();
        let hello = try_say(&one, &Message::Hello { version: VERSION, session: [200; 16] });
        hello.and_then(|_| try_hear(&one)).is_err()
    });
    assert!(closed, "each is answered");
}

#[test]
fn a_transfer_that_finds_no_place_for_its_second_connection_is_refused_by_name_and_others_keep_theirs() {
    let folder = Folder::new("places");
    let peer = Peer::serve(&folder);
    let put = || Request::Put { to: place(), dry_run: false, no_fsync: true, delete: None };
    let first = peer.session(0);
    say(&first, &Message::Request { number: 1, what: put() });
    let Message::Answer { result: Ok(Answer::Ready(token)), .. } = hear(&first) else { panic!("no transfer") };
    // All that are left but the one that is kept for it.
    let others: Vec<Transport> = (1..PER_PEER_MAX as u8 - 1).map(|number| peer.session(number)).collect();
    say(&others[0], &Message::Request { number: 1, what: put() });
    let Message::Answer { result: Err(fault), .. } = hear(&others[0]) else { panic!("it is not refused") };
    assert!(fault.kind == FaultKind::Limit && fault.text.contains("16 connections"), "{fault:?}");
    let bulk = peer.dial();
    say(&bulk, &Message::Bulk { token });
    assert!(matches!(hear(&first), Message::Slots { .. }));
}

#[test]
fn requests_of_a_peer_that_takes_no_answers_are_carried_out_in_a_bounded_number() {
    let folder = Folder::new("answers");
    let len = 64 << 10;
    fs::write(folder.0.join("share/f"), vec![7; len]).unwrap();
    let peer = Peer::serve(&folder);
    let (control, other) = (peer.session(1), peer.session(2));
    say(&control, &Message::Request { number: 1, what: Request::Open(in_share("data", "f"), OpenHow::READ) });
    let Message::Answer { result: Ok(Answer::Opened(handle, ..)), .. } = hear(&control) else { panic!("not open") };
    // Each large answer says by a directory that the one before it is on its way.
    let pairs = 60;
    let asked = (0..pairs).flat_map(|n| {
        let read = Request::Read { handle, offset: 0, len: len as u32 };
        [read, Request::Make(in_share("data", &n.to_string()), New::Dir(0o700))]
    });
    let mut ops = Vec::new();
    for (number, what) in (2..).zip(asked) {
        let bytes = Message::Request { number, what }.encode();
        let memory = Memory::host(bytes.len());
        memory.fill(0, &bytes).unwrap();
        ops.push(control.send(TAG, &memory.slice(0, bytes.len()).unwrap().shared(), None));
    }
    let made = || fs::read_dir(folder.0.join("share")).unwrap().count() - 1;
    // 1 MiB of answers may be on its way.
    let (least, most) = ((1 << 20) / (len + (8 << 10)), (1 << 20) / len + 1);
    let began = Instant::now();
    while made() < least {
        assert!(began.elapsed() < LONG, "{} of {least} at least", made());
        std::thread::yield_now();
    }
    // Time for more than all of it.
    for number in 0..4 * pairs {
        say(&other, &Message::Request { number, what: Request::Shares });
        hear(&other);
    }
    assert!(made() <= most, "{} were carried out, and no answer was taken", made());
    let memory = Memory::host(MESSAGE_MAX);
    for _ in 0..2 * pairs {
        control.recv_blocking(TAG, &memory.view_mut().unwrap(), Some(LONG)).unwrap();
    }
    assert_eq!(made() as u64, pairs);
}
