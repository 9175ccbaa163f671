//! Meshes of direct cables: each pair of hosts on its own subnet, some pairs without a cable.

use std::fs;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::tests::{SOON, Test};
use crate::world::{Node, Outcome, World, sh};

const fn test(name: &'static str, what: &'static str, run: fn() -> Outcome<String>) -> Test {
    Test { name, what, waits: false, run }
}

pub(crate) const ALL: &[Test] = &[
    test("mesh-triangle", "three hosts, three subnets: every pair over its own cable, nothing relayed", triangle),
    test("mesh-ring", "four in a ring: the diagonal goes both ways round, none of it over the management LAN", ring),
    test("mesh-line", "four in a line: end to end over two relays, both ways", line),
    test(
        "mesh-sixteen",
        "sixteen hosts in a line, and in a ring: end to end over fourteen, opposite ones both ways round",
        sixteen,
    ),
    test("mesh-half", "five hosts and half of the cables", half),
    test("mesh-same-subnet", "one subnet on two cables: the right host is found", same_subnet),
    test("mesh-cut-around", "a cable is cut in mid-transfer: the ring is walked the other way", cut_around),
    test("mesh-dead-relay", "a relay is killed in mid-transfer: the other way round carries on", dead_relay),
    test(
        "mesh-heir",
        "the mesh server of a host passes to a process that began before the last one: its neighbours know it",
        heir,
    ),
    test(
        "mesh-late-way",
        "a host that joins in mid-transfer: a relayed connection takes the way over it too",
        late_way,
    ),
    test("mesh-dead-line", "the only relay is killed: both ends are told at once", dead_line),
    test("mesh-cut-line", "a far cable of a line is cut: both ends are told within 30 s", cut_line),
    test(
        "mesh-short-cut",
        "the only cable between two relays is out for some seconds: the relayed connection goes on",
        short_cut,
    ),
    test(
        "mesh-far-cut",
        "a far cable of one of two ways is cut in mid-transfer: the other carries on at once",
        far_cut,
    ),
    test("mesh-strict", "LINKSPAN_STRICT=1 refuses to be relayed", strict),
    test(
        "mesh-strangers",
        "a neighbour with another key relays nothing and is named, and nothing leaks over routes",
        strangers,
    ),
    test("mesh-replay", "a hello that is sent again and again at a relay keeps nobody out", replay),
    test(
        "mesh-descriptors",
        "strangers take a relay's last descriptors: it warns once, sleeps, keeps its ports and relays when they have gone",
        descriptors,
    ),
    test("mesh-ipv6", "a ring with IPv6 addresses alone: both ways round, and a cable that is cut", ipv6_ring),
    test(
        "mesh-mixed-way",
        "a way with one hop without RDMA goes by TCP whole, and both ends say which and why",
        mixed_way,
    ),
    test(
        "mesh-file",
        "a declared mesh needs no beacons; a way over a host that is not up yet is told and asked for again",
        declared,
    ),
    test("mesh-encrypt", "sealed from end to end over a relay", encrypt),
    test("mesh-stats", "what a host relays is in its statistics", stats),
    test("mesh-relay-cost", "a way over one host costs at most 1.3 times what two cables cost", relay_cost),
    test(
        "mesh-perf",
        "lspan perf over a relay, and around a cable that is cut, exits with 3 and names every hop",
        relayed_perf,
    ),
    test("mesh-name", "the name of a mesh's host is a peer; one without a cable is told of", named_perf),
    test("mesh-lspan", "lspan mesh draws a ring, measures it and names what is wrong", lspan_mesh),
    test("mesh-allreduce", "plugin-host's AllReduce on a triangle, a crosswise ring and a line", allreduce),
    test("mesh-rounds", "the same while a cable is cut: around the ring, and an error where there is no way", rounds),
];

/// Hosts joined by cables, and the key that they share.
pub(crate) struct Mesh {
    pub(crate) world: World,
    psk: PathBuf,
    extra: Vec<(String, String)>,
}

impl Drop for Mesh {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.psk);
    }
}

fn secret(name: &str, digits: &str) -> Outcome<PathBuf> {
    use std::io::Write;
    let path = std::env::temp_dir().join(name);
    let _ = fs::remove_file(&path);
    let file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path);
    file.and_then(|mut f| f.write_all(digits.repeat(16).as_bytes())).map_err(|e| format!("{}: {e}", path.display()))?;
    Ok(path)
}

impl Mesh {
    /// Cable number `n` is `cabN` with 10.77.N.1/24 and .2/24, unless the test gives addresses of its own.
    pub(crate) fn new(hosts: &[&str], cables: &[(&str, &str)]) -> Outcome<Mesh> {
        let world = World::new(hosts)?;
        let psk = secret(&format!("{}.psk", world.ns("key")), "01fe")?;
        for (n, (a, b)) in cables.iter().enumerate() {
            let (one, two) = (format!("10.77.{n}.1/24"), format!("10.77.{n}.2/24"));
            world.cable(&format!("cab{n}"), (a, &one), (b, &two))?;
        }
        Ok(Mesh { world, psk, extra: Vec::new() })
    }

    pub(crate) fn env(&self) -> Vec<(&str, &str)> {
        let mut env = vec![("LINKSPAN_IFNAME", "cab"), ("LINKSPAN_MESH_PORT", "7475")];
        env.push(("LINKSPAN_PSK_FILE", self.psk.to_str().unwrap_or_default()));
        env.extend(self.extra.iter().map(|(k, v)| (k.as_str(), v.as_str())));
        env
    }

    /// One more setting of every process.
    pub(crate) fn more(&mut self, name: &str, value: &str) {
        self.extra.push((name.into(), value.into()));
    }

    /// A process on a host that knows its name.
    pub(crate) fn node(&self, host: &str, args: &[&str]) -> Outcome<Node> {
        let rename = format!("hostname {host} && exec \"$0\" \"$@\"");
        self.world.node_under(host, &["unshare", "--uts", "sh", "-c", &rename], &self.env(), args)
    }

