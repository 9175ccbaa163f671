//! linkspan itself between two guests, over thunderbolt_net.

use std::time::{Duration, Instant};

use super::perf::{self, MeasuredPath};
use super::tb::{self, SOON, net};
use crate::error::{Error, Result, check};
use crate::guest::{Guest, Job};
use crate::lab::Lab;
use crate::vcable::Cable;

/// A dead host is reported within 30 s (the keepalive connection's keepalive); the rest is a busy machine.
const TOLD: Duration = Duration::from_secs(45);

/// What both sides run with: the cable chosen by its name.
const CABLE: &str = "LINKSPAN_IFNAME==thunderbolt0";

/// The plugin with the host that plays NCCL's part: rank 0 on `a`, rank 1 on `b`, handshake over `at`.
fn ranks(a: &Guest, b: &Guest, at: &str, env: &str, words: &str) -> Result<[Job; 2]> {
    let start = |guest: &Guest, rank: u32| {
        guest.spawn(&format!(
            "{env} exec plugin-host --plugin /usr/lib/libnccl-net-linkspan.so --verbose --join {at}:9900 --rank {rank} \
             --ranks 2 {words}"
        ))
    };
    Ok([start(a, 0)?, start(b, 1)?])
}

/// What `lspan status` has to say about the cable to `peer`.
fn status(guest: &Guest, peer: &str) -> Result<()> {
    let text = guest.sh("lspan status --json")?;
    let status: serde_json::Value = serde_json::from_str(&text)
        .map_err(|error| Error::Check(format!("lspan status --json is no JSON: {error}:\n{text}")))?;
    let cables = status["cables"].as_array().cloned().unwrap_or_default();
    let cable = cables.iter().find(|cable| cable["medium"] == "thunderbolt").unwrap_or(&serde_json::Value::Null);
    let path = &cable["paths"][0];
    check(
        cable["name"] == "0-1"
            && cable["peer"]["device_name"] == peer
            && path["means"] == "tcp"
            && path["over"] == "thunderbolt0"
            && path["usable"] == true,
        || format!("{}: lspan status says of the cable to {peer}: {cable}", guest.name()),
    )?;
    let table = guest.sh("lspan status")?;
    check(table.contains("thunderbolt0") && table.contains("0-1"), || format!("no cable in the table:\n{table}"))
}

/// Packets that a guest has sent over the cable.
fn packets(guest: &Guest) -> Result<u64> {
    let text = guest.sh("cat /sys/class/net/thunderbolt0/statistics/tx_packets")?;
    text.trim().parse().map_err(|_| Error::Check(format!("{}: no number of packets: {text}", guest.name())))
}

pub(crate) fn cable(lab: &mut Lab) -> Result<()> {
    let cable = Cable::start(lab, &["--topology", "pair"])?;
    let [mut one, mut two] = ["a", "b"].map(|name| lab.guest(name));
    one.ethernet(&mut two);
    for spec in [&mut one, &mut two] {
        spec.cables.push(cable.socket(&spec.name));
    }
    let guests = lab.boot([&one, &two])?;
    let [a, b] = &guests;
    for (guest, address) in [(a, "10.8.0.1"), (b, "10.8.0.2")] {
        guest.sh(&format!("ip addr add {address}/24 dev lan0 && ip link set lan0 up"))?;
        tb::load(guest)?;
    }
    for guest in [a, b] {
        tb::found(guest)?;
    }
    net(a, b)?;
    lab.say("a Thunderbolt cable and an Ethernet cable: ping over both");
    status(a, "b")?;
    status(b, "a")?;
    lab.say("lspan status on both: the cable, who is at its other end, the path over it");

    // Our driver on both hosts, and neither has let the other in.
    for guest in [a, b] {
        guest.sh("modprobe linkspan")?;
    }
    for guest in [a, b] {
        guest.until("the link", SOON, "grep -q waiting /sys/class/linkspan/linkspan0/state")?;
    }
    let mut server = b.spawn(&format!("{CABLE} exec lspan perf serve --open"))?;
    server.expect("waiting on", SOON)?;
    let said = a.run(SOON * 4, &format!("{CABLE} lspan perf bw 10.9.0.2 --size 64K --iters 4 --warmup 1 2>&1"))?;
    check(said.code == 3 && said.out.contains("tcp thunderbolt0") && said.out.contains("waits to be allowed"), || {
        format!("a cable whose ring link waits: ended with {}:\n{}", said.code, said.out)
    })?;
    server.kill();
    let _ = server.expect("nothing", Duration::from_millis(10));
    for guest in [a, b] {
        guest.sh("rmmod linkspan")?;
    }
    lab.say("our driver waits to be allowed: TCP over the cable, said, and why");

    let sent = packets(a)?;
    perf::all(a, b, MeasuredPath { at: "10.9.0.2", env: CABLE, path: "auto", device: "thunderbolt0" })?;
    let sent = packets(a)? - sent;
    check(sent > 1000, || format!("{sent} packets left by thunderbolt0: the rest took another way"))?;
    lab.say(&format!("tier 3 (net), thunderbolt0 named: {}", perf::ALL));

    let [first, second] = ranks(a, b, "10.8.0.1", CABLE, "--test allreduce --quick")?;
    for job in [first, second] {
        let said = job.wait(SOON * 2)?;
        let text = format!("{}{}", said.out, said.err);
        check(said.code == 0, || format!("AllReduce ended with {}:\n{text}", said.code))?;
        check(text.contains("thunderbolt0"), || format!("the plugin does not name the cable:\n{text}"))?;
    }
    lab.say("the plugin over thunderbolt0, named: AllReduce, every value checked");

    // Handles meet over Ethernet, data goes over the cable alone.
    let mut jobs = ranks(a, b, "10.8.0.1", CABLE, "--test rounds --size 1M --rounds 100000")?;
    for job in &mut jobs {
        job.expect("round 3", SOON)?;
    }
    let cut = Instant::now();
    cable.tell("unplug ab")?;
    for job in jobs {
        let said = job.wait(TOLD)?;
        let text = format!("{}{}", said.out, said.err);
        check(said.code == 1 && text.contains("returned 6"), || {
            format!("a cut cable should be ncclRemoteError (6); ended with {}:\n{text}", said.code)
        })?;
        check(text.contains("LS0"), || format!("no line says what was lost:\n{text}"))?;
    }
    lab.say(&format!("the cable cut in mid-AllReduce: both sides told after {:.1} s", cut.elapsed().as_secs_f64()));

    cable.tell("replug ab")?;
    for guest in [a, b] {
        tb::found(guest)?;
    }
    net(a, b)?;
    let both = "LINKSPAN_IFNAME==thunderbolt0,lan0";
    let mut jobs = ranks(a, b, "10.8.0.1", both, "--test rounds --size 1M --rounds 30")?;
    for job in &mut jobs {
        job.expect("round 3", SOON)?;
    }
    cable.tell("unplug ab")?;
    let [first, second] = jobs;
    let said = [first.wait(SOON * 3)?, second.wait(SOON)?];
    let text = said.each_ref().map(|said| format!("{}{}", said.out, said.err));
    for (said, own) in said.iter().zip(&text) {
        check(said.code == 0, || format!("with an Ethernet rail beside it: {}:\n{}\n{}", said.code, text[0], text[1]))?;
        check(own.contains("rail lost"), || format!("no line says that a rail was lost:\n{own}"))?;
    }
    lab.say("the cable cut with an Ethernet rail beside it: every value right");
    lab.finish(guests)?;
    cable.finish()
}
