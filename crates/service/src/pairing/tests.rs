//! Both sides in one process, over loopback.

use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::Instant;

use super::*;

struct User {
    ring: Arc<Keyring>,
    dir: PathBuf,
    names: Names,
}

impl Drop for User {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

fn user(name: &str) -> User {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let dir = std::env::temp_dir().join(format!("linkspan-pairing-{}-{number}", std::process::id()));
    let _ = std::fs::remove_dir_all(&dir);
    let ring = Arc::new(Keyring::make_in(&dir, false).unwrap());
    User { ring, dir, names: Names { own: name.into(), peer: None } }
}

fn config() -> Config {
    let env = [("LINKSPAN_IFNAME", "=lo"), ("LINKSPAN_STATS_DIR", "off")];
    Config::read(&|name| env.iter().find(|p| p.0 == name).map(|p| p.1.to_owned())).unwrap()
}

fn offer(user: &User) -> (PairingOffer, Arc<Mutex<Vec<String>>>) {
    let lines = Arc::new(Mutex::new(Vec::new()));
    let to = lines.clone();
    let log = Log::to(move |_, line| to.lock().unwrap().push(line.to_owned()));
    (PairingOffer::open(config(), user.ring.clone(), log).unwrap(), lines)
}

fn joined(user: &User, line: &JoinLine) -> Result<Paired, PairError> {
    join(config(), &user.ring, Log::off(), line, &user.names, &|| false)
}

fn paired(a: &User, b: &User) -> (Paired, Paired) {
    let (offer, _) = offer(a);
    let line = JoinLine::parse(&offer.line().text()).unwrap();
    thread::scope(|scope| {
        let there = scope.spawn(|| joined(b, &line).unwrap());
        (offer.wait(&a.names, &|| false).unwrap(), there.join().unwrap())
    })
}

#[test]
fn both_sides_trust_each_other_and_show_one_fingerprint() {
    let (ada, bob) = (user("ada"), user("bob"));
    let (at_ada, at_bob) = paired(&ada, &bob);
    assert_eq!((at_ada.peer.name.as_str(), at_bob.peer.name.as_str()), ("bob", "ada"));
    assert_eq!(at_ada.fingerprint, at_bob.fingerprint);
    assert!(at_ada.confirmed && at_bob.confirmed);
    assert_eq!(ada.ring.name_of(&bob.ring.public()).as_deref(), Some("bob"));
    assert_eq!(bob.ring.name_of(&ada.ring.public()).as_deref(), Some("ada"));
}

#[test]
fn a_line_pairs_once() {
    let (ada, bob, eve) = (user("ada"), user("bob"), user("eve"));
    let (offer, _) = offer(&ada);
    let line = offer.line().clone();
    thread::scope(|scope| {
        let there = scope.spawn(|| joined(&bob, &line).unwrap());
        offer.wait(&ada.names, &|| false).unwrap();
        there.join().unwrap();
    });
    let error = joined(&eve, &line).unwrap_err();
    assert!(matches!(error, PairError::Unanswered { .. }) && error.to_string().contains("used already"), "{error}");
    assert!(ada.ring.name_of(&eve.ring.public()).is_none());
    assert_eq!(eve.ring.peers().len(), 0);
}

#[test]
fn a_peer_of_a_name_that_is_taken_gets_a_number_and_one_that_pairs_again_keeps_its_name() {
    let (ada, bob, other) = (user("ada"), user("bob"), user("bob"));
    assert_eq!(paired(&ada, &bob).0.peer.name, "bob");
    let second = paired(&ada, &other).0;
    assert_eq!((second.peer.name.as_str(), second.says.as_str()), ("bob-2", "bob"));
    assert_eq!(paired(&ada, &other).0.peer.name, "bob-2");
    assert_eq!(ada.ring.peers().len(), 2);
    assert_eq!(ada.ring.name_of(&bob.ring.public()).as_deref(), Some("bob"), "nobody takes another's name over");
}

#[test]
fn a_name_that_was_asked_for_and_is_taken_is_an_error() {
    let (ada, bob, mut eve) = (user("ada"), user("bob"), user("eve"));
    paired(&ada, &bob);
    let (offer, _) = offer(&ada);
    let line = offer.line().clone();
    eve.names.peer = Some("x y".into());
    let names = Names { peer: Some("bob".into()), ..ada.names.clone() };
    thread::scope(|scope| {
        let there = scope.spawn(|| joined(&eve, &line));
        assert!(matches!(offer.wait(&names, &|| false), Err(PairError::Keys(KeyError::Taken { .. }))));
        assert!(matches!(there.join().unwrap(), Err(PairError::Keys(KeyError::Name { .. }))));
    });
    assert_eq!(ada.ring.peers().len(), 1);
}

/// Connects with the line and says `text` in place of who it is.
fn says(line: &JoinLine, user: &User, text: &[u8]) {
    let fabric = Fabric::new(settings(config(), &user.ring), Log::off(), false, Vec::new()).unwrap();
    let mut connecting = fabric.connect(0, &line.handle()).unwrap();
    let channel = loop {
        if let Some(channel) = connecting.poll().unwrap() {
            break channel;
        }
    };
    // The other side hears it, and closes.
    let ended = channel.swap(1, text, 4096, Instant::now() + Duration::from_secs(60), &|| false);
    if let Ok((channel, _)) = ended {
        assert!(channel.swap(2, b"1", 1, Instant::now() + Duration::from_secs(60), &|| false).is_err());
    }
}

#[test]
fn junk_forged_names_and_other_peoples_keys_are_refused_and_end_nothing() {
    let (ada, bob, eve) = (user("ada"), user("bob"), user("eve"));
    let (offer, lines) = offer(&ada);
    let line = offer.line().clone();
    let as_bob = Peer { name: "bob".into(), key: bob.ring.public(), hosts: Vec::new() }.line();
    let own = Peer { name: "eve".into(), key: eve.ring.public(), hosts: Vec::new() }.line();
    let forged = [
        b"\xff\xfe".to_vec(),
        b"linkspan1 ".to_vec(),
        as_bob.into_bytes(),
        own.replace(" eve", " cluster").into_bytes(),
        own.replace(" eve", " e\x1b[2Jve").into_bytes(),
        own.replace(" eve", &format!(" {}", "e".repeat(64))).into_bytes(),
        format!("{own} -oProxyCommand=x").into_bytes(),
    ];
    thread::scope(|scope| {
        let there = scope.spawn(|| {
            for text in &forged {
                says(&line, &eve, text);
            }
            joined(&bob, &line).unwrap()
        });
        assert_eq!(offer.wait(&ada.names, &|| false).unwrap().peer.name, "bob");
        there.join().unwrap();
    });
    assert_eq!(ada.ring.peers().len(), 1, "{:?}", ada.ring.peers());
    let lines = lines.lock().unwrap();
    let refused: Vec<&String> = lines.iter().filter(|line| line.starts_with("a peer did not pair")).collect();
    assert_eq!(refused.len(), forged.len(), "{lines:?}");
    assert!(!lines.iter().any(|line| line.chars().any(char::is_control)), "{lines:?}");
}

#[test]
fn one_that_has_not_the_line_does_not_come_in() {
    let (ada, eve) = (user("ada"), user("eve"));
    let (open, _) = offer(&ada);
    let (other, _) = offer(&eve);
    // The addresses of one listener, the token of another.
    let handle = linkspan_proto::handle::Handle::decode(&open.line().handle()).unwrap();
    let stolen = linkspan_proto::handle::Handle::decode(&other.line().handle()).unwrap();
    let mut mixed = linkspan_proto::handle::Handle::new(handle.listen_id, stolen.token.clone(), handle.host);
    mixed.keys = true;
    handle.addrs().iter().for_each(|addr| mixed.push(*addr).unwrap());
    let line = JoinLine::new(&mixed.encode(), SystemTime::now() + LIFETIME).unwrap();
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let there = scope.spawn(|| {
            let error = joined(&eve, &line);
            done.store(true, Ordering::Release);
            error
        });
        let ended = open.wait(&ada.names, &|| done.load(Ordering::Acquire));
        assert!(matches!(ended, Err(PairError::Cancelled)));
        assert!(matches!(there.join().unwrap(), Err(PairError::Unanswered { .. })));
    });
    assert!(ada.ring.peers().is_empty() && eve.ring.peers().is_empty());
}