    /// `lspan` on a host that knows its name.
    pub(crate) fn lspan(&self, host: &str, line: &str) -> Outcome<Node> {
        let rename = format!("hostname {host} && exec \"$0\" \"$@\"");
        self.world.lspan_under(host, &["unshare", "--uts", "sh", "-c", &rename], &self.env(), line)
    }

    /// Ranks that compute.
    pub(crate) fn sit(&self, hosts: &[&str]) -> Outcome<Vec<Node>> {
        let mut nodes = Vec::new();
        for host in hosts {
            let mut node = self.node(host, &["sit"])?;
            node.expect("sitting", SOON)?;
            nodes.push(node);
        }
        Ok(nodes)
    }

    /// Connects `a` to `b`: their processes, and how `a` says that they are joined.
    fn up(&self, a: &str, b: &str, count: usize, size: usize) -> Outcome<(Node, Node, String)> {
        let (count, size) = (count.to_string(), size.to_string());
        let mut to = self.node(b, &["listen", &count, &size])?;
        let handle = to.expect("handle", SOON)?;
        let mut from = self.node(a, &["connect", &handle, &count, &size])?;
        let up = from.expect("up", SOON * 2)?;
        to.expect("up", SOON)?;
        Ok((from, to, up))
    }

    /// Sends verified messages from `a` to `b`; how they were joined.
    fn send(&self, a: &str, b: &str) -> Outcome<String> {
        let (mut from, mut to, up) = self.up(a, b, 12, 1_000_003)?;
        to.expect("done", SOON * 4)?;
        from.expect("done", SOON)?;
        Ok(up)
    }
}

fn wants(up: &str, parts: &[&str]) -> Outcome<()> {
    match parts.iter().find(|p| !up.contains(**p)) {
        Some(missing) => Err(format!("no {missing:?} in: {up}")),
        None => Ok(()),
    }
}

fn triangle() -> Outcome<String> {
    let mesh = Mesh::new(&["a", "b", "c"], &[("a", "b"), ("b", "c"), ("c", "a")])?;
    let mut said = String::new();
    for (a, b, net) in [("a", "b", "10.77.0."), ("b", "c", "10.77.1."), ("c", "a", "10.77.2."), ("a", "c", "10.77.2.")]
    {
        let up = mesh.send(a, b)?;
        if up.contains("relayed") || !up.contains(net) {
            return Err(format!("{a} to {b}: {up}"));
        }
        said = up;
    }
    Ok(said)
}

/// A switch `m` that every host reaches with its interface `lan`, by a default route.
pub(crate) fn management(world: &World, hosts: &[&str]) -> Outcome<()> {
    world.ip("m", "link add br0 type bridge")?;
    world.ip("m", "link set br0 up")?;
    for (n, host) in hosts.iter().enumerate() {
        sh(&format!("ip link add lan netns {} type veth peer name to{host} netns {}", world.ns(host), world.ns("m")))?;
        world.ip("m", &format!("link set to{host} master br0 up"))?;
        world.ip(host, &format!("addr add 192.168.77.{}/24 dev lan", n + 1))?;
        world.ip(host, "link set lan up")?;
        world.ip(host, "route add default via 192.168.77.254")?;
    }
    Ok(())
}

/// Bytes that an interface of a host has sent.
pub(crate) fn sent(world: &World, host: &str, interface: &str) -> Outcome<u64> {
    let ns = world.ns(host);
    let out = std::process::Command::new("ip")
        .args(["-n", &ns, "-s", "-o", "link", "show", "dev", interface])
        .output()
        .map_err(|e| e.to_string())?;
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    let tx = text.split("TX:").nth(1).and_then(|t| t.split('\\').nth(1)).and_then(|t| t.split_whitespace().next());
    tx.and_then(|n| n.parse().ok()).ok_or_else(|| format!("no counters in {text:?}"))
}

fn ring() -> Outcome<String> {
    let hosts = ["a", "b", "c", "d"];
    let mesh = Mesh::new(&["a", "b", "c", "d", "m"], &[("a", "b"), ("b", "c"), ("c", "d"), ("d", "a")])?;
    management(&mesh.world, &hosts)?;
    let _ranks = mesh.sit(&["b", "d"])?;
    let up = mesh.send("a", "c")?;
    wants(&up, &["2 rails", "relayed over b", "relayed over d"])?;
    let back = mesh.send("c", "a")?;
    wants(&back, &["2 rails", "relayed over b", "relayed over d"])?;
    let mut leaked = 0;
    for host in hosts {
        leaked = leaked.max(sent(&mesh.world, host, "lan")?);
    }
    // Neighbour discovery of IPv6 and the like.
    if leaked > 20_000 {
        return Err(format!("{leaked} bytes on the management LAN"));
    }
    let over_b = sent(&mesh.world, "b", "cab1")?;
    let over_d = sent(&mesh.world, "d", "cab2")?;
    if over_b < 1_000_000 || over_d < 1_000_000 {
        return Err(format!("one way round carried next to nothing: {over_b} and {over_d} bytes"));
    }
    let direct = mesh.send("a", "b")?;
    if direct.contains("relayed") {
        return Err(format!("neighbours are relayed: {direct}"));
    }
    Ok(format!("at most {leaked} bytes on the management LAN, {over_b} over b, {over_d} over d; {up}"))
}

fn line() -> Outcome<String> {
    let mesh = Mesh::new(&["a", "b", "c", "d"], &[("a", "b"), ("b", "c"), ("c", "d")])?;
    let _ranks = mesh.sit(&["b", "c"])?;
    let up = mesh.send("a", "d")?;
    wants(&up, &["relayed over b, c"])?;
    wants(&mesh.send("d", "a")?, &["relayed over c, b"])?;
    wants(&mesh.send("b", "d")?, &["relayed over c"])?;
    Ok(up)
}

