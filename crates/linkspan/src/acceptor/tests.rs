use std::sync::Arc;

use linkspan_transport::{Buf, StaticBuf};

use super::*;
use crate::{Config, Log};

const LONG: Duration = Duration::from_secs(60);

fn fabric() -> Fabric {
    fabric_of("tcp", Log::off())
}

fn fabric_of(path: &str, log: Log) -> Fabric {
    let settings = [("LINKSPAN_IFNAME", "=lo"), ("LINKSPAN_PATH", path), ("LINKSPAN_STATS_DIR", "off")];
    let config = Config::read(&|name| settings.iter().find(|p| p.0 == name).map(|p| p.1.to_owned()));
    Fabric::new(config.expect("settings"), log, true, Vec::new()).expect("a fabric")
}

/// Connects while the acceptor is asked at this time, and says nothing.
fn connects(fabric: &Fabric, acceptor: &Acceptor, now: Instant) -> Channel {
    let mut connecting = fabric.connect(0, &acceptor.handle()).expect("a dial");
    let began = Instant::now();
    loop {
        assert!(began.elapsed() < LONG, "it does not come up");
        assert!(acceptor.next_at(now).is_none(), "nobody has said hello");
        if let Some(channel) = connecting.poll().expect("a connection") {
            return channel;
        }
    }
}

#[test]
fn peers_that_come_up_and_say_nothing_lose_their_places_to_others_after_a_second() {
    let fabric = fabric();
    let acceptor = Acceptor::new(&fabric, 0).expect("an acceptor");
    let now = Instant::now();
    let mut silent: Vec<Channel> = (0..MOST).map(|_| connects(&fabric, &acceptor, now)).collect();
    let mut honest = connects(&fabric, &acceptor, now + SILENT);
    let buf = StaticBuf::new(HELLO_LEN);
    let hello = Hello { from: 7, ..Hello::default() };
    assert!(buf.slice().fill(0, &hello.encode()));
    honest.post_send(HELLO_TAG, buf.slice()).expect("sent").expect("sent at once");
    let began = Instant::now();
    let heard = loop {
        assert!(began.elapsed() < LONG, "it is not heard");
        let _ = honest.progress();
        if let Some(heard) = acceptor.next_at(now + SILENT) {
            break heard;
        }
    };
    assert_eq!(heard.1.from, 7);
    assert_eq!(acceptor.arrivals.lock().expect("arrivals").coming.len(), MOST - 1);
    while silent[0].progress().is_ok() {
        assert!(began.elapsed() < LONG, "the first one that came has not lost its place");
    }
    assert!(silent[1..].iter_mut().all(|one| one.progress().is_ok()));
}

#[test]
fn a_peer_that_connects_again_and_again_by_a_path_that_is_forbidden_is_told_of_once_a_minute() {
    let lines = Arc::new(Mutex::new(Vec::new()));
    let to = lines.clone();
    let log = Log::to(move |_, line| to.lock().expect("lines").push(line.to_owned()));
    let acceptor = Acceptor::new(&fabric_of("shm", log), 0).expect("an acceptor");
    let (near, began, mut tries) = (fabric(), Instant::now(), 0);
    let mut connecting = near.connect(0, &acceptor.handle()).expect("a dial");
    // It goes on for 20 s; a few of its tries will do.
    let mut waits = false;
    while tries < 4 {
        assert!(began.elapsed() < LONG, "it is not refused");
        assert!(acceptor.next_at(Instant::now()).is_none(), "nobody has said hello");
        assert!(connecting.poll().expect("it tries again").is_none());
        let (before, mut fds) = (waits, Vec::new());
        connecting.wait_fds(&mut fds);
        // Between two tries it has no stream.
        waits = fds.is_empty();
        tries += usize::from(waits && !before);
    }
    assert_eq!(lines.lock().expect("lines").iter().filter(|line| line.contains("LS0511")).count(), 1);
}

#[test]
fn a_key_with_more_than_eight_silent_paths_gives_places_up_at_once_and_others_after_a_second() {
    let (a, b) = (PublicKey::new([1; 32]), PublicKey::new([2; 32]));
    let now = Instant::now();
    let of = |key, count| std::iter::repeat_n((Some(key), now), count);
    let crowd: Vec<_> = of(&a, 1).chain(of(&b, 9)).chain(of(&a, 8)).collect();
    assert_eq!(dispensable(&crowd, now), Some(0), "the oldest of those that have most");
    let crowd: Vec<_> = of(&a, 8).chain(of(&b, 9)).collect();
    assert_eq!(dispensable(&crowd, now), Some(8));
    let fair: Vec<_> = of(&a, 8).chain(of(&b, 8)).collect();
    assert_eq!(dispensable(&fair, now), None);
    let without_keys = [(None, now); MOST];
    assert_eq!(dispensable(&without_keys, now), None, "they are one to us");
    let late = [(Some(&a), now), (Some(&b), now + SILENT), (Some(&b), now + SILENT)];
    assert_eq!(dispensable(&late, now + SILENT), Some(0));
    assert_eq!(dispensable(&late, now + 2 * SILENT), Some(1));
}
