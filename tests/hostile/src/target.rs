//! Where something listens.

use std::io::Read;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;

use linkspan_proto::handle::{HANDLE_LEN, Handle};

/// An address of the victim, and those that its enemy comes from.
#[derive(Clone, Debug)]
pub struct Target {
    /// The victim's.
    pub to: Ipv4Addr,
    /// The enemy's own.
    pub from: Vec<Ipv4Addr>,
}

impl Target {
    /// `TARGET@SOURCE,SOURCE...`.
    pub fn parse(text: &str) -> Option<Target> {
        let (to, from) = text.split_once('@')?;
        let from = from.split(',').map(|addr| addr.parse().ok()).collect::<Option<Vec<_>>>()?;
        Some(Target { to: to.parse().ok()?, from })
    }
}

/// The IPv4 sockets that listen in the network namespace of a process, as a port scan would find them.
pub fn listening(process: u32) -> Vec<SocketAddr> {
    let text = std::fs::read_to_string(format!("/proc/{process}/net/tcp")).unwrap_or_default();
    let mut found: Vec<SocketAddr> = text.lines().skip(1).filter_map(line).collect();
    found.sort_unstable();
    found.dedup();
    found
}

/// proc(5), `tcp`: the local end is the second word, the state the fourth; 0A is TCP_LISTEN.
fn line(line: &str) -> Option<SocketAddr> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let (addr, port) = words.get(1)?.split_once(':')?;
    let addr = u32::from_str_radix(addr, 16).ok()?;
    let port = u16::from_str_radix(port, 16).ok()?;
    (*words.get(3)? == "0A").then(|| SocketAddr::new(IpAddr::V4(Ipv4Addr::from(addr.to_ne_bytes())), port))
}

/// What servers of ours say to everybody who connects: these bytes, and then the handle of their listener.
const RENDEZVOUS: &[u8; 8] = b"LSPANRV1";

/// How long a server may take to say it.
const PATIENCE: Duration = Duration::from_secs(1);

/// A handle that one of the ports gives to strangers.
pub fn offered(process: u32, targets: &[Target]) -> Option<Handle> {
    let ask = |addr: SocketAddr| {
        let mut stream = TcpStream::connect_timeout(&addr, PATIENCE).ok()?;
        stream.set_read_timeout(Some(PATIENCE)).ok()?;
        let mut said = [0; RENDEZVOUS.len() + HANDLE_LEN];
        stream.read_exact(&mut said).ok()?;
        let handle = said.strip_prefix(RENDEZVOUS)?;
        Handle::decode(handle.try_into().ok()?).ok()
    };
    let ports = listening(process);
    let at = |target: &Target, port: &SocketAddr| {
        (port.ip().is_unspecified() || port.ip() == target.to).then(|| SocketAddr::new(target.to.into(), port.port()))
    };
    targets.iter().flat_map(|target| ports.iter().filter_map(|port| at(target, port)).collect::<Vec<_>>()).find_map(ask)
}
