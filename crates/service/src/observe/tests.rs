//! Cables plugged and unplugged in a sysfs of our own, and pages of jobs.

use std::time::Duration;

use linkspan_fabric::stats::{Counter, Event as SetupEvent, ProcessStats, Record};
use linkspan_topology::fixture::{Fixture, STRIX_HALO};

use super::*;
use crate::events::{Event, Kind};

const XDOMAIN: &str = "sys/bus/thunderbolt/devices/0-1";

fn kinds(events: &[Event]) -> Vec<Kind> {
    events.iter().map(|event| event.kind).collect()
}

/// A machine whose cable can be pulled and put back.
struct Plug(Fixture, std::path::PathBuf);

impl Plug {
    fn new() -> Plug {
        let fix = Fixture::tree(STRIX_HALO);
        let target = std::fs::read_link(fix.root.join(XDOMAIN)).unwrap();
        Plug(fix, target)
    }

    fn out(&self) {
        std::fs::remove_file(self.0.root.join(XDOMAIN)).unwrap();
    }

    fn back(&self) {
        std::os::unix::fs::symlink(&self.1, self.0.root.join(XDOMAIN)).unwrap();
    }

    fn write(&self, attribute: &str, text: &str) {
        std::fs::write(self.1.join(attribute), text).unwrap();
    }

    fn look(&self, watch: &mut CableWatch) -> Vec<Event> {
        watch.look(&Look::take(&self.0.roots()).cables, &BTreeSet::new())
    }
}

#[test]
fn a_cable_is_there_goes_and_comes() {
    let (plug, mut watch) = (Plug::new(), CableWatch::default());
    let first = plug.look(&mut watch);
    let cable = first.iter().find(|event| event.cable.as_deref() == Some("0-1")).unwrap();
    assert_eq!((cable.kind, cable.peer.as_deref()), (Kind::Present, Some("strix-b")));
    assert!(cable.text.contains("2 x 20 Gb/s") && cable.peer_uuid.is_some(), "{cable:?}");
    assert_eq!(plug.look(&mut watch), [], "nothing has changed");
    plug.out();
    assert_eq!(kinds(&plug.look(&mut watch)), [Kind::Unplugged]);
    plug.back();
    assert_eq!(kinds(&plug.look(&mut watch)), [Kind::Plugged]);
}

#[test]
fn pulled_and_put_back_between_two_looks_it_is_told_all_the_same() {
    let (plug, mut watch) = (Plug::new(), CableWatch::default());
    plug.look(&mut watch);
    let events = watch.look(&Look::take(&plug.0.roots()).cables, &BTreeSet::from(["0-1".to_owned()]));
    assert_eq!(kinds(&events), [Kind::Unplugged, Kind::Plugged]);
}

#[test]
fn speed_and_another_host_are_told() {
    let (plug, mut watch) = (Plug::new(), CableWatch::default());
    plug.look(&mut watch);
    plug.write("rx_lanes", "1\n");
    plug.write("tx_lanes", "1\n");
    let events = plug.look(&mut watch);
    assert_eq!(kinds(&events), [Kind::SpeedChanged]);
    assert!(events[0].text.contains("at 20 Gb/s, before at 2 x 20 Gb/s"), "{}", events[0].text);
    plug.write("unique_id", "00000000-0000-4000-8000-000000000001\n");
    assert_eq!(kinds(&plug.look(&mut watch)), [Kind::Unplugged, Kind::Plugged]);
}

#[test]
fn a_cable_whose_interface_goes_down_carries_nothing_until_it_is_up() {
    let (plug, mut watch) = (Plug::new(), CableWatch::default());
    let (machine, survey) = (Machine::read(&plug.0.roots()), plug.0.survey());
    let cables = |up: bool| {
        let mut survey = survey.clone();
        survey.retain(|(interface, _)| up || interface.name != "thunderbolt0");
        all_cables(&machine, &survey)
    };
    let none = BTreeSet::new();
    watch.look(&cables(true), &none);
    let events = watch.look(&cables(false), &none);
    assert_eq!(kinds(&events), [Kind::Degraded]);
    assert!(events[0].text.contains("carries nothing any more: tcp: its interface"), "{}", events[0].text);
    assert_eq!(kinds(&watch.look(&cables(true), &none)), [Kind::Recovered]);
}

#[test]
fn ten_thousand_plugs_leave_no_more_behind_than_one() {
    let (plug, mut watch) = (Plug::new(), CableWatch::default());
    let with = Look::take(&plug.0.roots()).cables;
    plug.out();
    let without = Look::take(&plug.0.roots()).cables;
    let mut log = crate::events::EventLog::new(64);
    let none = BTreeSet::new();
    watch.look(&without, &none);
    for n in 0..10_000 {
        let events = watch.look(if n % 2 == 0 { &with } else { &without }, &none);
        assert_eq!(events.len(), 1, "{events:?}");
        for event in events {
            log.push(event, n);
        }
    }
    assert_eq!(log.after(0, None).len(), 64);
}

