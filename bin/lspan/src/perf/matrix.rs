//! `lspan perf matrix`: each pair of several hosts, reached by ssh or what replaces it, or of the ranks that a launcher has started.

mod folder;
mod launcher;
mod ranks;
mod server;

use std::net::Ipv6Addr;
use std::process::Command;

use linkspan_perf::format::{Heat, heat_page, table};
use linkspan_perf::hist::median;
use linkspan_perf::record::HostInfo;
use serde_json::json;

use super::once::{self, Once};
use crate::cli::MatrixArgs;
use crate::exit::{Exit, Failure};
use crate::out::{Out, Progress};
use crate::signals;
use linkspan_user::suite::host;
use server::Server;

/// Schema of `--json`: `docs/schema/matrix-1.json`.
const SCHEMA: &str = "linkspan.matrix/1";

/// Most hosts: 992 pairs at a second each are a quarter of an hour.
const HOSTS: usize = 32;

/// A pair below this part of the median of all is an outlier. A table of twenty equal pairs varies by some percent.
const OUTLIER: f64 = 0.7;

/// A host as it is reached, and the address at which the others reach it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct MatrixHost {
    name: String,
    addr: String,
}

fn place(text: &str) -> Result<MatrixHost, Failure> {
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
    Ok(MatrixHost { name: name.to_owned(), addr: addr.to_owned() })
}

/// One direction of a pair.
struct Cell {
    from: usize,
    to: usize,
    result: Result<Once, String>,
}

/// What was measured.
struct Matrix {
    names: Vec<String>,
    cells: Vec<Cell>,
    /// What is to be said beside the figures.
    notes: Vec<String>,
    interrupted: bool,
}

pub(crate) fn run(args: &MatrixArgs) -> Result<Exit, Failure> {
    if !args.hosts.is_empty() {
        return tell(args, &over_hosts(args)?);
    }
    let Some(job) = launcher::launched(&|name| std::env::var(name).ok())? else {
        let why = "no host is named, and no launcher has started this: name hosts, which are reached by ssh, or type `mpirun ... lspan perf matrix` \
                   (srun, torchrun)";
        return Err(Failure::new(Exit::Usage, why));
    };
    match ranks::run(args, &job)? {
        Some(matrix) => tell(args, &matrix),
        None => Ok(Exit::Ok),
    }
}

fn over_hosts(args: &MatrixArgs) -> Result<Matrix, Failure> {
    let places: Vec<MatrixHost> = args.hosts.iter().map(|text| place(text)).collect::<Result<_, _>>()?;
    if !(2..=HOSTS).contains(&places.len()) {
        return Err(Failure::new(Exit::Usage, format!("{} hosts; a matrix has 2 to {HOSTS}", places.len())));
    }
    let twice = |(at, place): &(usize, &MatrixHost)| places[..*at].iter().any(|other| other.name == place.name);
    if let Some((_, place)) = places.iter().enumerate().find(twice) {
        return Err(Failure::new(Exit::Usage, format!("{} is there twice: name each host once", place.name)));
    }
    let interrupt = signals::interrupt()?;
    let mut progress = Progress::new();
    let mut cells = Vec::new();
    for to in 0..places.len() {
        if interrupt.raised() {
            break;
        }
        let server = serve(args, &places[to]);
        for from in (0..places.len()).filter(|from| *from != to) {
            if interrupt.raised() {
                break;
            }
            progress.say(&format!("measuring {} to {} ...", places[from].name, places[to].name));
            let result = match &server {
                Ok((_, said)) => {
                    measure(args, &places[from], &places[to]).map_err(|why| match why.contains("LS0732") {
                        // Nobody answers: what the server waits on may be the reason.
                        true => format!("{why}; lspan perf serve on {}: waiting on {said}", places[to].name),
                        false => why,
                    })
                }
                Err(why) => Err(format!("lspan perf serve on {}: {why}", places[to].name)),
            };
            cells.push(Cell { from, to, result });
        }
    }
    progress.clear();
    let names = places.into_iter().map(|place| place.name).collect();
    Ok(Matrix { names, cells, notes: Vec::new(), interrupted: interrupt.raised() })
}

/// Prints it, and says how it went.
fn tell(args: &MatrixArgs, matrix: &Matrix) -> Result<Exit, Failure> {
    let Matrix { names, cells, notes, interrupted } = matrix;
    let outliers = outliers(cells);
    notes.iter().for_each(|note| eprintln!("lspan: {note}"));
    let mut out = Out::default();
    if args.json {
        out.json(&document(names, cells, &outliers), true)?;
    } else {
        out.text(&text(names, cells, &outliers))?;
    }
    if let Some(file) = &args.report {
        let page = report(names, cells, &outliers, &host());
        std::fs::write(file, page).map_err(|error| Failure::system(&format!("--report {}", file.display()), &error))?;
    }
    let failed = cells.iter().any(|cell| cell.result.is_err());
    Ok(match (interrupted, failed, outliers.is_empty()) {
        (true, ..) => Exit::Interrupted,
        (_, true, _) => Exit::Failed,
        (_, _, false) => Exit::Degraded,
        _ => Exit::Ok,
    })
}

