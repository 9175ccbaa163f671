//! Faults that are made, named by `lspan doctor`, and mended by the very commands that it prints.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::SKIPPED;
use crate::tests::{SOON, Test};
use crate::world::{Node, Outcome, World, sh};

pub(crate) const ALL: &[Test] = &[
    Test {
        name: "doctor-no-address",
        what: "an interface without address: named, mended, and it carries",
        waits: true,
        run: no_address,
    },
    Test { name: "doctor-subnets", what: "two ends of a cable in different subnets", waits: false, run: subnets },
    Test { name: "doctor-crossed", what: "two cables whose ends were swapped on one host", waits: false, run: crossed },
    Test { name: "doctor-one-subnet", what: "two cables in one subnet", waits: false, run: one_subnet },
    Test { name: "doctor-mtu", what: "one end's MTU was lowered", waits: false, run: mtu },
    Test {
        name: "doctor-black-hole",
        what: "a switch that drops large packets without a word",
        waits: false,
        run: black_hole,
    },
    Test { name: "doctor-firewall", what: "nftables drops what comes in over a cable", waits: false, run: firewall },
    Test {
        name: "doctor-asymmetric",
        what: "replies take another cable: by a route, a rule, a route of IPv6",
        waits: false,
        run: asymmetric,
    },
    Test {
        name: "doctor-memlock",
        what: "RDMA devices, and a limit of locked memory that is too low",
        waits: false,
        run: memlock,
    },
    Test { name: "doctor-shadowed", what: "an older plugin that the loader finds first", waits: false, run: shadowed },
    Test { name: "doctor-old-names", what: "names of older projects in the environment", waits: false, run: old_names },
    Test {
        name: "doctor-healthy",
        what: "two hosts and two cables without a fault: silence, alone and together",
        waits: true,
        run: healthy,
    },
    Test {
        name: "doctor-speed",
        what: "speeds against the pair's record and of equal rails; nothing is measured beside a job",
        waits: false,
        run: speed,
    },
    Test {
        name: "perf-compare",
        what: "every way to a peer in one table, of which a shaped cable is the slower",
        waits: false,
        run: compare,
    },
    Test {
        name: "perf-matrix",
        what: "each pair of three hosts on a switch; the host whose port is shaped stands out",
        waits: false,
        run: matrix,
    },
    Test {
        name: "cable-name",
        what: "`cable` is the host at the other end, without an address: wait, perf and doctor find it, and say what is missing",
        waits: true,
        run: cable_name,
    },
    Test {
        name: "doctor-pid-namespace",
        what: "two processes of one host in different pid namespaces",
        waits: false,
        run: pid_namespace,
    },
    Test {
        name: "doctor-broken-sys",
        what: "no root, no /sys, no /proc: a clear line, and the rest is judged",
        waits: false,
        run: broken_sys,
    },
];

const CABLES: (&str, &str) = ("LINKSPAN_IFNAME", "cab");

/// A finding, by what the tests ask of it.
#[derive(Debug)]
struct Found {
    code: String,
    host: String,
    commands: Vec<String>,
}

/// A folder in memory for files of a test.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Outcome<Folder> {
        let folder = std::env::temp_dir().join(format!("lspan-doctor-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
        Ok(Folder(folder))
    }

    fn file(&self, name: &str, text: &str) -> Outcome<String> {
        let path = self.0.join(name);
        let folder = path.parent().unwrap_or(Path::new("/"));
        std::fs::create_dir_all(folder)
            .and_then(|()| std::fs::write(&path, text))
            .map_err(|e| format!("{}: {e}", path.display()))?;
        Ok(path.display().to_string())
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The text of a field `"key": "TEXT"` of pretty JSON.
fn field<'a>(line: &'a str, key: &str) -> Option<&'a str> {
    line.trim().strip_prefix(&format!("\"{key}\": \""))?.trim_end_matches(',').strip_suffix('"')
}

/// A string of JSON without its escapes, as far as commands have any.
fn plain(text: &str) -> String {
    text.replace("\\\"", "\"").replace("\\\\", "\\")
}

fn parse(text: &str) -> Vec<Found> {
    let mut found: Vec<Found> = Vec::new();
    for line in text.lines() {
        if let Some(code) = field(line, "code") {
            found.push(Found { code: code.to_owned(), host: String::new(), commands: Vec::new() });
        }
        let Some(last) = found.last_mut() else { continue };
        if let Some(host) = field(line, "host").filter(|_| last.host.is_empty()) {
            last.host = host.to_owned();
        }
        last.commands.extend(field(line, "run").map(plain));
    }
    found
}

/// What the doctor says on a host, its exit code, and its whole output.
fn doctor(
    world: &World,
    host: &str,
    env: &[(&str, &str)],
    under: &[&str],
    line: &str,
) -> Outcome<(Vec<Found>, i32, String)> {
    let mut said = world.lspan_under(host, under, env, &format!("doctor --json {line}"))?;
    let (code, text) = said.end(SOON * 3)?;
    // What it is about to send is announced before.
    let json = text.find("\n{").map_or(&*text, |at| &text[at..]);
    let json = json.trim_start();
    if !json.starts_with('{') {
        return Err(format!("no JSON from {host}: {text}"));
    }
    Ok((parse(json), code.unwrap_or(-1), json.to_owned()))
}

/// Exactly these codes, each once or more.
fn exactly(found: &[Found], code: &str, text: &str) -> Outcome<()> {
    match found {
        [] => Err(format!("{code} is not found: {text}")),
        found if found.iter().all(|one| one.code == code) => Ok(()),
        found => Err(format!("{code} is expected alone: {found:?}")),
    }
}

