//! `lspan perf compare`: every way that there is to a peer, one after another.

use std::process::Command;

use linkspan_fabric::{Config, Fabric, Log};
use linkspan_perf::LinkError;
use linkspan_perf::format::table;
use linkspan_service::rendezvous;
use linkspan_topology::{Interface, Kind, Machine, Reason, Roots, Verdict};
use serde_json::json;

use super::once::{self, Once};
use crate::cli::CompareArgs;
use crate::exit::{Exit, Failure};
use crate::out::{Out, Progress};
use crate::signals;

/// Schema of `--json`: `docs/schema/compare-1.json`.
const SCHEMA: &str = "linkspan.compare/1";

/// What linkspan takes by itself.
const CHOSEN: &str = "as chosen";

/// A way, and what chooses it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ComparedPath {
    pub(crate) name: String,
    pub(crate) path: &'static str,
    /// The interface that it is over; empty where the fabric chooses.
    pub(crate) over: String,
    /// What the text of each of its rails begins with, or has in parentheses.
    mark: String,
    env: Vec<(&'static str, String)>,
}

impl ComparedPath {
    /// Whether a connection went this way and no other beside it.
    fn carried(&self, once: &Once) -> bool {
        let rails = once.path.strip_prefix(self.path).and_then(|rest| rest.strip_prefix(' '));
        let mark = &*self.mark;
        let own = |rail: &str| rail.starts_with(mark) || (mark.starts_with('(') && rail.contains(mark));
        rails.is_some_and(|rails| mark.is_empty() || apart(rails).all(|rail| own(rail.trim_start())))
    }
}

/// The rails of a path, which commas part; those in parentheses part nothing.
fn apart(path: &str) -> impl Iterator<Item = &str> {
    let mut depth = 0_u32;
    path.split(move |c| {
        match c {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            _ => {}
        }
        c == ',' && depth == 0
    })
}

pub(crate) fn run(args: &CompareArgs) -> Result<Exit, Failure> {
    let mut found = Vec::new();
    let mut result = each(args, &mut found);
    let best = found.iter().filter_map(|(_, result)| Some(result.as_ref().ok()?.gbit_s)).fold(0.0, f64::max);
    if result.is_ok() && best == 0.0 {
        let peer = &args.peer;
        let why = format!("LS0743 no path to {peer} works: `lspan doctor {peer}` says what is missing");
        result = Err(Failure::new(Exit::NoPeer, why));
    }
    let mut out = Out::default();
    if args.json {
        out.json(&document(args, &found, result.as_ref().err()), true)?;
    } else {
        out.text(&text(&found, best))?;
    }
    result.map(|()| Exit::Ok)
}

/// A way with what was measured on it.
type Measured = (ComparedPath, Result<Once, String>);

/// Measures each way; what was found, also where not all can be.
fn each(args: &CompareArgs, found: &mut Vec<Measured>) -> Result<(), Failure> {
    // A peer that serves nobody is told of once, not for each way.
    rendezvous::ask(&args.peer, rendezvous::PERF)?;
    let local = is_local(&args.peer)?;
    let fabric = Fabric::new(Config::from_env()?, Log::off(), false, linkspan_transports::all())?;
    let ways = ways(&Machine::read(&Roots::default()), fabric.survey(), local);
    drop(fabric);
    let interrupt = signals::interrupt()?;
    let mut progress = Progress::new();
    for way in ways {
        if interrupt.raised() {
            break;
        }
        // What linkspan chooses is often one of the ways: it is measured once, and has both names.
        if let Some((chosen, Ok(once))) = found.first_mut()
            && chosen.name == CHOSEN
            && way.carried(once)
        {
            *chosen = ComparedPath { name: format!("{} ({CHOSEN})", way.name), ..way };
            continue;
        }
        progress.say(&format!("measuring {} ...", way.name));
        let result = measure(args, &way);
        found.push((way, result));
    }
    progress.clear();
    if interrupt.raised() { Err(LinkError::Interrupted.into()) } else { Ok(()) }
}

/// Whether the peer is on this host.
pub(crate) fn is_local(peer: &str) -> Result<bool, Failure> {
    let here = |ip| linkspan_net::interface_of(ip, 0).ok().flatten().is_some();
    Ok(rendezvous::addresses(peer, rendezvous::PERF)?.iter().any(|addr| addr.ip().is_loopback() || here(addr.ip())))
}

