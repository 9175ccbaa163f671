//! Several cables between two hosts as one link: all of them carry, any of them may go and come back.

use std::time::Duration;

use super::tb::{self, SOON};
use crate::error::{Result, check};
use crate::guest::{Guest, Job};
use crate::lab::Lab;
use crate::patience::Patience;
use crate::vcable::Cable;

/// Two machines with two host interfaces each, as small computers with a controller for each port have them.
const SHAPE: &str = "host a0 machine=a\nhost a1 machine=a\nhost b0 machine=b\nhost b1 machine=b\n\
                     cable one a0:1 b0:1\ncable two a1:1 b1:1\n";

/// The cables, with the plugs that they are in.
const CABLES: [(&str, &str); 2] = [("one", "0-1"), ("two", "1-1")];

/// What both sides run with.
const ENV: &str = "LINKSPAN_IFNAME==lan0 LINKSPAN_PATH=thunderbolt LINKSPAN_THUNDERBOLT_TIER=ring";

/// Devices of the links, by the plugs that they are in.
fn devices(guest: &Guest) -> Result<Vec<(String, u32)>> {
    let script =
        "for d in /sys/class/linkspan/linkspan*; do echo $(basename $(readlink $d/device)) ${d##*linkspan}; done";
    let said = guest.sh(script)?;
    let found: Vec<(String, u32)> = said
        .lines()
        .filter_map(|line| {
            let (service, number) = line.split_once(' ')?;
            Some((service.split_once('.')?.0.to_owned(), number.trim().parse().ok()?))
        })
        .collect();
    let all = CABLES.iter().all(|(_, plug)| found.iter().any(|(at, _)| at == plug));
    check(all && found.len() == CABLES.len(), || format!("{}: a link for each cable: {said}", guest.name()))?;
    Ok(found)
}

/// The number of the link in a plug.
fn number(links: &[(String, u32)], plug: &str) -> u32 {
    links.iter().find(|(at, _)| at == plug).map_or(0, |(_, number)| *number)
}

/// Frames that each link of a guest has sent and received, in the order of [`CABLES`].
fn frames(guest: &Guest, links: &[(String, u32)]) -> Result<Vec<u64>> {
    let numbers: Vec<String> = CABLES.iter().map(|(_, plug)| number(links, plug).to_string()).collect();
    let sums = guest.sh(&format!(
        "cd /sys/kernel/debug/linkspan; for n in {}; do awk '/^[tr]x_frames/ {{ n += $2 }} END {{ print n }}' $n; done",
        numbers.join(" ")
    ))?;
    let found: Vec<u64> = sums.lines().filter_map(|line| line.trim().parse().ok()).collect();
    check(found.len() == CABLES.len(), || format!("no counters of frames: {sums}"))?;
    Ok(found)
}

fn ups(guest: &Guest) -> Result<()> {
    let all = format!("[ $(cat /sys/class/linkspan/*/state 2>/dev/null | grep -c '^up$') = {} ]", CABLES.len());
    guest.until("a link over every cable", SOON, &all).map(drop)
}

/// Waits until all links have carried so many frames more.
fn all_carry(guest: &Guest, links: &[(String, u32)], jobs: &mut [Job; 2], what: &str) -> Result<Vec<u64>> {
    let (before, mut patience) = (frames(guest, links)?, Patience::new(SOON * 2));
    loop {
        let now = frames(guest, links)?;
        let more: Vec<u64> = now.iter().zip(&before).map(|(n, b)| n.saturating_sub(*b)).collect();
        if more.iter().all(|n| *n > 500) {
            return Ok(more);
        }
        for job in jobs.iter_mut() {
            round(job)?;
        }
        let lives = jobs.iter().all(|job| !job.is_over());
        check(lives && patience.sleep(Duration::from_millis(500)), || {
            let counters = guest.sh("grep . /sys/kernel/debug/linkspan/*").unwrap_or_default();
            let said = jobs.each_ref().map(|job| format!("{}\n{}", job.lines("rail"), job.tail()));
            format!("{what}: frames over each cable: {more:?}\n{counters}\n{}", said.join("\n"))
        })?;
    }
}

/// How many rounds a rank has finished.
fn round(job: &mut Job) -> Result<u64> {
    let line = job.latest("round ")?.unwrap_or_default();
    Ok(line.split("round ").nth(1).and_then(|rest| rest.split([' ', ':']).next()?.parse().ok()).unwrap_or(0))
}

