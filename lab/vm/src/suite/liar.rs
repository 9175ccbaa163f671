//! linkspan.ko and a host that lies: one guest, the other end in software, every wrong word that the protocol has.

use std::time::Duration;

use super::ring::{self, DEVICE, SYS};
use super::tb::{self, SOON};
use crate::error::{Error, Result, check};
use crate::guest::Guest;
use crate::lab::Lab;
use crate::vcable::Cable;

/// Words to the peer, and what the driver says of them as it restarts the link. A program holds channel 1 with a message of
/// 1 MiB that waits for a grant, and no receive.
const LIES: [(&[&str], &str); 31] = [
    (&["short"], "a control frame too short"),
    (&["skip"], "the peer does not send a lost control frame again"),
    (&["frame 4 256 0 0 0"], "a channel that there is not"),
    (&["frame 4 65535 0 0 0"], "a channel that there is not"),
    (&["frame 1 9 0 5 5"], "a message to a closed channel"),
    (&["frame 2 9 0 8192 0"], "a message to a closed channel"),
    (&["frame 1 1 0 6 5"], "a message of wrong length"),
    (&["frame 1 1 0 4294967295 5"], "a message of wrong length"),
    (&["frame 2 1 0 4064 0"], "a message of wrong length"),
    (&["frame 2 1 0 1073741825 0"], "a message of wrong length"),
    (&["frame 2 1 0 4294967295 0"], "a message of wrong length"),
    (&["frame 3 1 4294967295 0 0"], "a grant that was not asked for"),
    (&["frame 3 9 0 0 0"], "a grant that was not asked for"),
    (&["grant 4096"], "a grant beyond a page"),
    (&["grant 4294967295"], "a grant beyond a page"),
    (&["frame 4 1 17 0 0"], "too many credits"),
    (&["frame 4 1 4294967295 0 0"], "too many credits"),
    (&["frame 5 1 16 0 0"], "an open of an open channel"),
    (&["frame 5 9 4294967295 0 0"], "an open of an open channel"),
    (&["frame 6 9 0 0 0"], "a close of a closed channel"),
    (&["frame 7 1 0 0 0"], "an answer to no question"),
    (&["frame 0 1 0 0 0"], "a control frame of no known type"),
    (&["frame 15 1 0 0 0"], "a control frame of no known type"),
    (&["frame 10 1 4294967295 0 0"], "a receipt for what was not sent"),
    (&["frame 11 1 4294967295 4096 0"], "a grant of a part of nothing"),
    // One that is longer than the one before, or beside it.
    (&["grant 0", "part 0 8192", "part 0 4096", "part 0 8192"], "a grant of a part of nothing"),
    (&["grant 0", "part 4096 4096", "part 0 4096"], "a grant of a part of nothing"),
    (&["fences 1"], "more fences than a ring takes"),
    (&["fences 4294967296"], "more fences than a ring takes"),
    (&["told 1"], "a receipt for a data frame that was not sent"),
    (&["told 2147483647"], "a receipt for a data frame that was not sent"),
];

/// Data that is not what was granted: a program has a receive posted on channel 1, the peer announces two pages.
const DATA: [(&[&str], &str); 6] = [
    (&["frame 2 1 5 8192 0", "data 4095 0 0"], "a data frame of wrong length"),
    (&["frame 2 1 5 8192 0", "data 4095 1 1"], "a data frame of wrong length"),
    (&["frame 2 1 5 8192 0", "data 4096 2 0"], "data that cannot be put in order again"),
    (&["frame 2 1 5 8192 0", "data 4096 3 1"], "data that cannot be put in order again"),
    (&["frame 2 1 5 8192 0", "data 4096 0 0", "data 4096 0 0"], "data that cannot be put in order again"),
    (&["frame 2 1 5 8192 0", "data 4096 2 0", "empty 419"], "more data frames than may be under way"),
];

/// LOGINs that cannot be: what the driver must answer (docs/PROTOCOL.md), and whether it may be up with them.
const LOGINS: [(&str, u32); 8] = [
    ("version=1", 4),
    ("version=2", 4),
    ("version=4294967295", 4),
    ("session=0", 2),
    ("first=0 second=0", 2),
    ("first=7 second=4294967295", 3),
    ("first=20 second=20", 3),
    ("second=0", 0),
];