/// What linkspan chooses, then each way by itself.
pub(crate) fn ways(machine: &Machine, survey: &[(Interface, Verdict)], local: bool) -> Vec<ComparedPath> {
    let way = |name: String, path, mark: &str, env: &[(&'static str, &str)]| ComparedPath {
        name,
        path,
        over: String::new(),
        mark: mark.to_owned(),
        env: env.iter().map(|(key, value)| (*key, (*value).to_owned())).collect(),
    };
    let mut list = vec![way(CHOSEN.into(), "auto", "", &[])];
    if local {
        list.push(way("shared memory".into(), "shm", "", &[]));
        list.push(way("tcp over loopback".into(), "tcp", "lo ", &[("LINKSPAN_IFNAME", "=lo")]));
    }
    for port in machine.rdma.iter().flat_map(|device| device.ports.iter().map(move |port| (&device.name, port))) {
        let (device, port) = port;
        let over = port.interface.as_ref().map_or_else(String::new, |name| format!(" over {name}"));
        let name = format!("rdma by {device}{over}");
        let only = format!("={}", port.interface.as_deref().unwrap_or_default());
        let mut env = vec![("LINKSPAN_IB_HCA", format!("={device}"))];
        if port.interface.is_some() {
            env.push(("LINKSPAN_IFNAME", only));
        }
        let same = |other: &ComparedPath| other.name == name;
        if !list.iter().any(same) {
            let (over, mark) = (port.interface.clone().unwrap_or_default(), format!("{device}/"));
            list.push(ComparedPath { name, path: "verbs", over, mark, env });
        }
    }
    let cabled = machine.thunderbolt.iter().any(|domain| !domain.xdomains.is_empty());
    if cabled && !local {
        for (tier, name) in [("ring", "cable by linkspan.ko"), ("stream", "cable by USB4STREAM")] {
            list.push(way(name.into(), "thunderbolt", &format!("({tier})"), &[("LINKSPAN_THUNDERBOLT_TIER", tier)]));
        }
    }
    let other = |(iface, verdict): &&(Interface, Verdict)| {
        let chosen = verdict.is_usable()
            || matches!(
                verdict,
                Verdict::LeftOut(Reason::Slow { .. } | Reason::Wireless | Reason::LinkLocalOnly | Reason::Management)
            );
        chosen && iface.kind != Kind::Loopback && !local
    };
    for (iface, _) in survey.iter().filter(other) {
        let name = &iface.name;
        let env = [("LINKSPAN_IFNAME", &*format!("={name}"))];
        let one = way(format!("tcp over {name}"), "tcp", &format!("{name} "), &env);
        list.push(ComparedPath { over: name.clone(), ..one });
    }
    list
}

pub(crate) fn measure(args: &CompareArgs, way: &ComparedPath) -> Result<Once, String> {
    let exe = std::env::current_exe().map_err(|error| error.to_string())?;
    let run = |test: &str, size: &str| {
        let mut command = Command::new(&exe);
        command.args(["perf", test, &args.peer, "--json", "--path", way.path, "--size", size, "--warmup", "4"]);
        command.arg("--duration").arg(format!("{}ms", args.duration.as_millis().max(1)));
        command.env("LINKSPAN_CONNECT_TIMEOUT_MS", "5000").envs(way.env.iter().map(|(key, value)| (key, value)));
        once::record(command, once::limit(args.duration))
    };
    let bw = run("bw", "1M")?;
    let lat = run("lat", "8")?;
    let once = once::figures(&bw, Some(&lat))?;
    // Over an interface where nobody answers, the peer may be reached by its address over another.
    if way.path == "tcp" && !way.over.is_empty() && !way.carried(&once) {
        return Err(format!("nobody answered over it; the peer was reached over {}", once.path));
    }
    Ok(once)
}

fn text(found: &[Measured], best: f64) -> String {
    let mut rows = vec![["way", "Gb/s", "GB/s", "of the best", "latency us", "path"].map(String::from).to_vec()];
    let mut order: Vec<_> = found.iter().collect();
    let rate = |result: &Result<Once, String>| result.as_ref().map_or(-1.0, |once| once.gbit_s);
    // What is chosen stands first.
    if let Some((_, others)) = order.split_first_mut() {
        others.sort_by(|a, b| rate(&b.1).total_cmp(&rate(&a.1)));
    }
    let mut not = String::new();
    for (way, result) in order {
        match result {
            Ok(once) => rows.push(vec![
                way.name.clone(),
                format!("{:.2}", once.gbit_s),
                format!("{:.3}", once.gbit_s / 8.0),
                format!("{:.0} %", once.gbit_s / best.max(f64::MIN_POSITIVE) * 100.0),
                once.latency_us.map_or_else(|| "-".into(), |us| format!("{us:.1}")),
                once.path.clone(),
            ]),
            Err(why) => not.push_str(&format!("# not {}: {why}\n", way.name)),
        }
    }
    if rows.len() == 1 {
        return not;
    }
    format!(
        "{}{not}# 1 MiB messages, 8 in flight, to the peer; latency is the median of half round trips of 8 bytes\n",
        table(&rows)
    )
}

fn document(args: &CompareArgs, found: &[Measured], error: Option<&Failure>) -> serde_json::Value {
    let ways: Vec<_> = found
        .iter()
        .map(|(way, result)| match result {
            Ok(once) => json!({
                "way": way.name, "path_option": way.path, "bw_gbit_s": once.gbit_s, "latency_p50_us": once.latency_us, "path": once.path,
                "downgrades": once.downgrades, "error": null,
            }),
            Err(why) => json!({
                "way": way.name, "path_option": way.path, "bw_gbit_s": null, "latency_p50_us": null, "path": null, "downgrades": [], "error": why,
            }),
        })
        .collect();
    json!({ "schema": SCHEMA, "peer": args.peer, "ways": ways, "error": error.map(|failure| &failure.message) })
}

#[cfg(test)]
mod tests;
