use std::collections::BTreeMap;

use super::*;
use crate::record::{BaselineRow, HostInfo, Latency, Record, SCHEMA, Step};

fn bulk(size: u64) -> Row {
    Row {
        test: "bw".into(),
        transport: "tcp".into(),
        path: "a -> b".into(),
        size_bytes: size,
        direction: "send".into(),
        streams: 1,
        window: 8,
        messages: 100,
        bytes: size * 100,
        elapsed_ns: 1_000_000,
        bw_gbit_s: 8.0,
        bw_gbyte_s: 1.0,
        msg_per_s: 1e5,
        wrong_bytes: Some(0),
        ..Row::default()
    }
}

fn latency(size: u64) -> Row {
    let latency = Latency {
        count: 10,
        min_ns: 1000.0,
        avg_ns: 2000.0,
        max_ns: 9000.0,
        stddev_ns: 10.0,
        p50_ns: 1900.0,
        p90_ns: 3000.0,
        p99_ns: 4000.0,
        p99_9_ns: 5000.0,
        p99_99_ns: 6000.0,
        jitter_ns: 7.0,
    };
    let histogram = vec![Step { upto_ns: 2000.0, count: 9 }, Step { upto_ns: 9000.0, count: 1 }];
    Row { test: "lat".into(), latency: Some(latency), histogram, messages: 0, bytes: 0, ..bulk(size) }
}

#[test]
fn columns_have_names_once_per_kind_of_test() {
    let mut printer = Printer::new(Style::Human);
    let first = printer.row(&bulk(8));
    assert_eq!(first.lines().count(), 2);
    assert!(first.contains("Gb/s") && first.contains("GB/s") && first.contains("#wrong"));
    assert_eq!(printer.row(&bulk(16)).lines().count(), 1);
    assert_eq!(printer.row(&latency(8)).lines().count(), 2);
}

#[test]
fn what_was_not_checked_is_a_dash_and_what_is_wrong_is_counted() {
    let last = |wrong_bytes| {
        let text = Printer::new(Style::Human).row(&Row { wrong_bytes, ..bulk(8) });
        text.lines().last().unwrap().split_whitespace().last().unwrap().to_owned()
    };
    assert_eq!((last(None), last(Some(7))), ("-".to_owned(), "7".to_owned()));
}

#[test]
fn columns_of_nccl_tests() {
    let mut printer = Printer::new(Style::Nccl);
    let text = printer.row(&bulk(1000)) + &printer.row(&Row { wrong_bytes: Some(3), ..bulk(2000) }) + &printer.end();
    let rows: Vec<Vec<&str>> =
        text.lines().filter(|line| !line.starts_with('#')).map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(rows[0], ["1000", "1000", "uint8", "none", "-1", "10.00", "1.00", "1.00", "0"]);
    assert_eq!(rows[1][8], "3");
    assert!(text.contains("# Out of bounds values : 3 FAILED\n# Avg bus bandwidth    : 1.00000\n"), "{text}");
}

#[test]
fn both_ways_at_once_are_one_sendrecv_of_nccl_tests() {
    let cells = |row: &Row| -> Vec<String> {
        let text = Printer::new(Style::Nccl).row(row);
        text.lines().last().unwrap().split_whitespace().map(str::to_owned).collect()
    };
    // 50 messages each way in a millisecond.
    let both = cells(&Row { direction: "both".into(), ..bulk(1000) });
    assert_eq!(both[5..8], ["20.00", "0.50", "0.50"]);
    let lat = cells(&Row { direction: "both".into(), ..latency(1000) });
    assert_eq!(lat[5..8], ["2.00", "0.50", "0.50"], "a ping has one direction at a time");
}

#[test]
fn columns_of_perftest() {
    let text = Printer::new(Style::Perftest).row(&bulk(1000));
    assert!(text.starts_with(" #bytes     #iterations      BW peak[Gb/sec]"), "{text}");
    let cells: Vec<&str> = text.lines().nth(1).unwrap().split_whitespace().collect();
    assert_eq!(cells, ["1000", "100", "0.00", "8.00", "0.100000"]);
    let text = Printer::new(Style::Perftest).row(&latency(8));
    let cells: Vec<&str> = text.lines().nth(1).unwrap().split_whitespace().collect();
    assert_eq!(cells, ["8", "10", "1.00", "9.00", "1.90", "2.00", "0.01", "4.00", "5.00"]);
}

