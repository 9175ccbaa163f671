#![allow(clippy::unwrap_used)]

use std::any::Any;
use std::cell::RefCell;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;

use super::*;

/// A card that remembers, and fails at one call.
pub(in super::super) struct Fake {
    state: RefCell<CardState>,
    /// Rules for streams, each with its place.
    pub(in super::super) streams: RefCell<Vec<(u32, SocketAddr, SocketAddr)>>,
    calls: RefCell<Vec<String>>,
    fails: Option<&'static str>,
}

impl Fake {
    pub(in super::super) fn new(fails: Option<&'static str>) -> Fake {
        let rings = Rings { receive: Some(1024), split: HeaderSplit::Off, threshold: Some(256) };
        let state = CardState { queues: 8, rings, table: (0..128).map(|n| n % 8).collect(), rules: false };
        Fake { state: RefCell::new(state), streams: RefCell::default(), calls: RefCell::default(), fails }
    }

    fn call(&self, name: &str) -> Result<(), String> {
        self.calls.borrow_mut().push(name.to_owned());
        if self.fails == Some(name) { Err(format!("{name}: Operation not supported")) } else { Ok(()) }
    }
}

impl Card for Fake {
    fn queues(&self) -> Result<u32, String> {
        Ok(self.state.borrow().queues)
    }

    fn rings(&self) -> Result<Rings, String> {
        Ok(self.state.borrow().rings)
    }

    fn split(&self, on: bool, threshold: Option<u32>) -> Result<(), String> {
        self.call(if on { "split on" } else { "split off" })?;
        let rings = &mut self.state.borrow_mut().rings;
        rings.split = if on { HeaderSplit::On } else { HeaderSplit::Off };
        rings.threshold = threshold;
        Ok(())
    }

    fn spread(&self) -> Result<Vec<u32>, String> {
        Ok(self.state.borrow().table.clone())
    }

    fn set_spread(&self, table: &[u32]) -> Result<(), String> {
        let most = table.iter().max().copied().unwrap_or(0);
        self.call(&format!("spread to {most}"))?;
        self.state.borrow_mut().table = table.to_vec();
        Ok(())
    }

    fn takes_rules(&self) -> Result<bool, String> {
        Ok(self.state.borrow().rules)
    }

    fn take_rules(&self, on: bool) -> Result<(), String> {
        self.call(if on { "rules on" } else { "rules off" })?;
        self.state.borrow_mut().rules = on;
        Ok(())
    }

    fn bind(&self, _: &[u32], _: BorrowedFd<'_>) -> Result<(u32, Box<dyn Any>), String> {
        Err("not here".into())
    }

    fn steer(&self, local: SocketAddr, peer: SocketAddr, _: u32) -> Result<u32, String> {
        self.call("steer")?;
        let mut streams = self.streams.borrow_mut();
        let place = 1000 + streams.len() as u32;
        streams.push((place, local, peer));
        Ok(place)
    }

    fn unsteer(&self, place: Option<u32>, local: SocketAddr, peer: SocketAddr) -> Result<(), String> {
        self.call("unsteer")?;
        let is = |rule: &(u32, SocketAddr, SocketAddr)| {
            place.is_none_or(|at| at == rule.0) && (rule.1, rule.2) == (local, peer)
        };
        self.streams.borrow_mut().retain(|rule| !is(rule));
        Ok(())
    }
}

pub(in super::super) fn same(a: &CardState, b: &CardState) -> bool {
    a.rings == b.rings && a.table == b.table && a.rules == b.rules
}

#[test]
fn everything_is_made_and_everything_is_undone() {
    let card = Fake::new(None);
    let before = CardState::read(&card).unwrap();
    let changes = plan(&before, 3).unwrap();
    let said = text("eth0", &before, &changes, 3);
    for part in [
        "queues 5 to 7 of 8",
        "ethtool -K eth0 ntuple on",
        "ethtool -G eth0 tcp-data-split on hds-thresh 0",
        "ethtool -X eth0 equal 5",
    ] {
        assert!(said.contains(part), "{said}");
    }
    assert!(card.calls.borrow().is_empty(), "a plan changes nothing");
    let made = SetUp::make(&card, &before, &changes, None).unwrap();
    let now = CardState::read(&card).unwrap();
    assert!(now.rules && now.rings.split == HeaderSplit::On && now.rings.threshold == Some(0));
    assert!(now.table.len() == 128 && now.table.iter().all(|&q| q < 5) && now.table[..6] == [0, 1, 2, 3, 4, 0]);
    // A second one finds nothing to do.
    assert_eq!(plan(&now, 3), Ok(vec![]));
    drop(made);
    assert!(same(&CardState::read(&card).unwrap(), &before));
    let calls = ["rules on", "split on", "spread to 4", "spread to 7", "split off", "rules off"];
    assert_eq!(*card.calls.borrow(), calls);
}

#[test]
fn a_change_that_fails_undoes_those_before_it_and_says_what_the_kernel_said() {
    for fails in ["rules on", "split on", "spread to 4"] {
        let card = Fake::new(Some(fails));
        let before = CardState::read(&card).unwrap();
        let changes = plan(&before, 3).unwrap();
        let Err(why) = SetUp::make(&card, &before, &changes, None) else { panic!("{fails} went well") };
        assert!(why.contains("Operation not supported"), "{why}");
        assert!(same(&CardState::read(&card).unwrap(), &before), "after {fails}");
    }
}

#[test]
fn cards_that_cannot_are_told_apart() {
    let before = CardState::read(&Fake::new(None)).unwrap();
    let too_few = plan(&before, 8).unwrap_err();
    assert!(too_few.contains("8 receive queues") && too_few.contains("--queues 7"), "{too_few}");
    let none = plan(&CardState { table: vec![], ..before.clone() }, 1).unwrap_err();
    assert!(none.contains("no table"), "{none}");
    let rings = Rings { split: HeaderSplit::Unknown, ..before.rings };
    assert!(plan(&CardState { rings, ..before.clone() }, 1).unwrap_err().contains("splits headers"));
    // An old kernel has no threshold, and is not told one.
    let rings = Rings { threshold: None, ..before.rings };
    let changes = plan(&CardState { rings, ..before }, 1).unwrap();
    assert!(changes.contains(&Change::Split { threshold: None }), "{changes:?}");
}

#[test]
fn restored_is_said_only_where_it_is_so() {
    for (fails, restored) in [(None, true), (Some("spread to 7"), false), (Some("split off"), false)] {
        let card = Fake::new(fails);
        let before = CardState::read(&card).unwrap();
        let changes = plan(&before, 3).unwrap();
        let (done, said) = SetUp::make(&card, &before, &changes, None).unwrap().end();
        assert_eq!((done, said == "all settings are restored"), (restored, restored), "{said}");
        assert!(restored || said.contains("Operation not supported") && said.contains("lspan devmem down"), "{said}");
    }
}
