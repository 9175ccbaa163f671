//! Our own driver, linkspan.ko, on the virtual cable, with `ringtest` in the guests.

use std::time::Duration;

use super::network;
use super::tb::{self, SOON, found, lost};
use crate::error::{Error, Result, check};
use crate::guest::{Guest, Job, Spec};
use crate::lab::Lab;
use crate::vcable::Cable;

/// The link of a guest with one peer.
pub(super) const DEVICE: &str = "/dev/linkspan/0";

/// Where sysfs has it.
pub(super) const SYS: &str = "/sys/class/linkspan/linkspan0";

/// 16 MiB.
const MUCH: u64 = 16 << 20;

fn state(guest: &Guest, name: &str) -> Result<()> {
    let condition = format!("grep -q '^{name}$' {SYS}/state 2>/dev/null");
    guest.until(&format!("the link to be {name}"), SOON, &condition)?;
    Ok(())
}

pub(super) fn up(guests: &[&Guest]) -> Result<()> {
    guests.iter().try_for_each(|guest| state(guest, "up"))
}

fn calm(guests: &[&Guest]) -> Result<()> {
    guests.iter().try_for_each(|guest| guest.calm())
}

pub(super) fn task(guest: &Guest, words: &str) -> Result<Job> {
    guest.spawn(&format!("exec ringtest {words}"))
}

/// Runs a task in one guest; what it says.
fn alone(guest: &Guest, words: &str) -> Result<String> {
    guest.sh_for(SOON * 2, &format!("exec ringtest {words}"))
}

/// Waits for a task to succeed; what it says.
pub(super) fn done(job: Job, what: &str) -> Result<String> {
    let said = job.wait(SOON * 2)?;
    check(said.code == 0, || format!("{what} ended with {}: {}{}", said.code, said.out, said.err))?;
    Ok(said.out)
}

/// Two tasks, one in each guest, that belong together; what they say.
pub(super) fn both(first: (&Guest, &str), second: (&Guest, &str)) -> Result<[String; 2]> {
    let jobs = [task(first.0, first.1)?, task(second.0, second.1)?];
    let [one, two] = jobs;
    Ok([done(one, first.1)?, done(two, second.1)?])
}

/// `bytes` from one to the other on a channel, compared there.
pub(super) fn transfer(from: &Guest, to: &Guest, words: &str, more: [&str; 2]) -> Result<[String; 2]> {
    let send = format!("send {DEVICE} {words} {}", more[0]);
    let receive = format!("receive {DEVICE} {words} {}", more[1]);
    both((from, &send), (to, &receive))
}

/// The number behind a word of what a guest said.
pub(super) fn number(said: &str, before: &str) -> Result<u64> {
    let word = said.split(before).nth(1).and_then(|rest| rest.split(|c: char| !c.is_ascii_digit()).next());
    word.and_then(|word| word.parse().ok())
        .ok_or_else(|| Error::Check(format!("no number behind '{before}' in {said}")))
}

/// What `lspan status` says; with cables alone, which are no network interfaces, it ends with 3.
pub(super) fn status(guest: &Guest) -> Result<String> {
    guest.sh_for(SOON, "lspan status || test $? = 3")
}

/// Ring pairs in use.
pub(super) fn pairs(guest: &Guest) -> Result<u64> {
    number(&guest.sh(&format!("ringtest info {DEVICE}"))?, "pairs=")
}

/// What [`transfer`] said of whole pages: the sender copied none, the receiver those of the pair that carries control.
pub(super) fn least_copied(guest: &Guest, said: &[String; 2], bytes: u64) -> Result<()> {
    let most = bytes.div_ceil(4096).div_ceil(pairs(guest)?) * 4096;
    let (sent, received) = (number(&said[0], "copied ")?, number(&said[1], "copied ")?);
    check(sent == 0 && received <= most, || format!("whole pages were copied: {said:?}, at most {most} expected"))
}

