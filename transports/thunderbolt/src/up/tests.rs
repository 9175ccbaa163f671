use std::path::PathBuf;

use super::*;
use crate::tier::Tier;

/// A tree that looks like two hosts on a cable.
pub(crate) struct Tree(pub(crate) PathBuf);

impl Tree {
    pub(crate) fn new(name: &str, local: &str, peer: &str) -> Tree {
        let root = std::env::temp_dir().join(format!("linkspan-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&root);
        let tree = Tree(root);
        tree.put("sys/bus/thunderbolt/devices/0-0/unique_id", local);
        tree.put("sys/bus/thunderbolt/devices/0-1/unique_id", peer);
        tree.put("sys/bus/thunderbolt/devices/0-1/rx_speed", "20.0 Gb/s");
        tree.put("sys/bus/thunderbolt/devices/0-1/rx_lanes", "2");
        tree.put("sys/bus/thunderbolt/devices/0-1.0/key", "network");
        tree.put("sys/bus/thunderbolt/devices/0-1.1/key", "stream");
        tree
    }

    pub(crate) fn put(&self, path: &str, text: &str) {
        let path = self.0.join(path);
        fs::create_dir_all(path.parent().expect("a folder")).expect("made");
        fs::write(path, format!("{text}\n")).expect("written");
    }

    pub(crate) fn root(&self) -> Root {
        Root(self.0.clone())
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

pub(crate) const A: &str = "10000000-0000-0000-ffff-ffffffffffff";
pub(crate) const B: &str = "20000000-0000-0000-ffff-ffffffffffff";

#[test]
fn both_hosts_come_to_mirrored_hops_and_find_their_streams() {
    for (name, local, peer, first) in [("low", A, B, (9, 10)), ("high", B, A, (10, 9))] {
        let tree = Tree::new(name, local, peer);
        let refused = tree.root().up(2, FIRST_HOP).expect_err("no configfs").to_string();
        assert!(refused.starts_with("LS1529") && refused.contains("7.2"), "{refused}");
        fs::create_dir_all(tree.0.join("sys/kernel/config/thunderbolt/stream")).expect("made");
        assert!(tree.root().ports().why_not(Tier::Stream).contains("lspan link up"));
        for n in 0..2 {
            tree.put(&format!("dev/tbstream{n}"), "");
            tree.put(&format!("sys/kernel/config/thunderbolt/stream/0-1.1/lspan{n}/index"), &n.to_string());
        }
        let said = tree.root().up(2, FIRST_HOP).expect("set up");
        assert_eq!(said.len(), 2, "{said:?}");
        assert!(said[1].contains("dev/tbstream1 to 0-1.1") && said[1].contains("root alone"), "{said:?}");
        let ports = tree.root().ports();
        assert!(ports.plugged);
        assert_eq!(ports.cables.len(), 2);
        assert_eq!(ports.cables[0].hops, first);
        assert_eq!(ports.cables[1].hops, (first.0 + 2, first.1 + 2));
        assert_eq!((ports.cables[0].speed, ports.cables[0].ring), (5_000_000_000, 32));
        assert_eq!(Some(ports.cables[0].local), uuid(local));
        assert!(ports.why_not(Tier::Stream).is_empty());
        assert!(ports.why_not(Tier::Ring).contains("linkspan.ko"), "{}", ports.why_not(Tier::Ring));
        assert!(ports.clone().only(Some(Tier::Ring)).cables.is_empty());
        tree.root().up(2, FIRST_HOP).expect("again changes nothing");
    }
}

#[test]
fn each_end_of_a_cable_has_its_address_and_a_link_that_is_not_up_has_none() {
    let tree = Tree::new("addresses", A, B);
    let link = |n: u32, mode: &str, state: &str, cable: &str| {
        for (file, text) in [("mode", mode), ("state", state), ("cable", cable)] {
            tree.put(&format!("sys/class/linkspan/linkspan{n}/{file}"), text);
        }
    };
    link(0, "network", "network", "00000000 0");
    link(1, "network", "network", "ffffffff 1");
    link(2, "direct", "up", "00000002 0");
    link(3, "network", "login", "00000003 0");
    link(4, "network", "network", "00000004 2");
    let found: Vec<_> = tree.root().interfaces().into_iter().map(|one| one.map_err(|e| e.to_string())).collect();
    let [first, last, not_up, wrong] = &found[..] else { panic!("{found:?}") };
    assert_eq!(*first, Ok(("linkspan0".to_owned(), [10, 176, 0, 1].into())));
    assert_eq!(*last, Ok(("linkspan1".to_owned(), [10, 191, 255, 254].into())));
    assert!(not_up.as_ref().is_err_and(|e| e.starts_with("LS1534 linkspan3") && e.contains("(login)")), "{not_up:?}");
    assert!(wrong.is_err(), "{wrong:?}");
}

#[test]
fn hops_that_cannot_be_had_are_named() {
    let tree = Tree::new("taken", A, B);
    // A folder where the file should be can be neither read nor written.
    fs::create_dir_all(tree.0.join("sys/kernel/config/thunderbolt/stream/0-1.1/lspan0/in_hopid")).expect("made");
    let refused = tree.root().up(1, FIRST_HOP).expect_err("in the way").to_string();
    assert!(refused.starts_with("LS1530") && refused.contains("0-1.1/lspan0"), "{refused}");
}

#[test]
fn what_cannot_be_set_up_is_named_beside_what_is() {
    let tree = Tree::new("partly", A, B);
    const C: &str = "30000000-0000-0000-ffff-ffffffffffff";
    tree.put("sys/bus/thunderbolt/devices/0-3/unique_id", C);
    tree.put("sys/bus/thunderbolt/devices/0-3.1/key", "stream");
    for (file, text) in [("mode", "network"), ("state", "login"), ("cable", "00000003 0")] {
        tree.put(&format!("sys/class/linkspan/linkspan3/{file}"), text);
    }
    let streams = "sys/kernel/config/thunderbolt/stream";
    fs::create_dir_all(tree.0.join(streams).join("0-1.1/lspan0/in_hopid")).expect("made");
    tree.put(&format!("{streams}/0-3.1/lspan0/index"), "7");
    tree.put("dev/tbstream7", "");
    let error = tree.root().up(1, FIRST_HOP).expect_err("a link and a stream are not");
    assert!(matches!(error.first(), Error::NoLink { .. }), "{error:?}");
    let said = error.to_string();
    let at = [
        "LS1534 linkspan3",
        "LS1530 in_hopid of the stream 0-1.1/lspan0",
        "dev/tbstream7 to 0-3.1, HopIDs 9 in and 10 out",
    ]
    .map(|part| said.find(part).unwrap_or_else(|| panic!("no {part:?} in {said}")));
    assert!(at[0] == 0 && at.is_sorted(), "{said}");
    assert_eq!(word(&tree.0.join(streams).join("0-3.1/lspan0/in_hopid")).as_deref(), Some("9"));
}

#[test]
fn a_stream_whose_device_is_not_made_is_not_set_up() {
    let tree = Tree::new("no-node", A, B);
    tree.put("sys/kernel/config/thunderbolt/stream/0-1.1/lspan0/index", "0");
    let refused = tree.root().up(1, FIRST_HOP).expect_err("no device").to_string();
    assert!(
        refused.starts_with("LS1532") && refused.contains("dev/tbstream0") && refused.contains("udev"),
        "{refused}"
    );
}

#[test]
fn why_a_stream_is_for_root_alone_is_told() {
    let tree = Tree::new("for-root", A, B);
    tree.put("sys/kernel/config/thunderbolt/stream/0-1.1/lspan0/index", "0");
    tree.put("dev/tbstream0", "");
    let lines = || tree.root().up(1, FIRST_HOP).expect("set up").concat();
    assert!(lines().ends_with("for root alone: No such file or directory (os error 2)"), "{}", lines());
    tree.put("etc/group", "root:x:0:");
    assert!(lines().ends_with("for root alone: there is no group linkspan"), "{}", lines());
}

#[test]
fn the_mode_of_a_cable_is_set_by_the_uuid_of_its_host() {
    let tree = Tree::new("mode", A, B);
    let refused = tree.root().set_mode(B, LinkMode::Network).expect_err("no module").to_string();
    assert!(refused.starts_with("LS1533 linkspan.ko is not loaded"), "{refused}");
    tree.put("sys/class/linkspan/linkspan0/peer", B);
    tree.put("sys/class/linkspan/linkspan0/mode", "direct");
    let mode = || fs::read_to_string(tree.0.join("sys/class/linkspan/linkspan0/mode")).expect("read");
    assert_eq!(tree.root().set_mode(B, LinkMode::Network).expect("known"), ["linkspan0"]);
    assert_eq!(mode(), "network");
    tree.root().set_mode(B, LinkMode::Direct).expect("known");
    assert_eq!(mode(), "direct");
    let refused = tree.root().set_mode(A, LinkMode::Network).expect_err("unknown").to_string();
    assert!(refused.starts_with("LS1531") && refused.contains(B), "{refused}");
}

#[test]
fn a_host_is_allowed_by_its_uuid() {
    let tree = Tree::new("allow", A, B);
    let refused = tree.root().allow(B, true).expect_err("no module").to_string();
    assert!(refused.starts_with("LS1533 linkspan.ko is not loaded"), "{refused}");
    tree.put("sys/class/linkspan/linkspan0/peer", B);
    tree.put("sys/class/linkspan/linkspan0/allowed", "0");
    let allowed = || fs::read_to_string(tree.0.join("sys/class/linkspan/linkspan0/allowed")).expect("read");
    assert_eq!(tree.root().allow(B, true).expect("known"), ["linkspan0"]);
    assert_eq!(allowed(), "1");
    tree.root().allow(B, false).expect("known");
    assert_eq!(allowed(), "0");
    for nobody in [A, "not a uuid"] {
        let refused = tree.root().allow(nobody, true).expect_err("unknown").to_string();
        assert!(refused.starts_with("LS1531") && refused.contains(B), "{refused}");
    }
}
