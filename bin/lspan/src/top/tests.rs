use std::time::{Duration, Instant};

use linkspan_fabric::stats::{BUCKETS, Counter, ProcessStats, Record};
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::style::Color;

use super::model::Model;
use super::source::Sample;
use super::{pressed, view};

fn record(device: &str, transport: &str, sent: u64) -> Record {
    let mut counters = vec![0; Counter::ALL.len()];
    for (counter, value) in [
        (Counter::TxBytes, sent),
        (Counter::RxBytes, sent / 2),
        (Counter::TxOps, sent / 1000),
        (Counter::Open, 2),
        (Counter::Connections, 3),
    ] {
        counters[counter as usize] = value;
    }
    let mut latency = vec![0; BUCKETS];
    latency[5] = sent / 1000;
    let reason = "chosen by the peer".into();
    Record { device: device.into(), transport: transport.into(), reason, counters, latency, ..Record::default() }
}

fn process(pid: u32, comm: &str, records: Vec<Record>) -> ProcessStats {
    ProcessStats { pid, uid: 1000, comm: comm.into(), job: "42".into(), records, ..ProcessStats::default() }
}

/// Two samples, one second apart: a trainer over two paths and a server.
fn model() -> Model {
    let mut model = Model::new(false);
    let start = Instant::now();
    for second in 0..3_u64 {
        let sent = 1_000_000_000 * second;
        let mut slow = process(7, "server", vec![record("eth0", "tcp", sent / 10)]);
        slow.downgrades = 1;
        slow.last_downgrade = "TCP in place of RDMA: mlx5_0 has no active port".into();
        slow.records[0].counters[Counter::RailsLost as usize] = second;
        let trainer = process(4711, "python3", vec![record("shm", "shm", sent), record("mlx5_0", "verbs", sent / 2)]);
        let sample = Sample { host: "mini1".into(), found: Ok(vec![slow, trainer]) };
        model.feed(sample, start + Duration::from_secs(second));
    }
    model
}

fn press(model: &mut Model, keys: &str) -> bool {
    keys.chars().all(|c| {
        let code = match c {
            '\n' => KeyCode::Enter,
            '\u{8}' => KeyCode::Backspace,
            'v' => KeyCode::Down,
            '^' => KeyCode::Up,
            c => KeyCode::Char(c),
        };
        pressed(model, KeyEvent::new(code, KeyModifiers::NONE))
    })
}

/// The screen as text.
fn screen(model: &Model, width: u16, height: u16) -> String {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| view::draw(frame, model, false)).unwrap();
    let buffer = terminal.backend().buffer().clone();
    let line =
        |y| (0..width).map(|x| buffer[(x, y)].symbol().to_owned()).collect::<String>().trim_end().to_owned() + "\n";
    (0..height).map(line).collect()
}

#[test]
fn the_screen_of_80_columns_and_24_lines_is_as_kept() {
    let shown = screen(&model(), 80, 24);
    let kept = include_str!("screen.txt");
    assert_eq!(shown, kept, "\n{shown}");
}

#[test]
fn a_slow_path_is_shown_with_its_reason_and_found_by_it() {
    let mut model = model();
    press(&mut model, "/rdma\n");
    assert_eq!(model.rows().len(), 1);
    let shown = screen(&model, 120, 24);
    assert!(
        shown.contains("last slow path of the process: TCP in place of RDMA: mlx5_0 has no active port"),
        "{shown}"
    );
}

/// As that of a relay.
#[test]
fn a_path_without_a_reason_has_no_line_for_one() {
    let plain = Record { reason: String::new(), ..record("eth0", "relay", 5) };
    let mut model = Model::new(false);
    model.feed(Sample { host: "mini1".into(), found: Ok(vec![process(7, "a", vec![plain])]) }, Instant::now());
    let shown = screen(&model, 120, 24);
    assert!(shown.contains("relay") && !shown.contains("why:") && !shown.contains("last slow path"), "{shown}");
}

