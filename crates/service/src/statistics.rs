//! Statistics as JSON shows them.

use linkspan_fabric::stats::{Counter, Event, ProcessStats};
use serde_json::{Map, Value, json};

/// A process of `linkspan.stats/1`.
pub fn json(process: &ProcessStats) -> Value {
    let records: Vec<Value> = process
        .records
        .iter()
        .map(|record| {
            let mut fields = Map::new();
            fields.insert("device".into(), record.device.as_str().into());
            fields.insert("transport".into(), record.transport.as_str().into());
            if !record.peer.is_empty() {
                fields.insert("peer".into(), record.peer.as_str().into());
            }
            if !record.reason.is_empty() {
                fields.insert("reason".into(), record.reason.as_str().into());
            }
            for (counter, value) in Counter::ALL.iter().zip(&record.counters) {
                fields.insert(counter.name().into(), (*value).into());
            }
            fields.insert("latency_below_2_pow_n_us".into(), record.latency.clone().into());
            Value::Object(fields)
        })
        .collect();
    let events: Map<String, Value> = events(process).map(|(event, n)| (event.name().into(), n.into())).collect();
    let mut value = json!({ "pid": process.pid, "uid": process.uid, "comm": process.comm, "job": process.job, "uptime_s": process.uptime.as_secs_f64(), "start_unix_us": process.start.as_micros() as u64, "downgrades": process.downgrades, "events": events, "paths": records });
    if !process.last_downgrade.is_empty() {
        value["last_downgrade"] = process.last_downgrade.as_str().into();
    }
    value
}

/// How often each of these happened.
pub fn events(process: &ProcessStats) -> impl Iterator<Item = (Event, u64)> {
    Event::ALL.iter().copied().zip(process.events.iter().copied())
}