/// A proxy in front of the first address of a line, which looks for what is said in clear and changes it, and the line with its address.
fn changed_on_the_way(line: &JoinLine) -> (JoinLine, Arc<AtomicU32>) {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    let handle = linkspan_proto::handle::Handle::decode(&line.handle()).unwrap();
    let mut addr = handle.addrs()[0];
    let (to, listener) = (std::net::SocketAddr::new(addr.ip, addr.port), TcpListener::bind("127.0.0.1:0").unwrap());
    addr.port = listener.local_addr().unwrap().port();
    let mut via = linkspan_proto::handle::Handle::new(handle.listen_id, handle.token.clone(), handle.host);
    via.keys = true;
    via.push(addr).unwrap();
    let seen = Arc::new(AtomicU32::new(0));
    let count = seen.clone();
    thread::spawn(move || {
        for here in listener.incoming() {
            let (here, there) = (here.unwrap(), TcpStream::connect(to).unwrap());
            for (mut from, mut to) in [(here.try_clone().unwrap(), there.try_clone().unwrap()), (there, here)] {
                let count = count.clone();
                thread::spawn(move || {
                    let mut bytes = [0; 16 << 10];
                    while let Ok(length @ 1..) = from.read(&mut bytes) {
                        for at in 0..length.saturating_sub(9) {
                            if &bytes[at..at + 9] == b"linkspan1" {
                                bytes[at] = b'L';
                                count.fetch_add(1, Ordering::Relaxed);
                            }
                        }
                        if to.write_all(&bytes[..length]).is_err() {
                            break;
                        }
                    }
                    let _ = to.shutdown(std::net::Shutdown::Both);
                });
            }
        }
    });
    (JoinLine::new(&via.encode(), SystemTime::now() + LIFETIME).unwrap(), seen)
}