fn page(uid: u32, pid: u32, lost: u64, back: u64, downgrades: u64) -> ProcessStats {
    let mut counters = vec![0; Counter::ALL.len()];
    (counters[Counter::RailsLost as usize], counters[Counter::RailsBack as usize]) = (lost, back);
    let (device, transport) = ("thunderbolt0".to_owned(), "tcp".to_owned());
    let record = Record { device, transport, peer: "b".into(), counters, ..Record::default() };
    let start = Duration::from_secs(1);
    ProcessStats { pid, uid, comm: "job".into(), start, downgrades, records: vec![record], ..ProcessStats::default() }
}

#[test]
fn rails_and_slow_paths_of_a_job_are_told_once() {
    let mut watch = JobWatch::default();
    assert_eq!(watch.look(&[page(1, 7, 0, 0, 0)]), []);
    let events = watch.look(&[page(1, 7, 2, 0, 1)]);
    assert_eq!(kinds(&events), [Kind::SlowPath, Kind::RailLost]);
    assert!(events[0].text.ends_with("took a path slower than this machine could give; its log says why"));
    let lost = &events[1];
    assert_eq!((lost.uid, lost.pid, lost.count, lost.peer.as_deref()), (Some(1), Some(7), Some(2), Some("b")));
    assert_eq!(lost.text, "job (7, user 1): 2 rails lost, tcp over thunderbolt0 to b");
    assert_eq!(watch.look(&[page(1, 7, 2, 0, 1)]), []);
    assert_eq!(kinds(&watch.look(&[page(1, 7, 2, 1, 1)])), [Kind::RailBack]);
    for (downgrades, text) in
        [(2, "give: no port"), (4, "took 2 paths slower than this machine could give, the last: no port")]
    {
        let slow = ProcessStats { last_downgrade: "no port".into(), ..page(1, 7, 2, 1, downgrades) };
        assert!(watch.look(&[slow])[0].text.ends_with(text));
    }
    let slow = ProcessStats { last_downgrade: "\u{e9}".repeat(252), ..page(1, 7, 2, 1, 5) };
    let text = &watch.look(&[slow])[0].text;
    assert!(text.ends_with("\u{e9}…") && text.len() < 250, "{text}");
    let mut failed = page(1, 7, 2, 1, 5);
    failed.records[0].counters[Counter::Failures as usize] = 1;
    let events = watch.look(&[failed]);
    assert_eq!(kinds(&events), [Kind::ConnectionFailed]);
    assert!(events[0].text.ends_with(": a connection ended in an error, tcp over thunderbolt0 to b"), "{events:?}");
    // Another process with the same number.
    let next = ProcessStats { start: Duration::from_secs(2), ..page(1, 7, 1, 0, 0) };
    assert_eq!(kinds(&watch.look(&[next])), [Kind::RailLost]);
}

#[test]
fn a_refused_peer_is_told_with_the_reason() {
    let mut watch = JobWatch::default();
    let mut job = page(1, 7, 0, 0, 0);
    job.events = vec![0; SetupEvent::ALL.len()];
    job.events[SetupEvent::RefusedKey as usize] = 2;
    let events = watch.look(&[job.clone()]);
    assert_eq!(kinds(&events), [Kind::PeerRefused]);
    assert_eq!(events[0].text, "job (7, user 1): 2 peers were refused with another key or without one");
    assert_eq!(watch.look(&[job]), []);
}

#[test]
fn whoever_writes_many_pages_is_heard_no_more_than_others() {
    let mut watch = JobWatch::default();
    let mut pages: Vec<ProcessStats> = (0..2000).map(|pid| page(1, pid + 1, 1, 1, 1)).collect();
    pages.push(page(2, 1, 1, 0, 0));
    let events = watch.look(&pages);
    assert_eq!(events.iter().filter(|event| event.uid == Some(1)).count(), 16);
    assert_eq!(events.iter().filter(|event| event.uid == Some(2)).count(), 1);
    // The rest comes later, of the first 256 processes; nothing of one that ended stays.
    let later: usize = (0..100).map(|_| watch.look(&pages).len()).sum();
    assert_eq!(later, 256 * 3 - 16);
    assert_eq!(watch.look(&[]), []);
    assert_eq!(watch.look(&pages[2000..]).len(), 1);
}

#[test]
fn a_page_that_renames_its_records_leaves_no_more_behind_than_it_has() {
    let mut watch = JobWatch::default();
    let mut looks = (0..1000).map(|n| {
        let mut job = page(1, 7, 1, 0, 0);
        job.records[0].peer = format!("peer{n:04}");
        watch.look(&[job]);
        format!("{watch:?}").len()
    });
    let first = looks.next();
    assert_eq!(looks.max(), first);
}
