//! What cables this host has.
//!
//! Tier 1 by the devices of `linkspan.ko`; tier 2 by the streams that are set up in configfs
//! (`/sys/kernel/config/thunderbolt/stream/XDOMAIN.SERVICE/NAME`, `Documentation/ABI/testing/configfs-usb4-stream`).

use std::fs;
use std::path::{Path, PathBuf};

use linkspan_tbring::{Info, RingState};

use crate::tier::{Cable, CableAddress, Ports, Tier};

/// Where everything is; another one in tests.
#[derive(Clone, Debug)]
pub struct Root(pub PathBuf);

impl Default for Root {
    fn default() -> Root {
        Root("/".into())
    }
}

pub(crate) fn word(path: &Path) -> Option<String> {
    fs::read_to_string(path).ok().map(|text| text.trim().to_owned())
}

pub(crate) fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries.filter_map(|e| e.file_name().into_string().ok()).collect();
    names.sort();
    names
}

/// Bytes of a UUID in its usual form. sysfs and the driver's ioctl show the same bytes in the same order.
pub fn uuid(text: &str) -> Option<[u8; 16]> {
    let digits: Vec<u8> = text.bytes().filter(|b| *b != b'-').collect();
    if digits.len() != 32 || !digits.iter().all(u8::is_ascii_hexdigit) {
        return None;
    }
    let text = String::from_utf8(digits).ok()?;
    let mut out = [0; 16];
    for (i, byte) in out.iter_mut().enumerate() {
        *byte = u8::from_str_radix(text.get(2 * i..2 * i + 2)?, 16).ok()?;
    }
    Some(out)
}

/// The route of a device: they are called DOMAIN-ROUTE, the route in hexadecimal, a domain's own host DOMAIN-0; services and ports have more in
/// their names.
fn route(name: &str) -> Option<u64> {
    let (domain, route) = name.split_once('-')?;
    domain.parse::<u32>().ok()?;
    u64::from_str_radix(route, 16).ok()
}

/// Gb/s of a lane and lanes, as bytes per second.
fn speed(gigabits: f64, lanes: f64) -> u64 {
    (gigabits * lanes * 125e6) as u64
}

impl Root {
    /// Everything, best first, and why there is not more.
    pub fn ports(&self) -> Ports {
        let hosts = names(&self.0.join("sys/bus/thunderbolt/devices"));
        let other = |name: &String| route(name).is_some_and(|route| route != 0);
        let is_host = |name: &String| self.0.join("sys/bus/thunderbolt/devices").join(name).join("rx_lanes").exists();
        let mut ports = Ports { plugged: hosts.iter().any(|n| other(n) && is_host(n)), ..Ports::default() };
        self.rings(&mut ports);
        self.streams(&mut ports);
        ports
    }

    fn rings(&self, ports: &mut Ports) {
        let folder = self.0.join("dev/linkspan");
        let found = names(&folder);
        let mut why =
            "no /dev/linkspan: load linkspan.ko (Linux 6.8 or newer) on both hosts, and plug the cable in".to_owned();
        for name in found {
            let path = folder.join(&name);
            // An older driver knows of none.
            if let Ok(pairs) = linkspan_tbring::pairs(&path) {
                ports.pairs.push((path.display().to_string(), pairs));
            }
            let link = self.plug(&name);
            let info = linkspan_tbring::info(&path);
            why = match &info {
                Ok(info) if info.state == RingState::Up => {
                    ports.cables.push(Cable {
                        tier: Tier::Ring,
                        name: path.display().to_string(),
                        link,
                        local: info.raw.local_uuid,
                        peer: info.raw.peer_uuid,
                        hops: (0, 0),
                        ring: 0,
                        speed: speed(info.raw.link_speed.into(), info.raw.link_width.clamp(1, 3).min(2).into()),
                        place: CableAddress::ring(path),
                    });
                    continue;
                }
                Ok(Info { state, .. }) => {
                    format!("{}: the link is not up ({}){}", path.display(), state.name(), state.hint())
                }
                Err(error @ linkspan_tbring::Error::Open { .. }) => error.to_string(),
                Err(error) => format!("{}: {error}", path.display()),
            };
            // The network interface is what somebody has chosen.
            if !info.is_ok_and(|info| info.state == RingState::Network) {
                ports.down.push((link, why.clone()));
            }
        }
        ports.why_not.push((Tier::Ring, why));
    }

    /// The other host's device of a ring link, of which its service is a part: `0-1` of `0-1.2`.
    fn plug(&self, ring: &str) -> String {
        let name = format!("linkspan{ring}");
        self.host(&Path::new("sys/class/linkspan").join(&name)).unwrap_or(name)
    }

    /// The same of a network interface of the cable.
    pub(crate) fn plug_of(&self, interface: &str) -> Option<String> {
        self.host(&Path::new("sys/class/net").join(interface))
    }

    fn host(&self, class: &Path) -> Option<String> {
        let service = fs::read_link(self.0.join(class).join("device")).ok()?;
        let host = service.file_name()?.to_str()?.split_once('.')?.0;
        // Behind other interfaces lie devices of other buses.
        route(host).map(|_| host.to_owned())
    }

    fn streams(&self, ports: &mut Ports) {
        let config = self.0.join("sys/kernel/config/thunderbolt/stream");
        let devices = self.0.join("sys/bus/thunderbolt/devices");
        let mut why = match config.is_dir() {
            true => "no stream is set up: `lspan link up` on both hosts".to_owned(),
            false => "no USB4STREAM: it needs Linux 7.2 with thunderbolt_stream, and configfs mounted".to_owned(),
        };
        for service in names(&config) {
            let Some((host, _)) = service.split_once('.') else { continue };
            let domain = host.split('-').next().unwrap_or("0");
            let id = |device: &str| word(&devices.join(device).join("unique_id")).and_then(|text| uuid(&text));
            let (Some(local), Some(peer)) = (id(&format!("{domain}-0")), id(host)) else {
                why = format!("{service}: its host is not plugged in");
                continue;
            };
            let read = |name: &str| word(&devices.join(host).join(name));
            let lane = read("rx_speed").and_then(|s| s.split(' ').next()?.parse::<f64>().ok());
            let lanes = read("rx_lanes").and_then(|s| s.parse::<f64>().ok());
            for name in names(&config.join(&service)) {
                let folder = config.join(&service).join(&name);
                let number = |file: &str| word(&folder.join(file)).and_then(|text| text.parse::<i64>().ok());
                let (Some(index), Some(inward), Some(outward)) =
                    (number("index"), number("in_hopid"), number("out_hopid"))
                else {
                    continue;
                };
                let (Ok(inward), Ok(outward)) = (u16::try_from(inward), u16::try_from(outward)) else {
                    why = format!("{service}/{name}: its HopIDs are not set: `lspan link up`");
                    continue;
                };
                let path = self.0.join(format!("dev/tbstream{index}"));
                ports.cables.push(Cable {
                    tier: Tier::Stream,
                    name: path.display().to_string(),
                    link: host.to_owned(),
                    local,
                    peer,
                    hops: (inward, outward),
                    ring: number("ring_size").and_then(|n| u16::try_from(n).ok()).unwrap_or(32),
                    speed: lane.zip(lanes).map_or(0, |(lane, lanes)| speed(lane, lanes)),
                    place: CableAddress::stream(path),
                });
            }
        }
        ports.why_not.push((Tier::Stream, why));
    }
}

#[cfg(test)]
mod tests;
