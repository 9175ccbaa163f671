//! Tests in whole systems: Debian as it is installed, systemd as PID 1, its own kernel, udev and NetworkManager.

mod boot;
pub(crate) mod host;

use super::{ANY, Test};

/// All of them.
pub(crate) const ALL: &[Test] = &[Test {
    name: "sys-boot",
    since: ANY,
    ours: false,
    what: "two whole systems boot: bus, authorization, devices, networks; the cable's drivers load by themselves",
    run: boot::boot,
}];
