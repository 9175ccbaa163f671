//! Speeds that were measured, judged against what this pair did before and against each other. What a kind of path does elsewhere is
//! told beside them and judges nothing: no row of that table has figures of real hardware yet.

use std::collections::BTreeMap;

use crate::finding::{Finding, Rule, Step};
use crate::judge::Report;
use crate::list::{FIREWALL_PEER, SPEED_DROPPED, SPEED_RAILS, SPEED_STALLED};

/// Below this part of its own record a way has become slower. Repeated runs of a quiet pair stay within a tenth.
const KEPT: f64 = 0.7;

/// Below this part of its equal a rail has a fault of its own.
const EQUAL: f64 = 0.6;

/// Measurements that a record keeps.
pub const RECORD: usize = 8;

/// A way to a peer, and what it carried.
#[derive(Clone, Debug, PartialEq)]
pub struct Measured {
    /// What it is, as in `tcp over eth0`.
    pub way: String,
    /// The interface or device that it is over; empty where the fabric chose.
    pub over: String,
    /// How bytes go: `tcp`, `verbs`, `thunderbolt`, `shm`, `auto`.
    pub kind: String,
    /// What says that two rails of one kind are equal, as the negotiated speed; empty where nothing is known.
    pub equal: String,
    /// Payload, Gb/s.
    pub gbit_s: f64,
}

/// What is kept of a peer: for each way its last good measurements, Gb/s.
pub type Kept = BTreeMap<String, Vec<f64>>;

/// Judges measurements to a peer, and adds the good ones to what is kept.
pub fn speeds(host: &str, peer: &str, measured: &[Measured], kept: &mut Kept) -> Report {
    let (mut report, mut slow) = (Report::default(), Vec::new());
    let mut add = |rule: &'static Rule, one: &Measured, what: String, step: String| {
        let subject = if one.over.is_empty() { peer.to_owned() } else { one.over.clone() };
        report.findings.push(Finding { rule, host: host.to_owned(), subject, what, mend: vec![Step::Do(step)] });
    };
    for one in measured {
        let better = measured
            .iter()
            .filter(|other| {
                other.kind == one.kind && other.equal == one.equal && !one.equal.is_empty() && other.over != one.over
            })
            .max_by(|a, b| a.gbit_s.total_cmp(&b.gbit_s));
        if let Some(better) = better.filter(|better| one.gbit_s < better.gbit_s * EQUAL) {
            let what = format!(
                "{} carries {} to {peer}, and {}, which is equal ({}), {}",
                one.way,
                rate(one.gbit_s),
                better.way,
                one.equal,
                rate(better.gbit_s)
            );
            let step = format!(
                "swap the cables of {} and {}: what is slow then is the cable, or the port",
                one.over, better.over
            );
            add(&SPEED_RAILS, one, what, step);
            slow.push(&*one.way);
        }
    }
    let rails: Vec<String> = report.findings.iter().map(|finding| finding.subject.clone()).collect();
    let mut dropped = Vec::new();
    for one in measured {
        let record = kept.entry(one.way.clone()).or_default();
        record.retain(|rate| rate.is_finite() && *rate > 0.0);
        match median(record) {
            Some(usual) if one.gbit_s < usual * KEPT => dropped.push((one, usual, record.len())),
            _ if slow.contains(&&*one.way) => {}
            _ => {
                record.push(one.gbit_s);
                let old = record.len().saturating_sub(RECORD);
                record.drain(..old);
            }
        }
    }
    for (one, usual, count) in dropped.into_iter().filter(|(one, ..)| !rails.contains(&one.over)) {
        let what = format!(
            "{} carries {} to {peer}; the record of this pair says {} ({count} measurements)",
            one.way,
            rate(one.gbit_s),
            rate(usual)
        );
        let step = "look at what has changed: the cable, its port, the load of both hosts, the kernel; where the slower way is meant, remove the \
                    record that is named below";
        let subject = if one.over.is_empty() { peer.to_owned() } else { one.over.clone() };
        let finding =
            Finding { rule: &SPEED_DROPPED, host: host.to_owned(), subject, what, mend: vec![Step::Do(step.into())] };
        report.findings.push(finding);
    }
    report.facts = measured
        .iter()
        .map(|one| format!("measured to {peer}: {} {}{}", one.way, rate(one.gbit_s), elsewhere(&one.kind)))
        .collect();
    report
}

/// Judges a peer over no way to which anything could be measured: `open` is its port where that took a connection, `failures` why each
/// way came to nothing. `None`: the reason is another one.
pub fn shut(host: &str, peer: &str, open: Option<u16>, failures: &[String]) -> Option<Finding> {
    // LS0508: no address that the peer offers answers at its random port.
    let port = open.filter(|_| !failures.is_empty() && failures.iter().all(|why| why.contains("LS0508")))?;
    let what = format!("{peer} answers at port {port}, and its other ports do not");
    let step = format!(
        "on the host of {peer}: sudo lspan doctor, which names the rule and the command that lets the interface in (with ufw: sudo ufw status); data goes to random \
         ports, so that opening {port} alone does not do"
    );
    Some(Finding {
        rule: &FIREWALL_PEER,
        host: host.to_owned(),
        subject: peer.to_owned(),
        what,
        mend: vec![Step::Do(step)],
    })
}

/// A way over which a measurement did not end in its time.
pub fn stalled(host: &str, peer: &str, way: &str, over: &str, why: &str) -> Finding {
    let subject = if over.is_empty() { peer } else { over }.to_owned();
    let step = format!(
        "look at what sits between, and limits its speed: `lspan doctor {peer}`, `tc qdisc show` on both hosts"
    );
    let what = format!("{way} to {peer}: {why}");
    Finding { rule: &SPEED_STALLED, host: host.to_owned(), subject, what, mend: vec![Step::Do(step)] }
}

/// As people say it.
fn rate(gbit_s: f64) -> String {
    if gbit_s < 0.1 { format!("{:.1} Mb/s", gbit_s * 1e3) } else { format!("{gbit_s:.2} Gb/s") }
}

/// The middle one, or the mean of the two in the middle.
fn median(record: &[f64]) -> Option<f64> {
    let mut sorted = record.to_vec();
    sorted.sort_by(f64::total_cmp);
    let high = sorted.get(sorted.len() / 2)?;
    Some((sorted[(sorted.len() - 1) / 2] + high) / 2.0)
}

/// What a kind of path does elsewhere, with the source; for orientation alone.
fn elsewhere(kind: &str) -> &'static str {
    match kind {
        "tcp" => {
            " (of a frame of 1538 bytes on Ethernet 1448 are payload: IEEE 802.3, RFC 7323; no figures of real cards are kept here)"
        }
        "verbs" => {
            " (of a RoCE v2 packet of 4178 bytes on Ethernet 4096 are payload: InfiniBand's specification, annex A17; no figures of real cards are kept here)"
        }
        "thunderbolt" => " (no figures of real cables are kept here)",
        _ => "",
    }
}

#[cfg(test)]
mod tests;
