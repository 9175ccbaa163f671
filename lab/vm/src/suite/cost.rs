//! What a MiB costs over one cable by our ring driver, by USB4STREAM and by TCP over thunderbolt_net and over the driver's own interface:
//! counts, never times.
//!
//! System calls, the bytes that they copied and pinned pages are counted by the guests' own tracing; interrupts, doorbells
//! and frames by the virtual cable. `read` and `write` copy what they return, once; thunderbolt_net and our interface copy what they send
//! once more, into frames of their own, which the interfaces count; our driver counts what it copies. Each
//! figure is the difference of a long and of a short run: what is done once, as opening, is not in it.

use super::network;
use super::ring::{self, DEVICE, SYS};
use super::stream;
use super::tb::{self, SOON};
use crate::error::{Error, Result, check};
use crate::guest::Guest;
use crate::lab::Lab;
use crate::vcable::{Cable, count};

/// MiB of the short and of the long run.
const SHORT: u64 = 4;
const LONG: u64 = 20;

/// Bytes of a message, and of a call of a stream.
const MESSAGE: u64 = 1 << 20;

/// The ring of the host interface that carries data only, where there are two pairs: 0 is the control channel's, 1 that of our
/// control frames and data.
const DATA_RING: u32 = 2;

/// Ring pairs, how programs of ours wait, and what that is called.
const OURS: [(u64, &str, &str); 3] =
    [(1, "", "ring, 1 pair"), (2, "poll", "ring, 2, polling"), (2, "", "ring, 2 pairs")];

/// The link once more, with so many ring pairs.
fn with(guests: [&Guest; 2], pairs: u64) -> Result<()> {
    for guest in guests {
        guest.sh(&format!("echo {pairs} >/sys/module/linkspan/parameters/ring_pairs"))?;
    }
    guests[0].sh(&format!(
        "echo 0 >{SYS}/allowed; until grep -q waiting {SYS}/state; do sleep 0.1; done; echo 1 >{SYS}/allowed"
    ))?;
    ring::up(&guests)?;
    let found = ring::pairs(guests[0])?;
    check(found == pairs, || format!("{found} ring pairs where {pairs} were asked for"))
}

/// What one run counted in one guest and at its host interface.
#[derive(Clone, Copy, Debug, Default)]
struct Counted {
    calls: u64,
    copied: u64,
    pins: u64,
    interrupts: u64,
    doorbells: u64,
    frames: u64,
}

impl Counted {
    fn rows(self) -> [u64; 6] {
        [self.calls, self.copied, self.pins, self.interrupts, self.doorbells, self.frames]
    }
}

/// Has the guest count for every process called ringtest.
fn prepare(guest: &Guest) -> Result<()> {
    guest
        .sh("mount -t tracefs t /sys/kernel/tracing 2>/dev/null; cd /sys/kernel/tracing || exit 1\n\
             echo 'p:cost/pin pin_user_pages_fast n=$arg2:u32' >>kprobe_events || exit 2\n\
             for hist in cost/pin:common_pid:n raw_syscalls/sys_exit:id:ret; do\n\
             rest=${hist#*:}; trigger=\"hist:keys=${rest%:*}:vals=${rest#*:} if COMM == \\\"ringtest\\\"\"\n\
             echo \"$trigger\" >events/${hist%%:*}/trigger || exit 3\ndone")
        .map(drop)
}

/// The entries of a histogram: key, how often, sum of the value.
fn entries(guest: &Guest, event: &str) -> Result<Vec<[i64; 3]>> {
    let text = guest.sh(&format!("grep hitcount: /sys/kernel/tracing/events/{event}/hist | grep '^{{' || true"))?;
    let numbers = |line: &str| {
        // A sum of negative results is shown without its sign.
        let number = |word: &str| word.parse::<i64>().ok().or_else(|| word.parse::<u64>().ok().map(u64::cast_signed));
        let found: Vec<i64> = line.split_whitespace().filter_map(number).collect();
        <[i64; 3]>::try_from(found).map_err(|_| Error::Check(format!("not an entry of a histogram: {line}")))
    };
    text.lines().map(numbers).collect()
}

