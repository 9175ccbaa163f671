//! The network interface of linkspan.ko: links in the mode network, alone, beside `thunderbolt_net`, under soft-RoCE, on cables that
//! lose frames, and against a host that lies.

use std::time::Duration;

use serde_json::Value;

use super::perf::{self, MeasuredPath};
use super::rdma;
use super::ring::{self, DEVICE, SYS};
use super::tb::{self, SOON, found, lost};
use crate::error::{Error, Result, check};
use crate::guest::{Guest, Spec};
use crate::lab::Lab;
use crate::vcable::Cable;

/// The interface: the name of the link's device.
const NET: &str = "linkspan0";
const HERE: &str = "10.7.0.1";
pub(super) const THERE: &str = "10.7.0.2";

/// A counter of the interface.
fn counter(guest: &Guest, name: &str) -> Result<u64> {
    let text = guest.sh(&format!("cat /sys/class/net/{NET}/statistics/{name}"))?;
    text.trim().parse().map_err(|_| Error::Check(format!("{}: no counter {name}: {text}", guest.name())))
}

/// Waits for both links to be up in the mode network.
pub(super) fn joined(guests: &[&Guest]) -> Result<()> {
    for guest in guests {
        guest.until("the link for the network", SOON, &format!("grep -q '^network$' {SYS}/state 2>/dev/null"))?;
    }
    Ok(())
}

/// Gives the interface an address, waits for a carrier. Without IPv6, so that nothing is sent but what the test sends.
fn address(guest: &Guest, address: &str, mtu: u32) -> Result<()> {
    guest.until(NET, SOON, &format!("test -e /sys/class/net/{NET}"))?;
    guest.sh(&format!(
        "echo 1 >/proc/sys/net/ipv6/conf/{NET}/disable_ipv6\n\
         ip addr add {address}/24 dev {NET} 2>/dev/null; ip link set {NET} mtu {mtu} up"
    ))?;
    guest.until("a carrier", SOON, &format!("grep -q 1 /sys/class/net/{NET}/carrier"))?;
    Ok(())
}

pub(super) fn addresses(a: &Guest, b: &Guest, mtu: u32) -> Result<()> {
    address(a, HERE, mtu)?;
    address(b, THERE, mtu)?;
    a.until("a ping over the interface", SOON, &format!("ping -c 1 -W 1 {THERE} >/dev/null"))?;
    Ok(())
}

/// Messages of a few sizes there and back, none lost.
fn pings(from: &Guest, to: &str) -> Result<()> {
    for bytes in [0, 56, 214, 215, 1400, 4000, 4040, 9000, 60_000] {
        let said = from.sh_for(SOON, &format!("ping -c 3 -W 10 -s {bytes} {to}"))?;
        check(said.contains(" 0% packet loss"), || format!("{}: {bytes} bytes to {to}: {said}", from.name()))?;
    }
    Ok(())
}

fn both_ways(a: &Guest, b: &Guest, mib: usize) -> Result<()> {
    tb::transfer(a, b, THERE, mib)?;
    tb::transfer(b, a, HERE, mib)
}

/// Frames with payload that a host has sent over each ring pair.
fn sent(guest: &Guest) -> Result<Vec<u64>> {
    let said = guest.sh(&format!("ringtest info {DEVICE}"))?;
    let lines = said.lines().filter(|line| line.starts_with("pair ") && line.ends_with(": up"));
    lines.map(|line| ring::number(line, " sent ")).collect()
}

/// Loads the drivers, this one in the mode network.
fn load(guests: &[&Guest]) -> Result<()> {
    for guest in guests {
        guest.sh("modprobe linkspan allow=any mode=network")?;
    }
    joined(guests)
}

/// A transfer that does not end by itself; it is under way when this returns.
fn endless(from: &Guest, to: &Guest) -> Result<()> {
    to.spawn("exec agent agent listen 5002 >/dev/null")?;
    to.until("a listener", SOON, "grep -q ':138A .* 0A ' /proc/net/tcp /proc/net/tcp6")?;
    let before = counter(to, "rx_bytes")?;
    from.spawn(&format!("exec agent agent connect {THERE}:5002 </dev/zero >/dev/null"))?;
    let bytes = format!("$(cat /sys/class/net/{NET}/statistics/rx_bytes)");
    to.sh_for(SOON, &format!("until [ {bytes} -gt {} ]; do sleep 0.05; done", before + (1 << 20)))?;
    Ok(())
}

