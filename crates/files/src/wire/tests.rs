use proptest::prelude::*;

use super::*;
use crate::fs::{Change, Kind, OpenHow, Rename};

fn path(text: &str) -> RelPath {
    RelPath::new(text.as_bytes()).unwrap()
}

fn ident() -> Ident {
    Ident { dev: 1, ino: 2, size: 3, mtime: Time { sec: -4, nsec: 5 }, ctime: Time { sec: 6, nsec: 7 } }
}

/// One message of every kind.
fn all() -> Vec<Message> {
    let key = Key { batch: 7, index: 9 };
    let at = || PeerPath { share: "data".into(), path: path("a/b") };
    let fault = || Fault::new(FaultKind::NoSpace, "no space: a\\x0ab");
    let info = FileInfo {
        ident: ident(),
        settled: true,
        disk: 1,
        mode: 0o640,
        xattrs: vec![(b"user.x".to_vec(), vec![0, 1])],
    };
    let items = vec![
        Item { path: path("d"), what: What::Dir { mode: 0o755 } },
        Item { path: path("d/l"), what: What::Link { target: b"../x".to_vec() } },
        Item { path: path("d/f"), what: What::File(info) },
        Item { path: path("d/g"), what: What::Present },
        Item { path: path("d"), what: What::Begin },
        Item { path: path("d"), what: What::End },
    ];
    let (mtime, ctime) = (Time::default(), Time { sec: 1, nsec: 2 });
    let (name, kind) = (b"\xff\n".to_vec(), Kind::Special);
    let entry = Entry { name, kind, size: 1, mode: 2, mtime, ctime, dev: 3, ino: 4, disk: 5, links: 6 };
    let requests = [
        Request::Shares,
        Request::Stat(at()),
        Request::List(at()),
        Request::More(3),
        Request::Stop(3),
        Request::Look(at()),
        Request::Open(at(), OpenHow::READ),
        Request::Open(at(), OpenHow { read: false, write: true, create: Some(0o640), exclusive: true, again: false }),
        Request::Open(at(), OpenHow { again: true, ..OpenHow::READ }),
        Request::Write { handle: 1, offset: Some(2), bytes: vec![3, 4] },
        Request::Write { handle: 1, offset: None, bytes: Vec::new() },
        Request::Change(1, Change { size: Some(2), ..Change::default() }),
        Request::Known(1),
        Request::Sync(1),
        Request::SyncDir(at()),
        Request::Make(at(), New::Dir(0o755)),
        Request::Make(at(), New::Symlink(b"/x".to_vec())),
        Request::Link(at(), Some((0, 1)), path("c")),
        Request::Set(at(), Some((0, 1)), Change::default()),
        Request::Set(at(), Some((2, 0)), Change { mode: Some(0o600), size: Some(2), mtime: Some(None) }),
        Request::Set(at(), None, Change { mode: None, size: None, mtime: Some(Some(Time { sec: -1, nsec: 5 })) }),
        Request::Unlink(at(), true),
        Request::Move(at(), path("c"), Rename::NoReplace),
        Request::Move(at(), path("c"), Rename::Exchange),
        Request::Move(at(), path("c"), Rename::Replace),
        Request::Boot,
        Request::Read { handle: 1, offset: 2, len: 3 },
        Request::Close(1),
        Request::Follow(at()),
        Request::Space("data".into()),
        Request::Remove(at(), true),
        Request::Rename(at(), path("c")),
        Request::Usage(at()),
        Request::Hash(at()),
        Request::Mkdir(at()),
        Request::Restore(at(), None),
        Request::Restore(at(), Some("1-2".into())),
        Request::Mark(at(), Some("ab".into())),
        Request::Put { to: at(), dry_run: true, no_fsync: false, delete: None },
        Request::Put { to: at(), dry_run: false, no_fsync: true, delete: Some(Delete::default()) },
        Request::Put {
            to: at(),
            dry_run: false,
            no_fsync: true,
            delete: Some(Delete { most: Some(5), keep: vec!["*.o".into()] }),
        },
        Request::Get {
            from: vec![(at(), path("x")), (at(), RelPath::default())],
            xattrs: true,
            dry_run: false,
            delete: true,
            exclude: vec!["/a".into()],
        },
    ];
    let answers = [
        Ok(Answer::Done),
        Ok(Answer::Shares(vec![("a".into(), true)])),
        Ok(Answer::Stat(entry.clone())),
        Ok(Answer::List(vec![entry.clone()], Some(4))),
        Ok(Answer::Opened(7, entry, Time { sec: 8, nsec: 9 }, true)),
        Ok(Answer::Bytes(vec![1, 2])),
        Ok(Answer::Space(1, 2)),
        Ok(Answer::Usage(Sum { files: 1, dirs: 2, others: 3, bytes: 4, disk: 5, unread: 6 })),
        Ok(Answer::Hash(5, [3; 32])),
        Ok(Answer::Ready([1; 16])),
        Err(fault()),
    ];
    let known = vec![Known::Nothing, Known::Content([1; 32]), Known::Verified([2; 32])];
    let verdicts = vec![Verdict::Have, Verdict::Made, Verdict::Want, Verdict::Compare, Verdict::Refused(fault())];
    let stages = Stages { read: 1, hash: 2, link: 3, check: 4, write: 5 };
    let mut all = vec![
        Message::Hello { version: 1, session: [9; 16] },
        Message::Welcome { version: 1, identity: "cluster".into() },
        Message::Bulk { token: [8; 16] },
        Message::Pipe { version: 1, service: "tcp:80".into() },
        Message::Slots { remote: [7; REMOTE_LEN], size: 4 << 20, count: 8 },
        Message::Batch { id: 1, items },
        Message::Verdicts { id: 1, verdicts },
        Message::Need { key, first: 1, count: 2 },
        Message::Values { key, first: 1, known },
        Message::Data { key, first: 4, slot: 3, values: vec![[5; 32]; 4] },
        Message::Hole { key, first: 4, count: 64 },
        Message::Keep { key, first: 4, count: 1 },
        Message::Pack { slot: 2, files: vec![(key, 10, [4; 32])] },
        Message::End { key, hash: [6; 32] },
        Message::Drop { key },
        Message::Landed { key, first: 8 },
        Message::Unpacked { slot: 5, results: vec![(key, Ok([1; 32])), (key, Err(fault()))] },
        Message::Unpacked { slot: 5, results: Vec::new() },
        Message::Committed { key, result: Ok([1; 32]) },
        Message::Committed { key, result: Err(fault()) },
        Message::Note { path: path("a"), what: Note::Failed(fault()) },
        Message::Note { path: path("a"), what: Note::LeftOut(LeftOut::Acl) },
        Message::Over,
        Message::Note {
            path: path("a"),
            what: Note::Extra(Extra { kind: Kind::Dir, size: 1, mtime: Time::default() }),
        },
        Message::Finished { stages, extra: (1, 2), result: Ok(()) },
        Message::Finished { stages, extra: (0, 0), result: Err(fault()) },
    ];
    all.extend(requests.into_iter().map(|what| Message::Request { number: 1, what }));
    all.extend(answers.into_iter().map(|result| Message::Answer { number: 1, result }));
    all
}

