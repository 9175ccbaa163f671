use super::*;
use crate::Machine;
use crate::fixture::{EIGHT_GPUS, Fixture, LAPTOP, SPARK, STRIX_HALO, TWO_CABLES};

fn of(tree: &str) -> Vec<Cable> {
    let fix = Fixture::tree(tree);
    cables(&Machine::read(&fix.roots()), &fix.survey())
}

fn named<'a>(cables: &'a [Cable], name: &str) -> &'a Cable {
    cables.iter().find(|cable| cable.name == name).unwrap_or_else(|| panic!("{name}: {cables:#?}"))
}

fn path<'a>(cable: &'a Cable, means: &Means) -> &'a CablePath {
    cable.paths.iter().find(|path| path.means == *means).unwrap_or_else(|| panic!("{means}: {cable:#?}"))
}

fn why(path: &CablePath) -> &str {
    assert!(!path.usable, "{path:?}");
    path.reason.as_deref().unwrap()
}

#[test]
fn one_cable_between_mini_pcs() {
    let cables = of(STRIX_HALO);
    let names: Vec<(Medium, &str)> = cables.iter().map(|cable| (cable.medium, &*cable.name)).collect();
    assert_eq!(names, [(Medium::Thunderbolt, "0-1"), (Medium::Ethernet, "enp193s0")], "and no radio");
    let cable = &cables[0];
    let peer = cable.peer.as_ref().unwrap();
    assert_eq!((peer.device_name.as_deref(), peer.this_host), (Some("strix-b"), false));
    assert!(peer.also.is_empty() && peer.perhaps_also.is_empty() && cable.notes.is_empty(), "{cable:#?}");
    assert_eq!(cable.paths, [CablePath { means: Means::Tcp, over: "thunderbolt0".into(), usable: true, reason: None }]);
    assert_eq!(cable.neighbours, [Ipv4Addr::new(10, 0, 0, 2)]);
}

#[test]
fn several_cables_to_one_peer() {
    let cables = of(TWO_CABLES);
    let first = named(&cables, "0-1");
    let peer = first.peer.as_ref().unwrap();
    assert_eq!((&*peer.also, &*peer.perhaps_also), (&["0-3".to_owned()][..], &["1-1".to_owned()][..]));
    assert!(path(first, &Means::Tcp).usable);
    assert!(path(first, &Means::Stream).usable);
    assert_eq!(first.paths.iter().filter(|path| path.usable).map(|path| &path.means).max(), Some(&Means::Stream));
    for part in ["same host router as 0-3", "probably to the same host as 1-1", "no IOMMU protection"] {
        assert!(first.notes.iter().any(|note| note.contains(part)), "{part}: {:?}", first.notes);
    }

    let second = named(&cables, "0-3");
    assert!(path(second, &Means::Tcp).usable, "link-local addresses do for a cable");
    assert!(second.notes.iter().any(|note| note.contains("one lane")), "{:?}", second.notes);

    let third = named(&cables, "1-1");
    assert!(why(path(third, &Means::Tcp)).contains("`modprobe thunderbolt_net`"));
    assert!(why(path(third, &Means::Stream)).contains("modprobe thunderbolt_stream"));
    assert!(!third.notes.iter().any(|note| note.contains("IOMMU") || note.contains("one lane")), "{:?}", third.notes);

    let mac = named(&cables, "1-3");
    assert!(why(path(mac, &Means::Tcp)).contains("no network service; `modprobe thunderbolt_net` there, or switch"));
    assert!(why(path(mac, &Means::Service("rdma".into()))).contains("Apple"));
    assert!(why(path(mac, &Means::Service("odd".into()))).contains("protocol 77"));
    assert!(mac.peer.as_ref().unwrap().also.is_empty());
}

#[test]
fn transports_make_offers_usable() {
    let cables = of(TWO_CABLES);
    assert!(path(named(&cables, "0-1"), &Means::Stream).usable);
    assert!(!path(named(&cables, "1-1"), &Means::Stream).usable, "no driver took it");
    let cables = of(SPARK);
    let rdma = path(named(&cables, "enp1s0f0np0"), &Means::Rdma);
    assert_eq!(rdma.reason.as_deref(), Some("RoCE v2 GID 3 (10.10.0.1)"));
    assert!(rdma.usable);
    assert!(!path(named(&cables, "enP2p1s0f1np1"), &Means::Rdma).usable, "link-local alone");
}