fn quiet(guest: &Guest) -> Result<()> {
    guest.sh("for p in $(pidof agent); do grep -q 500 /proc/$p/cmdline && kill -9 $p; done; true").map(drop)
}

/// Hosts that disagree; then both in the mode network.
fn modes(lab: &mut Lab, a: &Guest, b: &Guest) -> Result<()> {
    a.sh("modprobe linkspan allow=any mode=network")?;
    b.sh("modprobe linkspan allow=any")?;
    for guest in [a, b] {
        guest.until(
            "a refusal",
            SOON,
            &format!("grep -q 'refused: the other host is in the other mode' {SYS}/state"),
        )?;
        guest.until(
            "a line in the log",
            SOON,
            "dmesg | grep -q 'the peer is in the other one; lspan link mode sets it'",
        )?;
        let said = guest.run(SOON, &format!("ringtest ping {DEVICE} 1 1 64"))?;
        check(said.code != 0, || format!("a link that was refused carries messages: {}", said.out))?;
    }
    let status = ring::status(b)?;
    check(status.contains("lspan link mode"), || format!("lspan status does not say why not:\n{status}"))?;
    let uuid = b.read(&format!("{SYS}/peer"))?;
    let said = b.sh(&format!("lspan link mode network {}", uuid.trim()))?;
    check(said.contains("linkspan0") && said.contains("mode network"), || said)?;
    joined(&[a, b])?;
    let refused = a.run(SOON, &format!("ringtest ping {DEVICE} 1 1 64"))?;
    check(refused.code != 0, || "rings of the network carry messages of programs".to_owned())?;
    lab.say("hosts that disagree about the mode refuse, and say so; `lspan link mode` has them agree");
    Ok(())
}

/// iperf3 in the shapes that its users know: one stream there and back, four, both ways at once, datagrams.
fn iperf(a: &Guest, b: &Guest) -> Result<()> {
    for (how, port) in ["", "-R", "-P 4", "--bidir", "-u -b 4M"].into_iter().zip(5201..) {
        // A server of its own: between two clients one listens anew, and whoever comes just before is turned away.
        let mut server = b.spawn(&format!("exec iperf3 -s -B {THERE} -p {port} >/dev/null 2>&1"))?;
        b.until("iperf3 to listen", SOON, &format!("grep -q ':{port:04X} .* 0A ' /proc/net/tcp /proc/net/tcp6"))?;
        let said = a.run(SOON, &format!("iperf3 -c {THERE} -p {port} -t 2 -J {how}"))?;
        let arrived = serde_json::from_str::<Value>(&said.out).ok().and_then(|all| {
            let end = &all["end"];
            // How large they are is iperf3's affair.
            let datagrams = || {
                let of = |name: &str| end["sum"][name].as_u64();
                Some(of("bytes")? / of("packets")?.max(1) * of("packets")?.saturating_sub(of("lost_packets")?))
            };
            let arrived = |sum: &str| end[sum]["bytes"].as_u64();
            match how {
                "--bidir" => Some(arrived("sum_received")?.min(arrived("sum_received_bidir_reverse")?)),
                "-u -b 4M" => datagrams(),
                _ => arrived("sum_received"),
            }
        });
        check(said.code == 0 && arrived.is_some_and(|bytes| bytes > 1 << 16), || {
            format!("iperf3 {how} ended with {}: {}{}", said.code, said.out, said.err)
        })?;
        server.kill();
        let _ = server.expect("nothing", Duration::from_millis(10));
    }
    Ok(())
}

