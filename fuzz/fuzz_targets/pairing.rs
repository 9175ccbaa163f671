//! Texts of a pairing: a join line and a peer's line. Both are total, and what they accept has one meaning.
#![no_main]

use libfuzzer_sys::fuzz_target;
use linkspan_fabric::keys::{HOSTS_MAX, LINE_MAX, NAME_MAX, Peer};
use linkspan_service::pairing::JoinLine;

fuzz_target!(|bytes: &[u8]| {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    if let Ok(line) = JoinLine::parse(text) {
        assert_eq!(JoinLine::parse(&line.text()), Ok(line));
    }
    if let Ok(peer) = Peer::parse(text) {
        assert!(peer.name.len() <= NAME_MAX && peer.hosts.len() <= HOSTS_MAX && peer.line().len() <= LINE_MAX);
        assert!(!peer.line().chars().any(char::is_control));
        assert_eq!(Peer::parse(&peer.line()).expect("what was read is written"), peer);
    }
});
