//! Soft-RoCE (rdma_rxe) with Debian's own tools as the reference.

use std::time::{Duration, Instant};

use super::perf::{self, MeasuredPath};
use crate::error::{Result, check};
use crate::guest::{Guest, Job};
use crate::lab::Lab;

const SOON: Duration = Duration::from_secs(90);

/// Time that a composition may take, in units of [`SOON`].
const LIFE: u32 = 10;

/// A dead host is reported within 30 s; the rest is a busy machine.
const TOLD: Duration = Duration::from_secs(120);

/// One end of an RDMA connection.
#[derive(Clone, Copy)]
struct End<'a> {
    guest: &'a Guest,
    /// Words before each command: a namespace to be in.
    within: &'a str,
    device: &'a str,
    address: &'a str,
}

/// Gives an interface an address and an RDMA device. An Ethernet MTU of 4200 leaves space for an RDMA MTU of 4096.
pub(super) fn device(guest: &Guest, interface: &str, address: &str, device: &str) -> Result<()> {
    guest.sh(&format!(
        "modprobe crc32_generic 2>/dev/null; modprobe rdma_rxe && modprobe ib_uverbs && modprobe rdma_ucm\n\
         (ip addr add {address} dev {interface} 2>/dev/null || ip addr show dev {interface} | grep -q ' {address} ') &&\n\
         ip link set {interface} mtu 4200 up &&\n\
         rdma link add {device} type rxe netdev {interface}"
    ))?;
    let state = format!("grep -q ACTIVE /sys/class/infiniband/{device}/ports/1/state");
    guest.until("an active RDMA port", SOON, &state)?;
    Ok(())
}

/// Index of the GID that is the interface's IPv4 address: RoCE v2 writes it as an IPv4-mapped IPv6 address.
fn gid(end: End<'_>) -> Result<u32> {
    let list = end.guest.sh(&format!(
        "{} sh -c 'cd /sys/class/infiniband/{}/ports/1/gids && for i in 0 1 2 3 4 5; do echo $i $(cat $i); done'",
        end.within, end.device
    ))?;
    let address = end.address.split('/').next().unwrap_or_default();
    let bytes: Vec<u8> = address.split('.').filter_map(|n| n.parse().ok()).collect();
    let [a, b, c, d] = bytes[..] else {
        return Err(crate::error::Error::Check(format!("{address} is not an IPv4 address")));
    };
    let wanted = format!("0000:0000:0000:0000:0000:ffff:{a:02x}{b:02x}:{c:02x}{d:02x}");
    let line = list.lines().find(|line| line.ends_with(&wanted));
    line.and_then(|line| line.split(' ').next()?.parse().ok())
        .ok_or_else(|| crate::error::Error::Check(format!("{}: no GID for {address} among\n{list}", end.guest.name())))
}

/// Runs one of the reference programs between two ends; what the connecting side said.
fn play(server: End<'_>, client: End<'_>, program: &str, says: &str) -> Result<String> {
    let (there, here) = (gid(server)?, gid(client)?);
    let flag = if program.starts_with("ibv_rc") { "-g" } else { "-x" };
    let address = server.address.split('/').next().unwrap_or_default();
    let command = |end: End<'_>, gid: u32| format!("{} {program} -d {} {flag} {gid}", end.within, end.device);
    let serving = server.guest.spawn(&command(server, there))?;
    // Their handshake is an ordinary TCP connection on port 18515 = 0x4853, or what the program prefers.
    let listening = format!("{} cat /proc/net/tcp /proc/net/tcp6 | grep -q ':485[0-9A-F] .* 0A '", server.within);
    server.guest.until(&format!("{program} to listen"), SOON, &listening)?;
    let said = client.guest.sh_for(SOON, &format!("{} {address}", command(client, here)))?;
    serving.wait(SOON)?;
    check(said.contains(says), || format!("{program} does not say `{says}`:\n{said}"))?;
    Ok(said)
}

/// What every edge must carry.
fn edge(server: End<'_>, client: End<'_>) -> Result<()> {
    play(server, client, "ibv_rc_pingpong -c -n 200 -s 8192", "bytes in")?;
    play(server, client, "ib_write_bw -F -n 100 -s 65536", "BW average")?;
    Ok(())
}

/// The reference programs between two guests over an interface that has an address on each; the devices go again.
pub(super) fn over(server: (&Guest, &str), client: (&Guest, &str), interface: &str) -> Result<()> {
    for (guest, address) in [server, client] {
        device(guest, interface, &format!("{address}/24"), "rxe0")?;
    }
    let end = |(guest, address)| End { guest, within: "", device: "rxe0", address };
    edge(end(server), end(client))?;
    let env = &format!("LINKSPAN_IB_TIMEOUT=18 LINKSPAN_IFNAME=={interface}");
    perf::all(client.0, server.0, MeasuredPath { at: server.1, env, path: "verbs", device: "rxe0/1" })?;
    for (guest, _) in [server, client] {
        guest.sh("rdma link delete rxe0")?;
    }
    Ok(())
}

