//! Which receive queue a stream's packets go to, and which queues take everything else: the parts of ethtool that are an ioctl.
//!
//! Layouts and numbers: include/uapi/linux/ethtool.h and sockios.h.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use crate::socket::Error;

const SIOCETHTOOL: libc::c_ulong = 0x8946;

/// Commands.
const GET_TSO: u32 = 0x1e;
const GET_FLAGS: u32 = 0x25;
const SET_FLAGS: u32 = 0x26;
const GET_QUEUES: u32 = 0x2d;
const RULE_COUNT: u32 = 0x2e;
const RULE_GET: u32 = 0x2f;
const RULE_LIST: u32 = 0x30;
const RULE_DELETE: u32 = 0x31;
const RULE_INSERT: u32 = 0x32;
const GET_TABLE: u32 = 0x38;
const SET_TABLE: u32 = 0x39;

/// `TCP_V4_FLOW`, `TCP_V6_FLOW`.
const TCP_V4: u32 = 1;
const TCP_V6: u32 = 5;

/// `FLOW_EXT`, `FLOW_MAC_EXT` and `FLOW_RSS`, beside the type of a flow.
const BESIDE_FLOW: u32 = 0xe000_0000;

/// `RX_CLS_LOC_SPECIAL`: the driver finds a place for a rule by itself; `RX_CLS_LOC_ANY`: it shall.
const PLACES_ITSELF: u32 = 0x8000_0000;
const ANYWHERE: u32 = 0xffff_ffff;

/// `ETH_FLAG_NTUPLE`.
const NTUPLE: u32 = 1 << 27;

/// Most rules of a card that are looked through, and most entries of a table.
const RULES: u32 = 65_536;
const TABLE: u32 = 65_536;

/// `struct ethtool_rxnfc`, in which `fs` begins at 16: its flow type, header, extension, mask, mask of the extension, queue,
/// place.
const RXNFC: usize = 192;
mod at {
    pub(super) const FLOW: usize = 4;
    pub(super) const DATA: usize = 8;
    pub(super) const SPEC: usize = 16;
    pub(super) const HEADER: usize = SPEC + 4;
    pub(super) const MASK: usize = SPEC + 76;
    pub(super) const QUEUE: usize = SPEC + 152;
    pub(super) const PLACE: usize = SPEC + 160;
    pub(super) const COUNT: usize = 184;
    pub(super) const LIST: usize = 188;
}

/// `struct ethtool_rxfh_indir`: command, size, entries.
const TABLE_HEAD: usize = 8;

/// A socket for the calls.
#[derive(Debug)]
struct Control {
    fd: OwnedFd,
    name: [u8; 16],
}

impl Control {
    fn open(interface: &str) -> Result<Control, Error> {
        let mut name = [0; 16];
        // The last byte ends the name.
        let short = interface.len() < name.len() && !interface.bytes().any(|b| b == 0);
        if !short {
            return Err(Error::System { call: "an interface's name", source: io::ErrorKind::InvalidInput.into() });
        }
        name[..interface.len()].copy_from_slice(interface.as_bytes());
        // SAFETY: takes no memory of ours.
        let fd = unsafe { libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) };
        if fd < 0 {
            return Err(Error::System { call: "socket", source: io::Error::last_os_error() });
        }
        // SAFETY: a descriptor that was just made for us.
        Ok(Control { fd: unsafe { OwnedFd::from_raw_fd(fd) }, name })
    }

    /// One call. The buffer is as long as its command says, which each caller below sees to.
    fn ask(&self, what: &'static str, buffer: &mut [u64]) -> Result<(), Error> {
        // `struct ifreq`: name, address of the command.
        #[repr(C)]
        struct Request {
            name: [u8; 16],
            data: *mut u64,
            rest: [u64; 2],
        }
        let mut request = Request { name: self.name, data: buffer.as_mut_ptr(), rest: [0; 2] };
        // SAFETY: the request and the buffer live during the call; the kernel reads and writes as many bytes of the
        // buffer as the command in it says, which are there: see the callers.
        match unsafe { libc::ioctl(self.fd.as_raw_fd(), SIOCETHTOOL, &raw mut request) } {
            n if n >= 0 => Ok(()),
            _ => Err(Error::Refused { what, source: io::Error::last_os_error(), text: None }),
        }
    }
}

