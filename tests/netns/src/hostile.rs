//! Programs of ours at work beside a client that means harm: what it can make them use, and what it takes from honest jobs. It runs on
//! one processor alone, and comes from many addresses.
//!
//! `HOSTILE_SECONDS=60` attacks for longer and then judges the honest rate too: at least half of what it is beside a client that only
//! takes that processor. For a few seconds only a tenth of that is asked for, as other jobs of the machine count too.

use std::time::{Duration, Instant};

use linkspan_hostile::{Kind, Target, Usage, Watch, attack};

use crate::mesh::{Mesh, ranks};
use crate::tests::{SOON, Test};
use crate::world::{Node, Outcome, World};

pub(crate) const ALL: &[Test] = &[
    test("hostile-perf", "lspan perf serve among strangers: what they take is bounded, and a test goes on", perf),
    test("hostile-files", "lspan files serve likewise", files),
    test("hostile-mesh", "lspan mesh --serve likewise, while it relays", mesh),
    test("hostile-plugin", "a job with the plugin likewise, while it is set up and while it runs", plugin),
    test("hostile-library", "a program with the library likewise", library),
    test("hostile-metrics", "lspan metrics --listen likewise", metrics),
];

const fn test(name: &'static str, what: &'static str, run: fn() -> Outcome<String>) -> Test {
    Test { name, what, waits: false, run }
}

/// Seconds of each attack where `HOSTILE_SECONDS` does not say so.
const SECONDS: u64 = 3;

/// Longest time that is spent beside one enemy before it is the other's turn.
const SLICE: u64 = 6;

/// Addresses that the enemy comes from.
const SOURCES: u8 = 64;

/// Descriptors that each victim may have, of which a quarter are for streams that are no connection yet.
const DESCRIPTORS: &str = "ulimit -n 1024; exec \"$0\" \"$@\" 2>&1";
const HALF_OPEN: u64 = 256;

/// The most that strangers may make a victim use beyond what it used before. Some descriptors are of no stranger: what is being accepted and
/// closed, a table of the kernel that is being read.
const BOUND: Usage =
    Usage { memory_kib: 32 << 10, pinned_kib: 0, threads: 0, descriptors: HALF_OPEN + 8, processor_ns: 1_100_000_000 };

/// Threads of an honest session that has not quite ended when the next one begins: beside strangers it takes longer to end.
const OVERLAP: u64 = 4;

/// Lines in a minute, and a few at each end.
const LINES: u64 = 70;

fn seconds() -> u64 {
    std::env::var("HOSTILE_SECONDS").ok().and_then(|n| n.parse().ok()).filter(|n| *n > 0).unwrap_or(SECONDS)
}

/// `node attack KIND PROCESS SECONDS TARGET...`: the enemy.
pub(crate) fn enemy(args: &[&str]) -> Result<(), String> {
    let [kind, process, seconds, targets @ ..] = args else {
        return Err("attack KIND PROCESS SECONDS TARGET...".into());
    };
    let kind = Kind::named(kind).ok_or_else(|| format!("there is no attack {kind}"))?;
    let number = |text: &str| text.parse::<u32>().map_err(|_| format!("{text} is not a number"));
    let targets: Option<Vec<Target>> = targets.iter().map(|text| Target::parse(text)).collect();
    let targets = targets.filter(|all| !all.is_empty()).ok_or("a target is TARGET@SOURCE,SOURCE...")?;
    let victim = number(process)?;
    let handle = linkspan_hostile::offered(victim, &targets);
    println!("attacking {}", if handle.is_some() { "with the handle that it was given" } else { "without a handle" });
    let time = Duration::from_secs(u64::from(number(seconds)?));
    let up = attack(kind, victim, &targets, handle.as_ref(), 0, time)?;
    println!("attacked {up}");
    Ok(())
}

/// Hosts `t` with the victim, `h` with an honest one, `e` with the enemy.
fn world() -> Outcome<World> {
    let world = World::new(&["t", "h", "e"])?;
    join(&world)?;
    Ok(world)
}

fn join(world: &World) -> Outcome<()> {
    world.cable("cabh", ("t", "10.65.0.1/24"), ("h", "10.65.0.2/24"))?;
    world.cable("cabe", ("t", "10.66.0.1/16"), ("e", "10.66.0.2/16"))?;
    (1..=SOURCES).try_for_each(|n| world.ip("e", &format!("addr add 10.66.1.{n}/16 dev cabe")))
}