/// Types a command as it was printed, in a shell on the host. `sudo` is a word for nothing where the machine has none: this is root.
fn type_in(world: &World, host: &str, command: &str) -> Outcome<()> {
    let shell = format!("command -v sudo >/dev/null || sudo() {{ \"$@\"; }}; {command}");
    let mut node = world.program(host, &[], &["sh", "-c", &format!("({shell}) 2>&1")])?;
    match node.end(SOON)? {
        (Some(0), _) => Ok(()),
        (code, said) => Err(format!("`{command}` on {host}: {code:?} {said}")),
    }
}

/// The host of this world that calls itself so. Namespaces share the machine's name, so files are given names of their own.
fn together(world: &World, folder: &Folder, hosts: &[&str]) -> Outcome<(Vec<Found>, i32, String)> {
    let mut files = Vec::new();
    for host in hosts {
        let (_, _, text) = doctor(world, host, &[CABLES], &[], "")?;
        let name = text.lines().find_map(|line| field(line, "host")).ok_or("no host")?.to_owned();
        let text = text.replace(&format!("\"host\": \"{name}\""), &format!("\"host\": \"{host}\""));
        let text =
            text.lines().map(|line| if line.trim().starts_with("\"boot_id\"") { "\"boot_id\": null," } else { line });
        files.push(folder.file(&format!("{host}.json"), &text.collect::<Vec<_>>().join("\n"))?);
    }
    doctor(world, hosts[0], &[], &[], &format!("--merge {}", files.join(" ")))
}

fn mend(world: &World, found: &[Found]) -> Outcome<usize> {
    let mut typed = 0;
    for one in found {
        for command in &one.commands {
            type_in(world, &one.host, command)?;
            typed += 1;
        }
    }
    if typed == 0 { Err(format!("nothing to type: {found:?}")) } else { Ok(typed) }
}

fn serve(world: &World, host: &str) -> Outcome<Node> {
    let mut server = world.lspan(host, &[CABLES], "perf serve --open")?;
    server.expect("lspan: waiting on", SOON)?;
    Ok(server)
}

/// `lspan perf bw` to an address; whether it went over this interface.
fn carries(world: &World, host: &str, to: &str, over: &str) -> Outcome<()> {
    let mut run = world.lspan(host, &[CABLES], &format!("perf bw {to} --size 64K -n 20 --json"))?;
    let (code, text) = run.end(SOON * 3)?;
    // The address that was typed stands elsewhere too.
    let over_it = text.lines().any(|line| field(line, "path").is_some_and(|path| path.contains(over)));
    match (code, over_it) {
        (Some(0), true) => Ok(()),
        _ => Err(format!("lspan perf bw {to} ended with {code:?}, not over {over}: {text}")),
    }
}

/// It does not reach the peer, or not all of its data. A server has to wait there: without one nothing is reached whatever the cables do.
fn fails(world: &World, host: &str, to: &str, over: &str) -> Outcome<()> {
    let env = [CABLES, ("LINKSPAN_CONNECT_TIMEOUT_MS", "3000")];
    let mut run = world.lspan_under(
        host,
        &["timeout", "-s", "INT", "8"],
        &env,
        &format!("perf bw {to} --size 64K -n 20 --json"),
    )?;
    match run.end(SOON * 3)? {
        (Some(0), text) if text.contains(over) => Err(format!("lspan perf bw {to} already works over {over}")),
        _ => Ok(()),
    }
}

/// The same with a server on `b`, which ends behind it: it would know the addresses of before the mend alone.
fn closed(world: &World, to: &str, over: &str) -> Outcome<()> {
    let mut server = serve(world, "b")?;
    fails(world, "a", to, over)?;
    server.signal("INT")?;
    server.end(SOON).map(drop)
}

fn cabled() -> Outcome<World> {
    let world = World::new(&["a", "b"])?;
    world.cable("cab0", ("a", "10.77.0.1/24"), ("b", "10.77.0.2/24"))?;
    Ok(world)
}

fn both(world: &World) -> Outcome<()> {
    world.cable("cab1", ("a", "10.77.1.1/24"), ("b", "10.77.1.2/24"))?;
    settle(world, &["cab0", "cab1"])
}

/// Until link-local addresses may be used: duplicates are looked for first.
fn settle(world: &World, names: &[&str]) -> Outcome<()> {
    for host in ["a", "b"] {
        for name in names {
            let mut node = world.program(
                host,
                &[],
                &["sh", "-c", &format!("for i in $(seq 100); do ip -6 addr show dev {name} scope link | grep -q tentative || exit 0; sleep 0.1; done; exit 1")],
            )?;
            if node.end(SOON * 2)?.0 != Some(0) {
                return Err(format!("{name} on {host} has no link-local address"));
            }
        }
    }
    Ok(())
}

fn healthy() -> Outcome<String> {
    let (world, folder) = (cabled()?, Folder::new("healthy")?);
    both(&world)?;
    // An address with a label is one of its device.
    world.ip("a", "addr add 10.78.0.1/24 dev cab0 label cab0:1")?;
    let _server = serve(&world, "b")?;
    for (host, line) in [("a", ""), ("b", ""), ("a", "10.77.0.2"), ("a", "10.77.1.2")] {
        let (found, code, text) = doctor(&world, host, &[CABLES], &[], line)?;
        if !found.is_empty() || code != 0 || text.contains("cab0:1") {
            return Err(format!("{host} {line}: {code} {text}"));
        }
    }
    let (found, code, text) = together(&world, &folder, &["a", "b"])?;
    if !found.is_empty() || code != 0 {
        return Err(format!("together: {code} {text}"));
    }
    Ok("silent on both hosts, towards the peer and together".into())
}

