//! What one host tells of itself for judging it together with others: a part of `lspan doctor --json`. A file of it came from
//! elsewhere, and nothing in it is believed: everything is bounded, and no text reaches a terminal as it is.

use std::net::IpAddr;

use linkspan_topology::{LinkLayer, Verdict};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::routes::{self, Route, Rule};
use crate::snapshot::Snapshot;

/// Name and version of the form that [`End`] has in a file, and of the document around it.
pub(crate) const SCHEMA: &str = "linkspan.doctor/1";

/// Largest file that is read, bytes: a host of a thousand interfaces has some 300 KB.
pub const END_MAX: usize = 1 << 20;

/// Most of anything in one file; the places of ports are bytes in the mesh's graph.
const MOST: usize = 250;

/// Most addresses of an interface, and neighbours on it.
const ADDRS: usize = 16;

/// Longest text, characters.
const TEXT: usize = 64;

/// Why a file is not taken.
#[derive(Debug, Error)]
pub enum BadEnd {
    /// Too much.
    #[error("LS2010 {0} bytes, the limit is {END_MAX}: no output of `lspan doctor --json`")]
    Long(usize),
    /// Not JSON, or without the fields.
    #[error("LS2011 this is no output of `lspan doctor --json`")]
    Form(#[source] serde_json::Error),
    /// Of another version.
    #[error("LS2012 this is {found:?}, this linkspan reads {SCHEMA:?}: run the same release on all hosts")]
    Schema {
        /// What it says it is.
        found: String,
    },
    /// More of something than a host has.
    #[error("LS2013 {count} {what}, the limit is {most}: no output of `lspan doctor --json`")]
    Many {
        /// Of what.
        what: &'static str,
        /// How many.
        count: usize,
        /// How many there may be.
        most: usize,
    },
    /// One host more than once.
    #[error("LS2014 host {0} is there twice: give one file for each host")]
    Twice(String),
    /// Nothing to judge together.
    #[error("LS2015 {0} hosts: 2 to {MOST} can be judged together")]
    Few(usize),
}

/// A host, as it tells of itself.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub struct End {
    /// Its name.
    pub host: String,
    pub(crate) boot_id: Option<String>,
    pub(crate) release: String,
    pub(crate) pid_namespace: Option<String>,
    pub(crate) net_namespace: Option<String>,
    /// Release of the plugin that its loader takes.
    pub(crate) plugin: Option<String>,
    /// UUIDs of its Thunderbolt and USB4 host routers.
    pub(crate) routers: Vec<String>,
    pub(crate) ports: Vec<Port>,
    pub(crate) cards: Vec<Card>,
    pub(crate) routes: Vec<Route>,
    /// Rules that choose among the tables of routes; none: there is the main one alone.
    pub(crate) rules: Vec<Rule>,
}

/// An interface.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub(crate) struct Port {
    pub(crate) name: String,
    pub(crate) mac: Option<String>,
    pub(crate) mtu: Option<u32>,
    pub(crate) mbps: Option<u32>,
    pub(crate) carrier: bool,
    /// linkspan may use it.
    pub(crate) usable: bool,
    /// It leads to one host, as far as its host can tell.
    pub(crate) cable: bool,
    pub(crate) rdma: bool,
    pub(crate) gid: bool,
    /// The physical port: the same for both halves of one.
    pub(crate) socket: Option<String>,
    /// UUID of the host router at the other end of a Thunderbolt cable.
    pub(crate) peer_router: Option<String>,
    pub(crate) addrs: Vec<Addr>,
    /// Link-local addresses that answered.
    pub(crate) heard: Vec<IpAddr>,
    /// Hardware addresses in the neighbour table.
    pub(crate) neighbours: Vec<String>,
}

/// An address.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub(crate) struct Addr {
    pub(crate) ip: IpAddr,
    pub(crate) prefix: u8,
}

/// An RDMA device.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub(crate) struct Card {
    pub(crate) name: String,
    /// What the maker calls the board: cards with the same take the same firmware.
    pub(crate) board: Option<String>,
    pub(crate) firmware: Option<String>,
}

/// The document around it, of which nothing else is read.
#[derive(Deserialize)]
struct File {
    end: End,
}

impl End {
    /// What this host tells. `release` is that of this program.
    pub fn of(snap: &Snapshot, release: &str) -> End {
        let machine = &snap.machine;
        let roots = &snap.sources.roots;
        let link = |path: &str| roots.link(path);
        let ports = snap.survey.iter().filter(|(i, _)| i.kind != linkspan_topology::Kind::Loopback);
        let card = |device: &linkspan_topology::RdmaDevice| Card {
            name: device.name.clone(),
            board: roots.text(&format!("/sys/class/infiniband/{}/board_id", device.name)),
            firmware: device.firmware.clone(),
        };
        let mut end = End {
            host: machine.host.name.clone(),
            boot_id: machine.host.boot_id.clone(),
            release: release.to_owned(),
            pid_namespace: link("/proc/self/ns/pid"),
            net_namespace: link("/proc/self/ns/net"),
            plugin: snap.plugins.iter().find_map(|found| found.first()?.version.clone()),
            routers: machine
                .thunderbolt
                .iter()
                .flat_map(|d| &d.routers)
                .filter(|r| r.route == 0)
                .filter_map(|r| r.unique_id.clone())
                .collect(),
            ports: ports.map(|(iface, verdict)| port(snap, iface, verdict)).collect(),
            cards: machine.rdma.iter().map(card).collect(),
            routes: snap.routes.clone(),
            rules: snap.rules.clone(),
        };
        // Cables first: what is beyond the limit is a container's virtual cables.
        end.ports.sort_by_key(|port| (!port.cable, !port.usable));
        end.ports.truncate(MOST);
        end.cards.truncate(MOST);
        end.routers.truncate(MOST);
        end.routes.truncate(routes::MOST);
        end.rules.truncate(routes::MOST);
        end
    }