/// A command of so many bytes, aligned as the kernel wants it.
#[derive(Debug)]
struct Command(Vec<u64>);

impl Command {
    fn new(len: usize, command: u32) -> Command {
        let mut made = Command(vec![0; len.div_ceil(8)]);
        made.put(0, &command.to_ne_bytes());
        made
    }

    fn put(&mut self, at: usize, bytes: &[u8]) {
        for (n, byte) in bytes.iter().enumerate() {
            let (word, shift) = ((at + n) / 8, (at + n) % 8);
            let mut all = self.0[word].to_ne_bytes();
            all[shift] = *byte;
            self.0[word] = u64::from_ne_bytes(all);
        }
    }

    fn u32(&self, at: usize) -> u32 {
        let all = self.0[at / 8].to_ne_bytes();
        let from = at % 8;
        u32::from_ne_bytes([all[from], all[from + 1], all[from + 2], all[from + 3]])
    }
}

/// Whether an interface's driver takes TCP segments that are larger than its packets (`tcp-segmentation-offload` of `ethtool -k`). Anybody may ask.
///
/// # Errors
/// [`Error::Refused`] where the interface does not exist; [`Error::System`] for the socket.
pub fn takes_large_segments(interface: &str) -> Result<bool, Error> {
    // `struct ethtool_value`: command, value.
    let mut ask = Command::new(8, GET_TSO);
    Control::open(interface)?.ask("whether TSO is on", &mut ask.0)?;
    Ok(ask.u32(4) != 0)
}

/// The rule for the stream `peer` -> `local`: exactly its two addresses and ports.
fn rule(local: SocketAddr, peer: SocketAddr, queue: u32, place: u32) -> Command {
    let mut rule = Command::new(RXNFC, RULE_INSERT);
    let (from, to) = (peer.ip().to_canonical(), local.ip().to_canonical());
    let (flow, from, to): (u32, Vec<u8>, Vec<u8>) = match (from, to) {
        (IpAddr::V4(from), IpAddr::V4(to)) => (TCP_V4, from.octets().into(), to.octets().into()),
        (from, to) => {
            let six = |ip| match ip {
                IpAddr::V4(v4) => v4.to_ipv6_mapped(),
                IpAddr::V6(v6) => v6,
            };
            (TCP_V6, six(from).octets().into(), six(to).octets().into())
        }
    };
    rule.put(at::SPEC, &flow.to_ne_bytes());
    let ip = from.len();
    // Source, destination, source port, destination port; set bits of the mask are compared.
    rule.put(at::HEADER, &from);
    rule.put(at::HEADER + ip, &to);
    rule.put(at::HEADER + 2 * ip, &peer.port().to_be_bytes());
    rule.put(at::HEADER + 2 * ip + 2, &local.port().to_be_bytes());
    rule.put(at::MASK, &vec![0xff; 2 * ip + 4]);
    rule.put(at::QUEUE, &u64::from(queue).to_ne_bytes());
    rule.put(at::PLACE, &place.to_ne_bytes());
    rule
}

/// Whether this rule, as the card tells it, is for the stream of that one. The mask is not compared: drivers tell it in ways of their own.
fn is_same(told: &Command, rule: &Command) -> bool {
    let flow = rule.u32(at::SPEC);
    let words = if flow == TCP_V4 { 3 } else { 9 };
    let same = |at| told.u32(at) == rule.u32(at);
    told.u32(at::SPEC) & !BESIDE_FLOW == flow && (0..words).all(|n| same(at::HEADER + 4 * n))
}

/// A stream steered to a queue, until this is dropped.
#[derive(Debug)]
pub struct Rule {
    control: Control,
    rule: Command,
}

impl Rule {
    /// As [`begin_rule`], until this is dropped.
    ///
    /// # Errors
    /// As there.
    pub fn steer(interface: &str, local: SocketAddr, peer: SocketAddr, queue: u32) -> Result<Rule, Error> {
        let control = Control::open(interface)?;
        let rule = begin(&control, local, peer, queue)?;
        Ok(Rule { control, rule })
    }
}

impl Drop for Rule {
    fn drop(&mut self) {
        let _ = end(&self.control, self.rule.u32(at::PLACE), &self.rule);
    }
}