fn no_address() -> Outcome<String> {
    let (world, folder) = (cabled()?, Folder::new("no-address")?);
    settle(&world, &["cab0"])?;
    world.ip("b", "addr flush dev cab0")?;
    let (alone, code, text) = doctor(&world, "b", &[CABLES], &[], "")?;
    exactly(&alone, "LS2306", &text)?;
    // A link-local address comes back, by which alone it is used where it is asked for.
    world.ip("b", "link set cab0 down")?;
    world.ip("b", "link set cab0 up")?;
    settle(&world, &["cab0"])?;
    let (alone, _, text) = doctor(&world, "b", &[CABLES], &[], "")?;
    if !alone.is_empty() || !text.contains("cab0 has link-local addresses only") {
        return Err(format!("link-local addresses alone: {text}"));
    }
    let (found, _, text) = together(&world, &folder, &["a", "b"])?;
    exactly(&found, "LS1410", &text)?;
    closed(&world, "10.77.0.2", "10.77.0.2")?;
    mend(&world, &found)?;
    let (found, _, text) = together(&world, &folder, &["a", "b"])?;
    let (alone, _, _) = doctor(&world, "b", &[CABLES], &[], "")?;
    if !found.is_empty() || !alone.is_empty() {
        return Err(format!("still: {alone:?} {text}"));
    }
    let _server = serve(&world, "b")?;
    carries(&world, "a", "10.77.0.2", "cab0")?;
    Ok(format!("LS2306 alone (rc {code}), LS1410 together; mended as printed, and it carries"))
}

fn subnets() -> Outcome<String> {
    let (world, folder) = (cabled()?, Folder::new("subnets")?);
    world.ip("b", "addr flush dev cab0 scope global")?;
    world.ip("b", "addr add 10.88.0.2/24 dev cab0")?;
    settle(&world, &["cab0"])?;
    let (found, _, text) = together(&world, &folder, &["a", "b"])?;
    exactly(&found, "LS1413", &text)?;
    closed(&world, "10.77.0.2", "10.77.0.2")?;
    mend(&world, &found)?;
    let (found, _, text) = together(&world, &folder, &["a", "b"])?;
    if !found.is_empty() {
        return Err(format!("still: {text}"));
    }
    let _server = serve(&world, "b")?;
    carries(&world, "a", "10.77.0.2", "cab0")?;
    Ok("LS1413; mended as printed, and it carries".into())
}

/// The plugs of two cables were swapped on `b`: each cable now joins two subnets.
fn crossed() -> Outcome<String> {
    let (world, folder) = (World::new(&["a", "b"])?, Folder::new("crossed")?);
    world.cable("cab0", ("a", "10.77.0.1/24"), ("b", "10.77.1.2/24"))?;
    world.cable("cab1", ("a", "10.77.1.1/24"), ("b", "10.77.0.2/24"))?;
    // Without it a host answers at one cable for the address of the other, and sends over the wrong one.
    for host in ["a", "b"] {
        type_in(&world, host, "echo 1 >/proc/sys/net/ipv4/conf/all/rp_filter")?;
    }
    settle(&world, &["cab0", "cab1"])?;
    let (found, _, text) = together(&world, &folder, &["a", "b"])?;
    exactly(&found, "LS1413", &text)?;
    for step in ["move the cable from cab0 to cab1 on b", "move the cable from cab1 to cab0 on b"] {
        if !text.contains(step) {
            return Err(format!("no {step:?}: {text}"));
        }
    }
    closed(&world, "10.77.0.2", "10.77.0.2")?;
    // The cables change their ports; addresses stay with the ports.
    for command in [
        "link set cab0 down",
        "link set cab1 down",
        "link set cab0 name moved",
        "link set cab1 name cab0",
        "link set moved name cab1",
        "addr flush dev cab0",
        "addr flush dev cab1",
        "addr add 10.77.1.2/24 dev cab0",
        "addr add 10.77.0.2/24 dev cab1",
        "link set cab0 up",
        "link set cab1 up",
    ] {
        world.ip("b", command)?;
    }
    settle(&world, &["cab0", "cab1"])?;
    let (found, code, text) = together(&world, &folder, &["a", "b"])?;
    if !found.is_empty() || code != 0 {
        return Err(format!("still: {text}"));
    }
    let _server = serve(&world, "b")?;
    for (to, over) in [("10.77.0.2", "cab0"), ("10.77.1.2", "cab1")] {
        carries(&world, "a", to, over)?;
    }
    Ok("LS1413 of both cables; moved as printed, and both carry".into())
}

fn one_subnet() -> Outcome<String> {
    let world = cabled()?;
    world.cable("cab1", ("a", "10.77.0.11/24"), ("b", "10.77.0.12/24"))?;
    settle(&world, &["cab0", "cab1"])?;
    let mut mends = Vec::new();
    for host in ["a", "b"] {
        let (found, _, text) = doctor(&world, host, &[CABLES], &[], "")?;
        exactly(&found, "LS2307", &text)?;
        mends.extend(found.into_iter().map(|one| Found { host: host.to_owned(), ..one }));
    }
    mend(&world, &mends)?;
    for host in ["a", "b"] {
        let (found, code, text) = doctor(&world, host, &[CABLES], &[], "")?;
        if !found.is_empty() || code != 0 {
            return Err(format!("{host} still: {text}"));
        }
    }
    // The address that b got.
    let command =
        mends.iter().rev().flat_map(|one| &one.commands).find(|c| c.contains("addr add")).ok_or("no address")?;
    let to = command.split("addr add ").nth(1).and_then(|rest| rest.split('/').next()).ok_or("no address")?.to_owned();
    let _server = serve(&world, "b")?;
    carries(&world, "a", &to, "cab1")?;
    Ok(format!("LS2307 on both hosts; mended as printed on each, and cab1 carries to {to}"))
}