/// The counters of `ethtool -S` by pair, summed up, are those of the interface.
fn counted(guest: &Guest) -> Result<()> {
    guest.until("the same counters", SOON, &format!(
        "ethtool -S {NET} >/tmp/counters && ! for name in tx_packets tx_bytes rx_packets rx_bytes; do\n\
         [ $(awk -v name=_$name: '$1 ~ \"^pair[0-3]\" name \"$\" {{ n += $2 }} END {{ printf \"%.0f\", n }}' /tmp/counters) \
         = $(cat /sys/class/net/{NET}/statistics/$name) ] || echo $name\ndone | grep -q . && grep -q 'pair0_tx_packets: [1-9]' /tmp/counters"
    )).map(drop)
}

/// Sockets that poll the rings themselves, and take packets so.
fn busy(a: &Guest, b: &Guest) -> Result<()> {
    let set = |us: u32| {
        [a, b].iter().try_for_each(|guest| {
            guest.sh(&format!("for n in busy_read busy_poll; do echo {us} >/proc/sys/net/core/$n; done")).map(drop)
        })
    };
    // Names, then numbers.
    const TAKEN: &str = "awk '/^TcpExt:/ { if (!n) { for (i = 2; i <= NF; i++) if ($i == \"BusyPollRxPackets\") n = i } else print $n }' /proc/net/netstat";
    let taken = |guest: &Guest| -> Result<u64> {
        let said = guest.sh(TAKEN)?;
        said.trim().parse().map_err(|_| Error::Check(format!("{}: no such counter: {said}", guest.name())))
    };
    let before = taken(a)? + taken(b)?;
    set(2000)?;
    both_ways(a, b, 4)?;
    set(0)?;
    check(taken(a)? + taken(b)? > before, || "no socket has taken a packet by polling".to_owned())
}

/// The driver in the mode network in place of what it is in: bytes both ways.
pub(super) fn instead(a: &Guest, b: &Guest) -> Result<()> {
    for guest in [a, b] {
        guest.sh("rmmod linkspan && modprobe linkspan allow=any mode=network")?;
    }
    joined(&[a, b])?;
    for mtu in [4056, 65_535] {
        addresses(a, b, mtu)?;
        both_ways(a, b, 2)?;
    }
    pings(a, THERE)
}

pub(crate) fn net(lab: &mut Lab) -> Result<()> {
    let (cable, _, [a, b]) = tb::pair(lab, &[], |spec| spec.deadline = Duration::from_secs(900))?;
    modes(lab, &a, &b)?;
    addresses(&a, &b, 4056)?;
    pings(&a, THERE)?;
    pings(&b, HERE)?;
    for mtu in [4056, 1500, 65_535] {
        addresses(&a, &b, mtu)?;
        both_ways(&a, &b, 8)?;
    }
    pings(&a, THERE)?;
    lab.say("ping of nothing to 60000 bytes; TCP both ways with packets of one frame, of 1500 bytes, of 17 frames, every byte compared");
    iperf(&a, &b)?;
    lab.say("iperf3: one stream there and back, four, both ways at once, datagrams");
    busy(&a, &b)?;
    counted(&a)?;
    counted(&b)?;
    lab.say("sockets that poll; ethtool -S counts by ring pair what the interface counts");

    tb::net(&a, &b)?;
    tb::transfer(&a, &b, "10.9.0.2", 2)?;
    both_ways(&a, &b, 2)?;
    lab.say("thunderbolt_net beside it, both carry");

    perf::all(&a, &b, MeasuredPath { at: THERE, env: &format!("LINKSPAN_IFNAME=={NET}"), path: "tcp", device: NET })?;
    let frames = sent(&a)?;
    check(frames.iter().filter(|sent| **sent > 0).count() > 1, || format!("frames by ring pair: {frames:?}"))?;
    let status = a.sh_for(SOON, "lspan status")?;
    check(status.contains(&format!("tcp over {NET}")), || format!("lspan status knows no way over {NET}:\n{status}"))?;
    lab.say(&format!("{}; frames by ring pair: {frames:?}; a way of `lspan status`", perf::ALL));

    for (guest, address) in [(&a, HERE), (&b, THERE)] {
        rdma::device(guest, NET, &format!("{address}/24"), "rxe0")?;
    }
    // What the server before has said is not this one's word.
    b.sh("rm -f /tmp/serve.log")?;
    let mut server = b.spawn("exec lspan perf serve --open >/tmp/serve.log 2>&1")?;
    b.until("the server", SOON, "grep -q waiting /tmp/serve.log")?;
    let table = a.run(SOON * 4, &format!("lspan perf compare {THERE} --duration 300ms 2>&1"))?;
    let measured = |way: &str| table.out.lines().any(|line| line.starts_with(way));
    let ways = ["tcp over linkspan0", "tcp over thunderbolt0", "rdma by rxe0 over linkspan0"];
    check(table.code == 0 && ways.into_iter().all(measured), || {
        format!("lspan perf compare ended with {}:\n{}", table.code, table.out)
    })?;
    server.kill();
    let _ = server.expect("nothing", Duration::from_millis(10));
    lab.say(&format!("lspan perf compare has a row for each:\n{}", table.out.trim_end()));

    for guest in [&a, &b] {
        guest.sh("rdma link delete rxe0")?;
    }
    rdma::over((&a, HERE), (&b, THERE), NET)?;
    lab.say("soft-RoCE on it: ibv_rc_pingpong with its data checked, ib_write_bw, our verbs transport by lspan perf");

    const IP: &str = "/usr/bin/ip";
    a.sh(&format!(
        "{IP} netns add n && {IP} link set {NET} netns n && {IP} netns exec n {IP} addr add {HERE}/24 dev {NET} && \
         {IP} netns exec n {IP} link set {NET} up"
    ))?;
    a.until("a ping out of a namespace", SOON, &format!("{IP} netns exec n ping -c 1 -W 1 {THERE} >/dev/null"))?;
    a.sh(&format!("{IP} netns del n"))?;
    addresses(&a, &b, 4056)?;
    both_ways(&a, &b, 1)?;
    lab.say("moved into a network namespace, and back by its end");

    ends(lab, &cable, &a, &b)?;
    ring::end(lab, cable, [a, b])
}

