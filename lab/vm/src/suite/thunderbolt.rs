//! The kernel's own Thunderbolt stack, unmodified, on the virtual cable.

use std::time::Duration;

use super::tb::{self, SOON, attribute, found, lost, net, service, transfer};
use crate::error::{Result, check};
use crate::guest::Guest;
use crate::lab::Lab;

/// Bytes that go each way over a stream device.
const STREAM: usize = 16 << 20;

/// Everything that one cable between two hosts can do, from discovery to the death of one.
pub(crate) fn pair(lab: &mut Lab) -> Result<()> {
    let (cable, specs, [a, b]) = tb::pair(lab, &[], |_| {})?;
    for guest in [&a, &b] {
        let speed = attribute(guest, "rx_speed")?;
        check(speed == "20.0 Gb/s", || format!("{}: receives at {speed}", guest.name()))?;
        let lanes = attribute(guest, "rx_lanes")?;
        check(lanes == "1", || format!("{}: {lanes} lanes", guest.name()))?;
    }
    let ids = [attribute(&a, "unique_id")?, attribute(&b, "unique_id")?];
    check(ids[0] != ids[1], || format!("both hosts see {}", ids[0]))?;
    lab.say("each host found the other");

    net(&a, &b)?;
    lab.say("thunderbolt_net: ping");
    transfer(&a, &b, "10.9.0.2", 16)?;
    lab.say("thunderbolt_net: 16 MiB over TCP, compared");

    streams(lab, &a, &b)?;
    dma_test(lab, &a, &b)?;
    calm(&[&a, &b])?;

    cable.tell("unplug ab")?;
    lost(&a)?;
    lost(&b)?;
    calm(&[&a, &b])?;
    lab.say("unplugged: both hosts notice");
    cable.tell("replug ab")?;
    found(&a)?;
    found(&b)?;
    net(&a, &b)?;
    calm(&[&a, &b])?;
    lab.say("plugged in again: found, ping");

    let unload = "for m in thunderbolt_dma_test thunderbolt_stream thunderbolt_net thunderbolt; do\n\
                  [ ! -e /sys/module/$m ] || rmmod $m || exit 1\ndone";
    a.sh(unload)?;
    lost(&b)?;
    tb::load(&a)?;
    found(&a)?;
    found(&b)?;
    net(&a, &b)?;
    calm(&[&a, &b])?;
    lab.say("drivers of one side removed and loaded again: ping");

    let nhi = a.sh("basename /sys/bus/pci/drivers/thunderbolt/0*")?;
    // With the interface up, 7.3.4 warns "TX ring 1 is still active" and the next packet it sends is a page fault.
    a.sh(&format!("ip link set thunderbolt0 down; echo 1 >/sys/bus/pci/devices/{}/remove", nhi.trim()))?;
    lost(&b)?;
    a.sh("echo 1 >/sys/bus/pci/rescan; for dev in /sys/bus/pci/drivers/thunderbolt/0*; do echo on >$dev/power/control; done")?;
    found(&a)?;
    found(&b)?;
    net(&a, &b)?;
    calm(&[&a, &b])?;
    lab.say("host interface removed and found again: ping");

    cable.check()?;
    b.cut()?;
    lost(&a)?;
    lab.say("one host killed: the other notices");
    let [b] = lab.boot([&specs[1]])?;
    tb::load(&b)?;
    found(&a)?;
    found(&b)?;
    net(&a, &b)?;
    lab.say("the killed host is back: ping");

    a.sleeps(
        Duration::from_secs(90),
        "echo devices >/sys/power/pm_test && echo mem >/sys/power/state &&\n\
         until test -e /sys/bus/thunderbolt/devices/0-1/unique_id; do sleep 0.1; done\n\
         until ping -c 1 -W 1 10.9.0.2; do sleep 0.1; done",
    )?;
    found(&b)?;
    b.until("a ping over the cable", SOON, "ping -c 1 -W 1 10.9.0.1 >/dev/null")?;
    lab.say("suspended as far as devices and back: ping");
    lab.finish([b])?;
    a.cut()?;
    cable.finish()
}

/// After each step, so that a complaint is told with what led to it.
fn calm(guests: &[&Guest]) -> Result<()> {
    guests.iter().try_for_each(|guest| guest.calm())
}

