//! What the mesh servers of a route say of its hops, and how the relays are told to change to RDMA.
//!
//! A mesh server whose own two cables have RDMA, and the next one's too, answers with a mark: sixteen random bytes. The client sends
//! it behind its login at the far end, where nothing is under way any more. The relay finds it, sets a queue pair up with the
//! next host and then one with the host before, and joins the two.

use std::net::SocketAddr;

use linkspan_proto::greeting::Greeting;
use linkspan_proto::login::LoginError;

/// Hops at which a message is passed on inside the network cards, if all of them can.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Hops {
    /// All hops from the mesh server on have RDMA devices on both ends, as far as mesh servers know; the last host says so itself.
    Rdma(RelayMark),
    /// One has not, or may not; why.
    Tcp(String),
}

/// What is sent where the route is to change to RDMA.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RelayMark(pub [u8; RelayMark::LEN]);

impl RelayMark {
    /// Its bytes.
    pub const LEN: usize = 16;

    /// Bytes that are not sent by chance.
    pub fn random() -> Result<RelayMark, LoginError> {
        let mut bytes = [0; RelayMark::LEN];
        getrandom::fill(&mut bytes).map_err(|_| LoginError::Random)?;
        Ok(RelayMark(bytes))
    }

    /// Where it is in bytes that pass: `Ok` where it begins, `Err` how many of the bytes may pass because it is not in them.
    pub fn find(&self, bytes: &[u8]) -> Result<usize, usize> {
        if let Some(at) = bytes.windows(RelayMark::LEN).position(|w| w == self.0) {
            return Ok(at);
        }
        // The beginning of it may be what came last; fewer bytes than four are no beginning but chance, which must not be held up.
        let begins = (4..RelayMark::LEN).rev().find(|&n| bytes.len() >= n && bytes[bytes.len() - n..] == self.0[..n]);
        Err(bytes.len() - begins.unwrap_or(0))
    }
}

const RDMA: &str = "rdma ";
const TCP: &str = "tcp ";

impl Hops {
    /// As a mesh server's answer has it.
    pub fn text(&self) -> String {
        match self {
            Hops::Rdma(mark) => {
                let digits: Vec<String> = mark.0.iter().map(|b| format!("{b:02x}")).collect();
                format!("{RDMA}{}", digits.concat())
            }
            Hops::Tcp(why) => format!("{TCP}{why}"),
        }
    }

    /// Out of a mesh server's answer; one that says nothing of it knows TCP only.
    pub fn parse(text: &str) -> Hops {
        let mark = |digits: &str| {
            let mut bytes = [0; RelayMark::LEN];
            if digits.len() != 2 * RelayMark::LEN || !digits.is_ascii() {
                return None;
            }
            for (n, byte) in bytes.iter_mut().enumerate() {
                *byte = u8::from_str_radix(digits.get(2 * n..2 * n + 2)?, 16).ok()?;
            }
            Some(RelayMark(bytes))
        };
        match text.strip_prefix(RDMA).and_then(mark) {
            Some(mark) => Hops::Rdma(mark),
            None => Hops::Tcp(text.strip_prefix(TCP).unwrap_or_default().to_owned()),
        }
    }
}

/// What is said where a stream goes before its mark has left.
pub const BROKE: &str = "the route broke before it changed to RDMA";

/// Why nothing is known of the hops behind a mesh server.
pub const EARLIER: &str = "a relay of an earlier version is on the route";

/// Why the host at the end of a route takes part in no RDMA.
pub fn refusal(answer: &Greeting, to: SocketAddr) -> String {
    match answer.why_not.as_str() {
        "" => format!(
            "the peer offers none at {}: its LINKSPAN_PATH leaves RDMA out, or it is of an earlier version",
            to.ip()
        ),
        why => format!("the peer says: {why}"),
    }
}

/// The hops of a route over these hosts, as paths name them: `2 hops: rdma via spark-b, rdma`.
pub fn shown(kind: &str, over: &[String]) -> String {
    let via: Vec<String> = over.iter().map(|host| format!("{kind} via {host}, ")).collect();
    format!("{} hops: {}{kind}", over.len() + 1, via.concat())
}

#[cfg(test)]
mod tests;