fn sixteen() -> Outcome<String> {
    let hosts = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l", "m", "n", "o", "p"];
    let mut cables: Vec<(&str, &str)> = hosts.windows(2).map(|two| (two[0], two[1])).collect();
    let line = {
        let mesh = Mesh::new(&hosts, &cables)?;
        let _ranks = mesh.sit(&hosts[1..15])?;
        mesh.send("a", "p")?
    };
    wants(&line, &["relayed over b, c, d, e, f, g, h, i, j, k, l, m, n, o"])?;
    cables.push(("p", "a"));
    let mesh = Mesh::new(&hosts, &cables)?;
    let others: Vec<&str> = hosts.iter().copied().filter(|host| !["a", "i"].contains(host)).collect();
    let _ranks = mesh.sit(&others)?;
    let ring = mesh.send("a", "i")?;
    wants(&ring, &["2 rails", "relayed over b, c, d, e, f, g, h", "relayed over p, o, n, m, l, k, j"])?;
    Ok(format!("{line}; {ring}"))
}

fn half() -> Outcome<String> {
    let cables = [("a", "b"), ("b", "c"), ("c", "d"), ("d", "e"), ("b", "d")];
    let mesh = Mesh::new(&["a", "b", "c", "d", "e"], &cables)?;
    let _ranks = mesh.sit(&["a", "b", "c", "d", "e"])?;
    for (a, b, over) in [("a", "e", "relayed over b, d"), ("a", "c", "relayed over b"), ("c", "e", "relayed over d")] {
        wants(&mesh.send(a, b)?, &[over])?;
    }
    let direct = mesh.send("b", "d")?;
    if direct.contains("relayed") { Err(direct) } else { Ok(direct) }
}

fn same_subnet() -> Outcome<String> {
    let mesh = Mesh::new(&["a", "b", "c", "d"], &[])?;
    let cable = |name: &str, a, b| mesh.world.cable(name, a, b);
    cable("cab0", ("a", "10.77.0.1/24"), ("b", "10.77.0.2/24"))?;
    cable("cab1", ("b", "10.77.1.1/24"), ("c", "10.77.1.2/24"))?;
    // The same subnet again, with an address that a's own neighbour has too.
    cable("cab2", ("c", "10.77.0.1/24"), ("d", "10.77.0.2/24"))?;
    let _ranks = mesh.sit(&["b", "c"])?;
    let up = mesh.send("a", "d")?;
    wants(&up, &["relayed over b, c"])?;
    let (mut from, mut to, direct) = mesh.up("a", "b", 4, 100_000)?;
    to.expect("done", SOON)?;
    from.expect("done", SOON)?;
    if direct.contains("relayed") { Err(direct) } else { Ok(up) }
}

fn cut_around() -> Outcome<String> {
    let mesh = Mesh::new(&["a", "b", "c", "d"], &[("a", "b"), ("b", "c"), ("c", "d"), ("d", "a")])?;
    mesh.world.shape("a", "cab0", 300)?;
    let _ranks = mesh.sit(&["c", "d"])?;
    let (mut from, mut to, up) = mesh.up("a", "b", 80, 1 << 20)?;
    if up.contains("relayed") {
        return Err(up);
    }
    to.expect("at", SOON)?;
    let cut = Instant::now();
    mesh.world.ip("a", "link set cab0 down")?;
    let around = from.expect("WARN downgrade:", SOON * 2)?;
    wants(&around, &["relaying over d, c"])?;
    from.expect("INFO rail", SOON)?;
    let took = cut.elapsed();
    let done = to.expect("done", SOON * 6)?;
    from.expect("done", SOON)?;
    Ok(format!("around after {took:.1?}; {done}"))
}

fn dead_relay() -> Outcome<String> {
    let mesh = Mesh::new(&["a", "b", "c", "d"], &[("a", "b"), ("b", "c"), ("c", "d"), ("d", "a")])?;
    for (host, cable) in [("a", "cab0"), ("a", "cab3")] {
        mesh.world.shape(host, cable, 200)?;
    }
    let ranks = mesh.sit(&["b", "d"])?;
    let (mut from, mut to, up) = mesh.up("a", "c", 80, 1 << 20)?;
    wants(&up, &["2 rails"])?;
    to.expect("at", SOON)?;
    ranks[0].signal("KILL")?;
    let killed = Instant::now();
    from.expect("WARN rail lost", SOON)?;
    let took = killed.elapsed();
    let done = to.expect("done", SOON * 6)?;
    from.expect("done", SOON)?;
    Ok(format!("noticed after {took:.1?}; {done}"))
}

fn heir() -> Outcome<String> {
    const OWNS: &str = "INFO mesh: this process listens for neighbours";
    let mesh = Mesh::new(&["a", "b", "c"], &[("a", "b"), ("b", "c")])?;
    let _ends = mesh.sit(&["a", "c"])?;
    let mut ranks = mesh.sit(&["b", "b", "b"])?;
    // The one that began last is the next.
    ranks[1].signal("STOP")?;
    ranks[0].signal("KILL")?;
    ranks[2].expect(OWNS, SOON)?;
    wants(&mesh.send("a", "c")?, &["relayed over b"])?;
    ranks[1].signal("CONT")?;
    ranks[2].signal("KILL")?;
    ranks[1].expect(OWNS, SOON)?;
    // Until neighbours would have forgotten it.
    std::thread::sleep(Duration::from_secs(5));
    mesh.send("a", "c").inspect(|_| drop(ranks)).and_then(|up| wants(&up, &["relayed over b"]).map(|()| up))
}

fn late_way() -> Outcome<String> {
    let mesh = Mesh::new(&["a", "b", "c", "d"], &[("a", "b"), ("b", "c"), ("c", "d"), ("d", "a")])?;
    for (host, cable) in [("a", "cab0"), ("a", "cab3")] {
        mesh.world.shape(host, cable, 200)?;
    }
    let _ranks = mesh.sit(&["b"])?;
    let (mut from, mut to, up) = mesh.up("a", "c", 300, 1 << 20)?;
    wants(&up, &["relayed over b"])?;
    if up.contains("2 rails") {
        return Err(format!("over a host that is not there: {up}"));
    }
    to.expect("at", SOON)?;
    let joined = Instant::now();
    let _late = mesh.sit(&["d"])?;
    from.expect("INFO the mesh has found another route, over d", SOON)?;
    from.expect("INFO rail added", SOON)?;
    let took = joined.elapsed();
    to.expect("done", SOON * 6)?;
    from.expect("done", SOON)?;
    let over_d = sent(&mesh.world, "d", "cab2")?;
    if over_d < 20_000_000 {
        return Err(format!("the way that was added carried next to nothing: {over_d} bytes"));
    }
    Ok(format!("taken after {took:.1?}; {over_d} bytes over it"))
}

