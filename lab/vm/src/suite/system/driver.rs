//! Faults of our kernel module, as DKMS builds it in a whole system.

use super::doctor::{Asker, way};
use super::host::{self, Pair};
use super::net::{TWO_LANES, link_local};
use crate::error::{Result, check};
use crate::guest::Guest;
use crate::lab::Lab;
use crate::suite::tb::SOON;

/// Oldest kernel that our module is for: kernel/dkms.conf leaves older ones out.
pub(super) const SINCE: (u32, u32) = (6, 8);

/// It compiles on an emulated processor.
const BUILD: u32 = 20;

/// A file of the module for a kernel that is not the running one.
const ELSEWHERE: &str = "dkms add linkspan/1 >/dev/null && mkdir -p /lib/modules/6.1.0-lab/updates/dkms && \
                         cd /lib/modules/6.1.0-lab && touch updates/dkms/linkspan.ko && \
                         echo updates/dkms/linkspan.ko: >modules.dep";

/// Bytes of a file that one command line carries.
const PART: usize = 48 << 10;

pub(super) fn faults(lab: &mut Lab) -> Result<()> {
    let change = |spec: &mut crate::guest::Spec| (spec.cpus, spec.deadline) = (2, SOON * 40);
    let (cable, mut specs) = host::planned(lab, &TWO_LANES, change)?;
    let Pair { cable, guests: [a, b] } = host::up(lab, cable, &specs)?;
    for guest in [&a, &b] {
        link_local(guest)?;
        Asker::root(guest).silent("")?;
    }
    let ring = |a: &Guest, b: &Guest, there: bool| {
        link_local(a)?;
        link_local(b)?;
        let over = if there { "tier 1 (ring)" } else { "tcp " };
        if there {
            for guest in [a, b] {
                allowed(guest)?;
            }
            for guest in [a, b] {
                guest.until("the link to be up", SOON, "grep -q '^up$' /sys/class/linkspan/linkspan0/state")?;
            }
        }
        way(Asker::root(a), Asker::root(b), "cable", &[over], true)
    };

    a.sh(ELSEWHERE)?;
    let other = Asker::root(&a).finds("", "LS2113")?;
    ring(&a, &b, false)?;
    mended(&a, &other.commands)?;
    let file = a.sh("modinfo -n linkspan")?;
    copied(&a, &b, file.trim())?;
    b.sh("depmod && modprobe linkspan")?;
    let path = ring(&a, &b, true)?;
    lab.say(&format!("for another kernel: LS2113 alone; `{}`; gone; {path}", other.commands.join("`, `")));

    a.sh("rmmod linkspan")?;
    let off = Asker::root(&a).finds("", "LS2116")?;
    ring(&a, &b, false)?;
    mended(&a, &off.commands)?;
    let path = ring(&a, &b, true)?;
    lab.say(&format!("unloaded: LS2116 alone; `{}`; gone; {path}", off.commands.join("`, `")));

    const WORD: &str = "module.sig_enforce=1";
    let mut a = a;
    for word in [WORD, ""] {
        a.ends_by("sudo reboot")?;
        specs[0].append = word.to_owned();
        [a] = lab.boot([&specs[0]])?;
        host::settled(&a)?;
        link_local(&a)?;
        if word.is_empty() {
            break;
        }
        let unsigned = Asker::root(&a).finds("", "LS2115")?;
        let told = unsigned.by_hand.iter().any(|step| step.contains(&format!("take {WORD} out")));
        check(told && unsigned.commands == ["sudo reboot"], || format!("no mend of {WORD}: {unsigned:?}"))?;
        let refused = a.run(SOON, "modprobe linkspan")?;
        check(refused.code != 0 && refused.err.contains("Key was rejected"), || format!("{refused:?}"))?;
        ring(&a, &b, false)?;
        lab.say(&format!("{WORD}: LS2115 alone; {}", refused.err.trim()));
    }
    let path = ring(&a, &b, true)?;
    lab.say(&format!("booted without the word, as printed: gone; {path}"));
    let pair = Pair { cable, guests: [a, b] };
    network(lab, &pair)?;
    host::end(lab, pair)
}

