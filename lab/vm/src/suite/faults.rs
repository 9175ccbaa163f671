//! Faults on the virtual cable, one after the other, and what an unmodified kernel makes of them.

use std::time::Duration;

use super::stream;
use super::tb::{self, SOON, apart, attribute, found, lost, net, offered, times_found, transfer};
use crate::error::{Result, check};
use crate::guest::Guest;
use crate::lab::Lab;
use crate::vcable::Cable;

/// All the time of the guests: many checks in one boot.
const LIFE: Duration = Duration::from_secs(900);

/// Those of a link that is up.
pub(crate) fn faults(lab: &mut Lab) -> Result<()> {
    over_two_lanes(lab, &[frames, stalled, pulled])
}

/// Those while hosts find each other.
pub(crate) fn discovery(lab: &mut Lab) -> Result<()> {
    over_two_lanes(lab, &[packets, silent, narrower])
}

type Faults = fn(&mut Lab, &Cable, &Guest, &Guest) -> Result<()>;

/// One after the other, over one cable with two lanes.
fn over_two_lanes(lab: &mut Lab, all: &[Faults]) -> Result<()> {
    let (cable, _, [a, b]) = tb::pair(lab, &["--lanes", "2"], |spec| spec.deadline = LIFE)?;
    net(&a, &b)?;
    lab.say("up");
    for faults in all {
        faults(lab, &cable, &a, &b)?;
    }
    lab.finish([a, b])?;
    cable.finish()
}

/// Runs something under a fault that hits a counter of `host`; the fault must have taken place.
fn under(cable: &Cable, host: &str, counter: &str, fault: &str, what: impl FnOnce() -> Result<()>) -> Result<()> {
    let before = cable.count(host, counter)?;
    cable.tell(fault)?;
    what()?;
    cable.tell("clear")?;
    let after = cable.count(host, counter)?;
    check(after > before, || format!("`{fault}` hit nothing: {counter} of {host} stays at {before}"))
}

/// Both hosts lose each other and find each other again, with a fault on the way.
fn again(cable: &Cable, a: &Guest, b: &Guest, faults: &[&str]) -> Result<()> {
    apart(cable, a, b)?;
    for fault in faults {
        cable.tell(fault)?;
    }
    cable.tell("replug ab")?;
    for guest in [a, b] {
        found(guest)?;
        offered(guest)?;
    }
    cable.tell("clear").map(drop)
}

/// Frames damaged, lost, doubled; interrupts lost.
fn frames(lab: &mut Lab, cable: &Cable, a: &Guest, b: &Guest) -> Result<()> {
    cable.tell("corrupt frame from=a count=3")?;
    let errors = "/sys/class/net/thunderbolt0/statistics/rx_crc_errors";
    b.until("three CRC errors", SOON, &format!("ping -c 1 -W 1 10.9.0.1 >/dev/null; [ $(cat {errors}) -ge 3 ]"))?;
    cable.tell("clear")?;
    a.until("a ping", SOON, "ping -c 1 -W 1 10.9.0.2 >/dev/null")?;
    lab.say("corrupt frames: the kernel counts three CRC errors");

    under(cable, "a", "faulted", "drop frame from=a nth=20 count=3", || transfer(a, b, "10.9.0.2", 2))?;
    lab.say("frames lost in mid-transfer: TCP makes up for them");
    under(cable, "a", "faulted", "duplicate frame from=a nth=20 count=5", || transfer(a, b, "10.9.0.2", 1))?;
    lab.say("frames doubled in mid-transfer: compared");
    under(cable, "b", "interrupts_lost", "lose-irq b count=2", || transfer(a, b, "10.9.0.2", 1))?;
    lab.say("lost interrupts: the transfer goes on");
    Ok(())
}

/// The receive ring of the network takes nothing for a while: its path fills its buffers and stops, another path on the
/// same lanes does not, and nothing is lost.
fn stalled(lab: &mut Lab, cable: &Cable, a: &Guest, b: &Guest) -> Result<()> {
    let streams = lab.has("thunderbolt_stream");
    if streams {
        stream::open(a, b)?;
    }
    cable.tell("stall b ring=1")?;
    let ping = a.run(SOON, "ping -c 1 -W 2 10.9.0.2 >/dev/null")?;
    check(ping.code != 0, || "a ping came back from a receiver that takes nothing".to_owned())?;
    if streams {
        stream::send(a, b, 2)?;
        stream::close(a, b)?;
    } else {
        lab.skip("a stream beside the stalled path", "this kernel has no USB4STREAM");
    }
    cable.tell("resume b ring=1")?;
    a.until("a ping", SOON, "ping -c 1 -W 1 10.9.0.2 >/dev/null")?;
    lab.say("a stalled receiver: its path stops, a stream beside it goes on, and it comes back");
    cable.tell("frame ab 100 stall b ring=1 for=2s")?;
    transfer(a, b, "10.9.0.2", 2)?;
    cable.tell("clear")?;
    lab.say("a receiver stalled for 2 s in mid-transfer: compared");
    calm(a, b)
}

