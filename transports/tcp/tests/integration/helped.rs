//! Rails whose socket a helper thread serves.

use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::common::helpers::{help, helped_rails, helped_with_raw, ran, status, threads};
use crate::common::{Model, V4, batch, buf, head, next_head, pattern, rails, until, wire};
use linkspan_net::WaitSet;
use linkspan_proto::head::HEAD_LEN;
use linkspan_stream::Options;
use linkspan_tcp::{HELPERS_MAX, Helpers};
use linkspan_transport::{Buf, Conn, Down, Head, Kind, MemSlice, Poll, Rail, Sink, StaticBuf, WaitFd};

/// Set in a process that runs one test.
const ALONE: &str = "LINKSPAN_TEST_ALONE";

/// For a test that counts threads or descriptors of its whole process: whether this process is its own. If not, runs the
/// test in one that is.
fn alone(test: &str) -> bool {
    if std::env::var_os(ALONE).is_some() {
        return true;
    }
    let mut child = Command::new(std::env::current_exe().unwrap());
    let out = child.args(["--exact", &format!("helped::{test}"), "--nocapture"]).env(ALONE, "1").output().unwrap();
    let said = String::from_utf8_lossy(&out.stdout);
    let passed = out.status.success() && said.contains("1 passed");
    assert!(passed, "{said}\n{}", String::from_utf8_lossy(&out.stderr));
    false
}

/// Waits until the thread runs for less than a hundredth of 100 ms: one that spins has more even where many want the processors.
fn wait_until_asleep(thread: u32) {
    until("the thread sleeps", || {
        let before = ran(thread);
        std::thread::sleep(Duration::from_millis(100));
        (ran(thread) - before < 1_000_000).then_some(())
    });
}

/// Waits until there are so many: a thread names itself when it begins, and is listed for a moment after it was joined.
fn wait_for_threads(count: usize) -> Vec<u32> {
    until("threads", || Some(threads()).filter(|t| t.len() == count))
}

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

fn wait(fd: WaitFd, most: Duration) -> bool {
    let mut set = WaitSet::new();
    set.add(fd);
    set.wait(Some(most)).unwrap() > 0
}

fn exchange(a: &mut impl Rail, b: &mut impl Rail) {
    let mut sink = Model::new();
    let (body, chunk) = (buf(&pattern(0, 100)), buf(&pattern(1, 70_000)));
    a.ctrl(&head(Kind::Eager, 100, 0), body.slice()).unwrap();
    let last = a.data(&head(Kind::Chunk, 70_000, 1), chunk.slice()).unwrap();
    until("two messages", || {
        a.flush().unwrap();
        b.poll(&mut sink).unwrap();
        (sink.next == 2 && a.taken() == last).then_some(())
    });
}

#[test]
fn the_thread_has_a_name_and_runs_where_it_is_told_to() {
    if !alone("the_thread_has_a_name_and_runs_where_it_is_told_to") {
        return;
    }
    let cpus: Vec<u32> = numbers(&status(std::process::id(), "Cpus_allowed_list:"));
    let cpu = *cpus.last().unwrap();
    let helpers = Helpers::new(1);
    assert_eq!(threads(), [], "none is needed yet");
    let (a, b) = rails(V4, &Options::default());
    let mut a = helpers.take(a, "eth0", &[cpu, 99_999]).map_err(|e| e.1).unwrap();
    let thread = wait_for_threads(1)[0];
    until("pinned", || (status(thread, "Cpus_allowed_list:") == cpu.to_string()).then_some(()));
    assert_eq!(status(thread, "Name:"), "linkspan-nic0");
    assert!(a.info().reason.ends_with(&format!("; helper thread linkspan-nic0 on CPUs {cpu}")), "{}", a.info().reason);
    assert_eq!(status(thread, "SigBlk:"), "fffffffe7ffbfeff", "all that can be blocked");
    let mut b = b;
    exchange(&mut a, &mut b);
    drop(a);
    // It ends with its last rail.
    wait_for_threads(0);
}

/// Numbers of a list as in `0-3,8`.
fn numbers(text: &str) -> Vec<u32> {
    let ends = text.split(',').map(|part| part.split_once('-').unwrap_or((part, part)));
    ends.flat_map(|(first, last)| first.parse().unwrap()..=last.parse::<u32>().unwrap()).collect()
}