pub(crate) fn one(lab: &mut Lab) -> Result<()> {
    let spec = lab.guest("a");
    let [a] = lab.boot([&spec])?;
    a.sh("modprobe dummy numdummies=1")?;
    device(&a, "dummy0", "10.1.0.1/24", "rxe0")?;
    let end = End { guest: &a, within: "", device: "rxe0", address: "10.1.0.1" };
    play(end, end, "ibv_rc_pingpong -c -n 200 -s 8192", "bytes in")?;
    lab.say("loopback: ibv_rc_pingpong with its data checked");
    a.sh("rdma link delete rxe0 && ip link del dummy0")?;
    lab.say("the device goes");
    namespaces(lab, &a)?;
    a.sh("rmmod rdma_rxe")?;
    lab.say("the module goes");
    lab.finish([a])
}

/// Both ends on one device, in one process: every verb that the transport uses, through libibverbs and the kernel.
pub(crate) fn ours(lab: &mut Lab) -> Result<()> {
    let mut spec = lab.guest("a");
    spec.deadline = SOON * 40;
    let [a] = lab.boot([&spec])?;
    a.sh("modprobe dummy numdummies=1")?;
    device(&a, "dummy0", "10.1.0.1/24", "rxe0")?;
    let said = a.run(SOON * 30, "verbs-conformance rxe0 2>&1")?;
    check(said.code == 0 && said.out.ends_with("passed\n"), || {
        format!("verbs-conformance ended with {}: {}{}", said.code, said.out, said.err)
    })?;
    lab.say("the conformance suite of the transports");
    let end = End { guest: &a, within: "", device: "rxe0", address: "10.1.0.1" };
    let seen = a.sh("ibv_devinfo -d rxe0")?;
    check(seen.contains("rxe0") && seen.contains("PORT_ACTIVE"), || format!("ibv_devinfo says\n{seen}"))?;
    // At once on one device: neither disturbs the other.
    let ours = a.spawn("verbs-conformance rxe0 1 cost 2>&1")?;
    play(end, end, "ib_write_bw -F -n 640 -s 65536", "BW average")?;
    let seen = a.sh("ibv_devinfo -d rxe0")?;
    let said = ours.wait(SOON * 10)?;
    check(said.code == 0 && said.out.ends_with("passed\n"), || format!("beside perftest: {}{}", said.out, said.err))?;
    check(seen.contains("PORT_ACTIVE"), || format!("ibv_devinfo beside us says\n{seen}"))?;
    lab.say("ibv_devinfo, and perftest beside us on the same device");
    beside(lab, &a, end)?;
    lab.finish([a])
}

/// What our transport does and what perftest does in the same guest, in turns: how they compare, and what ours costs the card.
fn beside(lab: &mut Lab, a: &Guest, end: End<'_>) -> Result<()> {
    // Their line of numbers, the column of the typical one, and whether ours is better when it is larger.
    let rows = [
        ("of 65536 bytes", "ib_write_bw -F -n 640 -s 65536", "BW average", 3, true),
        ("of 1048576 bytes", "ib_write_bw -F -n 128 -s 1048576", "BW average", 3, true),
        ("640 messages of 8 bytes", "ib_write_bw -F -n 640 -s 8", "BW average", 3, true),
        ("latency", "ib_write_lat -F -n 200 -s 8", "t_typical", 4, false),
    ];
    let mut ratios = rows.map(|_| Vec::new());
    let mut last = String::new();
    let turns = if std::env::var("LINKSPAN_CONFORMANCE").is_ok_and(|level| level == "full") { TURNS } else { 1 };
    for _ in 0..turns {
        let said = a.run(SOON * 10, "verbs-conformance rxe0 1 cost 2>&1")?;
        check(said.code == 0 && said.out.ends_with("passed\n"), || format!("cost: {}{}", said.out, said.err))?;
        for ((what, program, says, column, larger), ratios) in rows.iter().zip(&mut ratios) {
            let line = said.out.lines().find(|line| line.contains(what)).unwrap_or_default();
            // MB/s for streams, where theirs are MiB/s; us for the latency.
            let number = line.split(": ").nth(1).and_then(|rest| rest.split(' ').next()?.parse::<f64>().ok());
            let theirs = play(end, end, program, says)?;
            let numbers = theirs.lines().rev().find(|line| line.split_whitespace().all(|w| w.parse::<f64>().is_ok()));
            let typical = numbers.and_then(|line| line.split_whitespace().nth(*column)?.parse::<f64>().ok());
            let (Some(ours), Some(theirs)) = (number, typical) else {
                return Err(crate::error::Error::Check(format!("no numbers in `{line}` or in\n{theirs}")));
            };
            let ours = if *larger { ours / 1.048_576 } else { ours };
            ratios.push((ours / theirs, ours, theirs));
        }
        last = said.out;
    }
    last.lines().filter(|line| line.contains("per message")).for_each(|line| lab.say(line.trim()));
    for ((_, program, _, _, larger), mut ratios) in rows.into_iter().zip(ratios) {
        ratios.sort_by(|x, y| x.0.total_cmp(&y.0));
        let (ratio, ours, theirs) = ratios[ratios.len() / 2];
        let unit = if larger { "MiB/s" } else { "us" };
        lab.say(&format!("ours to `{program}`: {ratio:.2} ({ours:.2} {unit} to {theirs:.2} {unit}; median of {turns} turns, emulated)"));
    }
    Ok(())
}

