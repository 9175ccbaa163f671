//! Our own columns.

use std::fmt::Write;

use super::wrong;
use crate::record::{BaselineRow, Latency, Row};
use crate::units::{show_size, show_us};

pub(super) fn head(row: &Row) -> String {
    match &*row.test {
        "bw" | "multi" => format!(
            "{:>8} {:>7} {:>7} {:>11} {:>9} {:>8} {:>12} {:>17} {:>7}\n",
            "size", "streams", "window", "messages", "Gb/s", "GB/s", "msg/s", "CPU s/GB own/peer", "#wrong"
        ),
        _ => format!(
            "{:>8} {:>9} {:>8} {:>8} {:>8} {:>8} {:>8} {:>8} {:>8} {:>8} {:>8} {:>8} {:>7}\n",
            "size",
            "count",
            "min us",
            "avg",
            "p50",
            "p90",
            "p99",
            "p99.9",
            "p99.99",
            "max",
            "stddev",
            "jitter",
            "#wrong"
        ),
    }
}

pub(super) fn row(row: &Row) -> String {
    let mut text = String::new();
    match (&row.latency, &*row.test) {
        (Some(latency), "load") => {
            if let Some(idle) = &row.idle_latency {
                text.push_str(&line("idle", row, idle));
            }
            text.push_str(&line("loaded", row, latency));
            let factor = row.idle_latency.as_ref().map_or(0.0, |idle| latency.p50_ns / idle.p50_ns.max(1.0));
            let _ = writeln!(
                text,
                "{:>8} pings of {}, bulk of {} ({}): {:.2} Gb/s ({:.3} GB/s); median latency x{factor:.1}",
                "",
                show_size(row.size_bytes),
                show_size(row.load_size_bytes.unwrap_or(0)),
                row.direction,
                row.bw_gbit_s,
                row.bw_gbyte_s,
            );
        }
        (Some(latency), "connect") => {
            text.push_str(&line("-", row, latency));
            let _ = writeln!(text, "{:>8} {:.0} connections per second, one after another", "", row.msg_per_s);
        }
        (Some(latency), _) => text.push_str(&line(&show_size(row.size_bytes), row, latency)),
        (None, _) => {
            let cpu = match (row.cpu_local_s_per_gbyte, row.cpu_peer_s_per_gbyte) {
                (Some(local), Some(peer)) => format!("{local:.2}/{peer:.2}"),
                _ => "-".into(),
            };
            let _ = writeln!(
                text,
                "{:>8} {:>7} {:>7} {:>11} {:>9.3} {:>8.4} {:>12.0} {:>17} {:>7}",
                show_size(row.size_bytes),
                row.streams,
                row.window,
                row.messages,
                row.bw_gbit_s,
                row.bw_gbyte_s,
                row.msg_per_s,
                cpu,
                wrong(row)
            );
        }
    }
    for base in &row.baseline {
        let _ = writeln!(text, "{:>8} {}", "", baseline(base));
    }
    for note in &row.baseline_notes {
        let _ = writeln!(text, "{:>8} {note}", "");
    }
    text
}

fn line(first: &str, row: &Row, latency: &Latency) -> String {
    let us = |ns: f64| show_us(ns);
    format!(
        "{:>8} {:>9} {:>8} {:>8} {:>8} {:>8} {:>8} {:>8} {:>8} {:>8} {:>8} {:>8} {:>7}\n",
        first,
        latency.count,
        us(latency.min_ns),
        us(latency.avg_ns),
        us(latency.p50_ns),
        us(latency.p90_ns),
        us(latency.p99_ns),
        us(latency.p99_9_ns),
        us(latency.p99_99_ns),
        us(latency.max_ns),
        us(latency.stddev_ns),
        us(latency.jitter_ns),
        wrong(row)
    )
}

fn baseline(base: &BaselineRow) -> String {
    let name = match &*base.kind {
        "bare_tcp" => "bare TCP loop",
        "bare_tcp_window" => "bare TCP, same window",
        "split_cma" => "direct copy",
        "cache_line" => "cache line",
        other => other,
    };
    let value = |value: f64| match &*base.measure {
        "half_round_trip_ns" => format!("{} us", show_us(value)),
        "msg_per_s" => format!("{:.3} M/s", value / 1e6),
        _ => format!("{value:.3} GB/s"),
    };
    let mut text = format!("{:.2}x {name}: {} against {}", base.ratio, value(base.ours), value(base.base));
    if base.rounds > 1 {
        let _ = write!(text, "; {} pairs, {:.2}x to {:.2}x", base.rounds, base.ratio_min, base.ratio_max);
    }
    if let (Some(cpu), Some(ours), Some(theirs)) =
        (base.cpu_ratio, base.cpu_ours_s_per_gbyte, base.cpu_base_s_per_gbyte)
    {
        let _ = write!(text, "; CPU {cpu:.2}x, {} against {} s/GB", seconds(ours), seconds(theirs));
    }
    if let Some(congestion) = base.congestion.as_deref().filter(|name| !name.is_empty()) {
        let _ = write!(text, "; {congestion}");
    }
    text
}

/// Three figures or so: small messages take hundreds of seconds per gigabyte, large ones a tenth.
fn seconds(value: f64) -> String {
    if value < 10.0 { format!("{value:.3}") } else { format!("{value:.0}") }
}

/// The distribution behind a row as lines of `#`, at most `width` of them. Empty where there is none.
pub fn histogram(row: &Row, width: usize) -> String {
    let most = row.histogram.iter().map(|step| step.count).max().unwrap_or(0);
    let total: u64 = row.histogram.iter().map(|step| step.count).sum();
    let mut text = String::new();
    let mut sum = 0;
    for step in row.histogram.iter().filter(|_| most > 0) {
        sum += step.count;
        // A step with any sample shows at least one mark.
        let bar = (step.count as f64 / most as f64 * width as f64).round() as usize;
        let bar = if step.count > 0 { bar.max(1) } else { 0 };
        let share = sum as f64 * 100.0 / total as f64;
        let _ = writeln!(text, "{:>12} us {:>9} {share:>7.3}% {}", show_us(step.upto_ns), step.count, "#".repeat(bar));
    }
    text
}

/// Aligns cells in columns: the first left, the others as wide as needed, two spaces between, no trailing space.
pub fn table(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut text = String::new();
    for row in rows {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(&widths) {
            let _ = write!(line, "{cell:<width$}  ");
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}
