//! The beacon: one datagram that says "I sent this over that port of mine, and here is what I know of one node".

use std::net::{IpAddr, Ipv6Addr};

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{Keys, LABEL_CODE};
use crate::login::{MAC_LEN, mac_is};

/// Most ports of a node in a beacon: twice the four of a DGX Spark, and then some.
pub const PORTS_MAX: usize = 12;

/// Most neighbours of a node in a beacon.
pub const HEARD_MAX: usize = 24;

/// Longest host name, bytes; longer ones are cut.
pub const NAME_MAX: usize = 32;

/// Longest beacon: fits the smallest IPv6 packet (1,280 bytes, RFC 8200 section 5) with its headers.
pub const BEACON_MAX: usize =
    size_of::<RawHead>() + PORTS_MAX * size_of::<RawPort>() + HEARD_MAX * size_of::<RawHeard>() + MAC_LEN;

const _: () = assert!(BEACON_MAX <= 1280 - 40 - 8);

const MAGIC: [u8; 4] = *b"LSMB";
const VERSION: u8 = 1;
/// IFNAMSIZ of `linux/if.h`.
const IFNAME: usize = 16;

const NODE_RELAYS: u8 = 1;
const PORT_ADDR: u8 = 1;
const PORT_CARRIER: u8 = 2;
const PORT_RDMA: u8 = 4;
const PORT_GID: u8 = 8;
const PORT_KNOWN: u8 = PORT_ADDR | PORT_CARRIER | PORT_RDMA | PORT_GID;
/// No twin.
const NO_TWIN: u8 = u8::MAX;

/// A port that cables can be plugged into.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MeshPort {
    /// Interface name. A peer's has letters, digits and `._-:@` alone, and none of them begins with `-`.
    pub name: String,
    /// Address and length of its prefix; link-local ones are not told.
    pub addr: Option<(IpAddr, u8)>,
    /// Largest packet, bytes; 0 when unknown.
    pub mtu: u32,
    /// Speed, Mb/s; 0 when unknown.
    pub mbps: u32,
    /// The cable has something at its other end.
    pub carrier: bool,
    /// An RDMA device sits on it.
    pub rdma: bool,
    /// That device has a GID that peers can use.
    pub gid: bool,
    /// The other half of the same socket: a port whose cable is the same, by its place in the node's list.
    pub twin: Option<u8>,
}

/// A neighbour from which a node receives beacons.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Heard {
    /// Which of the node's ports receives them, by place.
    pub port: u8,
    /// The neighbour.
    pub node: u64,
    /// Which of the neighbour's ports sends them, by place.
    pub theirs: u8,
}

/// What is told of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// [`crate::handle::host_hash`] of the host: the same number as in its handles.
    pub id: u64,
    /// When its mesh server opened, ns since 1970: a restarted one counts anew.
    pub epoch: u64,
    /// Grows with every round of beacons.
    pub seq: u64,
    /// Host name.
    pub name: String,
    /// It relays for others.
    pub relays: bool,
    /// TCP port of its mesh server.
    pub server_port: u16,
    /// Its ports, at most [`PORTS_MAX`].
    pub ports: Vec<MeshPort>,
    /// The neighbours it receives from, at most [`HEARD_MAX`].
    pub heard: Vec<Heard>,
}

/// A beacon, decoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Beacon {
    /// Who sent this datagram.
    pub sender: u64,
    /// Over which of its ports, by place.
    pub port: u8,
    /// The sender's epoch.
    pub epoch: u64,
    /// Grows with every datagram of the sender.
    pub tick: u64,
    /// The node that it tells of: the sender itself or another.
    pub node: Node,
}

