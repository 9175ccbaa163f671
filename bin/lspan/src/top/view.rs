//! The screen: sums, the table, and the selected path with its history. Made for 80 columns and 24 lines; wider terminals
//! show more columns.

use linkspan_fabric::stats::Counter;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Text};
use ratatui::widgets::{Block, Cell, Paragraph, Row as Shown, Sparkline, Table, TableState, Wrap};

use super::model::{Column, Model, Row};

/// Lines of the part that shows the selected path, with its border.
const DETAIL: u16 = 10;

const HELP: &str = "Up, Down      select a path
s, S          sort by the next column, the one before
r             turn the order round
/             filter by host, program, pid, job, path, device, peer or reason; Enter keeps it, Esc ends it
f, space      freeze what is shown, and go on
h             this page
q, Esc        end

conns: connections up.  latency: half of the operations since the last look took less.
stall/s: posts refused because too much was in flight.  retry/s: TCP segments sent again.
lost: rails lost.  slow: paths slower than this machine could give, of the whole process.";

/// A column of the table: its head, what sorts by it, its width, and its text.
struct Field {
    head: &'static str,
    column: Option<Column>,
    width: u16,
    right: bool,
    text: fn(&Row) -> String,
}

const fn field(head: &'static str, column: Option<Column>, width: u16, right: bool, text: fn(&Row) -> String) -> Field {
    Field { head, column, width, right, text }
}

/// The columns, the most wanted first: those that do not fit are left out.
const FIELDS: [Field; 15] = [
    field("pid", None, 7, true, |row| row.key.pid.to_string()),
    field("program", Some(Column::Process), 11, false, |row| row.comm.clone()),
    field("path", None, 6, false, |row| row.key.transport.clone()),
    field("device", None, 8, false, |row| row.key.device.clone()),
    field("out Gb/s", Some(Column::Sent), 8, true, |row| gbit(row.rates.map(|rates| rates.0))),
    field("in Gb/s", Some(Column::Received), 8, true, |row| gbit(row.rates.map(|rates| rates.1))),
    field("latency", Some(Column::Latency), 8, true, |row| latency(row.latency_us)),
    field("lost", Some(Column::Lost), 4, true, |row| row.count(Counter::RailsLost).to_string()),
    field("slow", Some(Column::Downgrades), 4, true, |row| row.downgrades.to_string()),
    field("peer", None, 12, false, |row| or_dash(&row.key.peer)),
    field("job", Some(Column::Job), 10, false, |row| or_dash(&row.job)),
    field("stall/s", Some(Column::Stalls), 8, true, |row| per_second(row.trouble.map(|trouble| trouble.0))),
    field("retry/s", Some(Column::Retries), 8, true, |row| per_second(row.trouble.map(|trouble| trouble.1))),
    field("conns", None, 5, true, |row| row.count(Counter::Open).to_string()),
    field("uid", None, 6, true, |row| row.key.uid.to_string()),
];

/// The host, in front of the others where there may be several.
const HOST: Field = field("host", None, 12, false, |row| row.key.host.clone());

fn or_dash(text: &str) -> String {
    if text.is_empty() { "-".into() } else { text.to_owned() }
}

fn gbit(rate: Option<f64>) -> String {
    rate.map_or_else(|| "-".into(), |rate| format!("{:.3}", rate / 1e9))
}

fn per_second(rate: Option<f64>) -> String {
    rate.map_or_else(|| "-".into(), |rate| format!("{rate:.0}"))
}

fn latency(us: Option<u64>) -> String {
    match us {
        None => "-".into(),
        Some(us) if us < 1 << 14 => format!("<{us} us"),
        Some(us) => format!("<{} ms", us / 1000),
    }
}

pub(super) fn draw(frame: &mut Frame<'_>, model: &Model, colour: bool) {
    let paint = |color| if colour { Style::new().fg(color) } else { Style::new() };
    let [head, body, detail, foot] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Min(3),
        Constraint::Length(DETAIL),
        Constraint::Length(1),
    ])
    .areas(frame.area());
    let rows = model.rows();
    frame.render_widget(sums(model), head);
    if model.help {
        let whole = Rect { height: body.height + detail.height, ..body };
        frame.render_widget(
            Paragraph::new(HELP).wrap(Wrap { trim: false }).block(Block::bordered().title("keys")),
            whole,
        );
    } else {
        if rows.is_empty() {
            frame.render_widget(Paragraph::new(empty(model)).wrap(Wrap { trim: true }), body);
        } else {
            table(frame, body, model, &rows, &paint);
        }
        if let Some(at) = model.selected(&rows) {
            selected(frame, detail, rows[at], &paint);
        }
    }
    frame.render_widget(keys(model), foot);
}

fn sums(model: &Model) -> Line<'static> {
    let (processes, out, inward) = model.sums();
    let frozen = if model.frozen { "  FROZEN" } else { "" };
    let word = if processes == 1 { "process" } else { "processes" };
    let text = format!(
        "lspan top   {processes} {word}   out {} Gb/s   in {} Gb/s{frozen}",
        gbit(Some(out)),
        gbit(Some(inward))
    );
    Line::styled(text, Modifier::BOLD)
}

fn keys(model: &Model) -> Line<'static> {
    let filter = match (model.typing, model.filter.is_empty()) {
        (true, _) => return Line::raw(format!("filter: {}_", model.filter)),
        (false, true) => String::new(),
        (false, false) => format!("   filter: {}", model.filter),
    };
    let silent = match model.silent.len() {
        0 => String::new(),
        _ => {
            let first = model.silent.iter().next().map_or(String::new(), |(host, why)| format!("{host}: {why}"));
            format!("   {first}")
        }
    };
    Line::raw(format!("q end  s sort  r turn  / filter  f freeze  h help{filter}{silent}"))
}

