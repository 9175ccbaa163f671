//! `lspan events`: what happened to cables and jobs.

use std::time::{Duration, Instant};

use linkspan_bus::Error;
use linkspan_bus::client::{Client, unknown};
use linkspan_fabric::Config;
use linkspan_fabric::stats::read;
use linkspan_service::events::{Event, EventLog, now_us};
use linkspan_service::observe::{CableWatch, Changes, JobWatch, KernelWatch, Look};
use linkspan_topology::Roots;
use serde::Serialize;

use crate::cli::EventsArgs;
use crate::exit::{Exit, Failure};
use crate::out::Out;
use crate::signals;

/// Schema of `--json`: `docs/schema/event-1.json`.
const SCHEMA: &str = "linkspan.event/1";

/// Between two looks at the statistics, as the service's default.
const INTERVAL: Duration = Duration::from_secs(2);

/// How long the end may take after Ctrl-C.
const LOOK_MS: u64 = 200;

#[derive(Serialize)]
struct Line<'a> {
    schema: &'static str,
    #[serde(flatten)]
    event: &'a Event,
}

/// Where events are printed.
struct Printer {
    out: Out,
    json: bool,
    last_us: u64,
}

impl Printer {
    fn print(&mut self, events: &[Event]) -> Result<(), Failure> {
        for event in events {
            self.last_us = self.last_us.max(event.time_us);
            match self.json {
                true => self.out.json(&Line { schema: SCHEMA, event }, false)?,
                false => self.out.text(&(event.line() + "\n"))?,
            }
        }
        Ok(())
    }
}

pub(crate) fn run(args: &EventsArgs) -> Result<Exit, Failure> {
    let mut printer = Printer { out: Out::default(), json: args.json, last_us: 0 };
    if args.root.is_none()
        && let Some(client) = Client::running()
    {
        match kept(&client, args, &mut printer) {
            Ok(Kept::All) => return Ok(Exit::Ok),
            Ok(Kept::UntilEnd) => {
                eprintln!("lspan: linkspand or the bus has ended; what this process can see itself follows")
            }
            Ok(Kept::None) => eprintln!(
                "lspan: linkspand ({}) is older than lspan ({}) and keeps no events; this is the current state",
                client.version(),
                env!("CARGO_PKG_VERSION")
            ),
            Err(failure) => return Err(failure),
        }
    } else {
        eprintln!("lspan: linkspand does not run, so no events are kept; this is the current state");
    }
    seen(args, &mut printer)
}

/// What was had of the service.
enum Kept {
    /// All that was asked for.
    All,
    /// What there was until it or the bus ended.
    UntilEnd,
    /// Nothing: it has no events.
    None,
}

/// Events that the service keeps, and with `--follow` those to come, until it or the bus ends.
fn kept(client: &Client, args: &EventsArgs, printer: &mut Printer) -> Result<Kept, Failure> {
    let all = args.all || rustix::process::geteuid().is_root();
    let failed = |error: &dyn std::fmt::Display| Failure::new(Exit::Failed, format!("linkspand: {error}"));
    // Heard before the first question, so that nothing falls between the two.
    let mut changes = match args.follow {
        true => Some(client.changes().map_err(|error| failed(&error))?),
        false => None,
    };
    loop {
        match client.events(printer.last_us, all) {
            Ok(events) => printer.print(&events)?,
            Err(Error::NotAuthorized(why)) => return Err(Failure::new(Exit::Permission, why)),
            Err(error) if unknown(&error) => return Ok(Kept::None),
            Err(Error::ZBus(_)) if args.follow && printer.last_us > 0 => return Ok(Kept::UntilEnd),
            Err(error) => return Err(failed(&error)),
        }
        let Some(changes) = &mut changes else { return Ok(Kept::All) };
        // The stream outlives the service: one that is started again goes on, for times grow. It ends with the bus.
        if printer.out.gone() || changes.next().is_none() {
            return Ok(Kept::UntilEnd);
        }
    }
}

/// What this process sees: at first what is there, with `--follow` then what changes.
fn seen(args: &EventsArgs, printer: &mut Printer) -> Result<Exit, Failure> {
    let roots = args.root.as_deref().map_or_else(Roots::default, Roots::under);
    let pages = match &args.root {
        Some(root) => Some(root.join("stats")),
        None => Config::from_env()?.stats_dir,
    };
    let kernel = match args.follow {
        true => {
            Some(KernelWatch::open().map_err(|error| Failure::system("the kernel's messages about devices", &error))?)
        }
        false => None,
    };
    let (mut cables, mut jobs, mut log) = (CableWatch::default(), JobWatch::default(), EventLog::new(1));
    let (mut changes, mut read_at) = (Changes { any: true, ..Changes::default() }, None::<Instant>);
    let interrupt = signals::interrupt()?;
    loop {
        let mut found = Vec::new();
        if changes.any {
            found.extend(cables.look(&Look::take(&roots).cables, &changes.removed));
        }
        if read_at.is_none_or(|at| at.elapsed() >= INTERVAL) {
            read_at = Some(Instant::now());
            if let Some(pages) = &pages {
                let read =
                    read(pages).map_err(|e| Failure::system(&format!("statistics in {}", pages.display()), &e))?;
                found.extend(jobs.look(&read));
            }
        }
        let now = now_us();
        let events: Vec<Event> = found.into_iter().map(|event| log.push(event, now).clone()).collect();
        printer.print(&events)?;
        let Some(kernel) = &kernel else { return Ok(Exit::Ok) };
        if interrupt.raised() {
            return Ok(Exit::Interrupted);
        }
        if printer.out.gone() {
            return Ok(Exit::Ok);
        }
        kernel.wait(LOOK_MS).map_err(|error| Failure::system("poll", &error))?;
        changes = kernel.take();
    }
}