#[test]
fn every_message_comes_back_as_it_was() {
    for message in all() {
        let bytes = message.encode();
        assert_eq!(Message::decode(&bytes), Ok(message.clone()));
        assert!(Message::decode(&[&bytes[..], &[0]].concat()).is_err(), "{message:?} with a byte behind it");
        for end in 0..bytes.len() {
            assert!(Message::decode(&bytes[..end]).is_err(), "{message:?} cut at {end}");
        }
    }
}

#[test]
fn the_head_of_an_answer_with_data_is_what_stands_before_the_data() {
    for message in all() {
        let bytes = message.encode();
        let head = &bytes[..bytes.len().min(BYTES_HEAD)];
        let found = Message::bytes_head(head, bytes.len()).map(|number| (number, &bytes[BYTES_HEAD..]));
        match &message {
            Message::Answer { number, result: Ok(Answer::Bytes(data)) } => {
                assert_eq!(found, Some((*number, &data[..])))
            }
            _ => assert_eq!(found, None, "{message:?}"),
        }
        assert_eq!(Message::bytes_head(head, bytes.len() + 1), None);
    }
}

#[test]
fn golden_bytes() {
    let key = Key { batch: 1, index: 2 };
    assert_eq!(Message::Landed { key, first: 3 }.encode(), [17, 1, 0, 0, 0, 2, 0, 3, 0, 0, 0, 0, 0, 0, 0]);
    let list = Request::List(PeerPath { share: "s".into(), path: path("a/b") });
    let golden = [4, 7, 0, 0, 0, 0, 0, 0, 0, 3, 1, 0, b's', 3, 0, b'a', b'/', b'b'];
    assert_eq!(Message::Request { number: 7, what: list }.encode(), golden);
    let opened = Answer::Opened(7, Entry::default(), Time { sec: 8, nsec: 9 }, true);
    let bytes = Message::Answer { number: 1, result: Ok(opened) }.encode();
    assert_eq!(bytes[..10], [5, 1, 0, 0, 0, 0, 0, 0, 0, 1]);
    assert_eq!(bytes[10..28], [8, 7, 0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 1]);
}