fn dead_line() -> Outcome<String> {
    let mesh = Mesh::new(&["a", "b", "c"], &[("a", "b"), ("b", "c")])?;
    mesh.world.shape("a", "cab0", 200)?;
    let ranks = mesh.sit(&["b"])?;
    let (mut from, mut to, up) = mesh.up("a", "c", 1000, 1 << 20)?;
    wants(&up, &["relayed over b"])?;
    to.expect("at", SOON)?;
    ranks[0].signal("KILL")?;
    let killed = Instant::now();
    let (here, there) = (from.expect("lost", SOON / 2)?, to.expect("lost", SOON / 2)?);
    Ok(format!("after {:.1?}: {here}; {there}", killed.elapsed()))
}

fn cut_line() -> Outcome<String> {
    let mesh = Mesh::new(&["a", "b", "c", "d"], &[("a", "b"), ("b", "c"), ("c", "d")])?;
    mesh.world.shape("a", "cab0", 200)?;
    let _ranks = mesh.sit(&["b", "c"])?;
    let (mut from, mut to, _) = mesh.up("a", "d", 4000, 1 << 20)?;
    to.expect("at", SOON)?;
    mesh.world.ip("c", "link set cab2 down")?;
    let cut = Instant::now();
    let here = from.expect("lost", SOON * 3)?;
    to.expect("lost", (SOON * 3).saturating_sub(cut.elapsed()))?;
    Ok(format!("after {:.1?}: {here}", cut.elapsed()))
}

/// How many messages a node has moved, by the next line in which it tells.
fn moved(node: &mut Node) -> Outcome<u64> {
    let at = node.next("at")?;
    at.split_whitespace().next().and_then(|n| n.parse().ok()).ok_or_else(|| format!("no number in {at}"))
}

fn short_cut() -> Outcome<String> {
    let mut out = Vec::new();
    // Each on a mesh of its own: where a stream still recovers from one outage the kernel counts the next one to it.
    for lasts in [4, 8] {
        let mesh = Mesh::new(&["a", "b", "c", "d"], &[("a", "b"), ("b", "c"), ("c", "d")])?;
        mesh.world.shape("a", "cab0", 200)?;
        let _ranks = mesh.sit(&["b", "c"])?;
        let (_from, mut to, up) = mesh.up("a", "d", 4000, 1 << 20)?;
        wants(&up, &["relayed over b, c"])?;
        moved(&mut to)?;
        mesh.world.ip("b", "link set cab1 down")?;
        std::thread::sleep(Duration::from_secs(lasts));
        let before = moved(&mut to)?;
        mesh.world.ip("b", "link set cab1 up")?;
        let healed = Instant::now();
        while moved(&mut to).map_err(|why| format!("out for {lasts} s: {why}"))? == before {
            if healed.elapsed() > SOON * 3 {
                return Err(format!("out for {lasts} s: nothing has moved for {:.1?} since", healed.elapsed()));
            }
        }
        out.push(format!("{lasts} s: on after {:.1?}", healed.elapsed()));
    }
    Ok(out.join(", "))
}

fn far_cut() -> Outcome<String> {
    let mut out = Vec::new();
    for (host, cable) in [("b", "cab1"), ("d", "cab2")] {
        let mesh = Mesh::new(&["a", "b", "c", "d"], &[("a", "b"), ("b", "c"), ("c", "d"), ("d", "a")])?;
        for cable in ["cab0", "cab3"] {
            mesh.world.shape("a", cable, 200)?;
        }
        let _ranks = mesh.sit(&["b", "d"])?;
        let (mut from, mut to, up) = mesh.up("a", "c", 300, 1 << 20)?;
        wants(&up, &["2 rails"])?;
        to.expect("at", SOON)?;
        mesh.world.ip(host, &format!("link set {cable} down"))?;
        let cut = Instant::now();
        // A stream that is the only way is kept for 12.6 s.
        from.expect("WARN rail lost", SOON).map_err(|why| format!("{cable}: {why}"))?;
        out.push(format!("over {host}: noticed after {:.1?}", cut.elapsed()));
        to.expect("done", SOON * 6)?;
        from.expect("done", SOON)?;
    }
    Ok(out.join(", "))
}

fn strict() -> Outcome<String> {
    let mut mesh = Mesh::new(&["a", "b", "c"], &[("a", "b"), ("b", "c")])?;
    let _ranks = mesh.sit(&["b"])?;
    mesh.extra.push(("LINKSPAN_STRICT".into(), "1".into()));
    let mut to = mesh.node("c", &["listen", "1", "8"])?;
    let handle = to.expect("handle", SOON)?;
    let mut from = mesh.node("a", &["connect", &handle, "1", "8"])?;
    let error = from.expect("error", SOON * 2)?;
    wants(&error, &["LS0509", "relayed over b"])?;
    Ok(error)
}

