use super::*;
use crate::fixture::Fixture;

#[test]
fn host_from_a_fixture() {
    let fix = Fixture::new();
    fix.file("proc/sys/kernel/hostname", "spark-1")
        .file("proc/sys/kernel/osrelease", "6.12.0")
        .file("proc/sys/kernel/random/boot_id", "0d1f")
        .file("proc/meminfo", "MemTotal:       131072 kB\nMemFree: 1 kB")
        .file("proc/cpuinfo", "processor\t: 0\nmodel name\t: A fast one")
        .file("sys/devices/system/cpu/online", "0-2,5")
        .file("sys/devices/system/node/node1/cpulist", "2,5")
        .file("sys/devices/system/node/node1/meminfo", "Node 1 MemTotal:  2 kB")
        .file("sys/devices/system/node/node1/distance", "21 10")
        .file("sys/devices/system/node/node0/cpulist", "0-1")
        .file("sys/devices/system/node/possible", "0-1");
    let host = Host::read(&fix.roots());
    assert_eq!((&*host.name, &*host.kernel, host.boot_id.as_deref()), ("spark-1", "6.12.0", Some("0d1f")));
    assert_eq!((host.cpus, host.memory_bytes), (4, 128 << 20));
    assert_eq!(host.cpu_model.as_deref(), Some("A fast one"));
    assert_eq!(host.numa[1], NumaNode { id: 1, cpus: vec![2, 5], memory_bytes: 2048, distances: vec![21, 10] });
    assert_eq!(host.numa[0].cpus, [0, 1]);
}

#[test]
fn nothing_readable_is_no_panic() {
    let host = Host::read(&Fixture::new().roots());
    assert_eq!((host.cpus, host.memory_bytes, host.numa.len()), (0, 0, 0));
}

#[test]
fn lists_of_processors() {
    assert_eq!(cpu_list("0-3,8\n"), [0, 1, 2, 3, 8]);
    assert_eq!(cpu_list(""), Vec::<u32>::new());
    assert_eq!(cpu_list("3-1,x,0-4294967295,7"), [7]);
}

#[test]
fn this_machine() {
    let host = Host::read(&Roots::default());
    assert!(host.cpus > 0 && host.memory_bytes > 1 << 20 && !host.kernel.is_empty(), "{host:?}");
}

#[test]
fn kernels_are_compared_by_number() {
    let mut host = Host::read(&Fixture::new().roots());
    let kernels = [("6.12.9-amd64", true), ("7.1.0", true), ("7.2.0-rc1", false), ("7.10", false), ("10.0.1", false)];
    for (kernel, before) in kernels.into_iter().chain([("", false), ("x7.1", false), ("7", false)]) {
        host.kernel = kernel.into();
        assert_eq!(host.kernel_before((7, 2)), before, "{kernel}");
    }
}
