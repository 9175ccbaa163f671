//! linkspan between two guests over the virtual cable: the CLI and the plugin, by our driver and by the kernel's stream.

use std::time::{Duration, Instant};

use super::perf::{self, MeasuredPath};
use super::tb::{self, SOON, found, lost};
use crate::error::{Result, check};
use crate::guest::{Guest, Job};
use crate::lab::Lab;

/// A dead peer is reported within 30 s; the rest is a busy machine.
const TOLD: Duration = Duration::from_secs(60);

/// Streams that are made: connections use one each, and two ranks have two.
const STREAMS: u32 = 4;

/// Plugin hosts: rank 0 on `a`, rank 1 on `b`, handshake over the Ethernet beside the cable.
fn ranks(a: &Guest, b: &Guest, env: &str, words: &str) -> Result<[Job; 2]> {
    let start = |guest: &Guest, rank: u32| {
        guest.spawn(&format!(
            "{env} exec plugin-host --plugin /usr/lib/libnccl-net-linkspan.so --verbose --join 10.1.0.1:9900 --rank {rank} \
             --ranks 2 {words}"
        ))
    };
    Ok([start(a, 0)?, start(b, 1)?])
}

fn ended(job: Job, patience: Duration, code: i32, says: &[&str]) -> Result<String> {
    let said = job.wait(patience)?;
    let text = format!("{}{}", said.out, said.err);
    check(said.code == code, || format!("ended with {}, not {code}:\n{text}", said.code))?;
    for word in says {
        check(text.contains(word), || format!("does not say `{word}`:\n{text}"))?;
    }
    Ok(text)
}

/// Every performance test of `lspan`, each with its data checked, and AllReduce, all of it over one tier.
fn tier(lab: &mut Lab, a: &Guest, b: &Guest, env: &str, device: &str, tier: &str) -> Result<()> {
    for guest in [a, b] {
        let status = guest.sh_for(SOON * 2, &format!("{env} lspan status 2>&1"))?;
        check(status.contains(&format!("Thunderbolt {device}")) && status.contains(tier), || {
            format!("lspan status does not tell of {device} at {tier}:\n{status}")
        })?;
    }
    perf::all(a, b, MeasuredPath { at: "10.1.0.2", env, path: "thunderbolt", device })?;
    lab.say(&format!("{tier}: {}", perf::ALL));
    // What the server before has said is not this one's word.
    b.sh("rm -f /tmp/serve.log")?;
    let mut server = b.spawn("exec lspan perf serve --open >/tmp/serve.log 2>&1")?;
    b.until("the server", SOON, "grep -q waiting /tmp/serve.log")?;
    let table = a.run(SOON * 4, &format!("{env} lspan perf compare 10.1.0.2 --duration 300ms 2>&1"))?;
    let way = if tier.contains("ring") { "cable by linkspan.ko" } else { "cable by USB4STREAM" };
    check(
        table.code == 0 && [way, "tcp over lan0"].iter().all(|way| table.out.lines().any(|line| line.starts_with(way))),
        || format!("lspan perf compare has no row for {way}, or ended with {}:\n{}", table.code, table.out),
    )?;
    server.kill();
    let _ = server.expect("nothing", Duration::from_millis(10));
    lab.say(&format!("{tier}: a row of lspan perf compare"));
    let forced = format!("{env} LINKSPAN_PATH=thunderbolt");
    for job in ranks(a, b, &forced, "--test allreduce --quick")? {
        ended(job, SOON * 5, 0, &["thunderbolt /dev/", tier])?;
    }
    lab.say(&format!("{tier}: the plugin's AllReduce, every value checked"));
    let mut jobs = ranks(a, b, &forced, "--test rounds --size 1M --rounds 100000")?;
    for job in &mut jobs {
        job.expect("round 2", SOON * 2)?;
    }
    b.sh("killall -9 plugin-host")?;
    let killed = Instant::now();
    let [left, gone] = jobs;
    ended(left, TOLD, 1, &["returned 6", "LS01"])?;
    let _ = gone.wait(SOON);
    lab.say(&format!("{tier}: a peer that is killed: told after {:.1} s", killed.elapsed().as_secs_f64()));
    Ok(())
}

