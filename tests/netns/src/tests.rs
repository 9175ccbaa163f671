//! What is tested.

use std::time::{Duration, Instant};

use crate::mesh::{all_end, ranks, sent};
use crate::world::{Node, Outcome, World};

pub(crate) struct Test {
    pub(crate) name: &'static str,
    pub(crate) what: &'static str,
    /// It mostly waits, so it may run beside others.
    pub(crate) waits: bool,
    pub(crate) run: fn() -> Outcome<String>,
}

pub(crate) const ALL: &[Test] = &[
    Test { name: "one-cable", what: "two hosts, one cable, IPv4", waits: false, run: one_cable },
    Test { name: "ipv6", what: "the same over IPv6", waits: false, run: ipv6 },
    Test {
        name: "two-rails",
        what: "two unequal shaped cables carry >= 0.9 of their sum",
        waits: false,
        run: two_rails,
    },
    Test { name: "rail-loss", what: "a cable is cut in mid-transfer and comes back", waits: false, run: rail_loss },
    Test {
        name: "all-cables-out",
        what: "both cables are out for some seconds under the plugin's AllReduce, and it goes on",
        waits: true,
        run: all_cables_out,
    },
    Test {
        name: "clean-end",
        what: "connections over two cables that end in good order warn of nothing: lspan perf, the library, the plugin",
        waits: false,
        run: clean_end,
    },
    Test {
        name: "short-cut",
        what: "a cable that is out for 3 s breaks no transport of one-sided writes, though their time is up",
        waits: true,
        run: short_cut,
    },
    Test {
        name: "late-rail",
        what: "a cable that is down when the connection is made is taken in when it comes up",
        waits: false,
        run: late_rail,
    },
    Test {
        name: "late-peer",
        what: "so is one on which the peer could not be reached then",
        waits: false,
        run: late_peer,
    },
    Test {
        name: "same-docker0",
        what: "equal bridge subnets on both hosts do no harm",
        waits: false,
        run: same_docker0,
    },
    Test {
        name: "pods",
        what: "containers with one virtual cable each reach each other over it, a downgrade with a name",
        waits: false,
        run: pods,
    },
    Test {
        name: "bare-cables",
        what: "Thunderbolt cables with link-local addresses alone carry a connection, whichever leads where",
        waits: false,
        run: bare_cables,
    },
    Test {
        name: "half-bare-cable",
        what: "a Thunderbolt cable one of whose ends has a routed address and the other link-local ones alone is used",
        waits: false,
        run: half_bare_cable,
    },
    Test {
        name: "not-chosen",
        what: "LINKSPAN_IFNAME of the connecting side alone keeps other interfaces off, and names one that the routes take",
        waits: false,
        run: not_chosen,
    },
    Test { name: "killed-peer", what: "a killed peer is reported at once", waits: false, run: killed_peer },
    Test {
        name: "strict",
        what: "LINKSPAN_STRICT=1 turns a lost rail at connect into an error",
        waits: false,
        run: strict,
    },
    Test { name: "shm", what: "two processes on one host share memory and copy directly", waits: false, run: shm },
    Test {
        name: "shm-pid-namespace",
        what: "another pid namespace: the ring carries all, and says why",
        waits: false,
        run: shm_pid_namespace,
    },
    Test {
        name: "shm-no-ptrace",
        what: "a process that may not be traced: the ring carries all",
        waits: false,
        run: shm_no_ptrace,
    },
    Test { name: "shm-small-dev-shm", what: "a /dev/shm of 4 KiB does no harm", waits: false, run: shm_small_dev_shm },
    Test { name: "shm-low-memlock", what: "no locked memory does no harm", waits: false, run: shm_low_memlock },
    Test { name: "other-user", what: "another user of the host gets TCP, and a reason", waits: false, run: other_user },
    Test { name: "idle", what: "64 idle connections cost less than 0.1 % of a core", waits: false, run: idle },
    Test { name: "lspan-perf", what: "lspan perf from one host to another, and Ctrl-C", waits: false, run: lspan_perf },
    Test {
        name: "pairing",
        what: "two hosts pair from nothing, measure each other by name, and nobody else is let in",
        waits: false,
        run: pairing,
    },
    Test {
        name: "files",
        what: "the guide of docs/files.md between two hosts that are paired, and nobody else is let in",
        waits: true,
        run: files,
    },
    Test { name: "guides", what: "the pages of docs/start, typed in as printed", waits: true, run: crate::guides::run },
    Test {
        name: "devmem-refused",
        what: "device-memory TCP on a card that cannot: the kernel's own messages, and nothing is changed",
        waits: false,
        run: devmem_refused,
    },
    Test {
        name: "zerocopy",
        what: "memory lent to the kernel (MSG_ZEROCOPY) arrives whole, and the path says so",
        waits: false,
        run: zerocopy,
    },
    Test {
        name: "dead-host",
        what: "a host that vanishes in mid-transfer is reported within 30 s",
        waits: true,
        run: dead_host,
    },
    Test {
        name: "dead-idle-host",
        what: "a host that vanishes while nothing is sent is reported within 30 s",
        waits: true,
        run: dead_idle_host,
    },
    Test { name: "stopped-peer", what: "a peer stopped for 40 s is waited for", waits: true, run: stopped_peer },
];

pub(crate) const SOON: Duration = Duration::from_secs(10);

/// Chooses virtual cables, which are left out by default.
pub(crate) const CABLES: (&str, &str) = ("LINKSPAN_IFNAME", "cab");

fn up(world: &World, env: &[(&str, &str)], count: usize, size: usize) -> Outcome<(Node, Node)> {
    let (count, size) = (count.to_string(), size.to_string());
    let mut b = world.node("b", env, &["listen", &count, &size])?;
    let handle = b.expect("handle", SOON)?;
    let mut a = world.node("a", env, &["connect", &handle, &count, &size])?;
    a.expect("up", SOON)?;
    b.expect("up", SOON)?;
    Ok((a, b))
}

fn rate(done: &str) -> f64 {
    let words: Vec<&str> = done.split_whitespace().collect();
    words.windows(2).find(|w| w[1] == "Mbit/s").and_then(|w| w[0].parse().ok()).unwrap_or(0.0)
}

fn simple(a: &str, b: &str) -> Outcome<String> {
    let world = World::new(&["a", "b"])?;
    world.cable("cab0", ("a", a), ("b", b))?;
    let (mut from, mut to) = up(&world, &[CABLES], 64, 1_000_003)?;
    to.expect("done", SOON * 3)?;
    from.expect("done", SOON)
}