fn strangers() -> Outcome<String> {
    let mut mesh = Mesh::new(&["a", "b", "c"], &[("a", "b"), ("b", "c")])?;
    // The kernels would route it, if they were asked.
    mesh.world.ip("a", "route add 10.77.1.0/24 via 10.77.0.2")?;
    mesh.world.ip("c", "route add 10.77.0.0/24 via 10.77.1.1")?;
    sh(&format!("ip netns exec {} sysctl -qw net.ipv4.ip_forward=1", mesh.world.ns("b")))?;
    mesh.extra.push(("LINKSPAN_CONNECT_TIMEOUT_MS".into(), "4000".into()));
    let other = secret(&format!("{}.psk", mesh.world.ns("other")), "77a0")?;
    let mut env = mesh.env();
    let path = other.to_str().unwrap_or_default().to_owned();
    env.retain(|(k, _)| *k != "LINKSPAN_PSK_FILE");
    env.push(("LINKSPAN_PSK_FILE", &path));
    let mut stranger = mesh.world.node("b", &env, &["sit"])?;
    stranger.expect("sitting", SOON)?;
    let mut to = mesh.node("c", &["listen", "1", "8"])?;
    let handle = to.expect("handle", SOON)?;
    let mut from = mesh.node("a", &["connect", &handle, "1", "8"])?;
    let error = from.expect("error", SOON * 2);
    let _ = fs::remove_file(other);
    let error = error?;
    wants(&error, &["LS0508", "no neighbour answers"])?;
    // Both sides are told.
    if from.heard("WARN mesh: LS1426") != 1 {
        return Err("the host with another key is not named once".into());
    }
    stranger.expect("WARN mesh: LS1426", SOON)?;
    let (_, said) = mesh.lspan("a", "mesh --json --wait 3s")?.end(SOON)?;
    wants(&said, &["LS1426", "10.77.0.2 on cab0", "LINKSPAN_PSK_FILE"])?;
    Ok(error)
}

fn replay() -> Outcome<String> {
    let mesh = Mesh::new(&["a", "b", "c", "x"], &[("a", "b"), ("b", "c"), ("x", "b")])?;
    let _ranks = mesh.sit(&["b"])?;
    let mut attacker = mesh.world.node("x", &mesh.env(), &["repeat", "10.77.2.2:7475"])?;
    attacker.expect("repeating", SOON)?;
    let up = mesh.send("a", "c")?;
    wants(&up, &["relayed over b"])?;
    Ok(up)
}

fn descriptors() -> Outcome<String> {
    const LOOKED: &str = "this process listens for neighbours on";
    const WATCHED: Duration = Duration::from_secs(6);
    let mesh = Mesh::new(&["a", "b", "c", "x"], &[("a", "b"), ("b", "c"), ("x", "b")])?;
    let mut ranks = mesh.sit(&["b"])?;
    let relay = &mut ranks[0];
    // Fewer than the streams that it takes in before their logins, which is a number of when it began.
    sh(&format!("prlimit --pid {} --nofile=64", relay.id()))?;
    let mut strangers = mesh.world.node("x", &[], &["crowd", "10.77.2.2:7475", "200"])?;
    strangers.expect("crowding", SOON)?;
    relay.expect("WARN mesh: ", SOON)?;
    let before = relay.cpu_ticks()?;
    // It looks at its ports three times meanwhile, and finds no descriptor to do so.
    std::thread::sleep(WATCHED);
    let used = relay.cpu_ticks()? - before;
    let (warned, opened) = (relay.heard("WARN"), relay.heard(LOOKED));
    drop(strangers);
    let up = mesh.send("a", "c")?;
    wants(&up, &["relayed over b"])?;
    if used > 60 || warned != 1 || opened != 1 {
        return Err(format!(
            "{used}0 ms of a processor in {WATCHED:?}, {warned} warnings, its ports were opened {opened} times"
        ));
    }
    Ok(format!("{used}0 ms of a processor in {WATCHED:?}; {up}"))
}

fn ipv6_ring() -> Outcome<String> {
    let mesh = Mesh::new(&["a", "b", "c", "d"], &[])?;
    for (n, (a, b)) in [("a", "b"), ("b", "c"), ("c", "d"), ("d", "a")].into_iter().enumerate() {
        let ends = (format!("fd77:0:0:{n}::1/64"), format!("fd77:0:0:{n}::2/64"));
        mesh.world.cable(&format!("cab{n}"), (a, &ends.0), (b, &ends.1))?;
    }
    mesh.world.shape("a", "cab0", 300)?;
    let _ranks = mesh.sit(&["b", "c", "d"])?;
    let up = mesh.send("a", "c")?;
    wants(&up, &["2 rails", "relayed over b", "relayed over d", "fd77:0:0:3::2", "fd77::1"])?;
    let (mut from, mut to, direct) = mesh.up("a", "b", 80, 1 << 20)?;
    if direct.contains("relayed") {
        return Err(direct);
    }
    to.expect("at", SOON)?;
    mesh.world.ip("a", "link set cab0 down")?;
    wants(&from.expect("WARN downgrade:", SOON * 2)?, &["relaying over d, c"])?;
    to.expect("done", SOON * 6)?;
    from.expect("done", SOON)?;
    Ok(up)
}

fn mixed_way() -> Outcome<String> {
    let mesh = Mesh::new(&["a", "b", "c", "d"], &[("a", "b"), ("b", "c"), ("c", "d")])?;
    let mut told = Vec::new();
    // Every host has devices on its cables, but one on one of them: at the first hop, between, at the last.
    for (host, cable, why) in [
        ("a", "cab0", "the host that connects has no RDMA device to use on cab0"),
        ("b", "cab0", "b has no RDMA device to use on cab0"),
        ("c", "cab1", "c has no RDMA device to use on cab1"),
        ("d", "cab2", "the host that is connected to has no RDMA device to use on cab2"),
    ] {
        let devices = |at: &str, cables: &[&str]| {
            let there: Vec<&str> = cables.iter().copied().filter(|c| (at, *c) != (host, cable)).collect();
            there.join(",")
        };
        let node = |at: &str, cables: &[&str], args: &[&str]| {
            mesh.node(at, &[&["soft", devices(at, cables).as_str()], args].concat())
        };
        let mut relays = [node("b", &["cab0", "cab1"], &["sit"])?, node("c", &["cab1", "cab2"], &["sit"])?];
        for relay in &mut relays {
            relay.expect("sitting", SOON)?;
        }
        let mut to = node("d", &["cab2"], &["listen", "12", "1000003"])?;
        let handle = to.expect("handle", SOON)?;
        let mut from = node("a", &["cab0"], &["connect", &handle, "12", "1000003"])?;
        for end in [&mut from, &mut to] {
            wants(&end.expect("WARN downgrade: TCP in place of RDMA", SOON * 2)?, &[why])?;
        }
        wants(&from.expect("WARN downgrade: LS1409", SOON)?, &["3 hops: tcp via b, tcp via c, tcp"])?;
        let up = from.expect("up", SOON)?;
        wants(&up, &["tcp", "relayed over b, c"])?;
        to.expect("done", SOON * 4)?;
        from.expect("done", SOON)?;
        told.push(why);
    }
    Ok(told.join("; "))
}