#[test]
fn rings_tell_whether_their_link_is_up() {
    let dir = "sys/devices/pci0000:00/0000:00:08.3/0000:c6:00.5/domain0/0-0/0-1/0-1.1";
    let tree = |state: &str| {
        format!(
            "{STRIX_HALO}sys/bus/thunderbolt/devices/0-1.1 -> /{dir}\n{dir}/key\tlinkspan\n{dir}/prtcid\t1\n{state}"
        )
    };
    let ring = |state: &str| path(named(&of(&tree(state)), "0-1"), &Means::Ring).clone();
    let link = |state: &str| ring(&format!("{dir}/linkspan/linkspan0/state\t{state}\n"));
    assert!(link("up").usable);
    assert!(why(&link("waiting")).contains("waits to be allowed; `sudo lspan link allow d"), "{:?}", link("waiting"));
    assert!(why(&link("refused: the other host is in the other mode")).contains("in the other mode"));
    assert!(why(&link("login")).contains("`lspan link allow` there"));
    assert!(why(&link("network")).contains("not in this network namespace"));
    assert!(why(&ring("")).contains("`modprobe linkspan`"));
    assert!(why(&ring(&format!("{dir}/driver -> /sys/bus/thunderbolt/drivers/linkspan\n"))).contains("no link of it"));
}

#[test]
fn four_ports_of_a_spark() {
    let cables = of(SPARK);
    let names: Vec<&str> = cables.iter().map(|cable| &*cable.name).collect();
    assert_eq!(names, ["enp1s0f0np0", "enp1s0f1np1", "enP2p1s0f0np0", "enP2p1s0f1np1", "enP7s7"]);
    let first = named(&cables, "enp1s0f0np0");
    assert_eq!(path(first, &Means::Rdma).over, "rocep1s0f0/1");
    assert_eq!(path(first, &Means::Rdma).reason.as_deref(), Some("RoCE v2 GID 3 (10.10.0.1)"));
    assert!(first.notes.iter().any(|n| n.contains("shares port p0") && n.contains("enP2p1s0f0np0")), "{first:#?}");
    assert!(!first.notes.iter().any(|n| n.contains("MTU")));
    assert!(named(&cables, "enP2p1s0f0np0").notes.iter().any(|n| n.contains("MTU 1500") && n.contains("1024")));
    assert!(why(path(named(&cables, "enP2p1s0f1np1"), &Means::Rdma)).contains("give enP2p1s0f1np1 an IP address"));
    let lan = named(&cables, "enP7s7");
    assert!(why(path(lan, &Means::Tcp)).contains("far slower"), "10 beside 200 Gb/s");
    assert!(lan.paths.len() == 1 && lan.notes.is_empty());
    assert_eq!(lan.neighbour_count, 1);
}

#[test]
fn a_laptop_has_none() {
    assert_eq!(of(LAPTOP), []);
}

#[test]
fn infiniband_roce_and_soft_roce() {
    let cables = of(EIGHT_GPUS);
    assert_eq!(cables.len(), 9, "no docker0, no veth");
    assert_eq!(cables[0].medium, Medium::Infiniband);
    assert_eq!(path(&cables[0], &Means::Rdma).reason.as_deref(), Some("LID 17"));
    assert!(why(path(&cables[3], &Means::Rdma)).contains("opensm"));
    assert!(why(path(&cables[7], &Means::Rdma)).contains("the port is down"));
    assert_eq!(path(named(&cables, "eno1"), &Means::Rdma).over, "rxe0/1");
    assert_eq!(
        cables[5].notes,
        ["mlx5_5 is on PCIe 32 GT/s x8 of x16, which carries 252 Gb/s, less than the port's 400"],
        "and the others, on x16, have no note"
    );
    assert!(cables[4].notes.is_empty(), "{:?}", cables[4].notes);
}

#[test]
fn a_cable_from_this_host_to_itself() {
    let tree = TWO_CABLES.replace("d2040000-0080-7518-b3c8-e1ac3a6b0202", "c5030000-0070-6508-a3c8-f1ac3a6b0101");
    let cables = of(&tree);
    let cable = named(&cables, "1-1");
    assert!(cable.peer.as_ref().unwrap().this_host && cable.notes[0].contains("this host"));
    assert!(!named(&cables, "0-1").peer.as_ref().unwrap().this_host);
}

#[test]
fn an_interface_in_another_namespace() {
    let fix = Fixture::tree(STRIX_HALO);
    let survey: Vec<_> = fix.survey().into_iter().filter(|(iface, _)| iface.name != "thunderbolt0").collect();
    let cables = cables(&Machine::read(&fix.roots()), &survey);
    assert!(why(path(&cables[0], &Means::Tcp)).contains("network namespace"));
}

#[test]
fn soft_roce_on_a_thunderbolt_interface() {
    let rxe = "sys/class/infiniband/rxe0";
    let gid = "0000:0000:0000:0000:0000:ffff:0a00:0001";
    let tree = format!(
        "{STRIX_HALO}{rxe}/parent\tthunderbolt0\n{rxe}/ports/1/state\t4: ACTIVE\n{rxe}/ports/1/link_layer\tEthernet\n\
         {rxe}/ports/1/gids/0\t{gid}\n{rxe}/ports/1/gid_attrs/types/0\tRoCE v2\n"
    );
    let cables = of(&tree);
    let rdma = path(&cables[0], &Means::Rdma);
    assert_eq!((&*rdma.over, rdma.usable), ("rxe0/1", true));
    assert_eq!(rdma.reason.as_deref(), Some("RoCE v2 GID 0 (10.0.0.1)"));
}