/// Waits for rounds beyond those that are done now, each with every value checked.
fn goes_on(jobs: &mut [Job; 2]) -> Result<()> {
    for job in jobs {
        let target = round(job)? + 3;
        let mut patience = Patience::new(SOON * 2);
        while round(job)? < target {
            let waits = !job.is_over() && patience.sleep(Duration::from_millis(100));
            check(waits, || format!("it does not go on:\n{}\n{}", job.lines("rail"), job.tail()))?;
        }
    }
    Ok(())
}

pub(crate) fn stripe(lab: &mut Lab) -> Result<()> {
    let cable = Cable::shaped(lab, SHAPE)?;
    let (mut one, mut two) = (lab.guest("a"), lab.guest("b"));
    one.ethernet(&mut two);
    for spec in [&mut one, &mut two] {
        spec.cables = ["0", "1"].map(|n| cable.socket(&format!("{}{n}", spec.name))).to_vec();
        spec.deadline = SOON * 15;
    }
    let [a, b] = lab.boot([&one, &two])?;
    for (guest, last) in [(&a, 1), (&b, 2)] {
        tb::load(guest)?;
        guest.sh(&format!(
            "ip addr add 10.1.0.{last}/24 dev lan0 && ip link set lan0 up; modprobe linkspan allow=any"
        ))?;
    }
    ups(&a)?;
    ups(&b)?;
    let links = devices(&a)?;
    let status = a.sh_for(SOON, &format!("{ENV} lspan status 2>&1"))?;
    for n in 0..CABLES.len() {
        let line = format!("Thunderbolt /dev/linkspan/{n}: used at tier 1 (ring)");
        check(status.contains(&line), || format!("lspan status does not say `{line}`:\n{status}"))?;
    }
    lab.say("two cables: two links, lspan status tells of each");

    let start = |guest: &Guest, rank: u32| {
        guest.spawn(&format!(
            "{ENV} exec plugin-host --plugin /usr/lib/libnccl-net-linkspan.so --verbose --join 10.1.0.1:9900 --rank {rank} \
             --ranks 2 --test rounds --size 1M --rounds 1000000 2>&1"
        ))
    };
    let mut jobs = [start(&a, 0)?, start(&b, 1)?];
    for job in &mut jobs {
        let line = job.expect("/dev/linkspan/", SOON)?;
        for n in 0..CABLES.len() {
            check(line.contains(&format!("/dev/linkspan/{n} ")), || format!("a cable is missing: {line}"))?;
        }
        job.expect("round 2", SOON * 2)?;
    }
    let more = all_carry(&a, &links, &mut jobs, "striped")?;
    lab.say(&format!("the plugin's AllReduce over all of them, every value checked; frames over each: {more:?}"));
    for (name, plug) in CABLES {
        let before = [devices(&a)?, devices(&b)?];
        cable.tell(&format!("unplug {name}"))?;
        for ((guest, job), links) in [&a, &b].into_iter().zip(&mut jobs).zip(&before) {
            guest.until("the other end to go", SOON, &format!("test ! -e /sys/bus/thunderbolt/devices/{plug}"))?;
            job.expect(&format!("rail lost: thunderbolt /dev/linkspan/{} ", number(links, plug)), SOON)?;
        }
        goes_on(&mut jobs)?;
        cable.tell(&format!("replug {name}"))?;
        ups(&a)?;
        ups(&b)?;
        let links = devices(&a)?;
        for (job, links) in jobs.iter_mut().zip([&links, &devices(&b)?]) {
            job.expect(&format!("rail back: thunderbolt /dev/linkspan/{} ", number(links, plug)), SOON)?;
        }
        let more = all_carry(&a, &links, &mut jobs, "plugged in again")?;
        goes_on(&mut jobs)?;
        for job in &jobs {
            let said = job.lines("TCP carries on");
            check(said.is_empty(), || format!("the cables that were left should have carried on: {said}"))?;
        }
        lab.say(&format!(
            "cable {name} pulled in mid-run: the rest carries on; plugged in again: it carries too, {more:?}"
        ));
    }
    for job in &jobs {
        check(!job.is_over(), || format!("ended early:\n{}", job.tail()))?;
        job.kill();
    }
    drop(jobs);
    for guest in [&a, &b] {
        guest.until("the programs to go", SOON, "! pidof plugin-host >/dev/null")?;
        guest.calm()?;
    }
    cable.check()?;
    for (name, plug) in CABLES {
        cable.tell(&format!("unplug {name}"))?;
        for guest in [&a, &b] {
            guest.until("the other end to go", SOON, &format!("test ! -e /sys/bus/thunderbolt/devices/{plug}"))?;
        }
    }
    lab.finish([a, b])?;
    cable.finish()
}
