//! What the commands, the services and the desktop share: how two users come to trust each other ([`pairing`]), how a
//! serving peer is found ([`rendezvous`], [`cable`]), queues of network cards lent to processes ([`devmem`]), what happens to
//! cables and jobs ([`observe`], [`events`]), which hosts are let in ([`admission`]), numbers ([`statistics`]), what the system service does with it all
//! ([`system`]), and what a host calls itself.
#![forbid(unsafe_code)]

pub mod admission;
pub mod cable;
pub mod devmem;
pub mod events;
mod mesh;
pub mod observe;
pub mod pairing;
pub mod rendezvous;
pub mod statistics;
pub mod system;

use linkspan_fabric::keys::{NAME_MAX, name_fault};

/// What this host calls itself to others: its host name, with what a name cannot have replaced by dashes.
pub fn host_name() -> String {
    let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
    as_name(&name)
}

fn as_name(text: &str) -> String {
    let short = text.split('.').next().unwrap_or_default();
    let plain = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '_' | '-') { c } else { '-' };
    let name: String = short.chars().map(plain).take(NAME_MAX).collect();
    let name = name.trim_start_matches(['-', '_']).to_owned();
    match name_fault(&name) {
        None => name,
        Some(_) => format!("host-{name}").trim_end_matches('-').to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_the_host_is_called_it_has_a_name() {
        for (host, name) in [
            ("mini1", "mini1"),
            ("mini1.lab.example", "mini1"),
            ("-odd näme", "odd-n-me"),
            ("localhost", "host-localhost"),
            ("cable1", "host-cable1"),
            ("", "host"),
        ] {
            assert_eq!(as_name(host), name);
            assert_eq!(name_fault(name), None);
        }
        assert_eq!(name_fault(&host_name()), None);
    }
}
