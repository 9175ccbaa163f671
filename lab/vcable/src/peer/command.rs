//! Commands for a software host, from scripts and the control socket.
//!
//! ```text
//! service KEY [PRTCID [VERS [REVS [STNS [UUID]]]]]   # announce a service
//! network [HOP]                                      # USB4NET: answers ARP, ping and UDP
//! ring                                               # linkspan.ko's other end; once there, `ring ...` has it lie
//! send PORT HOP SOF EOF COUNT LEN                    # frames with a running pattern
//! data PORT HOP SOF EOF HEX                          # one frame
//! message PORT request|response HEX                  # an XDomain packet, words without the CRC
//! echo FROM TO | echo FROM off                       # frames of a HopID go back on another
//! seen HOP                                           # what arrived
//! state                                              # what is known of the other ends
//! ```

use super::host::SoftHost;
use super::{Announced, Network, PeerIo, Ring, pattern};
use crate::control::pdf;
use crate::nhi::Frame;
use crate::nhi::regs::MAX_FRAME;
use crate::xdomain::Uuid;

/// Most frames of one command.
const MAX_COUNT: u64 = 8_192;

const USAGE: &str = "service KEY [PRTCID [VERS [REVS [STNS [UUID]]]]], network [HOP], ring, send PORT HOP SOF EOF COUNT LEN, \
                     data PORT HOP SOF EOF HEX, message PORT request|response HEX, echo FROM TO|off, seen HOP or state \
                     wanted";

pub(super) fn run(host: &mut SoftHost, io: &mut PeerIo, words: &[&str]) -> Result<String, String> {
    match words {
        ["service", key, rest @ ..] if key.len() <= 8 && rest.len() <= 5 => {
            let at = |i: usize, or: u32| rest.get(i).map_or(Ok(or), |w| number(w, u32::MAX.into()).map(|n| n as u32));
            let numbers = [at(0, 1)?, at(1, 1)?, at(2, 1)?, at(3, 0)?];
            let uuid = match rest.get(4) {
                Some(text) => Uuid::parse(text).ok_or_else(|| format!("'{text}': a UUID wanted"))?,
                // A name of its own for each key.
                None => Uuid::of_uid(u64::from(crate::crc::crc32c(key.as_bytes())) << 8 | 0x5e),
            };
            host.add(io, Box::new(Announced::new(key, uuid, numbers)));
            Ok(String::new())
        }
        ["network", rest @ ..] if rest.len() <= 1 => {
            let first = u64::from(crate::router::layout::FIRST_HOP);
            let hop = rest.first().map_or(Ok(first), |w| number(w, crate::router::layout::LANE_MAX_HOP.into()))?;
            host.add(io, Box::new(Network::new(hop.max(first) as u16)));
            Ok(String::new())
        }
        ["ring"] => {
            host.add(io, Box::new(Ring::new()));
            Ok(String::new())
        }
        ["send", port, hop, sof, eof, count, len] => {
            let (port, hop, sof, eof) = address(port, hop, sof, eof)?;
            let (count, len) = (number(count, MAX_COUNT)?, number(len, MAX_FRAME as u64)? as usize);
            for at in 0..count {
                io.send_frame(port, hop, Frame { data: pattern(at, len.max(1)), sof, eof, damaged: false });
            }
            Ok(String::new())
        }
        ["data", port, hop, sof, eof, hex] => {
            let (port, hop, sof, eof) = address(port, hop, sof, eof)?;
            io.send_frame(port, hop, Frame { data: bytes(hex)?, sof, eof, damaged: false });
            Ok(String::new())
        }
        ["message", port, kind @ ("request" | "response"), hex] => {
            let kind = if *kind == "request" { pdf::XDOMAIN_REQUEST } else { pdf::XDOMAIN_RESPONSE };
            let bytes = bytes(hex)?;
            if bytes.len() % 4 != 0 || bytes.len() > crate::control::MAX_PACKET - 4 {
                return Err("whole words, at most 63, wanted".to_owned());
            }
            let words = bytes.chunks_exact(4).map(|w| w.iter().fold(0, |v, b| v << 8 | u32::from(*b))).collect();
            io.send_message(number(port, 8)? as usize, kind, words);
            Ok(String::new())
        }
        ["echo", from, "off"] => {
            host.echo.remove(&(number(from, 2047)? as u16));
            Ok(String::new())
        }
        ["echo", from, to] => {
            host.echo.insert(number(from, 2047)? as u16, number(to, 2047)? as u16);
            Ok(String::new())
        }
        ["seen", hop] => {
            let seen = host.seen.get(&(number(hop, 2047)? as u16)).copied().unwrap_or_default();
            Ok(format!(
                "frames={} bytes={} crc32c={:08x} damaged={} last_eof={}",
                seen.frames, seen.bytes, seen.crc, seen.damaged, seen.last_eof
            ))
        }
        ["state"] => {
            let one = |(port, remote): (usize, Option<Uuid>)| {
                let remote = remote.map_or_else(|| "unknown".to_owned(), |u| u.to_string());
                let ready = if host.is_ready(port) { "ready" } else { "discovering" };
                format!("port={port} remote={remote} {ready}")
            };
            Ok(host.remotes().map(one).collect::<Vec<_>>().join("; "))
        }
        _ => Err(USAGE.to_owned()),
    }
}

fn address(port: &str, hop: &str, sof: &str, eof: &str) -> Result<(usize, u16, u8, u8), String> {
    Ok((number(port, 8)? as usize, number(hop, 2047)? as u16, number(sof, 15)? as u8, number(eof, 15)? as u8))
}

fn number(text: &str, most: u64) -> Result<u64, String> {
    text.parse().ok().filter(|n| *n <= most).ok_or_else(|| format!("'{text}': a number up to {most} wanted"))
}

fn bytes(hex: &str) -> Result<Vec<u8>, String> {
    let digits: Option<Vec<u32>> = hex.chars().map(|c| c.to_digit(16)).collect();
    match digits {
        Some(d) if !d.is_empty() && d.len() % 2 == 0 => {
            Ok(d.chunks_exact(2).map(|p| (p[0] << 4 | p[1]) as u8).collect())
        }
        _ => Err(format!("'{hex}': pairs of hexadecimal digits wanted")),
    }
}
