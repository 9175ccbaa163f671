//! Rates of one-sided writes beside bare loops of the same run, in interleaved rounds: 1 MiB and 16 MiB with the target in a
//! blocking call and with nobody in one, thousands of scattered pages beside one contiguous write (pages of a source in order to
//! scattered places, and scattered in the source too), and how long it takes to connect many peers:
//! `rate_bench [--rounds N] [--ms N] [--pages N] [--peers N] [--only-pages 1] [--tcp 0]`.

mod common;

use std::time::{Duration, Instant};

use common::bare::{cma_rate, tcp_rate};
use common::{LIMIT, Result, joined, option, shown, spread};
use linkspan::{Config, Context, Log, Memory, Notify, RemoteBuffer, Transport, Write};

const PAGE: usize = 16 << 10;

/// Writes of `len` bytes for about `time`; `waits`: the target is in a blocking call. GB/s.
fn rate(
    own: &Transport,
    peer: &Transport,
    src: &Memory,
    to: &RemoteBuffer,
    time: Duration,
    waits: bool,
) -> Result<f64> {
    let (len, mut count) = (src.len() as u64, 0u64);
    std::thread::scope(|s| -> Result<f64> {
        let target = s.spawn(move || -> std::result::Result<(), linkspan::Error> {
            // The last notification says that it is the last.
            while waits && peer.wait_for_write_blocking(LIMIT)? != u64::MAX {}
            Ok(())
        });
        let began = Instant::now();
        while began.elapsed() < time {
            own.write_blocking(&src.view(), to, waits.then_some(Notify::value(count)), LIMIT)?;
            count += 1;
        }
        let took = began.elapsed();
        if waits {
            own.write_blocking(&src.slice(0, 8)?, to, Some(Notify::value(u64::MAX)), LIMIT)?;
        }
        target.join().map_err(|_| "the target panicked")??;
        Ok((count * len) as f64 / took.as_secs_f64() / 1e9)
    })
}

/// One call with every page at another place, the target waiting; one with the pages scattered in the source too; the same bytes
/// in one piece. GB/s of each.
fn pages(own: &Transport, peer: &Transport, src: &Memory, to: &RemoteBuffer) -> Result<[f64; 3]> {
    let count = src.len() / PAGE;
    // Primes that no sensible number of pages is a multiple of: neighbours here are none there.
    let place = |n: usize, prime: usize| n * prime % count * PAGE;
    let parts = |from: usize| -> Result<Vec<Write<'_>>> {
        (0..count)
            .map(|n| Ok((src.slice(place(n, from), PAGE)?, to.slice(place(n, 7_919) as u64, PAGE as u64)?)))
            .collect()
    };
    let (ordered, scattered) = (parts(1)?, parts(5_003)?);
    let whole = [(src.view(), to.slice(0, src.len() as u64)?)];
    let timed = |parts: &[Write<'_>]| {
        std::thread::scope(|s| -> Result<f64> {
            let target = s.spawn(|| peer.wait_for_write_blocking(LIMIT));
            let began = Instant::now();
            own.write_batch_blocking(parts, Some(Notify::COUNT), LIMIT)?;
            let took = began.elapsed();
            target.join().map_err(|_| "the target panicked")??;
            Ok(src.len() as f64 / took.as_secs_f64() / 1e9)
        })
    };
    Ok([timed(&ordered)?, timed(&scattered)?, timed(&whole)?])
}

/// Milliseconds until `count` peers of one listener are connected.
fn connects(count: u64) -> Result<f64> {
    let context = || -> Result<Context> { Ok(Context::new(Config::from_env()?, Log::to(|_, _| {}))?) };
    let (here, there) = (context()?, context()?);
    let listener = there.listen()?;
    let began = Instant::now();
    let peers = (0..count).map(|_| here.transport()).collect::<std::result::Result<Vec<_>, _>>()?;
    let dials: Vec<_> = peers.iter().map(|p| p.connect(listener.url(), Duration::from_secs(30))).collect();
    let accepted = (0..count).map(|_| listener.accept_blocking(Duration::from_secs(30)));
    let accepted = accepted.collect::<std::result::Result<Vec<_>, _>>()?;
    for dial in dials {
        dial.wait()?;
    }
    let took = began.elapsed();
    drop((accepted, peers));
    Ok(took.as_secs_f64() * 1e3)
}

#[derive(Default)]
struct Column {
    ours: Vec<f64>,
    bare: Vec<f64>,
}

impl Column {
    fn add(&mut self, ours: f64, bare: f64) {
        self.ours.push(ours);
        self.bare.push(bare);
    }

    fn print(&mut self, what: &str, against: &str) {
        let mut ratios: Vec<f64> = self.ours.iter().zip(&self.bare).map(|(a, b)| a / b).collect();
        let ((ours, low, high), bare) = (spread(&mut self.ours), spread(&mut self.bare).0);
        let (ratio, least, most) = spread(&mut ratios);
        println!(
            "{what}: {ours:.2} GB/s ({low:.2}..{high:.2}); {against} {bare:.2}; ratio {ratio:.2} ({least:.2}..{most:.2})"
        );
    }
}

fn main() -> Result<()> {
    let (rounds, time) = (option("--rounds", 11)?, Duration::from_millis(option("--ms", 100)?));
    let (count, peers) = (option("--pages", 4096)? as usize, option("--peers", 64)?);
    let (only_pages, tcp) = (option("--only-pages", 0)? != 0, option("--tcp", 1)? != 0);
    for path in if tcp { &["tcp", "shm"][..] } else { &["shm"] } {
        let path = *path;
        let (own, peer) = joined(path)?;
        println!("{path}: {}", own.path().unwrap_or_default());
        let (_there, to) = shown(&peer, (count * PAGE).max(16 << 20))?;
        let src = Memory::copy_of(&vec![1; count * PAGE]);
        let bare = |len| if path == "tcp" { tcp_rate(len, time) } else { cma_rate(len, time) };
        let against = if path == "tcp" { "a bare stream" } else { "one-sided CMA" };
        for len in if only_pages { &[][..] } else { &[1 << 20, 16 << 20] } {
            let len = *len;
            let (mut waiting, mut asleep) = (Column::default(), Column::default());
            let (small, to) = (Memory::copy_of(&vec![1; len]), to.slice(0, len as u64)?);
            for _ in 0..rounds {
                let limit = bare(len)?;
                waiting.add(rate(&own, &peer, &small, &to, time, true)?, limit);
                asleep.add(rate(&own, &peer, &small, &to, time, false)?, limit);
            }
            waiting.print(&format!("{path} {} MiB, target waiting", len >> 20), against);
            asleep.print(&format!("{path} {} MiB, target asleep", len >> 20), against);
        }
        let (mut ordered, mut scattered) = (Column::default(), Column::default());
        pages(&own, &peer, &src, &to)?;
        for _ in 0..rounds {
            let [in_order, both, whole] = pages(&own, &peer, &src, &to)?;
            ordered.add(in_order, whole);
            scattered.add(both, whole);
        }
        ordered.print(&format!("{path} {count} pages of 16 KiB"), "in one piece");
        scattered.print(&format!("{path} {count} pages of 16 KiB, scattered in the source too"), "in one piece");
    }
    if only_pages {
        return Ok(());
    }
    let mut times = Vec::new();
    for _ in 0..rounds {
        times.push(connects(peers)?);
    }
    let (median, least, most) = spread(&mut times);
    println!("{peers} peers connected: median {median:.0} ms, {least:.0} to {most:.0}");
    Ok(())
}
