//! What counts as silence where `LINKSPAN_STALL_MS` sets an end.

use linkspan_net::WaitSet;

use super::*;

/// Longer than the time that is set.
const PAUSE: Duration = Duration::from_secs(3);

/// Two ends over loopback, of which the second has a receive posted that nothing comes for.
fn ends() -> [Channel; 2] {
    let get = |name: &str| match name {
        "LINKSPAN_IFNAME" => Some("=lo".to_owned()),
        "LINKSPAN_STATS_DIR" => Some("off".to_owned()),
        "LINKSPAN_PATH" => Some("tcp".to_owned()),
        "LINKSPAN_STALL_MS" => Some("1000".to_owned()),
        _ => None,
    };
    let fabric = Fabric::with_nics(Config::read(&get).unwrap(), Log::off(), false, Vec::new()).unwrap();
    let listener = fabric.listen(0).unwrap();
    let mut connecting = fabric.connect(0, &listener.handle()).unwrap();
    let (mut here, mut there) = (None, None);
    let since = Instant::now();
    while here.is_none() || there.is_none() {
        assert!(since.elapsed() < LONG);
        here = here.or_else(|| connecting.poll().unwrap());
        there = there.or_else(|| listener.accept().unwrap());
    }
    [here.unwrap(), there.unwrap()]
}

/// As if the caller had not called for a while.
fn pause(channel: &mut Channel) {
    channel.last_active = Instant::now().checked_sub(PAUSE).unwrap();
    channel.last_tick = channel.last_active;
}

fn receive(channel: &mut Channel) -> HostBuf {
    let dst = HostBuf::new(8);
    channel.post_recv(&[(9, dst.slice())]).unwrap().unwrap();
    dst
}

/// Calls until the next periodic check has been made.
fn check(channel: &mut Channel) -> Result<(), String> {
    for _ in 0..=TICK_CALLS {
        channel.progress().map_err(|_| channel.lost().unwrap())?;
    }
    Ok(())
}

/// Something arrives at the second end, by a message that nothing there was posted for.
fn send(from: &mut Channel, to: &mut Channel) {
    let src = HostBuf::new(8);
    from.post_send(1, src.slice()).unwrap().unwrap();
    from.flush();
    let (mut fds, mut set) = (Vec::new(), WaitSet::new());
    while !to.arm(&mut fds) {
        fds.clear();
    }
    for fd in &fds {
        set.add(*fd);
    }
    set.wait(Some(LONG)).unwrap();
}

#[test]
fn an_operation_in_flight_without_an_answer_ends_the_connection() {
    let [_a, mut b] = ends();
    let _dst = receive(&mut b);
    check(&mut b).unwrap();
    pause(&mut b);
    let why = check(&mut b).unwrap_err();
    assert!(why.contains("silent for") && why.contains("LINKSPAN_STALL_MS"), "{why}");
}

#[test]
fn what_was_before_the_first_operation_is_no_silence() {
    let [_a, mut b] = ends();
    pause(&mut b);
    let _dst = receive(&mut b);
    check(&mut b).unwrap();
    assert!(b.last_active.elapsed() < PAUSE);
}

#[test]
fn an_arrival_ends_a_silence_whichever_call_finds_it() {
    let [mut a, mut b] = ends();
    let _dst = receive(&mut b);
    check(&mut b).unwrap();
    send(&mut a, &mut b);
    pause(&mut b);
    // Not one of those that look at the clock.
    b.calls = 0;
    while !matches!(b.progress(), Ok(Poll::Active)) {
        b.calls = 0;
    }
    check(&mut b).unwrap();
    // Nor where the caller has slept, and what woke it was not read yet.
    send(&mut a, &mut b);
    pause(&mut b);
    b.after_sleep();
    assert_eq!(b.lost(), None);
    check(&mut b).unwrap();
}