fn one_cable() -> Outcome<String> {
    simple("10.77.0.1/24", "10.77.0.2/24")
}

fn ipv6() -> Outcome<String> {
    simple("fd77::1/64", "fd77::2/64")
}

fn two_cables(world: &World) -> Outcome<()> {
    world.cable("cab0", ("a", "10.77.0.1/24"), ("b", "10.77.0.2/24"))?;
    world.cable("cab1", ("a", "10.77.1.1/24"), ("b", "10.77.1.2/24"))
}

fn two_rails() -> Outcome<String> {
    let world = World::new(&["a", "b"])?;
    two_cables(&world)?;
    // Slow enough that a busy machine is not what limits them.
    for (name, mbit) in [("cab0", 200), ("cab1", 80)] {
        world.shape("a", name, mbit)?;
    }
    let measure = |names: &str, mib: usize| -> Outcome<f64> {
        let (mut from, mut to) = up(&world, &[("LINKSPAN_IFNAME", names)], mib, 1 << 20)?;
        let done = to.expect("done", SOON * 3)?;
        from.expect("done", SOON)?;
        Ok(rate(&done))
    };
    let mut said = String::new();
    // The best of three: another job on the machine can only make it worse.
    for _ in 0..3 {
        let (one, two, both) = (measure("cab0", 40)?, measure("cab1", 20)?, measure("cab", 100)?);
        let ratio = both / (one + two);
        said = format!("{one:.0} and {two:.0} Mbit/s alone, {both:.0} together: {ratio:.2} of the sum");
        if ratio >= 0.9 {
            return Ok(said);
        }
    }
    Err(said)
}

fn rail_loss() -> Outcome<String> {
    let world = World::new(&["a", "b"])?;
    two_cables(&world)?;
    world.shape("a", "cab0", 300)?;
    world.shape("a", "cab1", 300)?;
    let (mut from, mut to) = up(&world, &[CABLES], 400, 1 << 20)?;
    to.expect("at", SOON)?;
    // Inside b nothing changes: the cable simply carries nothing more, as when a switch between them dies.
    let cut = Instant::now();
    world.ip("a", "link set cab0 down")?;
    let lost = from.expect("WARN rail lost", SOON)?;
    let noticed = cut.elapsed();
    if lost.contains("LS0101") {
        return Err(format!("a cut cable is not a dead peer: {lost}"));
    }
    world.ip("a", "link set cab0 up")?;
    from.expect("WARN rail back", SOON)?;
    let back = cut.elapsed();
    let done = to.expect("done", SOON * 6)?;
    from.expect("done", SOON)?;
    if to.heard("packets are not acknowledged") + from.heard("packets are not acknowledged") == 0 {
        return Err("neither side says why the rail is dead".into());
    }
    if to.heard("WARN rail lost") != 1 || from.heard("WARN rail lost") != 1 {
        return Err("more or less than one WARN line on each side".into());
    }
    if !done.contains("rails_lost 1") {
        return Err(format!("the counter is wrong: {done}"));
    }
    Ok(format!("noticed after {noticed:.1?}, back after {back:.1?}; {done}"))
}

/// As when the switch between them starts anew: nothing is left to go on with, and both sides must still have the same rail when it is back.
fn all_cables_out() -> Outcome<String> {
    let world = World::new(&["a", "b"])?;
    two_cables(&world)?;
    let env = [CABLES, ("LINKSPAN_TCP_STREAMS", "2")];
    let line = "--version 12 --test rounds --size 1M --rounds 1000000";
    let mut nodes = ranks(&world, &env, &["a", "b"], "10.77.0.1:7700", line)?;
    let mut out = Vec::new();
    for lasts in [2, 4] {
        nodes[0].next("v12 rounds[0]: round ")?;
        ["cab0", "cab1"].iter().try_for_each(|cable| world.ip("a", &format!("link set {cable} down")).map(drop))?;
        std::thread::sleep(Duration::from_secs(lasts));
        ["cab0", "cab1"].iter().try_for_each(|cable| world.ip("a", &format!("link set {cable} up")).map(drop))?;
        let healed = Instant::now();
        for (n, node) in nodes.iter_mut().enumerate() {
            node.next(&format!("v12 rounds[{n}]: round ")).map_err(|why| format!("out for {lasts} s: {why}"))?;
        }
        out.push(format!("{lasts} s: on after {:.1?}", healed.elapsed()));
    }
    Ok(out.join(", "))
}

/// Rails of one connection end one after the other, and the GOAWAY comes on one of them.
fn clean_end() -> Outcome<String> {
    let world = World::new(&["a", "b"])?;
    two_cables(&world)?;
    let env = [CABLES, ("LINKSPAN_TCP_STREAMS", "4")];
    let mut server = world.lspan("b", &env, "perf serve --open")?;
    server.expect("lspan: waiting on", SOON)?;
    let silent = |what: &str, said: &str| match said.lines().find(|line| line.contains("WARN")) {
        Some(line) => Err(format!("{what} that ended in good order: {line}")),
        None => Ok(()),
    };
    let perf = [("perf bw -s 1M -n 50 10.77.0.2", 8), ("perf write -s 1M -n 50 10.77.0.2", 4)];
    for (line, runs) in perf {
        for _ in 0..runs {
            let (code, said) = world.lspan("a", &env, line)?.end(SOON * 3)?;
            if code != Some(0) || !said.contains("cab0") || !said.contains("cab1") {
                return Err(format!("{line}: {code:?}: {said}"));
            }
            silent(line, &said)?;
        }
    }
    if server.heard("WARN") > 0 {
        return Err("the server warned of clients that ended in good order".into());
    }
    for _ in 0..3 {
        let line = "--version 12 --test allreduce --quick";
        for (code, said) in all_end(ranks(&world, &env, &["a", "b"], "10.77.0.1:7700", line)?)? {
            if code != Some(0) || !said.contains("cab1") {
                return Err(format!("plugin: {code:?}: {said}"));
            }
            silent("a job with the plugin", &said)?;
        }
    }
    Ok("12 runs of lspan perf and 3 jobs with the plugin, no warning".into())
}