/// Two guests with the driver, each allowed by the other.
pub(super) fn joined(lab: &mut Lab, change: impl Fn(&mut Spec)) -> Result<(Cable, [Spec; 2], [Guest; 2])> {
    let (cable, specs, guests) = tb::pair(lab, &[], |spec| {
        spec.deadline = Duration::from_secs(500);
        change(spec);
    })?;
    for guest in &guests {
        guest.sh("modprobe linkspan allow=any")?;
    }
    up(&guests.each_ref())?;
    Ok((cable, specs, guests))
}

/// Lines of the kernel's log that end so.
pub(super) fn heard(guest: &Guest, end: &str) -> Result<u64> {
    let count = guest.sh(&format!("dmesg | grep -c '{end}$' || true"))?;
    count.trim().parse().map_err(|_| Error::Check(format!("no count: {count}")))
}

/// Waits for one more than `before`.
pub(super) fn hears(guest: &Guest, end: &str, before: u64) -> Result<()> {
    guest.until(end, SOON, &format!("[ $(dmesg | grep -c '{end}$') -gt {before} ]")).map(drop)
}

/// Only hosts with the same key come up.
fn keys(lab: &mut Lab, a: &Guest, b: &Guest) -> Result<()> {
    const KEY: &str = "00112233445566778899aabbccddeeff";
    const OTHER: &str = "00112233445566778899aabbccddeefe";
    let set =
        |guest: &Guest, key: &str| guest.sh(&format!("echo {key} >/sys/module/linkspan/parameters/key")).map(drop);
    let again = |guest: &Guest| {
        guest.sh(&format!("echo 0 >{SYS}/allowed"))?;
        state(guest, "waiting")?;
        guest.sh(&format!("echo 1 >{SYS}/allowed")).map(drop)
    };
    check(set(a, "0011").is_err() && set(a, &"x".repeat(32)).is_err(), || "a key that is none was taken".to_owned())?;
    for (of_a, of_b) in [(KEY, ""), (KEY, OTHER), ("", KEY)] {
        set(a, of_a)?;
        set(b, of_b)?;
        let keeper = if of_a.is_empty() { b } else { a };
        let before = heard(keeper, "the peer does not have our key")?;
        again(keeper)?;
        hears(keeper, "the peer does not have our key", before)?;
        for guest in [a, b] {
            let state = guest.read(&format!("{SYS}/state"))?;
            // One without a key takes any answer, and waits for the other to get ready, which does not happen.
            check(state != "up" && (state != "ready" || guest.name() != keeper.name()), || {
                format!("keys {of_a:?}, {of_b:?}: {} is {state}", guest.name())
            })?;
        }
    }
    set(a, KEY)?;
    again(a)?;
    up(&[a, b])?;
    let shown = a.run(SOON, "cat /sys/module/linkspan/parameters/key")?;
    check(!shown.out.contains(KEY), || "the key can be read".to_owned())?;
    lab.say("a host without the key, or with another one, does not come up; with it, it does");
    Ok(())
}

/// Pulls the cable, then turns both off. A host that goes while the other is being shut down has the core of 6.12 let a service go
/// whose host is gone already (lab/README.md, "What it has found").
pub(super) fn end(lab: &mut Lab, cable: Cable, [a, b]: [Guest; 2]) -> Result<()> {
    cable.check()?;
    tb::apart(&cable, &a, &b)?;
    lab.finish([a, b])?;
    cable.finish()
}

