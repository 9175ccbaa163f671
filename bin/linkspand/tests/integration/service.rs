//! The service's life: plugs, kills, a bus that goes and comes.

use std::collections::BTreeSet;
use std::os::fd::AsFd;
use std::process::Command;

use linkspan_bus::zbus::blocking::fdo::{DBusProxy, ObjectManagerProxy};
use linkspan_bus::zbus::zvariant::Fd;
use linkspan_bus::{CableProxyBlocking, NAME, PATH, PeerProxyBlocking, from_dict};
use linkspan_service::events::{Event, Kind};
use rustix::process::Signal;

use super::{PEER, Running, come, is_root, spawn, until};

fn objects(running: &Running) -> BTreeSet<String> {
    let manager = ObjectManagerProxy::new(&running.client(), NAME, PATH).unwrap();
    manager.get_managed_objects().unwrap().keys().map(|path| path.to_string()).collect()
}

pub(super) fn events(running: &Running) -> Vec<Event> {
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

/// Each of OdinLink-Five's methods, signals and properties that is this service's, by its counterpart (docs/migration.md).
#[test]
fn devices_peers_statistics_and_their_changes_are_told_as_by_the_older_daemon() {
    let Some(running) = Running::start() else { return };
    let client = running.client();
    let all = ObjectManagerProxy::new(&client, NAME, PATH).unwrap();
    let (cable, peer) = (format!("{PATH}/cable/0_2d1"), format!("{PATH}/peer/{}", PEER.replace('-', "_2d")));
    let (mut added, mut removed) = (all.receive_interfaces_added().unwrap(), all.receive_interfaces_removed().unwrap());

    // GetDevices, GetPeerInfo, ConnectedPeerCount.
    let shown = all.get_managed_objects().unwrap();
    let peers: Vec<&str> = shown.keys().map(|path| path.as_str()).filter(|path| path.contains("/peer/")).collect();
    assert_eq!(peers, [&*peer]);
    let link = CableProxyBlocking::builder(&client).path(&*cable).unwrap().build().unwrap();
    let lanes = [link.receive_lane_mbps(), link.receive_lanes(), link.send_lane_mbps(), link.send_lanes()];
    assert_eq!(lanes.map(Result::unwrap), [20_000, 2, 20_000, 2]);
    assert_eq!(link.peer().unwrap().as_str(), peer);
    let host = PeerProxyBlocking::builder(&client).path(&*peer).unwrap().build().unwrap();
    let words = [host.uuid(), host.name(), host.vendor(), host.driver()].map(Result::unwrap);
    assert_eq!(words, [PEER, "strix-b", "Linux", ""]);

    // GetVersion; GetRcclStats: nobody uses linkspan here.
    assert_eq!(running.manager().version().unwrap(), env!("CARGO_PKG_VERSION"));
    let statistics = running.manager().get_statistics(false).unwrap();
    assert!(statistics.is_empty(), "{statistics:?}");

    // PeerStateChanged: the driver comes.
    let mut states = host.receive_driver_changed();
    assert_eq!(states.next().unwrap().get().unwrap(), "");
    // By its peer it is found: that comes last.
    for (file, text) in [("state", "waiting"), ("allowed", "0"), ("peer", PEER)] {
        running.fix.file(&format!("sys/class/linkspan/linkspan0/{file}"), text);
    }
    running.signal(Signal::HUP);
    assert_eq!(states.next().unwrap().get().unwrap(), "waiting");

    // DeviceRemoved, DeviceAdded.
    running.plug(false);
    let gone: BTreeSet<String> =
        removed.by_ref().take(2).map(|signal| signal.args().unwrap().object_path.to_string()).collect();
    let both = BTreeSet::from([cable.clone(), peer.clone()]);
    assert_eq!(gone, both);
    running.plug(true);
    let come: BTreeSet<String> =
        added.by_ref().take(2).map(|signal| signal.args().unwrap().object_path.to_string()).collect();
    assert_eq!(come, both);
}

/// The last close of a socket takes as long as its owner wants.
#[test]
fn it_takes_no_descriptors_from_those_who_call_it() {
    let Some(running) = Running::start() else { return };
    let (client, file) = (running.client(), std::fs::File::open("/dev/null").unwrap());
    let ping = |body: Option<Fd<'_>>| match body {
        Some(fd) => client.call_method(Some(NAME), "/", Some("org.freedesktop.DBus.Peer"), "Ping", &fd),
        None => client.call_method(Some(NAME), "/", Some("org.freedesktop.DBus.Peer"), "Ping", &()),
    };
    ping(None).unwrap();
    let error = ping(Some(file.as_fd().into())).unwrap_err();
    assert!(error.to_string().contains("NotSupported"), "{error}");
    ping(None).unwrap();
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

/// It speaks with the kernel and the bus alone.
#[test]
fn after_calls_it_holds_no_socket_of_a_network_and_no_library_of_a_gpu() {
    let Some(running) = Running::start() else { return };
    let manager = running.manager();
    manager.get_statistics(false).unwrap();
    if is_root() {
        manager.allow(PEER).unwrap();
        assert!(manager.lend_queues("127.0.0.1", 1, 1, &[]).is_err());
    }
    let of = |file: &str| std::fs::read_to_string(format!("/proc/{}/{file}", running.process.id())).unwrap();
    let mut networks = BTreeSet::new();
    for table in ["tcp", "tcp6", "udp", "udp6", "raw", "raw6", "packet"] {
        // The inode is the tenth word, of `packet` the last.
        let at = if table == "packet" { 8 } else { 9 };
        let lines = std::fs::read_to_string(format!("/proc/net/{table}")).unwrap_or_default();
        networks.extend(lines.lines().skip(1).filter_map(|line| Some(line.split_whitespace().nth(at)?.to_owned())));
    }
    let open = std::fs::read_dir(format!("/proc/{}/fd", running.process.id())).unwrap();
    let open = open.flatten().filter_map(|file| std::fs::read_link(file.path()).ok());
    let sockets: BTreeSet<String> =
        open.filter_map(|to| Some(to.to_str()?.strip_prefix("socket:[")?.trim_end_matches(']').to_owned())).collect();
    assert!(!sockets.is_empty(), "those of the bus and of the kernel's messages");
    assert_eq!(sockets.intersection(&networks).collect::<Vec<_>>(), [""; 0]);
    let maps = of("maps");
    for library in ["libcuda", "libnvidia", "libamdhip", "libhsa", "libibverbs", "liblinkspan"] {
        assert!(!maps.contains(library), "{library}: {maps}");
    }
}

#[test]
fn killed_while_somebody_watches_it_forgets_that_and_can_be_asked_again() {
    let Some(mut running) = Running::start() else { return };
    let manager = running.manager();
    let mut told = manager.receive_statistics_changed().unwrap();
    manager.watch(1000, false).unwrap();
    told.next().unwrap();
    running.process.kill().unwrap();
    running.process.wait().unwrap();
    running.restart();
    assert!(!manager.unwatch().unwrap(), "nobody watches");
    manager.watch(1000, false).unwrap();
    told.next().unwrap();
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

#[test]
fn a_bus_that_does_not_answer_holds_up_neither_the_end_nor_the_watchdog() {
    let fix = linkspan_topology::fixture::Fixture::tree(linkspan_topology::fixture::STRIX_HALO);
    let socket = fix.root.join("socket");
    let bus = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    let term = |process: &std::process::Child| {
        rustix::process::kill_process(rustix::process::Pid::from_child(process), Signal::TERM).unwrap();
    };
    let mut starting = spawn(&fix, &format!("unix:path={}", socket.display()));
    let _silent = come(&bus);
    term(&starting);
    assert!(starting.wait().unwrap().success());
    // The same where it had a bus before.
    let Some(mut running) = Running::start() else { return };
    let bus = running.bus.mute();
    let first = come(&bus);
    // It gives up, says that it lives, and tries again.
    let again = come(&bus);
    running.hear("WATCHDOG=1");
    drop((first, again));
    let _silent = come(&bus);
    running.signal(Signal::TERM);
    assert!(running.process.wait().unwrap().success());
}

#[test]
fn the_log_says_who_had_what_changed_and_streams_are_set_up() {
    let Some(running) = Running::start() else { return };
    if !is_root() {
        eprintln!("skipped: only root is let in without polkit");
        return;
    }
    let (fix, manager) = (&running.fix, running.manager());
    manager.allow(PEER).unwrap();
    manager.forget(PEER).unwrap();
    assert!(manager.end_lending("a\nline").is_err());
    assert!(manager.set_up(1, 9).is_err(), "there is no configfs");
    fix.file("sys/bus/thunderbolt/devices/0-1.1/key", "stream");
    fix.file("sys/kernel/config/thunderbolt/stream/0-1.1/lspan0/index", "0");
    fix.file("sys/kernel/config/thunderbolt/stream/0-1.1/lspan1/index", "1");
    fix.file("dev/tbstream0", "");
    fix.file("dev/tbstream1", "");
    let lines = manager.set_up(2, 9).unwrap();
    assert!(lines.len() == 2 && lines[1].contains("dev/tbstream1 to 0-1.1, HopIDs 1"), "{lines:?}");
    let hop = |n: u32, file: &str| {
        let path = format!("sys/kernel/config/thunderbolt/stream/0-1.1/lspan{n}/{file}");
        std::fs::read_to_string(fix.root.join(path)).unwrap().trim().parse::<u32>().unwrap()
    };
    let hops: BTreeSet<u32> = (0..2).flat_map(|n| [hop(n, "in_hopid"), hop(n, "out_hopid")]).collect();
    assert_eq!(hops, (9..13).collect());
    let log = running.log();
    let said = |text: &str| assert_eq!(log.lines().filter(|line| line.contains(text)).count(), 1, "{text}: {log}");
    said(&format!("user 0 called Allow {PEER}: done"));
    said(&format!("user 0 called Forget {PEER}: done"));
    said("user 0 called EndLending a\u{fffd}line: ");
    said("user 0 called SetUp 1 9: ");
    said("user 0 called SetUp 2 9: done");
}

#[test]
fn what_other_users_write_takes_a_bounded_part_of_its_memory() {
    use std::os::unix::fs::{PermissionsExt, chown};
    if !is_root() {
        eprintln!("skipped: only root can make pages of other users");
        return;
    }
    let most = rustix::process::getrlimit(rustix::process::Resource::Nofile).maximum;
    let limit = rustix::process::Rlimit { current: most, maximum: most };
    rustix::process::setrlimit(rustix::process::Resource::Nofile, limit).unwrap();
    let Some(running) = Running::start() else { return };
    let (pages, scratch) = (running.fix.root.join("stats"), running.fix.root.join("scratch"));
    // A page as large as it can be.
    let stats = linkspan_fabric::stats::Stats::new(Some(&scratch), &"j".repeat(64)).unwrap();
    for n in 0..32 {
        let slot = stats.slot(&format!("{n:064}"), "transprt", if n < 24 { "a peer with a name" } else { "" }).unwrap();
        stats.chosen(slot, &"w".repeat(80));
    }
    stats.downgraded(&"d".repeat(512));
    let mut page = std::fs::read(scratch.join(format!("{}.stats", std::process::id()))).unwrap();
    std::fs::create_dir_all(&pages).unwrap();
    std::fs::set_permissions(&pages, PermissionsExt::from_mode(0o1777)).unwrap();
    let mut held = Vec::new();
    for uid in 4001..4005 {
        let dir = pages.join(uid.to_string());
        std::fs::create_dir(&dir).unwrap();
        for n in 0..1024_u64 {
            let path = dir.join(format!("{n}.stats"));
            // Each of another process.
            page[16..24].copy_from_slice(&(n + 1).to_ne_bytes());
            std::fs::write(&path, &page).unwrap();
            chown(&path, Some(uid), None).unwrap();
            let file = std::fs::File::open(&path).unwrap();
            file.lock().unwrap();
            held.push(file);
        }
        chown(&dir, Some(uid), None).unwrap();
    }
    let manager = running.manager();
    let before = peak(&running);
    let users = || {
        let all = manager.get_statistics(true).unwrap();
        let uids: Vec<u32> =
            all.iter().map(|page| u32::try_from(u64::try_from(&page["uid"]).unwrap()).unwrap()).collect();
        (4001..4005).map(|uid| uids.iter().filter(|of| **of == uid).count()).collect::<Vec<_>>()
    };
    until("all of them are read", || users() == [32; 4]);
    // Read again and again, by the service too.
    for _ in 0..5 {
        users();
    }
    let grown = peak(&running) - before;
    println!("{} KiB at the most, {grown} KiB more than before", peak(&running));
    // Three quarters of the unit's MemoryMax: what the allocator keeps for each thread differs by 100 MiB from run to run.
    assert!(grown < 384 << 10, "{grown} KiB more");
    drop(held);
}

/// Most resident memory that the service had, KiB.
fn peak(running: &Running) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", running.process.id())).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}
