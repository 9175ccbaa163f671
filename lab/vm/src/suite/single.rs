//! linkspan.ko on a host interface with one, two and three ring pairs to give: both sides use as many, all of them for data. Beside
//! thunderbolt_net where there are two, and where a path is refused.

use super::ring::{self, DEVICE, number};
use super::{network, tb};
use crate::error::{Result, check};
use crate::guest::Guest;
use crate::lab::Lab;
use crate::vcable::Cable;

/// What `ringtest info` says of a pair.
fn pair(guest: &Guest, index: u64) -> Result<String> {
    let said = guest.sh(&format!("ringtest info {DEVICE}"))?;
    let start = format!("pair {index} ");
    Ok(said.lines().find(|line| line.starts_with(&start)).unwrap_or_default().to_owned())
}

/// Data frames that a host has sent over each pair.
fn sent(guest: &Guest, pairs: u64) -> Result<Vec<u64>> {
    (0..pairs).map(|index| number(&pair(guest, index)?, " sent ")).collect()
}

pub(crate) fn single(lab: &mut Lab) -> Result<()> {
    for pairs in 1..=3 {
        with(lab, pairs)?;
    }
    Ok(())
}

/// Guests on a cable of this shape, with the drivers of the kernel, and each other found.
fn met(lab: &mut Lab, shape: &str) -> Result<(Cable, [Guest; 2])> {
    let cable = Cable::shaped(lab, shape)?;
    let specs = ["a", "b"].map(|name| {
        let mut spec = lab.guest(name);
        spec.cables.push(cable.socket(name));
        spec
    });
    let guests = lab.boot(specs.each_ref())?;
    guests.iter().try_for_each(tb::load)?;
    guests.iter().try_for_each(tb::found)?;
    Ok((cable, guests))
}

/// What a host says of a pair, to programs and in `lspan status`.
fn says(guest: &Guest, index: u64, why: &str, way_out: &str) -> Result<()> {
    let line = pair(guest, index)?;
    check(line.contains(why), || format!("{}: {line}, expected '{why}'", guest.name()))?;
    let status = ring::status(guest)?;
    check(
        status
            .lines()
            .any(|line| line.contains(&format!("ring pair {index}: ")) && line.contains(why) && line.contains(way_out)),
        || format!("lspan status says not '{why}' and '{way_out}' of ring pair {index}:\n{status}"),
    )
}

/// The link over so many pairs: messages, and as much without a copy as there.
fn over(a: &Guest, b: &Guest, pairs: u64) -> Result<()> {
    ring::up(&[a, b])?;
    for (from, to) in [(a, b), (b, a)] {
        check(ring::pairs(from)? == pairs, || format!("{}: {:?} ring pairs", from.name(), ring::pairs(from)))?;
        let said = ring::transfer(from, to, "1 4194304 1048576 0 3", ["", ""])?;
        ring::least_copied(from, &said, 4 << 20)?;
    }
    ring::both((a, &format!("ping {DEVICE} 3 20 50000")), (b, &format!("echo {DEVICE} 3")))?;
    Ok(())
}

const LEFT_NONE: &str = "the host interface has no ring pair left";
const FEWER: &str = "ring_pairs";

/// Both have no second pair. Whoever finds out first has the other one leave it out before it may have tried.
fn left_none(a: &Guest, b: &Guest) -> Result<()> {
    let first = if pair(a, 1)?.contains(LEFT_NONE) { a } else { b };
    says(first, 1, LEFT_NONE, FEWER)?;
    [a, b].iter().try_for_each(|guest| {
        let line = pair(guest, 1)?;
        check(line.contains(LEFT_NONE) || line.contains("left out by the other host"), || {
            format!("{}: {line}", guest.name())
        })
    })
}