/// Login, messages, transfers, and all that a program may do wrong.
pub(crate) fn pair(lab: &mut Lab) -> Result<()> {
    let (cable, _, [a, b]) = tb::pair(lab, &[], |spec| spec.deadline = Duration::from_secs(500))?;
    a.sh("modprobe linkspan")?;
    tb::silent(&a, "ls /dev/linkspan 2>/dev/null || true")?;
    b.sh("modprobe linkspan")?;
    state(&a, "waiting")?;
    state(&b, "waiting")?;
    let refused =
        a.run(SOON, &format!("ringtest send {DEVICE} 1 10 10 0 1 >/dev/null & sleep 1; kill $!; cat {SYS}/allowed"))?;
    check(refused.out.trim() == "0", || format!("allowed says {}", refused.out))?;
    a.sh(&format!("echo 1 >{SYS}/allowed"))?;
    state(&a, "login")?;
    a.sh("sleep 3")?;
    state(&a, "login")?;
    state(&b, "waiting")?;
    b.sh(&format!("cat {SYS}/peer >/sys/module/linkspan/parameters/allow"))?;
    up(&[&a, &b])?;
    calm(&[&a, &b])?;
    lab.say("unknown hosts wait until each has allowed the other");
    keys(lab, &a, &b)?;
    let said = alone(&a, &format!("info {DEVICE}"))?;
    let restarts = said.split_whitespace().find(|word| word.starts_with("restarts=")).unwrap_or("none").to_owned();
    let mode = a.sh(&format!("stat -c %a {DEVICE}"))?;
    check(mode.trim() == "660", || format!("{DEVICE} has mode {mode}"))?;

    let said = alone(&a, &format!("bad {DEVICE}"))?;
    lab.say(said.trim());
    alone(&b, &format!("inherit {DEVICE} 9"))?;
    lab.say("a child of fork() has the file: of no use to it, it does not keep it open, and waits no longer for it");
    both((&a, &format!("hole-send {DEVICE} 11 12")), (&b, &format!("hole-receive {DEVICE} 11 12")))?;
    lab.say("a channel closed behind a message that was only announced: nothing that came after it arrives");
    alone(&b, &format!("limit {DEVICE}"))?;
    lab.say("locked memory: the limit holds");
    both((&a, &format!("event {DEVICE} 5")), (&b, &format!("event {DEVICE} 5")))?;
    lab.say("eventfd and poll");
    for (from, to, more) in [(&a, &b, ""), (&b, &a, "poll")] {
        both((from, &format!("ping {DEVICE} 3 40 100000 {more}")), (to, &format!("echo {DEVICE} 3")))?;
    }
    lab.say("messages of all sizes there and back, both ways, by interrupt and by polling");
    for how in ["thread", "nap"] {
        both((&a, &format!("ping {DEVICE} 3 40 100000 {how}")), (&b, &format!("echo {DEVICE} 3")))?;
    }
    lab.say("a program that looks in its own memory only");
    for size in [4096, 100_000] {
        both((&a, &format!("swap-send {DEVICE} 3 40 {size}")), (&b, &format!("swap-receive {DEVICE} 3 40 {size}")))?;
    }
    lab.say("buffers that change hands: messages of all sizes");

    let words = |channel: u32, chunk: u64, shift: u64, seed: u64| format!("{channel} {MUCH} {chunk} {shift} {seed}");
    let (there, back) = (words(1, 1 << 20, 0, 7), words(2, 1 << 20, 0, 8));
    let jobs = [
        task(&a, &format!("send {DEVICE} {there}"))?,
        task(&b, &format!("receive {DEVICE} {there}"))?,
        task(&b, &format!("send {DEVICE} {back}"))?,
        task(&a, &format!("receive {DEVICE} {back}"))?,
    ];
    for job in jobs {
        done(job, "16 MiB both ways")?;
    }
    lab.say("16 MiB both ways at once, compared");
    let said = transfer(&a, &b, &words(1, 1 << 20, 0, 9), ["", "poll"])?;
    least_copied(&a, &said, MUCH)?;
    lab.say(&format!(
        "page-aligned: nothing copied at the sender, at the receiver what came between control frames; {}",
        said[0].lines().last().unwrap_or_default()
    ));
    transfer(&b, &a, &words(1, 70_001, 0, 10), ["", ""])?;
    let shifted = format!("send {DEVICE} {}", words(1, 300_001, 1234, 11));
    both((&b, &shifted), (&a, &format!("receive {DEVICE} {}", words(1, 300_001, 77, 11))))?;
    lab.say("memory that is aligned to nothing, differently on either side");
    if a.sh("ls /dev/udmabuf 2>/dev/null || true")?.trim().is_empty() {
        lab.skip("dma-buf", "this kernel has no udmabuf");
    } else {
        let words = |seed: u64| format!("4 {} 300001 0 {seed}", 2 << 20);
        transfer(&a, &b, &words(12), ["dmabuf", ""])?;
        transfer(&a, &b, &words(13), ["", "dmabuf"])?;
        lab.say("dma-bufs as source and as target");
    }
    calm(&[&a, &b])?;

    let mut holder = task(&a, &format!("echo {DEVICE} 9"))?;
    holder.expect("echoing", SOON)?;
    alone(&a, &format!("foreign {DEVICE} 9"))?;
    both((&b, &format!("ping {DEVICE} 9 5 5000")), (&b, "info /dev/linkspan/0"))?;
    done(holder, "the holder of a channel")?;
    lab.say("another process cannot open, close, read or write a channel");

    let said = both((&a, &format!("pour {DEVICE} 20 21 40")), (&b, &format!("slow {DEVICE} 20 21 40")))?;
    check(said[0].contains("quick channel through after"), || format!("{said:?}"))?;
    lab.say("a reader that does not read stalls its own channel only, and loses nothing");

    let [left, _] = both((&a, &format!("leave {DEVICE} 30 6")), (&b, &format!("stay {DEVICE} 30 6")))?;
    lab.say(&format!("a program closes in the midst of a message and writes its memory: {}", left.trim_end()));

    let said = alone(&a, &format!("info {DEVICE}"))?;
    check(said.contains(&restarts), || format!("the link was restarted, before: {restarts}, after: {said}"))?;
    end(lab, cable, [a, b])
}