fn short_cut() -> Outcome<String> {
    let world = World::new(&["a", "b"])?;
    world.cable("cab0", ("a", "10.77.0.1/24"), ("b", "10.77.0.2/24"))?;
    let mut to = world.node("b", &[CABLES], &["expose"])?;
    let at = to.expect("at", SOON)?;
    let (url, remote) = at.split_once(' ').ok_or("no remote buffer")?;
    let mut from = world.node("a", &[CABLES], &["write", url, remote])?;
    to.expect("got", SOON)?;
    from.expect("wrote", SOON)?;
    let cut = Instant::now();
    // The route goes with the cable, so that every dial fails at once.
    world.ip("a", "link set cab0 down")?;
    let late = from.expect("late", SOON)?;
    std::thread::sleep(Duration::from_secs(3).saturating_sub(cut.elapsed()));
    world.ip("a", "link set cab0 up")?;
    // What came before the cut is not waited for again.
    let (_, since) = (to.heard("got"), Instant::now());
    let again = to.expect("got", SOON);
    if from.heard("error") > 0 || again.is_err() {
        return Err(format!("nothing is written any more: {}", from.expect("error", SOON).unwrap_or_default()));
    }
    Ok(format!("written again {:.1?} after the cable came back; {late}", since.elapsed()))
}

/// Two hosts of which b listens on two shaped cables; `cut` makes the second one useless before a connects, `mend` undoes it.
fn late(cut: (&str, &str), mend: (&str, &str)) -> Outcome<String> {
    let world = World::new(&["a", "b"])?;
    two_cables(&world)?;
    world.shape("a", "cab0", 200)?;
    world.shape("a", "cab1", 200)?;
    let mut to = world.node("b", &[CABLES], &["listen", "400", "1048576"])?;
    let handle = to.expect("handle", SOON)?;
    world.ip(cut.0, cut.1)?;
    let mut from = world.node("a", &[CABLES], &["connect", &handle, "400", "1048576"])?;
    let up = from.expect("up", SOON)?;
    if up.contains("rails") {
        return Err(format!("a rail over a cable that is cut: {up}"));
    }
    to.expect("at", SOON)?;
    world.ip(mend.0, mend.1)?;
    let mended = Instant::now();
    let added = from.expect("INFO rail added", SOON * 2)?;
    let took = mended.elapsed();
    to.expect("INFO rail added", SOON)?;
    let done = to.expect("done", SOON * 6)?;
    from.expect("done", SOON)?;
    if !done.contains("rails_lost 0") || from.heard("rail added") != 1 || from.heard("rail lost") > 0 {
        return Err(format!("a rail was lost, or added more than once: {done}"));
    }
    Ok(format!("after {took:.1?}: {added}; {done}"))
}

fn late_rail() -> Outcome<String> {
    late(("a", "link set cab1 down"), ("a", "link set cab1 up"))
}

fn late_peer() -> Outcome<String> {
    late(("b", "addr del 10.77.1.2/24 dev cab1"), ("b", "addr add 10.77.1.2/24 dev cab1"))
}

fn same_docker0() -> Outcome<String> {
    let world = World::new(&["a", "b"])?;
    for host in ["a", "b"] {
        world.ip(host, "link add docker0 type bridge")?;
        world.ip(host, "addr add 172.17.0.1/16 dev docker0")?;
        world.ip(host, "link set docker0 up")?;
    }
    world.cable("eth7", ("a", "10.77.0.1/24"), ("b", "10.77.0.2/24"))?;
    let env = [("LINKSPAN_IFNAME", "^docker,lo"), ("NCCL_DEBUG", "")];
    // Excluding by name keeps virtual cables left out, so they are asked for; docker0 is not named.
    let env_cables = [("LINKSPAN_IFNAME", "eth"), env[1]];
    let (mut from, mut to) = up(&world, &env_cables, 16, 100_000)?;
    let done = to.expect("done", SOON)?;
    from.expect("done", SOON)?;
    // And where both are asked for, the handshake over docker0 must fail without harm.
    let both = [("LINKSPAN_IFNAME", "eth,docker")];
    let (mut from, mut to) = up(&world, &both, 16, 100_000)?;
    to.expect("done", SOON)?;
    from.expect("done", SOON)?;
    Ok(done)
}

/// Two pods of a node: each has `eth0`, a virtual cable to a bridge of the node, and the default route over it.
fn pods() -> Outcome<String> {
    let world = World::new(&["node", "a", "b"])?;
    world.ip("node", "link add cni0 type bridge")?;
    world.ip("node", "addr add 10.88.0.1/16 dev cni0")?;
    world.ip("node", "link set cni0 up")?;
    for (pod, addr) in [("a", "10.88.0.2"), ("b", "10.88.0.3")] {
        world.ip("node", &format!("link add pod{pod} type veth peer name eth0 netns {}", world.ns(pod)))?;
        world.ip("node", &format!("link set pod{pod} up master cni0"))?;
        world.ip(pod, &format!("addr add {addr}/16 dev eth0"))?;
        world.ip(pod, "link set eth0 up")?;
        world.ip(pod, "route add default via 10.88.0.1")?;
    }
    let named = "WARN downgrade: LS0517 eth0 (";
    let (mut from, mut to) = up(&world, &[], 64, 1_000_003)?;
    to.expect("done", SOON * 3)?;
    from.expect("done", SOON)?;
    if (from.heard(named), to.heard(named), from.heard("WARN"), to.heard("WARN")) != (1, 1, 1, 1) {
        return Err("not one warning on each side, which names the interface".into());
    }
    let strict = ("LINKSPAN_STRICT", "1");
    let mut b = world.node("b", &[strict], &["listen", "1", "8"])?;
    let handle = b.expect("handle", SOON)?;
    let _a = world.node("a", &[], &["connect", &handle, "1", "8"])?;
    let error = b.expect("error", SOON)?;
    if !error.contains("LS0509") || !error.contains("LS0517 eth0 (") {
        return Err(format!("the listening side accepts it in strict mode: {error}"));
    }

    let mut server = world.lspan("b", &[], "perf serve --open")?;
    server.expect("lspan: waiting on", SOON)?;
    for (line, env, wanted, warnings, text) in [
        ("perf bw -s 1M -n 20 10.88.0.3", &[][..], 3, 1, "# degraded: LS0517"),
        ("perf lat -s 8 -n 20 10.88.0.3", &[strict], 3, 1, "LS0509"),
        ("perf lat -s 8 -n 20 10.88.0.3", &[strict, ("LINKSPAN_IFNAME", "eth0")], 0, 0, "10.88.0.2:"),
        ("status", &[], 3, 1, "yes, as a last resort: it has the default route"),
    ] {
        let (code, said) = world.lspan("a", env, line)?.end(SOON * 3)?;
        if code != Some(wanted) || said.matches(named).count() != warnings || !said.contains(text) {
            return Err(format!("{line} {env:?}: {code:?}: {said}"));
        }
    }
    Ok(error)
}

