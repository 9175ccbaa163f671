//! Our driver on a cable that loses frames, on host interfaces that lose interrupts, on paths that carry nothing, and on those that
//! go while the link comes up.

use std::time::Duration;

use super::ring::{self, DEVICE, SYS, both, done, task};
use super::tb::{self, SOON, found, lost};
use crate::error::{Error, Result, check};
use crate::guest::{Guest, Job, Spec};
use crate::lab::Lab;
use crate::vcable::Cable;

/// HopIDs of the ring pair that carries control and data, and of one that carries data only, on either side: the first that the
/// driver takes.
const CONTROL: u32 = 16;
const DATA: u32 = 17;

/// Host interfaces with two ring pairs to give.
const TWO: &str = "host a hops=3\nhost b hops=3\ncable ab a:1 b:1\n";

/// Where the driver counts.
const COUNTERS: &str = "/sys/kernel/debug/linkspan/0";

/// A counter of the driver.
fn counter(guest: &Guest, name: &str) -> Result<u64> {
    let text = guest.sh(&format!("awk '$1 == \"{name}\" {{ print $2 }}' {COUNTERS}"))?;
    text.trim().parse().map_err(|_| Error::Check(format!("{}: no counter {name}: {text}", guest.name())))
}

/// Frames that a fault has hit so far, from either host.
fn hit(cable: &Cable) -> Result<u64> {
    Ok(cable.count("a", "faulted")? + cable.count("b", "faulted")?)
}

/// `bytes` from one to the other in chunks, compared, under faults that must hit something; how often.
fn under(cable: &Cable, faults: &[String], from: &Guest, to: &Guest, words: &str) -> Result<u64> {
    let before = hit(cable)?;
    for fault in faults {
        cable.tell(fault)?;
    }
    ring::transfer(from, to, words, ["", ""])?;
    cable.tell("clear")?;
    let hits = hit(cable)? - before;
    check(hits > 0, || format!("{faults:?} hit nothing"))?;
    Ok(hits)
}