#[test]
fn rails_share_the_threads_of_their_card() {
    if !alone("rails_share_the_threads_of_their_card") {
        return;
    }
    let helpers = Helpers::new(2);
    let mut ends = Vec::new();
    for (card, want) in [("x", 1), ("x", 2), ("x", 2), ("x", 2), ("y", 3), ("y", 4), ("y", 4)] {
        let (a, b) = rails(V4, &Options::default());
        let a = helpers.take(a, card, &[]).map_err(|e| e.1).unwrap();
        assert!(a.info().reason.contains(", not pinned"), "{}", a.info().reason);
        ends.push((a, b));
        wait_for_threads(want);
    }
    ends.iter_mut().for_each(|(a, b)| exchange(a, b));
    ends.truncate(1);
    wait_for_threads(1);
    ends.iter_mut().for_each(|(a, b)| exchange(a, b));
}

#[test]
fn no_process_has_more_than_so_many() {
    if !alone("no_process_has_more_than_so_many") {
        return;
    }
    let mut all = Vec::new();
    for n in 0..HELPERS_MAX {
        let helpers = Helpers::new(1);
        all.push(helped_rails(&helpers, V4));
        wait_for_threads(n + 1);
    }
    let (a, mut b) = rails(V4, &Options::default());
    let (mut a, why) = Helpers::new(1).take(a, "card", &[]).err().unwrap();
    assert!(why.contains("8 helper threads"), "{why}");
    exchange(&mut *a, &mut b);
    drop(all.pop());
    drop(help(&Helpers::new(1), *a));
}

#[test]
fn a_hundred_rails_leave_nothing() {
    if !alone("a_hundred_rails_leave_nothing") {
        return;
    }
    let helpers = Helpers::new(1);
    let run = |n: usize| {
        for _ in 0..n {
            let (mut a, mut b) = helped_rails(&helpers, V4);
            exchange(&mut a, &mut b);
            exchange(&mut b, &mut a);
        }
    };
    run(3);
    linkspan_stream::closing::settle(Duration::from_secs(1));
    wait_for_threads(0);
    let before = descriptors();
    run(100);
    wait_for_threads(0);
    until("as many descriptors as before", || {
        linkspan_stream::closing::sweep();
        (descriptors() <= before).then_some(())
    });
}

#[test]
fn with_nothing_to_do_everybody_sleeps_and_a_message_wakes_them() {
    if !alone("with_nothing_to_do_everybody_sleeps_and_a_message_wakes_them") {
        return;
    }
    let helpers = Helpers::new(1);
    let (mut a, mut b) = helped_rails(&helpers, V4);
    exchange(&mut a, &mut b);
    let mut sink = Model::new();
    let thread = wait_for_threads(1)[0];
    wait_until_asleep(thread);
    let fd = until("nothing to do", || {
        b.poll(&mut sink).unwrap();
        b.arm()
    });
    assert!(!wait(fd, Duration::from_millis(20)), "nothing has come");
    let body = buf(&pattern(0, 9));
    a.ctrl(&head(Kind::Eager, 9, 0), body.slice()).unwrap();
    assert_eq!(a.flush().unwrap(), Poll::Active);
    assert!(wait(fd, Duration::from_secs(10)), "the message does not wake the reader");
    until("the message", || {
        b.poll(&mut sink).unwrap();
        (sink.next == 1).then_some(())
    });
    // A waiter for its own item is woken as well.
    let fd = until("nothing to do", || {
        a.poll(&mut Model::new()).unwrap();
        a.arm()
    });
    let chunk = StaticBuf::new(1 << 20);
    let sent = a.data(&head(Kind::Chunk, 1 << 20, 1), chunk.slice()).unwrap();
    a.flush().unwrap();
    assert!(wait(fd, Duration::from_secs(10)) || a.taken() == sent);
}

/// Messages of all kinds and sizes, more of them than any ring holds.
fn many() -> (Vec<u8>, u32) {
    let mut bytes = Vec::new();
    let mut seq = 0;
    while seq < 6000 {
        if seq % 21 == 6 && seq < 5900 {
            bytes.extend(batch(seq, &[2_000, 4, if seq % 2 == 0 { 9_000 } else { 65_536 }]));
            seq += 3;
            continue;
        }
        bytes.extend(match seq % 7 {
            0 if seq % 70 == 0 => wire(Kind::Chunk, seq, 300_000 + seq as usize),
            0 => wire(Kind::Put, seq, 9_000 + seq as usize),
            1 => wire(Kind::Chunk, seq, seq as usize % 300),
            2 if seq % 5 == 0 => wire(Kind::Eager, seq, 8192),
            3 => wire(Kind::InlinePut, seq, 5),
            _ => wire(Kind::Eager, seq, seq as usize % 40),
        });
        seq += 1;
    }
    (bytes, 6000)
}