/// Names of the ways, each with what it goes over, and with a `!` where it cannot be used.
fn ways(cable: &Cable) -> Vec<String> {
    let way = |path: &CablePath| format!("{}{} {}", if path.usable { "" } else { "!" }, path.means, path.over);
    cable.paths.iter().map(way).collect()
}

const HOST: &str = "sys/devices/pci0000:00/0000:00:08.3/0000:c6:00.5/domain0/0-0/0-1";

/// A service of the other host, with its driver.
fn service(number: u32, key: &str, driver: &str) -> String {
    let dir = format!("{HOST}/0-1.{number}");
    format!(
        "sys/bus/thunderbolt/devices/0-1.{number} -> /{dir}\n{dir}/key\t{key}\n\
         {dir}/driver -> /sys/bus/thunderbolt/drivers/{driver}\n"
    )
}

/// An RDMA device below a device of the cable, active, with the RoCE v2 GID of an interface.
fn below(device: &str, parent: &str, interface: &str) -> String {
    let (class, port) = (format!("sys/class/infiniband/{device}"), format!("{parent}/infiniband/{device}/ports/1"));
    format!(
        "{class} -> /{parent}/infiniband/{device}\n{parent}/infiniband/{device}/device -> /{parent}\n\
         {port}/state\t4: ACTIVE\n{port}/link_layer\tEthernet\n\
         {port}/gids/0\t0000:0000:0000:0000:0000:ffff:0a00:0001\n{port}/gid_attrs/types/0\tRoCE v2\n{interface}"
    )
}

#[test]
fn the_ways_of_a_cable_stand_in_the_order_in_which_they_are_taken() {
    let ring = format!("{HOST}/0-1.2/linkspan/linkspan0/state");
    let tree = STRIX_HALO.to_owned()
        + &service(1, "stream", "thunderbolt-stream")
        + &service(2, "linkspan", "linkspan")
        + &service(3, "odd", "odd")
        + &below("usb4_rdma0", &format!("{HOST}/0-1.3"), "");
    let named = format!("{HOST}/0-1.3/infiniband/usb4_rdma0/ports/1/gid_attrs/ndevs/0\tenp193s0\n");
    let of = |more: &str| ways(&of(&format!("{tree}{more}"))[0]);
    assert_eq!(
        of(&format!("{ring}\tup\n{named}")),
        ["rdma usb4_rdma0/1", "ring 0-1.2", "stream 0-1.1", "tcp thunderbolt0", "!odd 0-1.3"],
        "the order of crates/fabric and of the tiers"
    );
    assert_eq!(
        of(&format!("{ring}\tlogin\n")),
        ["stream 0-1.1", "tcp thunderbolt0", "!ring 0-1.2", "!rdma usb4_rdma0/1", "!odd 0-1.3"],
        "what cannot be used comes after what can, and what any kernel has before the rest"
    );
    assert_eq!(
        of(&format!(
            "{ring}\tnetwork\n{named}net linkspan0 9 {}/0-1.2 mtu=4056\naddress linkspan0 10.176.0.1/30\n",
            &HOST[12..]
        )),
        ["rdma usb4_rdma0/1", "stream 0-1.1", "tcp linkspan0", "tcp thunderbolt0", "!odd 0-1.3"],
    );
}

#[test]
fn rdma_devices_of_other_drivers_are_found_by_their_place() {
    let nhi = HOST.trim_end_matches("/domain0/0-0/0-1");
    for parent in [HOST, &format!("{HOST}/0-1.1"), nhi] {
        let cables = of(&format!("{STRIX_HALO}{}", below("usb4_rdma0", parent, "")));
        let rdma = path(&cables[0], &Means::Rdma);
        assert_eq!(rdma.over, "usb4_rdma0/1");
        assert_eq!(why(rdma), "no network interface has its GIDs, by which linkspan finds the peer");
        assert!(cables[1].paths.iter().all(|path| path.means != Means::Rdma), "of no other cable: {cables:#?}");
    }
    let service = format!("{HOST}/0-1.0");
    // Its GIDs are of the cable's interface: found both ways, shown once.
    let both = below("usb4_rdma0", &service, &format!("{service}/infiniband/usb4_rdma0/parent\tthunderbolt0\n"));
    assert_eq!(ways(&of(&format!("{STRIX_HALO}{both}"))[0]), ["rdma usb4_rdma0/1", "tcp thunderbolt0"]);
    // Of a host interface with two cables: both, but for one whose interface tells which.
    for (parent, found) in [("", 2), (&*format!("{nhi}/infiniband/usb4_rdma0/parent\tthunderbolt1\n"), 1)] {
        let cables = of(&format!("{TWO_CABLES}{}", below("usb4_rdma0", nhi, parent)));
        let has = |cable: &&Cable| cable.paths.iter().any(|path| path.over == "usb4_rdma0/1");
        let names: Vec<&str> = cables.iter().filter(has).map(|cable| &*cable.name).collect();
        assert_eq!(names, ["0-1", "0-3"][2 - found..], "{parent}");
    }
    // On the host interface of another cable, below another host of this one, and below a device of USB.
    let usb = "sys/devices/pci0000:00/0000:00:14.0/usb0/0-1/0-1:1.0";
    for parent in [&nhi.replace("c6:00.5", "c6:00.6"), &format!("{}/0-3", HOST.trim_end_matches("/0-1")), usb] {
        assert_eq!(ways(&of(&format!("{STRIX_HALO}{}", below("usb4_rdma0", parent, "")))[0]), ["tcp thunderbolt0"]);
    }
}

