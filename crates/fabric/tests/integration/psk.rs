//! The cluster key: who gets in with it, what travels in clear, and what an attacker on the cable can do.

mod proxy;

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use linkspan_fabric::{Buf, Channel, Config, Error, Fabric, HANDLE_LEN, Level, Log, chain};
use linkspan_proto::handle::Handle;
use linkspan_transport::StaticBuf;
use linkspan_transport::conformance::Direction;
use proxy::{Harm, Proxy};

use super::common::{connect, elsewhere};

const KEY: &[u8] = b"00112233445566778899aabbccddeeff0123456789abcdeffedcba9876543210\n";
const OTHER: &[u8] = b"ff112233445566778899aabbccddeeff0123456789abcdeffedcba9876543210\n";

/// What the cable must not show.
const KNOWN: &[u8] = b"known plaintext, 32 bytes of it!";

/// Bytes that the connector sends before its plan, and the listener before its answer, with a key and an empty
/// greeting: hello and confirm, reply and finish.
const LOGIN_THERE: usize = 96 + 8 + 4 + 48 + 32;
const LOGIN_BACK: usize = 80 + 8 + 4 + 48 + 32;

fn key_file(content: &[u8], mode: u32) -> PathBuf {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let name = format!("psk-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::write(&path, content).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
    path
}

fn config(env: &[(&str, &str)]) -> Result<Config, Error> {
    let base = [("LINKSPAN_IFNAME", "=lo"), ("LINKSPAN_PATH", "tcp"), ("LINKSPAN_STATS_DIR", "off")];
    Config::read(&|name| base.iter().chain(env).rev().find(|p| p.0 == name).map(|p| p.1.to_owned()))
}

/// A process's fabric, and the lines that it logged.
struct Node {
    fabric: Fabric,
    lines: Arc<Mutex<Vec<String>>>,
}

impl Node {
    fn new(key: Option<&[u8]>, env: &[(&str, &str)]) -> Node {
        let path = key.map(|key| key_file(key, 0o600));
        let mut all = vec![("LINKSPAN_CONNECT_TIMEOUT_MS", "10000")];
        all.extend(path.iter().map(|file| ("LINKSPAN_PSK_FILE", file.to_str().unwrap())));
        all.extend_from_slice(env);
        let lines = Arc::new(Mutex::new(Vec::new()));
        let to = lines.clone();
        let log = Log::to(move |level, line| {
            let word = if level == Level::Warn { "WARN" } else { "INFO" };
            to.lock().unwrap().push(format!("{word} {line}"));
        });
        let fabric = Fabric::new(config(&all).unwrap(), log, true, Vec::new()).unwrap();
        path.map(std::fs::remove_file).transpose().unwrap();
        Node { fabric, lines }
    }

    fn keyed(mode: &str, env: &[(&str, &str)]) -> Node {
        Node::new(Some(KEY), &[&[("LINKSPAN_PSK_MODE", mode)], env].concat())
    }

    fn logged(&self, what: &str) -> bool {
        self.lines.lock().unwrap().iter().any(|line| line.contains(what))
    }
}

/// Sends [`KNOWN`] over and over; `Err` with the words of the end that saw the connection end. Whatever is reported as
/// received is right.
fn send(a: &mut Channel, b: &mut Channel, len: usize) -> Result<(), String> {
    let (src, dst) = (StaticBuf::new(len), StaticBuf::new(len));
    let bytes: Vec<u8> = KNOWN.iter().copied().cycle().take(len).collect();
    assert!(src.slice().fill(0, &bytes));
    let receive = b.post_recv(&[(3, dst.slice())]).unwrap().expect("space for a receive");
    let (mut sending, mut received) = (None, false);
    let until = Instant::now() + Duration::from_secs(30);
    loop {
        assert!(Instant::now() < until, "not done within 30 s");
        for end in [&mut *a, &mut *b] {
            if end.progress().is_err() {
                return Err(end.lost().unwrap_or_else(|| "closed".into()));
            }
        }
        if sending.is_none() {
            sending = a.post_send(3, src.slice()).map_err(|e| e.to_string())?;
        }
        if !received && b.test(receive).map_err(|e| e.to_string())?.is_some() {
            assert!(dst.slice().to_vec() == bytes, "wrong data was delivered");
            received = true;
        }
        if let (true, Some(ticket)) = (received, sending)
            && a.test(ticket).map_err(|e| e.to_string())?.is_some()
        {
            return Ok(());
        }
    }
}

fn by_proxy(handle: &[u8; HANDLE_LEN]) -> (Proxy, [u8; HANDLE_LEN]) {
    elsewhere(handle, |to| {
        let proxy = Proxy::new(to);
        let port = proxy.port;
        (proxy, port)
    })
}

fn encrypted(channel: &Channel) -> bool {
    let all: Vec<bool> = channel.rails().map(|info| info.reason.contains("encrypted with AES-256-GCM")).collect();
    assert!(!all.is_empty() && all.iter().all(|e| *e == all[0]), "{}", channel.describe());
    all[0]
}

#[test]
fn one_side_that_demands_encryption_is_enough_strict_or_not() {
    for strict in ["0", "1"] {
        for (mine, theirs) in [("auth", "auth"), ("auth", "encrypt"), ("encrypt", "auth"), ("encrypt", "encrypt")] {
            let env = [("LINKSPAN_STRICT", strict), ("LINKSPAN_TCP_STREAMS", "3")];
            let (a, b) = (Node::keyed(mine, &env), Node::keyed(theirs, &env));
            let listener = b.fabric.listen(0).unwrap();
            let handle = Handle::decode(&listener.handle()).unwrap();
            assert_eq!((handle.psk, handle.encrypt), (true, theirs == "encrypt"));
            let (_proxy, elsewhere) = by_proxy(&listener.handle());
            for (handle, rails) in [(listener.handle(), 1), (elsewhere, 3)] {
                let (mut here, mut there) = connect(&a.fabric, &listener, &handle).unwrap();
                assert_eq!(here.rails().count(), rails, "{}", here.describe());
                for end in [&here, &there] {
                    assert_eq!(encrypted(end), mine == "encrypt" || theirs == "encrypt", "{}", end.describe());
                }
                for len in [0, 1, 8192, 8193, 3_000_001] {
                    send(&mut here, &mut there, len).unwrap();
                    send(&mut there, &mut here, len).unwrap();
                }
            }
        }
    }
}

#[test]
fn bytes_of_processes_on_one_host_stay_in_shared_memory() {
    let env = [("LINKSPAN_PATH", "shm")];
    let (a, b) = (Node::keyed("encrypt", &env), Node::keyed("encrypt", &env));
    let listener = b.fabric.listen(0).unwrap();
    let (mut here, mut there) = connect(&a.fabric, &listener, &listener.handle()).unwrap();
    assert!(here.describe().starts_with("shm") && there.describe().starts_with("shm"), "{}", here.describe());
    send(&mut here, &mut there, 1 << 20).unwrap();
}

#[test]
fn a_key_on_one_side_or_two_different_keys_are_refused_by_name() {
    type Key = Option<&'static [u8]>;
    let cases: [(Key, Key, &str, &str); 3] = [
        (None, Some(KEY), "LS0215", "LS0216"),
        (Some(KEY), None, "LS0216", "LS0215"),
        (Some(KEY), Some(OTHER), "LS0217", "LS0217"),
    ];
    for mode in ["auth", "encrypt"] {
        for (mine, theirs, said, logged) in cases {
            let env = |key: Key| [("LINKSPAN_PSK_MODE", if key.is_some() { mode } else { "auth" })];
            let (a, b) = (Node::new(mine, &env(mine)), Node::new(theirs, &env(theirs)));
            let listener = b.fabric.listen(0).unwrap();
            let error = connect(&a.fabric, &listener, &listener.handle()).map(drop).unwrap_err();
            // At once, not when the connect timeout is over.
            assert!(matches!(error, Error::Refused { .. }), "{error}");
            let error = chain(&error);
            assert!(error.contains(said) && error.contains("LINKSPAN_PSK_FILE"), "{error}");
            assert_eq!(error.matches("LINKSPAN_PSK_FILE").count(), 1, "{error}");
            let lines = b.lines.lock().unwrap();
            let refusals: Vec<_> = lines.iter().filter(|line| line.contains(logged)).collect();
            assert!(refusals.len() == 1 && refusals[0].starts_with("WARN"), "one for all streams: {lines:?}");
        }
    }
}

#[test]
fn files_that_are_no_key_and_a_mode_without_one_are_refused_by_name() {
    let short = &KEY[..62];
    for (content, mode, code) in [(KEY, 0o644, "LS0244"), (KEY, 0o660, "LS0244"), (short, 0o600, "LS0241")] {
        let path = key_file(content, mode);
        let file = path.to_str().unwrap();
        for psk_mode in ["auth", "encrypt"] {
            let error = config(&[("LINKSPAN_PSK_FILE", file), ("LINKSPAN_PSK_MODE", psk_mode)]).unwrap_err();
            let text = chain(&error);
            assert!(text.contains("LS0503") && text.contains(code) && text.contains(file), "{text}");
            assert!(!text.contains("00112233"), "the key is shown: {text}");
        }
        std::fs::remove_file(path).unwrap();
    }
    let text = chain(&config(&[("LINKSPAN_PSK_FILE", "/no/such/key")]).unwrap_err());
    assert!(text.contains("LS0502") && text.contains("/no/such/key"), "{text}");
    let keyless = config(&[("LINKSPAN_PSK_MODE", "encrypt")]).unwrap();
    let text = chain(&Fabric::new(keyless, Log::off(), true, Vec::new()).unwrap_err());
    assert!(text.contains("LINKSPAN_PSK_MODE=encrypt") && text.contains("LINKSPAN_PSK_FILE is not set"), "{text}");
    let text = chain(&config(&[("LINKSPAN_PSK_MODE", "on")]).unwrap_err());
    assert!(text.contains("auth, encrypt"), "{text}");
    let warnings = config(&[("LINKSPAN_PSK_MODE", "auth")]).unwrap().warnings;
    assert!(warnings.iter().any(|w| w.contains("LINKSPAN_PSK_FILE")), "{warnings:?}");
    assert!(config(&[]).unwrap().warnings.is_empty());
}

#[test]
fn the_cable_shows_what_is_sent_in_auth_and_nothing_in_encrypt() {
    for (mode, shown) in [("auth", true), ("encrypt", false)] {
        let (a, b) = (Node::keyed(mode, &[]), Node::keyed(mode, &[]));
        let listener = b.fabric.listen(0).unwrap();
        let (proxy, handle) = by_proxy(&listener.handle());
        let (mut here, mut there) = connect(&a.fabric, &listener, &handle).unwrap();
        let setup = proxy.bytes();
        for _ in 0..4 {
            send(&mut here, &mut there, 100).unwrap();
            send(&mut there, &mut here, 1 << 20).unwrap();
        }
        assert!(proxy.bytes() > 4 << 20, "the proxy saw {} bytes", proxy.bytes());
        // Four bytes are in megabytes of ciphertext by chance.
        for (what, first) in [(KNOWN, usize::MAX), (b"LSPL", setup), (b"LSOK", setup)] {
            assert_eq!(proxy.saw(what, first), shown, "{mode}: {}", String::from_utf8_lossy(what));
        }
    }
}

#[test]
fn a_flipped_bit_ends_an_encrypted_connection_and_nothing_wrong_is_delivered() {
    for way in [Direction::There, Direction::Back] {
        let (a, b) = (Node::keyed("encrypt", &[]), Node::keyed("auth", &[]));
        let listener = b.fabric.listen(0).unwrap();
        let (proxy, handle) = by_proxy(&listener.handle());
        let (mut here, mut there) = connect(&a.fabric, &listener, &handle).unwrap();
        send(&mut here, &mut there, 1 << 20).unwrap();
        proxy.harm(Harm::Next { way, least: 1000 });
        let (from, to) = if way == Direction::There { (&mut here, &mut there) } else { (&mut there, &mut here) };
        let why = send(from, to, 1 << 20).unwrap_err();
        assert_eq!(proxy.harmed(), 1);
        assert!(why.contains("LS0103") && why.contains("LS0252") && why.contains("changed"), "{why}");
        assert!(why.contains("127.0.0.1"), "the path is named: {why}");
        assert!(to.lost().is_some_and(|lost| lost == why));
    }
}

/// Two rails, one of them tampered with: it is given up, the other delivers all, and what comes back is encrypted too.
#[test]
fn a_rail_that_comes_back_is_encrypted() {
    let env = [("LINKSPAN_TCP_STREAMS", "2")];
    let (a, b) = (Node::keyed("auth", &env), Node::keyed("encrypt", &env));
    let listener = b.fabric.listen(0).unwrap();
    let (proxy, handle) = by_proxy(&listener.handle());
    let (mut here, mut there) = connect(&a.fabric, &listener, &handle).unwrap();
    proxy.harm(Harm::Next { way: Direction::There, least: 1000 });
    let until = Instant::now() + Duration::from_secs(20);
    while !(proxy.harmed() == 1 && here.rails_lost() == 1 && here.rails().count() == 2 && there.rails().count() == 2) {
        assert!(Instant::now() < until, "{} {}", here.describe(), there.describe());
        send(&mut here, &mut there, 1 << 20).unwrap();
    }
    assert!(encrypted(&here) && encrypted(&there));
    assert!(here.describe().contains("came back") && there.describe().contains("came back"), "{}", here.describe());
    assert!(b.logged("LS0252"), "{:?}", b.lines.lock().unwrap());
    for _ in 0..4 {
        send(&mut here, &mut there, 1 << 20).unwrap();
        send(&mut there, &mut here, 1 << 20).unwrap();
    }
    assert!(!proxy.saw(KNOWN, usize::MAX));
}

/// The flags of hello and reply that ask for encryption and for the key, the plan, and its answer.
#[test]
fn nobody_on_the_cable_can_talk_two_ends_out_of_encryption() {
    let places = [
        ("the wish in the hello", Direction::There, 9, 2),
        ("the key in the hello", Direction::There, 9, 3),
        ("the word in the reply", Direction::Back, 5, 2),
        ("the plan's record length", Direction::There, LOGIN_THERE, 1),
        ("the plan's carrier", Direction::There, LOGIN_THERE + 4 + 4, 3),
        ("the plan's tag", Direction::There, LOGIN_THERE + 4 + 32 + 7, 0x80),
        ("the answer", Direction::Back, LOGIN_BACK + 4 + 1, 1),
        ("the answer's record length", Direction::Back, LOGIN_BACK + 1, 1),
    ];
    for (what, way, offset, bits) in places {
        let env = [("LINKSPAN_CONNECT_TIMEOUT_MS", "3000")];
        let (a, b) = (Node::keyed("encrypt", &env), Node::keyed("auth", &env));
        let listener = b.fabric.listen(0).unwrap();
        let (proxy, handle) = by_proxy(&listener.handle());
        proxy.harm(Harm::At { way, offset, bits });
        let mut connecting = a.fabric.connect(0, &handle).unwrap();
        let mut there = None;
        let until = Instant::now() + Duration::from_secs(20);
        let error = loop {
            assert!(Instant::now() < until, "{what}: neither up nor refused");
            match connecting.poll() {
                Ok(None) => {}
                Ok(Some(up)) => panic!("{what} was changed, and yet {}", up.describe()),
                Err(error) => break chain(&error),
            }
            there = there.or_else(|| listener.accept().unwrap());
        };
        assert!(proxy.harmed() > 0, "{what}: nothing was changed");
        assert!(error.contains("127.0.0.1"), "{what}: {error}");
        // Only after its answer does the listening side have a connection, and then an encrypted one that ends.
        if let Some(mut up) = there {
            assert!(what.contains("answer") && encrypted(&up), "{what}: {}", up.describe());
            drop(connecting);
            while up.progress().is_ok() {
                assert!(Instant::now() < until, "{what}: the connection lives on");
            }
            assert!(error.contains("LS0514") && error.contains("encrypted record"), "{what}: {error}");
        } else {
            let told = error.contains("LS02") || b.logged("LS02") || b.logged("an encrypted record of 33 bytes");
            assert!(told, "{what}: {error}, {:?}", b.lines.lock().unwrap());
        }
    }
}