fn mtu() -> Outcome<String> {
    let (world, folder) = (cabled()?, Folder::new("mtu")?);
    both(&world)?;
    for host in ["a", "b"] {
        world.ip(host, "link set cab0 mtu 9000")?;
    }
    world.ip("b", "link set cab0 mtu 1500")?;
    let (alone, _, text) = doctor(&world, "a", &[CABLES], &[], "10.77.0.2")?;
    exactly(&alone, "LS2313", &text)?;
    if alone[0].commands != ["sudo ip link set cab0 mtu 1500"] {
        return Err(format!("another MTU: {:?}", alone[0].commands));
    }
    let (found, _, text) = together(&world, &folder, &["a", "b"])?;
    exactly(&found, "LS1415", &text)?;
    mend(&world, &found)?;
    let (found, _, text) = together(&world, &folder, &["a", "b"])?;
    if !found.is_empty() {
        return Err(format!("still: {text}"));
    }
    let _server = serve(&world, "b")?;
    carries(&world, "a", "10.77.0.2", "cab0")?;
    Ok("LS1415; mended as printed, and it carries".into())
}

/// `a` and `b` on a switch `s` whose port to `b` takes 1400 bytes.
fn black_hole() -> Outcome<String> {
    let world = World::new(&["a", "b", "s"])?;
    for (host, port, addr) in [("a", "pa", "10.77.0.1/24"), ("b", "pb", "10.77.0.2/24")] {
        sh(&format!("ip link add cab0 netns {} type veth peer name {port} netns {}", world.ns(host), world.ns("s")))?;
        world.ip(host, &format!("addr add {addr} dev cab0"))?;
        // A bundle of segments, which the network card of a real machine would cut up, passes a bridge whatever its size.
        world.ip(host, "link set cab0 gso_max_segs 1")?;
        world.ip(host, "link set cab0 up")?;
    }
    world.ip("s", "link add br0 type bridge")?;
    for port in ["pa", "pb"] {
        world.ip("s", &format!("link set {port} master br0"))?;
        world.ip("s", &format!("link set {port} up"))?;
    }
    world.ip("s", "link set br0 up")?;
    world.ip("s", "link set pb mtu 1400")?;
    settle(&world, &["cab0"])?;
    let mut server = serve(&world, "b")?;
    let (found, _, text) = doctor(&world, "a", &[CABLES], &[], "10.77.0.2")?;
    exactly(&found, "LS2313", &text)?;
    fails(&world, "a", "10.77.0.2", "10.77.0.2")?;
    server.signal("INT")?;
    server.end(SOON)?;
    let mends: Vec<Found> = found.into_iter().map(|one| Found { host: "a".into(), ..one }).collect();
    mend(&world, &mends)?;
    let _server = serve(&world, "b")?;
    let (found, _, text) = doctor(&world, "a", &[CABLES], &[], "10.77.0.2")?;
    if !found.is_empty() {
        return Err(format!("still: {text}"));
    }
    carries(&world, "a", "10.77.0.2", "cab0")?;
    Ok(format!("LS2313; `{}` as printed, and it carries", mends[0].commands[0]))
}

fn has(program: &str) -> bool {
    std::process::Command::new(program).arg("--version").output().is_ok_and(|out| out.status.success())
}

fn firewall() -> Outcome<String> {
    if !has("nft") {
        return Err("there is no nft on this machine: install nftables".into());
    }
    let world = cabled()?;
    settle(&world, &["cab0"])?;
    let _server = serve(&world, "b")?;
    let make = "nft add table inet filter && nft add chain inet filter input '{ type filter hook input priority 0; policy accept; }' && nft add rule \
                inet filter input iifname cab0 tcp dport 1024-65535 drop";
    type_in(&world, "b", make)?;
    let (found, _, text) = doctor(&world, "a", &[CABLES], &[], "10.77.0.2")?;
    exactly(&found, "LS2402", &text)?;
    fails(&world, "a", "10.77.0.2", "10.77.0.2")?;
    let (found, _, text) = doctor(&world, "b", &[CABLES], &[], "")?;
    exactly(&found, "LS2401", &text)?;
    let mends: Vec<Found> = found.into_iter().map(|one| Found { host: "b".into(), ..one }).collect();
    mend(&world, &mends)?;
    for (host, line) in [("a", "10.77.0.2"), ("b", "")] {
        let (found, _, text) = doctor(&world, host, &[CABLES], &[], line)?;
        if !found.is_empty() {
            return Err(format!("{host} still: {text}"));
        }
    }
    carries(&world, "a", "10.77.0.2", "cab0")?;
    // The port of `lspan perf serve` alone is open, and then nothing goes out.
    let out = "nft flush ruleset && nft add table inet filter && nft add chain inet filter HOOK '{ type filter hook HOOK priority 0; policy accept; }'";
    let rule = "nft add rule inet filter input tcp dport 32768-65535 drop";
    type_in(&world, "b", &format!("{} && {rule}", out.replace("HOOK", "input")))?;
    let folder = Folder::new("firewall")?;
    let (stats, state) = (folder.0.join("stats").display().to_string(), folder.0.display().to_string());
    let env = [CABLES, ("LINKSPAN_STATS_DIR", &*stats), ("XDG_STATE_HOME", &*state)];
    let (found, code, text) = doctor(&world, "a", &env, &[], "--speed 10.77.0.2")?;
    exactly(&found, "LS2402", &text)?;
    if code != 1 || !text.contains("its other ports do not") {
        return Err(format!("the data ports: {code} {text}"));
    }
    type_in(
        &world,
        "a",
        &format!("{} && nft add rule inet filter output oifname cab0 drop", out.replace("HOOK", "output")),
    )?;
    let (found, _, text) = doctor(&world, "a", &[CABLES], &[], "10.77.0.2")?;
    exactly(&found, "LS2312", &text)?;
    if !text.contains("cannot send it a ping") {
        return Err(format!("nothing goes out: {text}"));
    }
    Ok("LS2402 on one host, LS2401 on the other; mended as printed, and it carries; closed data ports and what drops output are told".into())
}