#[test]
fn without_colour_no_cell_has_one() {
    let model = model();
    let coloured = |colour: bool| {
        let mut terminal = Terminal::new(TestBackend::new(80, 24)).unwrap();
        terminal.draw(|frame| view::draw(frame, &model, colour)).unwrap();
        let cells = terminal.backend().buffer().content.clone();
        cells.iter().filter(|cell| (cell.fg, cell.bg) != (Color::Reset, Color::Reset)).count()
    };
    assert_eq!(coloured(false), 0);
    assert!(coloured(true) > 0);
}

#[test]
fn rows_follow_the_column_the_direction_and_the_filter() {
    let mut model = model();
    let order = |model: &Model| model.rows().iter().map(|row| row.key.transport.clone()).collect::<Vec<_>>();
    assert_eq!(order(&model), ["shm", "verbs", "tcp"], "by what is sent");
    press(&mut model, "r");
    assert_eq!(order(&model), ["tcp", "verbs", "shm"]);
    // Five columns on: rails lost.
    press(&mut model, "rsssss");
    assert_eq!(order(&model)[0], "tcp");
    press(&mut model, "/PYTHONX\u{8}\n");
    assert_eq!(order(&model).len(), 2);
    press(&mut model, "/4711\u{8}");
    assert!(order(&model).is_empty(), "the filter is added to");
    assert!(screen(&model, 80, 24).contains("filter: PYTHON471_"));
    assert!(press(&mut model, "q"), "a letter of the filter");
    press(&mut model, "\n");
    assert!(!press(&mut model, "q"));
}

#[test]
fn the_selected_row_stays_where_the_order_changes_and_ends_with_its_path() {
    let mut model = model();
    press(&mut model, "v");
    let name = |model: &Model| {
        let rows = model.rows();
        model.selected(&rows).map(|at| rows[at].key.transport.clone())
    };
    assert_eq!(name(&model).as_deref(), Some("verbs"));
    press(&mut model, "r");
    assert_eq!(name(&model).as_deref(), Some("verbs"));
    press(&mut model, "vvvvvv");
    assert_eq!(name(&model).as_deref(), Some("shm"), "the last");
    let none = Sample { host: "mini1".into(), found: Ok(Vec::new()) };
    model.feed(none, Instant::now());
    assert_eq!(name(&model), None);
    assert!(screen(&model, 80, 24).contains("No process uses linkspan"));
}

#[test]
fn what_is_frozen_stays() {
    let mut model = model();
    press(&mut model, "f");
    let before = screen(&model, 120, 30);
    assert!(before.contains("FROZEN"));
    model.feed(Sample { host: "mini1".into(), found: Ok(Vec::new()) }, Instant::now());
    assert_eq!(screen(&model, 120, 30), before);
    press(&mut model, "f");
    model.feed(Sample { host: "mini1".into(), found: Ok(Vec::new()) }, Instant::now());
    assert_ne!(screen(&model, 120, 30), before);
}

#[test]
fn hosts_are_told_apart_and_one_that_is_silent_says_why() {
    let mut model = Model::new(true);
    let one =
        |host: &str| Sample { host: host.into(), found: Ok(vec![process(7, "a", vec![record("eth0", "tcp", 5)])]) };
    model.feed(one("mini1"), Instant::now());
    model.feed(one("mini2"), Instant::now());
    assert_eq!(model.rows().len(), 2);
    assert_eq!(model.sums().0, 2, "processes of one number on two hosts");
    model.feed(Sample { host: "mini2".into(), found: Err("No route to host".into()) }, Instant::now());
    assert_eq!(model.rows().len(), 1);
    let shown = screen(&model, 100, 24);
    assert!(shown.contains("mini1") && shown.contains("mini2: No route to host"), "{shown}");
}

#[test]
fn a_process_that_begins_again_under_its_number_has_no_negative_rate() {
    let mut model = model();
    let later = Instant::now() + Duration::from_secs(10);
    let again = process(7, "server", vec![record("eth0", "tcp", 1)]);
    model.feed(Sample { host: "mini1".into(), found: Ok(vec![again]) }, later);
    assert_eq!(model.rows()[0].rates, None);
}

#[test]
fn terminals_of_any_size_are_drawn_to() {
    let mut model = model();
    for (width, height) in [(1, 1), (10, 3), (40, 10), (300, 80)] {
        screen(&model, width, height);
    }
    press(&mut model, "h");
    assert!(screen(&model, 80, 24).contains("freeze what is shown"));
}
