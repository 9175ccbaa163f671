//! What a peer says about files and over a pipe, and the journal of a partial file: decoding is total, and a message that is accepted goes
//! back to itself.
#![no_main]

use libfuzzer_sys::fuzz_target;
use linkspan_files::journal::{self, RECORD_LEN, Whereabouts};
use linkspan_files::name::{RelPath, escape};
use linkspan_files::pipe;
use linkspan_files::wire::Message;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(message) = Message::decode(bytes) {
        assert_eq!(Message::decode(&message.encode()).as_ref(), Ok(&message));
    }
    // A piece of the stream is whatever follows its first byte.
    assert!(pipe::is_frame(bytes) || bytes.first() != Some(&0));
    if let Some(place) = Whereabouts::decode(bytes) {
        assert_eq!(Whereabouts::decode(&place.encode()), Some(place));
    }
    if let Some((record, _)) = bytes.split_first_chunk::<RECORD_LEN>() {
        let _ = journal::decode(u64::from(bytes[0]), record);
    }
    if let Ok(path) = RelPath::new(bytes) {
        assert!(path.bytes().split(|&b| b == b'/').all(|name| name != b".." && name != b"." && !name.contains(&0)));
    }
    assert!(!escape(bytes).chars().any(char::is_control));
});
