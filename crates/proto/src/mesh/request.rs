//! What one node asks of its neighbour inside the login, and the answer.

use std::net::{IpAddr, SocketAddr};

use super::beacon::{ip_bytes, ip_of, shown};

/// Most hops that a request may still have before it, the last one the destination: from end to end of a line of sixteen hosts.
pub const HOPS_MAX: usize = 15;

/// Longest text of an answer, bytes.
pub const TEXT_MAX: usize = 200;

const RELAY: u8 = 1;
const SINK: u8 = 2;
const MEASURE: u8 = 3;
/// Address, port, two bytes reserved.
const HOP_LEN: usize = 20;
/// Kind, number of hops, two bytes reserved.
const LEAD: usize = 4;

/// A request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// Join this stream to one that leads on: every hop but the last is the mesh server of a node, the last is where the stream
    /// ends. 1 to [`HOPS_MAX`] hops, none twice.
    Relay(Vec<SocketAddr>),
    /// Read and drop what comes, then say how many bytes it was.
    Sink,
    /// Measure the cable to the neighbour whose mesh server this is; the answer's text is the speed in Mb/s.
    Measure(SocketAddr),
}

/// Why bytes are no request.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("LS0007 a mesh request {0}")]
pub struct BadRequest(pub &'static str);

impl Request {
    /// The bytes as they travel.
    pub fn encode(&self) -> Vec<u8> {
        let (kind, hops): (u8, &[SocketAddr]) = match self {
            Request::Relay(path) => (RELAY, path),
            Request::Sink => (SINK, &[]),
            Request::Measure(to) => (MEASURE, std::slice::from_ref(to)),
        };
        let hops = &hops[..hops.len().min(HOPS_MAX)];
        let mut out = vec![kind, hops.len() as u8, 0, 0];
        for hop in hops {
            out.extend_from_slice(&ip_bytes(hop.ip()));
            out.extend_from_slice(&hop.port().to_le_bytes());
            out.extend_from_slice(&[0; 2]);
        }
        out
    }

    /// Reads a request; total over any bytes.
    ///
    /// # Errors
    /// [`BadRequest`], whose text names the field that is wrong.
    pub fn decode(bytes: &[u8]) -> Result<Request, BadRequest> {
        let (lead, rest) = bytes.split_first_chunk::<LEAD>().ok_or(BadRequest("is cut short"))?;
        let [kind, count, 0, 0] = *lead else {
            return Err(BadRequest("has impossible flags"));
        };
        let count = usize::from(count);
        if count > HOPS_MAX || rest.len() != count * HOP_LEN {
            return Err(BadRequest("has another length than it announces, or too many hops"));
        }
        let mut hops = Vec::with_capacity(count);
        for hop in rest.chunks_exact(HOP_LEN) {
            let mut ip = [0; 16];
            ip.copy_from_slice(&hop[..16]);
            let ip: IpAddr = ip_of(ip).ok_or(BadRequest("names an address that no host can reach"))?;
            let port = u16::from_le_bytes([hop[16], hop[17]]);
            if port == 0 || hop[18..] != [0; 2] {
                return Err(BadRequest("names an impossible port"));
            }
            let hop = SocketAddr::new(ip, port);
            // One relay twice is a route with a loop.
            if hops.contains(&hop) {
                return Err(BadRequest("names a relay twice: its route is a loop"));
            }
            hops.push(hop);
        }
        match (kind, hops.as_slice()) {
            (RELAY, [_, ..]) => Ok(Request::Relay(hops)),
            (SINK, []) => Ok(Request::Sink),
            (MEASURE, [to]) => Ok(Request::Measure(*to)),
            _ => Err(BadRequest("is of a kind that this version does not know")),
        }
    }
}

/// The answer to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MeshReply {
    /// Done; the text is the result, if the request has one.
    Yes(String),
    /// Not done, and why. Another node's words, cut and cleaned.
    No(String),
}

impl MeshReply {
    /// The bytes as they travel.
    pub fn encode(&self) -> Vec<u8> {
        let (yes, text) = match self {
            MeshReply::Yes(text) => (1, text),
            MeshReply::No(text) => (0, text),
        };
        let mut out = vec![yes];
        out.extend(text.bytes().take(TEXT_MAX));
        out
    }

    /// Reads an answer; `None` where it is none. Total over any bytes.
    pub fn decode(bytes: &[u8]) -> Option<MeshReply> {
        let (kind, text) = bytes.split_first()?;
        if text.len() > TEXT_MAX {
            return None;
        }
        match kind {
            1 => Some(MeshReply::Yes(shown(text))),
            0 => Some(MeshReply::No(shown(text))),
            _ => None,
        }
    }
}