pub(crate) fn loss(lab: &mut Lab) -> Result<()> {
    let (cable, [a, b]) = shaped(lab, TWO, |spec| spec.deadline = Duration::from_secs(500))?;
    for guest in [&a, &b] {
        guest.sh("modprobe linkspan allow=any")?;
    }
    ring::up(&[&a, &b])?;
    let said = a.sh(&format!("ringtest info {DEVICE}"))?;
    check(said.contains("in=[16, 17] out=[16, 17]"), || format!("other HopIDs than this test knows: {said}"))?;
    // Programs that have nothing to do with it: they would be told if the link were restarted.
    let mut holders = [task(&a, &format!("hold {DEVICE} 200"))?, task(&b, &format!("hold {DEVICE} 201"))?];
    for holder in &mut holders {
        holder.expect("holding", SOON)?;
    }
    // What is lost at the end of a message has one frame of its pair behind it, or none: few that could stand out of place. 210 is
    // how far marks count.
    for count in [15, 1, 30, 210, 1000] {
        for behind in [1, 0] {
            let (before, bytes) = (counter(&b, "data_reordered")?, 2 * (2 + count + behind) * 4096);
            let fault = format!("drop frame from=a hop={DATA} nth=3 count={count}");
            under(&cable, &[fault], &a, &b, &format!("1 {bytes} {bytes} 0 {count}"))?;
            check(counter(&b, "data_reordered")? > before, || format!("{count} frames lost at the end: not noticed"))?;
        }
        lab.say(&format!(
            "{count} frames lost at the end of a message, with and without one behind: every byte arrives"
        ));
    }
    for count in [1, 15, 30, 1000] {
        for chunk in [16 << 20, 524_288] {
            let before = counter(&b, "data_reordered")?;
            let fault = format!("drop frame from=a hop={DATA} nth=700 count={count}");
            under(&cable, &[fault], &a, &b, &format!("1 {} {chunk} 0 {count}", 16 << 20))?;
            check(counter(&b, "data_reordered")? > before, || format!("{count} lost frames were not noticed"))?;
        }
        lab.say(&format!(
            "{count} data frames lost in a row, in one message and over many: noticed, every byte arrives"
        ));
    }
    for count in [15, 30, 1000] {
        let before = counter(&b, "data_reordered")?;
        let fault = format!("drop frame from=a hop={CONTROL} nth=100 count={count}");
        under(&cable, &[fault], &a, &b, &format!("1 {} {} 0 {count}", 8 << 20, 8 << 20))?;
        check(counter(&b, "data_reordered")? > before, || format!("{count} lost frames were not noticed"))?;
    }
    lab.say("15, 30 and 1000 frames lost in a row on the pair that carries control: noticed, every byte arrives");
    let before = counter(&b, "frames_damaged")?;
    under(&cable, &[format!("corrupt frame from=a hop={DATA} nth=100 count=7")], &a, &b, "1 4194304 1048576 0 6")?;
    check(counter(&b, "frames_damaged")? >= before + 7, || "damaged frames were not counted".to_owned())?;
    under(&cable, &[format!("duplicate frame from=a hop={DATA} nth=100 count=3")], &a, &b, "1 4194304 1048576 0 7")?;
    lab.say("data frames damaged and doubled: every byte arrives");

    for fault in ["drop", "corrupt", "duplicate"] {
        let faults = ["a", "b"].map(|host| format!("{fault} frame from={host} hop={CONTROL} p=0.05"));
        let before = hit(&cable)?;
        for line in &faults {
            cable.tell(line)?;
        }
        both((&a, &format!("ping {DEVICE} 3 60 50000")), (&b, &format!("echo {DEVICE} 3")))?;
        cable.tell("clear")?;
        check(hit(&cable)? > before, || format!("{faults:?} hit nothing"))?;
    }
    lab.say("one of twenty control frames lost, damaged, doubled, both ways: messages of all sizes, compared");

    let all = ["a", "b"]
        .map(|host| ["drop", "corrupt", "duplicate"].map(|fault| format!("{fault} frame from={host} p=0.002")));
    let hits = under(&cable, &all.concat(), &a, &b, "1 33554432 524288 0 8")?;
    let odd = under(&cable, &all.concat(), &b, &a, "1 16777216 300001 0 9")?;
    lab.say(&format!("{} frames lost, damaged or doubled at random in 48 MiB, compared", hits + odd));

    last_word(&cable, &a, &b)?;
    lab.say("what a host says last arrives damaged, and it has nothing to send again: the link stays");

    for host in ["a", "b"] {
        for (from, to) in [(&a, &b), (&b, &a)] {
            let before = cable.count(host, "interrupts_lost")?;
            cable.tell(&format!("lose-irq {host} count=40"))?;
            ring::transfer(from, to, "1 8388608 524288 0 2", ["", ""])?;
            cable.tell("clear")?;
            check(cable.count(host, "interrupts_lost")? > before, || format!("{host} lost no interrupt"))?;
        }
    }
    lab.say("forty interrupts lost on either side, as sender and as receiver: the transfer goes on");
    for guest in [&a, &b] {
        let said = guest.sh(&format!("ringtest info {DEVICE}"))?;
        check(said.contains("restarts=0") && said.contains("epoch=1 "), || format!("the link was restarted: {said}"))?;
        guest.calm()?;
    }
    cable.tell("unplug ab")?;
    for holder in holders {
        done(holder, "a program beside lost frames")?;
    }
    lost(&a)?;
    lost(&b)?;
    lab.say("no file of another program was closed by any of it");
    lab.finish([a, b])?;
    cable.finish()
}

/// Waits until no frame is sent.
fn rest(guest: &Guest) -> Result<()> {
    let frames = format!("grep _frames {COUNTERS}");
    let still = format!("n=$({frames}); sleep 1; [ \"$n\" = \"$({frames})\" ]");
    guest.until("the link to be at rest", SOON, &still).map(drop)
}

/// The link was never restarted; ends the program that was held by it.
fn unrestarted(guests: &[&Guest], mut holder: Job) -> Result<()> {
    for guest in guests {
        let said = guest.sh(&format!("ringtest info {DEVICE}"))?;
        check(said.contains("restarts=0"), || format!("{}: the link was restarted: {said}", guest.name()))?;
    }
    holder.kill();
    let _ = holder.expect("nothing", Duration::from_millis(10));
    Ok(())
}

/// The answer of b to what a program of a begins is a receipt, which is not sent again; then nothing is said for longer than the
/// 15 s after which a host that does not answer is given up.
fn last_word(cable: &Cable, a: &Guest, b: &Guest) -> Result<()> {
    rest(a)?;
    let before = counter(a, "frames_damaged")?;
    cable.tell(&format!("corrupt frame from=b hop={CONTROL} count=1"))?;
    let mut holder = task(a, &format!("hold {DEVICE} 5"))?;
    holder.expect("holding", SOON)?;
    rest(a)?;
    cable.tell("clear")?;
    check(counter(a, "frames_damaged")? == before + 1, || "nothing was damaged".to_owned())?;
    a.sh("sleep 20")?;
    unrestarted(&[a, b], holder)
}

