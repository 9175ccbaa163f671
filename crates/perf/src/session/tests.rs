use std::thread;
use std::time::Instant;

use super::*;
use crate::mock::{Faults, Mock, pair};
use crate::spec::{Direction, Stop, Test, WaitMode};
use linkspan_net::Share;

fn small(test: Test, size: u64) -> Spec {
    Spec {
        stop: Stop::Messages(40),
        warmup: 5,
        interval: Duration::from_micros(50),
        load_size: 5000,
        ..Spec::new(test, size)
    }
}

/// Runs tests against a serving thread and returns what it said at the end.
fn session<T>(faults: Faults, limits: Limits, work: impl FnOnce(Client<Mock>) -> T) -> (T, Result<(), PerfError>) {
    let (ours, mut theirs) = pair(faults);
    let server = thread::spawn(move || serve(&mut theirs, &limits));
    let result = work(Client::new(ours, Some(Duration::from_secs(20))));
    (result, server.join().unwrap())
}

#[test]
fn bandwidth_in_every_direction() {
    for (direction, up, down) in [(Direction::Send, 40, 0), (Direction::Recv, 0, 40), (Direction::Both, 40, 40)] {
        for size in [1, 8, 5000] {
            let (out, end) = session(Faults::default(), Limits::default(), |mut client| {
                let out = client.run(&Spec { direction, ..small(Test::Bw, size) });
                client.close().unwrap();
                out.unwrap()
            });
            end.unwrap();
            assert_eq!(out.up.map_or(0, |flow| flow.messages), up);
            assert_eq!(out.down.map_or(0, |flow| flow.messages), down);
            assert_eq!(out.bytes(), (up + down) * size);
            assert!(out.elapsed_ns() > 0);
            assert_eq!(out.wrong_bytes, Some(0));
            assert!(out.round_trips.is_none());
        }
    }
}

#[test]
fn many_tests_in_one_session() {
    let ((), end) = session(Faults::default(), Limits::default(), |mut client| {
        for test in [Test::Lat, Test::Bw, Test::Jitter, Test::Load, Test::Lat] {
            for wait in [WaitMode::Spin, WaitMode::Adaptive, WaitMode::Sleep] {
                let out = client.run(&Spec { wait, ..small(test, 64) }).unwrap();
                assert_eq!(out.wrong_bytes, Some(0));
                let rounds = out.round_trips.as_ref().map(|rec| rec.count());
                assert_eq!(rounds, (test != Test::Bw).then_some(40), "{test:?}");
                assert_eq!(out.idle_round_trips.map(|rec| rec.count()), (test == Test::Load).then_some(40));
            }
        }
        client.close().unwrap();
    });
    end.unwrap();
}

#[test]
fn load_really_moves_while_latency_is_measured() {
    let spec =
        Spec { stop: Stop::After(Duration::from_millis(500)), direction: Direction::Both, ..small(Test::Load, 8) };
    let (out, _) = session(Faults::default(), Limits::default(), |mut client| client.run(&spec).unwrap());
    assert!(out.up.unwrap().messages > 0 && out.down.unwrap().messages > 0);
    assert!(out.elapsed_ns() > 200_000_000, "{out:?}");
}

#[test]
fn time_ends_a_test() {
    for test in [Test::Bw, Test::Lat] {
        let spec = Spec { stop: Stop::After(Duration::from_millis(300)), ..small(test, 8) };
        let start = Instant::now();
        let (out, _) = session(Faults::default(), Limits::default(), |mut client| client.run(&spec).unwrap());
        assert!(start.elapsed() >= Duration::from_millis(300));
        assert!(out.messages() + out.round_trips.map_or(0, |rec| rec.count()) > 1);
    }
}

#[test]
fn the_time_is_up_after_each_large_message() {
    let spec = Spec { stop: Stop::After(Duration::from_nanos(1)), verify: false, ..small(Test::Bw, 64 << 10) };
    let (out, _) = session(Faults::default(), Limits::default(), |mut client| client.run(&spec).unwrap());
    assert_eq!(out.messages(), 1);
}

#[test]
fn a_pace_is_kept_and_lateness_counts() {
    let spec = Spec { stop: Stop::Messages(20), interval: Duration::from_millis(2), ..small(Test::Jitter, 8) };
    let start = Instant::now();
    let (out, _) = session(Faults::default(), Limits::default(), |mut client| client.run(&spec).unwrap());
    assert!(start.elapsed() >= Duration::from_millis(38), "20 rounds at 2 ms");
    assert_eq!(out.round_trips.unwrap().count(), 20);
}

