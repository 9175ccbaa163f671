//! Our driver under load: modules that are taken away, memory that its owner unmaps, memory that is short, sleep.

use std::time::Duration;

use super::ring::{self, DEVICE, both, done, task};
use super::tb::SOON;
use crate::error::{Result, check};
use crate::guest::{Guest, Job};
use crate::lab::Lab;

/// A transfer that takes a while.
const LONG: &str = "1 67108864 1048576 0 1";

/// One under way from `a` to `b`.
pub(super) fn transfer(a: &Guest, b: &Guest) -> Result<[Job; 2]> {
    let before = ring::passed(a)?;
    let mut sender = task(a, &format!("send {DEVICE} {LONG}"))?;
    let mut receiver = task(b, &format!("receive {DEVICE} {LONG}"))?;
    sender.expect("sending", SOON)?;
    receiver.expect("receiving", SOON)?;
    ring::under_way(a, before)?;
    Ok([sender, receiver])
}

pub(super) fn works(a: &Guest, b: &Guest) -> Result<()> {
    ring::up(&[a, b])?;
    both((a, &format!("ping {DEVICE} 1 20 50000")), (b, &format!("echo {DEVICE} 1")))?;
    a.calm()?;
    b.calm()
}

pub(crate) fn load(lab: &mut Lab) -> Result<()> {
    let (cable, _, [a, b]) = ring::joined(lab, |_| {})?;
    for guest in [&a, &b] {
        let [sender, receiver] = transfer(&a, &b)?;
        let refused = guest.run(SOON, "rmmod linkspan 2>&1")?;
        check(refused.code != 0, || format!("{}: the module was removed in mid-transfer", guest.name()))?;
        let busy = refused.out.contains("Resource temporarily unavailable") || refused.out.contains("use");
        check(busy, || format!("{}: rmmod does not say why: {}", guest.name(), refused.out))?;
        done(sender, "a transfer beside rmmod")?;
        done(receiver, "a transfer beside rmmod")?;
    }
    works(&a, &b)?;
    lab.say("rmmod in mid-transfer, on the sender and on the receiver: refused, and every byte arrives");

    // Nothing is open on b any more; a has a channel open and wants to send more than credits allow.
    let mut holder = task(&a, &format!("hold {DEVICE} 1"))?;
    holder.expect("holding", SOON)?;
    b.sh("rmmod linkspan")?;
    done(holder, "a program whose peer's module went")?;
    b.sh("modprobe linkspan allow=any")?;
    works(&a, &b)?;
    lab.say("rmmod on the side where nothing is open, under a program of the other: told, and up again");

    for (from, to) in [(&a, &b), (&b, &a)] {
        both(
            (to, &format!("unmapped-receive {DEVICE} 7 4194304")),
            (from, &format!("unmapped-send {DEVICE} 7 4194304")),
        )?;
    }
    works(&a, &b)?;
    lab.say("memory unmapped by its owner after it was registered, something else mapped there: the bytes of then arrive, nothing else changes");

    let limited = done(task(&a, &format!("limit {DEVICE}"))?, "limit")?;
    lab.say(&format!("beyond the limit of locked memory: refused; {}", limited.trim()));

    // Neither stops for the other: many programs at once, of which some are killed.
    let jobs: Vec<Job> = (0..4)
        .flat_map(|n| {
            let words = format!("{} 8388608 262144 0 {n}", 10 + n);
            [task(&a, &format!("send {DEVICE} {words}")), task(&b, &format!("receive {DEVICE} {words}"))]
        })
        .collect::<Result<_>>()?;
    for job in jobs {
        done(job, "one of four transfers at once")?;
    }
    works(&a, &b)?;
    lab.say("four transfers at once, compared");

    let both_ways =
        b.spawn(&format!("while :; do ringtest receive {DEVICE} {LONG} >/dev/null 2>&1; sleep 0.2; done"))?;
    let echo = b.spawn(&format!("while :; do ringtest echo {DEVICE} 7; sleep 0.2; done"))?;
    a.sleeps(
        Duration::from_secs(150),
        &format!(
            "frames() {{ awk '/^[tr]x_frames/ {{ n += $2 }} END {{ print n }}' /sys/kernel/debug/linkspan/0; }}\n\
             before=$(frames); ringtest send {DEVICE} {LONG} >/run/sent 2>&1 & sender=$!\n\
             until [ $(frames) -gt $((before + 100)) ]; do :; done\n\
             echo devices >/sys/power/pm_test && echo mem >/sys/power/state || exit 3\n\
             wait $sender; code=$?; cat /run/sent\n\
             if [ $code != 0 ]; then grep -q -e 'Err(19)' -e LS1504 /run/sent || exit 4; fi\n\
             t=0; until grep -q '^up$' /sys/class/linkspan/linkspan0/state; do t=$((t+1)); [ $t -lt 600 ] || exit 5; sleep 0.1; done\n\
             i=0; until ringtest ping {DEVICE} 7 20 50000; do i=$((i+1)); [ $i -lt 10 ] || exit 6; sleep 1; done\n\
             before=$(frames); ringtest send {DEVICE} {LONG} || exit 7"
        ),
    )?;
    b.calm()?;
    lab.say(
        "suspended as far as devices in mid-transfer: the program is told, up again, messages and a transfer after it",
    );
    drop(echo);
    both_ways.kill();
    lab.finish([b])?;
    a.cut()?;
    cable.finish()
}
