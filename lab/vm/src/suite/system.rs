//! Tests in whole systems: Debian as it is installed, systemd as PID 1, its own kernel, udev and NetworkManager.

mod boot;
mod containers;
mod doctor;
mod driver;
mod faults;
pub(crate) mod host;
mod net;
mod packages;
mod service;
mod slurm;
mod streams;
mod user;

use super::{ANY, Drivers, Test};
use crate::error::Result;
use crate::lab::Lab;

const fn test(name: &'static str, what: &'static str, run: fn(&mut Lab) -> Result<()>) -> Test {
    Test { name, since: ANY, drivers: Drivers::Stock, what, run }
}

/// All of them.
pub(crate) const ALL: &[Test] = &[
    test(
        "sys-boot",
        "two whole systems boot: bus, authorization, devices, networks; the cable's drivers load by themselves",
        boot::boot,
    ),
    test(
        "sys-nm-cable",
        "NetworkManager's default gives a cable link-local addresses alone: TCP goes over it by them",
        net::cable,
    ),
    test(
        "sys-faults",
        "faults made one by one: each is named alone by lspan doctor, mended by what it prints, and the path is taken",
        faults::one_by_one,
    ),
    test(
        "sys-fault-pairs",
        "twenty pairs of them, chosen by --seed: both are named, or the cause that hides the other, and mended as printed",
        faults::in_pairs,
    ),
    test(
        "sys-fault-boot",
        "a fault of the kernel's command line: thunderbolt.xdomain=0 is named, taken out, and the cable carries",
        faults::boot,
    ),
    Test {
        since: driver::SINCE,
        ..test(
            "sys-fault-driver",
            "our module for another kernel, unloaded, unsigned where signatures are enforced: named, mended as printed",
            driver::faults,
        )
    },
    test(
        "sys-fault-streams",
        "USB4STREAM without its driver, and with no stream set up: named, mended as printed",
        streams::faults,
    ),
    test(
        "sys-fault-containers",
        "podman containers without RDMA devices, and with pid namespaces of their own: named, started as printed",
        containers::faults,
    ),
    test(
        "sys-service",
        "linkspand as packages install it: activation, watchdog, polkit, kill -9, a bus that ends, 200 clients, masked and absent",
        service::alone,
    ),
    test(
        "sys-service-cable",
        "linkspand at both ends of a cable that is pulled 200 times: shown, memory flat, one process; one host suspended",
        service::plugs::plugs,
    ),
    test(
        "sys-packages",
        "our Debian packages: installed by apt, used, DKMS for two kernels, changed under a job with the module in use, nothing left; before 6.8 TCP",
        packages::packages,
    ),
    test(
        "sys-slurm",
        "Slurm of one node: srun starts ranks behind lspan run, the path is said, and a node without the plugin is drained",
        slurm::one_node,
    ),
    test(
        "sys-user",
        "a user's service without a login, two users paired by the guide, a share over the cable, lspan perf by its socket",
        user::user,
    ),
];