/// A key that the host in software does not have.
const KEY: &str = "00112233445566778899aabbccddeeff";

/// Seeds of random frames, and frames of each.
const SEEDS: u64 = 20;
const FRAMES: u64 = 60;

fn restarts(a: &Guest) -> Result<u64> {
    let said = a.sh(&format!("ringtest info {DEVICE}"))?;
    Ok(said.split_whitespace().find_map(|word| word.strip_prefix("restarts=")?.parse().ok()).unwrap_or(0))
}

/// Messages there and back: the link works.
fn works(a: &Guest) -> Result<()> {
    ring::up(&[a])?;
    // The link may be lost once more, by a frame that was on its way.
    a.sh_for(
        SOON,
        &format!("i=0; until ringtest ping {DEVICE} 3 8 4000; do i=$((i+1)); [ $i -lt 10 ] || exit 1; sleep 1; done"),
    )?;
    Ok(())
}

fn lie(a: &Guest, cable: &Cable, task: &str, says: &str, words: &[&str], wrong: &str) -> Result<()> {
    ring::up(&[a])?;
    let (before, heard) = (restarts(a)?, ring::heard(a, wrong)?);
    let mut job = ring::task(a, &format!("{task} {DEVICE} 1"))?;
    job.expect(says, SOON)?;
    for word in words {
        tell(cable, word)?;
        if words.len() > 1 {
            std::thread::sleep(Duration::from_millis(500));
        }
    }
    ring::hears(a, wrong, heard)?;
    ring::done(job, &format!("{task} beside `{}`", words.join(", ")))?;
    let after = restarts(a)?;
    check(after == before + 1, || format!("{} restarts after `{}`", after - before, words.join(", ")))?;
    Ok(())
}

/// A host without the key has the guest prove it to itself: the guest's nonce as its own, the guest's answer as its own.
fn mirrored(a: &Guest, cable: &Cable) -> Result<()> {
    let again = |key: &str| {
        a.sh(&format!("cd {SYS} && echo 0 >allowed && echo '{key}' >/sys/module/linkspan/parameters/key"))?;
        a.until("the link to wait", SOON, &format!("grep -q waiting {SYS}/state"))?;
        a.sh(&format!("echo 1 >{SYS}/allowed")).map(drop)
    };
    cable.tell("peer p ring mirror on")?;
    let before = ring::heard(a, "the peer does not have our key")?;
    again(KEY)?;
    ring::hears(a, "the peer does not have our key", before)?;
    let state = a.read(&format!("{SYS}/state"))?;
    check(state.trim() == "login" && cable.tell("peer p ring state")?.contains("status=Some(0)"), || {
        format!("a host that mirrors: the link is {state}")
    })?;
    cable.tell("peer p ring mirror off")?;
    again("")?;
    works(a)
}

/// The driver's counters.
const COUNTERS: &str = "/sys/kernel/debug/linkspan/0";

/// Words to the peer that may have to wait for what is on its way.
fn tell(cable: &Cable, word: &str) -> Result<()> {
    let mut said = cable.tell(&format!("peer p ring {word}"));
    for _ in 0..100 {
        if said.is_ok() {
            break;
        }
        std::thread::sleep(Duration::from_millis(50));
        said = cable.tell(&format!("peer p ring {word}"));
    }
    said.map(drop)
}

/// What a link says that restarts because of it.
const UNFINISHED: &str = "the peer does not finish what a closed file has begun";

/// Frames of the megabyte that `endure` sends.
const MEGABYTE: u64 = 256;

/// Data frames that may be under way to a peer that tells of none.
const WINDOW: u64 = 2 * 209;

/// Data frames that the driver has sent.
fn frames(a: &Guest) -> Result<u64> {
    let sent = a.sh(&format!("sed -n 's/^tx_frames //p' {COUNTERS}"))?;
    sent.trim().parse().map_err(|_| Error::Check(format!("no count: {sent}")))
}