/// By a route to one address, by a rule that asks another table, and by a route of IPv6.
fn asymmetric() -> Outcome<String> {
    let (world, folder) = (cabled()?, Folder::new("asymmetric")?);
    both(&world)?;
    for (host, side) in [("a", 1), ("b", 2)] {
        for (n, cable) in ["cab0", "cab1"].iter().enumerate() {
            world.ip(host, &format!("addr add fd00:{n}::{side}/64 dev {cable} nodad"))?;
        }
    }
    let ways = [
        &["route add 10.77.0.1/32 dev cab1"][..],
        &["route add default dev cab1 table 100", "rule add from 10.77.0.2 lookup 100 priority 1000"],
        &["-6 route add fd00:0::1/128 dev cab1"],
    ];
    let mut typed = Vec::new();
    for commands in ways {
        for command in commands {
            world.ip("b", command)?;
        }
        let (found, _, text) = together(&world, &folder, &["a", "b"])?;
        exactly(&found, "LS2315", &text)?;
        mend(&world, &found)?;
        let (left, _, text) = together(&world, &folder, &["a", "b"])?;
        if !left.is_empty() {
            return Err(format!("still: {text}"));
        }
        typed.extend(found.into_iter().flat_map(|one| one.commands));
    }
    let _server = serve(&world, "b")?;
    carries(&world, "a", "10.77.0.2", "cab0")?;
    Ok(format!("LS2315 of each; `{}` as printed, and it carries", typed.join("`, `")))
}

/// The limit is this shell's own; the RDMA devices are files, for this machine may have none.
fn memlock() -> Outcome<String> {
    let (world, folder) = (World::new(&["a"])?, Folder::new("memlock")?);
    let device = "sys/class/infiniband/mlx5_0";
    for (file, text) in [
        ("node_type", "1: CA\n"),
        ("ports/1/state", "4: ACTIVE\n"),
        ("ports/1/phys_state", "5: LinkUp\n"),
        ("ports/1/link_layer", "InfiniBand\n"),
        ("ports/1/lid", "0x1\n"),
        ("ports/1/rate", "100 Gb/sec (4X EDR)\n"),
        ("ports/1/gids/0", "fe80:0000:0000:0000:0000:0000:0000:0001\n"),
    ] {
        folder.file(&format!("{device}/{file}"), text)?;
    }
    folder.file("dev/infiniband/uverbs0", "-")?;
    folder.file("usr/lib/libibverbs.so.1", "-")?;
    folder.file("sys/class/net/eth0/ifindex", "2\n")?;
    folder.file("sys/class/net/eth0/flags", "0x1003\n")?;
    folder.file("sys/class/net/eth0/operstate", "up\n")?;
    folder.file("sys/class/net/eth0/type", "32\n")?;
    std::os::unix::fs::symlink("/proc", folder.0.join("proc")).map_err(|e| e.to_string())?;
    let root = folder.0.display().to_string();
    let lspan = world.lspan_path()?;
    let line = format!("{lspan} doctor --no-probe --root {root}");
    // Root's capability lifts the limit: without it, as a user's process is. A default route is not asked of this machine.
    let shell = |mend: &str| {
        format!(
            "ulimit -S -l 64; sudo() {{ \"$@\"; }}; {mend} 2>&1; setpriv --bounding-set -ipc_lock --inh-caps -all {line} | grep -A3 \
             LS2203 || echo silent"
        )
    };
    let ask = |mend: &str| -> Outcome<String> {
        let mut node = world.program("a", &[], &["bash", "-c", &shell(mend)])?;
        Ok(node.end(SOON)?.1)
    };
    let said = ask("true")?;
    let command =
        said.lines().find_map(|l| l.trim().strip_prefix("type   ")).ok_or_else(|| format!("no command: {said}"))?;
    if !said.contains("LS2203") {
        return Err(format!("LS2203 is not named: {said}"));
    }
    let after = ask(command)?;
    if after.contains("not permitted") {
        return Ok(format!(
            "{SKIPPED}LS2203 is named, and `{command}` could not be typed: root of this machine may not raise limits (CAP_SYS_RESOURCE)"
        ));
    }
    if after.trim() != "silent" {
        return Err(format!("still: {after}"));
    }
    Ok(format!("LS2203; `{command}` as printed, and it is gone (the devices were files)"))
}