    /// Reads the output of `lspan doctor --json` of any host.
    ///
    /// # Errors
    /// [`BadEnd`], whose variant says what is wrong with it.
    pub fn parse(bytes: &[u8]) -> Result<End, BadEnd> {
        if bytes.len() > END_MAX {
            return Err(BadEnd::Long(bytes.len()));
        }
        // The version first: a file of another one lacks fields that would be named as missing.
        #[derive(Deserialize)]
        struct Version {
            schema: String,
        }
        let version: Version = serde_json::from_slice(bytes).map_err(BadEnd::Form)?;
        if version.schema != SCHEMA {
            return Err(BadEnd::Schema { found: shown(&version.schema) });
        }
        let File { mut end } = serde_json::from_slice(bytes).map_err(BadEnd::Form)?;
        end.check()?;
        Ok(end)
    }

    fn check(&mut self) -> Result<(), BadEnd> {
        let few = |what: &'static str, count: usize, most: usize| {
            if count > most { Err(BadEnd::Many { what, count, most }) } else { Ok(()) }
        };
        few("interfaces", self.ports.len(), MOST)?;
        few("RDMA devices", self.cards.len(), MOST)?;
        few("host routers", self.routers.len(), MOST)?;
        few("routes", self.routes.len(), routes::MOST)?;
        few("rules", self.rules.len(), routes::MOST)?;
        let fits = |ip: IpAddr, prefix: u8| prefix <= if ip.is_ipv4() { 32 } else { 128 };
        let mut texts = vec![&mut self.host, &mut self.release];
        texts.extend(
            [&mut self.boot_id, &mut self.pid_namespace, &mut self.net_namespace, &mut self.plugin]
                .into_iter()
                .flatten(),
        );
        texts.extend(&mut self.routers);
        for port in &mut self.ports {
            for count in [port.addrs.len(), port.heard.len(), port.neighbours.len()] {
                few("addresses of one interface", count, ADDRS)?;
            }
            port.addrs.retain(|addr| fits(addr.ip, addr.prefix));
            texts.push(&mut port.name);
            texts.extend([&mut port.mac, &mut port.socket, &mut port.peer_router].into_iter().flatten());
            texts.extend(&mut port.neighbours);
        }
        for card in &mut self.cards {
            texts.push(&mut card.name);
            texts.extend([&mut card.board, &mut card.firmware].into_iter().flatten());
        }
        self.routes.retain(|route| fits(route.to, route.prefix));
        let nets = |rule: &Rule| [rule.from, rule.to].into_iter().flatten().all(|(ip, prefix)| fits(ip, prefix));
        self.rules.retain(nets);
        texts.extend(self.routes.iter_mut().map(|route| &mut route.interface));
        for text in texts {
            *text = shown(text);
        }
        // Names of interfaces stand in commands that somebody types: what the kernel would not take as a name, no shell gets.
        let plain =
            |name: &str| name.len() < 16 && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-:@".contains(&b));
        self.ports.retain(|port| plain(&port.name) && !port.name.starts_with('-'));
        self.routes.retain(|route| plain(&route.interface) && !route.interface.starts_with('-'));
        Ok(())
    }
}

/// Text from elsewhere as it may be printed.
fn shown(text: &str) -> String {
    let odd = |c: char| {
        c.is_control()
            || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
    };
    text.chars().take(TEXT).map(|c| if odd(c) { '\u{fffd}' } else { c }).collect()
}

fn port(snap: &Snapshot, iface: &linkspan_topology::Interface, verdict: &Verdict) -> Port {
    let mut rdma = snap.machine.rdma.iter().flat_map(|device| device.ports.iter().map(move |port| (device, port)));
    let rdma = rdma.find(|(_, port)| port.interface.as_deref() == Some(&*iface.name));
    let peers = snap.machine.thunderbolt.iter().flat_map(|domain| &domain.xdomains);
    let mut leads = peers.filter(|x| x.services.iter().any(|s| s.interface.as_deref() == Some(&*iface.name)));
    let on = |name: &String| *name == iface.name;
    let heard = snap.sources.heard.iter().filter(|heard| on(&heard.interface)).map(|heard| heard.addr.into());
    let table = snap.machine.neighbours.iter().filter(|neighbour| on(&neighbour.interface));
    Port {
        name: iface.name.clone(),
        mac: iface.mac.clone(),
        mtu: iface.mtu,
        mbps: iface.speed_mbps,
        carrier: iface.up && iface.carrier != Some(false),
        usable: verdict.is_usable(),
        cable: snap.is_cable(iface),
        rdma: rdma.is_some_and(|(_, port)| port.link_layer == LinkLayer::Ethernet),
        gid: rdma.is_some_and(|(_, port)| port.ready().is_ok()),
        socket: rdma
            .and_then(|(device, _)| Some(format!("{} {}", device.sys_image_guid.as_ref()?, iface.port_name.as_ref()?))),
        peer_router: leads.next().and_then(|xdomain| xdomain.unique_id.clone()),
        addrs: iface.addrs.iter().take(ADDRS).map(|a| Addr { ip: a.ip, prefix: a.prefix }).collect(),
        heard: heard.take(ADDRS).collect(),
        neighbours: table.take(ADDRS).map(|neighbour| neighbour.mac.clone()).collect(),
    }
}

#[cfg(test)]
mod tests;