fn shaped(lab: &mut Lab, shape: &str, change: impl Fn(&mut Spec)) -> Result<(Cable, [Guest; 2])> {
    let cable = Cable::shaped(lab, shape)?;
    let specs = ["a", "b"].map(|name| {
        let mut spec = lab.guest(name);
        spec.cables.push(cable.socket(name));
        change(&mut spec);
        spec
    });
    let guests = lab.boot(specs.each_ref())?;
    for guest in &guests {
        tb::load(guest)?;
    }
    for guest in &guests {
        found(guest)?;
    }
    Ok((cable, guests))
}

pub(crate) fn interrupts(lab: &mut Lab) -> Result<()> {
    // Credits of what is posted while the TX ring does not run are lost. On b, whose status bit stays set when a frame comes while
    // its ring is masked, no interrupt follows then: only the tick finds what comes.
    let (cable, [a, b]) = shaped(
        lab,
        "host a edge=status credits=strict\nhost b edge=silent credits=strict\ncable ab a:1 b:1\n",
        |_| {},
    )?;
    for guest in [&a, &b] {
        guest.sh("modprobe linkspan allow=any")?;
    }
    ring::up(&[&a, &b])?;
    for (from, to) in [(&a, &b), (&b, &a)] {
        ring::transfer(from, to, "1 8388608 524288 0 1", ["", ""])?;
        both((from, &format!("ping {DEVICE} 3 40 100000")), (to, &format!("echo {DEVICE} 3")))?;
    }
    for guest in [&a, &b] {
        let (all, alone) = (counter(guest, "interrupts")?, counter(guest, "frames_without_interrupt")?);
        check(alone < 4 * all, || format!("{}: {all} interrupts, and {alone} frames without one", guest.name()))?;
        lab.say(&format!("{}: {all} interrupts, {alone} frames that were found without one", guest.name()));
    }
    lab.say("credits that are lost without a TX ring; interrupts by edges of the status, on one side not repeated by unmasking: transfers and messages");
    for host in ["a", "b"] {
        cable.tell(&format!("lose-irq {host} count=1000000"))?;
    }
    both((&a, &format!("ping {DEVICE} 3 12 50000")), (&b, &format!("echo {DEVICE} 3")))?;
    cable.tell("clear")?;
    check(counter(&a, "frames_without_interrupt")? > 0, || "nothing was found without an interrupt".to_owned())?;
    lab.say("no interrupt at all: messages there and back, by the tick");
    ring::up(&[&a, &b])?;
    both((&a, &format!("ping {DEVICE} 3 20 50000")), (&b, &format!("echo {DEVICE} 3")))?;
    at_rest(&cable, &a, &b)?;
    lab.say("the first interrupt after a while lost, where no program has the link: found, and the link stays");
    ring::end(lab, cable, [a, b])
}

/// On a, whose status bit stays set when an interrupt is lost, so that no other follows, nothing runs; a program of b begins something.
fn at_rest(cable: &Cable, a: &Guest, b: &Guest) -> Result<()> {
    rest(a)?;
    let before = counter(a, "frames_without_interrupt")?;
    let lost_before = cable.count("a", "interrupts_lost")?;
    cable.tell("lose-irq a count=1")?;
    let mut holder = task(b, &format!("hold {DEVICE} 5"))?;
    holder.expect("holding", SOON)?;
    let found = format!("[ $(awk '$1 == \"frames_without_interrupt\" {{ print $2 }}' {COUNTERS}) -gt {before} ]");
    a.until("a frame that no interrupt told of", SOON, &found)?;
    check(cable.count("a", "interrupts_lost")? > lost_before, || "a lost no interrupt".to_owned())?;
    cable.tell("clear")?;
    unrestarted(&[a, b], holder)
}

