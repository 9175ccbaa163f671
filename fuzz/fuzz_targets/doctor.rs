//! Files that `lspan doctor --merge` reads, and judging them together.
#![no_main]

use libfuzzer_sys::fuzz_target;
use linkspan_doctor::{End, together};

fuzz_target!(|bytes: &[u8]| {
    // Two files, parted by a byte that JSON does not have.
    let ends: Vec<End> = bytes.split(|byte| *byte == 0).filter_map(|file| End::parse(file).ok()).collect();
    for end in &ends {
        let text = serde_json::json!({ "schema": "linkspan.doctor/1", "end": end }).to_string();
        assert_eq!(End::parse(text.as_bytes()).ok().as_ref(), Some(end), "what was read is written and read alike");
    }
    for finding in together(&ends).map(|report| report.findings).unwrap_or_default() {
        assert!(!finding.what.contains(['\u{1b}', '\n']), "{}", finding.what);
    }
});
