//! Faults that are made in a whole system, named by `lspan doctor`, and mended by the very commands that it prints.

use std::collections::BTreeSet;
use std::time::Duration;

use super::doctor::{Asker, Finding, exactly, findings, way};
use super::host::{self, LAN_DEVICE, Pair};
use super::net::{TWO_LANES, link_local};
use crate::error::{Error, Result, check};
use crate::guest::Guest;
use crate::lab::Lab;
use crate::suite::tb::{self, SOON};

/// How something is done.
#[derive(Clone, Copy, Debug)]
enum Deed {
    /// By root of `a`, which has the faults.
    Here(&'static str),
    /// By root of `b`, which has none but for these.
    There(&'static str),
    /// The cable comes up again with no more than these words say; the lanes and the speed of one that both kernels then see.
    Cable(&'static str, &'static str, &'static str),
}

/// Who asks the doctor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Ask {
    /// Root.
    Root,
    /// A user, in the shell in which the mend is typed.
    User,
    /// Root, of both hosts together.
    Together,
}

/// A way of `b` to `a`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// TCP over the cable.
    Cable,
    /// RDMA over the Ethernet.
    Rdma,
}

/// A fault, in the order in which two of them are made.
#[derive(Debug)]
struct Fault {
    name: &'static str,
    make: Deed,
    /// A condition on `a`: the fault is there to be seen.
    shows: &'static str,
    code: &'static str,
    ask: Ask,
    /// Where no command of this host mends it: what does.
    hand: Option<Deed>,
    /// What the mend, and making it, have left on `a`.
    undo: &'static str,
    way: Way,
    /// Whether that way is closed by it. The others make it slow, or are one step from closing it.
    closes: bool,
    /// Faults that are not seen before this one is mended. Some are gone with it.
    hides: &'static [&'static str],
    /// Faults that cannot be made beside it, or are another one then.
    not_with: &'static [&'static str],
}

/// The interface is up, with a carrier and of two lanes: what most faults change.
const BASE: Fault = Fault {
    name: "",
    make: Deed::Here("true"),
    shows: "true",
    code: "",
    ask: Ask::Root,
    hand: None,
    undo: "true",
    way: Way::Cable,
    closes: false,
    hides: &[],
    not_with: &[],
};

/// NetworkManager has the profile `cable` for it before each fault, and again after it.
const PROFILE: &str = "nmcli connection delete linkspan-thunderbolt0 bare 2>/dev/null; nmcli connection up cable";

/// What an interface must be there and up for.
const ON_INTERFACE: &[&str] = &["no-address", "one-subnet", "firewall"];

/// Of an interface that another fault takes away, a lower MTU is gone for good, and it is seen of both hosts together alone.
const NO_INTERFACE: &[&str] = &["mtu", "tso"];

/// A cable that comes up anew has another interface, which has none of these.
const NO_CABLE: &[&str] = &[
    "no-address",
    "one-subnet",
    "mtu",
    "tso",
    "down",
    "driver-off",
    "peer-down",
    "peer-driver-off",
    "one-lane",
    "slow-lane",
];