fn declared() -> Outcome<String> {
    let mut mesh = Mesh::new(&["a", "b", "c"], &[("a", "b"), ("b", "c")])?;
    // Nothing is heard: what is known is what is written.
    for (host, cable) in [("a", "cab0"), ("b", "cab0"), ("b", "cab1"), ("c", "cab1")] {
        mesh.world.ip(host, &format!("link set {cable} multicast off"))?;
    }
    let file = std::env::temp_dir().join(format!("{}.mesh", mesh.world.ns("file")));
    let text = "node a 10.77.0.1/24\nnode b 10.77.0.2/24 10.77.1.1/24 # between\nnode c 10.77.1.2/24\n";
    fs::write(&file, text).map_err(|e| e.to_string())?;
    mesh.extra.push(("LINKSPAN_MESH_FILE".into(), file.display().to_string()));
    let late = || -> Outcome<String> {
        let mut to = mesh.node("c", &["listen", "12", "1000003"])?;
        let handle = to.expect("handle", SOON)?;
        let mut from = mesh.node("a", &["connect", &handle, "12", "1000003"])?;
        let line = from.expect("INFO mesh: 10.77.0.1 -> 10.77.1.2", SOON)?;
        wants(&line, &["(relayed over b): ", "refused", "the mesh is asked for another route"])?;
        let _ranks = mesh.sit(&["b"])?;
        let up = from.expect("up", SOON * 2)?;
        to.expect("done", SOON * 4)?;
        from.expect("done", SOON)?;
        Ok(up)
    };
    let up = late();
    let _ = fs::remove_file(&file);
    let up = up?;
    wants(&up, &["relayed over b"])?;
    Ok(up)
}

fn encrypt() -> Outcome<String> {
    let mut mesh = Mesh::new(&["a", "b", "c"], &[("a", "b"), ("b", "c")])?;
    let _ranks = mesh.sit(&["b"])?;
    mesh.extra.push(("LINKSPAN_PSK_MODE".into(), "encrypt".into()));
    let up = mesh.send("a", "c")?;
    wants(&up, &["relayed over b", "AES-256-GCM"])?;
    Ok(up)
}

fn stats() -> Outcome<String> {
    let mut mesh = Mesh::new(&["a", "b", "c"], &[("a", "b"), ("b", "c")])?;
    let dir = std::env::temp_dir().join(mesh.world.ns("stats"));
    mesh.extra.push(("LINKSPAN_STATS_DIR".into(), dir.display().to_string()));
    let _ranks = mesh.sit(&["b"])?;
    mesh.send("a", "c")?;
    // The relay tells its counters twice a second.
    std::thread::sleep(Duration::from_millis(1200));
    let (code, said) = mesh.world.lspan("b", &mesh.env(), "stats --json")?.end(SOON)?;
    let _ = fs::remove_dir_all(&dir);
    // Fields come in the order of their names: the bytes come after the field `transport`.
    let behind = said.split("\"transport\": \"relay\"").nth(1).and_then(|part| part.split("\"tx_host_bytes\":").nth(1));
    let number = behind.and_then(|rest| rest.trim().split(|c: char| !c.is_ascii_digit()).next()?.parse::<u64>().ok());
    match number {
        Some(bytes) if (12_000_036..12_500_000).contains(&bytes) && said.contains("\"connections_open\": 0") => {
            Ok(format!("{bytes} bytes for 12 messages of 1000003"))
        }
        other => Err(format!("{other:?} after {code:?} in {said}")),
    }
}

/// Processor time of all who take part, in ticks, of moving `count` bare messages of a MiB from `a` to `b`; with what `relays` use.
fn ticks(mesh: &Mesh, a: &str, b: &str, count: usize, relays: &[Node]) -> Outcome<u64> {
    let all = || relays.iter().map(Node::cpu_ticks).sum::<Outcome<u64>>();
    let (count, size) = (count.to_string(), (1 << 20).to_string());
    let mut to = mesh.node(b, &["listen", &count, &size, "bare"])?;
    let handle = to.expect("handle", SOON)?;
    let mut from = mesh.node(a, &["connect", &handle, &count, &size, "bare"])?;
    let up = from.expect("up", SOON * 2)?;
    if up.contains("relayed") == relays.is_empty() {
        return Err(up);
    }
    let before = all()?;
    let mut used = 0;
    for end in [&mut to, &mut from] {
        let done = end.expect("done", SOON * 6)?;
        let ticks = done.split("cpu_ticks ").nth(1).and_then(|n| n.trim().parse::<u64>().ok());
        used += ticks.ok_or_else(|| format!("no processor time in {done}"))?;
    }
    Ok(used + all()? - before)
}

/// In turns, so that a machine that is busy with something else is so for all of them; the best of a few, for the same reason.
fn relay_cost() -> Outcome<String> {
    const MESSAGES: usize = 1500;
    const TURNS: usize = 5;
    let mesh = Mesh::new(&["a", "b", "c"], &[("a", "b"), ("b", "c")])?;
    let relay = mesh.sit(&["b"])?;
    let mut told = Vec::new();
    for _ in 0..TURNS {
        let direct = ticks(&mesh, "a", "b", MESSAGES, &[])? + ticks(&mesh, "b", "c", MESSAGES, &[])?;
        let over = ticks(&mesh, "a", "c", MESSAGES, &relay)?;
        told.push((over as f64 / direct.max(1) as f64, over, direct));
    }
    told.sort_by(|x, y| x.0.total_cmp(&y.0));
    let ratios: Vec<String> =
        told.iter().map(|(r, over, direct)| format!("{r:.2} ({over}0 ms / {direct}0 ms)")).collect();
    let line = format!("{MESSAGES} MiB over one host to twice over a cable, processor time: {}", ratios.join(", "));
    if told[0].0 <= 1.3 { Ok(line) } else { Err(line) }
}