/// Data frames that have passed a guest, either way.
pub(super) fn passed(guest: &Guest) -> Result<u64> {
    let sum = guest.sh("awk '/^[tr]x_frames/ { n += $2 } END { print n }' /sys/kernel/debug/linkspan/0")?;
    sum.trim().parse().map_err(|_| Error::Check(format!("no counters of frames: {sum}")))
}

/// A loop that ends when some frames have passed since there were `before`: a transfer is under way.
fn until_under_way(before: u64) -> String {
    let frames = "$(awk '/^[tr]x_frames/ { n += $2 } END { print n }' /sys/kernel/debug/linkspan/0)";
    format!("until [ {frames} -gt {} ]; do :; done", before + 100)
}

/// Waits until a transfer is under way, with `before` frames passed before it.
pub(super) fn under_way(guest: &Guest, before: u64) -> Result<()> {
    guest.sh_for(SOON, &until_under_way(before)).map(drop)
}

/// Kills `ringtest` as soon as its transfer is under way: told before that begins, since on a slow kernel a guest hears the next word when
/// all is over.
pub(super) fn kill_under_way(guest: &Guest, before: u64) -> Result<Job> {
    guest.spawn(&format!("{}; kill -9 $(pidof ringtest)", until_under_way(before)))
}

/// Processes, drivers, cables and hosts that go at the worst moment.
pub(crate) fn life(lab: &mut Lab) -> Result<()> {
    let (cable, specs, [a, b]) = joined(lab, |_| {})?;
    lab.say("up");
    let words = format!("1 {} 1048576 0 1", 64 << 20);
    for sender_dies in [true, false] {
        let dead = if sender_dies { &a } else { &b };
        let killer = kill_under_way(dead, passed(dead)?)?;
        let sender = task(&a, &format!("send {DEVICE} {words}"))?;
        let receiver = task(&b, &format!("receive {DEVICE} {words}"))?;
        done(killer, "kill")?;
        let alive = if sender_dies { receiver } else { sender };
        let said = alive.wait(SOON)?;
        check(said.code == 1 && said.err.contains("Err(32)"), || {
            format!("the other side of a killed process should see EPIPE: {} {}{}", said.code, said.out, said.err)
        })?;
        both((&a, &format!("ping {DEVICE} 1 20 50000")), (&b, &format!("echo {DEVICE} 1")))?;
        calm(&[&a, &b])?;
    }
    lab.say("sender or receiver killed in mid-transfer: EPIPE, and the channel works for the next");

    alone(&a, &format!("churn {DEVICE} 60"))?;
    both((&b, &format!("churn {DEVICE} 40")), (&a, &format!("churn {DEVICE} 40")))?;
    both((&a, &format!("ping {DEVICE} 101 20 50000")), (&b, &format!("echo {DEVICE} 101")))?;
    let said = alone(&a, &format!("info {DEVICE}"))?;
    check(said.contains("restarts=0") && said.contains("epoch=1 "), || format!("the link was restarted: {said}"))?;
    calm(&[&a, &b])?;
    lab.say("140 programs that go without a word, on one side and on both: the link carries on");

    let mut holders = [task(&a, &format!("hold {DEVICE} 1 thread"))?, task(&b, &format!("hold {DEVICE} 2"))?];
    for holder in &mut holders {
        holder.expect("holding", SOON)?;
    }
    let refused = a.run(SOON, "rmmod linkspan")?;
    check(refused.code != 0, || "the module was removed under an open file".to_owned())?;
    cable.tell("unplug ab")?;
    for holder in holders {
        done(holder, "a program with an open file at an unplug")?;
    }
    lost(&a)?;
    lost(&b)?;
    calm(&[&a, &b])?;
    cable.tell("replug ab")?;
    found(&a)?;
    found(&b)?;
    up(&[&a, &b])?;
    both((&a, &format!("ping {DEVICE} 1 20 50000")), (&b, &format!("echo {DEVICE} 1")))?;
    lab.say("unplugged with open files: memory revoked, every call says so; plugged in again: up");

    const LINKS: usize = 5;
    let mut opener = task(&a, &format!("reopen {DEVICE} {LINKS}"))?;
    for round in 0..LINKS {
        opener.expect(&format!("open {round}"), SOON)?;
        // Quicker, and the driver sees the last one only.
        a.sh(&format!("echo 0 >{SYS}/allowed; until grep -q waiting {SYS}/state; do :; done; echo 1 >{SYS}/allowed"))?;
    }
    done(opener, "a program that opens again while the link goes down")?;
    up(&[&a, &b])?;
    lab.say("opened again as soon as a file is dead, while the link still goes down: it waits for the next one");

    for cut_by in ["unplug", "unbind"] {
        let (service, before) = (tb::service(&a, "linkspan")?, passed(&a)?);
        let mut sender = task(&a, &format!("send {DEVICE} {words}"))?;
        let mut receiver = task(&b, &format!("receive {DEVICE} {words}"))?;
        sender.expect("sending", SOON)?;
        receiver.expect("receiving", SOON)?;
        under_way(&a, before)?;
        match cut_by {
            "unplug" => cable.tell("unplug ab").map(|_| ())?,
            _ => a.sh(&format!("echo {service} >/sys/bus/thunderbolt/drivers/linkspan/unbind")).map(|_| ())?,
        }
        for job in [sender, receiver] {
            let said = job.wait(SOON)?;
            // ENODEV, by an operation or by the next call.
            check(said.code == 1 && (said.err.contains("Err(19)") || said.err.contains("LS1504")), || {
                format!("after an {cut_by}: {} {}{}", said.code, said.out, said.err)
            })?;
        }
        calm(&[&a, &b])?;
        match cut_by {
            "unplug" => {
                cable.tell("replug ab")?;
                found(&a)?;
                found(&b)?;
            }
            _ => a.sh(&format!("echo {service} >/sys/bus/thunderbolt/drivers/linkspan/bind")).map(|_| ())?,
        }
        up(&[&a, &b])?;
        both((&b, &format!("ping {DEVICE} 1 20 50000")), (&a, &format!("echo {DEVICE} 1")))?;
        lab.say(&format!("{cut_by} in mid-transfer: both sides told; up again"));
    }

    for _ in 0..5 {
        a.sh("rmmod linkspan && modprobe linkspan allow=any")?;
        up(&[&a, &b])?;
    }
    both((&b, &format!("ping {DEVICE} 1 20 50000")), (&a, &format!("echo {DEVICE} 1")))?;
    calm(&[&a, &b])?;
    lab.say("unloaded and loaded five times beside a live peer");

    let mut holder = task(&a, &format!("hold {DEVICE} 1"))?;
    holder.expect("holding", SOON)?;
    cable.check()?;
    b.cut()?;
    done(holder, "a program whose peer host died")?;
    lost(&a)?;
    let [b] = lab.boot([&specs[1]])?;
    tb::load(&b)?;
    found(&a)?;
    found(&b)?;
    b.sh("modprobe linkspan allow=any")?;
    up(&[&a, &b])?;
    both((&a, &format!("ping {DEVICE} 1 20 50000")), (&b, &format!("echo {DEVICE} 1")))?;
    lab.say("one host killed and back: up again");

    // Its first file ends with the link; the next serves after it.
    let echo = b.spawn(&format!("while :; do ringtest echo {DEVICE} 7; sleep 0.2; done"))?;
    a.sleeps(
        Duration::from_secs(120),
        &format!(
            "set -e; ringtest hold {DEVICE} 1 & holder=$!; sleep 1\n\
             echo devices >/sys/power/pm_test; echo mem >/sys/power/state\n\
             wait $holder; until grep -q up {SYS}/state; do sleep 0.1; done\n\
             i=0; until ringtest ping {DEVICE} 7 20 50000; do i=$((i+1)); [ $i -lt 5 ]; sleep 1; done"
        ),
    )?;
    drop(echo);
    lab.say("suspended as far as devices with a file open and back: up again, messages");
    lab.finish([b])?;
    a.cut()?;
    cable.finish()
}

