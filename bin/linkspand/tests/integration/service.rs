//! The service's life: plugs, kills, a bus that goes and comes.

use std::collections::BTreeSet;
use std::process::Command;

use linkspan_bus::zbus::blocking::fdo::{DBusProxy, ObjectManagerProxy};
use linkspan_bus::{NAME, PATH, from_dict};
use linkspan_service::events::{Event, Kind};
use rustix::process::Signal;

use super::{PEER, Running, is_root, until};

fn objects(running: &Running) -> BTreeSet<String> {
    let manager = ObjectManagerProxy::new(&running.client(), NAME, PATH).unwrap();
    manager.get_managed_objects().unwrap().keys().map(|path| path.to_string()).collect()
}

fn events(running: &Running) -> Vec<Event> {
    running.manager().get_events(0, false).unwrap().iter().map(|dict| from_dict(dict).unwrap()).collect()
}

#[test]
fn plugged_and_unplugged_cables_are_objects_and_events() {
    let Some(mut running) = Running::start() else { return };
    let cable = format!("{PATH}/cable/0_2d1");
    assert!(objects(&running).contains(&cable));
    let (all, mut changes) = (objects(&running), running.manager().receive_events_changed().unwrap());
    for _ in 0..20 {
        // Plugging in may be told in two signals, as that of a cable and that it is slow: they are not counted.
        running.plug(false);
        until("the object goes", || !objects(&running).contains(&cable));
        running.plug(true);
        until("the object comes", || objects(&running).contains(&cable));
    }
    changes.next().unwrap();
    assert_eq!(objects(&running), all, "nothing has stayed behind");
    let told = |kind| events(&running).iter().filter(|event| event.kind == kind).count();
    until("the last one is told", || told(Kind::Plugged) >= 20);
    assert_eq!((told(Kind::Unplugged), told(Kind::Plugged)), (20, 20));
    running.hear("WATCHDOG=1");
    running.signal(Signal::TERM);
    running.hear("STOPPING=1");
    assert!(running.process.wait().unwrap().success());
}

#[test]
fn killed_and_started_again_it_knows_whom_it_lets_in_and_has_no_stale_object() {
    let Some(mut running) = Running::start() else { return };
    if !is_root() {
        eprintln!("skipped: only root is let in without polkit");
        return;
    }
    for (file, text) in [("peer", PEER), ("state", "waiting"), ("allowed", "0")] {
        running.fix.file(&format!("sys/class/linkspan/linkspan0/{file}"), text);
    }
    assert_eq!(running.manager().allow(PEER).unwrap(), ["linkspan0"]);
    let last = events(&running).last().unwrap().time_us;
    running.process.kill().unwrap();
    running.process.wait().unwrap();
    // Unplugged while nobody looks; what is there has to be let in again.
    running.plug_away();
    running.fix.file("sys/class/linkspan/linkspan0/allowed", "0");
    running.restart();
    assert!(!objects(&running).iter().any(|path| path.contains("/peer/") || path.ends_with("0_2d1")));
    assert!(events(&running).iter().all(|event| event.time_us > last), "times go on");
    running.plug(true);
    until("the host is let in", || {
        running.fix.roots().text("/sys/class/linkspan/linkspan0/allowed").as_deref() == Some("1")
    });
    running.manager().forget(PEER).unwrap();
    assert_eq!(running.fix.roots().text("/sys/class/linkspan/linkspan0/allowed").as_deref(), Some("0"));
}

#[test]
fn a_bus_that_comes_again_has_the_service_again_with_its_events() {
    let Some(mut running) = Running::start() else { return };
    let before = events(&running);
    running.bus.restart();
    until("the name is there again", || {
        DBusProxy::new(&running.client()).unwrap().name_has_owner(NAME.try_into().unwrap()).unwrap()
    });
    assert_eq!(events(&running), before);
    assert!(objects(&running).contains(&format!("{PATH}/cable/0_2d1")));
}

/// Resident memory of the service, KiB.
fn resident(running: &Running) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", running.process.id())).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[test]
fn a_message_of_the_kernel_is_enough_and_ten_thousand_cost_no_memory() {
    // A synthetic uevent (Documentation/ABI/testing/sysfs-uevent), which changes nothing.
    let uevent = || std::fs::write("/sys/class/net/lo/uevent", "change");
    if let Err(error) = uevent() {
        eprintln!("skipped: the kernel makes no uevent for us: {error}");
        return;
    }
    let Some(running) = Running::start() else { return };
    let mut changes = running.manager().receive_events_changed().unwrap();
    running.plug_away();
    uevent().unwrap();
    changes.next().unwrap();
    assert_eq!(events(&running).last().map(|event| event.kind), Some(Kind::Unplugged));
    let (kept, before) = (events(&running), resident(&running));
    for _ in 0..10_000 {
        uevent().unwrap();
    }
    running.plug_back();
    uevent().unwrap();
    changes.next().unwrap();
    let now = events(&running);
    assert_eq!(now[kept.len()].kind, Kind::Plugged, "{now:?}");
    let grown = resident(&running).saturating_sub(before);
    assert!(grown < 8 << 10, "{grown} KiB more");
}

#[test]
fn busctl_and_gdbus_understand_it() {
    let Some(running) = Running::start() else { return };
    let address = running.bus.address();
    let run = |program: &str, words: &[&str]| match Command::new(program).args(words).output() {
        Err(error) => eprintln!("skipped: {program}: {error}"),
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stdout).into_owned();
            assert!(output.status.success() && said.contains("strix-b"), "{program}: {output:?}");
        }
    };
    let manager = "org.linkspan.Link1.Manager";
    run("busctl", &[&format!("--address={address}"), "call", NAME, PATH, manager, "GetEvents", "tb", "0", "false"]);
    let object_manager = "org.freedesktop.DBus.ObjectManager.GetManagedObjects";
    run("gdbus", &["call", "--address", &address, "-d", NAME, "-o", PATH, "-m", object_manager]);
}