/// Strangers at every port of the victim's host.
fn strangers(world: &World, kind: &str, victim: &Node, seconds: u64) -> Outcome<Node> {
    let sources: Vec<String> = (1..=SOURCES).map(|n| format!("10.66.1.{n}")).collect();
    let target = format!("10.66.0.1@{}", sources.join(","));
    let mut node = world.node("e", &[], &["attack", kind, &victim.id().to_string(), &seconds.to_string(), &target])?;
    // It first asks each port of the victim for a handle, and a port that is none of those may say nothing for a while.
    node.expect("attacking", SOON * 12)?;
    Ok(node)
}

/// Lines so far, but for those by which the work of a job is told, and those that are asked for.
fn said(node: &mut Node) -> usize {
    node.heard_without(&[": round ", "got ", "plugin info"])
}

/// What came of an attack.
struct Attacked {
    /// The most that it used, beyond what the honest job alone makes it use.
    usage: Usage,
    connects: f64,
    lines: u64,
    /// The honest rate, of that beside a client that only takes a processor.
    rate: Option<f64>,
}

/// Attacks a victim while an honest job runs, of which `honest` says how much it got done in so many seconds. `process`: whose use is
/// counted. The honest rate is taken in turns, beside the enemy and beside a client that only spins, and judged by the median: what else
/// the machine does changes meanwhile.
fn attacked(
    world: &World,
    victim: &mut Node,
    process: u32,
    mut honest: Option<&mut dyn FnMut(u64) -> Outcome<f64>>,
) -> Outcome<Attacked> {
    let slice = seconds().min(SLICE);
    if let Some(honest) = &mut honest {
        // Once, so that what is made for the first of its kind does not count.
        honest(1)?;
    }
    let lines = said(victim);
    let (mut ratios, mut connects, mut processor, mut time) = (Vec::new(), 0.0, 0, 0.0);
    let (mut most, mut most_alone) = (Usage::default(), Usage::default());
    for _ in 0..seconds() / slice {
        let mut alone = None;
        if let Some(honest) = &mut honest {
            let _spinning = strangers(world, "spin", victim, 10 * slice)?;
            let watch = Watch::begin(process).ok_or("the victim has ended")?;
            alone = Some(honest(slice)?);
            most_alone = most_alone.most(watch.end());
        }
        let before = Usage::of(process).ok_or("the victim has ended")?;
        let (begun, watch) = (Instant::now(), Watch::begin(process).ok_or("the victim has ended")?);
        let mut mix = strangers(world, "mix", victim, slice)?;
        if let (Some(honest), Some(alone)) = (&mut honest, alone) {
            ratios.push(honest(slice)? / alone);
        }
        let up = mix.expect("attacked", SOON + Duration::from_secs(slice * 3))?;
        connects += up.parse::<f64>().map_err(|e| e.to_string())?;
        processor += Usage::of(process).ok_or("the victim has ended")?.processor_ns - before.processor_ns;
        time += begun.elapsed().as_secs_f64();
        most = most.most(watch.end());
    }
    let usage = Usage { processor_ns: (processor as f64 / time) as u64, ..most.beyond(most_alone) };
    ratios.sort_by(f64::total_cmp);
    // The lower one of two in the middle: an honest rate is judged by what it falls below.
    let rate = ratios.get(ratios.len().saturating_sub(1) / 2).copied();
    let lines = (said(victim) - lines) as u64;
    Ok(Attacked { usage, connects: connects / time, lines, rate })
}

impl Attacked {
    /// Judges it; what it was, in words.
    fn within(&self, bound: Usage) -> Outcome<String> {
        let Attacked { usage, connects, lines, rate } = self;
        let rate_said = rate
            .map_or(String::new(), |rate| format!("; the honest rate is {rate:.2} of that beside a spinning client"));
        let said = format!(
            "{connects:.0} connects/s: {:+.1} MiB, {:+} threads, {:+} descriptors, {} KiB pinned, {:.0} % of a processor, {lines} lines{rate_said}",
            usage.memory_kib as f64 / 1024.0,
            usage.threads,
            usage.descriptors,
            usage.pinned_kib,
            usage.processor_ns as f64 / 1e7,
        );
        // Half of the time belongs to a client's that only spins.
        let lines_most = LINES * (1 + 2 * seconds() / 60);
        let least = if seconds() >= 60 { 0.5 } else { 0.05 };
        let over = usage.memory_kib > bound.memory_kib
            || usage.pinned_kib > bound.pinned_kib
            || usage.threads > bound.threads
            || usage.descriptors > bound.descriptors
            || usage.processor_ns > bound.processor_ns
            || *lines > lines_most
            || rate.is_some_and(|rate| rate < least);
        // An enemy that does not get through shows nothing.
        if *connects < 50.0 {
            return Err(format!("the enemy hardly connects: {said}"));
        }
        if over {
            Err(format!("more than {bound:?}, {lines_most} lines and a rate of {least}: {said}"))
        } else {
            Ok(said)
        }
    }
}