/// Opened and closed, loaded and unloaded, and nothing is left: kmemleak on the debug kernel, the counts of pages elsewhere.
pub(crate) fn leaks(lab: &mut Lab) -> Result<()> {
    nothing_left(lab, 1000, 100)
}

/// The same, a few times.
pub(crate) fn reload(lab: &mut Lab) -> Result<()> {
    nothing_left(lab, 200, 3)
}

fn nothing_left(lab: &mut Lab, opens: u32, cycles: u32) -> Result<()> {
    let (cable, _, [a, b]) = joined(lab, |spec| spec.deadline = Duration::from_secs(1800))?;
    a.sh_for(SOON * 8, &format!("exec ringtest open-close {DEVICE} {opens}"))?;
    both((&a, &format!("ping {DEVICE} 3 10 50000")), (&b, &format!("echo {DEVICE} 3")))?;
    lab.say(&format!("opened and closed {opens} times"));
    // Each wait is bounded and says where it was; in a cycle that lasts for a minute, what sleeps is in the kernel's log.
    let cycle = format!(
        "over() {{ echo \"$1 in cycle $i, state: $(cat {SYS}/state)\"; exit 1; }}\n\
         i=0; (while sleep 60; do now=$(dmesg | grep -c 'linkspan: cycle'); [ $now -gt ${{then:-0}} ] || echo w >/proc/sysrq-trigger\n\
         then=$now; done) >/dev/null 2>&1 & watch=$!; trap 'kill $watch' EXIT\n\
         while [ $i -lt {cycles} ]; do\n\
         echo \"linkspan: cycle $i\" >/dev/kmsg\n\
         rmmod linkspan || over rmmod\n\
         modprobe linkspan allow=any || over modprobe\n\
         if [ $((i % 10)) = 9 ]; then\n\
         t=0; until grep -q '^up$' {SYS}/state 2>/dev/null; do t=$((t+1)); [ $t -lt 600 ] || over 'not up in 60 s'; sleep 0.1; done\n\
         fi; i=$((i+1)); done 2>&1"
    );
    a.sh_for(SOON * 20, &cycle)?;
    up(&[&a, &b])?;
    both((&a, &format!("ping {DEVICE} 3 10 50000")), (&b, &format!("echo {DEVICE} 3")))?;
    lab.say(&format!("loaded and unloaded {cycles} times beside a peer"));
    // Each processor counts for itself until it is asked to tell.
    let pinned = "echo 1 >/proc/sys/vm/stat_refresh\n\
        awk '/nr_foll_pin_acquired/ { a = $2 } /nr_foll_pin_released/ { r = $2 } END { print a - r }' /proc/vmstat";
    for guest in [&a, &b] {
        let left = guest.sh(pinned)?;
        check(left.trim() == "0", || format!("{}: {} pages are still pinned", guest.name(), left.trim()))?;
    }
    lab.say("no page is left pinned");
    let leaks = "echo scan >/sys/kernel/debug/kmemleak && sleep 6 && echo scan >/sys/kernel/debug/kmemleak && \
                 cat /sys/kernel/debug/kmemleak";
    for guest in [&a, &b] {
        if guest.run(SOON, "test -e /sys/kernel/debug/kmemleak")?.code != 0 {
            lab.skip("kmemleak", "this kernel has none; the debug kernel does");
            break;
        }
        let found = guest.sh_for(SOON * 4, leaks)?;
        check(!found.contains("linkspan") && !found.contains("ls_"), || format!("{}: {found}", guest.name()))?;
        let count = found.matches("unreferenced object").count();
        lab.say(&format!("kmemleak on {}: nothing of ours among {count} objects", guest.name()));
    }
    end(lab, cable, [a, b])
}