/// Lets the message go that was announced last, and waits for so many frames of it.
fn granted(a: &Guest, cable: &Cable, count: u64) -> Result<()> {
    let all = frames(a)? + count;
    tell(cable, "grant 0")?;
    let sent = format!("[ $(sed -n 's/^tx_frames //p' {COUNTERS}) -ge {all} ]");
    a.until("the frames to be sent", SOON, &sent).map(drop)
}

/// A transfer that was granted to, or by, a program which is gone, and that the peer does not finish: what else moves on the link does
/// not hide that.
fn unfinished(a: &Guest, cable: &Cable, sends: bool) -> Result<()> {
    ring::up(&[a])?;
    let before = ring::heard(a, UNFINISHED)?;
    let (task, says, waiting) = if sends { ("endure", "enduring", "sends") } else { ("hold", "holding", "receives") };
    let mut job = ring::task(a, &format!("{task} {DEVICE} 1"))?;
    job.expect(says, SOON)?;
    if sends {
        granted(a, cable, MEGABYTE)?;
        tell(cable, &format!("told {MEGABYTE}"))?;
    } else {
        tell(cable, "frame 2 1 5 8192 0")?;
        std::thread::sleep(Duration::from_secs(1));
    }
    job.kill();
    // What is not granted would have gone with its file.
    let granted = format!("! pidof ringtest >/dev/null && grep -qx '{waiting}_waiting 1' {COUNTERS}");
    a.until("an operation without a program", SOON, &granted)?;
    // The peer has answered the end of the channel: not that is waited for.
    a.sh_for(SOON, &format!("exec ringtest ping {DEVICE} 1 3 1000"))?;
    let ping = ring::task(a, &format!("ping {DEVICE} 3 1000000 1000"))?;
    ring::hears(a, UNFINISHED, before)?;
    let said = ping.wait(SOON)?;
    check(said.code != 0, || format!("the link was not restarted under a program: {}{}", said.out, said.err))?;
    works(a)
}

/// The peer has a transfer stopped half-way, as after a loss, and never says what is missing. That it confirms data of another program
/// frame by frame does not hide that.
fn stopped(a: &Guest, cable: &Cable) -> Result<()> {
    ring::up(&[a])?;
    let before = ring::heard(a, UNFINISHED)?;
    let mut job = ring::task(a, &format!("send {DEVICE} 1 2097152 2097152 0 1"))?;
    job.expect("sending", SOON)?;
    granted(a, cable, WINDOW)?;
    tell(cable, "fences 0")?;
    tell(cable, &format!("told {WINDOW}"))?;
    job.kill();
    let mut other = ring::task(a, &format!("endure {DEVICE} 2"))?;
    other.expect("enduring", SOON)?;
    granted(a, cable, MEGABYTE)?;
    for told in 1..60 {
        tell(cable, &format!("told {}", WINDOW + told))?;
        std::thread::sleep(Duration::from_millis(500));
        if ring::heard(a, UNFINISHED)? > before {
            ring::done(other, "endure beside a transfer that was stopped")?;
            return works(a);
        }
    }
    Err(Error::Check("a transfer that the peer has stopped is kept".to_owned()))
}

/// Messages whose numbers are each earlier than another's, of which parts had to be granted again: they end in the order in which they
/// were announced.
fn numbered(a: &Guest, cable: &Cable) -> Result<()> {
    let waits = |count: u64| {
        let all = format!("grep -qx 'receives_waiting {count}' {COUNTERS}");
        a.until("receives to end", SOON, &all).map(drop)
    };
    // What the peer says of rounds is about the last one that it has heard of.
    let heard = || std::thread::sleep(Duration::from_secs(1));
    cable.tell("peer p ring new")?;
    works(a)?;
    let mut job = ring::task(a, &format!("receive {DEVICE} 1 24576 8192 0 1"))?;
    job.expect("receiving", SOON)?;
    for id in [0u32, 0x6000_0000, 0xc000_0000] {
        tell(cable, &format!("frame 2 1 {id} 8192 0"))?;
    }
    heard();
    tell(cable, "data 4096 2 0")?;
    heard();
    tell(cable, "empty 0")?;
    heard();
    // A fence for the page that each of them has posted on the second pair.
    for _ in 0..3 {
        tell(cable, "raw 1 1 64 00")?;
    }
    tell(cable, "empty 0")?;
    heard();
    waits(3)?;
    for number in 0..6 {
        tell(cable, &format!("data 4096 {number} {}", number % 2))?;
    }
    waits(0)?;
    let said = job.wait(SOON)?;
    check(said.err.contains("byte 0 of 24576 is 0x3c"), || {
        format!("not what the peer sent: {}{}", said.out, said.err)
    })?;
    works(a)
}