fn begin(control: &Control, local: SocketAddr, peer: SocketAddr, queue: u32) -> Result<Command, Error> {
    let place = free_place(control)?;
    let mut ask = rule(local, peer, queue, place);
    control.ask("a rule that steers a stream to a queue", &mut ask.0)?;
    // The driver has written where it put it.
    let place = ask.u32(at::PLACE);
    Ok(rule(local, peer, queue, place))
}

/// Steers the stream `peer` -> `local`, and nothing else, to a receive queue, until [`end_rule`]: the place of the rule on the card.
/// Needs CAP_NET_ADMIN.
///
/// # Errors
/// [`Error::Refused`]: `EOPNOTSUPP` where the card has no such rules or they are off (`ethtool -K IFACE ntuple
/// on`), `ENOSPC` where the table is full, `EPERM` without CAP_NET_ADMIN. [`Error::System`] for the socket.
pub fn begin_rule(interface: &str, local: SocketAddr, peer: SocketAddr, queue: u32) -> Result<u32, Error> {
    begin(&Control::open(interface)?, local, peer, queue).map(|rule| rule.u32(at::PLACE))
}

/// Ends the rule at a place, where it is the one that `wanted` is: another may have been put there since.
fn end(control: &Control, place: u32, wanted: &Command) -> Result<(), Error> {
    let mut told = Command::new(RXNFC, RULE_GET);
    told.put(at::PLACE, &place.to_ne_bytes());
    match control.ask("a rule of an interface", &mut told.0) {
        Ok(()) if is_same(&told, wanted) => {}
        Ok(()) => return Ok(()),
        // What drivers say of a place where nothing is; and a card that is gone has no rules.
        Err(error) if matches!(error.errno(), Some(libc::ENOENT | libc::EINVAL | libc::ENODEV)) => return Ok(()),
        Err(error) => return Err(error),
    }
    let mut ask = Command::new(RXNFC, RULE_DELETE);
    ask.put(at::PLACE, &place.to_ne_bytes());
    match control.ask("the end of a rule", &mut ask.0) {
        Err(error) if error.errno() == Some(libc::ENOENT) => Ok(()),
        other => other,
    }
}

/// Ends the rule for the stream `peer` -> `local` that is at this place, or (`None`) all that there are for it, as a process may have left
/// that was killed. Rules for other streams stay. Needs CAP_NET_ADMIN.
///
/// # Errors
/// [`Error::Refused`], with `EPERM` without CAP_NET_ADMIN; [`Error::System`] for the socket. A rule that does not exist
/// is no error.
pub fn end_rule(interface: &str, place: Option<u32>, local: SocketAddr, peer: SocketAddr) -> Result<(), Error> {
    let control = Control::open(interface)?;
    let wanted = rule(local, peer, 0, 0);
    let places = match place.map_or_else(|| all(&control), |place| Ok(vec![place])) {
        Err(error) if error.errno() == Some(libc::ENODEV) => return Ok(()),
        places => places?,
    };
    places.into_iter().try_for_each(|place| end(&control, place, &wanted))
}

/// How many rules there are, and whether the driver finds a place for one by itself.
fn count(control: &Control) -> Result<(u32, bool), Error> {
    let mut count = Command::new(RXNFC, RULE_COUNT);
    control.ask(RULES_OF, &mut count.0)?;
    Ok((count.u32(at::COUNT).min(RULES), count.u32(at::DATA) & PLACES_ITSELF != 0))
}

/// The places of all.
fn all(control: &Control) -> Result<Vec<u32>, Error> {
    Ok(taken(control, count(control)?.0)?.0)
}

/// The places where they are, and how many places there are.
fn taken(control: &Control, used: u32) -> Result<(Vec<u32>, u32), Error> {
    // The kernel writes at most as many places as it is told that there is space for.
    let mut list = Command::new(at::LIST + 4 * used as usize, RULE_LIST);
    list.0.resize(list.0.len().max(RXNFC / 8), 0);
    list.put(at::COUNT, &used.to_ne_bytes());
    control.ask(RULES_OF, &mut list.0)?;
    let used = list.u32(at::COUNT).min(used);
    Ok(((0..used as usize).map(|n| list.u32(at::LIST + 4 * n)).collect(), list.u32(at::DATA)))
}

const RULES_OF: &str = "the rules of an interface";