/// Two ring pairs for two drivers: whoever comes first has what it wants, and the other one, or its user, is told.
pub(crate) fn beside(lab: &mut Lab) -> Result<()> {
    let (cable, [a, b]) = met(lab, "host a hops=3\nhost b hops=3\ncable ab a:1 b:1\n")?;
    let anew = |words: &str| {
        for guest in [&a, &b] {
            guest.sh(&format!("rmmod linkspan 2>/dev/null; modprobe linkspan allow=any {words}"))?;
        }
        Ok(())
    };
    tb::net(&a, &b)?;
    anew("")?;
    over(&a, &b, 1)?;
    left_none(&a, &b)?;
    tb::transfer(&a, &b, "10.9.0.2", 2)?;
    lab.say("thunderbolt0 up before it: one pair is left, and carries; so does thunderbolt0");

    for guest in [&a, &b] {
        guest.sh("ip link set thunderbolt0 down")?;
    }
    anew("")?;
    ring::up(&[&a, &b])?;
    for guest in [&a, &b] {
        check(ring::pairs(guest)? == 2, || format!("{}: {:?} ring pairs", guest.name(), ring::pairs(guest)))?;
        let late = guest.run(tb::SOON, "ip link set thunderbolt0 up")?;
        check(late.code != 0, || "thunderbolt0 is up without a ring pair".to_owned())?;
        says(guest, 2, LEFT_NONE, FEWER)?;
    }
    ring::both((&a, &format!("ping {DEVICE} 3 20 50000")), (&b, &format!("echo {DEVICE} 3")))?;
    lab.say(
        "it before thunderbolt0: it has both pairs, thunderbolt0 cannot be set up, and lspan status says what to do",
    );

    anew("ring_pairs=1")?;
    tb::net(&a, &b)?;
    over(&a, &b, 1)?;
    says(&a, 1, "left out by the driver's parameter ring_pairs", "")?;
    tb::transfer(&b, &a, "10.9.0.1", 2)?;
    lab.say("ring_pairs=1: one for each, in any order");

    for guest in [&a, &b] {
        guest.sh(
            "ip link set thunderbolt0 down; rmmod linkspan; modprobe linkspan allow=any mode=network ring_pairs=4",
        )?;
    }
    network::joined(&[&a, &b])?;
    network::addresses(&a, &b, 4056)?;
    let late = a.run(tb::SOON, "ip link set thunderbolt0 up")?;
    check(late.code != 0, || "thunderbolt0 is up beside an interface that has all ring pairs".to_owned())?;
    says(&a, 2, LEFT_NONE, FEWER)?;
    tb::transfer(&a, &b, network::THERE, 2)?;
    for guest in [&a, &b] {
        guest.sh("rmmod linkspan")?;
    }
    tb::net(&a, &b)?;
    for guest in [&a, &b] {
        guest.sh("modprobe linkspan allow=any mode=network ring_pairs=4")?;
    }
    network::joined(&[&a, &b])?;
    network::addresses(&a, &b, 4056)?;
    left_none(&a, &b)?;
    tb::transfer(&a, &b, network::THERE, 2)?;
    tb::transfer(&a, &b, "10.9.0.2", 2)?;
    lab.say("the same in the mode network: all, or what is left");

    for guest in [&a, &b] {
        guest.sh("ip link set thunderbolt0 down; rmmod linkspan")?;
    }
    // HopIDs of a cable begin with 8; the driver takes 16 and those behind it.
    cable.tell("refuse b hop=17")?;
    for guest in [&a, &b] {
        guest.sh("modprobe linkspan allow=any")?;
    }
    over(&a, &b, 1)?;
    says(&b, 1, "its path was refused", "")?;
    says(&a, 1, "left out by the other host", "")?;
    lab.say("a path that the router refuses: left out, with the error; the first one carries");
    ring::end(lab, cable, [a, b])
}

