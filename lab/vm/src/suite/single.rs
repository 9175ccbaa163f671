//! linkspan.ko on a host interface with one, two and three ring pairs to give: both sides use as many, all of them for data.

use super::ring::{self, DEVICE, number};
use super::tb;
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

/// One side has so many rings beside that of the control channel, the other one plenty.
fn with(lab: &mut Lab, pairs: u64) -> Result<()> {
    let cable = Cable::shaped(lab, &format!("host a hops={}\nhost b\ncable ab a:1 b:1\n", pairs + 1))?;
    let specs = ["a", "b"].map(|name| {
        let mut spec = lab.guest(name);
        spec.cables.push(cable.socket(name));
        spec
    });
    let [a, b] = lab.boot(specs.each_ref())?;
    for guest in [&a, &b] {
        tb::load(guest)?;
    }
    for guest in [&a, &b] {
        tb::found(guest)?;
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
        let status = guest.sh("lspan status")?;
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