/// Shows a process a sysfs in which `cab*` are cables of thunderbolt_net and `wlan*` radios.
const THUNDERBOLT: &[&str] = &[
    "unshare",
    "--mount",
    "sh",
    "-c",
    "mount -t tmpfs none /mnt && cd /sys/class/net && for i in *; do
        mkdir /mnt/$i
        for f in ifindex iflink type flags mtu address uevent; do cat $i/$f > /mnt/$i/$f 2> /dev/null; done
        case $i in
            cab*) mkdir /mnt/$i/device && ln -s /sys/bus/thunderbolt/drivers/thunderbolt-net /mnt/$i/device/driver ;;
            wlan*) mkdir /mnt/$i/device /mnt/$i/wireless ;;
        esac
    done; mount --bind /mnt /sys/class/net && exec \"$0\" \"$@\"",
];

/// Hosts whose kernel gives every interface an address of fe80::/10, which can be used at once.
fn bare_world() -> Outcome<World> {
    let world = World::new(&["a", "b", "c"])?;
    for host in ["a", "b", "c"] {
        let dad = "echo 0 > /proc/sys/net/ipv6/conf/default/accept_dad";
        world.program(host, &[], &["sh", "-c", dad])?.end(SOON)?;
    }
    Ok(world)
}

/// The connection of a to b, and whether its paths are these.
fn bare_up(world: &World, env: &[(&str, &str)], paths: &[&str]) -> Outcome<String> {
    let strict = [env, &[("LINKSPAN_STRICT", "1")]].concat();
    let mut b = world.node_under("b", THUNDERBOLT, &strict, &["listen", "64", "1000003"])?;
    let handle = b.expect("handle", SOON)?;
    let mut a = world.node_under("a", THUNDERBOLT, &strict, &["connect", &handle, "64", "1000003"])?;
    let up = a.expect("up", SOON)?;
    b.expect("done", SOON * 3)?;
    a.expect("done", SOON)?;
    let mut found: Vec<&str> =
        up.split_whitespace().filter(|w| ["cab0", "cab1", "cab2", "wlan0"].contains(w)).collect();
    found.dedup();
    let warned = a.heard("WARN") + b.heard("WARN");
    if found != paths || warned > 0 { Err(format!("{env:?}: {warned} warnings, {found:?} in {up}")) } else { Ok(up) }
}

fn bare_cables() -> Outcome<String> {
    let world = bare_world()?;
    let (v4, v6) = (("NCCL_SOCKET_FAMILY", "AF_INET"), ("NCCL_SOCKET_FAMILY", "AF_INET6"));
    let cable = |(a, from, ip): (&str, &str, &str), (b, to, peer): (&str, &str, &str)| {
        let (ns, other) = (world.ns(a), world.ns(b));
        crate::world::sh(&format!("ip link add {from} netns {ns} type veth peer name {to} netns {other}"))?;
        for (host, name, ip) in [(a, from, ip), (b, to, peer)] {
            world.ip(host, &format!("addr add {ip}/16 dev {name}"))?;
            world.ip(host, &format!("link set {name} up"))?;
        }
        Ok::<(), String>(())
    };
    // Two join the hosts, one of each leads elsewhere.
    cable(("a", "cab0", "169.254.1.1"), ("c", "cab0", "169.254.3.1"))?;
    cable(("a", "cab1", "169.254.1.2"), ("b", "cab2", "169.254.2.3"))?;
    cable(("a", "cab2", "169.254.1.3"), ("b", "cab1", "169.254.2.2"))?;
    cable(("b", "cab0", "169.254.2.1"), ("c", "cab1", "169.254.3.2"))?;
    // The kernel is in no hurry to give IPv6 addresses.
    for host in ["a", "b"] {
        let all = "until [ $(ip -6 -o addr show scope link -tentative | wc -l) = 3 ]; do sleep 0.05; done";
        world.program(host, &[], &["sh", "-c", all])?.end(SOON)?;
    }
    let mut said = String::new();
    for env in [&[][..], &[v4], &[v6]] {
        said = bare_up(&world, env, &["cab1", "cab2"])?;
    }
    let mut server = world.lspan_under("b", THUNDERBOLT, &[], "perf serve --open")?;
    server.expect("lspan: waiting on", SOON)?;
    // The question, unlike the connection, goes by the routes, which know one interface for all of that prefix.
    world.ip("a", "route add 169.254.2.3/32 dev cab1")?;
    world.ip("b", "route add 169.254.1.2/32 dev cab2")?;
    let (code, text) = world.lspan_under("a", THUNDERBOLT, &[], "perf bw -s 1M -n 20 169.254.2.3")?.end(SOON * 3)?;
    if code != Some(0) || !text.contains("cab1 ") || !text.contains("cab2 ") || text.contains("downgrade") {
        return Err(format!("{code:?}: {text}"));
    }
    drop(server);

    // A radio beside: it carries where no cable leads to the peer, and is needless where one does.
    cable(("a", "wlan0", "10.77.0.1"), ("b", "wlan0", "10.77.0.2"))?;
    bare_up(&world, &[], &["cab1", "cab2"])?;
    world.ip("a", "link del cab1")?;
    world.ip("a", "link del cab2")?;
    bare_up(&world, &[], &["wlan0"])?;
    // One host: whatever its cables.
    let mut b = world.node_under("a", THUNDERBOLT, &[("LINKSPAN_PATH", "tcp"), v4], &["listen", "4", "100000"])?;
    let handle = b.expect("handle", SOON)?;
    let connect = ["connect", &handle, "4", "100000"];
    world.node_under("a", THUNDERBOLT, &[("LINKSPAN_PATH", "tcp")], &connect)?.expect("done", SOON)?;
    b.expect("done", SOON)?;
    Ok(said)
}

/// Joins interface `name` of `a` to that of another host; beside these addresses the kernel gives them link-local ones.
fn bare_cable(world: &World, name: &str, to: &str, ends: [&str; 2]) -> Outcome<()> {
    let (a, b) = (world.ns("a"), world.ns(to));
    crate::world::sh(&format!("ip link add {name} netns {a} type veth peer name {name} netns {b}"))?;
    for (host, addr) in ["a", to].into_iter().zip(ends) {
        if !addr.is_empty() {
            world.ip(host, &format!("addr add {addr} dev {name}"))?;
        }
        world.ip(host, &format!("link set {name} up"))?;
    }
    for host in ["a", to] {
        let own =
            format!("until ip -6 -o addr show dev {name} scope link -tentative | grep -q fe80; do sleep 0.05; done");
        world.program(host, &[], &["sh", "-c", &own])?.end(SOON)?;
    }
    Ok(())
}