/// A user who may lock less than one message, as everybody but root may by default: it comes over the rings all the same, and that it is slower is said.
fn little_locked(lab: &mut Lab, a: &Guest, b: &Guest, env: &str, device: &str) -> Result<()> {
    for guest in [a, b] {
        guest.sh(&format!(
            "chmod 666 {device} && mkdir -p /etc && echo 'user:x:1000:1000::/:/bin/sh' >>/etc/passwd && rm -f /tmp/serve.log"
        ))?;
    }
    let user = |run: &str| {
        format!("ulimit -l 4096 && export {env} LINKSPAN_PATH=thunderbolt && exec su -p user -c 'exec {run} 2>&1'")
    };
    let mut server = b.spawn(&(user("lspan perf serve --open") + " >/tmp/serve.log"))?;
    b.until("the server", SOON, "grep -q waiting /tmp/serve.log")?;
    let said = a.run(SOON * 4, &user("lspan perf bw 10.1.0.2 --size 8M --iters 4 --warmup 1 --timeout 5m"))?;
    check(said.code == 0 && [device, "ulimit -l"].iter().all(|word| said.out.contains(word)), || {
        format!(
            "with 4 MiB to lock it ended with {}:\n{}\n{}",
            said.code,
            said.out,
            b.sh("cat /tmp/serve.log").unwrap_or_default()
        )
    })?;
    server.kill();
    let _ = server.expect("nothing", Duration::from_millis(10));
    lab.say("a user who may lock 4 MiB: messages of 8 MiB, every byte checked");
    Ok(())
}

pub(crate) fn used(lab: &mut Lab) -> Result<()> {
    let cable = crate::vcable::Cable::start(lab, &["--topology", "pair"])?;
    let (mut one, mut two) = (lab.guest("a"), lab.guest("b"));
    one.ethernet(&mut two);
    for (spec, name) in [(&mut one, "a"), (&mut two, "b")] {
        spec.cables.push(cable.socket(name));
        spec.deadline = SOON * 25;
    }
    let [a, b] = lab.boot([&one, &two])?;
    for (guest, last) in [(&a, 1), (&b, 2)] {
        tb::load(guest)?;
        guest.sh(&format!("ip addr add 10.1.0.{last}/24 dev lan0 && ip link set lan0 up"))?;
        guest.sh("modprobe linkspan allow=any")?;
    }
    let up = |guest: &Guest| guest.until("the link", SOON, "grep -q up /sys/class/linkspan/linkspan0/state").map(drop);
    for guest in [&a, &b] {
        found(guest)?;
        up(guest)?;
    }
    lab.say("the cable is up beside an Ethernet");
    let env = "LINKSPAN_IFNAME==lan0";
    tier(lab, &a, &b, env, "/dev/linkspan/0", "tier 1 (ring)")?;
    little_locked(lab, &a, &b, env, "/dev/linkspan/0")?;

    let mut jobs =
        ranks(&a, &b, &format!("{env} LINKSPAN_PATH=thunderbolt"), "--test rounds --size 1M --rounds 100000")?;
    for job in &mut jobs {
        job.expect("round 2", SOON * 2)?;
    }
    cable.tell("unplug ab")?;
    for job in jobs {
        ended(job, TOLD, 1, &["returned 6", "LS01"])?;
    }
    lost(&a)?;
    lost(&b)?;
    cable.tell("replug ab")?;
    for guest in [&a, &b] {
        found(guest)?;
        up(guest)?;
        guest.calm()?;
    }
    lab.say("tier 1 (ring): unplugged in mid-run: both sides told; plugged in again: up");

    if lab.kernel.version() < (7, 2) {
        lab.skip("tier 2", "USB4STREAM is in the kernel since 7.2");
    } else {
        for guest in [&a, &b] {
            guest.sh("rmmod linkspan && modprobe thunderbolt_stream")?;
        }
        for guest in [&a, &b] {
            tb::service(guest, "stream")?;
            guest.sh(&format!("lspan link up --streams {STREAMS}"))?;
        }
        for guest in [&a, &b] {
            guest.until("stream devices", SOON, &format!("test -c /dev/tbstream{}", STREAMS - 1))?;
        }
        tier(lab, &a, &b, env, "/dev/tbstream", "tier 2 (stream)")?;
    }
    for guest in [&a, &b] {
        guest.calm()?;
    }
    super::ring::end(lab, cable, [a, b])
}