fn empty(model: &Model) -> Text<'static> {
    if !model.filter.is_empty() {
        return Text::raw(format!("Nothing has {:?} in it; / changes the filter.", model.filter));
    }
    let mut text = Text::raw("No process uses linkspan, or none whose statistics this user may read.");
    text.extend(model.silent.iter().map(|(host, why)| Line::raw(format!("{host}: {why}"))));
    text
}

fn table(frame: &mut Frame<'_>, area: Rect, model: &Model, rows: &[&Row], paint: &impl Fn(Color) -> Style) {
    let mut left = area.width;
    let mut fits = |field: &&Field| {
        let fits = left >= field.width;
        left = if fits { left.saturating_sub(field.width + 1) } else { 0 };
        fits
    };
    let host = model.hosts.then_some(&HOST);
    let fields: Vec<&Field> = host.into_iter().chain(&FIELDS).take_while(|field| fits(field)).collect();
    let aligned = |field: &Field, text: String| {
        let text = Text::raw(text);
        Cell::from(if field.right { text.right_aligned() } else { text })
    };
    let head = fields.iter().map(|field| {
        let sorted = field.column == Some(model.column);
        let style = if sorted { Modifier::BOLD | Modifier::UNDERLINED } else { Modifier::BOLD };
        aligned(field, field.head.into()).style(style)
    });
    let lines = rows.iter().map(|row| {
        let style = match row.downgrades > 0 || row.count(Counter::RailsLost) > 0 {
            true => paint(Color::Yellow),
            false => Style::new(),
        };
        Shown::new(fields.iter().map(|field| aligned(field, (field.text)(row)))).style(style)
    });
    let widths = fields.iter().map(|field| Constraint::Length(field.width));
    let table =
        Table::new(lines, widths).header(Shown::new(head)).column_spacing(1).row_highlight_style(Modifier::REVERSED);
    frame.render_stateful_widget(table, area, &mut TableState::new().with_selected(model.selected(rows)));
}

/// A text in so many lines of this width, and `…` where that is not all.
fn in_lines(text: &str, lines: usize, width: usize) -> String {
    let mut shown = String::new();
    let characters: Vec<char> = text.chars().collect();
    let rows: Vec<&[char]> = characters.chunks(width.max(1)).collect();
    for (n, row) in rows.iter().take(lines).enumerate() {
        shown.push('\n');
        shown.extend(*row);
        if n + 1 == lines && rows.len() > lines {
            shown.pop();
            shown.push('…');
        }
    }
    shown
}

/// All of one path, and how its rates went.
fn selected(frame: &mut Frame<'_>, area: Rect, row: &Row, paint: &impl Fn(Color) -> Style) {
    let key = &row.key;
    let peer = if key.peer.is_empty() { String::new() } else { format!(" to {}", key.peer) };
    let block =
        Block::bordered().title(format!(" {} ({}) {} over {}{peer} ", row.comm, key.pid, key.transport, key.device));
    let inside = block.inner(area);
    frame.render_widget(block, area);
    let count = |counter| row.count(counter);
    let gb = |a, b| count(a).saturating_add(count(b)) as f64 / 1e9;
    let mut text = format!(
        "sent {:.3} GB in {} ops, received {:.3} GB in {}; connections {} of {}\nstalls {}, retries {}, rails lost {} and back {}, failed {}, slow {}",
        gb(Counter::TxBytes, Counter::TxDeviceBytes),
        count(Counter::TxOps),
        gb(Counter::RxBytes, Counter::RxDeviceBytes),
        count(Counter::RxOps),
        count(Counter::Open),
        count(Counter::Connections),
        count(Counter::Stalls),
        count(Counter::Retries),
        count(Counter::RailsLost),
        count(Counter::RailsBack),
        count(Counter::Failures),
        row.downgrades,
    );
    let reason = [format!("why: {}", row.reason), format!("last slow path of the process: {}", row.last_downgrade)];
    let lines = match (row.reason.is_empty(), row.last_downgrade.is_empty()) {
        (false, false) => [1, 2],
        (false, true) => [3, 0],
        (true, false) => [0, 3],
        (true, true) => [0, 0],
    };
    for (reason, lines) in reason.iter().zip(lines) {
        text.push_str(&in_lines(reason, lines, usize::from(inside.width)));
    }
    let [words, graphs] = Layout::vertical([Constraint::Length(5), Constraint::Min(1)]).areas(inside);
    frame.render_widget(Paragraph::new(text), words);
    let halves = Layout::horizontal([Constraint::Fill(1), Constraint::Fill(1)]).spacing(1).areas::<2>(graphs);
    for ((area, name), pick) in
        halves.into_iter().zip(["out", "in"]).zip([|one: &(u64, u64)| one.0, |one: &(u64, u64)| one.1])
    {
        let [label, graph] = Layout::vertical([Constraint::Length(1), Constraint::Min(1)]).areas(area);
        let from = row.history.len().saturating_sub(usize::from(graph.width));
        let values: Vec<u64> = row.history.iter().skip(from).map(pick).collect();
        let most = values.iter().max().copied().unwrap_or(0);
        frame.render_widget(Line::raw(format!("{name}, most {} Gb/s", gbit(Some(most as f64)))), label);
        frame.render_widget(Sparkline::default().data(values).style(paint(Color::Green)), graph);
    }
}
