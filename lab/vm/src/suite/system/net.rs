//! A cable as NetworkManager leaves it.

use super::doctor::{Asker, carries, ends, serves};
use super::host::{self, Pair};
use crate::error::{Result, check};
use crate::guest::Guest;
use crate::lab::Lab;
use crate::suite::tb::SOON;

/// The words of the virtual cable: with one lane of two it would be a finding.
pub(super) const TWO_LANES: [&str; 2] = ["--lanes", "2"];

/// Waits until `thunderbolt0` has a link-local address that may be used; that address.
pub(super) fn link_local(guest: &Guest) -> Result<String> {
    host::cabled(guest)?;
    let ask = "ip -6 -o addr show dev thunderbolt0 scope link -tentative 2>/dev/null";
    guest.until("a link-local address on thunderbolt0", SOON, &format!("{ask} | grep -q fe80"))?;
    let line = guest.sh(ask)?;
    let addr = line.split_whitespace().find_map(|word| word.strip_suffix("/64")).unwrap_or_default();
    Ok(addr.to_owned())
}

/// Two systems on a cable of two lanes, each with a link-local address on it.
pub(super) fn cabled(lab: &mut Lab) -> Result<Pair> {
    let pair = host::pair(lab, &TWO_LANES, |_| ())?;
    for guest in &pair.guests {
        link_local(guest)?;
        two_lanes(guest)?;
    }
    Ok(pair)
}

/// Waits until both lanes of the cable are one link.
pub(super) fn two_lanes(guest: &Guest) -> Result<()> {
    guest.until("two lanes", SOON, "grep -q 2 /sys/bus/thunderbolt/devices/0-1/rx_lanes").map(drop)
}

fn sent(guest: &Guest) -> Result<u64> {
    Ok(guest.read("/sys/class/net/thunderbolt0/statistics/tx_bytes")?.parse().unwrap_or(0))
}

pub(super) fn cable(lab: &mut Lab) -> Result<()> {
    let pair = cabled(lab)?;
    let [a, b] = &pair.guests;
    let theirs = link_local(b)?;
    for guest in [a, b] {
        let profile = guest.sh("nmcli -g GENERAL.CONNECTION device show thunderbolt0")?;
        let files = guest.sh("ls /etc/NetworkManager/system-connections")?;
        check(!profile.trim().is_empty() && !files.contains(profile.trim()), || {
            format!("{}: thunderbolt0 has {profile:?}, not NetworkManager's own profile; {files}", guest.name())
        })?;
        let others = guest.sh("ip -o addr show dev thunderbolt0 | grep -v 'scope link' || true")?;
        check(others.is_empty(), || format!("{}: more than link-local addresses: {others}", guest.name()))?;
        Asker::root(guest).kept(lab, &format!("link-local-{}", guest.name()))?;
    }
    lab.say("NetworkManager's default: link-local addresses alone; lspan doctor is silent on both");
    let server = serves(Asker::root(b))?;
    let before = sent(a)?;
    let path = carries(Asker::root(a), "cable", &["tcp ", "thunderbolt0 [fe80::", &format!("-> [{theirs}%")])?;
    // The Ethernet beside it has a part.
    let moved = sent(a)? - before;
    check(moved > 64 << 10, || format!("{moved} bytes left by thunderbolt0, of 22 messages of 64 KiB"))?;
    lab.say(&format!("lspan perf bw cable: {path}"));
    carries(Asker::root(a), &format!("{theirs}%thunderbolt0"), &["thunderbolt0 [fe80::"])?;
    Asker::root(a).silent("cable")?;
    Asker { guest: b, under: "su - stranger -c", first: "" }.kept(lab, "cable-user")?;
    lab.say("the address with its interface is a PEER too; lspan doctor cable is silent, and a user's own is");
    ends(b, &server)?;
    host::unplug(&pair)?;
    Asker::root(a).kept(lab, "unplugged")?;
    lab.say("without the cable it is silent too");
    host::off(lab, pair)
}