/// The IPv4 address of an interface.
fn own(guest: &Guest, interface: &str) -> Result<String> {
    let script = format!("ip -4 -o addr show dev {interface} | sed -n 's|.* inet \\([0-9.]*\\)/30 .*|\\1|p'");
    Ok(guest.sh(&script)?.trim().to_owned())
}

/// The other one of the two of a cable.
fn other(address: &str) -> Result<String> {
    let parts = address.rsplit_once('.').and_then(|(net, last)| Some((net, last.parse::<u8>().ok()?)));
    let (net, last) = parts.ok_or_else(|| Error::Check(format!("no address: {address}")))?;
    Ok(format!("{net}.{}", last ^ 3))
}

/// Two cables between the same two host interfaces, crossed: nothing but the ports tells them apart.
pub(crate) fn two(lab: &mut Lab) -> Result<()> {
    let (cable, [a, b]) = booted(lab, "host a ports=2\nhost b ports=2\ncable one a:1 b:2\ncable two a:2 b:1\n")?;
    let early = a.run(SOON, "modprobe linkspan allow=any mode=network; lspan link up 2>&1")?;
    check(early.code != 0 && early.out.contains("LS15"), || format!("there is no link yet: {}", early.out))?;
    b.sh("modprobe linkspan allow=any mode=network")?;
    let both = "[ $(cat /sys/class/linkspan/*/state 2>/dev/null | grep -c '^network$') = 2 ]";
    for guest in [&a, &b] {
        guest.until("a link over both cables", SOON, both)?;
        let said = guest.sh("lspan link up 2>&1")?;
        check(said.matches(" is up with the address 10.").count() == 2, || said)?;
    }
    let links = ["linkspan0", "linkspan1"];
    let mine = [own(&a, links[0])?, own(&a, links[1])?];
    let theirs = [own(&b, links[0])?, own(&b, links[1])?];
    for (interface, from) in links.iter().zip(&mine) {
        let to = other(from)?;
        check(theirs.contains(&to), || format!("{interface} has {from}, and the other host {theirs:?}"))?;
        a.until("a ping over it", SOON, &format!("ping -c 1 -W 1 -I {interface} {to} >/dev/null"))?;
        let before = a.sh(&format!("cat /sys/class/net/{interface}/statistics/tx_bytes"))?;
        tb::transfer(&a, &b, &to, 4)?;
        let sent =
            format!("[ $(cat /sys/class/net/{interface}/statistics/tx_bytes) -gt $(({} + (4 << 20))) ]", before.trim());
        a.sh(&sent)?;
    }
    lab.say(&format!(
        "two cables between the same host interfaces, crossed: {mine:?} and {theirs:?}; each carries what is its"
    ));
    let again = [a.sh("lspan link up")?, a.sh("lspan link up")?];
    check(again[0] == again[1] && own(&a, links[0])? == mine[0], || format!("{again:?}"))?;
    // Unplugged and plugged in again, also in another order, each has the addresses that it had.
    unplugged(&cable, &[&a, &b])?;
    for name in ["two", "one"] {
        cable.tell(&format!("replug {name}"))?;
    }
    for guest in [&a, &b] {
        guest.until("a link over both cables", SOON, both)?;
        guest.sh("lspan link up")?;
    }
    let now = [own(&a, links[0])?, own(&a, links[1])?];
    let sorted = |mut all: [String; 2]| {
        all.sort();
        all
    };
    check(sorted(now.clone()) == sorted(mine.clone()), || {
        format!("other addresses after a plug: {now:?}, before {mine:?}")
    })?;
    lab.say("the same addresses after a plug");

    let ping =
        |n: usize| -> Result<String> { Ok(format!("ping -c 1 -W 1 -I {} {} >/dev/null", links[n], other(&now[n])?)) };
    let [first, second] = [ping(0)?, ping(1)?];
    a.until("a ping before it sleeps", SOON, &format!("{first} && {second}"))?;
    a.sleeps(
        Duration::from_secs(150),
        &format!(
            "while :; do ping -c 100 -W 1 -s 60000 {} >/dev/null; done & load=$!; sleep 1\n\
             echo devices >/sys/power/pm_test && echo mem >/sys/power/state || exit 3\n\
             t=0; until {first}; do t=$((t+1)); [ $t -lt 60 ] || exit 4; done\n\
             t=0; until {second}; do t=$((t+1)); [ $t -lt 60 ] || exit 5; done\n\
             kill $load",
            other(&now[0])?
        ),
    )?;
    b.calm()?;
    lab.say("suspended as far as devices while packets of 60000 bytes go there and back: both carry again, with their addresses");
    // The kernel's own fault with a host that is known at a shutdown: lab/README.md.
    unplugged(&cable, &[&b])?;
    lab.finish([b])?;
    a.cut()?;
    cable.finish()
}