/// Real plugin files, one of them with an older release written into it, and which of them the dynamic linker takes.
fn shadowed() -> Outcome<String> {
    let (world, folder) = (World::new(&["a"])?, Folder::new("shadowed")?);
    let Some(built) = std::env::var_os("PLUGIN") else {
        return Err("no plugin: name it in PLUGIN, as `cargo xtask netns` does".into());
    };
    let bytes = std::fs::read(&built).map_err(|e| format!("{}: {e}", built.display()))?;
    let mark = b"linkspan-plugin-version=0.";
    let at = bytes.windows(mark.len()).position(|w| w == mark).ok_or("the plugin does not tell its release")?;
    let mut old = bytes.clone();
    // 0.1.0 becomes 0.0.0.
    old[at + mark.len()] = b'0';
    for (dir, bytes) in [("old", &old), ("new", &bytes)] {
        let path = folder.0.join(dir);
        std::fs::create_dir_all(&path)
            .and_then(|()| std::fs::write(path.join("libnccl-net-linkspan.so"), bytes))
            .map_err(|e| e.to_string())?;
    }
    let dirs = format!("{0}/old:{0}/new", folder.0.display());
    let env = [("LD_LIBRARY_PATH", &*dirs), ("NCCL_NET_PLUGIN", "linkspan"), ("LINKSPAN_IFNAME", "=lo")];
    let shadow = |text: &str| parse(text).into_iter().filter(|one| one.code.starts_with("LS28")).collect::<Vec<_>>();
    let (_, _, text) = doctor(&world, "a", &env, &[], "--no-probe")?;
    let found = shadow(&text);
    exactly(&found, "LS2803", &text)?;
    let taken = linker(&world, &dirs)?;
    if taken.as_ref().is_some_and(|file| !file.contains("/old/")) {
        return Err(format!("the dynamic linker takes {taken:?}"));
    }
    let mends: Vec<Found> = found.into_iter().map(|one| Found { host: "a".into(), ..one }).collect();
    mend(&world, &mends)?;
    let (_, _, text) = doctor(&world, "a", &env, &[], "--no-probe")?;
    if !shadow(&text).is_empty() {
        return Err(format!("still: {text}"));
    }
    let after = linker(&world, &dirs)?;
    if after.as_ref().is_some_and(|file| !file.contains("/new/")) {
        return Err(format!("the dynamic linker takes {after:?}"));
    }
    let by = if after.is_some() { "and by the dynamic linker" } else { "the dynamic linker was not asked: no python3" };
    Ok(format!("LS2803; mended as printed, {by}"))
}

/// Which file dlopen(3) takes; `None` without a program to ask it.
fn linker(world: &World, dirs: &str) -> Outcome<Option<String>> {
    if !has("python3") {
        return Ok(None);
    }
    let ask = "import ctypes; ctypes.CDLL('libnccl-net-linkspan.so'); print('maps', [l.split()[-1] for l in open('/proc/self/maps') if 'libnccl-net' in l][0])";
    let mut node = world.program("a", &[("LD_LIBRARY_PATH", dirs)], &["python3", "-c", ask])?;
    node.expect("maps", SOON).map(Some)
}

fn old_names() -> Outcome<String> {
    let world = cabled()?;
    settle(&world, &["cab0"])?;
    let env = [CABLES, ("NCCL_MESH_TIMEOUT_MS", "5000"), ("NCCL_NET_PLUGIN", "mesh")];
    let (found, code, text) = doctor(&world, "a", &env, &[], "--no-probe")?;
    exactly(&found, "LS2801", &text)?;
    if found.len() != 2 || code != 1 {
        return Err(format!("two names are set: {code} {text}"));
    }
    let commands: Vec<&str> = found.iter().flat_map(|one| &one.commands).map(String::as_str).collect();
    let lspan = world.lspan_path()?;
    let line = format!("{}; exec {lspan} doctor --no-probe --json", commands.join("; "));
    let mut node = world.program("a", &env, &["sh", "-c", &line])?;
    match node.end(Duration::from_secs(20))? {
        (Some(0), _) => Ok(format!("LS2801 twice; `{}` as printed, and they are gone", commands.join("; "))),
        (code, text) => Err(format!("still: {code:?} {text}")),
    }
}

/// Two processes of one host, one of them in a pid namespace of its own, as in a container.
fn pid_namespace() -> Outcome<String> {
    let (world, folder) = (World::new(&["a"])?, Folder::new("pid")?);
    let (_, _, first) = doctor(&world, "a", &[], &[], "--no-probe")?;
    let under = ["unshare", "--pid", "--fork", "--mount-proc"];
    let (_, _, second) = doctor(&world, "a", &[], &under, "--no-probe")?;
    let files = [folder.file("1.json", &first)?, folder.file("2.json", &second)?];
    let (found, code, text) = doctor(&world, "a", &[], &[], &format!("--merge {}", files.join(" ")))?;
    exactly(&found, "LS2504", &text)?;
    if code != 3 {
        return Err(format!("rc {code}: {text}"));
    }
    Ok("LS2504 (rc 3)".into())
}

fn broken_sys() -> Outcome<String> {
    let (world, folder) = (World::new(&["a"])?, Folder::new("broken")?);
    let root = folder.0.display().to_string();
    let env = [("NCCL_MESH_TIMEOUT_MS", "5000"), ("LINKSPAN_IFNAME", "=lo,/")];
    let under = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"];
    let (found, code, text) = doctor(&world, "a", &env, &under, &format!("--root {root}"))?;
    let codes: Vec<&str> = found.iter().map(|one| &*one.code).collect();
    for wanted in ["LS2801", "LS2301"] {
        if !codes.contains(&wanted) {
            return Err(format!("{wanted} is not judged: {codes:?} {text}"));
        }
    }
    for note in ["/sys/class/net cannot be read", "/proc cannot be read", "judged as if it were not set"] {
        if !text.contains(note) {
            return Err(format!("no note of {note}: {text}"));
        }
    }
    Ok(format!("three notes, and {codes:?} all the same (rc {code})"))
}

