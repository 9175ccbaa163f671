//! From a snapshot to findings: no file is read and nothing is asked here.

mod gpu;
mod host;
mod nccl;
mod network;
mod peer;
mod rdma;
mod thunderbolt;

pub use nccl::takes_linkspan;

use linkspan_topology::is_link_local;

use crate::finding::{Finding, Rule, Step, root_causes};
use crate::module;
use crate::probe::Asked;
use crate::snapshot::Snapshot;

/// What a machine's snapshot says.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Report {
    /// What is wrong, the worst first, without what follows from something else in the list; last what can never work here.
    pub findings: Vec<Finding>,
    /// What is worth knowing and no fault, a sentence each.
    pub facts: Vec<String>,
}

/// Judges a machine, and what a peer answered to it.
pub fn judge(snapshot: &Snapshot, asked: Option<&Asked>) -> Report {
    let mut case = Case { snap: snapshot, report: Report::default() };
    thunderbolt::judge(&mut case);
    rdma::judge(&mut case);
    network::judge(&mut case);
    host::judge(&mut case);
    gpu::judge(&mut case);
    nccl::judge(&mut case);
    if let Some(asked) = asked {
        peer::judge(&mut case, asked);
    }
    case.report.findings = root_causes(case.report.findings);
    case.report
}

/// A machine that is being judged.
struct Case<'a> {
    snap: &'a Snapshot,
    report: Report,
}

impl<'a> Case<'a> {
    fn add(&mut self, rule: &'static Rule, subject: &str, what: impl Into<String>, mend: Vec<Step>) {
        let (host, subject, what) = (self.snap.host().to_owned(), subject.to_owned(), what.into());
        self.report.findings.push(Finding { rule, host, subject, what, mend });
    }

    fn fact(&mut self, text: impl Into<String>) {
        self.report.facts.push(text.into());
    }
}

fn run(command: impl Into<String>) -> Vec<Step> {
    vec![Step::Run(command.into())]
}

/// A command that loads a module, or what has to be done before one can be.
fn load(snap: &Snapshot, command: impl Into<String>) -> Vec<Step> {
    let release = &snap.machine.host.kernel;
    match module::replaced(&snap.sources.roots, release).filter(|_| snap.container().is_none()) {
        Some(others) => by_hand(format!(
            "reboot, where an update has replaced the running kernel: /lib/modules has those of {others} and none of {release}"
        )),
        None => run(command),
    }
}

fn by_hand(what: impl Into<String>) -> Vec<Step> {
    vec![Step::Do(what.into())]
}

/// Addresses for both ends of a cable, which both hosts find by themselves: from the link-local addresses of the two ends,
/// a subnet of four addresses in 10.64.0.0/10. `None` where no neighbour, or more than one, was heard on the interface, or this
/// host has such a subnet elsewhere.
fn addresses(snap: &Snapshot, name: &str) -> Option<(String, String)> {
    let (iface, _) = snap.interface(name)?;
    let own = iface.addrs.iter().find(|addr| addr.ip.is_ipv6() && addr.is_link_local())?.ip;
    let mut heard = snap.sources.heard.iter().filter(|heard| heard.interface == name);
    let (theirs, None) = (heard.next()?.addr, heard.next()) else { return None };
    let std::net::IpAddr::V6(own) = own else { return None };
    let (first, second) = if own < theirs { (own, theirs) } else { (theirs, own) };
    // FNV-1a (draft-eastlake-fnv), for its place alone.
    let bytes = first.octets().into_iter().chain(second.octets());
    let hash = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |h, b| (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3));
    let net = u32::from_be_bytes([10, 64, 0, 0]) | (hash as u32 & 0x003f_fffc);
    let (low, high) = (std::net::Ipv4Addr::from_bits(net + 1), std::net::Ipv4Addr::from_bits(net + 2));
    let taken = |iface: &linkspan_topology::Interface| iface.addrs.iter().any(|a| a.same_subnet(low.into()));
    if snap.survey.iter().any(|(other, _)| other.name != name && taken(other)) {
        return None;
    }
    let (ours, theirs) = if own == first { (low, high) } else { (high, low) };
    Some((format!("{ours}/30"), format!("{theirs}/30")))
}

/// How an interface gets an address: as a command where both ends find the same subnet by themselves, else in words.
fn give_address(snap: &Snapshot, name: &str) -> Vec<Step> {
    match addresses(snap, name) {
        Some((ours, theirs)) => {
            let mut steps = snap.manager(name).address(name, &ours);
            steps.push(Step::Do(format!("the other end gets {theirs}: `lspan doctor` there prints that command")));
            steps
        }
        None => {
            let example = snap.manager(name).address(name, "10.77.0.1/30").into_iter().map(|step| match step {
                Step::Run(command) | Step::Do(command) => command,
            });
            let example: String = example.collect();
            by_hand(format!(
                "give both ends addresses of one subnet that no other cable has, here for instance: {example}; on the other host 10.77.0.2/30"
            ))
        }
    }
}

/// Addresses that other hosts connect to from anywhere.
fn routed(iface: &linkspan_topology::Interface) -> bool {
    iface.addrs.iter().any(|addr| !is_link_local(addr.ip))
}
