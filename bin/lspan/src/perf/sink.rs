//! Where rows go: text, JSON, a page.

use std::fs;
use std::time::{SystemTime, UNIX_EPOCH};

use linkspan_perf::format::{Printer, Style, histogram, page};
use linkspan_perf::record::{Event, Record, Row, SCHEMA, STREAM_SCHEMA};
use linkspan_user::suite::{environment, host};

use crate::cli::{Format, Measure};
use crate::exit::{Exit, Failure};
use crate::fabric;
use crate::out::Out;
use crate::perf::idle::Idle;

/// Characters of the longest bar of a text histogram.
const BAR: usize = 50;

pub(crate) struct Sink<'a> {
    measure: &'a Measure,
    out: Out,
    printer: Printer,
    record: Record,
    path: String,
    idle: Idle,
}

impl<'a> Sink<'a> {
    pub(crate) fn new(measure: &'a Measure) -> Result<Sink<'a>, Failure> {
        // A page that cannot be written should be known before a minute of measuring.
        if let Some(file) = &measure.report {
            fs::OpenOptions::new()
                .create(true)
                .append(true)
                .open(file)
                .map_err(|error| Failure::system(&format!("--report {}", file.display()), &error))?;
        }
        let style = match measure.format {
            Format::Human => Style::Human,
            Format::Nccl => Style::Nccl,
            Format::Perftest => Style::Perftest,
        };
        let record = Record {
            schema: SCHEMA,
            version: env!("CARGO_PKG_VERSION").into(),
            time_unix_s: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs()),
            command: std::env::args_os().map(|arg| arg.to_string_lossy().into_owned()).collect(),
            host: host(),
            peer: measure.peer.clone(),
            env: environment(),
            results: Vec::new(),
            ok: true,
            exit_code: 0,
            downgrades: Vec::new(),
            error: None,
        };
        Ok(Sink {
            measure,
            out: Out::default(),
            printer: Printer::new(style),
            record,
            path: String::new(),
            idle: Idle::default(),
        })
    }

    fn text(&self) -> bool {
        !self.measure.json && !self.measure.json_stream
    }

    /// Takes the cables of which those that a path leaves out are told.
    pub(crate) fn idle(&mut self, idle: Idle) {
        self.idle = idle;
    }

    pub(crate) fn start(&mut self) -> Result<(), Failure> {
        if !self.measure.json_stream {
            return Ok(());
        }
        let Record { host, peer, command, .. } = &self.record;
        self.out.json(&Event::Start { schema: STREAM_SCHEMA, host, peer, command }, false)
    }

    /// Names the test of the rows that come, where there are several.
    pub(crate) fn title(&mut self, test: &str) -> Result<(), Failure> {
        if self.text() { self.out.text(&format!("# perf {test}\n")) } else { Ok(()) }
    }

    /// Takes a row; a failure that is none where measuring further is of no use.
    pub(crate) fn row(&mut self, row: Row) -> Result<(), Failure> {
        if self.measure.json_stream {
            self.out.json(&Event::Result { row: &row }, false)?;
        }
        if self.text() {
            let mut text = String::new();
            if self.path != row.path {
                self.path.clone_from(&row.path);
                text = row.lines.iter().map(|line| format!("# {line}\n")).collect();
                text.extend(self.idle.beside(&row.lines).iter().map(|line| format!("# {line}\n")));
                if row.memory != "host" || row.peer_memory != "host" {
                    text.push_str(&format!("# messages in memory of {} here, {} there\n", row.memory, row.peer_memory));
                }
            }
            text.push_str(&self.printer.row(&row));
            if self.measure.histogram {
                text.push_str(&histogram(&row, BAR));
            }
            self.out.text(&text)?;
        }
        self.record.results.push(row);
        if self.left() { Err(Failure::new(Exit::Ok, "")) } else { Ok(()) }
    }

    /// Whether nobody is there any more to whom further rows would be told.
    fn left(&self) -> bool {
        self.out.gone() && self.measure.report.is_none()
    }

    /// Finishes every output, also after an error, and says how the program ends.
    pub(crate) fn end(mut self, result: Result<(), Failure>) -> Result<Exit, Failure> {
        let result = match result {
            // There was nobody to measure on for.
            Err(failure) if failure.exit == Exit::Ok => Ok(()),
            result => result,
        };
        let wrong = self.record.results.iter().any(|row| row.wrong_bytes.is_some_and(|wrong| wrong > 0));
        let downgrades = fabric::downgrades();
        let exit = match &result {
            _ if wrong => Exit::WrongData,
            Err(failure) => failure.exit,
            Ok(()) if !downgrades.is_empty() => Exit::Degraded,
            Ok(()) => Exit::Ok,
        };
        self.record.ok = matches!(exit, Exit::Ok | Exit::Degraded);
        self.record.downgrades = downgrades;
        self.record.exit_code = exit as u8;
        self.record.error = result.as_ref().err().map(|failure| failure.message.clone());
        let Record { ok, exit_code, downgrades, error, .. } = &self.record;
        if self.measure.json {
            self.out.json(&self.record, true)?;
        } else if self.measure.json_stream {
            self.out
                .json(&Event::End { ok: *ok, exit_code: *exit_code, downgrades, error: error.as_deref() }, false)?;
        } else {
            let degraded = downgrades.iter().map(|line| format!("# degraded: {line}\n"));
            self.out.text(&(self.printer.end() + &degraded.collect::<String>()))?;
        }
        if let Some(file) = &self.measure.report {
            fs::write(file, page(&self.record))
                .map_err(|error| Failure::system(&format!("--report {}", file.display()), &error))?;
        }
        match result {
            // What else happened is no reason to tell this as less.
            Err(failure) if wrong => {
                Err(Failure::new(exit, format!("wrong data arrived: see the #wrong column; then: {}", failure.message)))
            }
            Err(failure) => Err(failure),
            Ok(()) => {
                if wrong {
                    eprintln!("lspan: wrong data arrived: see the #wrong column");
                }
                Ok(exit)
            }
        }
    }
}
