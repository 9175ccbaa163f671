//! From what a kernel and a driver say to what a person can do about it.

use std::fmt;

use linkspan_netdev::HeaderSplit;
use serde::Serialize;

/// What a driver answered to a binding without a descriptor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BindVerdict {
    /// It would look at the descriptor.
    Yes,
    /// CAP_NET_ADMIN is missing, so the driver was not asked.
    NotAllowed,
    /// This kernel has no such interface.
    NoKernel,
    /// It says no.
    No(String),
}

/// A network card.
#[derive(Clone, Debug)]
pub struct Card {
    /// The interface.
    pub name: String,
    /// Its driver.
    pub driver: Option<String>,
    /// Receive queues in use.
    pub queues: Option<usize>,
    /// Whether headers and payload go to buffers of their own.
    pub split: HeaderSplit,
    /// Packets below so many bytes are not split.
    pub threshold: Option<u32>,
    /// What the driver says of receiving.
    pub may_receive: BindVerdict,
    /// And of sending.
    pub may_send: BindVerdict,
}

/// What can be said of one direction.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "can", rename_all = "snake_case")]
pub enum Verdict {
    /// It can.
    Yes,
    /// It can after these commands.
    After {
        /// What is missing, each with the command that mends it.
        steps: Vec<String>,
    },
    /// It was not asked, for it takes root; what is known so far.
    AskAsRoot {
        /// What is missing already.
        steps: Vec<String>,
    },
    /// It cannot on this kernel or with this driver.
    Never {
        /// Why, and what can.
        why: String,
    },
}

impl Verdict {
    /// Whether it can, now or after set-up.
    pub fn is_yes(&self) -> bool {
        matches!(self, Verdict::Yes | Verdict::After { .. })
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |steps: &[String]| steps.join("; ");
        match self {
            Verdict::Yes => f.write_str("yes"),
            Verdict::After { steps } => write!(f, "after set-up: {}", list(steps)),
            Verdict::AskAsRoot { steps } if steps.is_empty() => f.write_str("the driver is asked as root only (sudo)"),
            Verdict::AskAsRoot { steps } => {
                write!(f, "the driver is asked as root only (sudo); missing in any case: {}", list(steps))
            }
            Verdict::Never { why } => write!(f, "no: {why}"),
        }
    }
}

/// Major and minor number of a kernel.
type Release = (u32, u32);

/// A driver and the first kernel in which it receives and sends so.
type Driver = (&'static str, Option<Release>, Option<Release>);

/// Drivers that can, with the first kernel for receiving and for sending (`None`: not yet).
const DRIVERS: [Driver; 4] = [
    ("bnxt_en", Some((6, 16)), Some((6, 17))),
    ("mlx5_core", Some((6, 17)), Some((6, 17))),
    ("gve", None, Some((6, 16))),
    ("fbnic", Some((6, 18)), Some((6, 18))),
];

/// What is true of every driver that can.
const WHO_RECEIVES: &str =
    "bnxt_en since Linux 6.16, mlx5_core (ConnectX-7 and later) since 6.17 and fbnic since 6.18 can";
const WHO_SENDS: &str = "gve since Linux 6.16, bnxt_en and mlx5_core since 6.17 and fbnic since 6.18 can";

/// Major and minor number of a kernel release.
fn version(release: &str) -> Option<Release> {
    let mut parts = release.split(['.', '-', '+']);
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

fn too_old(release: &str, since: Release) -> bool {
    version(release).is_some_and(|v| v < since)
}

/// Why this driver cannot, by its name and the kernel's.
fn by_name(kernel: &str, card: &Card, pick: fn(&Driver) -> Option<Release>, who: &str) -> Option<String> {
    let name = card.driver.as_deref()?;
    let known = DRIVERS.iter().find(|d| d.0 == name)?;
    match pick(known) {
        None => Some(format!("no released kernel has it for {name}; {who}")),
        Some(since) if too_old(kernel, since) => {
            Some(format!("{name} has it since Linux {}.{}, this is {kernel}", since.0, since.1))
        }
        Some(_) => None,
    }
}

/// Whether the card can receive into device memory.
pub fn receive(kernel: &str, card: &Card) -> Verdict {
    if too_old(kernel, (6, 12)) || card.may_receive == BindVerdict::NoKernel {
        return Verdict::Never { why: format!("the kernel's interface came with Linux 6.12, this is {kernel}") };
    }
    let known = by_name(kernel, card, |d| d.1, WHO_RECEIVES);
    let asked = match &card.may_receive {
        BindVerdict::No(said) => {
            let who = known.unwrap_or_else(|| WHO_RECEIVES.to_owned());
            return Verdict::Never { why: format!("{said}; {who}") };
        }
        BindVerdict::NotAllowed => match known {
            Some(why) => return Verdict::Never { why },
            None => false,
        },
        BindVerdict::Yes | BindVerdict::NoKernel => true,
    };
    let mut steps = Vec::new();
    let name = &card.name;
    if card.queues.is_some_and(|n| n < 2) {
        steps.push(format!(
            "one receive queue only, and one must stay for everything else: ethtool -L {name} combined 2"
        ));
    }
    match card.split {
        HeaderSplit::On if card.threshold.unwrap_or(0) == 0 => {}
        HeaderSplit::On => steps.push(format!(
            "packets below {} bytes are not split: ethtool -G {name} hds-thresh 0",
            card.threshold.unwrap_or(0)
        )),
        HeaderSplit::Off => {
            steps.push(format!("headers and payload are not split: ethtool -G {name} tcp-data-split on hds-thresh 0"));
        }
        HeaderSplit::Unknown => steps.push(format!(
            "the driver does not say whether it splits headers and payload: try ethtool -G {name} tcp-data-split on"
        )),
    }
    match (asked, steps.is_empty()) {
        (false, _) => Verdict::AskAsRoot { steps },
        (true, true) => Verdict::Yes,
        (true, false) => Verdict::After { steps },
    }
}

/// Whether the card can send from device memory.
pub fn send(kernel: &str, card: &Card) -> Verdict {
    if too_old(kernel, (6, 16)) || card.may_send == BindVerdict::NoKernel {
        return Verdict::Never { why: format!("the kernel's interface came with Linux 6.16, this is {kernel}") };
    }
    let known = by_name(kernel, card, |d| d.2, WHO_SENDS);
    match (&card.may_send, known) {
        (BindVerdict::No(said), known) => {
            Verdict::Never { why: format!("{said}; {}", known.unwrap_or_else(|| WHO_SENDS.to_owned())) }
        }
        (BindVerdict::NotAllowed, Some(why)) => Verdict::Never { why },
        (BindVerdict::NotAllowed, None) => Verdict::AskAsRoot { steps: Vec::new() },
        (BindVerdict::Yes | BindVerdict::NoKernel, _) => Verdict::Yes,
    }
}

#[cfg(test)]
mod tests;
