//! One endpoint with many peers, which are another process: time to connect, memory and descriptors for each, what they cost while nothing
//! happens, and how long it takes until a notification of each is an event: `many_peers [--peers N] [--seconds N]`.

mod common;

use std::time::{Duration, Instant};

use common::{Peer, Result, option, read_ticket, ticket};
use linkspan::{Access, Context, Endpoint, Event, Memory, Notify};

const LIMIT: Duration = Duration::from_secs(120);

fn main() -> Result<()> {
    let (peers, seconds) = (option("--peers", 256)?, option("--seconds", 10)?);
    if std::env::args().nth(1).as_deref() == Some("peers") { others(peers) } else { hub(peers, seconds) }
}

/// A number of `/proc/self/status`, in KiB.
fn resident() -> Result<f64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).ok_or("no VmRSS")?;
    Ok(line.trim().trim_end_matches(" kB").parse()?)
}

fn descriptors() -> Result<usize> {
    Ok(std::fs::read_dir("/proc/self/fd")?.count())
}

/// Seconds on processors, of all threads.
fn spent() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// How often threads of this process have gone to sleep, and so been woken: each wake-up ends in another sleep.
fn sleeps() -> Result<u64> {
    let mut all = 0;
    for thread in std::fs::read_dir("/proc/self/task")? {
        // One that ends meanwhile has no file.
        let status = std::fs::read_to_string(thread?.path().join("status")).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        all += line.map_or(Ok(0), |count| count.trim().parse::<u64>())?;
    }
    Ok(all)
}

/// Takes events until `count` of one kind have come.
fn until(hub: &Endpoint, count: u64, wanted: impl Fn(&Event) -> bool) -> Result<Duration> {
    let (began, mut left) = (Instant::now(), count);
    while left > 0 {
        if wanted(&hub.next_event_blocking(Some(LIMIT))?) {
            left -= 1;
        }
    }
    Ok(began.elapsed())
}

fn hub(count: u64, seconds: u64) -> Result<()> {
    let hub = Endpoint::new("hub")?;
    let memory = Memory::host(1 << 20);
    let remote = hub.expose(&memory.view(), Access::ReadWrite)?.remote();
    let mut others = Peer::start(&["peers", "--peers", &count.to_string()])?;
    others.line()?;
    let (memory_before, descriptors_before) = (resident()?, descriptors()?);
    others.tell(&ticket(hub.url(), &remote))?;
    let took = until(&hub, count, |event| matches!(event, Event::Connected { .. }))?;
    println!("{count} peers connected: {:.0} ms", took.as_secs_f64() * 1e3);
    println!("{}", hub.peer("p0")?.path().unwrap_or_default());
    others.line()?;
    println!(
        "for each peer: {:.1} KiB resident, {:.1} descriptors",
        (resident()? - memory_before) / count as f64,
        (descriptors()? - descriptors_before) as f64 / count as f64
    );
    // The engine thread takes over within milliseconds.
    std::thread::sleep(Duration::from_millis(100));
    let (before, slept) = (spent(), sleeps()?);
    std::thread::sleep(Duration::from_secs(seconds));
    let (used, woken) = ((spent() - before) / seconds as f64, (sleeps()? - slept) as f64 / seconds as f64);
    println!("idle for {seconds} s: {:.3} % of one processor, {woken:.1} wake-ups a second", used * 100.0);
    for round in 0..3 {
        let before = spent();
        others.tell("notify")?;
        let took = until(&hub, count, |event| matches!(event, Event::Notified { .. }))?.as_secs_f64();
        let each = (spent() - before) / count as f64;
        println!(
            "round {round}: one notification of each: {:.1} ms; {:.1} us apart, of which {:.1} us of this process",
            took * 1e3,
            took * 1e6 / count as f64,
            each * 1e6
        );
    }
    others.finish()
}

fn others(count: u64) -> Result<()> {
    let context = Context::shared()?;
    let names = (0..count).map(|n| format!("p{n}"));
    let peers = names.map(|name| context.endpoint(&name)).collect::<std::result::Result<Vec<_>, _>>()?;
    println!("ready");
    let mut lines = std::io::stdin().lines();
    let (url, remote) = read_ticket(&lines.next().ok_or("no ticket")??)?;
    let dials = peers.iter().map(|peer| peer.connect("hub", &url, LIMIT));
    for dial in dials.collect::<std::result::Result<Vec<_>, _>>()? {
        dial.wait()?;
    }
    println!("connected");
    let word = Memory::copy_of(&[1; 8]);
    for (round, _) in lines.enumerate() {
        for peer in &peers {
            let hub = peer.peer("hub")?;
            hub.write_blocking(&word.view(), &remote, Some(Notify::value(round as u64)), Some(LIMIT))?;
        }
    }
    Ok(())
}
