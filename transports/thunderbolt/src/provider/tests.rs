use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use super::*;
use crate::up::tests::{A, B, Tree};

fn cables(tree: &Tree, tier: TierChoice) -> Cables {
    Cables { root: tree.root(), tier, ..Cables::default() }
}

/// A tree with a ring link that does not answer, and the network interface of the same cable.
fn silent(name: &str) -> Tree {
    let tree = Tree::new(name, A, B);
    tree.put("dev/linkspan/0-1.2", "");
    for (class, service) in
        [("linkspan/linkspan0-1.2", "0-1.2"), ("net/thunderbolt0", "0-1.0"), ("net/eth0", "virtio0")]
    {
        let device = Path::new("/devices").join(service);
        let class = tree.0.join("sys/class").join(class);
        fs::create_dir_all(&class).expect("made");
        symlink(device, class.join("device")).expect("linked");
    }
    tree
}

#[test]
fn a_stream_over_a_cable_whose_ring_is_not_up_is_told_why() {
    let tree = silent("lacks");
    let auto = cables(&tree, TierChoice::Auto);
    let why = auto.lacks("thunderbolt0").expect("its ring is not up");
    assert!(why.starts_with("tier 1 (ring): ") && why.contains("dev/linkspan/0-1.2"), "{why}");
    for other in ["eth0", "thunderbolt1", "lo"] {
        assert_eq!(auto.lacks(other), None, "{other}");
    }
    for tier in [TierChoice::Off, TierChoice::Only(Tier::Net)] {
        let off = cables(&tree, tier);
        assert!(off.lacks("thunderbolt0").is_none(), "{tier:?}");
    }
}

#[test]
fn a_stream_beside_which_the_cable_has_rails_by_usb4stream_lacks_nothing() {
    let tree = silent("stands-in");
    tree.put("dev/tbstream0", "");
    tree.put("sys/kernel/config/thunderbolt/stream/0-1.1/lspan0/index", "0");
    tree.root().up(1, crate::up::FIRST_HOP).expect("set up");
    let auto = cables(&tree, TierChoice::Auto);
    assert_eq!(auto.ports().cables.len(), 1);
    assert_eq!(auto.lacks("thunderbolt0"), None);
}
