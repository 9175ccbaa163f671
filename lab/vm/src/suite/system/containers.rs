//! Faults of how containers are started, by podman in a whole system.

use std::collections::BTreeSet;

use super::doctor::{Asker, exactly, findings, way};
use super::host::{self, LAN, LAN_DEVICE};
use super::net::TWO_LANES;
use crate::error::{Error, Result, check};
use crate::guest::Guest;
use crate::lab::Lab;
use crate::suite::tb::SOON;

/// Soft-RoCE on the Ethernet.
const RDMA: &str = "modprobe rdma_rxe && rdma link add rxe0 type rxe netdev $(LAN)";

/// A root for containers: the programs of the system itself.
pub(in crate::suite::system) const ROOT: &str = "mkdir -p /srv/root /srv/out && cd /srv/root && mkdir -p usr tmp var proc sys dev run && cp -a /etc . && \
                    ln -sf usr/bin usr/sbin usr/lib usr/lib64 . && rm -f etc/resolv.conf etc/hosts";

/// What stands before a command line that runs in a container which was started with these words.
pub(in crate::suite::system) fn podman(words: &str) -> String {
    format!("podman run --rm --network host {words} -v /usr:/usr:ro -v /srv/out:/out --rootfs /srv/root sh -c")
}

/// The words with which a step has the container, or both, started.
fn words<'a>(steps: &'a [String], start: &str) -> Result<&'a str> {
    let found = steps.iter().find_map(|step| step.strip_prefix(start));
    let words = found.and_then(|words| words.split(',').next()).filter(|words| words.starts_with("--"));
    words.ok_or_else(|| Error::Check(format!("no step {start:?} in {steps:?}")))
}

fn inside<'a>(guest: &'a Guest, under: &'a str) -> Asker<'a> {
    Asker { guest, under, first: "" }
}

pub(super) fn faults(lab: &mut Lab) -> Result<()> {
    let pair = host::pair(lab, &TWO_LANES, |_| ())?;
    let [a, b] = &pair.guests;
    for guest in [a, b] {
        guest.sh_for(SOON, &RDMA.replace("LAN", LAN_DEVICE))?;
    }
    a.sh(ROOT)?;
    let peer = Asker { guest: b, under: "LINKSPAN_IFNAME=en sh -c", first: "" };

    let bare = podman("");
    let found = findings(&inside(a, &bare).report("")?);
    exactly(&found, &BTreeSet::from(["LS2201", "LS2203"]))?;
    way(inside(a, &bare), peer, LAN[0], &["tcp "], true)?;
    let start = "start the container with ";
    let (device, limit) = (words(&found[0].by_hand, start)?, words(&found[1].by_hand, start)?);
    check(device.contains(limit), || format!("two steps that differ: {device}, {limit}"))?;
    let mended = podman(device);
    inside(a, &mended).silent("")?;
    let path = way(inside(a, &mended), peer, LAN[0], &["verbs rxe"], true)?;
    lab.say(&format!("no device node: LS2201 and LS2203 alone; with `{device}` gone; {path}"));

    // Two containers on one host at once, each with processes of its own.
    let reports = |under: &str| {
        let start = |name: &str| {
            let report =
                format!("lspan doctor --json >/out/{name}.part; mv /out/{name}.part /out/{name}; exec sleep 1000");
            a.spawn(&inside(a, under).line(&report))
        };
        let _both = [start("one")?, start("two")?];
        a.until("both reports", SOON, "test $(pgrep -cx sleep) -ge 2 -a -e /srv/out/one -a -e /srv/out/two")?;
        a.sh("podman kill -a >/dev/null && mv /srv/out/one /srv/out/two /run/").map(drop)
    };
    const MERGE: &str = "--merge /run/one /run/two";
    let once = |under: &str, why: &str| way(inside(a, under), inside(a, under), LAN[0], &["shm ", why], true);
    reports(&mended)?;
    let apart = Asker::root(a).finds(MERGE, "LS2504")?;
    once(&mended, "pid namespace")?;
    let pid = words(&apart.by_hand, "start both with ")?;
    let shared = podman(&format!("{device} {pid}"));
    reports(&shared)?;
    // Nothing sets them apart any more.
    let said = a.run(SOON, &format!("lspan doctor {MERGE}"))?;
    check(said.err.contains("LS2014"), || format!("{said:?}"))?;
    let path = once(&shared, "(CMA)")?;
    lab.say(&format!("pid namespaces of their own: LS2504 alone; with `{pid}` gone; {path}"));
    host::end(lab, pair)
}