#[test]
fn a_caller_who_comes_late_gets_everything_in_order() {
    if !alone("a_caller_who_comes_late_gets_everything_in_order") {
        return;
    }
    let helpers = Helpers::new(1);
    for drain in [0, 3] {
        let (mut rail, mut raw) = helped_with_raw(&helpers);
        let (bytes, count) = many();
        let writer = std::thread::spawn(move || {
            raw.write_all(&bytes).unwrap();
            raw
        });
        // The thread fills the rings, then has to stop, and sleeps.
        wait_until_asleep(wait_for_threads(1)[0]);
        let mut sink = Model::new();
        sink.drain = drain;
        until("all messages", || {
            rail.poll(&mut sink).unwrap();
            (sink.next == count).then_some(())
        });
        drop(writer.join().unwrap());
        let end = until("the end", || rail.poll(&mut sink).err());
        assert!(matches!(&end, Down::PeerGone { why, .. } if why == "end of stream"), "{end}");
        assert!(rail.arm().is_none(), "a rail that is down does not wait");
        assert!(rail.poll(&mut sink).is_err() && rail.flush().is_ok());
    }
}

#[test]
fn a_peer_killed_inside_a_chunk_is_told_behind_what_came_before() {
    let helpers = Helpers::new(1);
    for reset in [false, true] {
        let (mut rail, mut raw) = helped_with_raw(&helpers);
        raw.write_all(&wire(Kind::Eager, 0, 77)).unwrap();
        raw.write_all(&wire(Kind::Chunk, 1, 400_000)[..150_000]).unwrap();
        let mut sink = Model::new();
        until("half a chunk", || {
            rail.poll(&mut sink).unwrap();
            sink.inside_chunk().then_some(())
        });
        // Something to answer a reset to.
        let chunk = StaticBuf::new(1 << 20);
        rail.data(&head(Kind::Chunk, 1 << 20, 0), chunk.slice()).unwrap();
        rail.flush().unwrap();
        if reset {
            socket2::SockRef::from(&raw).set_linger(Some(Duration::ZERO)).unwrap();
        }
        drop(raw);
        let end = until("the end", || rail.poll(&mut sink).err());
        assert!(matches!(end, Down::PeerGone { .. }), "{end}");
        assert_eq!(sink.next, 1);
        assert!(sink.inside_chunk());
    }
}

#[test]
fn garbage_and_broken_rules_end_the_rail() {
    let helpers = Helpers::new(1);
    let (mut rail, mut raw) = helped_with_raw(&helpers);
    raw.write_all(&[0xA5; 64]).unwrap();
    let end = until("the end", || rail.poll(&mut Model::new()).err());
    assert!(matches!(end, Down::Protocol { .. }), "{end}");

    struct Strict;
    impl Sink for Strict {
        fn ctrl(&mut self, _: &Head, _: &[u8]) -> Result<(), linkspan_transport::Violation> {
            Err(linkspan_transport::Violation("not like this".into()))
        }
        fn place(&mut self, _: &Head) -> Result<Option<MemSlice>, linkspan_transport::Violation> {
            Ok(Some(MemSlice::NONE))
        }
        fn landed(&mut self, _: &Head) -> Result<(), linkspan_transport::Violation> {
            Ok(())
        }
    }
    let (mut rail, mut raw) = helped_with_raw(&helpers);
    raw.write_all(&wire(Kind::Eager, 0, 5)).unwrap();
    let end = until("the end", || rail.poll(&mut Strict).err());
    assert!(end.to_string().contains("not like this"), "{end}");
    let (mut rail, mut raw) = helped_with_raw(&helpers);
    raw.write_all(&wire(Kind::Chunk, 0, 500)).unwrap();
    let end = until("the end", || rail.poll(&mut Strict).err());
    assert!(end.to_string().contains("a chunk of 500 bytes met a place of 0"), "{end}");
}

#[test]
fn what_was_accepted_before_the_drop_still_leaves() {
    let helpers = Helpers::new(1);
    let (mut rail, mut raw) = helped_with_raw(&helpers);
    let body = buf(&pattern(0, 40));
    rail.ctrl(&head(Kind::Eager, 40, 0), body.slice()).unwrap();
    drop(rail);
    let mut all = Vec::new();
    raw.read_to_end(&mut all).unwrap();
    let want = wire(Kind::Eager, 0, 40);
    assert!(all.len() >= 80 && want.starts_with(&all[..80]));
}