fn says(world: &World, line: &str, code: i32, part: &str) -> Outcome<String> {
    let (got, said) = world.lspan("a", &[CABLES], line)?.end(SOON * 3)?;
    match got == Some(code) && said.contains(part) {
        true => Ok(said),
        false => Err(format!("lspan {line}: {got:?}, not {code} with {part:?}: {said}")),
    }
}

/// One cable, and nobody has given it an address.
fn cable_name() -> Outcome<String> {
    let world = World::new(&["a", "b"])?;
    says(&world, "perf bw cable -n 20", 4, "there is no cable with a host at its other end")?;
    sh(&format!("ip link add cab0 netns {} type veth peer name cab0 netns {}", world.ns("a"), world.ns("b")))?;
    world.ip("a", "link set cab0 up")?;
    says(&world, "wait cable --timeout 1s", 124, "LS0742")?;
    world.ip("b", "link set cab0 up")?;
    settle(&world, &["cab0"])?;
    let said = says(&world, "wait cable --timeout 20s", 0, "%cab0]:")?;
    says(&world, "perf bw cable -n 20", 4, "type `lspan perf serve` on the host at the other end of cable1")?;
    says(&world, "wait cable --serving --timeout 1s", 124, "type `lspan perf serve` there")?;
    let server = serve(&world, "b")?;
    says(&world, "wait cable --serving --timeout 20s", 0, "%cab0]:")?;
    for name in ["cable", "cable1"] {
        says(&world, &format!("perf bw {name} --size 64K -n 20"), 0, "cab0")?;
    }
    for test in ["bw", "lat"] {
        says(&world, &format!("perf {test} cable --size 64K -n 20 --baseline --json"), 0, "\"baseline\": [")?;
    }
    drop(server);
    // Its one address is looked for elsewhere first.
    world.ip("b", "link set cab0 down")?;
    world.ip("b", "link set cab0 up")?;
    let _server = serve(&world, "b")?;
    says(&world, "wait cable --serving --timeout 20s", 0, "%cab0]:")?;
    says(&world, "perf bw cable2 -n 20", 4, "there is no such cable; there are cable1 (cab0)")?;
    let (found, _, text) = doctor(&world, "a", &[CABLES], &[], "cable")?;
    // The link-local address is enough where it is asked for.
    if !found.is_empty() || !text.contains("cab0 has link-local addresses only") {
        return Err(format!("a cable by link-local addresses: {text}"));
    }
    if text.contains("answers a ping is not known") {
        return Err(format!("the link-local address was not pinged: {text}"));
    }
    world.ip("a", "addr add 10.77.0.1/24 dev cab0")?;
    world.ip("a", "link set cab0 down")?;
    says(&world, "perf bw cable1 -n 20", 4, "cab0 is switched off: type `sudo ip link set cab0 up`")?;
    let (found, _, text) = doctor(&world, "a", &[CABLES], &[], "cable1")?;
    exactly(&found, "LS2317", &text)?;
    Ok(format!("found at {}; measured, and judged", said.lines().last().unwrap_or_default()))
}

fn compare() -> Outcome<String> {
    let world = cabled()?;
    both(&world)?;
    world.shape("a", "cab0", 50)?;
    let _server = serve(&world, "b")?;
    let (code, said) = world.lspan("a", &[CABLES], "perf compare 10.77.1.2 --duration 300ms")?.end(SOON * 6)?;
    let rate = |way: &str| -> Outcome<f64> {
        let line = said.lines().find_map(|line| line.strip_prefix(way)).ok_or_else(|| format!("no {way}: {said}"))?;
        line.split_whitespace().next().and_then(|word| word.parse().ok()).ok_or_else(|| format!("no rate: {line}"))
    };
    let (slow, fast, chosen) = (rate("tcp over cab0")?, rate("tcp over cab1")?, rate("as chosen")?);
    if code != Some(0) || slow >= 0.1 || fast <= slow * 3.0 || chosen <= 0.0 {
        return Err(format!("{code:?}: {said}"));
    }
    // Where nobody answers over one cable (both ends have the same address), the other is no figure for it.
    for host in ["a", "b"] {
        world.ip(host, "addr flush dev cab0")?;
        world.ip(host, "addr add 169.254.7.1/16 dev cab0")?;
    }
    let (code, said) = world.lspan("a", &[CABLES], "perf compare 10.77.1.2 --duration 300ms")?.end(SOON * 6)?;
    match code == Some(0) && said.contains("# not tcp over cab0: nobody answered over it") {
        true => Ok(format!("{slow} and {fast} Gb/s, {chosen} as chosen; a cable over which nobody answers is none")),
        false => Err(format!("no answer {code:?}: {said}")),
    }
}