/// Turns of ours and theirs for a record: `LINKSPAN_CONFORMANCE=full`. One shows that it works.
const TURNS: usize = 3;

/// Debian's `ip`: busybox, whose own comes first in a guest, knows no namespaces.
const IP: &str = "/usr/bin/ip";

/// Two network namespaces of one guest with an RDMA device each. A kernel whose soft-RoCE cannot be in a namespace says so
/// when the device is moved: 6.12.107 and 7.2.12 answer "Operation not supported", as `ib_device_set_netns_put` does for a
/// driver without `disassociate_ucontext`. From 7.3 on, where rdma_rxe has one, it must work.
fn namespaces(lab: &mut Lab, a: &Guest) -> Result<()> {
    a.sh(&format!(
        "modprobe veth && rdma system set netns exclusive && {IP} netns add n1 && {IP} netns add n2 &&\n\
         {IP} link add v1 netns n1 type veth peer name v2 netns n2"
    ))?;
    for n in [1, 2] {
        a.sh(&format!(
            "{IP} netns exec n{n} sh -c '{IP} link set lo up && {IP} addr add 10.2.0.{n}/24 dev v{n} &&\n\
             {IP} link set v{n} mtu 4200 up && rdma link add rxn{n} type rxe netdev v{n}'"
        ))?;
        // It is born in the first namespace, whose `rdma` moves it.
        let moved = a.run(SOON, &format!("rdma dev set rxn{n} netns n{n}"))?;
        if moved.code != 0 && lab.kernel.version() < (7, 3) {
            let why = format!("soft-RoCE of {} cannot be moved into one: {}", lab.kernel.release, moved.err.trim());
            lab.skip("two network namespaces", &why);
            a.sh(&format!("rdma link delete rxn{n}; {IP} netns del n1; {IP} netns del n2"))?;
            return Ok(());
        }
        check(moved.code == 0, || format!("rdma dev set rxn{n} netns n{n}: {}", moved.err))?;
    }
    for n in [1, 2] {
        let state = format!("{IP} netns exec n{n} grep -q ACTIVE /sys/class/infiniband/rxn{n}/ports/1/state");
        a.until("an active RDMA port", SOON, &state)?;
        let seen = a.sh(&format!("{IP} netns exec n{n} ls /sys/class/infiniband"))?;
        check(seen.trim() == format!("rxn{n}"), || format!("namespace n{n} sees {seen}"))?;
    }
    edge(
        End { guest: a, within: &format!("{IP} netns exec n1"), device: "rxn1", address: "10.2.0.1" },
        End { guest: a, within: &format!("{IP} netns exec n2"), device: "rxn2", address: "10.2.0.2" },
    )?;
    for n in [1, 2] {
        a.sh(&format!("{IP} netns exec n{n} rdma link delete rxn{n}"))?;
    }
    a.sh(&format!("{IP} netns del n1 && {IP} netns del n2"))?;
    lab.say("two network namespaces, a device in each: RC traffic between them");
    Ok(())
}

pub(crate) fn pair(lab: &mut Lab) -> Result<()> {
    let (mut one, mut two) = (lab.guest("a"), lab.guest("b"));
    one.ethernet(&mut two);
    let [a, b] = lab.boot([&one, &two])?;
    device(&a, "lan0", "10.1.0.1/24", "rxe0")?;
    device(&b, "lan0", "10.1.0.2/24", "rxe0")?;
    lab.say("a port each is active");
    let (x, y) = (
        End { guest: &a, within: "", device: "rxe0", address: "10.1.0.1" },
        End { guest: &b, within: "", device: "rxe0", address: "10.1.0.2" },
    );
    for (program, says) in [
        ("ibv_rc_pingpong -c -n 300 -s 16384", "bytes in"),
        ("ibv_rc_pingpong -c -e -n 300 -s 1024", "bytes in"),
        ("ib_write_bw -F -n 200 -s 65536", "BW average"),
        ("ib_read_bw -F -n 200 -s 65536", "BW average"),
        ("ib_send_lat -F -n 200 -s 64 -e", "t_typical"),
        ("ib_write_lat -F -n 200 -s 8", "t_typical"),
        ("ib_atomic_lat -F -n 200 -A FETCH_AND_ADD", "t_typical"),
    ] {
        play(x, y, program, says)?;
        lab.say(program);
    }
    play(y, x, "ibv_rc_pingpong -c -n 100 -s 4096", "bytes in")?;
    lab.say("the other way round");
    lab.finish([a, b])
}