/// Every DMA through bounce buffers, as where memory is encrypted: what is not synced when it should be, or is when it should
/// not, is seen.
pub(crate) fn bounce(lab: &mut Lab) -> Result<()> {
    let (cable, _, [a, b]) = joined(lab, |spec| spec.append = "swiotlb=force".to_owned())?;
    let used = a.sh("cat /sys/kernel/debug/swiotlb/io_tlb_used")?;
    check(used.trim().parse::<u64>().is_ok_and(|n| n > 0), || format!("no bounce buffer is in use: {used}"))?;
    lab.say("up; DMA goes through bounce buffers");
    let words = |chunk: u64, offset: u64, seed: u64| format!("1 {} {chunk} {offset} {seed}", 4 << 20);
    transfer(&a, &b, &words(1 << 20, 0, 1), ["", ""])?;
    transfer(&b, &a, &words(70_001, 0, 2), ["", ""])?;
    both(
        (&b, &format!("send {DEVICE} {}", words(300_001, 1234, 3))),
        (&a, &format!("receive {DEVICE} {}", words(300_001, 77, 3))),
    )?;
    both((&a, &format!("ping {DEVICE} 1 20 50000")), (&b, &format!("echo {DEVICE} 1")))?;
    lab.say("4 MiB each way, memory that is aligned to nothing, and messages, compared");
    for (from, to) in [(&a, &b), (&b, &a)] {
        both((to, &format!("rewrite-receive {DEVICE} 7")), (from, &format!("rewrite-send {DEVICE} 7")))?;
    }
    calm(&[&a, &b])?;
    lab.say("what a program wrote after registering is sent, and stays, also when the memory is let go");
    lab.say(done(task(&a, &format!("dmabuf-bounced {DEVICE}"))?, "dmabuf-bounced")?.trim());
    network::instead(&a, &b)?;
    lab.say("its network interface through bounce buffers: TCP both ways, compared");
    end(lab, cable, [a, b])
}