/// What has been counted since the guest was prepared.
fn counted(cable: &Cable, guest: &Guest, copied_by_us: u64) -> Result<Counted> {
    let calls = entries(guest, "raw_syscalls/sys_exit")?;
    // read and write, x86-64.
    let moved: i64 = calls.iter().filter(|[id, ..]| matches!(id, 0 | 1)).map(|[_, _, bytes]| bytes).sum();
    let sent = guest.sh("cat /sys/class/net/thunderbolt0/statistics/tx_bytes /sys/class/net/linkspan0/statistics/tx_bytes 2>/dev/null || true")?;
    let sent: u64 = sent.split_whitespace().filter_map(|bytes| bytes.parse::<u64>().ok()).sum();
    let stats = cable.tell("stats")?;
    let at = |counter: &str| {
        count(&stats, guest.name(), counter)
            .ok_or_else(|| Error::Check(format!("the virtual cable counts no {counter} of {}", guest.name())))
    };
    Ok(Counted {
        calls: calls.iter().map(|[_, hits, _]| *hits as u64).sum(),
        copied: moved as u64 + sent + copied_by_us,
        pins: entries(guest, "cost/pin")?.iter().map(|[_, _, pages]| *pages as u64).sum(),
        interrupts: at("interrupts")?,
        doorbells: at("doorbells")?,
        frames: at("frames_sent")?,
    })
}

/// Bytes that our driver says it copied.
fn by_us(guest: &Guest) -> Result<u64> {
    let said = guest.sh(&format!("[ ! -e {DEVICE} ] || ringtest info {DEVICE}"))?;
    Ok(said.split_whitespace().find_map(|word| word.strip_prefix("copied=")?.parse().ok()).unwrap_or(0))
}

/// One way: what both runs cost at the sender and at the receiver, per MiB.
fn measure(cable: &Cable, guests: [&Guest; 2], run: impl Fn(u64) -> Result<()>) -> Result<[[f64; 6]; 2]> {
    let mut cost = [[0.0; 6]; 2];
    let mut last = [Counted::default(); 2];
    for (nth, mib) in [0, SHORT, LONG].into_iter().enumerate() {
        if mib > 0 {
            run(mib << 20)?;
        }
        for (side, guest) in guests.into_iter().enumerate() {
            let now = counted(cable, guest, by_us(guest)?)?;
            let rows = now.rows().into_iter().zip(last[side].rows());
            for (cell, (now, then)) in cost[side].iter_mut().zip(rows) {
                let grown = now.saturating_sub(then) as f64;
                match nth {
                    1 => *cell -= grown,
                    2 => *cell = (*cell + grown) / (LONG - SHORT) as f64,
                    _ => {}
                }
            }
            last[side] = now;
        }
    }
    Ok(cost)
}

/// Interrupts of both hosts for a burst: one message of which the frames of the pair that carries data only all wait while the
/// receiver's ring takes nothing, and then come as fast as virtual time lets them.
fn burst(cable: &Cable, [a, b]: [&Guest; 2], bytes: u64) -> Result<[u64; 2]> {
    let frames = |guest: &Guest| -> Result<u64> {
        let text = guest.sh("awk '/^tx_frames/ { print $2 }' /sys/kernel/debug/linkspan/0")?;
        text.trim().parse().map_err(|_| Error::Check(format!("no count of frames: {text}")))
    };
    let before = frames(a)?;
    cable.tell(&format!("stall b ring={DATA_RING}"))?;
    let words = format!("{DEVICE} 1 {bytes} {bytes} 0 9");
    let jobs = [ring::task(b, &format!("receive {words}"))?, ring::task(a, &format!("send {words}"))?];
    let all = before + bytes / 4096;
    let posted = format!("[ $(awk '/^tx_frames/ {{ print $2 }}' /sys/kernel/debug/linkspan/0) -ge {all} ]");
    a.until("all frames to be posted", SOON, &posted)?;
    // What the last of them brought about is over.
    std::thread::sleep(std::time::Duration::from_secs(1));
    let count = || -> Result<[u64; 2]> { Ok([cable.count("a", "interrupts")?, cable.count("b", "interrupts")?]) };
    let then = count()?;
    cable.tell(&format!("resume b ring={DATA_RING}"))?;
    for job in jobs {
        ring::done(job, "a burst")?;
    }
    let now = count()?;
    Ok([now[0] - then[0], now[1] - then[1]])
}