#[test]
fn a_flipped_bit_is_counted() {
    let faults = Faults { corrupt_every: 200, ..Faults::default() };
    let (out, _) = session(faults, Limits::default(), |mut client| client.run(&small(Test::Bw, 1000)).unwrap());
    // Only the check of every byte can see it: the stamp is at the beginning.
    assert!(out.wrong_bytes.unwrap() > 0);
    let (out, _) = session(faults, Limits::default(), |mut client| {
        client.run(&Spec { verify: false, ..small(Test::Bw, 1000) }).unwrap()
    });
    assert_eq!(out.wrong_bytes, None, "nothing checked, nothing claimed");
}

#[test]
fn exchanged_messages_are_seen_in_the_timed_part() {
    // Beyond control messages and the warm-up of five and its 32 ends: inside the 400 timed messages.
    let faults = Faults { swap_at: 60, ..Faults::default() };
    let spec = Spec { stop: Stop::Messages(400), ..small(Test::Bw, 8) };
    let (out, _) = session(faults, Limits::default(), |mut client| client.run(&spec).unwrap());
    assert!(out.wrong_bytes.unwrap() > 0);
}

#[test]
fn busy_links_lose_nothing() {
    let faults = Faults { busy_every: 3, ..Faults::default() };
    let ((), end) = session(faults, Limits::default(), |mut client| {
        for test in [Test::Bw, Test::Lat, Test::Jitter, Test::Load] {
            let out = client.run(&Spec { direction: Direction::Both, ..small(test, 100) }).unwrap();
            assert_eq!(out.wrong_bytes, Some(0));
        }
        client.close().unwrap();
    });
    end.unwrap();
}

#[test]
fn death_at_any_message_is_an_error_and_never_a_hang() {
    for die_after in 1..200 {
        let faults = Faults { die_after, ..Faults::default() };
        let (out, _) = session(faults, Limits::default(), |mut client| client.run(&small(Test::Load, 100)).map(|_| ()));
        match out {
            Err(PerfError::Link(LinkError::PeerGone { .. })) | Ok(()) => {}
            other => panic!("{die_after}: {other:?}"),
        }
    }
}

#[test]
fn a_silent_peer_is_a_timeout() {
    let (ours, _theirs) = pair(Faults::default());
    let mut client = Client::new(ours, Some(Duration::from_millis(50)));
    let error = client.run(&small(Test::Bw, 8)).unwrap_err();
    assert!(matches!(error, PerfError::Timeout(_)), "{error}");
}

#[test]
fn too_much_memory_is_refused_and_the_session_goes_on() {
    let limits = Limits { memory: Quota::new(1 << 20), bare: false, cma: false, ..Limits::default() };
    let ((), end) = session(Faults::default(), limits, |mut client| {
        let error = client.run(&small(Test::Bw, 1 << 20)).unwrap_err().to_string();
        assert!(error.starts_with("LS0704") && error.contains("1 MiB"), "{error}");
        assert!(client.bare([0; 16]).unwrap_err().to_string().contains("bare TCP listener"));
        assert_eq!(client.run(&small(Test::Bw, 8)).unwrap().wrong_bytes, Some(0));
        client.close().unwrap();
    });
    end.unwrap();
}

#[test]
fn another_version_is_named_on_both_sides() {
    let (ours, end) = session(Faults::default(), Limits::default(), |mut client| {
        let mut turner = Turner::new(PATIENT, client.deadline(), &Interrupt::new());
        let params = Params { version: 9.into(), ..Params::new(&small(Test::Bw, 8)) };
        client.ctrl.send(&mut client.link, &mut turner, &params).unwrap();
        client.ctrl.expect(&mut client.link, &mut turner, Kind::Ready).unwrap_err().to_string()
    });
    assert!(ours.contains("version 1"), "{ours}");
    assert!(end.unwrap_err().to_string().contains("the peer version 9"));
}

#[test]
fn a_goaway_or_a_clean_departure_ends_a_session_well() {
    let ((), end) = session(Faults::default(), Limits::default(), |client| client.close().unwrap());
    end.unwrap();
    let ((), end) = session(Faults::default(), Limits::default(), drop);
    end.unwrap();
}

