//! Objects come and go with their cables, and calls are answered.

use std::collections::BTreeSet;
use std::sync::Arc;

use linkspan_bus::zbus::fdo::{ObjectManagerProxy, PropertiesProxy};
use linkspan_bus::zbus::{Connection, zvariant};
use linkspan_bus::{CableProxy, Error, ManagerProxy, NAME, PATH, PeerProxy, Server, from_dict};
use linkspan_service::events::{Event, Kind};

use super::bus::Bus;
use super::{Machine, PEER, is_root};

async fn paths(client: &Connection) -> BTreeSet<String> {
    let manager = ObjectManagerProxy::new(client, NAME, PATH).await.unwrap();
    let all = manager.get_managed_objects().await.unwrap();
    all.keys().map(|path| path.as_str().trim_start_matches(PATH).to_owned()).collect()
}

async fn update(server: &mut Server, machine: &Machine) {
    let (look, hosts) = machine.system.seen();
    server.update(&look, &hosts).await.unwrap();
}

#[tokio::test]
async fn cables_and_hosts_are_objects_as_long_as_they_are_there() {
    let Some(bus) = Bus::start() else { return };
    let machine = Machine::new();
    let mut server = Server::start(bus.builder(), &machine.system, Arc::default()).await.unwrap();
    let client = bus.client().await;
    let (cable, peer) = ("/cable/0_2d1".to_owned(), format!("/peer/{}", PEER.replace('-', "_2d")));
    let all = paths(&client).await;
    assert!(all.contains(&cable) && all.contains(&peer) && all.contains("/cable/enp193s0"), "{all:?}");
    let proxy = CableProxy::new(&client, format!("{PATH}{cable}")).await.unwrap();
    assert_eq!((proxy.medium().await.unwrap().as_str(), proxy.receive_lanes().await.unwrap()), ("thunderbolt", 2));
    assert_eq!(proxy.peer().await.unwrap().as_str(), format!("{PATH}{peer}"));
    assert!(!proxy.usable().await.unwrap() && !proxy.paths().await.unwrap().is_empty());
    let host = PeerProxy::new(&client, format!("{PATH}{peer}")).await.unwrap();
    assert_eq!((host.name().await.unwrap().as_str(), host.remembered().await.unwrap()), ("strix-b", false));
    // A change of speed is told, and is there.
    let file = machine.fix.root.join("sys/bus/thunderbolt/devices/0-1/rx_lanes");
    std::fs::write(file, "1\n").unwrap();
    machine.look();
    update(&mut server, &machine).await;
    let fresh = PropertiesProxy::new(&client, NAME, format!("{PATH}{cable}")).await.unwrap();
    let lanes = fresh.get("org.linkspan.Link1.Cable".try_into().unwrap(), "ReceiveLanes").await.unwrap();
    assert_eq!(u32::try_from(lanes).unwrap(), 1);
    machine.plug(false);
    update(&mut server, &machine).await;
    let all = paths(&client).await;
    assert!(!all.contains(&cable) && !all.contains(&peer), "{all:?}");
    machine.plug(true);
    update(&mut server, &machine).await;
    assert!(paths(&client).await.contains(&peer));
    // A second service is told that there is one.
    assert!(Server::start(bus.builder(), &machine.system, Arc::default()).await.is_err());
}

#[tokio::test]
async fn a_closed_server_gives_the_name_back_also_where_something_still_holds_its_connection() {
    let Some(bus) = Bus::start() else { return };
    let machine = Machine::new();
    let server = Server::start(bus.builder(), &machine.system, Arc::default()).await.unwrap();
    let held = server.closed();
    server.close().await;
    held.await;
    assert!(Server::start(bus.builder(), &machine.system, Arc::default()).await.is_ok());
}

#[tokio::test]
async fn root_lets_hosts_in_and_is_told_why_not() {
    let Some(bus) = Bus::start() else { return };
    if !is_root() {
        eprintln!("skipped: without root and without polkit nobody may");
        return;
    }
    let machine = Machine::new();
    let _server = Server::start(bus.builder(), &machine.system, Arc::default()).await.unwrap();
    let manager = ManagerProxy::new(&bus.client().await).await.unwrap();
    assert!(manager.allow(PEER).await.unwrap().is_empty(), "there is no driver");
    assert!(manager.forget(PEER).await.unwrap().is_empty());
    assert!(matches!(manager.forget(PEER).await, Err(Error::NoHost(why)) if why.starts_with("LS3215")));
    assert!(matches!(manager.allow("x").await, Err(Error::InvalidArgument(why)) if why.starts_with("LS3211")));
    assert!(matches!(manager.set_up(9, 9).await, Err(Error::InvalidArgument(why)) if why.starts_with("LS3223")));
    assert!(matches!(manager.set_up(1, 9).await, Err(Error::NoDevice(why)) if why.starts_with("LS1529")));
    assert!(
        matches!(manager.lend_queues("nothing0", 1, 1, &[]).await, Err(Error::Failed(why)) if why.starts_with("LS3204"))
    );
    assert!(matches!(manager.lend_queues("lo", 0, 1, &[]).await, Err(Error::InvalidArgument(_))));
    assert!(matches!(manager.lend_queues("lo", 1, 1, &[1; 65]).await, Err(Error::InvalidArgument(_))));
    assert!(matches!(manager.watch(99, false).await, Err(Error::InvalidArgument(_))));
    assert!(manager.lendings().await.unwrap().is_empty());
}