/// Runs `lspan` again and again for so many seconds; how often, a second.
fn again(world: &World, env: &[(&str, &str)], line: &str, seconds: u64) -> Outcome<f64> {
    let begun = Instant::now();
    let mut done = 0.0;
    while begun.elapsed() < Duration::from_secs(seconds) {
        let (code, said) = world.lspan("h", env, line)?.end(SOON * 6)?;
        if code != Some(0) {
            return Err(format!("{line}: {code:?}: {said}"));
        }
        done += 1.0;
    }
    Ok(done / begun.elapsed().as_secs_f64())
}

const CABLES: (&str, &str) = ("LINKSPAN_IFNAME", "cab");

fn perf() -> Outcome<String> {
    let world = world()?;
    let lspan = world.lspan_path()?;
    let under = ["sh", "-c", DESCRIPTORS, &lspan, "perf", "serve", "--open"];
    let mut server = world.program("t", &[CABLES], &under)?;
    server.expect("lspan: waiting on", SOON)?;
    let mut honest = |seconds: u64| {
        let line = format!("perf bw -s 1M -d {seconds}s --json 10.65.0.1");
        let (code, said) = world.lspan("h", &[CABLES], &line)?.end(SOON * 6 + Duration::from_secs(2 * seconds))?;
        let rate = said.split("\"bw_gbit_s\":").nth(1).and_then(|rest| {
            let number: String = rest.trim_start().chars().take_while(|c| c.is_ascii_digit() || *c == '.').collect();
            number.parse::<f64>().ok()
        });
        rate.filter(|_| code == Some(0)).ok_or_else(|| format!("{line}: {code:?}: {said}"))
    };
    let process = server.id();
    let met = attacked(&world, &mut server, process, Some(&mut honest))?;
    let said = met.within(Usage { threads: OVERLAP, ..BOUND })?;
    again(&world, &[CABLES], "perf lat -s 8 -n 20 10.65.0.1", 1)?;
    Ok(said)
}

fn files() -> Outcome<String> {
    let mut mesh = Mesh::new(&["t", "h", "e"], &[])?;
    join(&mesh.world)?;
    let dir = std::env::temp_dir().join(format!("linkspan-hostile-{}", std::process::id()));
    let (share, out) = (dir.join("share"), dir.join("out"));
    let _ = std::fs::remove_dir_all(&dir);
    let made = [&share, &out].iter().try_for_each(std::fs::create_dir_all);
    made.and_then(|()| std::fs::write(share.join("data"), vec![0x5a; 32 << 20])).map_err(|e| e.to_string())?;
    let state = dir.display().to_string();
    mesh.more("XDG_STATE_HOME", &state);
    let env: Vec<(&str, &str)> = mesh.env().into_iter().filter(|(key, _)| *key != "LINKSPAN_MESH_PORT").collect();
    let (world, lspan) = (&mesh.world, mesh.world.lspan_path()?);
    let place = format!("data={}", share.display());
    let under = ["sh", "-c", DESCRIPTORS, &lspan, "files", "serve", &place, "--as-root"];
    let mut server = world.program("t", &env, &under)?;
    server.expect("lspan: serving", SOON)?;
    let line = format!("get 10.65.0.1:data/data {}/", out.display());
    let mut honest = |seconds: u64| {
        let begun = Instant::now();
        let mut done = 0.0;
        while begun.elapsed() < Duration::from_secs(seconds) {
            let _ = std::fs::remove_file(out.join("data"));
            let (code, said) = world.lspan("h", &env, &line)?.end(SOON * 6)?;
            if code != Some(0) {
                return Err(format!("{line}: {code:?}: {said}"));
            }
            done += 1.0;
        }
        Ok(done / begun.elapsed().as_secs_f64())
    };
    let process = server.id();
    let met = attacked(world, &mut server, process, Some(&mut honest))?;
    let said = met.within(Usage { threads: OVERLAP, descriptors: BOUND.descriptors + 4 * OVERLAP, ..BOUND });
    let _ = std::fs::remove_dir_all(&dir);
    said
}

/// How much of a job's work a process has told, in so many seconds.
fn told(node: &mut Node, word: &str, seconds: u64) -> Outcome<f64> {
    let before = node.heard(word);
    let begun = Instant::now();
    std::thread::sleep(Duration::from_secs(seconds));
    Ok((node.heard(word) - before) as f64 / begun.elapsed().as_secs_f64())
}

