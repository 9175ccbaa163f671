//! The 128-byte handle: decoding is total, and what it accepts goes back to the same bytes but for the scratch.
#![no_main]

use libfuzzer_sys::fuzz_target;
use linkspan_proto::handle::{HANDLE_LEN, HANDLE_MAGIC, HANDLE_VERSION, Handle, SCRATCH_AT};

fuzz_target!(|bytes: &[u8]| {
    let Some((raw, _)) = bytes.split_first_chunk::<HANDLE_LEN>() else { return };
    check(raw);
    // Past the first two checks whatever the fuzzer thinks of them.
    let mut ours = *raw;
    ours[..4].copy_from_slice(&HANDLE_MAGIC);
    ours[4] = HANDLE_VERSION;
    check(&ours);
});

fn check(raw: &[u8; HANDLE_LEN]) {
    let Ok(handle) = Handle::decode(raw) else { return };
    for addr in handle.addrs() {
        let _ = addr.socket();
    }
    let again = handle.encode();
    assert_eq!(again[..SCRATCH_AT], raw[..SCRATCH_AT], "one handle, two forms");
    assert_eq!(Handle::decode(&again).as_ref(), Ok(&handle));
}
