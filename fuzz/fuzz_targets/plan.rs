//! The plan of a connection and the greetings: decoding is total, and what it accepts goes back to the same bytes.
#![no_main]

use libfuzzer_sys::fuzz_target;
use linkspan_proto::greeting::Greeting;
use linkspan_proto::plan::{Carrier, MAX_STREAMS, PLAN_LEN, Plan};

fuzz_target!(|bytes: &[u8]| {
    greeting(bytes);
    let Some((raw, _)) = bytes.split_first_chunk::<PLAN_LEN>() else { return };
    plan(raw);
    // Past the first check whatever the fuzzer thinks of it.
    let mut ours = *raw;
    ours[..4].copy_from_slice(b"LSPL");
    plan(&ours);
});

fn plan(raw: &[u8; PLAN_LEN]) {
    let Ok(plan) = Plan::decode(raw) else { return };
    assert!((1..=MAX_STREAMS).contains(&plan.streams.len()));
    let one_rail = if plan.carrier == Carrier::Devmem { 2 } else { 1 };
    assert!(plan.acked || plan.streams.len() == one_rail, "several rails need acknowledgements");
    assert!(plan.streams.len().is_multiple_of(one_rail), "half a rail");
    assert!(plan.carrier != Carrier::Shm || plan.streams.len() == 1);
    let used = PLAN_LEN - 2 * (MAX_STREAMS - plan.streams.len());
    let again = plan.encode();
    assert_eq!(again[..used], raw[..used], "one plan, two forms");
    assert_eq!(Plan::decode(&again), Ok(plan));
}

fn greeting(bytes: &[u8]) {
    let Some(greeting) = Greeting::decode(bytes) else { return };
    assert!(greeting.shm.len() + 4 <= bytes.len());
    assert_eq!(Greeting::decode(&greeting.encode()), Some(greeting));
}