fn relayed_perf() -> Outcome<String> {
    let mesh = Mesh::new(&["a", "b", "c", "d", "m"], &[("a", "b"), ("b", "c"), ("c", "d"), ("d", "a")])?;
    management(&mesh.world, &["a", "b", "c", "d"])?;
    mesh.world.shape("a", "cab0", 300)?;
    let _ranks = mesh.sit(&["d"])?;
    let mut servers = Vec::new();
    for (host, bind) in [("b", "192.168.77.2"), ("c", "192.168.77.3")] {
        let mut server = mesh.lspan(host, &format!("perf serve --bind {bind}"))?;
        server.expect("lspan: waiting on", SOON)?;
        servers.push(server);
    }
    let (code, said) = mesh.lspan("a", "perf bw -s 64K -n 50 192.168.77.3 --json")?.end(SOON * 3)?;
    if code != Some(3) || !said.contains("\"exit_code\": 3") {
        return Err(format!("relayed: {code:?}: {said}"));
    }
    wants(said.split("\"downgrades\": [").nth(1).unwrap_or_default(), &["LS1409", "relayed over"])?;
    let (code, said) = mesh.lspan("a", "perf bw -s 64K -n 50 192.168.77.2 --json")?.end(SOON * 3)?;
    if code != Some(0) || !said.contains("\"downgrades\": []") {
        return Err(format!("over its own cable: {code:?}: {said}"));
    }
    let mut client = mesh.lspan("a", "perf bw -s 1M -n 400 192.168.77.2")?;
    std::thread::sleep(Duration::from_secs(2));
    mesh.world.ip("a", "link set cab0 down")?;
    let (code, said) = client.end(SOON * 6)?;
    let row = said.lines().find(|line| line.starts_with("# tcp")).unwrap_or_default();
    if code != Some(3) || !said.contains("# degraded: LS1423") || row.contains("came back") {
        return Err(format!("a cable that is cut: {code:?}: {said}"));
    }
    wants(row, &["relayed over d, c"])?;
    Ok(row.to_owned())
}

fn named_perf() -> Outcome<String> {
    let mesh = Mesh::new(&["spark-a", "spark-b", "spark-c"], &[("spark-a", "spark-b"), ("spark-b", "spark-c")])?;
    let mut servers = Vec::new();
    for host in ["spark-b", "spark-c"] {
        let mut server = mesh.lspan(host, "perf serve")?;
        server.expect("lspan: waiting on", SOON)?;
        servers.push(server);
    }
    let (code, said) = mesh.lspan("spark-a", "perf bw -s 64K -n 50 spark-b")?.end(SOON * 3)?;
    if code != Some(0) || !said.contains("cab0") {
        return Err(format!("spark-b: {code:?}: {said}"));
    }
    for (name, wanted) in [
        ("spark-c", "LS0741 spark-c: no cable joins spark-c to this host"),
        ("spark-d", "in the mesh there are spark-b"),
    ] {
        let (code, said) = mesh.lspan("spark-a", &format!("perf bw -s 64K -n 50 {name}"))?.end(SOON * 3)?;
        if code != Some(4) {
            return Err(format!("{name}: {code:?}: {said}"));
        }
        wants(&said, &[wanted])?;
    }
    Ok("a neighbour by its name; a host behind it, and one that is not there, are told".into())
}

fn lspan_mesh() -> Outcome<String> {
    let mesh = Mesh::new(&["a", "b", "c", "d"], &[("a", "b"), ("b", "c"), ("c", "d"), ("d", "a")])?;
    let mut serving = mesh.sit(&["b", "c", "d"])?;
    let (code, said) = mesh.lspan("a", "mesh --check")?.end(SOON * 3)?;
    let wanted = ["(this one)", "10.77.2.0/24", "a - c: over ", "b - d: over ", "measured"];
    // Virtual cables say 10 Gb/s, which a busy machine need not reach.
    if ![Some(0), Some(3)].contains(&code) || said.contains("LS141") || said.contains("not measured") {
        return Err(format!("{code:?}: {said}"));
    }
    wants(&said, &wanted)?;
    let both = |one: &str, two: &str| {
        said.contains(&format!("over {one} and over {two}")) || said.contains(&format!("over {two} and over {one}"))
    };
    if !both("b", "d") || !both("a", "c") || said.matches("measured ").count() != 4 {
        return Err(format!("a way is missing, or a measurement: {said}"));
    }
    mesh.world.ip("b", "link set cab0 mtu 9000")?;
    mesh.world.ip("d", "addr del 10.77.3.1/24 dev cab3")?;
    mesh.world.ip("d", "addr add 10.77.9.1/24 dev cab3")?;
    std::thread::sleep(Duration::from_secs(3));
    let (code, said) = mesh.lspan("a", "mesh --json --wait 5s")?.end(SOON)?;
    if code != Some(3) {
        return Err(format!("{code:?}: {said}"));
    }
    wants(&said, &["linkspan.mesh/1", "LS1415", "sudo ip link set cab0 mtu 9000", "LS1413", "addresses do not match"])?;
    let (code, said) = {
        let mut relay =
            mesh.world.lspan("a", &[mesh.env(), vec![("LINKSPAN_IFNAME", "=lo")]].concat(), "mesh --serve")?;
        relay.expect("lspan: this host has no cabled interface", SOON)?;
        relay.signal("INT")?;
        relay.end(SOON)?
    };
    if code != Some(0) || said.contains("relaying for them") {
        return Err(format!("a relay without a cable: {code:?}: {said}"));
    }
    // Nobody there: the others have gone.
    serving.clear();
    std::thread::sleep(Duration::from_secs(1));
    let (code, said) = mesh.lspan("a", "mesh --wait 500ms")?.end(SOON)?;
    if code != Some(4) {
        return Err(format!("alone, but {code:?}: {said}"));
    }
    let bare = [("LINKSPAN_IFNAME", "cab")];
    let (code, said) = mesh.world.lspan("a", &bare, "mesh")?.end(SOON)?;
    if code != Some(2) || !said.contains("LINKSPAN_PSK_FILE") {
        return Err(format!("without a key: {code:?}: {said}"));
    }
    Ok("four cables drawn and measured; two faults named with their commands".into())
}

