//! A long run: four hosts in a ring of cables, two between neighbours, reduce over the plugin, every value checked, while cables are cut and
//! healed and processes stopped and killed. `linkspan-netns soak SECONDS [SEED]`.
//!
//! Jobs follow each other; in every third one rank is killed, which the others must be told. What each process uses must not grow: the
//! ranks within a job, the mesh servers over all of the time.

use std::process::Command;
use std::time::{Duration, Instant};

use linkspan_hostile::Usage;

use crate::mesh::{Mesh, management, ranks};
use crate::tests::SOON;
use crate::world::{Node, Outcome};

const HOSTS: [&str; 4] = ["a", "b", "c", "d"];

/// Cables `2 n` and `2 n + 1` are between host `n` and the next.
const CABLES: [(&str, &str); 8] =
    [("a", "b"), ("a", "b"), ("b", "c"), ("b", "c"), ("c", "d"), ("c", "d"), ("d", "a"), ("d", "a")];

/// How long rails may take to come back: the longest time between two tries (8 s), and a login.
const CALM: Duration = Duration::from_secs(11);

/// Longest that a job is meant to take, and longest that it may: a host of the plugin ends itself after 300 s, whatever the machine does
/// beside it meanwhile.
const JOB: u64 = 60;
const JOB_MOST: Duration = Duration::from_secs(290);

/// How long no round may end before it is told what lies in the streams: no cable is cut for so long.
const STUCK: Duration = Duration::from_secs(40);

/// Longest until a rank is told that another was killed.
const TOLD: Duration = Duration::from_secs(90);

/// What a process may use more of at the end than when it had settled. A rail that comes back has some descriptors of its own, and the
/// allocator keeps what it was once given.
const MEMORY_KIB: u64 = 16 << 10;
const DESCRIPTORS: u64 = 24;

/// A generator that needs no crate: xorshift64*.
struct Rng(u64);

impl Rng {
    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) as usize % n
    }
}

/// What a process used when it had settled, and most later.
#[derive(Clone, Copy)]
struct Growth {
    settled: Usage,
    now: Usage,
}

impl Growth {
    fn judge(self, whose: &str) -> Outcome<()> {
        let memory = self.now.memory_kib.saturating_sub(self.settled.memory_kib);
        let descriptors = self.now.descriptors.saturating_sub(self.settled.descriptors);
        match memory > MEMORY_KIB || descriptors > DESCRIPTORS {
            true => Err(format!(
                "{whose} grew by {memory} KiB and {descriptors} descriptors: {:?}, then {:?}",
                self.settled, self.now
            )),
            false => Ok(()),
        }
    }
}

/// What was done to them.
#[derive(Debug, Default)]
struct Done {
    jobs: usize,
    rounds: usize,
    cuts: usize,
    double_cuts: usize,
    stops: usize,
    kills: usize,
    most_memory_kib: u64,
    most_descriptors: u64,
}

struct Soak {
    mesh: Mesh,
    rng: Rng,
    /// When each cable heals, where it is cut.
    cut: [Option<Instant>; CABLES.len()],
    /// When the cables between each host and the next were last healed, and when two at once were.
    healed: [Instant; HOSTS.len()],
    around: Instant,
    /// Two at once are next.
    both: bool,
    done: Done,
}

impl Soak {
    /// Cuts and heals as it comes: one cable between two hosts, where the other one has been whole for long enough that lost rails are
    /// back; at times both, so that they are reached the other way around the ring, where all others have been.
    fn cables(&mut self) -> Outcome<()> {
        let now = Instant::now();
        for n in 0..CABLES.len() {
            if self.cut[n].is_some_and(|heals| now >= heals) {
                self.set(n, "up")?;
                self.cut[n] = None;
                self.healed[n / 2] = now;
            }
        }
        let calm = |pair: usize| {
            let whole = self.cut[2 * pair].is_none() && self.cut[2 * pair + 1].is_none();
            whole && now.duration_since(self.healed[pair]) >= CALM
        };
        let all_calm = (0..HOSTS.len()).all(calm);
        // From here on one waits for all.
        self.both |= self.rng.below(24) == 0;
        let pair = self.rng.below(HOSTS.len());
        let around = (0..HOSTS.len()).any(|n| self.cut[2 * n].is_some() && self.cut[2 * n + 1].is_some());
        let after = now.duration_since(self.around) < CALM;
        if !calm(pair) || around || after || self.both && !all_calm {
            return Ok(());
        }
        let lasts = Duration::from_millis(500 + self.rng.below(5000) as u64);
        let one = 2 * pair + self.rng.below(2);
        let mut cables = vec![one];
        if std::mem::take(&mut self.both) {
            cables.push(one ^ 1);
            self.around = now + lasts;
            self.done.double_cuts += 1;
        }
        for n in cables {
            self.set(n, "down")?;
            self.cut[n] = Some(now + lasts);
            self.done.cuts += 1;
        }
        Ok(())
    }

