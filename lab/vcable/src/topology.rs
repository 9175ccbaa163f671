//! Which hosts there are and which cables join them.
//!
//! As text, one thing per line; `#` begins a comment:
//!
//! ```text
//! host a                      # a guest's host interface, one socket
//! host b ports=2 router=v2 irq=intel msi machine=left hops=12 gen=4 pm=off edge=status
//! peer p                      # a host in software, inside this process
//! cable x a:1 b:1 lanes=2 gen=3 width=asym-tx unplugged
//! ```

use crate::error::Error;
use crate::link::Width;
use crate::nhi::irq::Edge;
use crate::nhi::regs::MAX_HOPS;

/// One host interface with its router, or a software peer.
#[derive(Clone, Debug, PartialEq)]
pub struct HostSpec {
    /// Name; also of its socket.
    pub name: String,
    /// Machine that it is part of: host interfaces of one machine belong into one guest.
    pub machine: String,
    /// A host in software instead of a guest.
    pub peer: bool,
    /// USB4 ports, 1 to 8.
    pub ports: usize,
    /// Rings of each direction, 1 to 32.
    pub hops: usize,
    /// USB4 version 2 router and host interface.
    pub version_2: bool,
    /// Vendor 8086, whose driver uses automatic clearing of interrupts.
    pub intel: bool,
    /// Only MSI, no MSI-X.
    pub msi: bool,
    /// Power management capability with wake events.
    pub pm: bool,
    /// Highest link generation, 2 to 4.
    pub generation: u8,
    /// Lanes per port, 1 or 2.
    pub lanes: u8,
    /// When completions interrupt.
    pub edge: Edge,
    /// Credits for receive descriptors that are posted before the TX ring that they go out by runs are lost.
    pub strict_credits: bool,
}

impl HostSpec {
    /// A plain host with one port, one lane, generation 3.
    pub fn new(name: &str) -> HostSpec {
        HostSpec {
            name: name.to_owned(),
            machine: name.to_owned(),
            peer: false,
            ports: 1,
            hops: MAX_HOPS,
            version_2: false,
            intel: false,
            msi: false,
            pm: true,
            generation: 3,
            lanes: 1,
            edge: Edge::Completion,
            strict_credits: false,
        }
    }
}

/// A port of a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct End {
    /// Index of the host.
    pub host: usize,
    /// Port, from 1.
    pub port: usize,
}

/// A cable.
#[derive(Clone, Debug, PartialEq)]
pub struct CableSpec {
    /// Name.
    pub name: String,
    /// Its two ends.
    pub ends: [End; 2],
    /// Highest generation of the cable.
    pub generation: u8,
    /// Width after training, as the first end sees it; bonding makes a single link dual later.
    pub width: Width,
    /// Whether it is in at the start.
    pub plugged: bool,
}

/// Hosts and cables.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Topology {
    /// Hosts.
    pub hosts: Vec<HostSpec>,
    /// Cables.
    pub cables: Vec<CableSpec>,
}

/// Names of the built-in topologies.
pub const PRESETS: [&str; 7] = ["pair", "pair2", "twonhi", "chain3", "triangle", "peer", "peer2"];

impl Topology {
    /// A built-in topology: `pair` (a-b), `pair2` (a=b, two cables on two ports), `twonhi` (two machines with two host
    /// interfaces each, one cable per pair), `chain3` (a-b-c), `triangle`, `peer` (a guest and a software peer),
    /// `peer2` (the same with two cables).
    pub fn preset(name: &str) -> Option<Topology> {
        let text = match name {
            "pair" => "host a\nhost b\ncable ab a:1 b:1",
            "pair2" => "host a ports=2\nhost b ports=2\ncable ab1 a:1 b:1\ncable ab2 a:2 b:2",
            "twonhi" => {
                "host a0 machine=a\nhost a1 machine=a\nhost b0 machine=b\nhost b1 machine=b\n\
                 cable ab0 a0:1 b0:1\ncable ab1 a1:1 b1:1"
            }
            "chain3" => "host a\nhost b ports=2\nhost c\ncable ab a:1 b:1\ncable bc b:2 c:1",
            "triangle" => {
                "host a ports=2\nhost b ports=2\nhost c ports=2\n\
                 cable ab a:1 b:1\ncable bc b:2 c:1\ncable ca c:2 a:2"
            }
            "peer" => "host a\npeer p\ncable ap a:1 p:1",
            "peer2" => "host a ports=2\npeer p ports=2\ncable ap1 a:1 p:1\ncable ap2 a:2 p:2",
            _ => return None,
        };
        Topology::parse(text).ok()
    }