fn matrix() -> Outcome<String> {
    let (world, folder) = (World::new(&["a", "b", "c", "s"])?, Folder::new("matrix")?);
    world.ip("s", "link add br0 type bridge")?;
    world.ip("s", "link set br0 up")?;
    for (n, host) in ["a", "b", "c"].iter().enumerate() {
        sh(&format!("ip link add cab0 netns {} type veth peer name p{n} netns {}", world.ns(host), world.ns("s")))?;
        world.ip(host, &format!("addr add 10.77.0.{}/24 dev cab0", n + 1))?;
        world.ip(host, "link set cab0 up")?;
        world.ip("s", &format!("link set p{n} master br0"))?;
        world.ip("s", &format!("link set p{n} up"))?;
    }
    // All are shaped, so that a busy machine makes no outlier.
    for (host, mbit) in [("a", 200), ("b", 200), ("c", 40)] {
        world.shape(host, "cab0", mbit)?;
    }
    let hosts: Vec<String> =
        ["a", "b", "c"].iter().enumerate().map(|(n, host)| format!("{}=10.77.0.{}", world.ns(host), n + 1)).collect();
    let (page, lspan) = (folder.file("matrix.html", "")?, world.lspan_path()?);
    let lspan = std::fs::canonicalize(lspan).map_err(|e| e.to_string())?.display().to_string();
    let mut args = vec![
        "perf",
        "matrix",
        "--open",
        "--duration",
        "300ms",
        "--lspan",
        &lspan,
        "--report",
        &page,
        "--rsh",
        "ip netns exec",
    ];
    args.extend(hosts.iter().map(String::as_str));
    // It is asked from outside of the three hosts.
    let asked = |args: &[&str]| -> Outcome<(Option<i32>, String)> {
        let mut run = std::process::Command::new(&lspan);
        run.args(args)
            .env("LINKSPAN_IFNAME", "cab")
            .env("XDG_CONFIG_HOME", "/nonexistent")
            .env("LINKSPAN_STATS_DIR", "off");
        let output = run.output().map_err(|e| e.to_string())?;
        let said = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        Ok((output.status.code(), said))
    };
    let (code, said) = asked(&args)?;
    let (a, b, c) = (world.ns("a"), world.ns("b"), world.ns("c"));
    for wanted in [format!("! {c} to {a}: "), format!("! {c} to {b}: ")] {
        if !said.contains(&wanted) {
            return Err(format!("no {wanted}: {said}"));
        }
    }
    let page = std::fs::read_to_string(&page).map_err(|e| e.to_string())?;
    if code != Some(3) || said.matches("\n! ").count() != 2 || page.matches("class=out").count() != 2 {
        return Err(format!("{code:?}: {said}"));
    }
    // Neither paired nor open: the servers wait for their own hosts only.
    args.retain(|word| *word != "--open");
    let (code, closed) = asked(&args)?;
    if code != Some(1) || closed.matches("waiting on 127.0.0.1:24680").count() != 3 || !closed.contains("`lspan pair`")
    {
        return Err(format!("without --open {code:?}: {closed}"));
    }
    // The servers end with the one who asked.
    let mut left = world.program("a", &[], &["sh", "-c", "ss -ltn 2>/dev/null | grep -c :24680 || true"])?;
    match left.end(SOON)?.1.trim() {
        "0" | "" => Ok("two pairs stand out, in the table and on the page; no server is left".into()),
        other => Err(format!("{other} servers are left")),
    }
}

fn speed() -> Outcome<String> {
    let (world, folder) = (cabled()?, Folder::new("speed")?);
    both(&world)?;
    // Both well below what this machine carries when it is busy.
    let shape = |name: &str, mbit: u32| -> Outcome<()> {
        for host in ["a", "b"] {
            let rate = format!("tc qdisc replace dev {name} root tbf rate {mbit}mbit burst 128kb latency 20ms");
            sh(&format!("ip netns exec {} {rate}", world.ns(host)))?;
        }
        Ok(())
    };
    let (stats, state) = (folder.0.join("stats").display().to_string(), folder.0.display().to_string());
    let env = [CABLES, ("LINKSPAN_STATS_DIR", &*stats), ("XDG_STATE_HOME", &*state)];
    let _server = serve(&world, "b")?;
    let ask = || doctor(&world, "a", &env, &[], "--speed 10.77.1.2");
    shape("cab0", 500)?;
    shape("cab1", 500)?;
    let (found, code, text) = ask()?;
    if !found.is_empty() || code != 0 || !text.contains("tcp over cab0") {
        return Err(format!("healthy: {code} {text}"));
    }
    shape("cab0", 150)?;
    let (found, code, text) = ask()?;
    let rails: Vec<&str> = found.iter().map(|one| &*one.code).filter(|code| *code != "LS2701").collect();
    if rails != ["LS2702"] || code != 3 || !text.contains("\"subject\": \"cab0\"") {
        return Err(format!("one rail: {code} {text}"));
    }
    shape("cab1", 150)?;
    let (found, code, text) = ask()?;
    exactly(&found, "LS2701", &text)?;
    if code != 3 {
        return Err(format!("both: {code} {text}"));
    }
    shape("cab0", 500)?;
    shape("cab1", 500)?;
    let (found, _, text) = ask()?;
    if !found.is_empty() {
        return Err(format!("still: {text}"));
    }
    let mut job = world.lspan("a", &env, "perf bw 10.77.1.2 --size 64K --duration 60s --json-stream")?;
    job.expect("{\"event\"", SOON * 2)?;
    // The connection shows in the statistics some calls later.
    let mut text = String::new();
    for _ in 0..20 {
        let (_, code, said) = ask()?;
        text = said;
        if code == 4 && text.contains("LS2021 nothing could be measured to 10.77.1.2: process") {
            return Ok("LS2702 of the slower rail, LS2701 of both; gone with their cause; nothing beside a job".into());
        }
    }
    Err(format!("measured beside a job: {text}"))
}
