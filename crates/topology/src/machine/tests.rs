mod lab;

use std::ffi::CString;
use std::os::unix::fs::symlink;
use std::process::Command;

use super::*;
use crate::cables;
use crate::fixture::{ALL, EIGHT_GPUS, Fixture};

#[test]
fn this_machine() {
    let machine = Machine::read(&Roots::default());
    assert!(machine.host.cpus > 0);
    for note in &machine.notes {
        assert!(note.starts_with("/sys/"), "{note}");
    }
}

#[test]
fn an_empty_root() {
    let machine = Machine::read(&Roots::under(std::path::Path::new("/no/such/folder")));
    assert!(machine.thunderbolt.is_empty() && machine.rdma.is_empty() && machine.gpus.is_empty());
    assert!(machine.notes.is_empty(), "what is not there is nothing to tell");
}

/// Loops, pipes, directories in place of files, files in place of directories, links out of sysfs, huge and binary
/// contents: nothing hangs, nothing panics, nothing from outside is shown.
#[test]
fn hostile_trees() {
    let fix = Fixture::new();
    let sys = fix.root.join("sys");
    let outside = fix.root.join("outside/0000:66:00.0");
    std::fs::create_dir_all(&outside).unwrap();
    for (file, text) in [("class", "0x030000"), ("vendor", "0x1002"), ("device", "0x1"), ("secret", "s")] {
        std::fs::write(outside.join(file), text).unwrap();
    }
    for dir in ["bus/pci/devices", "bus/thunderbolt/devices/0-1", "class/infiniband/loop0", "class/infiniband/mlx5_0"] {
        std::fs::create_dir_all(sys.join(dir)).unwrap();
    }
    let link = |to: &str, at: &str| symlink(to, sys.join(at)).unwrap();
    link("0000:01:00.0", "bus/pci/devices/0000:01:00.0");
    link("../../../../outside/0000:66:00.0", "bus/pci/devices/0000:66:00.0");
    link("../domain0", "bus/thunderbolt/devices/domain0");
    link("device_name", "bus/thunderbolt/devices/0-1/device_name");
    link("/dev/zero", "bus/thunderbolt/devices/0-1/vendor_name");
    link("..", "class/infiniband/loop0/ports");
    link(".", "class/infiniband/mlx5_0/device");
    fix.file("sys/bus/thunderbolt/devices/0-1/uevent", "DEVTYPE=thunderbolt_xdomain")
        .file("sys/bus/thunderbolt/devices/0-1/unique_id", &"u".repeat(1 << 20))
        .file("sys/bus/thunderbolt/devices/0-1/rx_speed", "\u{0}\u{1}\u{2}")
        .file("sys/class/infiniband/mlx5_0/ports", "a file, not a folder");
    std::fs::write(sys.join("class/infiniband/mlx5_0/node_guid"), [0xff, 0xfe, 0x00, b'\n']).unwrap();
    std::fs::create_dir_all(sys.join("class/infiniband/mlx5_0/fw_ver")).unwrap();
    let pipe = CString::new(sys.join("class/infiniband/mlx5_0/node_type").to_str().unwrap()).unwrap();
    assert!(Command::new("mkfifo").arg(pipe.to_str().unwrap()).status().unwrap().success());

    let machine = Machine::read(&fix.roots());
    assert!(machine.gpus.is_empty(), "{:?}", machine.gpus);
    let peer = &machine.thunderbolt[0].xdomains[0];
    assert_eq!((&peer.unique_id, &peer.device_name, &peer.vendor_name), (&None, &None, &None));
    assert!(machine.rdma.iter().all(|device| device.ports.is_empty() && device.pci.is_none()));
    for part in ["unique_id: longer", "0000:66:00.0: a link that leads", "rx_speed"] {
        assert!(machine.notes.iter().any(|note| note.contains(part)), "{part}: {:?}", machine.notes);
    }
    assert!(machine.notes.iter().all(|note| !note.contains('\u{0}')), "{:?}", machine.notes);
}

/// Every file of every fixture spoilt in every way, beside others that are spoilt in other ways or whole: nothing panics,
/// and nothing of it reaches a terminal.
#[test]
fn damage_everywhere() {
    const DAMAGE: [&str; 8] = ["", "x", "-1", "18446744073709551616", "0x", ":", "\u{fffd}\u{1b}[0m", "99999999 Gb/s"];
    const ROUNDS: usize = DAMAGE.len() + 3;
    for (name, tree) in ALL {
        for round in 0..ROUNDS {
            let spoilt = tree.lines().enumerate().map(|(n, line)| {
                match (line.split_once('\t'), DAMAGE.get((n + round) % ROUNDS)) {
                    (Some((path, _)), Some(damage)) => format!("{path}\t{damage}\n"),
                    _ => format!("{line}\n"),
                }
            });
            let fix = Fixture::tree(&spoilt.collect::<String>());
            let machine = Machine::read(&fix.roots());
            let cables = cables(&machine, &fix.survey());
            assert!((1..=32).contains(&machine.notes.len()), "{name}: {:?}", machine.notes);
            let shown = format!("{machine:?}{cables:?}");
            assert!(!shown.contains("\\u{1b}"), "{name}, round {round}: {shown}");
        }
    }
}

/// A look reads a bounded part of sysfs: a server's tree has many files that are not needed.
#[test]
fn the_rest_of_sysfs_is_not_walked() {
    let fix = Fixture::tree(EIGHT_GPUS);
    let before = Machine::read(&fix.roots());
    // A folder that cannot be listed in time and files that must not be opened: reading a pipe blocks.
    for dir in ["sys/kernel/debug", "sys/devices/virtual/deep", "sys/fs/cgroup", "sys/bus/usb/devices"] {
        fix.file(&format!("{dir}/x"), "");
        let pipe = fix.root.join(dir).join("pipe");
        assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    }
    assert_eq!(Machine::read(&fix.roots()), before);
}