#[test]
fn after_a_look_nothing_that_had_come_is_missing() {
    let helpers = Helpers::new(1);
    let (mut rail, mut raw) = helped_with_raw(&helpers);
    let (bytes, _) = many();
    // Where each message ends, without its padding.
    let mut ends = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        let head = |at: usize| Head::decode(bytes[at..].first_chunk().unwrap()).unwrap();
        let (first, kind) = head(at);
        let mut end = at + HEAD_LEN + first.len.get() as usize;
        if kind == Kind::BatchHeads {
            for head_at in (at + HEAD_LEN..end).step_by(HEAD_LEN) {
                end += head(head_at).0.len.get() as usize;
                ends.push(end);
            }
        } else {
            ends.push(end);
        }
        at = next_head(end);
    }
    let mut sink = Model::new();
    at = 0;
    for round in 1..40 {
        let end = (at + round * 7919 % 40_000).min(bytes.len());
        raw.write_all(&bytes[at..end]).unwrap();
        at = end;
        until("the peer's kernel has it", || {
            let info = linkspan_net::tcp_info(raw.as_fd()).unwrap();
            (info.unacked == 0 && info.unsent == 0).then_some(())
        });
        rail.catch_up();
        while rail.poll(&mut sink).unwrap() == Poll::Active {
            rail.catch_up();
        }
        // The very last byte may be left for later; it never completes a message alone.
        let whole = ends.iter().filter(|&&end| end < at).count();
        assert!(sink.next as usize >= whole, "{} of {whole} messages after {at} bytes", sink.next);
    }
    assert!(sink.next > 100, "{}", sink.next);
}

/// The memory of a dropped connection belongs to its owner, whatever the peer goes on sending.
#[test]
fn nothing_is_written_after_an_abort() {
    const LEN: usize = 16 << 20;
    let helpers = Helpers::new(1);
    for round in 0..60 {
        let (a, b) = helped_rails(&helpers, V4);
        let (mut a, mut b) = (Conn::new([a], false), Conn::new([b], false));
        let (src, dst) = (StaticBuf::new(LEN), StaticBuf::new(LEN));
        assert!(src.slice().fill(0, &vec![0x11; LEN]));
        b.post_recv(&[(0, dst.slice())]).unwrap().unwrap();
        until("a grant", || {
            let _ = (a.progress(), b.progress());
            a.post_send(0, src.slice()).unwrap()
        });
        let mut first = [0];
        until("bytes under way", || {
            let _ = (a.progress(), b.progress());
            assert!(dst.slice().read(round * 10_000, &mut first));
            (first[0] == 0x11).then_some(())
        });
        b.fail(Down::PeerGone { path: "here".into(), why: "aborted".into() });
        // One byte of each page, at once: a copy of all of it would take longer than the call that may be under way.
        let pages = || -> Vec<u8> {
            let page = |n| dst.slice().sub(n * 4096, 1).unwrap().to_vec()[0];
            (0..LEN as u64 / 4096).map(page).collect()
        };
        let then = pages();
        let start = Instant::now();
        while start.elapsed() < Duration::from_millis(2) {
            let _ = a.progress();
        }
        assert!(then.contains(&0), "it was aborted too late to see anything");
        assert!(pages() == then, "bytes landed after the abort");
    }
}

/// What the thread is for: it copies, the caller does not.
#[test]
fn the_copying_is_done_by_the_thread() {
    const LEN: usize = 16 << 20;
    if !alone("the_copying_is_done_by_the_thread") {
        return;
    }
    let helpers = Helpers::new(1);
    let (a, b) = helped_rails(&helpers, V4);
    let (mut a, mut b) = (Conn::new([a], false), Conn::new([b], false));
    let (src, dst) = (StaticBuf::new(LEN), StaticBuf::new(LEN));
    let thread = wait_for_threads(1)[0];
    let own = rustix::thread::gettid().as_raw_nonzero().get() as u32;
    let before = (ran(own), ran(thread));
    for _ in 0..16 {
        let got = b.post_recv(&[(0, dst.slice())]).unwrap().unwrap();
        let mut sent = None;
        until("a message", || {
            sent = sent.or_else(|| a.post_send(0, src.slice()).unwrap());
            let busy = matches!((a.progress().unwrap(), b.progress().unwrap()), (Poll::Active, _) | (_, Poll::Active));
            let mut fds = Vec::new();
            if !busy && a.arm(&mut fds) && b.arm(&mut fds) {
                let mut set = WaitSet::new();
                for fd in &fds {
                    set.add(*fd);
                }
                set.wait(Some(Duration::from_millis(10))).unwrap();
            }
            b.test(got).unwrap()
        });
        until("its end", || {
            a.progress().unwrap();
            sent.map(|ticket| a.test(ticket).unwrap()).unwrap_or_default()
        });
    }
    let (caller, helper) = (ran(own) - before.0, ran(thread) - before.1);
    assert!(caller < helper / 2, "the caller ran for {caller} ns, its helper for {helper} ns");
}
