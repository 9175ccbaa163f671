use super::*;

fn place(path: &str, numa: Option<u32>) -> PciPlace {
    PciPlace::of(Path::new(path), numa).unwrap()
}

#[test]
fn pci_names() {
    for name in ["0000:01:00.0", "10000:e1:00.7"] {
        assert!(is_pci(name), "{name}");
    }
    for name in ["pci0000:00", "virtio2", "0000:01:00.8", "0000:01:00", "0000:1:00.0", "0-1.0", "0000:01:00.00"] {
        assert!(!is_pci(name), "{name}");
    }
    assert!(is_host_bridge("pci000f:01") && !is_host_bridge("pci000f") && !is_host_bridge("pci:00"));
}

#[test]
fn the_five_distances() {
    // A switch: upstream port 02:00.0, downstream ports 03:00.0 and 03:01.0; a second switch below 03:02.0.
    let switch = "/sys/devices/pci0000:00/0000:00:01.0/0000:02:00.0";
    let gpu = place(&format!("{switch}/0000:03:00.0/0000:04:00.0"), Some(0));
    let nic = place(&format!("{switch}/0000:03:01.0/0000:05:00.0"), Some(0));
    let twin = place(&format!("{switch}/0000:03:01.0/0000:05:00.1"), Some(0));
    let deep = place(&format!("{switch}/0000:03:02.0/0000:06:00.0/0000:07:00.0/0000:08:00.0"), Some(0));
    let other_port = place("/sys/devices/pci0000:00/0000:00:02.0/0000:09:00.0", Some(0));
    let other_bridge = place("/sys/devices/pci0000:40/0000:40:01.0/0000:41:00.0", Some(0));
    let other_node = place("/sys/devices/pci0000:80/0000:80:01.0/0000:81:00.0", Some(1));
    for (b, want) in [
        (&gpu, Distance::Loc),
        (&nic, Distance::Pix),
        (&deep, Distance::Pxb),
        (&other_port, Distance::Phb),
        (&other_bridge, Distance::Phb),
        (&other_node, Distance::Sys),
    ] {
        assert_eq!(distance(&gpu, b, 2), want, "{b:?}");
        assert_eq!(distance(b, &gpu, 2), want, "the other way: {b:?}");
    }
    assert_eq!(distance(&nic, &twin, 2), Distance::Pix, "two functions of one card");
}

#[test]
fn without_numa_numbers() {
    let a = place("/sys/devices/pci0000:00/0000:00:02.0", None);
    let b = place("/sys/devices/pci0000:00/0000:00:0d.2", None);
    let far = place("/sys/devices/platform/axi/pci0002:00/0002:00:00.0/0002:01:00.0", None);
    assert_eq!(far.address(), "0002:01:00.0");
    assert_eq!(distance(&a, &b, 2), Distance::Phb, "one host bridge");
    assert_eq!(distance(&a, &far, 1), Distance::Phb, "one node");
    assert_eq!(distance(&a, &far, 2), Distance::Sys, "unknown");
}

#[test]
fn paths_that_are_no_function() {
    for path in ["/sys/devices/virtual/net/lo", "/sys/devices/pci0000:00", "/", "relative"] {
        assert_eq!(PciPlace::of(Path::new(path), None), None, "{path}");
    }
}

#[test]
fn what_a_link_carries() {
    for (mt_s, width, want) in
        [(2_500, 1, 2_000), (8_000, 4, 31_507), (32_000, 4, 126_030), (64_000, 16, 968_000), (u32::MAX, 32, u32::MAX)]
    {
        assert_eq!(PcieLink { mt_s, width }.mbps(), want);
    }
}
