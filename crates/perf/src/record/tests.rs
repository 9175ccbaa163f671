use std::time::{Duration, Instant};

use super::*;
use crate::hist::Recorder;
use crate::session::Flow;
use crate::{Spec, Test};

fn outcome(test: Test) -> Outcome {
    Outcome {
        peer_memory: MemoryName::Host,
        began: Instant::now(),
        spec: Spec::new(test, 1000),
        up: None,
        down: None,
        round_trips: None,
        idle_round_trips: None,
        wrong_bytes: Some(0),
        cpu_local_ns: 500,
        cpu_peer_ns: 1000,
    }
}

#[test]
fn bulk_rows() {
    let flow = |messages, elapsed_ns| Some(Flow { messages, bytes: messages * 1000, elapsed_ns });
    let out = Outcome { up: flow(3, 1000), down: flow(1, 2000), ..outcome(Test::Bw) };
    let row = Row::of(&out, &LinkDesc { transport: "tcp".into(), ..LinkDesc::default() });
    assert_eq!((row.messages, row.bytes, row.elapsed_ns), (4, 4000, 2000));
    assert_eq!((row.bw_gbyte_s, row.bw_gbit_s, row.msg_per_s), (2.0, 16.0, 2e6));
    assert_eq!((row.cpu_local_s_per_gbyte, row.cpu_peer_s_per_gbyte), (Some(0.125), Some(0.25)));
    assert_eq!((row.transport.as_str(), row.latency.is_none()), ("tcp", true));
}

#[test]
fn latency_rows_are_half_round_trips() {
    let mut rec = Recorder::new();
    (0..10).for_each(|_| rec.record(4000));
    let row = Row::of(&Outcome { round_trips: Some(rec), ..outcome(Test::Lat) }, &LinkDesc::default());
    let latency = row.latency.unwrap();
    assert_eq!((latency.count, latency.min_ns, latency.p50_ns, latency.p99_99_ns), (10, 2000.0, 2000.0, 2000.0));
    assert_eq!(row.histogram.iter().map(|step| step.count).sum::<u64>(), 10);
    assert_eq!(row.window, 1);
    assert_eq!(row.cpu_local_s_per_gbyte, None, "processor time per byte means nothing here");
}

#[test]
fn several_streams() {
    let began = Instant::now();
    let one =
        |elapsed_ns| Outcome { began, up: Some(Flow { messages: 2, bytes: 2000, elapsed_ns }), ..outcome(Test::Bw) };
    let unchecked = Outcome { wrong_bytes: None, ..one(1000) };
    let row = Row::of_streams(&Streams { each: vec![one(1000), one(4000)], desc: LinkDesc::default() });
    assert_eq!(
        (row.streams, row.bytes, row.elapsed_ns, row.fairness, row.wrong_bytes),
        (2, 4000, 4000, Some(0.25), Some(0))
    );
    // One after another is not at once, whatever each took by itself.
    let late = |ns| Outcome { began: began + Duration::from_nanos(ns), ..one(1000) };
    let row = Row::of_streams(&Streams { each: vec![late(3000), one(1000), late(200)], desc: LinkDesc::default() });
    assert_eq!((row.elapsed_ns, row.bw_gbyte_s), (4000, 1.5));
    let row = Row::of_streams(&Streams { each: vec![one(1000), unchecked], desc: LinkDesc::default() });
    assert_eq!(row.wrong_bytes, None, "a stream that was not checked makes no claim for the others");
}
