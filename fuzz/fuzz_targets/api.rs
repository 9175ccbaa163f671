//! What the library reads from outside: URLs, remote buffers, hellos. Decoding is total, and what it accepts has one form.
#![no_main]

use libfuzzer_sys::fuzz_target;
use linkspan::hello::Hello;
use linkspan::{RemoteBuffer, Url};

fuzz_target!(|bytes: &[u8]| {
    if let Ok(buffer) = RemoteBuffer::decode(bytes) {
        assert_eq!(buffer.encode(), bytes, "one remote buffer, two forms");
        let _ = buffer.slice(1, buffer.len().saturating_sub(1));
    }
    if let Ok(hello) = Hello::decode(bytes) {
        assert_eq!(Hello::decode(&hello.encode()), Ok(hello));
    }
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    for text in [text.to_owned(), format!("linkspan://1/{text}")] {
        if let Ok(url) = text.parse::<Url>() {
            assert_eq!(url.to_string(), text.trim(), "one URL, two forms");
            assert!(!format!("{url:?}").contains(&url.to_string()[80..]), "a secret in Debug");
        }
    }
});
