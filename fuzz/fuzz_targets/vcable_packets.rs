//! Control packets, XDomain messages, property directories, traces: whatever comes in, reading ends, and what is
//! accepted goes back to the same words.
#![no_main]

use libfuzzer_sys::fuzz_target;
use linkspan_vcable::control::{Request, seal, unseal};
use linkspan_vcable::trace::{Trace, text};
use linkspan_vcable::xdomain::property::Directory;
use linkspan_vcable::xdomain::{Body, Message};

fuzz_target!(|bytes: &[u8]| {
    let _ = Trace::parse(bytes);
    let Some((&kind, rest)) = bytes.split_first() else { return };
    let _ = text::control(kind, rest);
    if let Ok(words) = unseal(rest) {
        assert_eq!(seal(&words), rest);
    }
    // A random CRC is never right: the fields behind it are reached without.
    let words: Vec<u32> = rest.chunks_exact(4).map(|w| w.iter().fold(0, |v, b| v << 8 | u32::from(*b))).collect();
    let _ = Request::decode(kind, &words);
    if words.len() < 64 {
        let _ = text::control(kind, &seal(&words));
    }
    // Longer than any packet is, a message cannot be sent again.
    if let Some(message) = Message::decode(&words).filter(|_| words.len() < 64) {
        assert_eq!(Message::decode(&message.encode()).as_ref(), Some(&message));
        if let Some(Body::PropertiesResponse { data, .. }) = message.body() {
            let _ = Directory::parse(&data);
        }
    }
    if let Ok(directory) = Directory::parse(&words) {
        let _ = text::properties(&directory);
    }
});