fn mesh() -> Outcome<String> {
    let mesh = Mesh::new(&["t", "h", "e", "x"], &[])?;
    join(&mesh.world)?;
    mesh.world.cable("cabx", ("t", "10.67.0.1/24"), ("x", "10.67.0.2/24"))?;
    let (world, lspan) = (&mesh.world, mesh.world.lspan_path()?);
    let mut server = world.program("t", &mesh.env(), &["sh", "-c", DESCRIPTORS, &lspan, "mesh", "--serve"])?;
    server.expect("lspan: finding neighbours", SOON)?;
    let mut to = mesh.node("x", &["listen", "100000000", "65536", "bare"])?;
    let handle = to.expect("handle", SOON)?;
    let mut from = mesh.node("h", &["connect", &handle, "100000000", "65536", "bare"])?;
    let up = from.expect("up", SOON * 2)?;
    if !up.contains("relayed over") {
        return Err(format!("it is not relayed: {up}"));
    }
    let mut honest = |seconds: u64| {
        let before = count(&to.next("at")?)?;
        let begun = Instant::now();
        std::thread::sleep(Duration::from_secs(seconds));
        let after = count(&to.next("at")?)?;
        Ok((after - before) / begun.elapsed().as_secs_f64())
    };
    let process = server.id();
    let met = attacked(world, &mut server, process, Some(&mut honest))?;
    met.within(Usage { processor_ns: 2 * BOUND.processor_ns, ..BOUND })
}

/// The first number of `at 17 rails 1`.
fn count(at: &str) -> Outcome<f64> {
    at.split_whitespace().next().and_then(|n| n.parse().ok()).ok_or_else(|| format!("no number in {at}"))
}

fn plugin() -> Outcome<String> {
    let mesh = Mesh::new(&["t", "h", "e"], &[])?;
    join(&mesh.world)?;
    let world = &mesh.world;
    // Where they meet is none of the plugin's ports, and no stranger's.
    let job = |rounds: &str| {
        let line = format!("--version 12 --test rounds --size 1M --rounds {rounds}");
        ranks(world, &mesh.env(), &["t", "h"], "10.65.0.1:7700", &line)
    };
    let mut nodes = job("1000000")?;
    nodes[0].expect("v12 rounds[0]: round 3", SOON * 2)?;
    let process = nodes[0].rank()?;
    let mut victim = nodes.remove(0);
    let mut other = nodes.remove(0);
    let mut honest = |seconds: u64| told(&mut other, "round ", seconds);
    let met = attacked(world, &mut victim, process, Some(&mut honest))?;
    drop((victim, other));
    let said = met.within(Usage { processor_ns: 2 * BOUND.processor_ns, ..BOUND })?;
    // Its listeners are there while it is set up.
    let mut idle = world.program("t", &[], &["sleep", "600"])?;
    let _strangers = strangers(world, "mix", &idle, 30)?;
    for _ in 0..4 {
        for mut node in job("2")? {
            let (code, said) = node.end(SOON * 6)?;
            if code != Some(0) {
                return Err(format!("a job that is set up among strangers: {code:?}: {said}"));
            }
        }
    }
    idle.heard("");
    Ok(format!("{said}; 4 jobs set up meanwhile"))
}

fn library() -> Outcome<String> {
    let world = world()?;
    let mut to = world.node_under("t", &["sh", "-c", DESCRIPTORS], &[CABLES], &["expose"])?;
    let at = to.expect("at ", SOON)?;
    let (url, remote) = at.split_once(' ').ok_or("no address")?;
    let mut from = world.node("h", &[CABLES], &["write", url, remote])?;
    from.expect("wrote 3", SOON)?;
    let process = to.id();
    let mut honest = |seconds: u64| told(&mut from, "wrote", seconds);
    let met = attacked(&world, &mut to, process, Some(&mut honest))?;
    met.within(BOUND)
}

fn metrics() -> Outcome<String> {
    let world = world()?;
    let lspan = world.lspan_path()?;
    let dir = std::env::temp_dir().join(format!("linkspan-hostile-stats-{}", std::process::id()));
    let dir = dir.display().to_string();
    let under = ["sh", "-c", DESCRIPTORS, &lspan, "metrics", "--listen", "10.66.0.1:9464"];
    let mut server = world.program("t", &[CABLES, ("LINKSPAN_STATS_DIR", &dir)], &under)?;
    server.expect("lspan: http://", SOON)?;
    let process = server.id();
    let met = attacked(&world, &mut server, process, None)?;
    // A thread that has answered gives its place away before it ends.
    met.within(Usage { threads: 24, descriptors: 24, ..BOUND })
}