const FAULTS: &[Fault] = &[
    Fault {
        name: "one-lane",
        make: Deed::Cable("retrain ab lanes=1", "1", "20.0 Gb/s"),
        code: "LS2103",
        hand: Some(Deed::Cable("retrain ab", "2", "20.0 Gb/s")),
        not_with: NO_CABLE,
        ..BASE
    },
    Fault {
        name: "slow-lane",
        make: Deed::Cable("retrain ab gen=2", "2", "10.0 Gb/s"),
        code: "LS2104",
        hand: Some(Deed::Cable("retrain ab", "2", "20.0 Gb/s")),
        not_with: NO_CABLE,
        ..BASE
    },
    Fault {
        name: "no-address",
        make: Deed::Here(
            "nmcli connection add type ethernet con-name bare ifname thunderbolt0 connection.autoconnect-priority 5 \
             ipv4.method disabled ipv6.method disabled && nmcli connection up bare",
        ),
        code: "LS2110",
        undo: PROFILE,
        closes: true,
        not_with: &["one-subnet", "mtu"],
        ..BASE
    },
    Fault {
        name: "one-subnet",
        make: Deed::Here("ip addr add 10.1.0.77/24 dev thunderbolt0"),
        code: "LS2307",
        undo: PROFILE,
        not_with: &["mtu"],
        ..BASE
    },
    Fault {
        name: "mtu",
        make: Deed::Here("ip link set thunderbolt0 mtu 1400"),
        code: "LS1415",
        ask: Ask::Together,
        ..BASE
    },
    Fault {
        name: "firewall",
        make: Deed::Here(
            "nft add table inet lab && nft add chain inet lab input '{ type filter hook input priority 0; policy accept; }' && \
             nft add rule inet lab input iifname thunderbolt0 meta l4proto tcp ct state new drop",
        ),
        code: "LS2401",
        undo: "nft delete table inet lab",
        closes: true,
        ..BASE
    },
    Fault {
        name: "buffers",
        make: Deed::Here("sysctl -qw net.ipv4.tcp_rmem='4096 65536 262144'"),
        code: "LS2310",
        undo: "rm -f /etc/sysctl.d/90-tcp-rmem.conf",
        ..BASE
    },
    Fault {
        name: "pacing",
        make: Deed::Here(
            "modprobe tcp_bbr && sysctl -qw net.ipv4.tcp_congestion_control=bbr && \
             sysctl -qw net.ipv4.tcp_allowed_congestion_control=bbr",
        ),
        code: "LS2311",
        undo: "sysctl -qw net.ipv4.tcp_congestion_control=cubic && \
               sysctl -qw net.ipv4.tcp_allowed_congestion_control='reno cubic'",
        ..BASE
    },
    Fault {
        name: "tso",
        make: Deed::Here("sysctl -qw net.ipv4.conf.thunderbolt0.forwarding=1"),
        code: "LS2119",
        undo: "sysctl -qw net.ipv4.conf.thunderbolt0.forwarding=0 && ethtool -K thunderbolt0 tso on",
        not_with: NO_INTERFACE,
        ..BASE
    },
    Fault {
        name: "memlock",
        make: Deed::Here("echo 'friend - memlock 64' >/etc/security/limits.d/20-low.conf"),
        code: "LS2203",
        ask: Ask::User,
        undo: "rm -f /etc/security/limits.d/20-low.conf",
        way: Way::Rdma,
        closes: true,
        ..BASE
    },
    Fault {
        name: "peer-down",
        make: Deed::There("ip link set thunderbolt0 down"),
        shows: "grep -q 0 /sys/class/net/thunderbolt0/carrier",
        code: "LS2111",
        hand: Some(Deed::There("sudo ip link set thunderbolt0 up")),
        closes: true,
        hides: &["no-address", "one-subnet"],
        not_with: NO_INTERFACE,
        ..BASE
    },
    Fault {
        name: "down",
        make: Deed::Here("ip link set thunderbolt0 down"),
        code: "LS2109",
        closes: true,
        hides: &["no-address", "one-subnet", "firewall", "peer-down"],
        not_with: NO_INTERFACE,
        ..BASE
    },
    Fault {
        name: "driver-off",
        make: Deed::Here("rmmod thunderbolt_net"),
        code: "LS2107",
        undo: "rm -f /etc/modules-load.d/thunderbolt_net.conf",
        closes: true,
        hides: ON_INTERFACE,
        not_with: &["mtu", "tso", "down", "peer-down", "peer-driver-off"],
        ..BASE
    },
    Fault {
        name: "no-driver",
        // Of both modules.
        make: Deed::Here("modprobe -r thunderbolt_net"),
        code: "LS2105",
        closes: true,
        hides: &["firewall"],
        not_with: NO_CABLE,
        ..BASE
    },
    Fault {
        name: "peer-driver-off",
        make: Deed::There("rmmod thunderbolt_net"),
        shows: "! grep -q network /sys/bus/thunderbolt/devices/0-1.*/key 2>/dev/null",
        code: "LS2108",
        hand: Some(Deed::There("sudo modprobe thunderbolt_net")),
        closes: true,
        hides: ON_INTERFACE,
        not_with: &["mtu", "tso", "down", "peer-down"],
        ..BASE
    },
    Fault {
        name: "driver-missing",
        make: Deed::Here("rmmod thunderbolt_net && mv $(modinfo -n thunderbolt_net) /var/tmp/ && depmod"),
        code: "LS2106",
        // What another package of the kernel does.
        hand: Some(Deed::Here(
            "mv /var/tmp/thunderbolt_net.ko* /lib/modules/$(uname -r)/kernel/drivers/net/thunderbolt/ && depmod && \
             modprobe thunderbolt_net",
        )),
        closes: true,
        ..BASE
    },
];

/// Those that take minutes each by an emulated processor, or a cable that is trained anew, stand alone.
const ALONE: [&str; 3] = ["driver-missing", "one-lane", "slow-lane"];

