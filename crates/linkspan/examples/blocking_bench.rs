//! What a blocking write of 8 bytes with its notification costs over TCP and over shared memory, beside bare loops of the same
//! run, in interleaved rounds: `blocking_bench [--rounds N] [--count N] [--tcp 0]`.
//!
//! *turn*: both sides write, notify and wait in turn; half a round trip. *alone*: one side writes, and waits for the
//! acknowledgement that every write reports with, while the other one waits for notifications: a whole round trip.
//! *bare*: half a round trip of two spinning threads over TCP, or by two cache lines.

mod common;

use std::time::Instant;

use common::bare::{TcpPing, line_half};
use common::{LIMIT, Result, joined, option, shown, spread};
use linkspan::{Memory, Notify, RemoteBuffer, Transport};

struct Lane {
    name: &'static str,
    sides: [(Transport, Memory); 2],
    /// What each side may write to.
    there: [RemoteBuffer; 2],
    bare: Box<dyn FnMut(u64) -> Result<f64>>,
    /// Of each round: turn, alone, bare.
    times: [Vec<f64>; 3],
}

impl Lane {
    fn new(name: &'static str, bare: impl FnMut(u64) -> Result<f64> + 'static) -> Result<Lane> {
        let (a, b) = joined(name)?;
        let ((_, to_a), (_, to_b)) = (shown(&a, 8)?, shown(&b, 8)?);
        let sides = [(a, Memory::host(8)), (b, Memory::host(8))];
        Ok(Lane { name, sides, there: [to_b, to_a], bare: Box::new(bare), times: Default::default() })
    }

    fn turn(&self, count: u64) -> Result<f64> {
        let [(a, word), (b, answer)] = &self.sides;
        let [to_b, to_a] = &self.there;
        std::thread::scope(|s| -> Result<f64> {
            let echo = s.spawn(move || -> std::result::Result<(), linkspan::Error> {
                for _ in 0..count {
                    let n = b.wait_for_write_blocking(LIMIT)?;
                    b.write_blocking(&answer.view(), to_a, Some(Notify::value(n)), LIMIT)?;
                }
                Ok(())
            });
            let began = Instant::now();
            for n in 0..count {
                a.write_blocking(&word.view(), to_b, Some(Notify::value(n)), LIMIT)?;
                if a.wait_for_write_blocking(LIMIT)? != n {
                    return Err("an answer to another question".into());
                }
            }
            let took = began.elapsed();
            echo.join().map_err(|_| "the answering thread panicked")??;
            Ok(took.as_secs_f64() * 1e6 / (2 * count) as f64)
        })
    }

    fn alone(&self, count: u64) -> Result<f64> {
        let ([(a, word), (b, _)], [to_b, _]) = (&self.sides, &self.there);
        std::thread::scope(|s| -> Result<f64> {
            let waiter = s.spawn(move || (0..count).try_for_each(|_| b.wait_for_write_blocking(LIMIT).map(|_| ())));
            let began = Instant::now();
            for n in 0..count {
                a.write_blocking(&word.view(), to_b, Some(Notify::value(n)), LIMIT)?;
            }
            let took = began.elapsed();
            waiter.join().map_err(|_| "the waiting thread panicked")??;
            Ok(took.as_secs_f64() * 1e6 / count as f64)
        })
    }

    fn round(&mut self, count: u64) -> Result<[f64; 3]> {
        Ok([self.turn(count)?, self.alone(count)?, (self.bare)(count)?])
    }
}

fn main() -> Result<()> {
    let (rounds, count) = (option("--rounds", 11)?, option("--count", 20_000)?);
    let mut lanes = Vec::new();
    if option("--tcp", 1)? != 0 {
        let mut ping = TcpPing::new()?;
        lanes.push(Lane::new("tcp", move |count| ping.half(count))?);
    }
    lanes.push(Lane::new("shm", |count| Ok(line_half(count * 10)))?);
    for lane in &mut lanes {
        lane.round(count.min(1000))?;
    }
    for round in 0..rounds {
        for lane in &mut lanes {
            let found = lane.round(count)?;
            let [turn, alone, bare] = found;
            println!("round {round}: {} turn {turn:.3} us, alone {alone:.3} us, bare {bare:.3} us", lane.name);
            lane.times.iter_mut().zip(found).for_each(|(times, each)| times.push(each));
        }
    }
    for lane in &mut lanes {
        let [turn, alone, bare] = &mut lane.times;
        let ratio = |times: &[f64], halves: f64| {
            let mut each: Vec<f64> = times.iter().zip(bare.iter()).map(|(ours, bare)| ours / bare / halves).collect();
            let (median, least, most) = spread(&mut each);
            format!("{median:.2} of bare ({least:.2}..{most:.2})")
        };
        let (turn_ratio, alone_ratio) = (ratio(turn, 1.0), ratio(alone, 2.0));
        for (what, times, ratio) in [("turn", turn, turn_ratio), ("alone", alone, alone_ratio)] {
            let (median, least, most) = spread(times);
            println!("{}: {what} median {median:.3} us, {least:.3} to {most:.3}; {ratio}", lane.name);
        }
        println!("{}: bare median {:.3} us", lane.name, spread(bare).0);
    }
    Ok(())
}