fn half_bare_cable() -> Outcome<String> {
    let world = bare_world()?;
    // Beside it a radio, over which all went before.
    bare_cable(&world, "wlan0", "b", ["10.66.0.1/24", "10.66.0.2/24"])?;
    bare_cable(&world, "cab0", "b", ["10.77.0.1/24", ""])?;
    world.ip("b", "addr add fe80::2/64 dev cab0 nodad")?;
    // The one that connects has the routed address, then the one that listens, then both have one, of different subnets.
    bare_up(&world, &[], &["cab0"])?;
    world.ip("b", "addr add 10.78.0.2/24 dev cab0")?;
    bare_up(&world, &[], &["cab0"])?;
    world.ip("a", "addr del 10.77.0.1/24 dev cab0")?;
    let said = bare_up(&world, &[], &["cab0"])?;
    let mut server = world.lspan_under("b", THUNDERBOLT, &[], "perf serve --open")?;
    server.expect("lspan: waiting on", SOON)?;
    let (code, text) = world.lspan_under("a", THUNDERBOLT, &[], "perf bw -s 1M -n 20 fe80::2%cab0")?.end(SOON * 3)?;
    if code != Some(0) || !text.contains("cab0 [fe80::") || text.contains("wlan0") {
        return Err(format!("{code:?}: {text}"));
    }
    // In one subnet: by that, and nothing else is tried.
    world.ip("a", "addr add 10.78.0.1/24 dev cab0")?;
    let up = bare_up(&world, &[], &["cab0"])?;
    if up.contains("fe80::") { Err(format!("a link-local address beside a shared subnet: {up}")) } else { Ok(said) }
}

fn not_chosen() -> Outcome<String> {
    let world = bare_world()?;
    bare_cable(&world, "wlan0", "b", ["10.66.0.1/24", "10.66.0.2/24"])?;
    bare_cable(&world, "cab0", "b", ["", ""])?;
    bare_cable(&world, "cab1", "c", ["", ""])?;
    let connected = |env: &[(&str, &str)]| -> Outcome<(Node, Node)> {
        // The listening side has chosen nothing, and offers both. The radios have RDMA devices, which do not reach each other.
        let mut b = world.node_under("b", THUNDERBOLT, &[], &["soft", "wlan0", "listen", "2", "64"])?;
        let handle = b.expect("handle", SOON)?;
        Ok((world.node_under("a", THUNDERBOLT, env, &["soft", "wlan0", "connect", &handle, "1", "64"])?, b))
    };
    let strict = ("LINKSPAN_STRICT", "1");
    let (mut a, mut b) = connected(&[("LINKSPAN_IFNAME", "cab0"), strict])?;
    let up = a.expect("up", SOON)?;
    b.expect("up", SOON)?;
    let mut streams = world.program("a", &[], &["sh", "-c", "ss -Htn state established; echo end"])?;
    streams.expect("end", SOON)?;
    let (cable, radio) = (streams.heard("fe80::"), streams.heard("10.66.0."));
    if cable < 2 || radio > 0 || !up.contains("cab0 ") {
        return Err(format!("{cable} streams over the cable that was chosen, {radio} over the radio: {up}"));
    }
    drop((a, b));

    // The one that is chosen leads elsewhere.
    let (mut a, _b) = connected(&[("LINKSPAN_IFNAME", "cab1")])?;
    let named = a.expect("WARN downgrade: LS0550", SOON)?;
    let up = a.expect("up", SOON)?;
    let over = "over wlan0, which LINKSPAN_IFNAME=cab1 does not choose";
    if !named.contains(over) || !up.contains(over) || a.heard("WARN") != 1 || a.heard("RDMA") > 0 {
        return Err(format!("the interface is not named in both, or its RDMA device was asked for: {named}; {up}"));
    }
    let (mut a, _b) = connected(&[("LINKSPAN_IFNAME", "cab1"), strict])?;
    let error = a.expect("error", SOON)?;
    if error.contains("LS0509") && error.contains(over) { Ok(up) } else { Err(error) }
}

fn killed_peer() -> Outcome<String> {
    let world = World::new(&["a", "b"])?;
    world.cable("cab0", ("a", "10.77.0.1/24"), ("b", "10.77.0.2/24"))?;
    world.shape("a", "cab0", 200)?;
    let (from, mut to) = up(&world, &[CABLES], 1000, 1 << 20)?;
    to.expect("at", SOON)?;
    let killed = Instant::now();
    from.signal("KILL")?;
    let why = to.expect("lost", Duration::from_secs(3))?;
    Ok(format!("after {:.2?}: {why}", killed.elapsed()))
}

fn strict() -> Outcome<String> {
    let world = World::new(&["a", "b"])?;
    two_cables(&world)?;
    let env = [CABLES, ("LINKSPAN_STRICT", "1"), ("LINKSPAN_CONNECT_TIMEOUT_MS", "3000")];
    let mut b = world.node("b", &env, &["listen", "1", "8"])?;
    let handle = b.expect("handle", SOON)?;
    world.ip("b", "addr del 10.77.1.2/24 dev cab1")?;
    let mut a = world.node("a", &env, &["connect", &handle, "1", "8"])?;
    let error = a.expect("error", SOON)?;
    if !error.contains("10.77.1.2") || !error.contains("LS0509") {
        return Err(format!("the error does not name the rail: {error}"));
    }
    Ok(error)
}

fn dead_host() -> Outcome<String> {
    let world = World::new(&["a", "b"])?;
    world.cable("cab0", ("a", "10.77.0.1/24"), ("b", "10.77.0.2/24"))?;
    world.shape("a", "cab0", 200)?;
    let (mut from, mut to) = up(&world, &[CABLES], 4000, 1 << 20)?;
    to.expect("at", SOON)?;
    let dead = Instant::now();
    world.ip("a", "link set cab0 down")?;
    let (limit, here) = (Duration::from_secs(30), from.expect("lost", Duration::from_secs(31))?);
    to.expect("lost", limit.saturating_sub(dead.elapsed()) + Duration::from_secs(1))?;
    let took = dead.elapsed();
    if took > limit {
        Err(format!("only after {took:.1?}"))
    } else {
        Ok(format!("both sides within {took:.1?}: {here}"))
    }
}

