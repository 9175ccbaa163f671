//! Our driver where memory is short: rings that are made smaller, and work that goes on.

use super::load;
use super::ring::{self, DEVICE, both, task};
use super::tb::SOON;
use crate::error::{Error, Result, check};
use crate::guest::{Guest, Job};
use crate::lab::Lab;

/// The largest rings that there are; what they need, with the frames that are copied, is some 1,200 pages.
const LARGEST: u32 = 16384;

/// Pages that are left for rings, and beside a transfer: what the guest's other programs can live on.
const LEFT: u32 = 1000;
const BESIDE: u32 = 2048;

/// Reserves are made small, so that memory can be taken nearly to its end, and what the kernel keeps for later is let go of.
const SPARE: &str = "echo 256 >/proc/sys/vm/min_free_kbytes; echo 3 >/proc/sys/vm/drop_caches";

/// Where its size is asked for.
const SIZE: &str = "/sys/module/linkspan/parameters/ring_size";

/// Where a host is allowed.
const ALLOWED: &str = "/sys/class/linkspan/linkspan0/allowed";

/// A line of what the driver tells of the link.
fn told(guest: &Guest, name: &str) -> Result<u32> {
    let number = guest.sh(&format!("awk '/^{name} / {{ print $2 }}' /sys/kernel/debug/linkspan/0"))?;
    number.trim().parse().map_err(|_| Error::Check(format!("{}: {name} is {number}", guest.name())))
}

/// Takes a guest's memory.
fn squeeze(lab: &mut Lab, guest: &Guest, left: u32) -> Result<Job> {
    guest.sh(SPARE)?;
    let mut hog = task(guest, &format!("squeeze {left}"))?;
    let said = hog.expect("squeezed: ", SOON)?;
    lab.say(&format!("{}: {}", guest.name(), said.trim()));
    Ok(hog)
}

/// Gives it back.
fn release(guest: &Guest, hog: Job) -> Result<()> {
    hog.kill();
    guest.until("memory to be there again", SOON, "! pidof ringtest >/dev/null").map(drop)
}

/// The link once more, with rings of the largest size asked for; what they have.
fn again(a: &Guest, b: &Guest) -> Result<u32> {
    a.sh(&format!("echo {LARGEST} >{SIZE}; echo 0 >{ALLOWED}; sleep 1; echo 1 >{ALLOWED}"))?;
    ring::up(&[a, b])?;
    told(a, "ring_size")
}

pub(crate) fn short(lab: &mut Lab) -> Result<()> {
    // The kernel tells with a trace whom it kills for want of memory.
    let (cable, _, [a, b]) = ring::joined(lab, |spec| spec.allowed = vec!["Call Trace:"])?;
    let hog = squeeze(lab, &a, LEFT)?;
    let size = again(&a, &b)?;
    let line = format!("no memory for rings of {LARGEST} entries: they have {size}");
    check((64..LARGEST).contains(&size) && ring::heard(&a, &line)? == 1, || {
        let there = a.sh("pidof ringtest; dmesg | tail -40; cat /proc/meminfo").unwrap_or_default();
        format!("rings of {size} entries, and no line `{line}`\n{there}")
    })?;
    both((&a, &format!("ping {DEVICE} 1 20 50000")), (&b, &format!("echo {DEVICE} 1")))?;
    lab.say(&format!(
        "rings of {LARGEST} entries are halved until they fit, to {size}, with a line in the log; they work"
    ));
    release(&a, hog)?;
    let whole = again(&a, &b)?;
    check(whole == LARGEST, || format!("with memory, rings of {LARGEST} entries have {whole}"))?;
    lab.say("with memory again: rings as they were asked for");

    let before = told(&a, "restarts")?;
    let hogs = [squeeze(lab, &a, BESIDE)?, squeeze(lab, &b, BESIDE)?];
    ring::transfer(&a, &b, "1 16777216 262144 0 5", ["", ""])?;
    let restarts = told(&a, "restarts")? - before;
    check(restarts == 0, || format!("the link was restarted {restarts} times for want of memory"))?;
    lab.say("16 MiB while memory is short on both: compared, no restart");
    for (guest, hog) in [&a, &b].into_iter().zip(hogs) {
        release(guest, hog)?;
    }
    load::works(&a, &b)?;
    lab.say("afterwards: messages, kernels calm");
    ring::end(lab, cable, [a, b])
}
