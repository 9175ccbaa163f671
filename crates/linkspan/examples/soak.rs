//! Operations of every kind until there were enough, with a look at memory and descriptors: `soak [--count N]`. Fails when
//! either has grown over the second half.

mod common;

use std::time::{Duration, Instant};

use common::{Result, option};
use linkspan::{Access, Memory, Notify, Transport};

const LIMIT: Option<Duration> = Some(Duration::from_secs(60));

/// Small writes under way at a time: with so many, 10^8 operations take minutes also on a machine that does other things, where
/// every wait for the other thread costs a turn of the scheduler.
const WINDOW: usize = 240;

/// Private memory that may come and go without being growth: allocator caches, pages of the pool touched late. 1 MiB.
const SLACK: u64 = 1 << 20;

/// Shared memory that may be mapped late: a ring of large chunks each way, 4 MiB, and its neighbour for the other side.
const LATE: u64 = 16 << 20;

/// What a leak would make grow.
struct Held {
    /// Private memory that is there, bytes.
    private: u64,
    /// Shared memory that is mapped, touched or not, bytes: rings are touched when traffic gets so far.
    shared: u64,
    descriptors: usize,
}

fn held() -> Result<Held> {
    let statm = std::fs::read_to_string("/proc/self/statm")?;
    let mut pages = statm.split(' ').skip(1).map(str::parse::<u64>);
    let mut next = || pages.next().ok_or("fewer numbers in statm than there should be");
    let (resident, of_files) = (next()??, next()??);
    let mut shared = 0;
    for line in std::fs::read_to_string("/proc/self/maps")?.lines() {
        let Some((range, rest)) = line.split_once(' ') else { continue };
        if let (Some((from, to)), Some(b's')) = (range.split_once('-'), rest.as_bytes().get(3)) {
            shared += u64::from_str_radix(to, 16)? - u64::from_str_radix(from, 16)?;
        }
    }
    let descriptors = std::fs::read_dir("/proc/self/fd")?.count();
    Ok(Held { private: (resident - of_files) * 4096, shared, descriptors })
}

fn main() -> Result<()> {
    let count = option("--count", 1_000_000)?;
    let (a, b) = (Transport::new()?, Transport::new()?);
    a.connect_blocking(&b.bind()?, Duration::from_secs(20))?;
    b.wait_connected_blocking(Duration::from_secs(20))?;
    println!("{}", a.path().unwrap_or_default());
    let inbox = Memory::host(1 << 20);
    let remote = b.expose(&inbox.view(), Access::ReadWrite)?.remote();
    let began = Instant::now();
    let done = std::thread::scope(|s| -> Result<u64> {
        let waiter = s.spawn(|| {
            // The last notification says that it is the last.
            let mut waits = 0u64;
            while b.wait_for_write_blocking(LIMIT)? != u64::MAX {
                waits += 1;
            }
            Ok::<u64, linkspan::Error>(waits)
        });
        let (src, dst) = (Memory::host(1 << 20), Memory::host(64 << 10));
        let (mut done, mut notified, mut middle) = (0u64, 0u64, None);
        let mut under_way = std::collections::VecDeque::with_capacity(WINDOW);
        while done < count {
            // Mostly small, as it is in life; every kind in turn.
            for n in 0..WINDOW {
                let view = src.slice(0, [8, 0, 512, 8, 8, 0, 64, 8192][n % 8])?;
                under_way.push_back(a.write(&view, &remote, Some(Notify::value(done)), LIMIT));
                notified += 1;
            }
            for op in under_way.drain(..) {
                op.wait()?;
            }
            a.write_blocking(&src.slice(0, 8)?, &remote, Some(Notify::COUNT), LIMIT)?;
            notified += 1;
            a.read_blocking(&dst.view_mut()?, &remote, LIMIT)?;
            a.write_blocking(&src.slice(0, 100_000)?, &remote, Some(Notify::COUNT.fenced()), LIMIT)?;
            let parts = [(src.slice(0, 10_000)?, remote), (src.slice(5, 5)?, remote.slice(9, 100)?)];
            a.write_batch_blocking(&parts, Some(Notify::COUNT), LIMIT)?;
            notified += 2;
            let region = a.expose(&src.view(), Access::Read)?;
            a.unexpose(&region, Duration::from_secs(1))?;
            a.write(&src.slice(0, 9)?, &remote, None, LIMIT).wait()?;
            // Those, and a read, two writes, a batch, a write without a notification, a region exposed and taken back.
            done += WINDOW as u64 + 6;
            if middle.is_none() && done >= count / 2 {
                middle = Some(held()?);
            }
        }
        let was = middle.ok_or("too few operations to compare")?;
        let now = held()?;
        a.write_blocking(&src.slice(0, 0)?, &remote, Some(Notify::value(u64::MAX)), LIMIT)?;
        let waits = waiter.join().map_err(|_| "the waiting thread panicked")??;
        if waits != notified {
            return Err(format!("{notified} notifications sent, {waits} taken").into());
        }
        println!(
            "private memory {} -> {} KiB, shared {} -> {}",
            was.private >> 10,
            now.private >> 10,
            was.shared >> 10,
            now.shared >> 10
        );
        println!("descriptors {} -> {}", was.descriptors, now.descriptors);
        let grown = now.private > was.private + SLACK || now.shared > was.shared + LATE;
        if grown || now.descriptors > was.descriptors {
            return Err("memory or descriptors have grown over the second half".into());
        }
        Ok(done)
    })?;
    println!("{done} operations, {:.2} us each", began.elapsed().as_secs_f64() * 1e6 / done as f64);
    Ok(())
}