fn dead_idle_host() -> Outcome<String> {
    let world = World::new(&["a", "b"])?;
    world.cable("cab0", ("a", "10.77.0.1/24"), ("b", "10.77.0.2/24"))?;
    let (_from, mut to) = {
        let (mut b, count) = (world.node("b", &[CABLES], &["listen", "2", "64"])?, "1");
        let handle = b.expect("handle", SOON)?;
        let a = world.node("a", &[CABLES], &["connect", &handle, count, "64"])?;
        b.expect("up", SOON)?;
        (a, b)
    };
    let dead = Instant::now();
    world.ip("a", "link set cab0 down")?;
    let why = to.expect("lost", Duration::from_secs(30))?;
    Ok(format!("after {:.1?}: {why}", dead.elapsed()))
}

fn stopped_peer() -> Outcome<String> {
    let world = World::new(&["a", "b"])?;
    world.cable("cab0", ("a", "10.77.0.1/24"), ("b", "10.77.0.2/24"))?;
    world.cable("cab1", ("a", "10.77.1.1/24"), ("b", "10.77.1.2/24"))?;
    world.shape("a", "cab0", 300)?;
    let (mut from, mut to) = up(&world, &[CABLES], 300, 1 << 20)?;
    to.expect("at", SOON)?;
    to.signal("STOP")?;
    std::thread::sleep(Duration::from_secs(40));
    if from.heard("lost") > 0 || from.heard("WARN") > 0 {
        return Err("the stopped peer was given up".into());
    }
    to.signal("CONT")?;
    let done = to.expect("done", SOON * 4)?;
    from.expect("done", SOON)?;
    Ok(done)
}

/// Two processes on one host, each under a command; says how they were joined.
fn neighbours(under: [&[&str]; 2], env: &[(&str, &str)]) -> Outcome<(World, Node, Node, String)> {
    let world = World::new(&["a"])?;
    let mut b = world.node_under("a", under[0], env, &["listen", "20", "3000000"])?;
    let handle = b.expect("handle", SOON)?;
    let mut a = world.node_under("a", under[1], env, &["connect", &handle, "20", "3000000"])?;
    let up = a.expect("up", SOON)?;
    b.expect("done", SOON)?;
    a.expect("done", SOON)?;
    Ok((world, a, b, up))
}

fn shm() -> Outcome<String> {
    let (_world, mut a, _b, up) = neighbours([&[], &[]], &[])?;
    if !up.starts_with("shm") || a.heard("WARN downgrade") > 0 {
        return Err(up);
    }
    Ok(up)
}

/// Every byte through the ring, one WARN line that says why.
fn ring_only(under: [&[&str]; 2], why: &str) -> Outcome<String> {
    let (_world, mut a, mut b, up) = neighbours(under, &[])?;
    let told = a.heard("WARN downgrade") + b.heard("WARN downgrade");
    if !up.starts_with("shm") || !up.contains(why) || told == 0 {
        return Err(format!("{told} warnings; {up}"));
    }
    Ok(up)
}

fn shm_pid_namespace() -> Outcome<String> {
    ring_only([&["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"], &[]], "pid namespace")
}

fn shm_no_ptrace() -> Outcome<String> {
    // A program that its user may run and not read is not dumpable, so no process of that user may look into it
    // (prctl(2), PR_SET_DUMPABLE); what ptrace_scope 2 does to all. Such programs cannot be had by setting an option.
    let copy = std::env::temp_dir().join(format!("linkspan-unreadable-{}", std::process::id()));
    let exe = std::env::current_exe().map_err(|e| e.to_string())?;
    std::fs::copy(exe, &copy).map_err(|e| e.to_string())?;
    std::fs::set_permissions(&copy, std::os::unix::fs::PermissionsExt::from_mode(0o711)).map_err(|e| e.to_string())?;
    let script = format!("exec {} \"$@\"", copy.display());
    let under: &[&str] = &["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", "sh", "-c", &script];
    let result = ring_only([under, under], "process_vm_readv");
    let _ = std::fs::remove_file(&copy);
    result
}

fn shm_small_dev_shm() -> Outcome<String> {
    let small: &[&str] =
        &["unshare", "--mount", "sh", "-c", "mount -t tmpfs -o size=4k none /dev/shm && exec \"$0\" \"$@\""];
    let (_world, _a, _b, up) = neighbours([small, small], &[])?;
    if up.starts_with("shm") { Ok(up) } else { Err(up) }
}

fn shm_low_memlock() -> Outcome<String> {
    let low: &[&str] = &["prlimit", "--memlock=0:0"];
    let (_world, _a, _b, up) = neighbours([low, low], &[])?;
    if up.starts_with("shm") { Ok(up) } else { Err(up) }
}

fn other_user() -> Outcome<String> {
    // nobody (65534) exists everywhere.
    let nobody: &[&str] = &["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"];
    let world = World::new(&["a"])?;
    let mut b = world.node_under("a", nobody, &[], &["listen", "4", "3000000"])?;
    let handle = b.expect("handle", SOON)?;
    let mut a = world.node("a", &[], &["connect", &handle, "4", "3000000"])?;
    let up = a.expect("up", SOON)?;
    b.expect("done", SOON)?;
    if !up.starts_with("tcp") || a.heard("WARN downgrade") == 0 {
        return Err(up);
    }
    Ok(up)
}

fn idle() -> Outcome<String> {
    let mut said = String::new();
    for path in ["tcp", "shm"] {
        let world = World::new(&["a"])?;
        let mut a = world.node("a", &[("LINKSPAN_PATH", path)], &["idle", "64", "10"])?;
        let line = a.expect("idle", SOON * 3)?;
        let words: Vec<&str> = line.split_whitespace().collect();
        let percent: f64 = words.get(4).and_then(|w| w.parse().ok()).unwrap_or(100.0);
        // Both ends are in this process, so 0.1 % for 64 ends are 0.2 % here.
        if percent >= 0.2 || words.get(2) != Some(&"1") {
            return Err(format!("{path}: {line}"));
        }
        said.push_str(&format!("{path}: {line}. "));
    }
    Ok(said)
}