/// Where a new rule goes.
fn free_place(control: &Control) -> Result<u32, Error> {
    let (used, itself) = count(control)?;
    if itself {
        return Ok(ANYWHERE);
    }
    let (taken, size) = taken(control, used)?;
    // From the end: what people set by hand is at the beginning, and goes before.
    let free = (0..size).rev().find(|place| !taken.contains(place));
    let full = || Error::Refused { what: RULES_OF, source: io::Error::from_raw_os_error(libc::ENOSPC), text: None };
    free.ok_or_else(full)
}

/// Number of receive queues to which rules and tables can lead.
///
/// # Errors
/// [`Error::Refused`]: `EOPNOTSUPP` where the driver has none to steer to. [`Error::System`] for the socket.
pub fn steerable(interface: &str) -> Result<u32, Error> {
    let mut ask = Command::new(RXNFC, GET_QUEUES);
    ask.put(at::FLOW, &0u32.to_ne_bytes());
    Control::open(interface)?.ask("the queues that streams can be steered to", &mut ask.0)?;
    Ok(ask.u32(at::DATA))
}

/// The table that spreads streams without a rule of their own over queues, entry by entry.
///
/// # Errors
/// [`Error::Refused`]: `EOPNOTSUPP` where the driver has no such table. [`Error::System`] for the socket.
pub fn spread(interface: &str) -> Result<Vec<u32>, Error> {
    const WHAT: &str = "the table that spreads streams over queues";
    let control = Control::open(interface)?;
    let mut ask = Command::new(TABLE_HEAD, GET_TABLE);
    control.ask(WHAT, &mut ask.0)?;
    let size = ask.u32(4).min(TABLE);
    let mut ask = Command::new(TABLE_HEAD + 4 * size as usize, GET_TABLE);
    ask.put(4, &size.to_ne_bytes());
    control.ask(WHAT, &mut ask.0)?;
    Ok((0..size as usize).map(|n| ask.u32(TABLE_HEAD + 4 * n)).collect())
}

/// Sets the table that spreads streams over queues. Needs CAP_NET_ADMIN.
///
/// # Errors
/// [`Error::Refused`]: `EPERM` without CAP_NET_ADMIN, `EOPNOTSUPP` where the driver cannot, `EINVAL` for a table of
/// another length. [`Error::System`] for the socket.
pub fn set_spread(interface: &str, table: &[u32]) -> Result<(), Error> {
    // A size of 0 would set the driver's own table.
    let size = u32::try_from(table.len()).unwrap_or(0).clamp(1, TABLE);
    let mut ask = Command::new(TABLE_HEAD + 4 * size as usize, SET_TABLE);
    ask.put(4, &size.to_ne_bytes());
    for (n, queue) in table.iter().take(size as usize).enumerate() {
        ask.put(TABLE_HEAD + 4 * n, &queue.to_ne_bytes());
    }
    Control::open(interface)?.ask("setting the table that spreads streams over queues", &mut ask.0)
}

/// `struct ethtool_value`: command, value.
fn flags(control: &Control) -> Result<u32, Error> {
    let mut ask = Command::new(8, GET_FLAGS);
    control.ask("the features of an interface", &mut ask.0)?;
    Ok(ask.u32(4))
}

/// Whether the card takes rules for streams (`ethtool -k`: ntuple-filters).
///
/// # Errors
/// [`Error::Refused`]: `ENODEV` for no such interface. [`Error::System`] for the socket.
pub fn takes_rules(interface: &str) -> Result<bool, Error> {
    Ok(flags(&Control::open(interface)?)? & NTUPLE != 0)
}

/// Switches that on or off. Needs CAP_NET_ADMIN. A driver without it leaves it as it was, without a word.
///
/// # Errors
/// [`Error::Refused`]: `EPERM` without CAP_NET_ADMIN, `EOPNOTSUPP` where the driver cannot. [`Error::System`] for the
/// socket.
pub fn take_rules(interface: &str, on: bool) -> Result<(), Error> {
    let control = Control::open(interface)?;
    let now = flags(&control)?;
    let mut ask = Command::new(8, SET_FLAGS);
    ask.put(4, &(if on { now | NTUPLE } else { now & !NTUPLE }).to_ne_bytes());
    control.ask("switching rules for streams", &mut ask.0)
}

#[cfg(test)]
mod tests;
