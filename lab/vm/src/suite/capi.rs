//! The C interface on our driver, with `ring-c` (bindings/c/tests/lab/ring.c) and, for C++, `ring-cpp` (tests/cpp/rings.cpp) in the
//! guests.

use super::ring::{self, DEVICE, SYS, done};
use super::tb::{self, SOON};
use crate::error::{Error, Result, check};
use crate::guest::{Guest, Job};
use crate::lab::Lab;

fn task(guest: &Guest, words: &str) -> Result<Job> {
    guest.spawn(&format!("exec ring-c {words}"))
}

fn both(first: (&Guest, &str), second: (&Guest, &str)) -> Result<[String; 2]> {
    let [one, two] = [task(first.0, first.1)?, task(second.0, second.1)?];
    // Where one fails the other is told of its end: what each says counts.
    match (done(one, first.1), done(two, second.1)) {
        (Ok(one), Ok(two)) => Ok([one, two]),
        (Err(one), Err(two)) => Err(Error::Check(format!("{one}; {two}"))),
        (Err(one), Ok(_)) | (Ok(_), Err(one)) => Err(one),
    }
}

/// What a guest says of one of the two hosts: `local` or `peer`.
fn uuid<'a>(said: &'a str, of: &str) -> Option<&'a str> {
    said.split_whitespace().find_map(|word| word.strip_prefix(of)?.strip_prefix('='))
}

pub(crate) fn capi(lab: &mut Lab) -> Result<()> {
    let (cable, _, [a, b]) = ring::joined(lab, |_| {})?;
    for guest in [&a, &b] {
        let there = guest.run(SOON, "test -x /usr/bin/ring-c && test -x /usr/bin/ring-cpp")?;
        check(there.code == 0, || {
            "the guests have no ring-c and ring-cpp: they are built where there is a compiler for C and C++".to_owned()
        })?;
    }
    let said = both((&a, &format!("info {DEVICE}")), (&b, &format!("info {DEVICE}")))?;
    let of = |n: usize, name: &str| uuid(&said[n], name).map(str::to_owned);
    let crossed = of(0, "local").is_some() && of(0, "local") == of(1, "peer") && of(0, "peer") == of(1, "local");
    check(crossed && of(0, "local") != of(0, "peer"), || format!("each should name the other: {said:?}"))?;
    lab.say("each host is named alike on both");

    lab.say(done(task(&a, &format!("wrong {DEVICE}"))?, "wrong calls")?.trim());
    for (from, to, how) in [(&a, &b, "sleep"), (&b, &a, "spin"), (&a, &b, "thread")] {
        let said = both((from, &format!("send {DEVICE} 3 {how}")), (to, &format!("receive {DEVICE} 3")))?;
        lab.say(&format!("1 MiB in pieces, the sender by {how}: {}; {}", said[0].trim(), said[1].trim()));
    }
    if a.sh("ls /dev/udmabuf 2>/dev/null || true")?.trim().is_empty() {
        lab.skip("dma-buf", "this kernel has no udmabuf");
    } else {
        both((&b, &format!("send {DEVICE} 3 dmabuf")), (&a, &format!("receive {DEVICE} 3")))?;
        lab.say("the same from a dma-buf");
    }
    let said = both((&a, &format!("swap {DEVICE} 4")), (&b, &format!("swap-back {DEVICE} 4")))?;
    lab.say(&format!("buffers that change hands, both ways: {}", said[0].trim()));
    let said = both((&a, &format!("late {DEVICE} 6")), (&b, &format!("late-back {DEVICE} 6")))?;
    lab.say(said[0].trim());
    let jobs = [&a, &b].map(|guest| {
        let part = if guest.name() == a.name() { "ping" } else { "echo" };
        guest.spawn(&format!("exec ring-cpp {DEVICE} {part}"))
    });
    for job in jobs {
        done(job?, "the program in C++")?;
    }
    lab.say("the same from C++: a ring and a swap");
    for guest in [&a, &b] {
        guest.calm()?;
    }

    let mut holder = task(&a, &format!("hold {DEVICE}"))?;
    holder.expect("holding", SOON)?;
    cable.tell("unplug ab")?;
    done(holder, "a program whose link is lost")?;
    for guest in [&a, &b] {
        tb::lost(guest)?;
        check(guest.run(SOON, &format!("test -e {SYS}"))?.code != 0, || "the link is still there".to_owned())?;
        guest.calm()?;
    }
    lab.say("unplugged: every call says that the link was lost");
    cable.check()?;
    lab.finish([a, b])?;
    cable.finish()
}