/// Plugin hosts: one rank on each of the guests, handshake at the first one's end of the first cable.
fn ranks(guests: &[&Guest], env: &str, words: &str) -> Result<Vec<Job>> {
    let start = |(rank, guest): (usize, &&Guest)| {
        guest.spawn(&format!(
            "{env} exec plugin-host --plugin /usr/lib/libnccl-net-linkspan.so --verbose --join 10.1.0.1:9900 --rank {rank} \
             --ranks {} {words}",
            guests.len()
        ))
    };
    guests.iter().enumerate().map(start).collect()
}

/// Waits until a plugin host says something of its paths; where it does not, what it did say of them.
fn tells(job: &mut Job, part: &str, limit: Duration) -> Result<()> {
    let told = job.expect(part, limit);
    told.map(drop).map_err(|late| {
        let lines = job.lines("linkspan: ");
        crate::error::Error::Check(format!(
            "{}; of its paths it says:{lines}",
            late.to_string().lines().next().unwrap_or_default()
        ))
    })
}

/// Ends plugin hosts that go well, all at once: one that saw another die would end with an error of its own.
fn end_all(guests: &[&Guest]) -> Result<()> {
    for signal in ["STOP", "KILL"] {
        for guest in guests {
            guest.sh(&format!("killall -{signal} plugin-host"))?;
        }
    }
    Ok(())
}

/// How many rounds a plugin host has made.
fn rounds(job: &mut Job) -> Result<u32> {
    let line = job.latest(": round ")?.unwrap_or_default();
    Ok(line.rsplit(' ').next().and_then(|n| n.parse().ok()).unwrap_or(0))
}

