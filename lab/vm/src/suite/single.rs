//! linkspan.ko on a host interface with one ring pair to give: control and data share it, on both sides.

use super::ring::{self, DEVICE};
use super::tb;
use crate::error::{Result, check};
use crate::lab::Lab;
use crate::vcable::Cable;

/// One side has a ring beside that of the control channel, the other one plenty.
const SHAPE: &str = "host a hops=2\nhost b\ncable ab a:1 b:1\n";

pub(crate) fn single(lab: &mut Lab) -> Result<()> {
    let cable = Cable::shaped(lab, SHAPE)?;
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
    check(a.dmesg()?.contains("no second ring pair"), || "a does not say that it has one ring pair".to_owned())?;
    for guest in [&a, &b] {
        let said = guest.sh(&format!("ringtest info {DEVICE}"))?;
        check(said.contains("pairs=1"), || format!("{}: {said}", guest.name()))?;
    }
    lab.say("one ring pair on one side: both share theirs, and say so");
    for (from, to, words) in
        [(&a, &b, "1 4194304 1048576 0 3"), (&b, &a, "1 4194304 70001 0 4"), (&a, &b, "1 3100000 300001 0 5")]
    {
        let said = ring::transfer(from, to, words, ["", ""])?;
        let whole = words.contains("1048576");
        check(!whole || said[0].contains("copied 0"), || format!("whole pages were copied at the sender: {said:?}"))?;
    }
    ring::both(
        (&b, &format!("send {DEVICE} 1 2000000 300001 1234 6")),
        (&a, &format!("receive {DEVICE} 1 2000000 300001 77 6")),
    )?;
    ring::both((&a, &format!("ping {DEVICE} 3 40 100000")), (&b, &format!("echo {DEVICE} 3")))?;
    ring::both((&b, &format!("ping {DEVICE} 3 40 100000 poll")), (&a, &format!("echo {DEVICE} 3")))?;
    lab.say("4 MiB each way, memory that is aligned to nothing, messages of all sizes, compared");
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
