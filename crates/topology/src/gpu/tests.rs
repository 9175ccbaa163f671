use crate::fixture::{EIGHT_GPUS, Fixture, LAPTOP, SPARK, STRIX_HALO};
use crate::{Distance, Interface, Machine};

fn machine(tree: &str) -> Machine {
    Machine::read(&Fixture::tree(tree).roots())
}

#[test]
fn vendors_models_and_links() {
    for (tree, address, vendor, model, driver) in [
        (SPARK, "000f:01:00.0", Some("NVIDIA"), Some("NVIDIA GB10"), "nvidia"),
        (STRIX_HALO, "0000:c5:00.0", Some("AMD"), None, "amdgpu"),
        (LAPTOP, "0000:00:02.0", Some("Intel"), None, "i915"),
        (EIGHT_GPUS, "0000:06:00.0", None, None, "ast"),
    ] {
        let machine = machine(tree);
        let gpu = machine.gpus.iter().find(|gpu| gpu.pci.address() == address).unwrap();
        assert_eq!((gpu.vendor(), gpu.model.as_deref(), gpu.driver.as_deref()), (vendor, model, Some(driver)));
    }
    let gpus = machine(LAPTOP).gpus;
    assert_eq!((gpus[0].link.now, gpus[0].link.asleep), (None, false), "inside the chip, on no link");
    let sleeper = &gpus[1];
    assert_eq!((sleeper.link.now, sleeper.link.most, sleeper.link.asleep), (None, None, true), "let it sleep");
}

#[test]
fn other_functions_are_no_gpus() {
    let fix = Fixture::new();
    for (n, class) in
        ["0x030000", "0x0302ff", "0x120000", "0x020000", "0x060400", "0x040300", "three"].iter().enumerate()
    {
        let dir = format!("sys/devices/pci0000:00/0000:00:{n:02x}.0");
        fix.file(&format!("{dir}/class"), class).file(&format!("{dir}/vendor"), "0x1002");
        fix.file(&format!("{dir}/device"), "0x74a1");
        fix.link(&format!("sys/bus/pci/devices/0000:00:{n:02x}.0"), &format!("/{dir}"));
    }
    let machine = Machine::read(&fix.roots());
    let classes: Vec<u32> = machine.gpus.iter().map(|gpu| gpu.class).collect();
    assert_eq!(classes, [0x03_0000, 0x03_02ff, 0x12_0000]);
    assert!(machine.notes[0].contains("\"three\" is not a hexadecimal number"), "{:?}", machine.notes);
}

/// Each GPU has one adapter on its own switch, three across the host bridges of its node, four on the other node.
#[test]
fn eight_gpus_and_eight_adapters() {
    let fix = Fixture::tree(EIGHT_GPUS);
    let machine = Machine::read(&fix.roots());
    assert_eq!(machine.host.numa[1].distances, [21, 10]);
    let survey = fix.survey();
    let interfaces: Vec<&Interface> = survey.iter().map(|(iface, _)| iface).collect();
    let ends = machine.ends(&interfaces);
    let names: Vec<&str> = ends.iter().map(|(name, _)| &**name).collect();
    assert_eq!(
        names,
        ["mlx5_0", "mlx5_1", "mlx5_2", "mlx5_3", "mlx5_4", "mlx5_5", "mlx5_6", "mlx5_7", "eno1"],
        "an adapter once, under its RDMA name; soft-RoCE and software devices sit nowhere"
    );
    let gpus: Vec<_> = machine.gpus.iter().filter(|gpu| gpu.vendor().is_some()).collect();
    assert_eq!(gpus.len(), 8);
    for (g, gpu) in gpus.iter().enumerate() {
        assert_eq!(gpu.pci.numa_node, Some(g as u32 / 4));
        for (n, (name, place)) in ends.iter().take(8).enumerate() {
            let want = match (g == n, g / 4 == n / 4) {
                (true, _) => Distance::Pix,
                (false, true) => Distance::Phb,
                (false, false) => Distance::Sys,
            };
            assert_eq!(machine.distance(&gpu.pci, place), want, "GPU {g} and {name}");
        }
    }
}