    fn set(&mut self, cable: usize, state: &str) -> Outcome<()> {
        let (a, b) = CABLES[cable];
        let end = if self.rng.below(2) == 0 && state == "down" { b } else { a };
        // Both ends, so that it heals whichever was cut.
        let ends = if state == "up" { vec![a, b] } else { vec![end] };
        ends.iter().try_for_each(|host| self.mesh.world.ip(host, &format!("link set cab{cable} {state}")))
    }

    /// What lies unread or unacknowledged in each host's streams.
    fn streams(&self) {
        for host in HOSTS {
            let ss = Command::new("ip").args(["netns", "exec", &self.mesh.world.ns(host), "ss", "-tnoiO"]).output();
            let said = ss.map(|ss| String::from_utf8_lossy(&ss.stdout).into_owned()).unwrap_or_default();
            eprintln!("soak: the streams of {host}\n{said}");
        }
    }

    fn heal(&mut self) -> Outcome<()> {
        for n in 0..CABLES.len() {
            if self.cut[n].take().is_some() {
                self.set(n, "up")?;
                self.healed[n / 2] = Instant::now();
            }
        }
        Ok(())
    }

    /// One job of so many rounds, in which a rank may be killed.
    fn job(&mut self, rounds: usize, kills: bool) -> Outcome<()> {
        let line = format!("--version 12 --test rounds --size 1M --rounds {rounds}");
        let mut nodes = ranks(&self.mesh.world, &self.mesh.env(), &HOSTS, "192.168.77.1:7700", &line)?;
        for node in &mut nodes {
            node.expect_part(": round 1", SOON * 4)?;
        }
        let processes = nodes.iter().map(Node::rank).collect::<Outcome<Vec<u32>>>()?;
        let begun = Instant::now();
        let mut growth: Vec<Option<Growth>> = vec![None; nodes.len()];
        let victim = kills.then(|| (self.rng.below(nodes.len()), rounds / 2 + self.rng.below(rounds / 4 + 1)));
        let mut stopped: Option<(usize, Instant)> = None;
        let (mut last, mut told) = ((0, begun), 0);
        loop {
            std::thread::sleep(Duration::from_millis(700));
            self.cables()?;
            let now = Instant::now();
            match stopped {
                Some((n, until)) if now >= until => {
                    signal(processes[n], "CONT")?;
                    stopped = None;
                }
                None if self.rng.below(12) == 0 => {
                    let n = self.rng.below(nodes.len());
                    if signal(processes[n], "STOP").is_ok() {
                        self.done.stops += 1;
                        stopped = Some((n, now + Duration::from_millis(300 + self.rng.below(5000) as u64)));
                    }
                }
                _ => {}
            }
            let at = nodes[0].heard(": round ");
            if at > last.0 {
                last = (at, now);
            }
            for (n, growth) in growth.iter_mut().enumerate().filter(|_| at > rounds / 4) {
                if let Some(now) = Usage::of(processes[n]).filter(|usage| usage.memory_kib > 0) {
                    growth.get_or_insert(Growth { settled: now, now }).now = now;
                }
            }
            if let Some((n, when)) = victim
                && at >= when
            {
                return self.killed(nodes, processes[n], n, stopped.map(|(n, _)| processes[n]));
            }
            let mut ended = true;
            for node in &mut nodes {
                ended &= node.has_ended()?;
            }
            if now.duration_since(last.1) > STUCK && told != at {
                eprintln!("soak: no round after round {at} for {} s", STUCK.as_secs());
                self.streams();
                told = at;
            }
            if ended || begun.elapsed() > JOB_MOST {
                break;
            }
        }
        if let Some((n, _)) = stopped {
            let _ = signal(processes[n], "CONT");
        }
        let mut failed = String::new();
        for (n, mut node) in nodes.into_iter().enumerate() {
            let (code, said) = node.end(SOON * 6)?;
            if code != Some(0) {
                failed.push_str(&format!("\njob {}, rank {n}: {code:?}: {}", self.done.jobs, tail(&said)));
            }
        }
        if !failed.is_empty() {
            // Tells what is slow from what hangs.
            let (at, ago) = (last.0, last.1.elapsed().as_secs());
            return Err(format!("rank 0 came to round {at} of {rounds}, the last {ago} s ago{failed}"));
        }
        self.done.rounds += rounds;
        for (n, growth) in growth.into_iter().enumerate() {
            let Some(growth) = growth else { continue };
            self.done.most_memory_kib = self.done.most_memory_kib.max(growth.now.memory_kib);
            self.done.most_descriptors = self.done.most_descriptors.max(growth.now.descriptors);
            growth.judge(&format!("rank {n}"))?;
        }
        Ok(())
    }