/// Both cables of [`two`] pulled, as these guests see it.
fn unplugged(cable: &Cable, guests: &[&Guest]) -> Result<()> {
    for guest in guests {
        guest.sh("ip link set linkspan0 down; ip link set linkspan1 down")?;
    }
    for name in ["one", "two"] {
        cable.tell(&format!("unplug {name}"))?;
    }
    for guest in guests {
        guest.until(
            "the interfaces to go",
            SOON,
            "[ ! -e /sys/class/net/linkspan0 ] && [ ! -e /sys/class/net/linkspan1 ]",
        )?;
    }
    Ok(())
}

/// What ends a link in mid-transfer, and what comes back.
fn ends(lab: &mut Lab, cable: &Cable, a: &Guest, b: &Guest) -> Result<()> {
    endless(a, b)?;
    a.sh("ip link set thunderbolt0 down")?;
    b.sh("ip link set thunderbolt0 down")?;
    cable.tell("unplug ab")?;
    lost(a)?;
    lost(b)?;
    for guest in [a, b] {
        guest.until("the interface to go", SOON, &format!("test ! -e /sys/class/net/{NET}"))?;
        quiet(guest)?;
        guest.calm()?;
    }
    cable.tell("replug ab")?;
    found(a)?;
    found(b)?;
    b.until("the driver", SOON, &format!("test -e {SYS}/peer"))?;
    let uuid = b.read(&format!("{SYS}/peer"))?;
    b.sh(&format!("lspan link mode network {}", uuid.trim()))?;
    joined(&[a, b])?;
    addresses(a, b, 4056)?;
    both_ways(a, b, 1)?;
    lab.say("unplugged in mid-transfer: the interface goes; plugged in again: it carries");

    endless(a, b)?;
    b.sh_for(SOON, "rmmod linkspan")?;
    a.until("the carrier to go", SOON, &format!("grep -q 0 /sys/class/net/{NET}/carrier"))?;
    quiet(b)?;
    quiet(a)?;
    b.sh("modprobe linkspan allow=any mode=network")?;
    joined(&[a, b])?;
    addresses(a, b, 4056)?;
    both_ways(a, b, 1)?;
    lab.say("the module unloaded in mid-transfer: no carrier on the other side; loaded again: it carries");

    endless(a, b)?;
    for guest in [a, b] {
        guest.sh_for(SOON, &format!("echo direct >{SYS}/mode"))?;
        guest.until("the interface to go", SOON, &format!("test ! -e /sys/class/net/{NET}"))?;
        quiet(guest)?;
    }
    ring::up(&[a, b])?;
    ring::transfer(a, b, "1 4194304 1048576 0 1", ["", ""])?;
    for guest in [a, b] {
        guest.sh_for(SOON, &format!("echo network >{SYS}/mode"))?;
    }
    joined(&[a, b])?;
    addresses(a, b, 4056)?;
    both_ways(a, b, 1)?;
    lab.say("set to direct in mid-transfer: programs have the rings; and back");
    Ok(())
}