/// Pairs of a run.
const PAIRS: usize = 20;

/// The two on their cable, and what has been typed in the user's shell.
#[derive(Debug)]
struct Bench {
    pair: Pair,
    typed: String,
}

pub(super) fn one_by_one(lab: &mut Lab) -> Result<()> {
    let mut bench = Bench::new(lab)?;
    for fault in FAULTS {
        let named = |error| within(fault.name, error);
        bench.make(fault).map_err(named)?;
        if fault.closes {
            bench.closed(fault).map_err(named)?;
        }
        let typed = bench.mended(&[fault]).map_err(named)?;
        let path = bench.opened(fault).map_err(named)?;
        bench.undo(&[fault]).map_err(named)?;
        lab.say(&format!("{}: {} alone; {typed}; gone; {path}", fault.name, fault.code));
    }
    bench.end(lab)
}

pub(super) fn in_pairs(lab: &mut Lab) -> Result<()> {
    let seed = lab.seed;
    let mut bench = Bench::new(lab)?;
    for (n, two) in chosen(seed).into_iter().enumerate() {
        let name = format!("{} and {}, pair {n} of seed {seed}", two[0].name, two[1].name);
        let named = |error| within(&name, error);
        for fault in two {
            bench.make(fault).map_err(named)?;
        }
        let typed = bench.mended(&two).map_err(named)?;
        let mut paths = bench.opened(two[0]).map_err(named)?;
        if two[0].way != two[1].way {
            paths = format!("{paths}; {}", bench.opened(two[1]).map_err(named)?);
        }
        bench.undo(&two).map_err(named)?;
        lab.say(&format!("{} and {}: {typed}; gone; {paths}", two[0].name, two[1].name));
    }
    bench.end(lab)
}

/// A fault that the kernel's command line makes, which a reboot without the word mends.
pub(super) fn boot(lab: &mut Lab) -> Result<()> {
    const WORD: &str = "thunderbolt.xdomain=0";
    let (cable, mut specs) = host::planned(lab, &TWO_LANES, |_| ())?;
    specs[0].append = WORD.to_owned();
    let bench = Bench { pair: host::up(lab, cable, &specs)?, typed: String::new() };
    let found = bench.asked(Ask::Root)?;
    exactly(&found, &BTreeSet::from(["LS2101"]))?;
    let says = |steps: &[String], part: &str| steps.iter().any(|step| step.contains(part));
    let told = says(&found[0].by_hand, &format!("take {WORD} out")) && says(&found[0].commands, "sudo reboot");
    check(told, || format!("no mend of {WORD}: {found:?}"))?;
    bench.closed(&BASE)?;
    lab.say("xdomain: LS2101 alone; nothing over the cable");
    let Pair { cable, guests: [a, b] } = bench.pair;
    specs[0].append.clear();
    a.ends_by("sudo reboot")?;
    let [a] = lab.boot([&specs[0]])?;
    host::settled(&a)?;
    let bench = Bench { pair: Pair { cable, guests: [a, b] }, typed: String::new() };
    let path = bench.opened(&BASE)?;
    let found = bench.asked(Ask::Root)?;
    check(found.is_empty(), || format!("booted without {WORD}: {found:?}"))?;
    lab.say(&format!("booted without the word, as printed: gone; {path}"));
    bench.end(lab)
}

/// How `b` goes a way.
#[derive(Debug)]
struct Route {
    under: &'static str,
    peer: &'static str,
    over: &'static [&'static str],
}

impl Route {
    fn by<'a>(&self, guest: &'a Guest) -> Asker<'a> {
        Asker { guest, under: self.under, first: "" }
    }
}

fn route(way: Way) -> Route {
    match way {
        Way::Cable => Route {
            under: "LINKSPAN_PATH=tcp LINKSPAN_IFNAME=thunderbolt0 LINKSPAN_CONNECT_TIMEOUT_MS=8000 sh -c",
            peer: "cable",
            over: &["thunderbolt0 [fe80::"],
        },
        Way::Rdma => Route { under: "LINKSPAN_IFNAME=en sh -c", peer: "10.1.0.1", over: &["verbs rxe"] },
    }
}