/// The cable goes at a certain frame in the middle of a transfer.
fn pulled(lab: &mut Lab, cable: &Cable, a: &Guest, b: &Guest) -> Result<()> {
    let receiving = b.spawn("agent agent listen 5002 >/dev/null")?;
    b.until("a listener", SOON, "grep -q ':138A .* 0A ' /proc/net/tcp /proc/net/tcp6")?;
    cable.tell("frame ab 200 unplug ab")?;
    let sending = a.spawn("agent agent connect 10.9.0.2:5002 </dev/zero")?;
    lost(a)?;
    lost(b)?;
    sending.kill();
    receiving.kill();
    calm(a, b)?;
    again(cable, a, b, &[])?;
    net(a, b)?;
    transfer(a, b, "10.9.0.2", 1)?;
    lab.say("pulled out at frame 200 of a transfer and put in again: compared");
    Ok(())
}

/// Control packets lost, doubled, late, damaged and overtaken while the hosts get to know each other.
fn packets(lab: &mut Lab, cable: &Cable, a: &Guest, b: &Guest) -> Result<()> {
    for fault in [
        "drop xdomain count=2",
        "drop event to=a count=1",
        "duplicate control count=6",
        "delay reply by=200ms count=4",
        "corrupt reply to=a count=1",
    ] {
        let both = cable.count("a", "faulted")? + cable.count("b", "faulted")?;
        again(cable, a, b, &[fault])?;
        let now = cable.count("a", "faulted")? + cable.count("b", "faulted")?;
        check(now > both, || format!("`{fault}` hit nothing"))?;
        lab.say(&format!("{fault} during discovery: found, services read"));
    }
    // Requests and answers of the two hosts cross: one in two is held back until the next one has overtaken it.
    let before = cable.count("b", "overtaken")?;
    again(cable, a, b, &["reorder xdomain to=b nth=2 by=400ms"; 3])?;
    let overtaken = cable.count("b", "overtaken")? - before;
    check(overtaken > 0, || "no packet was overtaken".to_owned())?;
    net(a, b)?;
    lab.say(&format!("{overtaken} XDomain packets overtaken by later ones during discovery: found, ping"));
    calm(a, b)
}

/// A host that says nothing offers nothing.
fn silent(lab: &mut Lab, cable: &Cable, a: &Guest, b: &Guest) -> Result<()> {
    apart(cable, a, b)?;
    cable.tell("silent b")?;
    cable.tell("replug ab")?;
    a.sh("sleep 3")?;
    tb::silent(a, "ls -d /sys/bus/thunderbolt/devices/0-1.* 2>/dev/null || true")?;
    cable.tell("talk b")?;
    again(cable, a, b, &[])?;
    net(a, b)?;
    lab.say("a silent host offers no service; when it speaks again: found, ping");
    calm(a, b)
}

/// The link comes back with one lane, then slower, then as it was.
fn narrower(lab: &mut Lab, cable: &Cable, a: &Guest, b: &Guest) -> Result<()> {
    for (command, lanes, speed) in [
        ("retrain ab lanes=1", "1", "20.0 Gb/s"),
        ("retrain ab lanes=1 gen=2", "1", "10.0 Gb/s"),
        ("retrain ab", "2", "20.0 Gb/s"),
    ] {
        let before = [times_found(a)?, times_found(b)?];
        cable.tell(command)?;
        for (guest, before) in [(a, before[0]), (b, before[1])] {
            let again = format!("[ $(dmesg | grep -c 'new host found') -gt {before} ]");
            guest.until("the other host to be found again", SOON, &again)?;
            offered(guest)?;
            let is = [attribute(guest, "rx_lanes")?, attribute(guest, "tx_lanes")?, attribute(guest, "rx_speed")?];
            check(is == [lanes, lanes, speed], || format!("after `{command}`: {is:?} on {}", guest.name()))?;
        }
        lab.say(&format!("{command}: both kernels see {lanes} x {speed}"));
    }
    net(a, b)?;
    transfer(a, b, "10.9.0.2", 1)?;
    lab.say("1 MiB over the link as it was, compared");
    Ok(())
}

fn calm(a: &Guest, b: &Guest) -> Result<()> {
    a.calm()?;
    b.calm()
}
