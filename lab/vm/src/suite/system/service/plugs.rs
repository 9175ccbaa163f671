//! A service at each end of the cable, which is pulled and put in again and again; then one host sleeps.

use std::time::Duration;

use super::super::host::{self, Pair};
use super::super::net::TWO_LANES;
use super::{EVENTS, NAME, PATH, Service};
use crate::error::{Result, check};
use crate::guest::Spec;
use crate::lab::Lab;
use crate::suite::tb::{self, SOON};

/// Times that it is pulled. After so many of them more events have been kept than [`EVENTS_KEPT`], and memory has its size.
const ROUNDS: usize = 200;
const FULL: usize = 40;
const EVENTS_KEPT: usize = 32;

/// After so many times the services are asked what they show; the kernels are each time.
const ASKED: usize = 20;

/// Folder of its settings.
const CONFIG: &str = "/etc/linkspan/linkspand.d";

/// Most that the memory of a service may grow by after that, KiB.
const GROWTH: u64 = 1024;

/// All the time of a guest.
const LIFE: Duration = Duration::from_secs(3600);

/// A condition: the service shows the cable and the host at its end. It does not print.
fn shown() -> String {
    format!("busctl tree --list {NAME} 2>/dev/null | grep -q {PATH}/peer/")
}

/// Waits until both services show the cable, or both do not.
fn both(services: &[Service<'_>; 2], shows: bool) -> Result<()> {
    let (what, not) = if shows { ("the cable in the service", "") } else { ("its end in the service", "! ") };
    services.iter().try_for_each(|on| on.guest.until(what, SOON, &format!("{not}{{ {}; }}", shown())).map(drop))
}

/// Processes and KiB of both.
fn sizes(services: &[Service<'_>; 2]) -> Result<[(String, u64); 2]> {
    let [a, b] = services;
    Ok([(a.show("MainPID")?, a.memory()?), (b.show("MainPID")?, b.memory()?)])
}

pub(in crate::suite::system) fn plugs(lab: &mut Lab) -> Result<()> {
    let Pair { cable, guests: [a, b] } = host::pair(lab, &TWO_LANES, |spec: &mut Spec| spec.deadline = LIFE)?;
    let services = [Service { guest: &a }, Service { guest: &b }];
    for on in services {
        host::cabled(on.guest)?;
        on.guest.sh(tb::AWAKE)?;
        on.guest.sh(&format!(
            "mkdir -p {CONFIG} && echo 'events = {EVENTS_KEPT}' >{CONFIG}/lab.toml && systemctl restart linkspand"
        ))?;
        on.answers("root", EVENTS)?;
        on.shows_the_cable()?;
    }
    let names = [services[0].of_peer("Name")?, services[1].of_peer("Name")?];
    lab.say(&format!("two services, each with the other's host as an object: {}, {}", names[0], names[1]));

    // The kernel's network driver would wait 10 s for the answer of a peer that is gone, each time.
    for on in services {
        on.guest.sh("nmcli networking off; ip link set thunderbolt0 down")?;
    }
    let first = sizes(&services)?;
    let mut before = first.clone();
    for round in 1..=ROUNDS {
        let asked = round % ASKED == 0;
        cable.tell("unplug ab")?;
        services.iter().try_for_each(|on| tb::lost(on.guest))?;
        if asked {
            both(&services, false)?;
        }
        cable.tell("replug ab")?;
        services.iter().try_for_each(|on| tb::found(on.guest))?;
        if asked {
            both(&services, true)?;
        }
        if round == FULL {
            before = sizes(&services)?;
            lab.say(&format!("pulled and put in {round} times"));
        }
    }
    let after = sizes(&services)?;
    for (n, on) in services.iter().enumerate() {
        let ((pid, _), (_, old), (now, new)) = (&first[n], &before[n], &after[n]);
        let name = on.guest.name();
        on.shows_the_cable()?;
        check(pid == now, || format!("{name}: process {pid} is gone, there is {now}"))?;
        check(*new <= old + GROWTH, || format!("{name}: {new} KiB after {ROUNDS} plugs, {old} after {FULL}"))?;
        let events = on.answers("root", EVENTS)?;
        check(events.contains("\"unplugged\"") && events.contains("\"plugged\""), || format!("{name}: {events}"))?;
        // By their field, not by their text.
        let logged =
            on.guest.sh("journalctl --sync; journalctl -u linkspand --no-pager -o cat LSPAN_EVENT=unplugged")?;
        check(!logged.trim().is_empty(), || format!("{name}: no line of the journal has LSPAN_EVENT=unplugged"))?;
        on.guest.calm()?;
    }
    let kib = |n: usize| format!("{} KiB after {FULL}, {} at the end", before[n].1, after[n].1);
    lab.say(&format!(
        "pulled and put in {ROUNDS} times, both asked each {ASKED}: they show it; {}; {}",
        kib(0),
        kib(1)
    ));

    // By systemd, as a closed lid does it.
    let pid = &after[0].0;
    a.sleeps(
        SOON * 4,
        &format!(
            "echo devices >/sys/power/pm_test && systemctl start systemd-suspend.service || exit 1\n\
             until {}; do sleep 0.1; done\n\
             [ $(systemctl show --value -p MainPID linkspand) = {pid} ] && systemctl is-active linkspand",
            shown()
        ),
    )?;
    both(&[services[1], services[1]], true)?;
    services[1].shows_the_cable()?;
    lab.say("one host suspended by systemd as far as devices and back: the same process shows the cable, and so does the other host's");
    lab.finish([b])?;
    a.cut()?;
    cable.finish()
}