/// What people do with two hosts: a server on one, tests and their baseline from the other, Ctrl-C in mid-run.
fn lspan_perf() -> Outcome<String> {
    let world = World::new(&["a", "b"])?;
    world.cable("cab0", ("a", "10.77.0.1/24"), ("b", "10.77.0.2/24"))?;
    let mut server = world.lspan("b", &[CABLES], "perf serve --open")?;
    let said = server.expect("lspan: waiting on", SOON)?;
    if !said.contains("10.77.0.2:24680") {
        return Err(format!("the server does not wait on its cable: {said}"));
    }
    let mut lines = Vec::new();
    for (line, wanted) in [
        ("perf bw -s 1M -n 50 --baseline 10.77.0.2", &["10.77.0.1:", "x bare TCP loop:", "bare TCP, same window"][..]),
        ("perf lat -s 8 -n 200 10.77.0.2", &["10.77.0.1:", "10.77.0.2:"]),
    ] {
        let (code, said) = world.lspan("a", &[CABLES], line)?.end(SOON * 3)?;
        if code != Some(0) || !wanted.iter().all(|part| said.contains(part)) || said.contains("direct copy") {
            return Err(format!("{line}: {code:?}: {said}"));
        }
        lines.extend(said.lines().find(|line| line.contains("bare TCP loop:")).map(|line| line.trim().to_owned()));
    }
    let before = sent(&world, "a", "cab0")?;
    let mut client = world.lspan("a", &[CABLES], "perf bw -s 64K --warmup 2 -d 1h 10.77.0.2")?;
    let since = Instant::now();
    while sent(&world, "a", "cab0")? < before + (8 << 20) {
        if since.elapsed() > SOON {
            return Err("nothing is measured".into());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    client.signal("INT")?;
    let (code, said) = client.end(SOON)?;
    if code != Some(130) || !said.contains("64K") || !said.contains("LS0709") {
        return Err(format!("after Ctrl-C: {code:?}: {said}"));
    }
    let (code, said) = world.lspan("a", &[CABLES], "perf lat -s 8 -n 20 10.77.0.2")?.end(SOON)?;
    if code != Some(0) {
        return Err(format!("the server does not go on after a client's Ctrl-C: {said}"));
    }
    world.cable("cab1", ("a", "10.77.1.1/24"), ("b", "10.77.1.2/24"))?;
    server.expect_part("10.77.1.2:24680", SOON)?;
    for peer in ["10.77.0.2", "10.77.1.2"] {
        let (code, said) = world.lspan("a", &[CABLES], &format!("perf bw -s 1M -n 50 {peer}"))?.end(SOON)?;
        if code != Some(0) || !said.contains("10.77.1.2:") {
            return Err(format!("a cable that came after the server, asked at {peer}, is not used: {code:?}: {said}"));
        }
    }
    Ok(lines.concat())
}

/// The guide of docs/pairing.md, as printed.
fn pairing() -> Outcome<String> {
    let world = World::new(&["a", "b", "c"])?;
    world.cable("cab0", ("a", "10.77.0.1/24"), ("b", "10.77.0.2/24"))?;
    world.cable("cab1", ("b", "10.77.1.2/24"), ("c", "10.77.1.3/24"))?;
    let homes = std::env::temp_dir().join(format!("linkspan-netns-keys-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&homes);
    let home = |host: &str| homes.join(host).to_string_lossy().into_owned();
    let (at_a, at_b, at_c) = (home("a"), home("b"), home("c"));
    let keys = |home| [("XDG_CONFIG_HOME", home), CABLES];
    let (a, b, c) = (keys(at_a.as_str()), keys(at_b.as_str()), keys(at_c.as_str()));

    let mut offer = world.lspan("a", &a, "pair --name mini1")?;
    let line = offer.expect("lspan pair ", SOON)?;
    let (code, joined) = world.lspan("b", &b, &format!("pair {line} --name mini2"))?.end(SOON)?;
    let (other, offered) = offer.end(SOON)?;
    let of = |said: &str| said.lines().find_map(|l| l.strip_prefix("fingerprint of the pairing: ").map(str::to_owned));
    if (code, other) != (Some(0), Some(0)) || of(&joined).is_none() || of(&joined) != of(&offered) {
        return Err(format!("pairing: {code:?}: {joined}; {other:?}: {offered}"));
    }
    let (code, said) = world.lspan("c", &c, &format!("pair {line}"))?.end(SOON * 2)?;
    if code != Some(4) || !said.contains("LS0546") {
        return Err(format!("a line used twice: {code:?}: {said}"));
    }

    let mut server = world.lspan("b", &b, "perf serve")?;
    server.expect("lspan: waiting on 127.0.0.1:24680, 10.77.0.2:24680", SOON)?;
    let (code, said) = world.lspan("a", &a, "perf lat -s 8 -n 200 mini2")?.end(SOON)?;
    if code != Some(0) || !said.contains("10.77.0.1:") || !said.contains("10.77.0.2:") {
        return Err(format!("by name: {code:?}: {said}"));
    }
    let (code, said) = world.lspan("c", &c, "perf lat -s 8 -n 20 10.77.1.2")?.end(SOON)?;
    if code != Some(5) || !said.contains("LS0230") || server.heard("LS0229") == 0 {
        return Err(format!("one that is not paired: {code:?}: {said}"));
    }
    let (code, said) = world.lspan("a", &a, "key forget mini2")?.end(SOON)?;
    if code != Some(0) {
        return Err(format!("forget: {code:?}: {said}"));
    }
    let (code, said) = world.lspan("a", &a, "perf lat -s 8 -n 20 10.77.0.2")?.end(SOON)?;
    if code != Some(5) || !said.contains("LS0229") {
        return Err(format!("one that is forgotten: {code:?}: {said}"));
    }
    let _ = std::fs::remove_dir_all(&homes);
    Ok(of(&joined).unwrap_or_default())
}

/// The commands of the guide of docs/files.md, typed in as they are printed there, but for the directory that is served; the server is the other
/// host's root here.
fn files() -> Outcome<String> {
    let world = World::new(&["a", "b", "c"])?;
    world.cable("cab0", ("a", "10.77.0.1/24"), ("b", "10.77.0.2/24"))?;
    world.cable("cab1", ("b", "10.77.1.2/24"), ("c", "10.77.1.3/24"))?;
    let homes = std::env::temp_dir().join(format!("linkspan-netns-files-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&homes);
    let home = |host: &str| homes.join(host).to_string_lossy().into_owned();
    let (at_a, at_b, at_c) = (home("a"), home("b"), home("c"));
    let keys = |home| [("XDG_CONFIG_HOME", home), ("XDG_STATE_HOME", home), CABLES];
    let (a, b, c) = (keys(at_a.as_str()), keys(at_b.as_str()), keys(at_c.as_str()));
    let (llama, here, srv) = (format!("{at_a}/llama"), format!("{at_a}/here/"), format!("{at_b}/models"));
    let model: Vec<u8> = (0..9_000_001u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    let made = [&llama, &here, &srv].iter().try_for_each(std::fs::create_dir_all);
    made.and_then(|()| std::fs::write(format!("{llama}/model.bin"), &model)).map_err(|error| error.to_string())?;

    let mut offer = world.lspan("b", &b, "pair --name spark")?;
    let line = offer.expect("lspan pair ", SOON)?;
    let (code, said) = world.lspan("a", &a, &format!("pair {line} --name mini"))?.end(SOON)?;
    if code != Some(0) || offer.end(SOON)?.0 != Some(0) {
        return Err(format!("pairing: {code:?}: {said}"));
    }
    let printed = include_str!("../../../docs/files.md").lines().filter_map(|line| line.strip_prefix("lspan "));
    let serve = printed.clone().find(|line| line.starts_with("files serve ")).ok_or("the page serves nothing")?;
    let serve = serve.replace("/srv/models", &srv);
    let mut server = world.lspan("b", &b, &format!("{serve} --as-root"))?;
    server.expect("lspan: serving models (read and write) on ", SOON)?;
    let guide = printed.skip_while(|line| !line.starts_with("ls ")).map(|line| line.split(" #").next().unwrap_or(line));
    let guide: Vec<&str> = guide.take(8).collect();
    if !guide.last().is_some_and(|line| line.starts_with("rm -r ")) {
        return Err(format!("the guide ends in another way: {guide:?}"));
    }
    let lspan = world.lspan_path()?;
    for line in &guide {
        let typed = format!("cd {at_a}; exec {lspan} {line} 2>&1");
        let (code, said) = world.program("a", &a, &["sh", "-euc", &typed])?.end(SOON * 2)?;
        if code != Some(0) {
            return Err(format!("{line}: {code:?}: {said}"));
        }
        if line.starts_with("send") && std::fs::read(format!("{srv}/llama/model.bin")).ok().as_ref() != Some(&model) {
            return Err("what was sent is not what is there".into());
        }
    }
    if std::fs::read(format!("{here}model.bin")).ok() != Some(model) {
        return Err("what was got is not what was sent".into());
    }
    let (code, said) = world.lspan("c", &c, "ls 10.77.1.2:")?.end(SOON)?;
    if code == Some(0) || said.contains("models") {
        return Err(format!("one that is not paired: {code:?}: {said}"));
    }
    // Another cable in place of the one that was there when the server began.
    world.cable("cab2", ("a", "10.77.2.1/24"), ("b", "10.77.2.2/24"))?;
    server.expect_part("10.77.2.2:24681", SOON)?;
    world.ip("a", "link del cab0")?;
    let (code, said) = world.lspan("a", &a, &format!("send {llama}/model.bin 10.77.2.2:models/"))?.end(SOON * 2)?;
    if code != Some(0) || !said.contains("10.77.2.2:") {
        return Err(format!("over a cable that came after the server: {code:?}: {said}"));
    }
    let _ = std::fs::remove_dir_all(&homes);
    Ok(format!("{} commands", guide.len()))
}

/// A virtual cable has no queues to bind. Kernels before 6.12 have no such interface at all, and say so in other words.
fn devmem_refused() -> Outcome<String> {
    let world = World::new(&["a", "b"])?;
    world.cable("cab0", ("a", "10.77.0.1/24"), ("b", "10.77.0.2/24"))?;
    let mut words = String::new();
    for line in ["devmem probe cab0", "devmem up cab0 --plan", "devmem up cab0"] {
        let (code, said) = world.lspan("a", &[CABLES], line)?.end(SOON)?;
        let kernel = said.contains("LS1333 the kernel refuses binding device memory for receiving")
            && said.contains("Operation not supported");
        if code != Some(4) || !(kernel || said.contains("came with Linux 6.12")) {
            return Err(format!("{line}: {code:?}: {said}"));
        }
        words = said.lines().find(|l| l.contains("LS1333") || l.contains("6.12")).unwrap_or_default().trim().to_owned();
    }
    let forced = ("LINKSPAN_PATH", "devmem");
    let mut server = world.lspan("b", &[CABLES], "perf serve --open")?;
    server.expect("lspan: waiting on", SOON)?;
    let (code, said) = world.lspan("a", &[CABLES, forced], "perf lat -s 8 -n 20 10.77.0.2")?.end(SOON)?;
    if code != Some(4) || !said.contains("LS0511") || !said.contains("run `lspan devmem up cab0`") {
        return Err(format!("forced: {code:?}: {said}"));
    }
    // Queues that are named are tried when GPU memory comes, and nothing of it is seen before.
    let queues = ("LINKSPAN_DEVMEM_QUEUES", "cab0:0");
    let (code, said) = world.lspan("a", &[CABLES, queues], "perf lat -s 8 -n 20 10.77.0.2")?.end(SOON)?;
    if code != Some(3) || !said.contains("TCP in place of device-memory TCP: the peer's card is not set up for it") {
        return Err(format!("one side only: {code:?}: {said}"));
    }
    Ok(words)
}

/// A virtual cable copies in the end, so the lending is given up on the way: no byte may be lost over that.
fn zerocopy() -> Outcome<String> {
    let world = World::new(&["a", "b"])?;
    world.cable("cab0", ("a", "10.77.0.1/24"), ("b", "10.77.0.2/24"))?;
    let lending = ("LINKSPAN_ZEROCOPY", "65536");
    let (mut from, mut to) = up(&world, &[CABLES, lending], 64, 1_000_003)?;
    to.expect("done", SOON * 3)?;
    from.expect("done", SOON)?;
    let mut server = world.lspan("b", &[CABLES], "perf serve --open")?;
    server.expect("lspan: waiting on", SOON)?;
    let (code, said) = world.lspan("a", &[CABLES, lending], "perf bw -s 1M -n 50 10.77.0.2")?.end(SOON * 3)?;
    match said.lines().find(|line| line.contains("zero-copy sends from 65536 bytes")) {
        Some(line) if code == Some(0) => Ok(line.trim().to_owned()),
        _ => Err(format!("{code:?}: {said}")),
    }
}