/// What a driver must not believe.
pub(crate) fn liar(lab: &mut Lab) -> Result<()> {
    let cable = Cable::start(lab, &["--topology", "peer"])?;
    cable.tell("peer p ring")?;
    let mut spec = lab.guest("a");
    spec.cables.push(cable.socket("a"));
    spec.deadline = Duration::from_secs(900);
    let [a] = lab.boot([&spec])?;
    tb::load(&a)?;
    tb::found(&a)?;
    a.sh("modprobe linkspan allow=any")?;
    works(&a)?;
    lab.say("a host in software: up, messages there and back");

    for (words, wrong) in LIES {
        lie(&a, &cable, "endure", "enduring", words, wrong)?;
    }
    let flood: Vec<&str> = std::iter::repeat_n("frame 1 1 0 5 5", 17).collect();
    ring::up(&[&a])?;
    let mut job = ring::task(&a, &format!("endure {DEVICE} 1"))?;
    job.expect("enduring", SOON)?;
    for word in flood {
        cable.tell(&format!("peer p ring {word}"))?;
    }
    ring::hears(&a, "a message without a credit", 0)?;
    ring::done(job, "endure")?;
    for (words, wrong) in DATA {
        lie(&a, &cable, "hold", "holding", words, wrong)?;
    }
    works(&a)?;
    a.calm()?;
    lab.say(&format!(
        "{} wrong control and data frames: each restarts the link, once, by its name",
        LIES.len() + DATA.len() + 1
    ));

    for sends in [false, true] {
        unfinished(&a, &cable, sends)?;
        a.calm()?;
    }
    stopped(&a, &cable)?;
    a.calm()?;
    lab.say("transfers of a killed program that the peer never sends, never confirms or has stopped: the link restarts though other messages go on");

    numbered(&a, &cable)?;
    a.calm()?;
    lab.say("messages with numbers that have no order, after data out of order: they end in the order of their announcements");

    for (lies, answer) in LOGINS {
        cable.tell(&format!("peer p ring next {lies}"))?;
        let wanted = format!("status=Some({answer})");
        let mut tries = 0;
        while !cable.tell("peer p ring state")?.contains(&wanted) {
            tries += 1;
            check(tries < 300, || {
                format!("a LOGIN with {lies} is not answered {answer}: {:?}", cable.tell("peer p ring state"))
            })?;
            std::thread::sleep(Duration::from_millis(100));
        }
        cable.tell("peer p ring new")?;
        works(&a)?;
    }
    a.calm()?;
    lab.say("LOGINs of another version, without a session, with HopIDs that cannot be: refused; an honest one is taken after each");

    mirrored(&a, &cable)?;
    a.calm()?;
    lab.say("a host without the key that sends our own proof back: refused");

    for seed in 1..=5 {
        cable.tell(&format!("peer p ring flood {seed} 200"))?;
        std::thread::sleep(Duration::from_millis(500));
        cable.tell("peer p ring new")?;
        works(&a)?;
    }
    a.calm()?;
    lab.say("1000 random login packets");

    for seed in 1..=SEEDS {
        ring::up(&[&a])?;
        let mut job = ring::task(&a, &format!("endure {DEVICE} 1"))?;
        job.expect("enduring", SOON)?;
        cable.tell(&format!("peer p ring fuzz {seed} {FRAMES}"))?;
        ring::done(job, &format!("endure beside random frames of seed {seed}"))?;
    }
    works(&a)?;
    a.calm()?;
    lab.say(&format!("random control frames, {SEEDS} seeds of {FRAMES}: the link restarts and works"));
    a.sh("rmmod linkspan && modprobe linkspan allow=any")?;
    works(&a)?;
    cable.check()?;
    lab.finish([a])?;
    cable.finish()
}