/// A command on another host. What is passed is one word each for us, and a shell's line for ssh.
fn there(args: &MatrixArgs, place: &MatrixHost, words: &[&str]) -> Command {
    let mut parts = args.rsh.split_whitespace();
    let mut command = Command::new(parts.next().unwrap_or("ssh"));
    command.args(parts).arg(&place.name).arg(&args.lspan).args(words);
    command
}

/// `lspan perf serve` on another host, and what it waits on.
fn serve(args: &MatrixArgs, place: &MatrixHost) -> Result<(Server, String), String> {
    let port = args.port.to_string();
    let mut words = vec!["perf", "serve", "--follow", "--port", &port];
    if args.open {
        words.push("--open");
    }
    Server::start(there(args, place, &words))
}

/// Where a server is, as a word for `lspan perf`. Without brackets, in which zsh at the other end of ssh sees a pattern, and without quotes, which
/// not every way to another host takes off: five digits are a port and no part of an IPv6 address.
fn peer(to: &MatrixHost, port: u16) -> String {
    match to.addr.trim_start_matches('[').trim_end_matches(']').parse::<Ipv6Addr>() {
        Ok(ip) if !ip.is_unicast_link_local() => format!("{ip}:{port:05}"),
        _ if to.addr.contains(':') && !to.addr.starts_with('[') => format!("[{}]:{port}", to.addr),
        _ => format!("{}:{port}", to.addr),
    }
}

fn measure(args: &MatrixArgs, from: &MatrixHost, to: &MatrixHost) -> Result<Once, String> {
    let (peer, duration) = (peer(to, args.port), format!("{}ms", args.duration.as_millis().max(1)));
    let words = ["perf", "bw", &peer, "--json", "--size", "1M", "--warmup", "4", "--duration", &duration];
    let bw = once::record(there(args, from, &words), once::limit(args.duration))?;
    once::figures(&bw, None)
}

/// Pairs below 0.7 of the median of all.
fn outliers(cells: &[Cell]) -> Vec<(usize, usize)> {
    let rates: Vec<f64> = cells.iter().filter_map(|cell| Some(cell.result.as_ref().ok()?.gbit_s)).collect();
    let Some(median) = median(&rates) else { return Vec::new() };
    let low = |cell: &&Cell| cell.result.as_ref().is_ok_and(|once| once.gbit_s < median * OUTLIER);
    cells.iter().filter(low).map(|cell| (cell.from, cell.to)).collect()
}

fn cell(cells: &[Cell], from: usize, to: usize) -> Option<&Cell> {
    cells.iter().find(|cell| (cell.from, cell.to) == (from, to))
}

fn text(names: &[String], cells: &[Cell], outliers: &[(usize, usize)]) -> String {
    let mut rows = vec![std::iter::once("Gb/s from \\ to".to_owned()).chain(names.iter().cloned()).collect::<Vec<_>>()];
    for (from, name) in names.iter().enumerate() {
        let mut row = vec![name.clone()];
        row.extend((0..names.len()).map(|to| match cell(cells, from, to).map(|cell| &cell.result) {
            Some(Ok(once)) if outliers.contains(&(from, to)) => format!("{:.2} !", once.gbit_s),
            Some(Ok(once)) => format!("{:.2}", once.gbit_s),
            Some(Err(_)) => "failed".into(),
            None => "-".into(),
        }));
        rows.push(row);
    }
    let mut text = table(&rows);
    // Equal reasons once, with the pairs that have them.
    let mut reasons: Vec<(String, Vec<String>)> = Vec::new();
    for cell in cells {
        let pair = format!("{} to {}", names[cell.from], names[cell.to]);
        let said = match &cell.result {
            Ok(once) => {
                if outliers.contains(&(cell.from, cell.to)) {
                    text.push_str(&format!(
                        "! {pair}: {:.2} Gb/s is less than {OUTLIER} of the median; {}\n",
                        once.gbit_s, once.path
                    ));
                }
                once.downgrades.iter().map(|why| format!("degraded: {why}")).collect()
            }
            Err(why) => vec![why.clone()],
        };
        for why in said {
            match reasons.iter_mut().find(|(known, _)| *known == why) {
                Some((_, pairs)) => pairs.push(pair.clone()),
                None => reasons.push((why, vec![pair.clone()])),
            }
        }
    }
    for (why, pairs) in &reasons {
        text.push_str(&format!("# {}: {why}\n", pairs.join(", ")));
    }
    text
}

fn document(names: &[String], cells: &[Cell], outliers: &[(usize, usize)]) -> serde_json::Value {
    let pairs: Vec<_> = cells
        .iter()
        .map(|cell| {
            let ok = cell.result.as_ref().ok();
            json!({
                "from": names[cell.from], "to": names[cell.to], "bw_gbit_s": ok.map(|once| once.gbit_s),
                "path": ok.map(|once| &once.path), "downgrades": ok.map(|once| once.downgrades.clone()).unwrap_or_default(),
                "outlier": outliers.contains(&(cell.from, cell.to)), "error": cell.result.as_ref().err(),
            })
        })
        .collect();
    json!({ "schema": SCHEMA, "hosts": names, "pairs": pairs })
}

fn report(names: &[String], cells: &[Cell], outliers: &[(usize, usize)], host: &HostInfo) -> String {
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
        names,
        &heat,
        &text(names, cells, outliers),
    )
}

#[cfg(test)]
mod tests;