/// Builds the program that plays NCCL; `None` where it cannot be built, with the reason.
fn plugin_host() -> Result<(PathBuf, String), String> {
    let plugin = std::env::var("PLUGIN").map_err(|_| "no plugin named in PLUGIN, as `cargo xtask netns` does")?;
    let folder = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../plugin-host"));
    let mut sources: Vec<PathBuf> = fs::read_dir(&folder)
        .map_err(|e| format!("{}: {e}", folder.display()))?
        .flatten()
        .map(|e| e.path())
        .filter(|p| p.extension().is_some_and(|e| e == "c") && !p.ends_with("reference.c"))
        .collect();
    sources.sort();
    let out = std::env::temp_dir().join(format!("linkspan-plugin-host-{}", std::process::id()));
    let built = std::process::Command::new("gcc")
        .args(["-std=c11", "-O2", "-pthread", "-o"])
        .arg(&out)
        .args(&sources)
        .arg("-ldl")
        .output()
        .map_err(|e| format!("gcc: {e}"))?;
    if built.status.success() { Ok((out, plugin)) } else { Err(String::from_utf8_lossy(&built.stderr).into_owned()) }
}

/// Starts one rank on each of `order`, which meet at `first`, an address of the first one.
pub(crate) fn ranks(
    world: &World,
    env: &[(&str, &str)],
    order: &[&str],
    first: &str,
    line: &str,
) -> Outcome<Vec<Node>> {
    let (host, plugin) = plugin_host()?;
    let (host, count) = (host.display().to_string(), order.len().to_string());
    let mut nodes = Vec::new();
    for (n, at) in order.iter().enumerate() {
        let rank = n.to_string();
        // As many descriptors as a process has by default.
        let rename = format!("ulimit -n 1024; hostname {at} && exec \"$0\" \"$@\" 2>&1");
        let mut words =
            vec!["unshare", "--uts", "sh", "-c", rename.as_str(), host.as_str(), "--plugin", plugin.as_str()];
        words.extend(["--join", first, "--rank", &rank, "--ranks", &count, "--verbose"]);
        words.extend(line.split_whitespace());
        nodes.push(world.program(at, env, &words)?);
    }
    Ok(nodes)
}

pub(crate) fn all_end(nodes: Vec<Node>) -> Outcome<Vec<(Option<i32>, String)>> {
    nodes.into_iter().map(|mut node| node.end(SOON * 9)).collect()
}

/// Its name, the order of ranks, its cables.
type Shape = (&'static str, &'static [&'static str], &'static [(&'static str, &'static str)]);

fn allreduce() -> Outcome<String> {
    let mut told = Vec::new();
    let shapes: [Shape; 3] = [
        ("triangle", &["a", "b", "c"], &[("a", "b"), ("b", "c"), ("c", "a")]),
        // The order of ranks crosses the ring twice.
        ("ring", &["a", "c", "b", "d"], &[("a", "b"), ("b", "c"), ("c", "d"), ("d", "a")]),
        ("line", &["a", "b", "c", "d"], &[("a", "b"), ("b", "c"), ("c", "d")]),
    ];
    for (name, order, cables) in shapes {
        let mut hosts = order.to_vec();
        hosts.push("m");
        let mesh = Mesh::new(&hosts, cables)?;
        management(&mesh.world, order)?;
        let nodes =
            ranks(&mesh.world, &mesh.env(), order, "192.168.77.1:7700", "--version 12 --test allreduce --quick")?;
        let ended = all_end(nodes)?;
        if let Some((code, said)) = ended.iter().find(|(code, _)| *code != Some(0)) {
            return Err(format!("{name}: {code:?}: {said}"));
        }
        let relayed = ended.iter().any(|(_, said)| said.contains("relayed over"));
        if relayed == (name == "triangle") {
            return Err(format!("{name}: relayed is {relayed}: {ended:?}"));
        }
        told.push(name);
    }
    Ok(format!("every value right on: {}", told.join(", ")))
}

fn rounds() -> Outcome<String> {
    let mut told = String::new();
    for (name, cables, survives) in [
        ("ring", &[("a", "b"), ("b", "c"), ("c", "d"), ("d", "a")][..], true),
        ("line", &[("a", "b"), ("b", "c"), ("c", "d")][..], false),
    ] {
        let order = ["a", "b", "c", "d"];
        let mesh = Mesh::new(&["a", "b", "c", "d", "m"], cables)?;
        management(&mesh.world, &order)?;
        let line = "--version 12 --test rounds --size 1M --rounds 500";
        let mut nodes = ranks(&mesh.world, &mesh.env(), &order, "192.168.77.1:7700", line)?;
        nodes[0].expect("v12 rounds[0]: round 10", SOON * 4)?;
        mesh.world.ip("b", "link set cab1 down")?;
        let cut = Instant::now();
        let ended = all_end(nodes)?;
        let good = ended.iter().filter(|(code, _)| *code == Some(0)).count();
        if good != if survives { order.len() } else { 0 } {
            return Err(format!("{name}: {good} of 4 ranks ended well: {ended:?}"));
        }
        told.push_str(&format!(
            "{name}: all ranks ended {} {:.1?} after the cut. ",
            if survives { "well" } else { "with an error" },
            cut.elapsed()
        ));
    }
    Ok(told)
}