#[test]
fn an_interrupt_ends_the_timed_part_and_keeps_what_it_found() {
    for (test, direction) in [
        (Test::Bw, Direction::Send),
        (Test::Bw, Direction::Recv),
        (Test::Bw, Direction::Both),
        (Test::Lat, Direction::Send),
        (Test::Jitter, Direction::Send),
        (Test::Load, Direction::Both),
    ] {
        for wait in [WaitMode::Adaptive, WaitMode::Sleep] {
            let interrupt = Interrupt::new();
            let spec =
                Spec { stop: Stop::After(Duration::from_secs(3600)), direction, wait, warmup: 0, ..small(test, 100) };
            // The part without load of a load test comes first and would last as long.
            let spec = if test == Test::Load { Spec { stop: Stop::Messages(u64::MAX), ..spec } } else { spec };
            let start = Instant::now();
            let ((), end) = session(Faults::default(), Limits::default(), |client| {
                let mut client = client.with_interrupt(&interrupt);
                let other = interrupt.clone();
                // More than the control messages before them.
                let raiser = client.link.when_moved(200, move || other.raise());
                match client.run(&spec) {
                    Ok(out) => {
                        let trips = out.round_trips.as_ref().map_or(0, |rec| rec.count());
                        assert!(out.messages() + trips > 0, "{test:?} {direction:?}");
                        assert_eq!(out.wrong_bytes, Some(0));
                    }
                    Err(PerfError::Link(LinkError::Interrupted)) => assert_eq!(test, Test::Load),
                    Err(other) => panic!("{test:?} {direction:?}: {other}"),
                }
                raiser.join().unwrap();
                assert!(matches!(client.run(&spec), Err(PerfError::Link(LinkError::Interrupted))));
                client.close().unwrap();
            });
            end.unwrap();
            assert!(start.elapsed() < Duration::from_secs(60), "{test:?} {direction:?}");
        }
    }
}

#[test]
fn a_slow_link_is_not_kept_by_the_usual_warm_up_and_the_check_of_every_byte() {
    for (test, direction) in [(Test::Bw, Direction::Send), (Test::Bw, Direction::Recv), (Test::Lat, Direction::Send)] {
        let moved = |warmup: u32, beside: Duration| {
            let spec = Spec { direction, warmup, ..small(test, 100) };
            let (moved, end) = session(Faults::default(), Limits::default(), |mut client| {
                client.beside = beside;
                let out = client.run(&spec).unwrap();
                assert_eq!(out.wrong_bytes, Some(0), "{test:?} {direction:?}");
                let again = client.run(&small(test, 100)).unwrap();
                assert!(again.messages() == 40 || again.round_trips.is_some(), "the session goes on: {again:?}");
                let moved = client.link.moved();
                client.close().unwrap();
                moved
            });
            end.unwrap();
            moved
        };
        let (usual, long) = (Spec::usual_warmup(100), Duration::from_secs(3600));
        let whole = moved(usual, long);
        if direction == Direction::Send {
            assert!(moved(usual, Duration::ZERO) + u64::from(usual) / 2 < whole, "{test:?}");
        }
        assert!(moved(usual - 1, Duration::ZERO) >= u64::from(usual - 1), "a number that was given is kept");
    }
}

#[test]
fn an_interrupt_does_not_wait_for_a_silent_peer() {
    let (ours, _theirs) = pair(Faults::default());
    let mut client = Client::new(ours, None);
    let other = client.interrupt().clone();
    let raiser = thread::spawn(move || {
        thread::sleep(Duration::from_millis(30));
        other.raise();
    });
    let start = Instant::now();
    let error = client.run(&small(Test::Bw, 8)).unwrap_err();
    assert!(matches!(error, PerfError::Link(LinkError::Interrupted)), "{error}");
    assert!(start.elapsed() < Duration::from_secs(60), "{:?}", start.elapsed());
    raiser.join().unwrap();
}

#[test]
fn memory_for_one_sided_tests_is_offered_or_refused() {
    #[derive(Default)]
    struct Text(Option<Share>);
    impl Offers for Text {
        fn offer(&mut self, bytes: u64, share: Share) -> Option<String> {
            self.0 = Some(share);
            (bytes != 7).then(|| format!("{bytes} bytes here"))
        }
    }
    let (ours, mut theirs) = pair(Faults::default());
    let memory = Quota::new(1 << 20);
    let limits = Limits { memory: memory.clone(), ..Limits::default() };
    let server = thread::spawn(move || serve_with(&mut theirs, &limits, &Interrupt::new(), &mut Text::default()));
    let mut client = Client::new(ours, Some(Duration::from_secs(20)));
    assert_eq!(client.offer(4096).unwrap(), "4096 bytes here");
    assert!(client.offer(7).unwrap_err().to_string().contains("offers no memory"));
    assert!(client.offer(2 << 20).unwrap_err().to_string().contains("--memory"));
    // The session goes on.
    assert_eq!(client.offer(1).unwrap(), "1 bytes here");
    client.run(&small(Test::Lat, 8)).unwrap();
    client.close().unwrap();
    server.join().unwrap().unwrap();
    assert_eq!(memory.left(), 1 << 20);
    let (refused, end) = session(Faults::default(), Limits::default(), |mut client| {
        let refused = client.offer(1).unwrap_err();
        client.close().unwrap();
        refused
    });
    assert!(refused.to_string().contains("offers no memory"), "{refused}");
    end.unwrap();
}