#[test]
fn paths_that_leave_the_place_of_a_transfer_are_no_message() {
    for bad in ["../x", "a/../../x", ".lspan/trash", "a\0"] {
        let mut w = Writer::default();
        w.u8(7).u32(0).u16(1).bytes(bad.as_bytes()).u8(0).u32(0);
        assert!(Message::decode(&w.0).is_err(), "{bad:?}");
    }
}

#[test]
fn a_name_that_no_entry_or_share_can_have_is_no_message() {
    let read = |answer: Answer| Message::decode(&Message::Answer { number: 1, result: Ok(answer) }.encode()).is_ok();
    let entry = |name: &[u8]| Entry { name: name.to_vec(), ..Entry::default() };
    let list = |name: &[u8]| read(Answer::List(vec![entry(b"a"), entry(name)], None));
    assert!(list(b"\xff\n") && list(&[b'x'; 255]) && list(b".lspan"));
    for bad in [&b".."[..], b"a/b", b"a\0b", &[b'x'; 256]] {
        assert!(!list(bad) && !read(Answer::Stat(entry(bad))), "{bad:?}");
        assert!(!read(Answer::Opened(1, entry(bad), Time::default(), true)), "{bad:?}");
    }
    assert!(read(Answer::Stat(entry(b""))) && !list(b""), "the root of a share alone has no name");
    let shares = |name: &str| read(Answer::Shares(vec![("a".into(), true), (name.into(), false)]));
    assert!(shares("data-2.x_Y"));
    for bad in ["", "a/b", "a\0b", "ä", &"x".repeat(65)] {
        assert!(!shares(bad), "{bad:?}");
    }
}

#[test]
fn what_a_peer_says_of_a_failure_holds_no_control_characters() {
    let mut w = Writer::default();
    w.u8(19).u32(0).u16(0).u8(0).u8(12).bytes(b"x\x1b[2J\n\xff");
    let Ok(Message::Committed { result: Err(fault), .. }) = Message::decode(&w.0) else { panic!("not decoded") };
    assert_eq!(fault.text, "x\\x1b[2J\\x0a\\xff");
}

proptest! {
    #[test]
    fn decoding_is_total(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        if let Ok(message) = Message::decode(&bytes) {
            prop_assert_eq!(Message::decode(&message.encode()), Ok(message));
        }
    }

    #[test]
    fn a_changed_byte_is_an_error_or_another_message(which: usize, at: usize, to: u8) {
        let all = all();
        let mut bytes = all[which % all.len()].encode();
        let at = at % bytes.len();
        bytes[at] = to;
        if let Ok(message) = Message::decode(&bytes) {
            prop_assert_eq!(Message::decode(&message.encode()), Ok(message));
        }
    }
}

#[test]
fn a_write_that_is_longer_than_one_may_be_is_no_message() {
    let write = |len: u32| {
        let bytes = vec![0; len as usize];
        Message::Request { number: 1, what: Request::Write { handle: 1, offset: None, bytes } }.encode()
    };
    assert!(Message::decode(&write(READ_MAX)).is_ok() && write(READ_MAX).len() < MESSAGE_MAX);
    assert!(Message::decode(&write(READ_MAX + 1)).is_err());
}

#[test]
fn what_would_do_something_twice_is_answered_once() {
    let once = all().into_iter().filter_map(|message| match message {
        Message::Request { what, .. } if what.changes() => Some(format!("{what:?}")),
        _ => None,
    });
    let name = |text: String| text.split(['(', ' ']).next().unwrap_or_default().to_owned();
    let mut once: Vec<String> = once.map(name).collect();
    once.dedup();
    assert_eq!(
        once,
        ["Open", "Write", "Sync", "SyncDir", "Make", "Link", "Unlink", "Move", "Remove", "Rename", "Restore"]
            .map(String::from)
    );
}
