//! dma-bufs through our driver, with the kernel's udmabuf as their exporter.

use super::ring::{self, DEVICE, both, done, task};
use super::tb::{self, SOON};
use crate::error::{Error, Result, check};
use crate::guest::Guest;
use crate::lab::Lab;

/// Bytes sent while an exporter goes or a process dies: long enough for a busy machine.
const MUCH: u64 = 8 << 20;

/// dma-bufs that the kernel knows, every importer's reference counted: 0 when everybody has let go.
fn left(guest: &Guest) -> Result<u64> {
    let count = guest.sh("sed -n 's/^Total \\([0-9]*\\) objects.*/\\1/p' /sys/kernel/debug/dma_buf/bufinfo")?;
    count.trim().parse().map_err(|_| Error::Check(format!("{}: no count of dma-bufs: {count}", guest.name())))
}

fn none_left(guests: &[&Guest]) -> Result<()> {
    for guest in guests {
        guest.until(
            "every dma-buf to be let go",
            SOON,
            "grep -q '^Total 0 objects' /sys/kernel/debug/dma_buf/bufinfo",
        )?;
        check(left(guest)? == 0, || format!("{}: dma-bufs are left", guest.name()))?;
    }
    Ok(())
}

pub(crate) fn dmabuf(lab: &mut Lab) -> Result<()> {
    let (cable, _, [a, b]) = ring::joined(lab, |_| {})?;
    for guest in [&a, &b] {
        let there = guest.sh("ls /dev/udmabuf /sys/kernel/debug/dma_buf/bufinfo 2>/dev/null | wc -l")?;
        check(there.trim() == "2", || format!("{}: this kernel has no udmabuf", guest.name()))?;
    }
    // The debug kernel: udmabuf's own syncs would fill the log with complaints.
    const FILTER: &str = "/sys/kernel/debug/dma-api/driver_filter";
    let filter = |word: &str| -> Result<()> {
        [&a, &b].iter().try_for_each(|guest| guest.sh(&format!("[ ! -e {FILTER} ] || echo {word} >{FILTER}")).map(drop))
    };
    filter("thunderbolt")?;
    none_left(&[&a, &b])?;
    let said = guest_says(&a, "dmabuf-bad")?;
    lab.say(said.trim());
    for (from, to) in [(&a, &b), (&b, &a)] {
        both((to, &format!("dmabuf-receive {DEVICE} 5")), (from, &format!("dmabuf-send {DEVICE} 5")))?;
    }
    lab.say("parts of dma-bufs both ways, whole pages and parts of them: no byte beside them changes");
    let words = |chunk: u64, seed: u64| format!("4 {} {chunk} 0 {seed}", 4 << 20);
    for (from, to, seed) in [(&a, &b, 1), (&b, &a, 2)] {
        let said = ring::transfer(from, to, &words(1 << 20, seed), ["dmabuf", "dmabuf"])?;
        ring::least_copied(&a, &said, 4 << 20)?;
        ring::transfer(from, to, &words(70_001, seed), ["dmabuf", ""])?;
        ring::transfer(from, to, &words(70_001, seed), ["", "dmabuf poll"])?;
    }
    lab.say("from dma-buf to dma-buf both ways: whole pages, none copied at the sender; odd messages from and to host memory");
    for (from, to) in [(&a, &b), (&b, &a)] {
        both(
            (to, &format!("dmabuf-gone-receive {DEVICE} 6 {MUCH}")),
            (from, &format!("dmabuf-gone-send {DEVICE} 6 {MUCH}")),
        )?;
    }
    none_left(&[&a, &b])?;
    lab.say("exporters that go in mid-transfer, closed and unmapped: every byte arrives, and nothing is left of them");
    let words = format!("1 {} 1048576 0 1", 64 << 20);
    for sender_dies in [true, false] {
        let dead = if sender_dies { &a } else { &b };
        let killer = ring::kill_under_way(dead, ring::passed(dead)?)?;
        let sender = task(&a, &format!("send {DEVICE} {words} dmabuf"))?;
        let receiver = task(&b, &format!("receive {DEVICE} {words} dmabuf"))?;
        done(killer, "kill")?;
        let alive = if sender_dies { receiver } else { sender };
        let said = alive.wait(SOON)?;
        check(said.code == 1 && said.err.contains("Err(32)"), || {
            format!("the other side of a killed process should see EPIPE: {} {}{}", said.code, said.out, said.err)
        })?;
        none_left(&[&a, &b])?;
    }
    lab.say("a process killed in mid-transfer: its dma-bufs are let go");
    let before = ring::passed(&a)?;
    let mut sender = task(&a, &format!("send {DEVICE} {words} dmabuf"))?;
    let mut receiver = task(&b, &format!("receive {DEVICE} {words} dmabuf"))?;
    sender.expect("sending", SOON)?;
    receiver.expect("receiving", SOON)?;
    ring::under_way(&a, before)?;
    cable.tell("unplug ab")?;
    for job in [sender, receiver] {
        let said = job.wait(SOON)?;
        check(said.code == 1 && (said.err.contains("Err(19)") || said.err.contains("LS1504")), || {
            format!("after an unplug: {} {}{}", said.code, said.out, said.err)
        })?;
    }
    tb::lost(&a)?;
    tb::lost(&b)?;
    none_left(&[&a, &b])?;
    cable.tell("replug ab")?;
    tb::found(&a)?;
    tb::found(&b)?;
    ring::up(&[&a, &b])?;
    both((&b, &format!("dmabuf-send {DEVICE} 5")), (&a, &format!("dmabuf-receive {DEVICE} 5")))?;
    lab.say("unplugged in mid-transfer: let go; plugged in again: up");
    ring::end(lab, cable, [a, b])
}

fn guest_says(guest: &Guest, task: &str) -> Result<String> {
    done(ring::task(guest, &format!("{task} {DEVICE}"))?, task)
}