/// Guests with the kernel's own driver, on cables of this shape.
pub(super) fn booted(lab: &mut Lab, shape: &str) -> Result<(Cable, [Guest; 2])> {
    let cable = Cable::shaped(lab, shape)?;
    let specs = ["a", "b"].map(|name| {
        let mut spec: Spec = lab.guest(name);
        spec.cables.push(cable.socket(name));
        spec.deadline = Duration::from_secs(900);
        spec
    });
    let guests = lab.boot(specs.each_ref())?;
    for guest in &guests {
        tb::load(guest)?;
    }
    Ok((cable, guests))
}

/// The same with ours in the mode network.
fn shaped(lab: &mut Lab, shape: &str) -> Result<(Cable, [Guest; 2])> {
    let (cable, guests) = booted(lab, shape)?;
    for guest in &guests {
        found(guest)?;
    }
    load(&guests.each_ref())?;
    addresses(&guests[0], &guests[1], 4056)?;
    Ok((cable, guests))
}

pub(crate) fn loss(lab: &mut Lab) -> Result<()> {
    // Two ring pairs; on b no interrupt follows where a frame comes while its ring is masked.
    let (cable, [a, b]) = shaped(
        lab,
        "host a hops=3 edge=status credits=strict\nhost b hops=3 edge=silent credits=strict\ncable ab a:1 b:1\n",
    )?;
    let before = [cable.count("a", "interrupts")?, cable.count("b", "interrupts")?];
    both_ways(&a, &b, 4)?;
    let [at_a, at_b] = [cable.count("a", "interrupts")? - before[0], cable.count("b", "interrupts")? - before[1]];
    check(at_b > at_a / 4, || {
        format!("{at_a} interrupts at a, {at_b} at b: most of its frames were found by the tick")
    })?;
    lab.say(&format!("interrupts by edges of the status, on one side not repeated by unmasking: every byte arrives, with {at_a} and {at_b} interrupts"));
    for mtu in [4056, 65_535] {
        addresses(&a, &b, mtu)?;
        for fault in ["drop", "corrupt", "duplicate"] {
            let before = cable.count("a", "faulted")? + cable.count("b", "faulted")?;
            for host in ["a", "b"] {
                cable.tell(&format!("{fault} frame from={host} p=0.006"))?;
            }
            both_ways(&a, &b, 4)?;
            cable.tell("clear")?;
            let after = cable.count("a", "faulted")? + cable.count("b", "faulted")?;
            check(after > before, || format!("no frame met `{fault}`"))?;
        }
    }
    let (missed, damaged) = (counter(&b, "rx_missed_errors")?, counter(&b, "rx_crc_errors")?);
    check(missed > 0 && damaged > 0, || format!("lost frames counted: {missed}, damaged ones: {damaged}"))?;
    lab.say(&format!(
        "frames lost, damaged, doubled at random, packets of one frame and of 17: every byte of TCP arrives; {missed} losses and {damaged} damaged frames counted"
    ));
    for host in ["a", "b"] {
        let before = cable.count(host, "interrupts_lost")?;
        cable.tell(&format!("lose-irq {host} count=40"))?;
        both_ways(&a, &b, 2)?;
        cable.tell("clear")?;
        check(cable.count(host, "interrupts_lost")? > before, || format!("{host} lost no interrupt"))?;
    }
    pings(&a, THERE)?;
    for guest in [&a, &b] {
        let said = guest.sh(&format!("ringtest info {DEVICE}"))?;
        check(said.contains("restarts=0") && said.contains("epoch=1 "), || format!("the link was restarted: {said}"))?;
    }
    lab.say("forty interrupts lost on each side: the transfer goes on, and the link was never restarted");
    ring::end(lab, cable, [a, b])
}