    /// Reads the text form.
    ///
    /// # Errors
    /// [`Error::Topology`]: the first line that is wrong, with its number.
    pub fn parse(text: &str) -> Result<Topology, Error> {
        let mut all = Topology::default();
        for (at, line) in text.lines().enumerate() {
            let words: Vec<&str> = line.split('#').next().unwrap_or("").split_whitespace().collect();
            let result = match words.as_slice() {
                [] => Ok(()),
                ["host", name, rest @ ..] => all.host(name, false, rest),
                ["peer", name, rest @ ..] => all.host(name, true, rest),
                ["cable", name, a, b, rest @ ..] => all.cable(name, a, b, rest),
                [other, ..] => Err(format!("'{other}': 'host NAME', 'peer NAME' or 'cable NAME A:PORT B:PORT' wanted")),
            };
            result.map_err(|what| Error::Topology { line: at + 1, what })?;
        }
        Ok(all)
    }

    /// Index of a host.
    pub fn host_index(&self, name: &str) -> Option<usize> {
        self.hosts.iter().position(|h| h.name == name)
    }

    /// Index of a cable.
    pub fn cable_index(&self, name: &str) -> Option<usize> {
        self.cables.iter().position(|c| c.name == name)
    }

    fn host(&mut self, name: &str, peer: bool, rest: &[&str]) -> Result<(), String> {
        if self.host_index(name).is_some() {
            return Err(format!("host '{name}' is there twice"));
        }
        // The name becomes a file name.
        if !name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_') {
            return Err(format!("host name '{name}': letters, digits, '-' and '_' only"));
        }
        let mut host = HostSpec { peer, ..HostSpec::new(name) };
        for word in rest {
            match word.split_once('=').unwrap_or((word, "")) {
                ("machine", m) if !m.is_empty() => host.machine = m.to_owned(),
                ("ports", n) => host.ports = number(word, n, 1, 8)?,
                ("hops", n) => host.hops = number(word, n, 2, MAX_HOPS)?,
                ("gen", n) => host.generation = number(word, n, 2, 4)? as u8,
                ("lanes", n) => host.lanes = number(word, n, 1, 2)? as u8,
                ("router", "v1") => host.version_2 = false,
                ("router", "v2") => host.version_2 = true,
                ("irq", "plain") => host.intel = false,
                ("irq", "intel") => host.intel = true,
                ("edge", "completion") => host.edge = Edge::Completion,
                ("edge", "status") => host.edge = Edge::Status,
                ("edge", "silent") => host.edge = Edge::Silent,
                ("credits", "strict") => host.strict_credits = true,
                ("msi", "") => host.msi = true,
                ("pm", "on") => host.pm = true,
                ("pm", "off") => host.pm = false,
                _ => {
                    return Err(format!(
                        "'{word}': machine=NAME, ports=N, hops=N, gen=2..4, lanes=1..2, router=v1|v2, irq=plain|intel, \
                         edge=completion|status|silent, credits=strict, pm=on|off or msi wanted"
                    ));
                }
            }
        }
        self.hosts.push(host);
        Ok(())
    }

    fn cable(&mut self, name: &str, a: &str, b: &str, rest: &[&str]) -> Result<(), String> {
        if self.cable_index(name).is_some() {
            return Err(format!("cable '{name}' is there twice"));
        }
        let ends = [self.end(a)?, self.end(b)?];
        for end in ends {
            if self.cables.iter().any(|c| c.ends.contains(&end)) || ends[0] == ends[1] {
                return Err(format!("cable '{name}': port {} of its host is taken", end.port));
            }
        }
        let mut cable = CableSpec { name: name.to_owned(), ends, generation: 4, width: Width::Single, plugged: true };
        for word in rest {
            match word.split_once('=').unwrap_or((word, "")) {
                ("gen", n) => {
                    cable.generation = number(word, n, 2, 4)? as u8;
                    let hosts = ends.map(|e| e.host);
                    hosts
                        .iter()
                        .for_each(|h| self.hosts[*h].generation = self.hosts[*h].generation.max(cable.generation));
                }
                ("lanes", n) => {
                    let lanes = number(word, n, 1, 2)? as u8;
                    ends.iter().for_each(|e| self.hosts[e.host].lanes = self.hosts[e.host].lanes.max(lanes));
                }
                ("width", w) => {
                    cable.width =
                        Width::parse(w).ok_or_else(|| format!("'{word}': single, dual, asym-tx or asym-rx"))?;
                }
                ("unplugged", "") => cable.plugged = false,
                _ => return Err(format!("'{word}': gen=2..4, lanes=1..2, width=WIDTH or unplugged wanted")),
            }
        }
        self.cables.push(cable);
        Ok(())
    }

    fn end(&self, text: &str) -> Result<End, String> {
        let (name, port) = text.split_once(':').unwrap_or((text, "1"));
        let host = self.host_index(name).ok_or_else(|| format!("'{text}': no host '{name}' above this line"))?;
        let port = number(text, port, 1, self.hosts[host].ports)?;
        Ok(End { host, port })
    }
}

fn number(word: &str, text: &str, least: usize, most: usize) -> Result<usize, String> {
    match text.parse() {
        Ok(n) if (least..=most).contains(&n) => Ok(n),
        _ => Err(format!("'{word}': a number from {least} to {most} wanted")),
    }
}

#[cfg(test)]
mod tests;
