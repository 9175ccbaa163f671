//! AllReduce over any number of hosts, step by step: what NCCL does with the plugin, in a hundred lines on the fabric.
//!
//! On host 0:  cargo run --release -p linkspan-fabric --example allreduce -- 0 2 10.0.0.1:7777
//! On host 1:  cargo run --release -p linkspan-fabric --example allreduce -- 1 2 10.0.0.1:7777
//!
//! The arguments are this process's rank, how many there are, and an address of rank 0 where the ranks exchange their
//! handles. Handles are secrets: every process that has one can connect. This example sends them over a plain TCP connection; a job
//! launcher has better ways. Without arguments it runs two ranks on this machine.

use std::error::Error;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Command;
use std::time::{Duration, Instant};

use linkspan_fabric::{Buf, Channel, Config, Fabric, HANDLE_LEN, Log, MemSlice, Ticket};
use linkspan_transport::StaticBuf;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// Elements of the vector that is summed over all ranks.
const ELEMENTS: usize = 4 << 20;

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.as_slice() {
        [] => {
            // Two ranks on this machine: rank 1 is a child of ours.
            let at = TcpListener::bind("127.0.0.1:0")?.local_addr()?.to_string();
            let mut child = Command::new(std::env::current_exe()?).args(["1", "2", &at]).spawn()?;
            let result = rank(0, 2, &at);
            if result.is_err() {
                child.kill()?;
            }
            child.wait()?;
            result
        }
        [rank_, ranks, at] => rank(rank_.parse()?, ranks.parse()?, at),
        _ => Err("usage: allreduce [RANK RANKS ADDRESS-OF-RANK-0]".into()),
    }
}

fn rank(rank: usize, ranks: usize, at: &str) -> Result<()> {
    // 1. Look at the machine: which devices are there, and what do their interfaces offer?
    let fabric = Fabric::new(Config::from_env()?, Log::stderr(), false, linkspan_transports::all())?;
    // 2. Listen, and let every rank know every handle.
    let listener = fabric.listen(0)?;
    let handles = exchange(rank, ranks, at, &listener.handle())?;
    // 3. A ring: connect to the next rank while the previous one connects to us. Neither call blocks.
    let mut connecting = fabric.connect(0, &handles[(rank + 1) % ranks])?;
    let (mut next, mut previous) = (None, None);
    while next.is_none() || previous.is_none() {
        if next.is_none() {
            next = connecting.poll()?;
        }
        if previous.is_none() {
            previous = listener.accept()?;
        }
    }
    let (Some(mut next), Some(mut previous)) = (next, previous) else { return Err("no ring".into()) };
    println!("rank {rank}: to the next rank by {}", next.describe());

    // 4. The vector: element i of rank r is i + r, so the sum is known beforehand.
    let piece = ELEMENTS / ranks;
    let vector = StaticBuf::new(piece * ranks * 4);
    let scratch = StaticBuf::new(piece * 4);
    let mine: Vec<u8> = (0..piece * ranks).flat_map(|i| ((i + rank) as f32).to_le_bytes()).collect();
    if !vector.slice().fill(0, &mine) {
        return Err("the vector does not fit".into());
    }
    let part =
        |n: usize| vector.slice().sub((n % ranks * piece * 4) as u64, (piece * 4) as u64).unwrap_or(MemSlice::NONE);

    let begun = Instant::now();
    for step in 0..ranks - 1 {
        // 5. Reduce-scatter: pass one piece on, add what comes to the next one.
        let (give, take) = (part(rank + ranks - step), part(rank + ranks - step - 1));
        swap(&mut next, give, &mut previous, scratch.slice())?;
        add(take, scratch.slice());
    }
    for step in 0..ranks - 1 {
        // 6. All-gather: pass the finished pieces round.
        let (give, take) = (part(rank + 1 + ranks - step), part(rank + ranks - step));
        swap(&mut next, give, &mut previous, take)?;
    }
    let took = begun.elapsed();

    let expected = |i: usize| (0..ranks).map(|r| (i + r) as f32).sum::<f32>();
    let sum = vector.slice().to_vec();
    let wrong =
        sum.chunks_exact(4).enumerate().filter(|(i, b)| f32::from_le_bytes([b[0], b[1], b[2], b[3]]) != expected(*i));
    let wrong = wrong.count();
    println!(
        "rank {rank}: {} MiB summed over {ranks} ranks in {took:.1?}, {wrong} wrong values",
        (piece * ranks * 4) >> 20
    );
    // 7. Stay until the neighbours have everything.
    let until = Instant::now() + Duration::from_millis(500);
    while Instant::now() < until && next.progress().is_ok() && previous.progress().is_ok() {
        next.wait(Duration::from_millis(10));
    }
    if wrong == 0 { Ok(()) } else { Err("wrong values".into()) }
}

/// Sends one piece to the next rank and receives one from the previous: the receive first, so that its permission is on
/// its way before the peer needs it.
fn swap(next: &mut Channel, give: MemSlice, previous: &mut Channel, take: MemSlice) -> Result<()> {
    let (mut sending, mut receiving): (Option<Ticket>, Option<Ticket>) = (None, None);
    let (mut sent, mut received) = (false, false);
    while !sent || !received {
        if receiving.is_none() {
            receiving = previous.post_recv(&[(0, take)])?;
        }
        if sending.is_none() {
            sending = next.post_send(0, give)?; // None: too many wait already
        }
        let _ = (next.progress()?, previous.progress()?);
        sent = sent || sending.is_some_and(|t| matches!(next.test(t), Ok(Some(_))));
        received = received || receiving.is_some_and(|t| matches!(previous.test(t), Ok(Some(_))));
    }
    Ok(())
}

fn add(to: MemSlice, from: MemSlice) {
    let number = |b: &[u8]| f32::from_le_bytes([b[0], b[1], b[2], b[3]]);
    let (a, b) = (to.to_vec(), from.to_vec());
    let pairs = a.chunks_exact(4).zip(b.chunks_exact(4));
    let sum: Vec<u8> = pairs.flat_map(|(a, b)| (number(a) + number(b)).to_le_bytes()).collect();
    let fits = to.fill(0, &sum);
    debug_assert!(fits);
}

/// Rank 0 collects all handles and gives them to everybody.
fn exchange(rank: usize, ranks: usize, at: &str, ours: &[u8; HANDLE_LEN]) -> Result<Vec<[u8; HANDLE_LEN]>> {
    let mut all = vec![[0; HANDLE_LEN]; ranks];
    all[rank] = *ours;
    if rank == 0 {
        let listener = TcpListener::bind(at)?;
        let mut others = Vec::new();
        while others.len() + 1 < ranks {
            let (mut stream, _) = listener.accept()?;
            let mut who = [0];
            stream.read_exact(&mut who)?;
            let slot = all.get_mut(usize::from(who[0])).ok_or("a rank that does not exist")?;
            stream.read_exact(slot)?;
            others.push(stream);
        }
        for stream in &mut others {
            stream.write_all(all.as_flattened())?;
        }
    } else {
        let until = Instant::now() + Duration::from_secs(30);
        let mut stream = loop {
            match TcpStream::connect(at) {
                Ok(stream) => break stream,
                Err(e) if Instant::now() > until => return Err(format!("no rank 0 at {at}: {e}").into()),
                Err(_) => std::thread::sleep(Duration::from_millis(50)),
            }
        };
        stream.write_all(&[rank as u8])?;
        stream.write_all(ours)?;
        stream.read_exact(all.as_flattened_mut())?;
    }
    Ok(all)
}