/// The cable in the mode network, its interface set up by the service under its unit, beside NetworkManager.
fn network(lab: &mut Lab, pair: &Pair) -> Result<()> {
    const SYS: &str = "/sys/class/linkspan/linkspan0";
    let guests = &pair.guests;
    for guest in guests {
        let uuid = guest.read(&format!("{SYS}/peer"))?;
        guest.sh(&format!("lspan link mode network {}", uuid.trim()))?;
    }
    let mut own = Vec::new();
    for guest in guests {
        guest.until("the link for the network", SOON, &format!("grep -q '^network$' {SYS}/state"))?;
        let said = guest.sh("lspan link up")?;
        let address = said.split_once("linkspan0 is up with the address ").map(|(_, rest)| rest.trim().to_owned());
        own.extend(address.filter(|address| address.starts_with("10.")));
    }
    check(own.len() == 2 && own[0] != own[1], || format!("addresses of linkspan0: {own:?}"))?;
    // Of two cables the one that was plugged in first is linkspan0; the name that udev makes of the address stays with the plug.
    for guest in guests {
        let mac = guest.read("/sys/class/net/linkspan0/address")?.trim().replace(':', "");
        let shown = guest.sh(&format!("ip -o link show enx{mac}"))?;
        check(mac.starts_with("026c") && shown.contains("linkspan0"), || format!("udev names it: {shown}"))?;
    }
    guests[0].until("a ping over it", SOON, &format!("ping -c 1 -W 1 -I linkspan0 {} >/dev/null", own[1]))?;
    let shown = guests[0].sh("nmcli -t -f GENERAL.STATE,IP4.ADDRESS device show linkspan0")?;
    check(shown.contains(&own[0]), || format!("NetworkManager knows of no address {}: {shown}", own[0]))?;
    lab.say(&format!(
        "in the mode network, `lspan link up` by the service: {own:?}, ping; a second name by its address from udev; NetworkManager says {}",
        shown.trim()
    ));
    // Kept over a plug as kernel/README.md says: the address is the same each time.
    for (guest, own) in guests.iter().zip(&own) {
        guest.sh("echo network >/sys/module/linkspan/parameters/mode")?;
        guest.sh(&format!(
            "nmcli connection add type ethernet con-name cable ifname linkspan0 ipv4.method manual ipv4.addresses {own}/30 ipv6.method link-local"
        ))?;
    }
    host::unplug(pair)?;
    pair.cable.tell("replug ab")?;
    guests[0].until("a ping after a plug", SOON, &format!("ping -c 1 -W 1 -I linkspan0 {} >/dev/null", own[1]))?;
    lab.say("unplugged and plugged in again, with the parameter and a profile of NetworkManager's: ping");
    Ok(())
}

/// Where the module has just been loaded, no host is allowed to use it yet: named, and allowed as printed.
pub(super) fn allowed(guest: &Guest) -> Result<()> {
    guest.until("the link", SOON, "grep -q . /sys/class/linkspan/linkspan0/state")?;
    // The service lets in again whom it remembers, as soon as it sees the link.
    if !guest.sh("ls /var/lib/linkspan/allowed 2>/dev/null || true")?.trim().is_empty() {
        guest.until("the service to let it in", SOON, "grep -q 1 /sys/class/linkspan/linkspan0/allowed")?;
    } else {
        let waits = Asker::root(guest).finds("", "LS2120")?;
        mended(guest, &waits.commands)?;
    }
    Asker::root(guest).silent("")
}

fn mended(guest: &Guest, commands: &[String]) -> Result<()> {
    check(!commands.is_empty(), || "nothing to type".to_owned())?;
    commands.iter().try_for_each(|command| Asker::root(guest).types(SOON * BUILD, command))
}

/// The same file on the other host, which has the same kernel.
fn copied(from: &Guest, to: &Guest, file: &str) -> Result<()> {
    let text = from.sh(&format!("base64 -w0 {file}"))?;
    to.sh(&format!("mkdir -p $(dirname {file})"))?;
    for part in text.trim().as_bytes().chunks(PART) {
        let part = String::from_utf8_lossy(part);
        to.sh(&format!("printf %s {part} | base64 -d >>{file}"))?;
    }
    Ok(())
}