/// Every DMA through an IOMMU that forgets at once what the driver unmaps.
pub(crate) fn viommu(lab: &mut Lab) -> Result<()> {
    let (cable, _, [a, b]) = joined(lab, |spec| spec.viommu = true)?;
    lab.say("up; DMA is translated");
    let words = |chunk: u64, seed: u64| format!("1 {} {chunk} 0 {seed}", 4 << 20);
    transfer(&a, &b, &words(1 << 20, 1), ["", ""])?;
    transfer(&b, &a, &words(70_001, 2), ["", ""])?;
    both((&a, &format!("ping {DEVICE} 1 20 50000")), (&b, &format!("echo {DEVICE} 1")))?;
    lab.say("4 MiB each way and messages, compared");
    let mut holder = task(&a, &format!("hold {DEVICE} 1"))?;
    holder.expect("holding", SOON)?;
    cable.tell("unplug ab")?;
    done(holder, "a program with an open file at an unplug")?;
    cable.check()?;
    lab.say("unplugged with memory registered: no DMA outside of what is mapped");
    lost(&a)?;
    lost(&b)?;
    cable.tell("replug ab")?;
    found(&a)?;
    found(&b)?;
    network::instead(&a, &b)?;
    lab.say("its network interface, a frame mapped each time: TCP both ways, compared");
    end(lab, cable, [a, b])
}