/// `/dev/tbstreamN` both ways, the reader first: the driver of 7.2 forgets frames that wait before a reader opens.
fn streams(lab: &mut Lab, a: &Guest, b: &Guest) -> Result<()> {
    if !lab.has("thunderbolt_stream") {
        lab.skip("stream devices", "this kernel has no USB4STREAM");
        return Ok(());
    }
    for guest in [a, b] {
        guest.sh("modprobe thunderbolt_stream")?;
    }
    for (guest, incoming, outgoing) in [(a, 9, 10), (b, 10, 9)] {
        let folder = format!("/sys/kernel/config/thunderbolt/stream/{}/lab", service(guest, "stream")?);
        // The second host may have taken them over from the first one's properties already: then writing is refused.
        guest.sh(&format!("mkdir -p {folder}"))?;
        let set = format!(
            "{{ echo {incoming} >{folder}/in_hopid; echo {outgoing} >{folder}/out_hopid; }} 2>/dev/null;\n\
             [ $(cat {folder}/in_hopid) = {incoming} ] && [ $(cat {folder}/out_hopid) = {outgoing} ]"
        );
        guest.until("the stream's HopIDs", SOON, &set)?;
        guest.until("a stream device", SOON, "test -c /dev/tbstream0")?;
        guest.sh(&format!("dd if=/dev/urandom of=/tmp/sent bs={STREAM} count=1 2>/dev/null"))?;
    }
    for (from, to) in [(a, b), (b, a)] {
        let reader = to.spawn("echo $$ >/tmp/reader; exec head -c 16777216 /dev/tbstream0 >/tmp/got")?;
        // Open when the descriptor is there: the reader is a process that has it.
        to.until("the reader", SOON, "ls -l /proc/[0-9]*/fd 2>/dev/null | grep -q tbstream0")?;
        let sent = from.sh_for(SOON, "dd if=/tmp/sent of=/dev/tbstream0 bs=64k 2>/dev/null && md5sum </tmp/sent")?;
        let ended = reader.wait(SOON)?;
        let got = to.sh("md5sum </tmp/got; rm /tmp/got")?;
        check(ended.code == 0 && sent == got, || format!("16 MiB over a stream: sent {sent}, received {got}"))?;
    }
    for guest in [a, b] {
        guest.sh("rm -f /tmp/sent; cd /sys/kernel/config/thunderbolt/stream && rmdir */lab && rmdir *")?;
    }
    lab.say("stream devices: 16 MiB each way, compared");
    Ok(())
}

/// The kernel's own test driver, one direction after the other. Asked for both at once it stops sending as soon as it has
/// received what it waits for, sent or not, and the other host may wait for ever; sending alone it has no flow control
/// and stops with the last frames unsent. So the receiver, started first, waits for fewer than its ring holds at once.
fn dma_test(lab: &mut Lab, a: &Guest, b: &Guest) -> Result<()> {
    if !lab.has("thunderbolt_dma_test") {
        lab.skip("dma_test", "this kernel has no USB4_DMA_TEST");
        return Ok(());
    }
    for guest in [a, b] {
        guest.sh("modprobe thunderbolt_dma_test")?;
    }
    for (from, to) in [(a, b), (b, a)] {
        let mut folders = Vec::new();
        for (guest, send, receive) in [(from, 1000, 0), (to, 0, 200)] {
            let folder = format!("/sys/kernel/debug/thunderbolt/{}/dma_test", service(guest, "dma_test")?);
            guest.until("dma_test's files", SOON, &format!("test -e {folder}/test"))?;
            guest
                .sh(&format!("echo {receive} >{folder}/packets_to_receive && echo {send} >{folder}/packets_to_send"))?;
            folders.push(folder);
        }
        let receiving = to.spawn(&format!("echo $$ >/tmp/pid; echo 1 >{0}/test; cat {0}/status", folders[1]))?;
        to.until("dma_test to wait", SOON, "grep -q test_store /proc/$(cat /tmp/pid)/stack")?;
        let sent = from.sh(&format!("echo 1 >{0}/test; cat {0}/status", folders[0]))?;
        let got = receiving.wait(SOON)?.out;
        check(sent.contains("result: success"), || format!("dma_test on {}:\n{sent}", from.name()))?;
        let fine = ["result: success", "packets received: 200", "CRC errors: 0", "buffer overflow errors: 0"];
        check(fine.iter().all(|line| got.contains(line)), || format!("dma_test on {}:\n{got}", to.name()))?;
    }
    for guest in [a, b] {
        guest.sh("rmmod thunderbolt_dma_test")?;
    }
    lab.say("dma_test: each way");
    Ok(())
}

