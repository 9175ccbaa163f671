//! `lspan perf matrix`: each pair of several hosts, reached by ssh or what replaces it.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use linkspan_perf::format::{Heat, heat_page, table};
use linkspan_perf::record::HostInfo;
use serde_json::json;

use super::once::{self, Once};
use crate::cli::MatrixArgs;
use crate::exit::{Exit, Failure};
use crate::out::{Out, Progress};
use crate::signals;
use linkspan_user::suite::host;

/// Schema of `--json`: `docs/schema/matrix-1.json`.
const SCHEMA: &str = "linkspan.matrix/1";

/// Most hosts: 992 pairs at a second each are a quarter of an hour.
const HOSTS: usize = 32;

/// How long a server on another host may take to start.
const START: Duration = Duration::from_secs(20);

/// How long it may take to end.
const FAREWELL: Duration = Duration::from_secs(5);

/// A pair below this part of the median of all is an outlier. A table of twenty equal pairs varies by some percent.
const OUTLIER: f64 = 0.7;

/// A host as it is reached, and the address at which the others reach it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Place {
    name: String,
    addr: String,
}

fn place(text: &str) -> Result<Place, Failure> {
    let bad = || {
        Failure::new(
            Exit::Usage,
            format!("{text:?} is no host; write NAME, or NAME=ADDRESS where the others reach it by another one"),
        )
    };
    let (name, addr) = text.split_once('=').unwrap_or((text, text.rsplit('@').next().unwrap_or(text)));
    let fine = |word: &str| !word.is_empty() && !word.starts_with('-') && !word.contains(char::is_whitespace);
    if !fine(name) || !fine(addr) {
        return Err(bad());
    }
    Ok(Place { name: name.to_owned(), addr: addr.to_owned() })
}

/// One direction of a pair.
struct Cell {
    from: usize,
    to: usize,
    result: Result<Once, String>,
}

pub(crate) fn run(args: &MatrixArgs) -> Result<Exit, Failure> {
    let places: Vec<Place> = args.hosts.iter().map(|text| place(text)).collect::<Result<_, _>>()?;
    if !(2..=HOSTS).contains(&places.len()) {
        return Err(Failure::new(Exit::Usage, format!("{} hosts; a matrix has 2 to {HOSTS}", places.len())));
    }
    let interrupt = signals::interrupt()?;
    let mut progress = Progress::new();
    let mut cells = Vec::new();
    for to in 0..places.len() {
        let server = Server::start(args, &places[to]);
        for from in (0..places.len()).filter(|from| *from != to) {
            if interrupt.raised() {
                break;
            }
            progress.say(&format!("measuring {} to {} ...", places[from].name, places[to].name));
            let result = match &server {
                Ok(_) => measure(args, &places[from], &places[to]),
                Err(why) => Err(format!("lspan perf serve on {}: {why}", places[to].name)),
            };
            cells.push(Cell { from, to, result });
        }
    }
    progress.clear();
    let outliers = outliers(&cells);
    let mut out = Out::default();
    if args.json {
        out.json(&document(&places, &cells, &outliers), true)?;
    } else {
        out.text(&text(&places, &cells, &outliers))?;
    }
    if let Some(file) = &args.report {
        let page = report(&places, &cells, &outliers, &host());
        std::fs::write(file, page).map_err(|error| Failure::system(&format!("--report {}", file.display()), &error))?;
    }
    let failed = cells.iter().any(|cell| cell.result.is_err());
    Ok(match (interrupt.raised(), failed, outliers.is_empty()) {
        (true, ..) => Exit::Interrupted,
        (_, true, _) => Exit::Failed,
        (_, _, false) => Exit::Degraded,
        _ => Exit::Ok,
    })
}

/// A command on another host. What is passed is one word each for us, and a shell's line for ssh.
fn there(args: &MatrixArgs, place: &Place, words: &[&str]) -> Command {
    let mut parts = args.rsh.split_whitespace();
    let mut command = Command::new(parts.next().unwrap_or("ssh"));
    command.args(parts).arg(&place.name).arg(&args.lspan).args(words);
    command
}

/// `lspan perf serve` on another host; ended when this is dropped.
struct Server(Child);