#[tokio::test]
async fn events_are_the_same_on_the_bus() {
    let Some(bus) = Bus::start() else { return };
    let machine = Machine::new();
    let _server = Server::start(bus.builder(), &machine.system, Arc::default()).await.unwrap();
    let manager = ManagerProxy::new(&bus.client().await).await.unwrap();
    machine.plug(false);
    let here = machine.system.events(0, None);
    let there: Vec<Event> =
        manager.get_events(0, false).await.unwrap().iter().map(|dict| from_dict(dict).unwrap()).collect();
    assert_eq!(there, here);
    assert_eq!(there.last().map(|event| event.kind), Some(Kind::Unplugged));
    let last = there.last().unwrap().time_us;
    assert!(manager.get_events(last, false).await.unwrap().is_empty());
}

#[tokio::test]
async fn junk_is_refused_and_the_service_goes_on() {
    let Some(bus) = Bus::start() else { return };
    let machine = Machine::new();
    let _server = Server::start(bus.builder(), &machine.system, Arc::default()).await.unwrap();
    let client = bus.client().await;
    let interface = Some("org.linkspan.Link1.Manager");
    let long = "x".repeat(1 << 20);
    for n in 0..200_u32 {
        for method in ["Allow", "Watch", "Nothing"] {
            assert!(client.call_method(Some(NAME), PATH, interface, method, &(n, n, "x")).await.is_err());
        }
    }
    assert!(client.call_method(Some(NAME), PATH, interface, "Allow", &(&*long,)).await.is_err());
    assert!(client.call_method(Some(NAME), "/nowhere", interface, "Allow", &(PEER,)).await.is_err());
    assert!(client.call_method(Some(NAME), PATH, Some("org.example"), "Allow", &(PEER,)).await.is_err());
    let set = ("org.linkspan.Link1.Manager", "Version", zvariant::Value::from("9"));
    let properties = Some("org.freedesktop.DBus.Properties");
    assert!(client.call_method(Some(NAME), PATH, properties, "Set", &set).await.is_err());
    let manager = ManagerProxy::new(&client).await.unwrap();
    assert_eq!(manager.version().await.unwrap(), env!("CARGO_PKG_VERSION"));
    assert!(machine.system.seen().1.iter().all(|host| !host.remembered));
}

/// Resident memory of this process, KiB.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// Environment variable that makes [`ten_thousand_plugs_leave_no_object_and_no_memory_behind`] the process that is measured: other tests
/// beside it would take memory too.
const ALONE: &str = "LINKSPAN_TEST_ALONE";

#[test]
fn ten_thousand_plugs_leave_no_object_and_no_memory_behind() {
    if std::env::var_os(ALONE).is_some() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        return runtime.block_on(plug_ten_thousand_times());
    }
    let mut alone = std::process::Command::new(std::env::current_exe().unwrap());
    let name = "objects::ten_thousand_plugs_leave_no_object_and_no_memory_behind";
    let output = alone.args(["--exact", name, "--nocapture"]).env(ALONE, "1").output().unwrap();
    let (said, why) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{said}{why}");
    println!("{said}");
}

async fn plug_ten_thousand_times() {
    let Some(bus) = Bus::start() else { return };
    let machine = Machine::new();
    let mut server = Server::start(bus.builder(), &machine.system, Arc::default()).await.unwrap();
    let client = bus.client().await;
    let before = paths(&client).await;
    let there = machine.system.seen();
    machine.plug(false);
    let gone = machine.system.seen();
    let mut warm = 0;
    for n in 0..10_000 {
        let (look, hosts) = if n % 2 == 0 { &gone } else { &there };
        server.update(look, hosts).await.unwrap();
        server.events_changed(n).await.unwrap();
        if n == 2000 {
            warm = resident();
        }
    }
    assert_eq!(paths(&client).await, before);
    let grown = resident().saturating_sub(warm);
    println!("{grown} KiB more than after 2,000");
    // A cable's object and its host's, left behind 4,000 times, are 4 MiB at the least.
    assert!(grown < 1 << 10, "{grown} KiB more than after 2,000");
}