impl Bench {
    /// Boots both and sees that they are healthy to all who ask.
    fn new(lab: &mut Lab) -> Result<Bench> {
        // A test of half an hour on a busy machine.
        let pair = host::pair(lab, &TWO_LANES, |spec| spec.deadline = Duration::from_secs(1800))?;
        for guest in &pair.guests {
            host::cabled(guest)?;
            // Soft-RoCE on the Ethernet; a user who may lock memory and become root.
            guest.sh_for(
                SOON,
                &format!(
                    "nmcli connection add type ethernet con-name cable ifname thunderbolt0 ipv4.method disabled \
                     ipv6.method link-local && nmcli connection up cable || exit 1\n\
                     modprobe rdma_rxe && rdma link add rxe0 type rxe netdev $({LAN_DEVICE}) || exit 1\n\
                     echo 'friend - memlock unlimited' >/etc/security/limits.d/10-lab.conf\n\
                     echo 'friend ALL=(ALL) NOPASSWD: ALL' >/etc/sudoers.d/lab && chmod 440 /etc/sudoers.d/lab"
                ),
            )?;
        }
        let bench = Bench { pair, typed: String::new() };
        bench.rest()?;
        for ask in [Ask::Root, Ask::User, Ask::Together] {
            let found = bench.asked(ask)?;
            check(found.is_empty(), || format!("before any fault {ask:?} is told {found:?}"))?;
        }
        lab.say("without a fault the doctor is silent to root, to a user and of both together");
        Ok(bench)
    }

    fn end(self, lab: &mut Lab) -> Result<()> {
        host::end(lab, self.pair)
    }

    fn guest(&self, name: &str) -> Result<&Guest> {
        let found = self.pair.guests.iter().find(|guest| guest.name() == name);
        found.ok_or_else(|| Error::Check(format!("a finding is of host {name:?}, which is none of the two")))
    }

    /// Until NetworkManager has nothing more to do with the cable on either host.
    fn rest(&self) -> Result<()> {
        let state = "nmcli -g GENERAL.STATE device show thunderbolt0 2>/dev/null | grep -q ^100 && \
                     grep -q 1 /sys/class/net/thunderbolt0/carrier";
        for guest in &self.pair.guests {
            guest.until("thunderbolt0 connected", SOON, &format!("{{ {state}; }}"))?;
        }
        Ok(())
    }

    fn act(&self, deed: Deed) -> Result<()> {
        let [a, b] = &self.pair.guests;
        let (words, lanes, speed) = match deed {
            Deed::Here(script) => return a.sh_for(SOON, script).map(drop),
            Deed::There(script) => return b.sh_for(SOON, script).map(drop),
            Deed::Cable(words, lanes, speed) => (words, lanes, speed),
        };
        for guest in [a, b] {
            guest.sh("ip link set thunderbolt0 down")?;
        }
        let before = [tb::times_found(a)?, tb::times_found(b)?];
        self.pair.cable.tell(words)?;
        for (guest, before) in [a, b].into_iter().zip(before) {
            let again = format!("[ $(dmesg | grep -c 'new host found') -gt {before} ]");
            guest.until("the other host to be found again", SOON, &again)?;
            let place = "/sys/bus/thunderbolt/devices/0-1";
            let as_told = format!("grep -q {lanes} {place}/rx_lanes && grep -q '{speed}' {place}/rx_speed");
            guest.until("the link as it was told", SOON, &format!("{{ {as_told}; }}"))?;
        }
        self.rest()
    }

    fn make(&self, fault: &Fault) -> Result<()> {
        self.act(fault.make)?;
        self.pair.guests[0].until(fault.name, SOON, fault.shows).map(drop)
    }

    fn undo(&mut self, faults: &[&Fault]) -> Result<()> {
        self.typed.clear();
        for fault in faults {
            self.pair.guests[0].sh_for(SOON, fault.undo)?;
        }
        self.rest()
    }

