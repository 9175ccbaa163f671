//! Sends that wait for their receives are not under way: nothing that looks for silence or a dead path may take them for it.

use super::super::recovery::stuck;
use super::*;

const LARGE: usize = 100_000;

/// Two ends over loopback, and a send at the first that waits; its memory.
fn waiting(setting: (&str, &str)) -> ([Channel; 2], StaticBuf, Ticket) {
    let [mut a, b] = tcp(setting);
    let src = StaticBuf::new(LARGE);
    let send = a.post_send(1, src.slice()).unwrap().expect("accepted before its receive");
    assert_eq!((a.conn.waiting(), a.conn.moving()), (1, 0));
    ([a, b], src, send)
}

/// Receives it.
fn finish([mut a, mut b]: [Channel; 2], send: Ticket) {
    let dst = StaticBuf::new(LARGE);
    let recv = b.post_recv(&[(1, dst.slice())]).unwrap().unwrap();
    let (since, mut sent, mut got) = (Instant::now(), false, false);
    while !sent || !got {
        assert!(since.elapsed() < LONG);
        sent = sent || a.test_sent(send).unwrap().is_some();
        b.progress().unwrap();
        got = got || b.test(recv).unwrap().is_some();
    }
}

#[test]
fn a_send_that_waits_is_no_silence() {
    let (mut ends, _src, send) = waiting(("LINKSPAN_STALL_MS", "1000"));
    let [a, _] = &mut ends;
    a.last_active = Instant::now().checked_sub(Duration::from_secs(3)).unwrap();
    a.last_tick = a.last_active;
    a.after_sleep();
    assert_eq!(a.lost(), None);
    assert!(a.last_active.elapsed() < Duration::from_secs(1));
    finish(ends, send);
}

#[test]
fn a_send_that_waits_shortens_no_sleep() {
    let (ends, _src, send) = waiting(("LINKSPAN_STALL_MS", "1000"));
    assert_eq!(ends[0].patience(), SLEEP);
    finish(ends, send);
    let [_, mut b] = tcp(("LINKSPAN_STALL_MS", "1000"));
    let dst = StaticBuf::new(8);
    b.post_recv(&[(1, dst.slice())]).unwrap().unwrap();
    assert_eq!(b.patience(), TICK, "a receive is under way");
}

/// A way around is looked for after a second where something is under way, and after three where nothing is.
#[test]
fn a_send_that_waits_is_rerouted_like_an_idle_connection() {
    let (ends, _src, send) = waiting(("LINKSPAN_TCP_STREAMS", "1"));
    let now = Instant::now();
    let ago = |seconds| now.checked_sub(Duration::from_secs(seconds)).unwrap();
    let moving = ends[0].conn.moving();
    assert!(!stuck(moving, ago(2), ago(2), now));
    assert!(stuck(moving, ago(4), ago(4), now));
    assert!(stuck(1, ago(2), ago(2), now));
    finish(ends, send);
}

/// A small one that lacks credit is not done by a flush: its test looks at what the peer says.
#[test]
fn the_test_of_a_small_send_that_waits_looks_at_arrivals() {
    let [mut a, mut b] = tcp(("LINKSPAN_TCP_STREAMS", "1"));
    let (src, dst) = (StaticBuf::new(8000), StaticBuf::new(8000));
    let mut sends = Vec::new();
    while a.waiting() == 0 {
        sends.push(a.post_send(1, src.slice()).unwrap().unwrap());
        a.flush();
    }
    let last = sends.pop().unwrap();
    let calls = a.calls;
    assert_eq!(a.test_sent(last).unwrap(), None);
    assert_eq!(a.calls, calls + 1, "it did not look");
    let since = Instant::now();
    let mut recv = None;
    while a.test_sent(last).unwrap().is_none() {
        assert!(since.elapsed() < LONG);
        recv = recv.filter(|&ticket| b.test(ticket).unwrap().is_none());
        recv = recv.or_else(|| b.post_recv(&[(1, dst.slice())]).unwrap());
        b.progress().unwrap();
    }
}

#[test]
fn the_error_of_a_message_that_had_reported_is_kept_for_a_call_that_can_tell_it() {
    let ([mut a, mut b], _src, waits) = waiting(("LINKSPAN_STALL_MS", "0"));
    let (small, long) = (StaticBuf::new(8), StaticBuf::new(64));
    let first = a.post_send(2, long.slice()).unwrap().unwrap();
    let since = Instant::now();
    while a.test_sent(first).unwrap().is_none() {
        assert!(since.elapsed() < LONG);
    }
    // It is longer than its receive, of which the receiver tells.
    b.post_recv(&[(2, small.slice())]).unwrap().unwrap();
    let told = loop {
        assert!(since.elapsed() < LONG);
        let _ = b.progress();
        for _ in 0..8 {
            assert_eq!(a.test_sent(waits).unwrap(), None);
        }
        match a.conn.late_error() {
            Some(error) => break error,
            None => continue,
        }
    };
    assert!(matches!(told, linkspan_proto::conn::OpError::Truncated { .. }), "{told}");
}
