//! `lspan doctor`: what is wrong here, what that costs and what to type.

mod json;
mod speed;
mod text;

use std::fs::File;
use std::io::Read;
use std::path::Path;

use linkspan_doctor::{Asked, END_MAX, End, Finding, Snapshot, Sources, ask, best, exit_code, judge, listen, together};
use linkspan_fabric::chain;
use linkspan_topology::{Roots, Verdict};

use crate::cli::DoctorArgs;
use crate::exit::{Exit, Failure};
use crate::out::{Out, Progress};
use linkspan_service::rendezvous;

/// Release of this program.
const RELEASE: &str = env!("CARGO_PKG_VERSION");

/// How the findings end the program.
fn exit(findings: &[Finding]) -> Exit {
    match exit_code(findings) {
        0 => Exit::Ok,
        3 => Exit::Degraded,
        _ => Exit::Failed,
    }
}

/// Whether what is broken here may be why nothing came of the peer. What is slower, or can never work here, is not.
fn explained(findings: &[Finding]) -> bool {
    exit(findings) == Exit::Failed
}

pub(crate) fn run(args: &DoctorArgs) -> Result<Exit, Failure> {
    if !args.merge.is_empty() {
        return merge(args);
    }
    let settings = crate::fabric::settings();
    let warnings = settings.as_ref().map(|config| config.warnings.clone()).unwrap_or_default();
    let settings = settings.err().map(|error| chain(&error));
    let mut snapshot = Snapshot::read(match &args.root {
        Some(root) => Sources { roots: Roots::under(root), settings, ..Sources::here(None) },
        None => Sources::here(settings),
    });
    let mut notes = [snapshot.notes(), &warnings].concat();
    if !args.no_probe {
        hear(&mut snapshot, &mut notes);
    }
    let (asked, lost) = match (&args.peer, args.no_probe) {
        (Some(peer), false) => match question(&snapshot, peer) {
            Ok(asked) => (Some(asked), None),
            // What is wrong here may be why there is no way to it.
            Err(why) => (None, Some(why)),
        },
        _ => (None, None),
    };
    let mut report = judge(&snapshot, asked.as_ref());
    let (mut ended, found) = (Ok(()), lost.is_none());
    if let Some(why) = lost {
        notes.push(why.message.clone());
        if !explained(&report.findings) {
            ended = Err(why);
        }
    } else if let (true, Some(peer)) = (args.speed, &args.peer) {
        match speed::judge(&snapshot, peer, asked.as_ref(), &mut notes) {
            Ok(found) => {
                report.findings.extend(found.findings);
                report.facts.extend(found.facts);
            }
            Err(why) => {
                notes.push(why.message.clone());
                // What is wrong on the way may be why nothing could be measured.
                if why.exit != Exit::NoPeer || !explained(&report.findings) {
                    ended = Err(why);
                }
            }
        }
    }
    // What is known of the way is told all the same.
    let told = ended.is_ok() || found && ended.as_ref().is_err_and(|why| why.exit == Exit::NoPeer);
    let exit = ended.as_ref().map_or_else(|why| why.exit, |()| exit(&report.findings));
    let mut out = Out::default();
    if args.json {
        out.json(&json::host(&snapshot, &report, &notes, asked.as_ref(), exit, RELEASE), true)?;
    } else if told {
        out.text(&text::host(&snapshot, &report, &notes, args.peer.is_some()))?;
    }
    ended.map(|()| exit)
}

/// Asks on each cable who is there.
fn hear(snapshot: &mut Snapshot, notes: &mut Vec<String>) {
    let names: Vec<&str> = snapshot.cabled().map(|iface| iface.name.as_str()).collect();
    if names.is_empty() {
        return;
    }
    let names = names.join(", ");
    eprintln!(
        "lspan: asking who is at the other end of {names}: one ping to all hosts on each (--no-probe leaves it out)"
    );
    match listen(snapshot.cabled()) {
        Ok(heard) => snapshot.hear(heard),
        Err(error) => {
            notes.push(format!("nobody could be asked on {names}: {error} (root may, or net.ipv4.ping_group_range)"))
        }
    }
}

/// Asks the peer at each of its addresses; the one that answers best is judged.
fn question(snapshot: &Snapshot, peer: &str) -> Result<Asked, Failure> {
    let addrs = rendezvous::addresses(peer, rendezvous::PERF)?;
    eprintln!(
        "lspan: asking {peer}: pings of growing size and one connection, which is closed at once (--no-probe leaves it out)"
    );
    let mtu = |source| {
        let list = linkspan_net::interface_of(source, 0).ok().flatten()?;
        snapshot.mtu(&list.name)
    };
    let all = addrs.into_iter().map(|addr| {
        Progress::new().say(&format!("asking {} ...", rendezvous::shown(&addr)));
        ask(addr, mtu).named(peer)
    });
    best(all).ok_or_else(|| Failure::new(Exit::NoPeer, format!("LS2020 {peer}: the name has no address")))
}

fn merge(args: &DoctorArgs) -> Result<Exit, Failure> {
    let mut ends = Vec::new();
    for file in &args.merge {
        ends.push(read(file)?);
    }
    let report = together(&ends).map_err(|error| Failure::new(Exit::Failed, chain(&error)))?;
    let hosts: Vec<&str> = ends.iter().map(|end| end.host.as_str()).collect();
    let mut out = Out::default();
    if args.json {
        out.json(&json::merged(&hosts, &report, exit(&report.findings), RELEASE), true)?;
    } else {
        out.text(&text::merged(&hosts, &report))?;
    }
    Ok(exit(&report.findings))
}

fn read(file: &Path) -> Result<End, Failure> {
    let failed = |error: std::io::Error| Failure::system(&file.display().to_string(), &error);
    let mut bytes = Vec::new();
    let limit = END_MAX as u64 + 1;
    File::open(file).map_err(failed)?.take(limit).read_to_end(&mut bytes).map_err(failed)?;
    End::parse(&bytes).map_err(|error| Failure::new(Exit::Failed, format!("{}: {}", file.display(), chain(&error))))
}

/// Whether an interface carries traffic; for the summary.
fn usable(snapshot: &Snapshot) -> Vec<String> {
    let used = snapshot.survey().iter().filter(|(_, verdict)| matches!(verdict, Verdict::Usable | Verdict::LastResort));
    used.map(|(iface, _)| iface.name.clone()).collect()
}

#[cfg(test)]
mod tests;