#[test]
fn a_kernel_with_one_interrupt_interval_for_all_rings_has_a_note() {
    let of = |kernel: &str| of(&STRIX_HALO.replace("osrelease\t7.2.12", &format!("osrelease\t{kernel}")));
    let [note] = &of("6.12.9-amd64")[0].notes[..] else { panic!("one note") };
    assert!(note.starts_with("kernel 6.12.9-amd64 interrupts for it at most once in 128 us"), "{note}");
    assert!(note.contains("linkspan.ko or USB4STREAM from Linux 7.2 on"), "{note}");
    assert!(of("7.2.0")[0].notes.is_empty() && of("6.12.9")[1].notes.is_empty(), "nor has an Ethernet card");
}

#[test]
fn a_cable_that_is_a_port_of_a_bridge() {
    let bridged = format!(
        "{STRIX_HALO}net br0 9 - uevent=DEVTYPE=bridge bridge/bridge_id=x\n\
         sys/devices/virtual/net/br0/brif/thunderbolt0 -> ../x\n\
         sys/class/net/thunderbolt0/master -> ../br0\n"
    );
    let tcp = |tree: &str| path(&of(tree)[0], &Means::Tcp).clone();
    let without = tcp(&bridged);
    assert_eq!(why(&without), "part of br0, which is left out: has no IP address");
    let with = tcp(&format!("{bridged}address br0 10.1.0.1/24\n"));
    assert_eq!((with.usable, &*with.over, with.reason.as_deref()), (true, "thunderbolt0", Some("as a part of br0")));
    // A bridge that says to be part of itself.
    let turning = tcp(&format!("{bridged}sys/class/net/br0/master -> ../br0\n"));
    assert!(why(&turning).contains("br0"));
}

/// Trees of some tools leave uevents out, for the kernel's can be written to.
#[test]
fn hosts_are_told_from_devices_without_uevents() {
    for tree in [STRIX_HALO, TWO_CABLES, LAPTOP] {
        let whole: Vec<Cable> = of(tree);
        let bare: String = tree.lines().filter(|line| !line.contains("/uevent\t")).map(|l| format!("{l}\n")).collect();
        let thunderbolt = |list: Vec<Cable>| -> Vec<Cable> {
            list.into_iter().filter(|cable| cable.medium == Medium::Thunderbolt).collect()
        };
        assert_eq!(thunderbolt(of(&bare)), thunderbolt(whole));
    }
}

#[test]
fn rdma_of_a_bond_is_offered_by_each_of_its_cards() {
    let rdma = "sys/class/infiniband/mlx5_bond_0/ports/1";
    let tree = format!(
        "net bond0 4 - bonding/mode=x\naddress bond0 10.0.0.1/24\n\
         net eth0 2 pci0000:00/0000:01:00.0\nnet eth1 3 pci0000:00/0000:01:00.1\n\
         sys/class/net/eth0/master -> ../bond0\nsys/class/net/eth1/master -> ../bond0\n\
         {rdma}/state\t4: ACTIVE\n{rdma}/link_layer\tEthernet\n\
         {rdma}/gids/0\t0000:0000:0000:0000:0000:ffff:0a00:0001\n\
         {rdma}/gid_attrs/types/0\tRoCE v2\n{rdma}/gid_attrs/ndevs/0\tbond0\n"
    );
    let cables = of(&tree);
    for name in ["eth0", "eth1"] {
        let cable = named(&cables, name);
        assert_eq!((&*path(cable, &Means::Rdma).over, path(cable, &Means::Rdma).usable), ("mlx5_bond_0/1", true));
        assert_eq!(path(cable, &Means::Tcp).reason.as_deref(), Some("as a part of bond0"));
    }
}