/// Ends a session with so little time after `work`, and returns what it said.
fn left_alone<T>(work: impl FnOnce(&mut Client<Mock>) -> T) -> (T, PerfError) {
    let limits = Limits { idle: Some(Duration::from_millis(200)), ..Limits::default() };
    let (ours, mut theirs) = pair(Faults::default());
    let server = thread::spawn(move || serve(&mut theirs, &limits));
    // The client stays until the server has given it up.
    let mut client = Client::new(ours, Some(Duration::from_secs(20)));
    let result = work(&mut client);
    let end = server.join().unwrap().unwrap_err();
    drop(client);
    (result, end)
}

#[test]
fn a_client_that_is_silent_is_given_up_wherever_it_stops() {
    let say = |client: &mut Client<Mock>, params: &Params| {
        let mut patient = Turner::new(PATIENT, client.deadline(), &Interrupt::new());
        client.ctrl.send(&mut client.link, &mut patient, params).unwrap();
        client.ctrl.expect(&mut client.link, &mut patient, Kind::Ready).unwrap();
    };
    for stops in 0..4 {
        let ((), end) = left_alone(|client| match stops {
            0 => {}
            // A test that is asked for and not begun.
            1 => say(client, &Params::new(&small(Test::Bw, 1000))),
            // One that is begun, and nothing moves.
            2 => {
                say(client, &Params::new(&small(Test::Lat, 1000)));
                let mut patient = Turner::new(PATIENT, client.deadline(), &Interrupt::new());
                client.ctrl.send(&mut client.link, &mut patient, &Reply::new(Kind::Go)).unwrap();
            }
            // A baseline whose visitor never comes.
            _ => say(client, &Params::bare([3; 16])),
        });
        assert!(matches!(end, PerfError::Idle(_)), "{stops}: {end}");
    }
}

#[test]
fn a_client_has_its_time_anew_when_its_use_of_the_offer_has_ended() {
    /// In use at the first look.
    #[derive(Default)]
    struct Looks(std::cell::Cell<u32>);
    impl Offers for Looks {
        fn offer(&mut self, _: u64, _: Share) -> Option<String> {
            None
        }
        fn in_use(&self) -> bool {
            self.0.replace(self.0.get() + 1) == 0
        }
    }
    let limits = Limits { idle: Some(Duration::from_millis(20)), ..Limits::default() };
    let (ours, mut theirs) = pair(Faults::default());
    let mut looks = Looks::default();
    let end = serve_with(&mut theirs, &limits, &Interrupt::new(), &mut looks).unwrap_err();
    assert!(matches!(end, PerfError::Idle(_)), "{end}");
    assert_eq!(looks.0.get(), 3, "in use, no longer, still silent");
    drop(ours);
}

#[test]
fn a_test_or_a_baseline_that_moves_is_not_silent() {
    let limits = Limits { idle: Some(Duration::from_millis(300)), ..Limits::default() };
    let ((), end) = session(Faults::default(), limits, |mut client| {
        let mut bare = client.bare([5; 16]).unwrap();
        for _ in 0..2 {
            let long = Stop::After(Duration::from_secs(1));
            client.run(&Spec { stop: long, verify: false, ..small(Test::Lat, 8) }).unwrap();
            let since = Instant::now();
            while since.elapsed() < Duration::from_secs(1) {
                crate::baseline::ping(&mut bare, 200);
            }
        }
        client.close().unwrap();
    });
    end.unwrap();
}

#[test]
fn a_session_has_one_bare_listener() {
    let ((), end) = session(Faults::default(), Limits::default(), |mut client| {
        let mut first = client.bare([1; 16]).unwrap();
        crate::baseline::ping(&mut first, 1);
        let mut second = client.bare([2; 16]).unwrap();
        crate::baseline::ping(&mut second, 1);
        assert!(first.join().is_err(), "it ended when the second came");
        client.close().unwrap();
    });
    end.unwrap();
}