#[test]
fn nobody_on_the_way_reads_or_changes_who_the_two_are() {
    let (ada, bob) = (user("ada"), user("bob"));
    let (offer, _) = offer(&ada);
    let (line, seen) = changed_on_the_way(offer.line());
    thread::scope(|scope| {
        let there = scope.spawn(|| joined(&bob, &line).unwrap());
        assert_eq!(offer.wait(&ada.names, &|| false).unwrap().peer.name, "bob");
        assert_eq!(there.join().unwrap().peer.name, "ada");
    });
    assert_eq!(seen.load(Ordering::Relaxed), 0, "it is said in clear");
}

#[test]
fn a_line_is_void_when_its_time_is_over() {
    let ada = user("ada");
    let (mut open, _) = offer(&ada);
    open.until = since_boot();
    let line = open.line().clone();
    assert!(matches!(open.wait(&ada.names, &|| false), Err(PairError::Expired)));
    assert!(matches!(joined(&user("bob"), &line), Err(PairError::Unanswered { .. })));
}

#[test]
fn a_line_is_void_after_a_sleep_of_the_machine_that_was_longer() {
    let ada = user("ada");
    let (mut open, _) = offer(&ada);
    // Awake for no time at all.
    open.clock = || since_boot() + LIFETIME;
    let asked = std::cell::Cell::new(0);
    let ended = open.wait(&ada.names, &|| asked.replace(asked.get() + 1) == 2);
    assert!(matches!(ended, Err(PairError::Expired)), "{ended:?}");
}

#[test]
fn nobody_pairs_with_himself() {
    let ada = user("ada");
    let (open, _) = offer(&ada);
    let line = open.line().clone();
    thread::scope(|scope| {
        let there = scope.spawn(|| joined(&ada, &line));
        assert!(matches!(open.wait(&ada.names, &|| false), Err(PairError::Keys(KeyError::Own))));
        assert!(there.join().unwrap().is_err());
    });
}
