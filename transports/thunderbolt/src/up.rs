//! Setting streams up, letting hosts in, and what a cable is for: what root does once.
//!
//! A stream is a folder in configfs with two HopIDs, which mirror those of the other host's. Both hosts come to the same
//! numbers without a word: the one whose UUID is the smaller takes the lower of each pair to receive on.

use std::fs;
use std::io;
use std::net::Ipv4Addr;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::error::Error;
use crate::find::{Root, names, uuid, word};

/// Names of the folders of ours, before their number. With it no more than eight bytes: they become keys of XDomain properties
/// (`TB_PROPERTY_KEY_SIZE`), and the driver refuses longer ones.
const NAME: &str = "lspan";

const _: () = assert!(NAME.len() + (STREAMS_MAX.ilog10() as usize) < 8);

/// Most streams to one host: each takes a ring of both directions, of which controllers have few.
pub const STREAMS_MAX: u16 = 8;

/// First HopID that streams take unless asked otherwise: 8, the first there is, is what `thunderbolt_net` takes.
pub const FIRST_HOP: u16 = 9;

/// How long the device node of a stream may take to be made.
const NODE: Duration = Duration::from_secs(3);

/// What a cable is for that `linkspan.ko` drives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkMode {
    /// Programs with the device: tier 1.
    Direct,
    /// The driver's own network interface, over all ring pairs.
    Network,
}

impl LinkMode {
    /// As sysfs has it.
    pub fn name(self) -> &'static str {
        match self {
            LinkMode::Direct => "direct",
            LinkMode::Network => "network",
        }
    }
}

fn system(what: &Path, source: io::Error) -> Error {
    Error::Up { what: what.display().to_string(), source }
}

fn write(path: &Path, text: &str) -> Result<(), Error> {
    fs::write(path, text).map_err(|e| system(path, e))
}

/// Of the private addresses (RFC 1918) a part for the interfaces of cables, four addresses to each: 2^18 cables.
const NETS: (Ipv4Addr, u8) = (Ipv4Addr::new(10, 176, 0, 0), 12);
const NET_OF_CABLE: u8 = 30;

/// The address of this end of a cable, from what both hosts have for it (`cable` in sysfs).
fn address(cable: &str) -> Option<Ipv4Addr> {
    let (number, end) = cable.split_once(' ')?;
    let (number, end) = (u32::from_str_radix(number, 16).ok()?, end.parse::<u32>().ok().filter(|end| *end < 2)?);
    let net = number & ((1 << (NET_OF_CABLE - NETS.1)) - 1);
    Some((NETS.0.to_bits() | net << (32 - NET_OF_CABLE) | (1 + end)).into())
}

fn ip(words: &[&str]) -> Result<(), Error> {
    let what = || format!("ip {}", words.join(" "));
    let output = Command::new("ip").args(words).output();
    let output = output.map_err(|source| Error::Interface { what: what(), why: source.to_string() })?;
    if output.status.success() {
        return Ok(());
    }
    let why = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(Error::Interface { what: what(), why })
}

impl Root {
    /// Makes every cable ready for use: `streams` streams to every host at its end, where the kernel has them, and an address for the
    /// interface of every link in the mode network. What was done, a line each.
    ///
    /// # Errors
    /// [`Error::NoStreams`]: there is nothing to set up. [`Error::Up`]: a file cannot be written. [`Error::Hops`]: the kernel chose other
    /// HopIDs. [`Error::NoLink`]: a link is not up. [`Error::Interface`]: an interface takes no address. What could be set up else is, but for
    /// what comes after such a stream to the same host. [`Error::Partly`]: there is some, or more is not set up.
    pub fn up(&self, streams: u16, first_hop: u16) -> Result<Vec<String>, Error> {
        let interface_up = |(interface, own): (String, Ipv4Addr)| {
            ip(&["address", "replace", &format!("{own}/{NET_OF_CABLE}"), "dev", &interface])?;
            ip(&["link", "set", "dev", &interface, "up"])?;
            Ok(format!("{interface} is up with the address {own}"))
        };
        let mut each: Vec<_> = self.interfaces().into_iter().map(|found| found.and_then(interface_up)).collect();
        match self.streams_up(streams, first_hop) {
            Ok(more) => each.extend(more),
            Err(Error::NoStreams(_)) if !each.is_empty() => {}
            Err(error) => return Err(error),
        }
        let (mut said, mut left) = (Vec::new(), Vec::new());
        for one in each {
            match one {
                Ok(line) => said.push(line),
                Err(error) => left.push(error),
            }
        }
        let mut left = left.into_iter();
        match left.next() {
            None => Ok(said),
            Some(first) => Err(Error::partly(first, left.as_slice(), &said)),
        }
    }

    /// Interfaces of links in the mode network, which are called as the links' devices are, and the address of each.
    fn interfaces(&self) -> Vec<Result<(String, Ipv4Addr), Error>> {
        let folder = self.0.join("sys/class/linkspan");
        let of = |link: &String, file| word(&folder.join(link).join(file)).unwrap_or_default();
        let links = names(&folder).into_iter().filter(|link| of(link, "mode") == LinkMode::Network.name());
        let numbered = links.map(|link| match (of(&link, "state").as_str(), address(&of(&link, "cable"))) {
            ("network", Some(address)) => Ok((link, address)),
            ("network", None) => Err(Error::NoLink { link, state: "its driver has no number for the cable".into() }),
            (state, _) => Err(Error::NoLink { state: state.to_owned(), link }),
        });
        numbered.collect()
    }

