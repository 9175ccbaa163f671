//! Measurements: what can be started, what runs, and what came of those before.

use linkspan_perf::format::page;
use linkspan_perf::record::{self, SCHEMA};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{Ask, Progress, Record, Task, User};
use crate::model::Service;
use crate::row::{Action, Button, Choice, Field, Group, Kind, Mood, Page, Plot, Row};
use crate::text::{ago, bytes_rate, cut, fill, sentence, shown, size, tr};

/// As the service calls them, in the order of the list.
pub(super) const TESTS: [&str; 6] = ["bw", "lat", "jitter", "load", "multi", "all"];

/// Most runs that are shown, and measurements of each.
const RUNS: usize = 20;
const ROWS: usize = 64;

/// A measurement: what is shown of it, and the rest for its report.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub(super) struct Measured {
    test: String,
    transport: String,
    reason: String,
    size_bytes: u64,
    bw_gbyte_s: f64,
    latency: Option<Latency>,
    #[serde(flatten)]
    rest: Map<String, Value>,
}

#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default)]
struct Latency {
    p50_ns: f64,
    p99_ns: f64,
    jitter_ns: f64,
    #[serde(flatten)]
    rest: Map<String, Value>,
}

impl Measured {
    /// The number that it is about, and whether more of it is better.
    fn value(&self) -> (f64, bool) {
        let latency = self.latency.clone().unwrap_or_default();
        match self.test.as_str() {
            "bw" | "multi" => (self.bw_gbyte_s, true),
            "jitter" => (latency.jitter_ns / 1e3, false),
            _ => (latency.p50_ns / 1e3, false),
        }
    }

    /// `None`: another version has made it.
    fn row(&self) -> Option<record::Row> {
        serde_json::from_value(serde_json::to_value(self).ok()?).ok()
    }

    fn unit(&self) -> &'static str {
        if self.value().1 { "GB/s" } else { "µs" }
    }

    fn text(&self) -> String {
        let (value, rate) = self.value();
        if rate { bytes_rate(value * 1e9) } else { format!("{value:.1} µs") }
    }

    /// How much better (more than 1) it is than the same measurement before.
    fn against(&self, before: &[Measured]) -> Option<f64> {
        let same = |old: &&Measured| old.test == self.test && old.size_bytes == self.size_bytes;
        let ((now, more), (old, _)) = (self.value(), before.iter().find(same)?.value());
        (now > 0.0 && old > 0.0).then(|| if more { now / old } else { old / now })
    }
}

fn name(test: &str) -> String {
    match test {
        "bw" => tr("Bandwidth"),
        "lat" => tr("Latency"),
        "jitter" => tr("Jitter"),
        "load" => tr("Latency under load"),
        "multi" => tr("Bandwidth of four connections"),
        "all" => tr("All tests"),
        other => shown(other),
    }
}

/// Which of these stands for all: of rates the best, of times that of the smallest message.
fn headline(results: &[Measured]) -> Option<&Measured> {
    let first = results.first()?;
    let same = results.iter().filter(|one| one.test == first.test);
    if first.value().1 { same.max_by(|a, b| a.value().0.total_cmp(&b.value().0)) } else { Some(first) }
}

fn versus(ratio: f64) -> String {
    let percent = ((ratio - 1.0) * 100.0).round();
    match percent as i64 {
        0 => tr("as before"),
        better @ 1.. => fill(&tr("{n} % better than before"), &[("n", &better.to_string())]),
        worse => fill(&tr("{n} % worse than before"), &[("n", &(-worse).to_string())]),
    }
}

/// Values over sizes, of the test whose measurements came last; with one point there is nothing to plot.
fn plot(results: &[Measured], before: &[Measured], of: u64) -> Option<Plot> {
    let last = results.last()?;
    let of_test = |all: &[Measured]| -> Vec<Measured> {
        all.iter().filter(|one| one.test == last.test).take(ROWS).cloned().collect()
    };
    let (now, old) = (of_test(results), of_test(before));
    let longest = if old.len() > now.len() { &old } else { &now };
    if longest.len() < 2 && of < 2 {
        return None;
    }
    Some(Plot {
        points: longest.iter().map(|one| size(one.size_bytes)).collect(),
        unit: last.unit(),
        now: now.iter().map(|one| one.value().0).collect(),
        before: old.iter().map(|one| one.value().0).collect(),
    })
}

fn words(results: &[Measured]) -> String {
    let all: Vec<String> = results.iter().map(|one| format!("{}: {}", size(one.size_bytes), one.text())).collect();
    cut(&all.join(", "), 512)
}

impl User {
    pub(crate) fn tests(&self, now_us: u64) -> Page {
        if let Some(empty) = self.absent() {
            return Page { empty: Some(empty), ..Page::default() };
        }
        let mut groups = vec![self.to_start()];
        groups.extend(self.measuring());
        groups.extend(self.runs(now_us));
        Page { groups, empty: None }
    }