/// The first bytes of a frame of the mode network: number of its packet, bytes of that, which frame, what is left to do.
fn header(packet: u32, length: u32, frame: u16, offload: [u8; 10]) -> String {
    let bytes = [&packet.to_le_bytes()[..], &length.to_le_bytes(), &frame.to_le_bytes(), &[0; 2], &offload].concat();
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A frame: number of its packet, bytes that this is said to have, which frame, what is left to do, bytes of the frame.
type Part = (u32, u32, u16, [u8; 10], usize);

/// What a driver must not believe of packets.
pub(crate) fn liar(lab: &mut Lab) -> Result<()> {
    /// Bytes of a frame's header, and of its payload at most.
    const HEAD: usize = 22;
    const MOST: u32 = 4074;
    let cable = Cable::start(lab, &["--topology", "peer"])?;
    cable.tell("peer p ring")?;
    cable.tell("peer p ring mode network")?;
    let mut spec = lab.guest("a");
    spec.cables.push(cable.socket("a"));
    spec.deadline = Duration::from_secs(600);
    let [a] = lab.boot([&spec])?;
    tb::load(&a)?;
    found(&a)?;
    load(&[&a])?;
    address(&a, HERE, 4056)?;
    lab.say("a host in software: up in the mode network");

    let none = [0; 10];
    // Kind 1 is TCP over IPv4, flag 1 a checksum to be computed: of a place, sizes and kinds that there are not.
    let offload = |flags: u8, kind: u8, size: u16, start: u16, at: u16| {
        let [s0, s1] = size.to_le_bytes();
        let ([b0, b1], [a0, a1]) = (start.to_le_bytes(), at.to_le_bytes());
        [flags, kind, 0, 0, s0, s1, b0, b1, a0, a1]
    };
    let wrong: Vec<(Vec<Part>, &str)> = vec![
        (vec![(0, 0, 0, none, HEAD)], "rx_frame_errors"),
        (vec![(1, 13, 0, none, HEAD + 13)], "rx_frame_errors"),
        (vec![(2, 17 * MOST + 1, 0, none, 4096)], "rx_frame_errors"),
        (vec![(3, u32::MAX, 0, none, 4096)], "rx_frame_errors"),
        (vec![(4, u32::MAX, u16::MAX, none, 4096)], "rx_frame_errors"),
        (vec![(5, 100, 1, none, HEAD + 100)], "rx_frame_errors"),
        (vec![(6, 100, 0, none, HEAD + 99)], "rx_frame_errors"),
        (vec![(7, 100, 0, none, HEAD + 101)], "rx_frame_errors"),
        (vec![(8, 5000, 0, none, 4095)], "rx_frame_errors"),
        (vec![(9, 100, 0, none, HEAD - 1)], "rx_frame_errors"),
        (vec![(10, 100, 0, offload(1, 0, 0, 99, 0), HEAD + 100)], "rx_frame_errors"),
        (vec![(11, 100, 0, offload(1, 0, 0, 65_535, 65_535), HEAD + 100)], "rx_frame_errors"),
        (vec![(12, 1000, 0, offload(1, 1, 0, 34, 16), HEAD + 1000)], "rx_frame_errors"),
        (vec![(13, 1000, 0, offload(1, 9, 100, 34, 16), HEAD + 1000)], "rx_frame_errors"),
        (vec![(14, 1000, 0, offload(1, 1, 65_535, 34, 16), HEAD + 1000)], "rx_frame_errors"),
        (vec![(15, 1000, 0, offload(0, 1, 100, 0, 0), HEAD + 1000)], "rx_frame_errors"),
        // Frames of another packet, of another length, out of order, twice.
        (vec![(16, 9000, 0, none, 4096), (17, 9000, 1, none, 4096)], "rx_missed_errors"),
        (vec![(18, 9000, 0, none, 4096), (18, 9001, 1, none, 4096)], "rx_missed_errors"),
        (vec![(19, 9000, 0, none, 4096), (19, 9000, 2, none, HEAD + 852)], "rx_missed_errors"),
        (vec![(20, 9000, 0, none, 4096), (20, 9000, 1, none, 4096), (20, 9000, 1, none, 4096)], "rx_missed_errors"),
        (vec![(21, 9000, 0, none, 4096), (22, 60, 0, none, HEAD + 60)], "rx_missed_errors"),
    ];
    for (frames, counted) in &wrong {
        let before = counter(&a, counted)?;
        for (packet, length, frame, offload, bytes) in frames {
            cable.tell(&format!("peer p ring raw 0 2 {bytes} {}", header(*packet, *length, *frame, *offload)))?;
        }
        let file = format!("/sys/class/net/{NET}/statistics/{counted}");
        a.until(&format!("{frames:?} to be counted by {counted}"), SOON, &format!("[ $(cat {file}) -gt {before} ]"))?;
    }
    for mark in [1, 3, 15] {
        let before = counter(&a, "rx_frame_errors")?;
        cable.tell(&format!("peer p ring raw 1 {mark} 64 00"))?;
        let file = format!("/sys/class/net/{NET}/statistics/rx_frame_errors");
        a.until("a frame with another mark", SOON, &format!("[ $(cat {file}) -gt {before} ]"))?;
    }
    a.calm()?;
    lab.say(&format!(
        "{} wrong frames of packets, and marks that there are not: counted, and nothing else",
        wrong.len()
    ));

    let good = |packet: u32, length: u32| -> Result<()> {
        let before = counter(&a, "rx_packets")?;
        for frame in 0..length.div_ceil(MOST) {
            let bytes = HEAD as u32 + MOST.min(length - frame * MOST);
            let head = header(packet, length, frame as u16, none);
            cable.tell(&format!("peer p ring raw 0 2 {bytes} {head}"))?;
        }
        let file = format!("/sys/class/net/{NET}/statistics/rx_packets");
        a.until(&format!("a packet of {length} bytes"), SOON, &format!("[ $(cat {file}) -gt {before} ]"))?;
        Ok(())
    };
    for (n, length) in [14, 60, 256, 257, 4074, 4075, 9000, 17 * MOST].into_iter().enumerate() {
        good(100 + n as u32, length)?;
    }
    lab.say("packets of 14 bytes to 17 whole frames after that: taken");

    for seed in 1..=30 {
        cable.tell(&format!("peer p ring packets {seed} 60"))?;
        std::thread::sleep(Duration::from_millis(200));
    }
    a.until(
        "random frames to be through",
        SOON,
        &format!("[ $(cat /sys/class/net/{NET}/statistics/rx_frame_errors) -gt 100 ]"),
    )?;
    good(200, 9000)?;
    let said = a.sh(&format!("ringtest info {DEVICE}"))?;
    check(said.contains("restarts=0"), || format!("the link was restarted: {said}"))?;
    a.calm()?;
    lab.say("random frames, 30 seeds of 60: the link carries on, unrestarted");
    cable.tell("peer p ring mode direct")?;
    a.until("a refusal", SOON, &format!("grep -q '^refused' {SYS}/state"))?;
    a.sh("rmmod linkspan")?;
    lab.say("the peer in the other mode: refused; the module goes");
    lab.finish([a])?;
    cable.finish()
}