/// Waits for `more` rounds from now.
fn goes_on(job: &mut Job, more: u32, limit: Duration) -> Result<()> {
    let (until, wanted) = (Instant::now() + limit, rounds(job)? + more);
    while rounds(job)? < wanted {
        check(Instant::now() < until && !job.is_over(), || {
            format!("no {more} more rounds within {} s:\n{}", limit.as_secs(), job.tail())
        })?;
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

/// Whether a run ended as it should, and what it said.
fn ended(job: Job, patience: Duration, code: i32, says: &[&str]) -> Result<String> {
    let said = job.wait(patience)?;
    let text = format!("{}{}", said.out, said.err);
    check(said.code == code, || format!("ended with {}, not {code}:\n{text}", said.code))?;
    for word in says {
        check(text.contains(word), || format!("does not say `{word}`:\n{text}"))?;
    }
    Ok(text)
}

/// Settings with which linkspan uses the first of two cables. 18 is a second: in an emulated guest acknowledgements take long, and
/// rdma_rxe begins a message that was acknowledged in part with a FIRST packet when it sends it again, which it then
/// refuses as an invalid request.
const FIRST: &str = "LINKSPAN_IB_TIMEOUT=18 LINKSPAN_IFNAME==lan0";

/// Two guests with two RoCE cables between them.
fn two_cables(lab: &mut Lab) -> Result<[Guest; 2]> {
    let (mut one, mut two) = (lab.guest("a"), lab.guest("b"));
    one.ethernet(&mut two);
    one.ethernet(&mut two);
    for spec in [&mut one, &mut two] {
        spec.deadline = SOON * 20;
    }
    let guests = lab.boot([&one, &two])?;
    for (guest, last) in guests.iter().zip(1..) {
        device(guest, "lan0", &format!("10.1.0.{last}/24"), "rxe0")?;
        device(guest, "lan1", &format!("10.2.0.{last}/24"), "rxe1")?;
    }
    lab.say("two active ports each");
    Ok(guests)
}

/// linkspan between two guests with two RoCE cables: the CLI, the plugin, and a peer that is killed.
pub(crate) fn used(lab: &mut Lab) -> Result<()> {
    let [a, b] = two_cables(lab)?;
    let first = FIRST;
    let status = a.sh_for(SOON * 2, &format!("{first} lspan status 2>&1"))?;
    check(status.contains("RDMA rxe0/1: used"), || format!("lspan status does not tell of rxe0:\n{status}"))?;
    let serve =
        format!("{first} LINKSPAN_PATH=verbs LINKSPAN_LOG=info exec lspan perf serve --open >/tmp/serve.log 2>&1");
    let mut server = b.spawn(&serve)?;
    b.until("the server", SOON, "pidof lspan >/dev/null && netstat -ltn 2>/dev/null | grep -q LISTEN")?;
    // Each size in a run of its own: buffers that are made anew at addresses which the card knows from the run before.
    for size in ["16K", "64K", "1M"] {
        let bw = format!("{first} lspan perf bw 10.1.0.2 --path verbs --size {size} --window 8 --iters 8 2>&1");
        let said = a.run(SOON * 3, &bw)?;
        check(matches!(said.code, 0 | 3) && said.out.contains("rxe0/1 10.1.0.1 -> 10.1.0.2"), || {
            let there = b.sh("cat /tmp/serve.log; dmesg | tail -5").unwrap_or_default();
            let text = format!("{}{}", said.out, said.err);
            format!("lspan perf bw of {size} ended with {} or does not name the device: {text}\n{there}", said.code)
        })?;
    }
    server.kill();
    let _ = server.expect("listening", Duration::from_millis(10));
    lab.say("lspan perf bw --path verbs of 16 KiB, 64 KiB and 1 MiB, eight under way, every byte checked");

    let forced = format!("{first} LINKSPAN_PATH=verbs");
    for job in ranks(&[&a, &b], &forced, "--test allreduce --quick")? {
        ended(job, SOON * 5, 0, &["verbs rxe0/1"])?;
    }
    lab.say("the plugin over one queue pair: AllReduce, every value checked");

    let mut jobs = ranks(&[&a, &b], first, "--test rounds --size 1M --rounds 100000")?;
    for job in &mut jobs {
        job.expect("round 2", SOON * 2)?;
    }
    b.sh("killall -9 plugin-host")?;
    let killed = Instant::now();
    if let (Some(gone), Some(left)) = (jobs.pop(), jobs.pop()) {
        ended(left, TOLD, 1, &["returned 6", "LS01"])?;
        let _ = gone.wait(SOON);
    }
    lab.say(&format!("a peer that is killed: told after {:.1} s", killed.elapsed().as_secs_f64()));
    lab.finish([a, b])
}

/// Takes a cable out: this end is without a port, and what the other end sends is lost. Without that it would fill the virtual card there,
/// and soft-RoCE waits with the end of a queue pair for every packet of it.
fn out(near: (&Guest, &str), far: (&Guest, &str)) -> Result<()> {
    far.0.sh(&format!("modprobe sch_netem && /usr/bin/tc qdisc replace dev {} root netem loss 100%", far.1))?;
    near.0.sh(&format!("ip link set {} down", near.1)).map(drop)
}

/// Puts it in again.
fn back(near: (&Guest, &str), address: &str, far: (&Guest, &str)) -> Result<()> {
    far.0.sh(&format!("/usr/bin/tc qdisc del dev {} root", far.1))?;
    near.0.sh(&format!("ip link set {0} up && ip addr replace {address} dev {0}", near.1)).map(drop)
}

/// The plugin over two RoCE cables, of which one is cut and comes back, then over one, which is cut.
pub(crate) fn cut(lab: &mut Lab) -> Result<()> {
    let [a, b] = two_cables(lab)?;
    let both = "LINKSPAN_IB_TIMEOUT=18 LINKSPAN_IFNAME==lan0,lan1";
    // Each round checks every value: nothing is lost or comes twice.
    let mut jobs = ranks(&[&a, &b], both, "--test rounds --size 1M --rounds 100000")?;
    for job in &mut jobs {
        job.expect("round 2", SOON * 2)?;
    }
    let cut = Instant::now();
    out((&a, "lan1"), (&b, "lan1"))?;
    goes_on(&mut jobs[0], 2, SOON)?;
    let over = cut.elapsed().as_secs_f64();
    for job in &mut jobs {
        tells(job, "rail lost: verbs rxe1", SOON)?;
        goes_on(job, 5, SOON)?;
    }
    lab.say(&format!("one of two cables down in mid-run: two rounds later after {over:.1} s, every value right"));
    back((&a, "lan1"), "10.2.0.1/24", (&b, "lan1"))?;
    let up = Instant::now();
    for job in &mut jobs {
        tells(job, "rail back: verbs rxe1", SOON * 2)?;
    }
    let back = up.elapsed().as_secs_f64();
    for job in &mut jobs {
        goes_on(job, 5, SOON)?;
    }
    end_all(&[&a, &b])?;
    for job in jobs {
        let said = job.wait(SOON)?;
        let text = format!("{}{}", said.out, said.err);
        check(!text.contains("FAIL") && !text.contains("returned 6"), || format!("a run failed:\n{text}"))?;
    }
    lab.say(&format!("its queue pairs are back {back:.1} s after the cable, every value right"));

    let mut jobs = ranks(&[&a, &b], FIRST, "--test rounds --size 1M --rounds 100000")?;
    for job in &mut jobs {
        job.expect("round 2", SOON * 2)?;
    }
    out((&a, "lan0"), (&b, "lan0"))?;
    let cut = Instant::now();
    for job in jobs {
        ended(job, TOLD, 1, &["returned 6", "LS0"])?;
    }
    lab.say(&format!("the only cable down: both sides told after {:.1} s", cut.elapsed().as_secs_f64()));
    lab.finish([a, b])
}

/// An end of an edge: the guest's place, its device, its address.
type EdgeEnd = (usize, String, String);

/// Guests in a circle, with an RDMA device and a subnet on each edge. Edge n lies between guest n, with 10.1.n.1, and the next
/// one, with 10.1.n.2. Interfaces are numbered as they were joined: `lan0` of the first two is edge 0.
fn around<const N: usize>(lab: &mut Lab, names: [&str; N], life: u32) -> Result<([Guest; N], Vec<Vec<EdgeEnd>>)> {
    let mut specs = names.map(|name| {
        let mut spec = lab.guest(name);
        spec.deadline = SOON * life;
        spec
    });
    for n in 0..N {
        let mut next = specs[(n + 1) % N].clone();
        specs[n].ethernet(&mut next);
        specs[(n + 1) % N] = next;
    }
    let guests = lab.boot(specs.each_ref())?;
    let mut used = [0; N];
    let mut edges = Vec::new();
    for n in 0..N {
        let next = (n + 1) % N;
        let mut ends = Vec::new();
        for (side, at) in [(1, n), (2, next)] {
            let (interface, address) = (format!("lan{}", used[at]), format!("10.1.{n}.{side}/30"));
            let name = format!("rxe{}", used[at]);
            used[at] += 1;
            device(&guests[at], &interface, &address, &name)?;
            ends.push((at, name, address));
        }
        edges.push(ends);
    }
    lab.say("two active ports each");
    Ok((guests, edges))
}

fn circle<const N: usize>(lab: &mut Lab, names: [&str; N]) -> Result<()> {
    let (guests, edges) = around(lab, names, LIFE)?;
    for ends in &edges {
        let [from, to] = &ends[..] else { continue };
        let end = |(at, device, address): &'_ EdgeEnd| (*at, device.clone(), address.clone());
        let ((a, da, aa), (b, db, ab)) = (end(from), end(to));
        edge(
            End { guest: &guests[a], within: "", device: &da, address: &aa },
            End { guest: &guests[b], within: "", device: &db, address: &ab },
        )?;
        lab.say(&format!("RC traffic {} - {}", guests[a].name(), guests[b].name()));
    }
    lab.finish(guests)
}

pub(crate) fn triangle(lab: &mut Lab) -> Result<()> {
    circle(lab, ["a", "b", "c"])
}

pub(crate) fn ring(lab: &mut Lab) -> Result<()> {
    circle(lab, ["a", "b", "c", "d"])
}

/// What every rank of a mesh is told. Of the timeout: see [`used`].
const MESH: &str =
    "LINKSPAN_IB_TIMEOUT=18 LINKSPAN_IFNAME==lan0,lan1 LINKSPAN_MESH_PORT=7475 LINKSPAN_PSK_FILE=/tmp/psk";

fn key(guests: &[Guest]) -> Result<()> {
    for guest in guests {
        guest.sh("umask 077; for i in 1 2 3 4 5 6 7 8; do printf 0123abcd; done >/tmp/psk")?;
    }
    Ok(())
}

/// Three hosts, three cables, three subnets: every connection over the cable between its two hosts.
pub(crate) fn mesh_triangle(lab: &mut Lab) -> Result<()> {
    let (guests, _) = around(lab, ["a", "b", "c"], 20)?;
    key(&guests)?;
    let [a, b, c] = &guests;
    // The ranks' own handshake is at 10.1.0.1, which c reaches at the far end of its cable to a.
    c.sh("ip route add 10.1.0.1 via 10.1.2.2")?;
    let serving = [b, c].map(|guest| guest.spawn(&format!("{MESH} exec lspan mesh --serve >/dev/null 2>&1")));
    let drawn = a.run(SOON, &format!("{MESH} lspan mesh --wait 10s 2>&1"))?;
    let advice = "NCCL_IB_SUBNET_AWARE_ROUTING=1 NCCL_IB_SUBNET_PREFIX_LEN=30 NCCL_IB_MERGE_NICS=1";
    check(drawn.out.contains("RDMA") && drawn.out.contains(advice), || format!("{drawn:?}"))?;
    serving.into_iter().collect::<Result<Vec<Job>>>()?.iter().for_each(Job::kill);
    lab.say("lspan mesh sees RDMA on every cable, and that NCCL alone would do");
    let jobs = ranks(&[a, b, c], MESH, "--test allreduce --quick")?;
    for (job, paths) in jobs.into_iter().zip([
        ["10.1.0.1 -> 10.1.0.2", "10.1.2.2 -> 10.1.2.1"],
        ["10.1.1.1 -> 10.1.1.2", "10.1.0.2 -> 10.1.0.1"],
        ["10.1.2.1 -> 10.1.2.2", "10.1.1.2 -> 10.1.1.1"],
    ]) {
        let text = ended(job, SOON * 5, 0, &["via 2 rails: verbs rxe", paths[0], paths[1]])?;
        check(!text.contains("relayed") && !text.contains("TCP in place of RDMA"), || text.clone())?;
    }
    lab.say("AllReduce over RDMA on all three cables, every value checked, nothing relayed");

    // One cable is Ethernet alone from here on, between others with RDMA: c - a.
    c.sh("rdma link delete rxe1")?;
    let jobs = ranks(&[a, b, c], MESH, "--test allreduce --quick")?;
    for (job, [rdma, tcp]) in jobs.into_iter().zip([
        ["-> 10.1.0.2 (GID", "10.1.2.2:"],
        ["-> 10.1.0.1 (GID", ""],
        ["-> 10.1.1.1 (GID", "10.1.2.1:"],
    ]) {
        let text = ended(job, SOON * 5, 0, &["verbs rxe", rdma, tcp])?;
        check(!text.contains("relayed"), || text.clone())?;
    }
    lab.say("a mixed triangle: RDMA on two cables, TCP on the one whose host has no device there");
    lab.finish(guests)
}

/// Packets that the guest's RDMA devices have sent, and segments that its TCP has.
fn carried(guest: &Guest) -> Result<(u64, u64)> {
    let said = guest.sh(
        "cat /sys/class/infiniband/rxe*/ports/1/hw_counters/sent_pkts; awk '/^Tcp: [0-9]/ {print $12}' /proc/net/snmp",
    )?;
    let numbers: Vec<u64> = said.lines().filter_map(|line| line.trim().parse().ok()).collect();
    let Some((segments, packets)) = numbers.split_last().filter(|(_, packets)| !packets.is_empty()) else {
        return Err(crate::error::Error::Check(format!("no counters in {said}")));
    };
    Ok((packets.iter().sum(), *segments))
}

/// Opposite hosts of the ring beside neighbours: every hop by RDMA, by the devices' own counters.
fn by_rdma(lab: &mut Lab, guests: &[Guest; 4]) -> Result<()> {
    let [a, b, c, d] = guests;
    let mut jobs = ranks(&[a, c, b, d], MESH, "--test rounds --size 256K --rounds 100000")?;
    for (job, says) in jobs.iter_mut().zip(["rdma via ", "", "rdma via ", ""]) {
        if !says.is_empty() {
            tells(job, says, SOON * 2)?;
        }
        job.expect("round 2", SOON * 2)?;
    }
    let before = guests.iter().map(carried).collect::<Result<Vec<_>>>()?;
    for job in &mut jobs {
        goes_on(job, 5, SOON * 2)?;
    }
    let after = guests.iter().map(carried).collect::<Result<Vec<_>>>()?;
    let (mut packets, mut segments) = (0, 0);
    for (guest, (before, after)) in guests.iter().zip(before.iter().zip(&after)) {
        let (rdma, tcp) = (after.0 - before.0, after.1 - before.1);
        // Each rank sends 384 KiB a round, half of all connections have a host between: packets of 4 KiB at most.
        check(rdma >= 5 * 96, || format!("{} sent {rdma} packets by RDMA in five rounds", guest.name()))?;
        (packets, segments) = (packets + rdma, segments + tcp);
    }
    check(segments * 20 < packets, || format!("{segments} segments of TCP beside {packets} packets by RDMA"))?;
    end_all(&[a, b, c, d])?;
    for job in jobs {
        let said = job.wait(SOON)?;
        check(!said.out.contains("FAIL") && !said.err.contains("FAIL"), || format!("{}{}", said.out, said.err))?;
    }
    lab.say(&format!("opposite hosts over both others: {packets} packets by RDMA, {segments} segments by TCP"));
    Ok(())
}

/// Two ranks at opposite corners; relays that do nothing else are killed, one after the other.
fn relays_die(lab: &mut Lab, guests: &[Guest; 4]) -> Result<()> {
    let [a, b, c, d] = guests;
    let serving = [b, d].map(|guest| guest.spawn(&format!("{MESH} exec lspan mesh --serve >/dev/null 2>&1")));
    let serving = serving.into_iter().collect::<Result<Vec<Job>>>()?;
    for guest in [b, d] {
        guest.until("a mesh server", SOON, "netstat -ltn 2>/dev/null | grep -q :7475")?;
    }
    let mut jobs = ranks(&[a, c], MESH, "--test rounds --size 256K --rounds 100000")?;
    for job in &mut jobs {
        tells(job, "2 hops", SOON * 2)?;
        job.expect("round 2", SOON * 2)?;
    }
    serving[0].kill();
    let killed = Instant::now();
    for job in &mut jobs {
        tells(job, "rail lost: verbs", SOON)?;
    }
    let noticed = killed.elapsed().as_secs_f64();
    for job in &mut jobs {
        goes_on(job, 5, SOON)?;
    }
    lab.say(&format!("a relay killed in mid-run: told after {noticed:.1} s, the other way round carries on by RDMA"));
    serving[1].kill();
    let killed = Instant::now();
    for job in jobs {
        ended(job, TOLD, 1, &["returned 6", "LS0"])?;
    }
    lab.say(&format!("the last relay killed: both sides told after {:.1} s", killed.elapsed().as_secs_f64()));
    Ok(())
}

/// Four hosts in a ring: neighbours by RDMA, opposite ones over both others; cables cut in mid-run.
pub(crate) fn mesh_ring(lab: &mut Lab) -> Result<()> {
    let (guests, _) = around(lab, ["a", "b", "c", "d"], 30)?;
    key(&guests)?;
    let [a, b, c, d] = &guests;
    // The ranks' own handshake is at 10.1.0.1: d reaches it at the far end of its cable to a, c over d.
    d.sh("ip route add 10.1.0.1 via 10.1.3.2 && echo 1 >/proc/sys/net/ipv4/ip_forward")?;
    c.sh("ip route add 10.1.0.1 via 10.1.2.2")?;
    a.sh("ip route add 10.1.2.0/30 via 10.1.3.1")?;

    for job in ranks(&[a, b, c, d], MESH, "--test allreduce --quick")? {
        let text = ended(job, SOON * 5, 0, &["verbs rxe"])?;
        check(!text.contains("relayed"), || text.clone())?;
    }
    lab.say("a ring of four: AllReduce over RDMA between neighbours");

    by_rdma(lab, &guests)?;
    relays_die(lab, &guests)?;

    let mut jobs = ranks(&[a, b, c, d], MESH, "--test rounds --size 256K --rounds 100000")?;
    for job in &mut jobs {
        job.expect("round 2", SOON * 2)?;
    }
    let cut = Instant::now();
    out((b, "lan1"), (c, "lan0"))?;
    tells(&mut jobs[1], "rail lost: verbs rxe1", SOON)?;
    tells(&mut jobs[1], "relaying over a, d", SOON)?;
    tells(&mut jobs[1], "RDMA is in use again", SOON)?;
    let took = cut.elapsed().as_secs_f64();
    // So many that buffers lie where others have lain before, which the devices of this way have to know. All go on in step.
    goes_on(&mut jobs[0], 12, SOON)?;
    for job in &mut jobs {
        goes_on(job, 1, SOON)?;
    }
    lab.say(&format!("a cable cut in mid-run: RDMA the other way round after {took:.1} s, every value right"));
    back((b, "lan1"), "10.1.1.1/30", (c, "lan0"))?;
    let up = Instant::now();
    tells(&mut jobs[1], "rail back: verbs rxe1", SOON * 2)?;
    let back = up.elapsed().as_secs_f64();
    for job in &mut jobs {
        goes_on(job, 3, SOON)?;
    }
    lab.say(&format!("the cable is back: RDMA is in use again after {back:.1} s"));
    end_all(&[a, b, c, d])?;
    for job in jobs {
        let said = job.wait(SOON)?;
        check(!said.out.contains("FAIL") && !said.err.contains("FAIL"), || format!("{}{}", said.out, said.err))?;
    }

    // From here on it is a line: b - a - d - c.
    b.sh("ip link set lan1 down")?;
    c.sh("ip link set lan0 down")?;
    for (at, job) in ranks(&[a, b, c, d], MESH, "--test allreduce --quick")?.into_iter().enumerate() {
        ended(job, SOON * 5, 0, &[if at == 1 { "3 hops: rdma via a, rdma via d, rdma" } else { "verbs rxe" }])?;
    }
    lab.say("a line of four: AllReduce, its ends over two relays, RDMA on every hop");

    let mut jobs = ranks(&[a, b, c, d], MESH, "--test rounds --size 256K --rounds 100000")?;
    for job in &mut jobs {
        job.expect("round 2", SOON * 2)?;
    }
    let cut = Instant::now();
    out((a, "lan0"), (b, "lan0"))?;
    for job in jobs {
        ended(job, TOLD, 1, &["returned 6", "LS0"])?;
    }
    lab.say(&format!("its first cable cut: every rank told after {:.1} s", cut.elapsed().as_secs_f64()));
    lab.finish(guests)
}