impl Server {
    fn start(args: &MatrixArgs, place: &Place) -> Result<Server, String> {
        let port = args.port.to_string();
        let mut words = vec!["perf", "serve", "--follow", "--port", &port];
        if args.open {
            words.push("--open");
        }
        let mut child = there(args, place, &words)
            // The end of it ends ssh, and with it the server.
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| format!("{}: {error}", args.rsh))?;
        let (to, from) = channel();
        if let Some(said) = child.stderr.take() {
            let read = move || {
                let mut last = String::new();
                // What it says later is read and dropped, so that it never waits for us.
                for line in BufReader::new(said).lines().map_while(Result::ok) {
                    let ready = line.starts_with("lspan: waiting on ");
                    last = line;
                    if ready {
                        let _ = to.send(Ok(()));
                    }
                }
                let _ = to.send(Err(if last.is_empty() { "it ended without a word".to_owned() } else { last }));
            };
            let _ = thread::Builder::new().name("server".into()).spawn(read);
        }
        let server = Server(child);
        match from.recv_timeout(START) {
            Ok(Ok(())) => Ok(server),
            Ok(Err(why)) => Err(why),
            Err(_) => Err(format!("it did not start within {} s", START.as_secs())),
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // The server follows its standard input. Whatever stands between may not.
        drop(self.0.stdin.take());
        let until = Instant::now() + FAREWELL;
        while Instant::now() < until && self.0.try_wait().is_ok_and(|status| status.is_none()) {
            thread::sleep(Duration::from_millis(10));
        }
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn measure(args: &MatrixArgs, from: &Place, to: &Place) -> Result<Once, String> {
    let addr =
        if to.addr.contains(':') && !to.addr.starts_with('[') { format!("[{}]", to.addr) } else { to.addr.clone() };
    let (peer, duration) = (format!("{addr}:{}", args.port), format!("{}ms", args.duration.as_millis().max(1)));
    let words = ["perf", "bw", &peer, "--json", "--size", "1M", "--warmup", "4", "--duration", &duration];
    let bw = once::record(there(args, from, &words))?;
    once::figures(&bw, None)
}

/// Pairs below 0.7 of the median of all.
fn outliers(cells: &[Cell]) -> Vec<(usize, usize)> {
    let mut rates: Vec<f64> = cells.iter().filter_map(|cell| Some(cell.result.as_ref().ok()?.gbit_s)).collect();
    rates.sort_by(f64::total_cmp);
    let Some(median) = rates.get(rates.len() / 2).copied() else { return Vec::new() };
    let low = |cell: &&Cell| cell.result.as_ref().is_ok_and(|once| once.gbit_s < median * OUTLIER);
    cells.iter().filter(low).map(|cell| (cell.from, cell.to)).collect()
}

fn cell(cells: &[Cell], from: usize, to: usize) -> Option<&Cell> {
    cells.iter().find(|cell| (cell.from, cell.to) == (from, to))
}

fn text(places: &[Place], cells: &[Cell], outliers: &[(usize, usize)]) -> String {
    let mut rows = vec![
        std::iter::once("Gb/s from \\ to".to_owned()).chain(places.iter().map(|p| p.name.clone())).collect::<Vec<_>>(),
    ];
    for (from, place) in places.iter().enumerate() {
        let mut row = vec![place.name.clone()];
        row.extend((0..places.len()).map(|to| match cell(cells, from, to).map(|cell| &cell.result) {
            Some(Ok(once)) if outliers.contains(&(from, to)) => format!("{:.2} !", once.gbit_s),
            Some(Ok(once)) => format!("{:.2}", once.gbit_s),
            Some(Err(_)) => "failed".into(),
            None => "-".into(),
        }));
        rows.push(row);
    }
    let mut text = table(&rows);
    for cell in cells {
        let pair = format!("{} to {}", places[cell.from].name, places[cell.to].name);
        match &cell.result {
            Ok(once) => {
                if outliers.contains(&(cell.from, cell.to)) {
                    text.push_str(&format!(
                        "! {pair}: {:.2} Gb/s is less than {OUTLIER} of the median; {}\n",
                        once.gbit_s, once.path
                    ));
                }
                once.downgrades.iter().for_each(|why| text.push_str(&format!("# {pair}: degraded: {why}\n")));
            }
            Err(why) => text.push_str(&format!("# {pair}: {why}\n")),
        }
    }
    text
}

fn document(places: &[Place], cells: &[Cell], outliers: &[(usize, usize)]) -> serde_json::Value {
    let pairs: Vec<_> = cells
        .iter()
        .map(|cell| {
            let ok = cell.result.as_ref().ok();
            json!({
                "from": places[cell.from].name, "to": places[cell.to].name, "bw_gbit_s": ok.map(|once| once.gbit_s),
                "path": ok.map(|once| &once.path), "downgrades": ok.map(|once| once.downgrades.clone()).unwrap_or_default(),
                "outlier": outliers.contains(&(cell.from, cell.to)), "error": cell.result.as_ref().err(),
            })
        })
        .collect();
    json!({ "schema": SCHEMA, "hosts": places.iter().map(|place| &place.name).collect::<Vec<_>>(), "pairs": pairs })
}

fn report(places: &[Place], cells: &[Cell], outliers: &[(usize, usize)], host: &HostInfo) -> String {
    let names: Vec<String> = places.iter().map(|place| place.name.clone()).collect();
    let heat: Vec<Heat> = cells
        .iter()
        .map(|cell| Heat {
            row: cell.from,
            column: cell.to,
            value: cell.result.as_ref().ok().map(|once| once.gbit_s),
            marked: outliers.contains(&(cell.from, cell.to)),
            title: match &cell.result {
                Ok(once) => once.path.clone(),
                Err(why) => why.clone(),
            },
        })
        .collect();
    heat_page(
        "Gb/s from each host (row) to each other (column)",
        &host.name,
        &names,
        &heat,
        &text(places, cells, outliers),
    )
}

#[cfg(test)]
mod tests;
