//! One trusted peer, and its line.

use std::net::IpAddr;

use data_encoding::BASE64;
use linkspan_proto::login::PublicKey;

use super::KeyError;

/// Longest name of a peer, bytes.
pub const NAME_MAX: usize = 63;

/// Most hosts of a peer.
pub const HOSTS_MAX: usize = 8;

/// Longest line of a peer, bytes: its parts at their longest (a host name has 253 bytes at most: RFC 1035, 2.3.4).
pub const LINE_MAX: usize = 2200;

const MARK: &str = "linkspan1";

/// A peer that is trusted, or wants to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// What it is called here.
    pub name: String,
    /// Its public key.
    pub key: PublicKey,
    /// Addresses or host names at which it may be found, best first; where there are none its name is the host's.
    pub hosts: Vec<String>,
}

/// What is wrong with a name of a peer. It is one word of a command line and of a log, and is not taken for an
/// address, a cable, or the holders of a cluster key.
pub fn name_fault(name: &str) -> Option<&'static str> {
    let inner = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    let cable = name.strip_prefix("cable").is_some_and(|rest| rest.bytes().all(|b| b.is_ascii_digit()));
    if name.is_empty() || name.len() > NAME_MAX {
        Some("must have 1 to 63 characters")
    } else if !name.chars().all(inner) || !name.starts_with(|c: char| c.is_ascii_alphanumeric()) {
        Some("may have letters, digits, dots, underscores and dashes only, and begins with a letter or digit")
    } else if cable || matches!(name, "cluster" | "self" | "localhost") {
        Some("means something else in linkspan")
    } else if name.parse::<IpAddr>().is_ok() {
        Some("is an address")
    } else if is_fingerprint(name) {
        Some("is what a fingerprint looks like")
    } else {
        None
    }
}

/// Whether it has the form of [`PublicKey::fingerprint`], by which peers are named too.
fn is_fingerprint(name: &str) -> bool {
    let digit = |c: char| matches!(c, 'A'..='Z' | '2'..='7');
    name.len() == 19 && name.split('-').all(|group| group.len() == 4 && group.chars().all(digit))
}

/// Whether it may be a host name or an address: what a command line and a resolver take as one word.
pub fn is_host(host: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-' | ':' | '%');
    !host.is_empty() && host.len() <= 253 && host.chars().all(plain) && !host.starts_with('-')
}

impl Peer {
    /// The line, without its end.
    pub fn line(&self) -> String {
        let mut line = format!("{MARK} {} {}", BASE64.encode(self.key.bytes()), self.name);
        if !self.hosts.is_empty() {
            line.push(' ');
            line.push_str(&self.hosts.join(","));
        }
        line
    }

    /// Reads a line. Total over any text; hosts beyond [`HOSTS_MAX`] are left out.
    ///
    /// # Errors
    /// [`KeyError::Line`] with an empty place; [`KeyError::Name`].
    pub fn parse(line: &str) -> Result<Peer, KeyError> {
        let bad = |why| KeyError::Line { place: String::new(), why };
        if line.len() > LINE_MAX {
            return Err(bad("a line is longer than that of any peer"));
        }
        let mut words = line.split_ascii_whitespace();
        match words.next() {
            Some(MARK) => {}
            Some(other) if other.starts_with("linkspan") => {
                return Err(bad("a line is of another version of linkspan"));
            }
            _ => return Err(bad("a line is not a public key of linkspan")),
        }
        let key = words.next().and_then(|word| BASE64.decode(word.as_bytes()).ok());
        let key = key.as_deref().and_then(|bytes| <&[u8; 32]>::try_from(bytes).ok());
        let key = PublicKey::new(*key.ok_or_else(|| bad("a key is damaged (44 characters of base 64 are one)"))?);
        let name = words.next().ok_or_else(|| bad("a line has no name"))?.to_owned();
        if let Some(why) = name_fault(&name) {
            return Err(KeyError::Name { name, why });
        }
        let mut hosts: Vec<String> = Vec::new();
        for host in words.next().unwrap_or_default().split(',').filter(|host| !host.is_empty()).take(HOSTS_MAX) {
            if !is_host(host) {
                return Err(bad("a line has a host that cannot be one"));
            }
            hosts.push(host.to_owned());
        }
        if words.next().is_some() {
            return Err(bad("a line has more words than a peer"));
        }
        Ok(Peer { name, key, hosts })
    }
}