    fn to_start(&self) -> Group {
        let (peer, test) = (self.text(Field::Peer).trim().to_owned(), TESTS[self.test]);
        let runs = self.tasks.values().any(|(_, task)| task.kind == "test");
        let ask = Ask::Test { test, peer: peer.clone() };
        let asked = self.busy.iter().any(|ask| matches!(ask, Ask::Test { .. }));
        let can = !peer.is_empty() && !runs && !asked && matches!(self.service, Service::Up(_));
        let about = match self.error("test") {
            Some(why) => why.clone(),
            None if runs => tr("One test runs at a time: two would measure each other."),
            None => tr("On the other machine type: lspan perf serve"),
        };
        let start = self.button(tr("Start"), tr("Start the test"), ask, can);
        let rows = vec![
            Row {
                id: "peer".into(),
                title: tr("Peer: its name, its address, or cable"),
                kind: Kind::Field(Field::Peer, self.text(Field::Peer).to_owned()),
                ..Row::default()
            },
            Row {
                id: "test".into(),
                title: tr("Test"),
                kind: Kind::Choice(Choice::Test, TESTS.map(name).to_vec(), self.test),
                ..Row::default()
            },
            Row {
                id: "start".into(),
                title: tr("Measure"),
                subtitle: about,
                mood: if self.error("test").is_some() { Mood::Trouble } else { Mood::Plain },
                button: Some(start),
                ..Row::default()
            },
        ];
        Group { title: tr("Test a peer"), text: String::new(), rows }
    }

    fn measuring(&self) -> Option<Group> {
        let (path, task) = self.tasks.values().find(|(_, task)| task.kind == "test")?;
        let test = task.arguments.first().map_or("", String::as_str);
        let before = self.before(test, &task.peer, u64::MAX).map_or(&[][..], |record| &record.end.results);
        let mut rows = vec![self.measurement(path, task)];
        rows.extend(self.plotted(&task.progress, before));
        Some(Group { title: tr("Running"), text: String::new(), rows })
    }

    pub(super) fn measurement(&self, path: &str, task: &Task) -> Row {
        let Task { peer, arguments, progress, .. } = task;
        let test = arguments.first().map_or("", String::as_str);
        let (name, peer) = (name(test), shown(peer));
        let what = match progress.state.as_str() {
            "" | "connecting" => tr("Connecting"),
            _ => shown(&progress.measuring),
        };
        let text = tr("{done} of {of} measured; {what}");
        let numbers = (progress.done.to_string(), progress.of.to_string());
        let subtitle = fill(&text, &[("done", &numbers.0), ("of", &numbers.1), ("what", &what)]);
        let cancel = self.button(tr("Cancel"), tr("Cancel the test"), Ask::Cancel(path.to_owned()), true);
        let part = (progress.of > 0).then(|| (progress.done as f64 / progress.of as f64).clamp(0.0, 1.0));
        Row {
            id: path.to_owned(),
            title: fill(&tr("{test} to {peer}"), &[("test", &name), ("peer", &peer)]),
            subtitle,
            kind: Kind::Progress(part),
            button: Some(cancel),
            ..Row::default()
        }
    }

    /// How a test has ended, and which. `None`: it is none.
    pub(super) fn ended(&self, record: &Record) -> Option<(String, String)> {
        if record.kind != "test" {
            return None;
        }
        let test = name(record.arguments.first().map_or("", String::as_str));
        let what = fill(&tr("{test} to {peer}"), &[("test", &test), ("peer", &shown(&record.peer))]);
        Some(match record.end.state.as_str() {
            "done" => (what, headline(&record.end.results).map(Measured::text).unwrap_or_default()),
            _ => (tr("A test failed"), format!("{what}: {}", sentence(&record.error))),
        })
    }

    fn plotted(&self, progress: &Progress, before: &[Measured]) -> Option<Row> {
        let plot = plot(&progress.results, before, progress.of)?;
        let test = progress.results.last().map(|one| name(&one.test)).unwrap_or_default();
        let title = fill(&tr("{test} in {unit} by the size of messages"), &[("test", &test), ("unit", plot.unit)]);
        let subtitle = words(&progress.results);
        Some(Row { id: "plot".into(), title, subtitle, kind: Kind::Plot(plot), ..Row::default() })
    }

    /// The run of this test against this peer before that one, of those that went well.
    fn before(&self, test: &str, peer: &str, id: u64) -> Option<&Record> {
        let same = |record: &&Record| {
            record.kind == "test"
                && record.end.state == "done"
                && record.id < id
                && record.peer == peer
                && record.arguments.first().is_some_and(|own| own == test)
        };
        self.history.iter().filter(same).max_by_key(|record| record.id)
    }

