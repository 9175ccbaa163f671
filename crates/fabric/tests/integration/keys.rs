//! Logins by the key pairs of users: who gets in, under which name, and that nobody gets into another's connection.

use std::io::Write;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use linkspan_fabric::keys::{Keyring, Peer};
use linkspan_fabric::stats;
use linkspan_fabric::{Config, Error, Fabric, Log, chain};
use linkspan_proto::handle::Handle;
use linkspan_proto::plan::{Carrier, Plan};

use super::common::{connect, log_stream_in};

/// A user with keys of its own.
struct User {
    ring: Arc<Keyring>,
    dir: PathBuf,
}

impl Drop for User {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

impl User {
    fn new(name: &str) -> User {
        let dir = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("keys-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        User { ring: Arc::new(Keyring::make_in(&dir, false).unwrap()), dir }
    }

    fn trusts(&self, other: &User, name: &str) {
        self.ring.add(Peer { name: name.into(), key: other.ring.public(), hosts: Vec::new() }).unwrap();
    }

    fn fabric(&self, to: Option<&User>, env: &[(&str, &str)]) -> (Fabric, Arc<Mutex<Vec<String>>>) {
        let mut config = config(env);
        config.use_keys(self.ring.clone(), to.map(|user| user.ring.public()).as_ref());
        let lines = Arc::new(Mutex::new(Vec::new()));
        let to = lines.clone();
        let log = Log::to(move |level, line| to.lock().unwrap().push(format!("{level:?} {line}")));
        (Fabric::new(config, log, true, Vec::new()).unwrap(), lines)
    }
}

fn config(env: &[(&str, &str)]) -> Config {
    let base = [
        ("LINKSPAN_IFNAME", "=lo"),
        ("LINKSPAN_PATH", "tcp"),
        ("LINKSPAN_STATS_DIR", "off"),
        ("LINKSPAN_CONNECT_TIMEOUT_MS", "20000"),
    ];
    Config::read(&|name| base.iter().chain(env).rev().find(|p| p.0 == name).map(|p| p.1.to_owned())).unwrap()
}

#[test]
fn both_ends_know_each_other_by_name_in_calls_logs_and_statistics() {
    let (ada, bob) = (User::new("named-ada"), User::new("named-bob"));
    ada.trusts(&bob, "bobs-box");
    bob.trusts(&ada, "adas-box");
    let pages = ada.dir.join("stats");
    let (near, near_lines) = ada.fabric(Some(&bob), &[("LINKSPAN_STATS_DIR", pages.to_str().unwrap())]);
    let (far, far_lines) = bob.fabric(None, &[]);
    let listener = far.listen(0).unwrap();
    assert!(Handle::decode(&listener.handle()).unwrap().keys);
    let (here, there) = connect(&near, &listener, &listener.handle()).unwrap();
    assert_eq!(here.peer_name().as_deref(), Some("bobs-box"));
    assert_eq!(there.peer_name().as_deref(), Some("adas-box"));
    assert_eq!(there.peer_key(), Some(&ada.ring.public()));
    let said = |lines: &Mutex<Vec<String>>, what: &str| lines.lock().unwrap().iter().any(|l| l.contains(what));
    assert!(said(&near_lines, "connected bobs-box via tcp"), "{near_lines:?}");
    assert!(said(&far_lines, "accepted adas-box via tcp"), "{far_lines:?}");
    let records = stats::read(&pages).unwrap().remove(0).records;
    assert_eq!(records.iter().map(|r| r.peer.as_str()).collect::<Vec<_>>(), ["bobs-box"]);
}

#[test]
fn whoever_is_not_trusted_is_refused_at_once_and_both_sides_name_the_key() {
    let (ada, bob) = (User::new("stranger-ada"), User::new("stranger-bob"));
    ada.trusts(&bob, "bob");
    let (near, _) = ada.fabric(Some(&bob), &[]);
    let (far, lines) = bob.fabric(None, &[]);
    let listener = far.listen(0).unwrap();
    let begun = Instant::now();
    let error = connect(&near, &listener, &listener.handle()).unwrap_err();
    assert!(begun.elapsed() < Duration::from_secs(10), "it is not tried until the connect timeout");
    let fingerprint = ada.ring.public().fingerprint();
    let text = chain(&error);
    assert!(matches!(error, Error::Refused { .. }) && text.contains("LS0230") && text.contains(&fingerprint), "{text}");
    let lines = lines.lock().unwrap();
    assert!(
        lines.iter().any(|l| l.starts_with("Warn") && l.contains("LS0229") && l.contains(&fingerprint)),
        "{lines:?}"
    );
}

#[test]
fn a_peer_that_becomes_trusted_is_let_in_without_a_restart_and_one_that_is_forgotten_is_not() {
    let (ada, bob) = (User::new("later-ada"), User::new("later-bob"));
    ada.trusts(&bob, "bob");
    let (near, _) = ada.fabric(Some(&bob), &[]);
    let (far, _) = bob.fabric(None, &[]);
    let listener = far.listen(0).unwrap();
    assert!(connect(&near, &listener, &listener.handle()).is_err());
    // As another process does it: `lspan pair`.
    let elsewhere = Keyring::open_in(&bob.dir).unwrap();
    elsewhere.add(Peer { name: "ada".into(), key: ada.ring.public(), hosts: Vec::new() }).unwrap();
    let (here, there) = connect(&near, &listener, &listener.handle()).unwrap();
    assert_eq!(there.peer_name().as_deref(), Some("ada"));
    drop((here, there));
    elsewhere.forget("ada").unwrap();
    assert!(connect(&near, &listener, &listener.handle()).is_err());
}

#[test]
fn a_peer_that_was_not_meant_is_not_connected_to() {
    let (ada, bob, eve) = (User::new("meant-ada"), User::new("meant-bob"), User::new("meant-eve"));
    ada.trusts(&bob, "bob");
    ada.trusts(&eve, "eve");
    eve.trusts(&ada, "ada");
    let (near, _) = ada.fabric(Some(&bob), &[]);
    let (far, _) = eve.fabric(None, &[]);
    let listener = far.listen(0).unwrap();
    let mut connecting = near.connect(0, &listener.handle()).unwrap();
    let error = loop {
        let _ = listener.accept();
        if let Err(error) = connecting.poll() {
            break chain(&error);
        }
    };
    assert!(error.contains("LS0229") && error.contains(&eve.ring.public().fingerprint()), "{error}");
}

/// One side that asks for it is enough, as with the cluster key.
#[test]
fn connections_by_key_pair_are_encrypted_where_one_side_asks_for_it() {
    for (mine, theirs) in [("auth", "auth"), ("encrypt", "auth"), ("auth", "encrypt")] {
        let (ada, bob) =
            (User::new(&format!("sealed-ada-{mine}-{theirs}")), User::new(&format!("sealed-bob-{mine}-{theirs}")));
        ada.trusts(&bob, "bob");
        bob.trusts(&ada, "ada");
        let (near, _) = ada.fabric(Some(&bob), &[("LINKSPAN_PSK_MODE", mine)]);
        let (far, _) = bob.fabric(None, &[("LINKSPAN_PSK_MODE", theirs)]);
        let listener = far.listen(0).unwrap();
        let (here, there) = connect(&near, &listener, &listener.handle()).unwrap();
        for end in [&here, &there] {
            assert!(end.rails().count() > 0);
            for rail in end.rails() {
                let encrypted = rail.reason.contains("encrypted with AES-256-GCM");
                assert_eq!(encrypted, (mine, theirs) != ("auth", "auth"), "{}", end.describe());
            }
        }
    }
}

#[test]
fn without_keys_there_is_no_way_in_and_both_sides_say_so() {
    let bob = User::new("plain-bob");
    let (far, lines) = bob.fabric(None, &[]);
    let listener = far.listen(0).unwrap();
    let plain = Fabric::new(config(&[]), Log::off(), true, Vec::new()).unwrap();
    let text = chain(&connect(&plain, &listener, &listener.handle()).unwrap_err());
    assert!(text.contains("LS0227") && text.contains("lspan pair"), "{text}");
    assert!(lines.lock().unwrap().iter().any(|line| line.contains("LS0228")), "{lines:?}");
}

/// Another trusted peer that has read the number of a connection from the cable.
#[test]
fn a_stream_of_another_key_is_no_part_of_a_connection() {
    let (ada, bob, eve) = (User::new("mixed-ada"), User::new("mixed-bob"), User::new("mixed-eve"));
    bob.trusts(&ada, "ada");
    bob.trusts(&eve, "eve");
    let (far, _) = bob.fabric(None, &[]);
    let listener = far.listen(0).unwrap();
    let guard = |user: &User| user.ring.guard_to(&bob.ring.public(), false);

    // One of a connection that is coming up: the plan needs a stream that only the other has.
    let mut first = log_stream_in(&listener, guard(&ada), 7, 0);
    let _mixed = log_stream_in(&listener, guard(&eve), 7, 1);
    let plan = Plan { carrier: Carrier::Tcp, acked: true, streams: vec![0, 1], keepalive: None };
    first.write_all(&plan.encode()).unwrap();
    for _ in 0..100 {
        assert!(listener.accept().unwrap().is_none(), "a connection of two peers");
        std::thread::sleep(Duration::from_millis(1));
    }
    let _second = log_stream_in(&listener, guard(&ada), 7, 2);

    // One of a connection that is up.
    let mut first = log_stream_in(&listener, guard(&ada), 8, 0);
    let plan = Plan { carrier: Carrier::Tcp, acked: true, streams: vec![0], keepalive: None };
    first.write_all(&plan.encode()).unwrap();
    let mut there = loop {
        if let Some(channel) = listener.accept().unwrap() {
            break channel;
        }
    };
    let _eves = log_stream_in(&listener, guard(&eve), 8, 64);
    let _adas = log_stream_in(&listener, guard(&ada), 8, 65);
    let until = Instant::now() + Duration::from_secs(30);
    while there.rails().count() < 2 {
        assert!(Instant::now() < until, "the peer's own stream is taken");
        there.progress().unwrap();
        let _ = listener.accept();
    }
    for _ in 0..400 {
        there.progress().unwrap();
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(there.rails().count(), 2);
}