/// Why a datagram is no beacon.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("LS0006 a mesh beacon {0}")]
pub struct BadBeacon(pub &'static str);

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawHead {
    magic: [u8; 4],
    version: u8,
    port: u8,
    node_flags: u8,
    ports: u8,
    heard: u8,
    name_len: u8,
    server_port: U16,
    reserved: [u8; 4],
    sender: U64,
    sender_epoch: U64,
    tick: U64,
    id: U64,
    epoch: U64,
    seq: U64,
    name: [u8; NAME_MAX],
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawPort {
    ip: [u8; 16],
    prefix: u8,
    flags: u8,
    twin: u8,
    reserved: u8,
    mtu: U32,
    mbps: U32,
    name: [u8; IFNAME],
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawHeard {
    port: u8,
    theirs: u8,
    reserved: [u8; 2],
    node: U64,
}

fn put_text(to: &mut [u8], text: &str) -> u8 {
    let len = text.floor_char_boundary(to.len());
    to[..len].copy_from_slice(&text.as_bytes()[..len]);
    len as u8
}

/// Text of a peer as we show it: printable ASCII, everything else a question mark.
pub(super) fn shown(bytes: &[u8]) -> String {
    bytes.iter().map(|b| if b.is_ascii_graphic() || *b == b' ' { char::from(*b) } else { '?' }).collect()
}

/// The name of a peer's interface, which stands in commands that somebody types: what means something to a shell or would be an option
/// is an underscore.
fn interface(bytes: &[u8]) -> String {
    let fits = |n: usize, b: u8| b.is_ascii_alphanumeric() || b"._:@".contains(&b) || b == b'-' && n > 0;
    bytes.iter().enumerate().map(|(n, b)| if fits(n, *b) { char::from(*b) } else { '_' }).collect()
}

pub(super) fn ip_bytes(ip: IpAddr) -> [u8; 16] {
    match ip {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
        IpAddr::V6(v6) => v6.octets(),
    }
}

/// An address that a peer names and that we could dial: unicast, and not of one link only.
pub(super) fn ip_of(bytes: [u8; 16]) -> Option<IpAddr> {
    let ip = Ipv6Addr::from(bytes).to_canonical();
    let local = match ip {
        IpAddr::V4(v4) => v4.is_link_local() || v4.is_broadcast(),
        IpAddr::V6(v6) => v6.is_unicast_link_local(),
    };
    (!local && !ip.is_unspecified() && !ip.is_multicast() && !ip.is_loopback()).then_some(ip)
}

impl Beacon {
    /// The bytes as they travel, under `keys`. What is over the limits is left out.
    pub fn encode(&self, keys: &Keys) -> Vec<u8> {
        let node = &self.node;
        let ports = &node.ports[..node.ports.len().min(PORTS_MAX)];
        let heard = &node.heard[..node.heard.len().min(HEARD_MAX)];
        let mut head = RawHead::new_zeroed();
        head.magic = MAGIC;
        head.version = VERSION;
        head.port = self.port;
        head.node_flags = if node.relays { NODE_RELAYS } else { 0 };
        (head.ports, head.heard) = (ports.len() as u8, heard.len() as u8);
        head.name_len = put_text(&mut head.name, &node.name);
        head.server_port = U16::new(node.server_port);
        (head.sender, head.sender_epoch, head.tick) =
            (U64::new(self.sender), U64::new(self.epoch), U64::new(self.tick));
        (head.id, head.epoch, head.seq) = (U64::new(node.id), U64::new(node.epoch), U64::new(node.seq));
        let mut out = Vec::with_capacity(BEACON_MAX);
        out.extend_from_slice(head.as_bytes());
        for port in ports {
            let mut raw = RawPort::new_zeroed();
            if let Some((ip, prefix)) = port.addr {
                (raw.ip, raw.prefix, raw.flags) = (ip_bytes(ip), prefix, PORT_ADDR);
            }
            for (is, flag) in [(port.carrier, PORT_CARRIER), (port.rdma, PORT_RDMA), (port.gid, PORT_GID)] {
                raw.flags |= if is { flag } else { 0 };
            }
            raw.twin = port.twin.unwrap_or(NO_TWIN);
            (raw.mtu, raw.mbps) = (U32::new(port.mtu), U32::new(port.mbps));
            put_text(&mut raw.name[..IFNAME - 1], &port.name);
            out.extend_from_slice(raw.as_bytes());
        }
        for one in heard {
            let raw = RawHeard { port: one.port, theirs: one.theirs, reserved: [0; 2], node: U64::new(one.node) };
            out.extend_from_slice(raw.as_bytes());
        }
        keys.seal(&mut out);
        out
    }

    /// The name of the host that sends a beacon, whatever its code, where it tells of itself: for a line about a host with another key.
    /// Nothing of it is proven.
    pub fn claimed_name(bytes: &[u8]) -> Option<String> {
        let (head, _) = RawHead::ref_from_prefix(bytes).ok()?;
        let name = head.name.get(..usize::from(head.name_len))?;
        let own = head.magic == MAGIC && head.version == VERSION && head.sender == head.id;
        (bytes.len() <= BEACON_MAX && own).then(|| shown(name))
    }

    /// Reads a beacon; total over any bytes. Nothing is looked at before the code is right.
    ///
    /// # Errors
    /// [`BadBeacon`], whose text says what is wrong: length, magic, version, a field out of range, or a tag made with
    /// another key.
    pub fn decode(bytes: &[u8], keys: &Keys) -> Result<Beacon, BadBeacon> {
        if bytes.len() > BEACON_MAX {
            return Err(BadBeacon("is longer than any can be"));
        }
        let (body, code) = bytes.split_last_chunk::<MAC_LEN>().ok_or(BadBeacon("is cut short"))?;
        if !mac_is(keys.beacon.expose(), LABEL_CODE, &[body], code) {
            return Err(BadBeacon("carries another cluster's code, or was changed in transit"));
        }
        let (head, rest) = RawHead::ref_from_prefix(body).map_err(|_| BadBeacon("is cut short"))?;
        if head.magic != MAGIC || head.version != VERSION {
            return Err(BadBeacon("has a layout that this version does not know"));
        }
        let (ports, heard) = (usize::from(head.ports), usize::from(head.heard));
        let whole = ports * size_of::<RawPort>() + heard * size_of::<RawHeard>();
        if ports > PORTS_MAX || heard > HEARD_MAX || rest.len() != whole {
            return Err(BadBeacon("has another length than it announces"));
        }
        if head.node_flags & !NODE_RELAYS != 0 || head.reserved != [0; 4] || head.server_port.get() == 0 {
            return Err(BadBeacon("has impossible flags"));
        }
        let name = head.name.get(..usize::from(head.name_len)).ok_or(BadBeacon("has too long a name"))?;
        let (port_bytes, heard_bytes) = rest.split_at(ports * size_of::<RawPort>());
        let mut node = Node {
            id: head.id.get(),
            epoch: head.epoch.get(),
            seq: head.seq.get(),
            name: shown(name),
            relays: head.node_flags & NODE_RELAYS != 0,
            server_port: head.server_port.get(),
            ports: Vec::with_capacity(ports),
            heard: Vec::with_capacity(heard),
        };
        for raw in port_bytes.chunks_exact(size_of::<RawPort>()).flat_map(RawPort::ref_from_bytes) {
            node.ports.push(port(raw, ports)?);
        }
        for raw in heard_bytes.chunks_exact(size_of::<RawHeard>()).flat_map(RawHeard::ref_from_bytes) {
            if usize::from(raw.port) >= ports || raw.reserved != [0; 2] || raw.node.get() == node.id {
                return Err(BadBeacon("names a neighbour that cannot be"));
            }
            node.heard.push(Heard { port: raw.port, node: raw.node.get(), theirs: raw.theirs });
        }
        let (sender, epoch) = (head.sender.get(), head.sender_epoch.get());
        if sender == node.id && (epoch != node.epoch || usize::from(head.port) >= ports) {
            return Err(BadBeacon("contradicts itself about its sender"));
        }
        Ok(Beacon { sender, port: head.port, epoch, tick: head.tick.get(), node })
    }
}

fn port(raw: &RawPort, count: usize) -> Result<MeshPort, BadBeacon> {
    if raw.flags & !PORT_KNOWN != 0 || raw.reserved != 0 {
        return Err(BadBeacon("has a port with impossible flags"));
    }
    let addr = match raw.flags & PORT_ADDR {
        0 => None,
        _ => {
            let ip = ip_of(raw.ip).ok_or(BadBeacon("has a port with an address that no host can reach"))?;
            if raw.prefix > if ip.is_ipv4() { 32 } else { 128 } {
                return Err(BadBeacon("has a port with an impossible prefix"));
            }
            Some((ip, raw.prefix))
        }
    };
    let twin = Some(raw.twin).filter(|&t| t != NO_TWIN);
    if twin.is_some_and(|t| usize::from(t) >= count) {
        return Err(BadBeacon("has a port whose twin does not exist"));
    }
    let end = raw.name.iter().position(|b| *b == 0).ok_or(BadBeacon("has a port with too long a name"))?;
    Ok(MeshPort {
        name: interface(&raw.name[..end]),
        addr,
        mtu: raw.mtu.get(),
        mbps: raw.mbps.get(),
        carrier: raw.flags & PORT_CARRIER != 0,
        rdma: raw.flags & PORT_RDMA != 0,
        gid: raw.flags & PORT_GID != 0,
        twin,
    })
}