/// Two lanes are bonded into one link.
pub(crate) fn bonding(lab: &mut Lab) -> Result<()> {
    let (cable, _, [a, b]) = tb::pair(lab, &["--lanes", "2"], |_| {})?;
    for guest in [&a, &b] {
        guest.until("two lanes", SOON, "grep -q 2 /sys/bus/thunderbolt/devices/0-1/rx_lanes")?;
        let lanes = attribute(guest, "tx_lanes")?;
        check(lanes == "2", || format!("{}: sends on {lanes} lanes", guest.name()))?;
    }
    lab.say("both hosts: two lanes each way");
    net(&a, &b)?;
    transfer(&b, &a, "10.9.0.1", 4)?;
    lab.say("4 MiB over both lanes, compared");
    lab.finish([a, b])?;
    cable.finish()
}

/// Every DMA goes through an IOMMU that forgets at once what the driver unmaps.
pub(crate) fn viommu(lab: &mut Lab) -> Result<()> {
    let (cable, _, [a, b]) = tb::pair(lab, &[], |spec| spec.viommu = true)?;
    for guest in [&a, &b] {
        let group = guest.sh("cat /sys/bus/pci/drivers/thunderbolt/0*/iommu_group/type")?;
        check(group.trim() == "DMA", || format!("{}: its host interface is not translated: {group}", guest.name()))?;
    }
    lab.say("each host found the other; DMA is translated");
    net(&a, &b)?;
    transfer(&a, &b, "10.9.0.2", 4)?;
    lab.say("4 MiB over TCP, compared");
    streams(lab, &a, &b)?;
    cable.check()?;
    lab.finish([a, b])?;
    cable.finish()
}

/// Router version 2 with Intel's way of interrupts and MSI: another path through the driver each.
pub(crate) fn variants(lab: &mut Lab) -> Result<()> {
    for words in [&["--router", "v2"][..], &["--irq", "intel"], &["--msi"]] {
        let (cable, _, [a, b]) = tb::pair(lab, words, |_| {})?;
        net(&a, &b)?;
        transfer(&a, &b, "10.9.0.2", 4)?;
        lab.finish([a, b])?;
        cable.finish()?;
        lab.say(&format!("{}: 4 MiB over TCP, compared", words.join(" ")));
    }
    Ok(())
}

/// Faults, one after the other over one cable, and what the kernel makes of them.
pub(crate) fn faults(lab: &mut Lab) -> Result<()> {
    let (cable, _, [a, b]) = tb::pair(lab, &[], |_| {})?;
    net(&a, &b)?;
    lab.say("up");

    cable.tell("corrupt frame from=a count=3")?;
    for _ in 0..6 {
        b.run(SOON, "ping -c 1 -W 1 10.9.0.1 >/dev/null")?;
    }
    let errors = "cat /sys/class/net/thunderbolt0/statistics/rx_crc_errors";
    let counted: u32 = b.sh(errors)?.trim().parse().unwrap_or(0);
    check(counted > 0, || "no CRC error was counted".to_owned())?;
    lab.say(&format!("corrupt frames: {counted} CRC errors counted"));
    cable.tell("clear")?;
    a.until("a ping", SOON, "ping -c 1 -W 1 10.9.0.2 >/dev/null")?;

    cable.tell("drop frame from=a nth=20 count=3")?;
    transfer(&a, &b, "10.9.0.2", 2)?;
    lab.say("frames lost in mid-transfer: TCP makes up for them");
    cable.tell("clear")?;

    cable.tell("lose-irq b count=2")?;
    transfer(&a, &b, "10.9.0.2", 1)?;
    lab.say("lost interrupts: the transfer goes on");
    cable.tell("clear")?;

    for fault in
        ["drop xdomain count=2", "duplicate control count=6", "delay reply by=200ms count=4", "corrupt reply count=1"]
    {
        cable.tell("unplug ab")?;
        lost(&a)?;
        lost(&b)?;
        cable.tell(fault)?;
        cable.tell("replug ab")?;
        found(&a)?;
        found(&b)?;
        cable.tell("clear")?;
        net(&a, &b)?;
        lab.say(&format!("{fault} during discovery: found, ping"));
    }

    cable.tell("silent b")?;
    cable.tell("unplug ab")?;
    lost(&a)?;
    cable.tell("replug ab")?;
    a.sh("sleep 3")?;
    tb::silent(&a, "ls -d /sys/bus/thunderbolt/devices/0-1.* 2>/dev/null || true")?;
    cable.tell("talk b")?;
    cable.tell("unplug ab")?;
    lost(&a)?;
    lost(&b)?;
    cable.tell("replug ab")?;
    found(&a)?;
    found(&b)?;
    net(&a, &b)?;
    lab.say("a silent host offers no service; when it speaks again: found, ping");
    lab.finish([a, b])?;
    cable.finish()
}