/// A ring pair whose path is enabled and moves nothing, and one that carries it all.
fn left_out(lab: &mut Lab, index: u32, hop: u32) -> Result<()> {
    let (cable, [a, b]) = shaped(lab, TWO, |_| {})?;
    cable.tell(&format!("drop frame hop={hop} count=1000000"))?;
    for guest in [&a, &b] {
        guest.sh("modprobe linkspan allow=any")?;
    }
    let line = format!("dmesg | grep -q 'ring pair {index} is left out: it carries nothing'");
    a.until("a path to be given up", SOON, &format!("{line} || grep -q up {SYS}/state"))?;
    ring::up(&[&a, &b])?;
    let mut reasons = Vec::new();
    for guest in [&a, &b] {
        check(ring::pairs(guest)? == 1, || "a path that carries nothing is in use".to_owned())?;
        let said = guest.sh(&format!("ringtest info {DEVICE}"))?;
        reasons.extend(said.lines().find(|line| line.starts_with(&format!("pair {index} "))).map(str::to_owned));
    }
    let right = |line: &String| line.ends_with("carried nothing") || line.ends_with("by the other host");
    check(reasons.iter().all(right) && reasons.iter().any(|line| line.ends_with("carried nothing")), || {
        format!("reasons: {reasons:?}")
    })?;
    ring::transfer(&a, &b, "1 4194304 300001 0 1", ["", ""])?;
    both((&b, &format!("ping {DEVICE} 3 20 50000")), (&a, &format!("echo {DEVICE} 3")))?;
    lab.say(&format!(
        "pair {index} is enabled and moves nothing: left out, with its reason; messages and a transfer over the other one"
    ));
    cable.tell("clear")?;
    a.sh_for(
        SOON * 3,
        &format!("t=0; until ringtest info {DEVICE} | grep -q pairs=2; do t=$((t+1)); [ $t -lt 200 ] || exit 1; sleep 1; done"),
    )?;
    ring::up(&[&a, &b])?;
    let said = ring::transfer(&a, &b, "1 4194304 1048576 0 2", ["", ""])?;
    ring::least_copied(&a, &said, 4 << 20)?;
    lab.say("it works a minute later, and nobody uses the link: it is tried again and used");
    ring::end(lab, cable, [a, b])
}

pub(crate) fn silent(lab: &mut Lab) -> Result<()> {
    left_out(lab, 1, DATA)?;
    left_out(lab, 0, CONTROL)
}

/// The moments are those of the login; delays in milliseconds cover those in between.
pub(crate) fn remove(lab: &mut Lab) -> Result<()> {
    let (cable, _, [a, b]) = ring::joined(lab, |spec| spec.deadline = Duration::from_secs(900))?;
    let again = |guest: &Guest| guest.sh(&format!("echo 0 >{SYS}/allowed; echo 1 >{SYS}/allowed")).map(drop);
    for state in ["login", "starting", "ready"] {
        for _ in 0..3 {
            again(&a)?;
            // A state may be over before it is seen: then the link is up, which is one of the moments too.
            a.sh_for(
                SOON,
                &format!(
                    "t=0; until grep -q -e {state} -e up {SYS}/state; do t=$((t+1)); [ $t -lt 5000 ] || exit 1; done"
                ),
            )?;
            cable.tell("unplug ab")?;
            lost(&a)?;
            lost(&b)?;
            cable.tell("replug ab")?;
            found(&a)?;
            found(&b)?;
            ring::up(&[&a, &b])?;
        }
    }
    both((&a, &format!("ping {DEVICE} 1 20 50000")), (&b, &format!("echo {DEVICE} 1")))?;
    lab.say("unplugged in each state of the login, three times: up again");
    // Since 7.2 a domain that goes while a host is known leaves that host behind (lab/README.md, "What it has found").
    if lab.kernel.version() >= (7, 2) {
        lab.skip("the host interface removed during the login", "the kernel's own fault, see lab/README.md");
        return ring::end(lab, cable, [a, b]);
    }
    for ms in [0, 20, 60, 100, 140, 180, 220, 260, 300, 400, 600] {
        a.sh_for(
            SOON,
            &format!(
                "ip link set thunderbolt0 down 2>/dev/null\n\
                 dev=$(grep -l 0x0c0340 /sys/bus/pci/devices/*/class); dev=${{dev%/class}}\n\
                 echo 0 >{SYS}/allowed; until grep -q waiting {SYS}/state; do :; done; echo 1 >{SYS}/allowed\n\
                 usleep {} 2>/dev/null || sleep {}.{:03}\n\
                 echo 1 >$dev/remove; echo 1 >/sys/bus/pci/rescan",
                ms * 1000,
                ms / 1000,
                ms % 1000
            ),
        )?;
        a.sh(tb::AWAKE)?;
        found(&a)?;
        found(&b)?;
        ring::up(&[&a, &b])?;
    }
    both((&a, &format!("ping {DEVICE} 1 20 50000")), (&b, &format!("echo {DEVICE} 1")))?;
    lab.say("the host interface removed while the link came up, at eleven moments: gone at once, found and up again");
    ring::end(lab, cable, [a, b])
}
