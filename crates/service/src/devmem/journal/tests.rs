#![allow(clippy::unwrap_used)]

use std::path::PathBuf;
use std::time::{Duration, Instant};

use super::super::up::tests::{Fake, same};
use super::super::up::{SetUp, plan};
use super::*;

struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("linkspan-journal-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Folder(path)
    }

    fn text(&self) -> String {
        std::fs::read_to_string(self.0.join("devmem-eth0.journal")).unwrap()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn ends(port: u16) -> Stream {
    (([10, 0, 0, 1], port).into(), "[fe80::2]:5000".parse().unwrap())
}

/// Steers the stream of this port: the place of its rule.
fn steer(card: &dyn Card, port: u16) -> u32 {
    card.steer(ends(port).0, ends(port).1, 5).unwrap()
}

fn unsteer(card: &dyn Card, place: u32, port: u16) {
    card.unsteer(Some(place), ends(port).0, ends(port).1).unwrap();
}

#[test]
fn the_next_one_undoes_what_a_dead_one_left() {
    let folder = Folder::new("dead");
    let card = Fake::new(None);
    let before = CardState::read(&card).unwrap();
    let changes = plan(&before, 3).unwrap();
    let (journal, found) = Journal::open(&folder.0, "eth0", &card).unwrap();
    assert!(!found);
    let made = SetUp::make(&card, &before, &changes, Some(&journal)).unwrap();
    let noted = Noted { card: &card, journal: &journal };
    // Two rules of one stream, of which one has ended, and one of a stream that has.
    let places = [1, 1, 2].map(|port| steer(&noted, port));
    unsteer(&noted, places[1], 1);
    unsteer(&noted, places[2], 2);
    // A rule of another's making has the place by now.
    card.streams.borrow_mut().push((places[2], ends(9).0, ends(9).1));
    assert_eq!(card.streams.borrow().len(), 2);
    // The process is running: no other process touches the card.
    assert_eq!(Journal::open(&folder.0, "eth0", &card).unwrap_err(), Unopened::Running);
    // Killed: nothing is undone. Its lock goes with the process; here the file goes to another folder.
    std::mem::forget(made);
    let text = folder.text();
    let after = Folder::new("after");
    std::fs::write(after.0.join("devmem-eth0.journal"), &text).unwrap();
    assert!(!same(&CardState::read(&card).unwrap(), &before));
    let (journal, found) = Journal::open(&after.0, "eth0", &card).unwrap();
    assert!(found && same(&CardState::read(&card).unwrap(), &before), "{text}");
    assert_eq!(*card.streams.borrow(), [(places[2], ends(9).0, ends(9).1)], "{text}");
    assert_eq!(after.text(), "");
    drop(journal);
    assert!(!Journal::open(&after.0, "eth0", &card).unwrap().1, "once");
}

#[test]
fn killed_at_any_byte_of_the_journal() {
    let folder = Folder::new("bytes");
    let whole = {
        let card = Fake::new(None);
        let before = CardState::read(&card).unwrap();
        let (journal, _) = Journal::open(&folder.0, "eth0", &card).unwrap();
        journal.begin(&before, &plan(&before, 3).unwrap()).unwrap();
        folder.text()
    };
    for len in 0..=whole.len() {
        std::fs::write(folder.0.join("devmem-eth0.journal"), &whole[..len]).unwrap();
        let card = Fake::new(None);
        let before = CardState::read(&card).unwrap();
        // Nothing was changed before all of it stood there.
        if len == whole.len() {
            std::mem::forget(SetUp::make(&card, &before, &plan(&before, 3).unwrap(), None).unwrap());
        }
        // A process that another test begins has the lock of the round before until it runs its own program.
        let until = Instant::now() + Duration::from_secs(60);
        loop {
            match Journal::open(&folder.0, "eth0", &card) {
                Err(Unopened::Running) if Instant::now() < until => std::thread::yield_now(),
                opened => break drop(opened.unwrap()),
            }
        }
        assert!(same(&CardState::read(&card).unwrap(), &before), "{len} bytes");
    }
}

#[test]
fn an_end_in_order_leaves_an_empty_journal_and_a_failed_undo_keeps_it() {
    let folder = Folder::new("order");
    for (fails, left) in [(None, false), (Some("spread to 7"), true)] {
        let card = Fake::new(fails);
        let before = CardState::read(&card).unwrap();
        let changes = plan(&before, 3).unwrap();
        let (journal, _) = Journal::open(&folder.0, "eth0", &card).unwrap();
        let (restored, _) = SetUp::make(&card, &before, &changes, Some(&journal)).unwrap().end();
        assert_eq!((!folder.text().is_empty(), !restored), (left, left));
    }
    // It cannot be undone now either: it stays, and the reason names the file.
    let Err(Unopened::No(why)) = Journal::open(&folder.0, "eth0", &Fake::new(Some("spread to 7"))) else {
        panic!("undone")
    };
    assert!(why.contains("Operation not supported") && why.contains("devmem-eth0.journal"), "{why}");
    assert!(!folder.text().is_empty());
}

#[test]
fn lines_of_others_are_refused() {
    for text in ["linkspan devmem journal 1\n", "split x\n", "stream\n", "stream 7\n", "table 1 -2\n"] {
        assert!(Left::read(text).is_err(), "{text}");
    }
    let [(a, peer), (b, _)] = [4, 7].map(ends);
    let streams = format!("stream {a} {peer}\nstream {b} {peer}\ngone {a} {peer}\n");
    let left = Left::read(&format!("{TITLE}\nsplit 1\n{streams}table 0 1\nrul")).unwrap();
    let want =
        Left { rules: false, split: Some((true, None)), table: Some(vec![0, 1]), streams: [((b, peer), 1)].into() };
    assert_eq!(left, want);
}

#[test]
fn it_stays_short_and_a_dead_one_s_rules_are_all_in_it() {
    let folder = Folder::new("short");
    let card = Fake::new(None);
    let before = CardState::read(&card).unwrap();
    let changes = plan(&before, 3).unwrap();
    let (journal, _) = Journal::open(&folder.0, "eth0", &card).unwrap();
    let made = SetUp::make(&card, &before, &changes, Some(&journal)).unwrap();
    let noted = Noted { card: &card, journal: &journal };
    for port in 0..3 {
        steer(&noted, port);
    }
    let head = folder.text().len();
    for _ in 0..10_000 {
        let place = steer(&noted, 3);
        unsteer(&noted, place, 3);
        // As long as two lines for each rule, and some.
        assert!(folder.text().len() < head + 45 * (LINES * 4 + MORE));
    }
    // Its lock goes with it to the file that takes its place.
    assert_eq!(Journal::open(&folder.0, "eth0", &card).unwrap_err(), Unopened::Running);
    let text = folder.text();
    std::mem::forget(made);
    let after = Folder::new("short-after");
    std::fs::write(after.0.join("devmem-eth0.journal"), &text).unwrap();
    assert!(Journal::open(&after.0, "eth0", &card).unwrap().1);
    assert!(card.streams.borrow().is_empty() && same(&CardState::read(&card).unwrap(), &before), "{text}");
}

#[test]
fn a_file_that_is_too_long_to_read_whole_is_refused_by_name() {
    let folder = Folder::new("long");
    let card = Fake::new(None);
    let text = format!("{TITLE}\n{}", "rules\n".repeat(MOST as usize / 5));
    std::fs::write(folder.0.join("devmem-eth0.journal"), text).unwrap();
    let Err(Unopened::No(why)) = Journal::open(&folder.0, "eth0", &card) else { panic!("undone") };
    assert!(why.contains("devmem-eth0.journal") && why.contains("by hand"), "{why}");
    assert!(!folder.text().is_empty(), "it is kept");
}

#[test]
fn a_rule_that_the_card_did_not_end_is_said_and_is_for_the_next_one() {
    let folder = Folder::new("stands");
    let card = Fake::new(Some("unsteer"));
    let before = CardState::read(&card).unwrap();
    let changes = plan(&before, 3).unwrap();
    let (journal, _) = Journal::open(&folder.0, "eth0", &card).unwrap();
    let made = SetUp::make(&card, &before, &changes, Some(&journal)).unwrap();
    let noted = Noted { card: &card, journal: &journal };
    let place = steer(&noted, 1);
    assert!(noted.unsteer(Some(place), ends(1).0, ends(1).1).is_err());
    let (restored, said) = made.end();
    assert!(!restored && said.contains("the stream [fe80::2]:5000 -> 10.0.0.1:1"), "{said}");
    drop(journal);
    let streams = card.streams.take();
    let card = Fake::new(None);
    card.streams.replace(streams);
    assert!(Journal::open(&folder.0, "eth0", &card).unwrap().1);
    assert!(card.streams.borrow().is_empty() && folder.text().is_empty());
}

#[test]
fn a_kill_between_a_rule_and_its_line_leaves_no_rule() {
    let folder = Folder::new("between");
    let card = Fake::new(Some("steer"));
    let (journal, _) = Journal::open(&folder.0, "eth0", &card).unwrap();
    let before = CardState::read(&card).unwrap();
    journal.begin(&before, &[]).unwrap();
    let noted = Noted { card: &card, journal: &journal };
    // The line stands first, and says that the rule is none where the card refuses it.
    assert!(noted.steer(ends(1).0, ends(1).1, 5).is_err());
    let (local, peer) = ends(1);
    assert!(folder.text().ends_with(&format!("stream {local} {peer}\ngone {local} {peer}\n")), "{}", folder.text());
}
