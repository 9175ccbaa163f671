//! How long a blocking write of 8 bytes with its notification takes, both sides in a blocking call, over TCP and over shared
//! memory, in interleaved rounds: `blocking_bench [--rounds N] [--count N]`. Prints each round's and the median time per
//! write.

mod common;

use std::time::{Duration, Instant};

use common::{Result, option};
use linkspan::{Access, Config, Context, Log, Memory, Notify, RemoteBuffer, Transport};

const LIMIT: Option<Duration> = Some(Duration::from_secs(60));

struct Lane {
    name: &'static str,
    source: Transport,
    target: Transport,
    word: Memory,
    remote: RemoteBuffer,
    times: Vec<f64>,
}

impl Lane {
    fn new(name: &'static str) -> Result<Lane> {
        let get = |key: &str| match key {
            "LINKSPAN_PATH" => Some(name.to_owned()),
            other => std::env::var(other).ok(),
        };
        // A context for each side, as two processes have.
        let source = Context::new(Config::read(&get)?, Log::stderr())?.transport()?;
        let target = Context::new(Config::read(&get)?, Log::stderr())?.transport()?;
        source.connect_blocking(&target.bind()?, Duration::from_secs(20))?;
        target.wait_connected_blocking(Duration::from_secs(20))?;
        let remote = target.expose(&Memory::host(8).view(), Access::Write)?.remote();
        Ok(Lane { name, source, target, word: Memory::host(8), remote, times: Vec::new() })
    }

    fn round(&mut self, count: u64) -> Result<f64> {
        let Lane { source, target, word, remote, .. } = self;
        let took = std::thread::scope(|s| -> Result<Duration> {
            let waiter =
                s.spawn(move || (0..count).try_for_each(|_| target.wait_for_write_blocking(LIMIT).map(|_| ())));
            let began = Instant::now();
            for n in 0..count {
                source.write_blocking(&word.view(), remote, Some(Notify::value(n)), LIMIT)?;
            }
            let took = began.elapsed();
            waiter.join().map_err(|_| "the waiting thread panicked")??;
            Ok(took)
        })?;
        let each = took.as_secs_f64() * 1e6 / count as f64;
        self.times.push(each);
        Ok(each)
    }
}

fn main() -> Result<()> {
    let (rounds, count) = (option("--rounds", 11)?, option("--count", 20_000)?);
    let mut lanes = [Lane::new("tcp")?, Lane::new("shm")?];
    for lane in &mut lanes {
        lane.round(count.min(1000))?;
        lane.times.clear();
    }
    for round in 0..rounds {
        for lane in &mut lanes {
            let each = lane.round(count)?;
            println!("round {round}: {} {each:.2} us", lane.name);
        }
    }
    for lane in &mut lanes {
        lane.times.sort_by(f64::total_cmp);
        let (least, most) = (lane.times[0], lane.times[lane.times.len() - 1]);
        println!("{}: median {:.2} us, {least:.2} to {most:.2}", lane.name, lane.times[lane.times.len() / 2]);
    }
    Ok(())
}