    /// A rank is killed; all others are told, and find no other fault.
    fn killed(&mut self, nodes: Vec<Node>, process: u32, victim: usize, stopped: Option<u32>) -> Outcome<()> {
        if let Some(process) = stopped {
            let _ = signal(process, "CONT");
        }
        signal(process, "KILL")?;
        self.done.kills += 1;
        self.heal()?;
        for (n, mut node) in nodes.into_iter().enumerate() {
            let (code, said) = node.end(TOLD)?;
            let remote = said.contains("returned 6");
            if code == Some(0) || n != victim && !remote {
                return Err(format!("rank {victim} was killed, rank {n}: {code:?}: {}", tail(&said)));
            }
        }
        Ok(())
    }
}

fn signal(process: u32, name: &str) -> Outcome<()> {
    crate::world::sh(&format!("kill -{name} {process}"))
}

fn tail(said: &str) -> String {
    let lines: Vec<&str> = said.lines().filter(|line| !line.contains(": round ")).collect();
    lines[lines.len().saturating_sub(40)..].join("\n")
}

/// Runs for so many seconds; what was done, or what went wrong.
pub(crate) fn run(seconds: u64, seed: u64) -> Outcome<String> {
    let hosts = [HOSTS.as_slice(), &["m"]].concat();
    let mesh = Mesh::new(&hosts, &CABLES)?;
    management(&mesh.world, &HOSTS)?;
    let mut servers = Vec::new();
    for host in HOSTS {
        let mut server = mesh.lspan(host, "mesh --serve")?;
        server.expect("lspan: finding neighbours", SOON)?;
        servers.push((server, None::<Growth>));
    }
    let until = Instant::now() + Duration::from_secs(seconds);
    let now = Instant::now();
    let (cut, healed) = ([None; CABLES.len()], [now; HOSTS.len()]);
    let mut soak = Soak { mesh, rng: Rng(seed << 1 | 1), cut, healed, around: now, both: false, done: Done::default() };
    let job = JOB.min(seconds / 4).max(5);
    let (mut rounds, mut slowest) = (400, f64::INFINITY);
    while Instant::now() < until {
        let begun = Instant::now();
        let kills = soak.done.jobs % 3 == 2;
        soak.job(rounds, kills)?;
        soak.done.jobs += 1;
        if !kills {
            // The next one takes as long as it should at the lowest rate so far: without cuts, or with the machine to itself, a job is
            // several times as fast as the next may be. Of the first most is its start.
            let rate = rounds as f64 / begun.elapsed().as_secs_f64();
            if soak.done.jobs > 1 {
                slowest = slowest.min(rate);
            }
            rounds = ((slowest.min(rate) * job as f64) as usize).clamp(40, 4 * rounds);
        }
        for (n, (server, growth)) in servers.iter_mut().enumerate() {
            let Some(now) = Usage::of(server.id()) else {
                return Err(format!("the mesh server of {} has ended", HOSTS[n]));
            };
            let growth = growth.get_or_insert(Growth { settled: now, now });
            growth.now = now;
            growth.judge(&format!("the mesh server of {}", HOSTS[n]))?;
        }
        println!("soak: {:?}, {} s left", soak.done, until.saturating_duration_since(Instant::now()).as_secs());
    }
    Ok(format!("{:?}", soak.done))
}