#[test]
fn a_histogram_shows_every_step_that_has_samples() {
    let text = histogram(&latency(8), 10);
    let bars: Vec<usize> = text.lines().map(|line| line.matches('#').count()).collect();
    assert_eq!(bars, [10, 1]);
    assert!(text.lines().last().unwrap().contains("100.000%"));
    assert_eq!(histogram(&bulk(8), 10), "");
}

#[test]
fn baselines_read_as_ratios() {
    let base = BaselineRow {
        kind: "bare_tcp".into(),
        measure: "half_round_trip_ns".into(),
        ours: 3300.0,
        base: 3000.0,
        ratio: 1.1,
        ratio_min: 1.05,
        ratio_max: 1.2,
        rounds: 10,
        congestion: Some("cubic".into()),
        ..BaselineRow::default()
    };
    let busy = BaselineRow {
        kind: "bare_tcp_window".into(),
        measure: "msg_per_s".into(),
        cpu_ratio: Some(1.1),
        cpu_ours_s_per_gbyte: Some(0.33),
        cpu_base_s_per_gbyte: Some(0.3),
        ..base.clone()
    };
    let text = Printer::new(Style::Human).row(&Row { baseline: vec![base], ..latency(8) });
    assert!(text.contains("1.10x bare TCP loop: 3.300 us against 3.000 us; 10 pairs, 1.05x to 1.20x; cubic"), "{text}");
    let row = Row { baseline: vec![busy], baseline_notes: vec!["split_cma not measured: why".into()], ..bulk(8) };
    let text = Printer::new(Style::Human).row(&row);
    assert!(
        text.contains("same window: 0.003 M/s against 0.003 M/s") && text.contains("split_cma not measured: why"),
        "{text}"
    );
    assert!(text.contains("CPU 1.10x, 0.330 against 0.300 s/GB"), "{text}");
}

#[test]
fn tables_line_up() {
    let rows = [["a", "bb"], ["ccc", "d"]].map(|row| row.map(String::from).to_vec());
    assert_eq!(table(&rows), "a    bb\nccc  d\n");
}

#[test]
fn a_page_is_self_contained_and_escapes() {
    let record = Record {
        schema: SCHEMA,
        version: "1".into(),
        time_unix_s: 0,
        command: vec!["lspan".into(), "<script>".into()],
        host: HostInfo::default(),
        peer: Some("a&b".into()),
        env: BTreeMap::new(),
        results: vec![bulk(8), bulk(1 << 20), latency(8)],
        ok: true,
        exit_code: 0,
        downgrades: Vec::new(),
        error: None,
    };
    let text = page(&record);
    // Bandwidth, two of latency, one distribution.
    assert_eq!(text.matches("<svg").count(), 4);
    assert_eq!(text.matches("<svg").count(), text.matches("</svg>").count());
    assert!(!text.contains("<script") && text.contains("&lt;script&gt;") && text.contains("a&amp;b"));
    assert!(text.contains("Bandwidth") && text.contains("Complete") && text.contains("1970-01-01T00:00:00+00:00"));
    let part = page(&Record { results: vec![Row { wrong_bytes: None, ..bulk(8) }], ..empty() });
    assert!(part.contains("Complete") && !part.contains("no wrong byte"), "nothing checked, nothing claimed");
    let bad = page(&Record { ok: false, error: Some("gone".into()), ..record });
    assert!(bad.contains("class=bad>gone") && !bad.contains("Degraded"));
    let relayed = page(&Record { downgrades: vec!["relayed over <b>".into()], ..empty() });
    assert!(relayed.contains("Degraded: relayed over &lt;b&gt;"));
    assert!(page(&empty()).contains("</html>"));
}

fn empty() -> Record {
    Record {
        schema: SCHEMA,
        version: String::new(),
        time_unix_s: 0,
        command: Vec::new(),
        host: HostInfo::default(),
        peer: None,
        env: BTreeMap::new(),
        results: Vec::new(),
        ok: true,
        exit_code: 0,
        downgrades: Vec::new(),
        error: None,
    }
}