/// One side has so many rings beside that of the control channel, the other one plenty.
fn with(lab: &mut Lab, pairs: u64) -> Result<()> {
    let (cable, [a, b]) = met(lab, &format!("host a hops={}\nhost b\ncable ab a:1 b:1\n", pairs + 1))?;
    for guest in [&a, &b] {
        guest.sh("modprobe linkspan allow=any")?;
    }
    ring::up(&[&a, &b])?;
    for guest in [&a, &b] {
        check(ring::pairs(guest)? == pairs, || format!("{}: {:?} ring pairs", guest.name(), ring::pairs(guest)))?;
        let last = pair(guest, pairs - 1)?;
        check(last.ends_with(": up"), || format!("{}: {last}", guest.name()))?;
    }
    for (guest, why) in [(&a, "the host interface has no ring pair left"), (&b, "left out by the other host")] {
        let first = pair(guest, pairs)?;
        check(first.ends_with(why), || format!("{}: {first}, expected '{why}'", guest.name()))?;
        let status = ring::status(guest)?;
        for line in [format!("ring pair {}: up; ", pairs - 1), format!("ring pair {pairs}: ")] {
            check(status.lines().any(|said| said.contains(&line)), || {
                format!("no '{line}' in lspan status:\n{status}")
            })?;
        }
    }
    lab.say(&format!("{pairs} ring pairs on one side: both use as many, and say why not more, in lspan status too"));
    for (from, to, words) in
        [(&a, &b, "1 4194304 1048576 0 3"), (&b, &a, "1 4194304 70001 0 4"), (&a, &b, "1 3100000 300001 0 5")]
    {
        let before = sent(from, pairs)?;
        let said = ring::transfer(from, to, words, ["", ""])?;
        let frames: Vec<u64> = sent(from, pairs)?.iter().zip(before).map(|(now, then)| now - then).collect();
        let (most, least) = (frames.iter().max(), frames.iter().min());
        check(most.zip(least).is_some_and(|(most, least)| most - least <= 1), || format!("{frames:?} frames by pair"))?;
        if words.contains("1048576") {
            ring::least_copied(from, &said, 4 << 20)?;
            let copied = number(&said[1], "copied ")?;
            check(copied >= (4 << 20) / (pairs + 1), || format!("the first pair brought {copied} bytes of 4 MiB"))?;
        }
    }
    ring::both(
        (&b, &format!("send {DEVICE} 1 2000000 300001 1234 6")),
        (&a, &format!("receive {DEVICE} 1 2000000 300001 77 6")),
    )?;
    ring::both((&a, &format!("ping {DEVICE} 3 40 100000")), (&b, &format!("echo {DEVICE} 3")))?;
    ring::both((&b, &format!("ping {DEVICE} 3 40 100000 poll")), (&a, &format!("echo {DEVICE} 3")))?;
    lab.say("4 MiB each way, as many frames over each pair; memory that is aligned to nothing, messages of all sizes, compared");
    ring::both((&a, &format!("pour {DEVICE} 20 21 40")), (&b, &format!("slow {DEVICE} 20 21 40")))?;
    ring::both((&a, &format!("churn {DEVICE} 20")), (&b, &format!("churn {DEVICE} 20")))?;
    ring::both((&a, &format!("leave {DEVICE} 30 3")), (&b, &format!("stay {DEVICE} 30 3")))?;
    lab.say("a slow reader, programs that go without a word, programs that close in the midst of a message");
    let mut holder = ring::task(&a, &format!("hold {DEVICE} 1"))?;
    holder.expect("holding", tb::SOON)?;
    cable.tell("unplug ab")?;
    ring::done(holder, "a program with an open file at an unplug")?;
    tb::lost(&a)?;
    tb::lost(&b)?;
    cable.tell("replug ab")?;
    tb::found(&a)?;
    tb::found(&b)?;
    ring::up(&[&a, &b])?;
    ring::both((&a, &format!("ping {DEVICE} 1 20 50000")), (&b, &format!("echo {DEVICE} 1")))?;
    lab.say("unplugged and plugged in again: up");
    ring::end(lab, cable, [a, b])
}
