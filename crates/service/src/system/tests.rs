use linkspan_topology::fixture::{Fixture, STRIX_HALO};

use super::*;
use crate::events::Kind;

const PEER: &str = "d2040000-0080-7518-b3c8-e1ac3a6b0201";

fn system(fix: &Fixture) -> (System, Arc<Mutex<Vec<String>>>) {
    let said = Arc::new(Mutex::new(Vec::new()));
    let lines = said.clone();
    let places = Places {
        root: fix.root.clone(),
        allowed: fix.root.join("var"),
        statistics: fix.root.join("stats"),
        devmem: fix.root.join("run"),
    };
    let tell = move |_: bool, line: &str| lines.lock().unwrap().push(line.to_owned());
    (System::new(places, 100, Box::new(tell)), said)
}

#[test]
fn a_remembered_host_is_let_in_by_the_look_after_its_driver_has_come() {
    let fix = Fixture::tree(STRIX_HALO);
    let (system, said) = system(&fix);
    let events = system.look(&BTreeSet::new());
    // Nothing gives this machine's interfaces addresses.
    assert!(events.iter().all(|event| matches!(event.kind, Kind::Present | Kind::Degraded)), "{events:?}");
    assert!(system.allow(PEER).unwrap().is_empty());
    for (file, text) in [("peer", PEER), ("state", "waiting"), ("allowed", "0")] {
        fix.file(&format!("sys/class/linkspan/linkspan0/{file}"), text);
    }
    system.look(&BTreeSet::new());
    let (look, hosts) = system.seen();
    assert!(hosts[0].allowed && hosts[0].remembered && !look.cables.is_empty(), "{hosts:?}");
    assert_eq!(said.lock().unwrap().len(), 1);
    assert_eq!(system.events(0, Some(1)).len(), events.len());
}

#[test]
fn queues_of_what_is_no_card_are_not_lent() {
    let (system, said) = system(&Fixture::tree(STRIX_HALO));
    for name in ["nothing0", "../x", ""] {
        let error = system.lend(name, 1, 1, Vec::new()).unwrap_err();
        assert!(error.to_string().starts_with("LS3204"), "{error}");
        assert!(system.end_lending(name).is_err());
    }
    // A card of the fixture, whose number here is another's or nobody's.
    let error = system.lend("lo", 1, 1, Vec::new()).unwrap_err().to_string();
    assert!(error.starts_with("LS320"), "{error}");
    assert!(system.lent().is_empty());
    system.restore();
    system.end();
    assert!(said.lock().unwrap().is_empty());
}

#[test]
fn where_statistics_cannot_be_read_for_a_while_it_is_said_once_and_no_fault_is_told_again() {
    let fix = Fixture::new();
    let (system, said) = system(&fix);
    let (folder, away) = (fix.root.join("stats"), fix.root.join("away"));
    std::fs::create_dir(&folder).unwrap();
    let stats = stats::Stats::new(Some(&folder), "").unwrap();
    stats.downgraded("a test");
    let read = || {
        locked(&system.pages).read = None;
        system.read_jobs().len()
    };
    assert_eq!(read(), 1);
    for times in 1..=2 {
        std::fs::rename(&folder, &away).unwrap();
        std::fs::write(&folder, "").unwrap();
        assert_eq!((read(), read(), system.statistics().len()), (0, 0, 0));
        assert_eq!(said.lock().unwrap().len(), times, "{said:?}");
        std::fs::remove_file(&folder).unwrap();
        std::fs::rename(&away, &folder).unwrap();
        assert_eq!(read(), 0, "it has happened before");
    }
    stats.downgraded("another one");
    assert_eq!(read(), 1);
}

#[test]
fn many_readers_of_statistics_cost_one_read() {
    let (system, _) = system(&Fixture::new());
    let first = system.statistics();
    let again = system.statistics();
    assert!(first.is_empty() && (Arc::ptr_eq(&first, &again) || first == again));
}
