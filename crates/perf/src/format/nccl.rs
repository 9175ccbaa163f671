//! Columns of nccl-tests. A stream of messages is shown as the point-to-point `sendrecv`: bus bandwidth is the
//! bandwidth itself, and one operation of both directions is a message each way.

use super::{each_ns, wrong};
use crate::record::Row;

pub(super) fn head(_: &Row) -> String {
    format!(
        "#\n# {:>11} {:>13} {:>9} {:>7} {:>7} {:>8} {:>7} {:>7} {:>6}\n# {:>11} {:>13} {:>9} {:>7} {:>7} {:>8} {:>7} {:>7} {:>6}\n",
        "size",
        "count",
        "type",
        "redop",
        "root",
        "time",
        "algbw",
        "busbw",
        "#wrong",
        "(B)",
        "(elements)",
        "",
        "",
        "",
        "(us)",
        "(GB/s)",
        "(GB/s)",
        ""
    )
}

pub(super) fn row(row: &Row) -> String {
    let bandwidth = bandwidth(row);
    format!(
        "  {:>11} {:>13} {:>9} {:>7} {:>7} {:>8.2} {:>7.2} {:>7.2} {:>6}\n",
        row.size_bytes,
        row.size_bytes,
        "uint8",
        "none",
        -1,
        each_ns(row) * if row.latency.is_none() { ways(row) } else { 1.0 } / 1000.0,
        bandwidth,
        bandwidth,
        match row.wrong_bytes {
            Some(_) => wrong(row),
            None => "N/A".into(),
        }
    )
}

/// Messages of one operation.
fn ways(row: &Row) -> f64 {
    if row.direction == "both" { 2.0 } else { 1.0 }
}

/// GB/s; of a latency test what one message at a time makes of it.
fn bandwidth(row: &Row) -> f64 {
    match &row.latency {
        Some(latency) if row.test != "load" => row.size_bytes as f64 / latency.avg_ns.max(1.0),
        _ => row.bw_gbyte_s / ways(row),
    }
}

pub(super) fn end(rows: &[Row]) -> String {
    let out_of_bounds: u64 = rows.iter().filter_map(|row| row.wrong_bytes).fold(0, u64::saturating_add);
    let average = rows.iter().map(bandwidth).sum::<f64>() / rows.len().max(1) as f64;
    let word = if out_of_bounds == 0 { "OK" } else { "FAILED" };
    format!("# Out of bounds values : {out_of_bounds} {word}\n# Avg bus bandwidth    : {average:.5}\n#\n")
}