    /// Who asks on `a`.
    fn asker(&self, ask: Ask) -> Asker<'_> {
        match ask {
            Ask::User => Asker { guest: &self.pair.guests[0], under: "su - friend -c", first: &self.typed },
            Ask::Root | Ask::Together => Asker::root(&self.pair.guests[0]),
        }
    }

    fn asked(&self, ask: Ask) -> Result<Vec<Finding>> {
        if ask != Ask::Together {
            return Ok(findings(&self.asker(ask).report("")?));
        }
        let a = &self.pair.guests[0];
        for guest in &self.pair.guests {
            let report = Asker::root(guest).report("")?;
            a.sh(&format!("cat >/run/{}.json <<'END'\n{report}\nEND", guest.name()))?;
        }
        Ok(findings(&Asker::root(a).report("--merge /run/a.json /run/b.json")?))
    }

    /// Mends by what is printed until nothing is found, and says what was typed. First exactly those faults are named that no other
    /// one hides, then no others than those.
    fn mended(&mut self, faults: &[&Fault]) -> Result<String> {
        let hidden = |fault: &Fault| faults.iter().any(|other| other.hides.contains(&fault.name));
        let seen: BTreeSet<&str> = faults.iter().filter(|fault| !hidden(fault)).map(|fault| fault.code).collect();
        let asks: BTreeSet<Ask> = faults.iter().map(|fault| fault.ask).collect();
        let mut typed = Vec::new();
        for round in 0..=faults.len() {
            let mut found: Vec<Finding> = Vec::new();
            for ask in &asks {
                for one in self.asked(*ask)? {
                    if !found.contains(&one) {
                        found.push(one);
                    }
                }
            }
            if round == 0 {
                exactly(&found, &seen)?;
            } else if found.is_empty() {
                return Ok(typed.join(", "));
            }
            for one in &found {
                let fault = faults.iter().find(|fault| fault.code == one.code);
                let fault = fault.ok_or_else(|| Error::Check(format!("{one:?} besides, after {typed:?}")))?;
                typed.push(self.mend(fault, one)?);
            }
            // One that shows now keeps the cable from coming to rest.
            match faults.iter().find(|fault| round == 0 && hidden(fault) && fault.shows != BASE.shows) {
                Some(next) => self.pair.guests[0].until(next.name, SOON, next.shows).map(drop)?,
                None => self.rest()?,
            }
        }
        Err(Error::Check(format!("something is still found after {typed:?}")))
    }

    /// Does what a finding says; what that was.
    fn mend(&mut self, fault: &Fault, found: &Finding) -> Result<String> {
        if let Some(hand) = fault.hand {
            let told = match hand {
                Deed::There(command) => found.by_hand.iter().any(|step| step.contains(&format!("on b: {command}"))),
                Deed::Here(_) | Deed::Cable(..) => !found.by_hand.is_empty(),
            };
            check(told && found.commands.is_empty(), || format!("other steps than {hand:?}: {found:?}"))?;
            self.act(hand)?;
            return Ok(match hand {
                Deed::There(command) => format!("`{command}` on b"),
                Deed::Here(_) | Deed::Cable(..) => "by hand".to_owned(),
            });
        }
        check(!found.commands.is_empty(), || format!("nothing to type: {found:?}"))?;
        for command in &found.commands {
            if fault.ask == Ask::User {
                self.typed.push_str(&format!("{command} >/dev/null || exit 1; "));
                continue;
            }
            let guest = self.guest(&found.host)?;
            Asker::root(guest).types(SOON, command)?;
        }
        Ok(format!("`{}`", found.commands.join("`, `")))
    }

    /// `lspan perf bw` from `b` over the way of a fault.
    fn opened(&self, fault: &Fault) -> Result<String> {
        if fault.way == Way::Cable {
            for guest in &self.pair.guests {
                link_local(guest)?;
            }
        }
        self.goes(fault, true)
    }

    /// That way is not there.
    fn closed(&self, fault: &Fault) -> Result<()> {
        self.goes(fault, false).map(drop)
    }

    fn goes(&self, fault: &Fault, there: bool) -> Result<String> {
        let route = route(fault.way);
        way(self.asker(fault.ask), route.by(&self.pair.guests[1]), route.peer, route.over, there)
    }
}

/// An error with the fault that it came with.
fn within(name: &str, error: Error) -> Error {
    match error {
        Error::Check(why) => Error::Check(format!("{name}: {why}")),
        error => {
            println!("       in {name}:");
            error
        }
    }
}

/// Whether both can be made at once.
fn fits(a: &Fault, b: &Fault) -> bool {
    !a.not_with.contains(&b.name) && !b.not_with.contains(&a.name)
}

/// Pairs that can be made, [`PAIRS`] of them by chance.
fn chosen(seed: u64) -> Vec<[&'static Fault; 2]> {
    let some = || FAULTS.iter().enumerate().filter(|(_, fault)| !ALONE.contains(&fault.name));
    let mut all: Vec<[&Fault; 2]> =
        some().flat_map(|(n, a)| some().filter(move |(m, b)| *m > n && fits(a, b)).map(move |(_, b)| [a, b])).collect();
    // SplitMix64, of Steele, Lea and Flood, "Fast splittable pseudorandom number generators".
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    };
    for at in (1..all.len()).rev() {
        all.swap(at, (next() % (at as u64 + 1)) as usize);
    }
    all.truncate(PAIRS);
    all
}

#[cfg(test)]
mod tests;