    fn runs(&self, now_us: u64) -> Option<Group> {
        let records = self.history.iter().filter(|record| record.kind == "test").take(RUNS);
        let mut rows: Vec<Row> = records.map(|record| self.run(record, now_us)).collect();
        // The plot that has grown stays until the next one.
        let newest = self.history.iter().find(|record| record.kind == "test" && record.end.state == "done");
        let runs = self.tasks.values().any(|(_, task)| task.kind == "test");
        if let Some(record) = newest.filter(|_| !runs) {
            rows.splice(0..0, self.plotted(&record.end, self.results_before(record)));
        }
        (!rows.is_empty()).then(|| Group { title: tr("Results"), text: String::new(), rows })
    }

    /// Those of the same test against the same peer before.
    fn results_before(&self, record: &Record) -> &[Measured] {
        let test = record.arguments.first().map_or("", String::as_str);
        self.before(test, &record.peer, record.id).map_or(&[][..], |record| &record.end.results)
    }

    fn run(&self, record: &Record, now_us: u64) -> Row {
        let test = record.arguments.first().map_or("", String::as_str);
        let before = self.results_before(record);
        let results = &record.end.results[..record.end.results.len().min(ROWS)];
        let head = headline(results).filter(|_| record.end.state == "done");
        let when = ago((now_us / 1_000_000).saturating_sub(record.ended_unix_s));
        let (mood, said) = match record.end.state.as_str() {
            "done" => (Mood::Plain, head.and_then(|head| head.against(before)).map(versus)),
            "cancelled" => (Mood::Plain, Some(tr("cancelled"))),
            _ => (Mood::Trouble, Some(sentence(&record.error))),
        };
        let by = results.first().map(|one| shown(&one.transport)).unwrap_or_default();
        let parts = [Some(when), (!by.is_empty()).then_some(by), said];
        let subtitle: Vec<String> = parts.into_iter().flatten().collect();
        let measured = |(n, one): (usize, &Measured)| {
            let (size, latency) = (size(one.size_bytes), one.latency.clone().unwrap_or_default());
            let tail = format!("{:.1} µs", latency.p99_ns / 1e3);
            let tail = one.latency.as_ref().map(|_| fill(&tr("99 % within {time}"), &[("time", &tail)]));
            let parts = [tail, one.against(before).map(versus)];
            Row {
                id: n.to_string(),
                title: fill(&tr("{test}, {size}"), &[("test", &name(&one.test)), ("size", &size)]),
                subtitle: parts.into_iter().flatten().collect::<Vec<_>>().join(", "),
                end: one.text(),
                ..Row::default()
            }
        };
        let mut details: Vec<Row> = self.plotted(&record.end, before).into_iter().collect();
        details.extend(results.iter().enumerate().map(measured));
        let why = results.first().map(|one| shown(&one.reason)).filter(|why| !why.is_empty());
        if !record.end.path.is_empty() {
            let (title, subtitle) = (shown(&record.end.path), why.unwrap_or_default());
            details.push(Row { id: "path".into(), title, subtitle, ..Row::default() });
        }
        details.extend(self.again(test, record));
        Row {
            id: record.id.to_string(),
            title: fill(&tr("{test} to {peer}"), &[("test", &name(test)), ("peer", &shown(&record.peer))]),
            subtitle: subtitle.join(", "),
            end: head.map(Measured::text).unwrap_or_default(),
            mood,
            details,
            ..Row::default()
        }
    }

    /// The same once more.
    fn again(&self, test: &str, record: &Record) -> Option<Row> {
        let test = TESTS.into_iter().find(|known| *known == test)?;
        let runs = self.tasks.values().any(|(_, task)| task.kind == "test");
        let ask = Ask::Test { test, peer: record.peer.clone() };
        let button = self.button(tr("Run Again"), tr("Run this test again"), ask, !runs);
        let report = Button {
            label: tr("Report…"),
            name: tr("Save a report of this test"),
            action: Action::Report(record.id.to_string()),
            works: !record.end.results.is_empty(),
        };
        let (title, second) = (tr("The same once more"), Some(report));
        Some(Row { id: "again".into(), title, button: Some(button), second, ..Row::default() })
    }

    pub(crate) fn report(&self, id: &str) -> Option<(String, String)> {
        let Service::Up(version) = &self.service else { return None };
        let record = self.history.iter().find(|record| record.kind == "test" && record.id.to_string() == id)?;
        let test = record.arguments.first().cloned().unwrap_or_default();
        let whole = record::Record {
            schema: SCHEMA,
            version: version.clone(),
            time_unix_s: record.ended_unix_s,
            command: vec!["lspan".into(), "perf".into(), test.clone(), record.peer.clone()],
            host: linkspan_user::suite::host(),
            peer: Some(record.peer.clone()),
            env: Default::default(),
            results: record.end.results.iter().map(Measured::row).collect::<Option<_>>()?,
            ok: record.end.state == "done",
            exit_code: u8::from(record.end.state != "done"),
            downgrades: Vec::new(),
            error: (!record.error.is_empty()).then(|| record.error.clone()),
        };
        let plain = |text: &str| -> String {
            text.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).take(64).collect()
        };
        Some((format!("linkspan-{}-{}.html", plain(&test), plain(&record.peer)), page(&whole)))
    }
}