/// The ways, each measured, as a table; our driver's goals hold.
pub(crate) fn cost(lab: &mut Lab) -> Result<()> {
    let (cable, _, [a, b]) = ring::joined(lab, |_| {})?;
    let both = [&a, &b];
    for guest in both {
        prepare(guest)?;
    }
    lab.say("both guests count");
    let mut table = Vec::new();
    for (pairs, how, name) in OURS {
        with(both, pairs)?;
        let ours = measure(&cable, both, |bytes| {
            ring::transfer(&a, &b, &format!("1 {bytes} {MESSAGE} 0 5"), [how, how]).map(drop)
        })?;
        table.push((name, ours));
        lab.say(name);
    }
    // What a message costs beside its frames is in both.
    let [short, long] = [burst(&cable, both, MESSAGE / 2)?, burst(&cable, both, MESSAGE)?];
    let per = [0, 1].map(|side| long[side].saturating_sub(short[side]));
    lab.say(&format!(
        "a burst of 64 frames: {} interrupts at the sender, {} at the receiver (whole messages of 512 KiB: {short:?}, of 1 MiB: {long:?})",
        per[0], per[1]
    ));
    let streamed = |to: String, from: String| {
        let (a, b) = (&a, &b);
        move |bytes: u64| {
            let mut reader = b.spawn(&format!("exec ringtest read {from} {bytes} {MESSAGE} 6"))?;
            reader.expect(if from.starts_with(':') { "listening" } else { "reading" }, SOON)?;
            let said = a.run(SOON * 2, &format!("exec ringtest write {to} {bytes} {MESSAGE} 6"))?;
            check(said.code == 0, || format!("writing ended with {}: {}{}", said.code, said.out, said.err))?;
            let said = reader.wait(SOON)?;
            check(said.code == 0, || format!("reading ended with {}: {}{}", said.code, said.out, said.err))
        }
    };
    if lab.kernel.version() < (7, 2) {
        lab.skip("USB4STREAM", "it is in the kernel since 7.2");
    } else {
        for guest in both {
            guest.sh("rmmod linkspan")?;
        }
        // Properties that change again while they are read are not read any more (lab/README.md, "What it has found").
        for guest in both {
            let gone = "! grep -qx linkspan /sys/bus/thunderbolt/devices/*/key";
            guest.until("the other host's service to go", SOON, gone)?;
        }
        stream::open(&a, &b)?;
        let device = "/dev/tbstream0".to_owned();
        table.push(("USB4STREAM", measure(&cable, both, streamed(device.clone(), device))?));
        stream::close(&a, &b)?;
        lab.say("USB4STREAM");
    }
    tb::net(&a, &b)?;
    let net = measure(&cable, both, streamed("10.9.0.2:7777".to_owned(), ":7777".to_owned()))?;
    table.push(("thunderbolt_net, TCP", net));
    lab.say("thunderbolt_net, TCP");
    for guest in both {
        guest.sh(&format!(
            "ip link set thunderbolt0 down; if test -e {SYS}/mode; then echo network >{SYS}/mode; else modprobe linkspan allow=any mode=network; fi"
        ))?;
    }
    network::joined(&both)?;
    network::addresses(&a, &b, 4056)?;
    let own = measure(&cable, both, streamed(format!("{}:7778", network::THERE), ":7778".to_owned()))?;
    table.push(("linkspan0, TCP", own));
    lab.say("linkspan0, TCP");

    println!("       per MiB             side      calls   copied MiB  pages pinned  interrupts  doorbells  frames");
    for (name, sides) in &table {
        for (side, [calls, copied, pins, interrupts, doorbells, frames]) in ["sends", "receives"].iter().zip(sides) {
            println!(
                "       {name:<19} {side:<9} {calls:>5.2}   {:>10.3}  {pins:>12.1}  {interrupts:>10.2}  {doorbells:>9.1}  {frames:>6.1}",
                copied / MESSAGE as f64
            );
        }
    }
    for ((name, sides), (pairs, how, _)) in table.iter().zip(OURS) {
        for ([calls, copied, ..], shared) in sides.iter().zip([0.0, MESSAGE as f64 / pairs as f64]) {
            check(*copied < shared + 64.0, || format!("{name}: {copied} bytes copied for each MiB of whole pages"))?;
            check(*calls <= 4.0 || !how.is_empty(), || format!("{name}: {calls} system calls for each MiB"))?;
        }
    }
    for interrupts in long {
        check(interrupts <= 8, || {
            format!("{interrupts} interrupts for a message of 256 frames, half of them in a burst")
        })?;
    }
    lab.say(
        "our driver: of whole pages those of one pair are copied, at the receiver; at most one call for 256 KiB; \
         at most 8 interrupts for 256 frames of which half come in a burst",
    );
    ring::end(lab, cable, [a, b])
}