    /// What each host's streams came to, up to the first that could not be made.
    fn streams_up(&self, streams: u16, first_hop: u16) -> Result<Vec<Result<String, Error>>, Error> {
        let config = self.0.join("sys/kernel/config/thunderbolt");
        if !config.is_dir() {
            return Err(Error::NoStreams(
                "no thunderbolt in configfs: it needs Linux 7.2 or newer, `modprobe thunderbolt_stream` and configfs mounted",
            ));
        }
        let devices = self.0.join("sys/bus/thunderbolt/devices");
        let mut each = Vec::new();
        for service in names(&devices) {
            if word(&devices.join(&service).join("key")).as_deref() != Some("stream") {
                continue;
            }
            let Some((host, _)) = service.split_once('.') else { continue };
            let domain = host.split('-').next().unwrap_or("0");
            let id = |device: &str| word(&devices.join(device).join("unique_id")).and_then(|text| uuid(&text));
            let (Some(local), Some(peer)) = (id(&format!("{domain}-0")), id(host)) else { continue };
            for n in 0..streams {
                let low = first_hop + 2 * n;
                let (inward, outward) = if local < peer { (low, low + 1) } else { (low + 1, low) };
                each.push(self.stream(&config, &service, n, (inward, outward)));
                if each.last().is_some_and(Result::is_err) {
                    break;
                }
            }
        }
        match each.is_empty() {
            true => Err(Error::NoStreams(
                "no other host offers streams: is the cable plugged in, and thunderbolt_stream loaded on the other host too?",
            )),
            false => Ok(each),
        }
    }

    fn stream(&self, config: &Path, service: &str, n: u16, (inward, outward): (u16, u16)) -> Result<String, Error> {
        let folder = config.join("stream").join(service).join(format!("{NAME}{n}"));
        fs::create_dir_all(&folder).map_err(|e| system(&folder, e))?;
        for (file, hop) in [("in_hopid", inward), ("out_hopid", outward)] {
            let path = folder.join(file);
            // Taken over from what the other host has published already, they cannot be written and need not be.
            if word(&path).as_deref() != Some(&hop.to_string()) {
                let written = write(&path, &hop.to_string());
                let is = word(&path).unwrap_or_default();
                if is != hop.to_string() {
                    let why = written.err().map_or_else(String::new, |e| e.to_string());
                    return Err(Error::Hops { stream: format!("{service}/{NAME}{n}"), file, want: hop, is, why });
                }
            }
        }
        let index = word(&folder.join("index")).unwrap_or_else(|| n.to_string());
        let node = self.0.join(format!("dev/tbstream{index}"));
        let since = Instant::now();
        while !node.exists() && since.elapsed() < NODE {
            std::thread::sleep(Duration::from_millis(20));
        }
        if !node.exists() {
            let why = "it is not there though its stream is: thunderbolt_stream makes it, with devtmpfs or udev";
            return Err(system(&node, io::Error::new(io::ErrorKind::NotFound, why)));
        }
        let shared = match self.share(&node) {
            Ok(true) => "for the group linkspan".to_owned(),
            Ok(false) => "for root alone: there is no group linkspan".to_owned(),
            Err(error) => format!("for root alone: {error}"),
        };
        Ok(format!("{} to {service}, HopIDs {inward} in and {outward} out, {shared}", node.display()))
    }

    /// Gives the node to the group `linkspan`, if there is one.
    fn share(&self, node: &Path) -> io::Result<bool> {
        let groups = fs::read_to_string(self.0.join("etc/group"))?;
        let group = groups.lines().find_map(|line| {
            let mut fields = line.split(':');
            (fields.next() == Some("linkspan")).then(|| fields.nth(1).and_then(|id| id.parse().ok())).flatten()
        });
        let Some(group) = group else { return Ok(false) };
        std::os::unix::fs::chown(node, None, Some(group))?;
        fs::set_permissions(node, fs::Permissions::from_mode(0o660))?;
        Ok(true)
    }

    /// Lets a host in to our driver, or shuts it out, until it is unplugged. The devices that were told.
    ///
    /// # Errors
    /// [`Error::NoModule`]: the driver is not loaded. [`Error::NoHost`]: the driver sees no such host. [`Error::Up`]: the file cannot be written.
    pub fn allow(&self, host: &str, yes: bool) -> Result<Vec<String>, Error> {
        self.tell(host, "allowed", if yes { "1" } else { "0" })
    }

    /// Sets what the cable to a host is for, until it is unplugged; the host must set the same. The devices that were told.
    ///
    /// # Errors
    /// [`Error::NoModule`]: the driver is not loaded. [`Error::NoHost`]: the driver sees no such host. [`Error::Up`]: the file cannot be
    /// written, as by who is not root.
    pub fn set_mode(&self, host: &str, mode: LinkMode) -> Result<Vec<String>, Error> {
        self.tell(host, "mode", mode.name())
    }

    fn tell(&self, host: &str, attribute: &str, text: &str) -> Result<Vec<String>, Error> {
        let folder = self.0.join("sys/class/linkspan");
        let wanted = uuid(host);
        let mut told = Vec::new();
        let mut seen = Vec::new();
        for name in names(&folder) {
            let peer = word(&folder.join(&name).join("peer")).unwrap_or_default();
            if wanted.is_some() && uuid(&peer) == wanted {
                write(&folder.join(&name).join(attribute), text)?;
                told.push(name);
            } else {
                seen.push(peer);
            }
        }
        if !folder.is_dir() {
            return Err(Error::NoModule { host: host.to_owned() });
        }
        if told.is_empty() {
            return Err(Error::NoHost { host: host.to_owned(), seen: seen.join(", ") });
        }
        Ok(told)
    }
}

#[cfg(test)]
pub(crate) mod tests;
