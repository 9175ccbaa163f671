//! Bandwidth of the unpack beside that of one copy on the device, in turns: messages of 64 KiB in pieces of 4 KiB, a batch
//! of as many as fit. `unpack_bench cuda:0`; LINKSPAN_UNPACK chooses the way. Exit code 77 where there is no such device.

use std::error::Error;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use linkspan_fabric::{Buf, Config, Gpu, MemoryName, gpus};
use linkspan_gpu::conformance::{StaticGpuBuf, StaticPinned};
use linkspan_gpu::unpack::{Batch, PIECES, Unpacker};

const PIECE: u64 = 4096;
const BYTES: u64 = PIECE * PIECES as u64;
const ROUNDS: usize = 50;
/// A device that was idle needs this long to reach its clock.
const WARM: Duration = Duration::from_millis(500);

fn main() -> ExitCode {
    let name = std::env::args().nth(1).unwrap_or_else(|| "cuda:0".into());
    let gpu = match name.parse::<MemoryName>().and_then(gpus::open) {
        Ok(Some(gpu)) => gpu,
        Ok(None) => {
            eprintln!("unpack_bench: host memory is not unpacked");
            return ExitCode::from(2);
        }
        Err(error) => {
            println!("skipped: {error}");
            return ExitCode::from(77);
        }
    };
    match measure(&gpu).and_then(|()| bus(&gpu)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("unpack_bench: {error}");
            ExitCode::FAILURE
        }
    }
}

/// How fast pinned memory is copied to the device and back: the limit of staging.
fn bus(gpu: &Arc<dyn Gpu>) -> Result<(), Box<dyn Error>> {
    const LEN: usize = 64 << 20;
    let (host, device) = (StaticPinned::new(gpu, LEN)?, StaticGpuBuf::new(gpu, LEN)?);
    let (stream, event) = (gpu.stream()?, gpu.event()?);
    let mut best = [0f64; 2];
    for _ in 0..ROUNDS {
        for (way, best) in [(device.slice(), host.slice()), (host.slice(), device.slice())].into_iter().zip(&mut best) {
            let since = Instant::now();
            gpu.copy(stream, way.0, way.1)?;
            gpu.record(event, stream)?;
            gpu.wait(event)?;
            *best = best.max(LEN as f64 / since.elapsed().as_secs_f64() / 1e9);
        }
    }
    println!(
        "{} pinned memory to the device {:.1} GB/s, back {:.1} GB/s (best of {ROUNDS}): what staging can reach",
        gpu.info().id(),
        best[0],
        best[1]
    );
    Ok(())
}

fn measure(gpu: &Arc<dyn Gpu>) -> Result<(), Box<dyn Error>> {
    let way = Config::from_env()?.unpack;
    let (pool, dst) = (StaticGpuBuf::new(gpu, BYTES as usize)?, StaticGpuBuf::new(gpu, BYTES as usize)?);
    let (stream, event) = (gpu.stream()?, gpu.event()?);
    let mut unpacker = Unpacker::new(gpu, way)?;
    let mut batch = Batch::new(BYTES, BYTES);
    for i in 0..PIECES as u64 {
        // 16 pieces of a message of 64 KiB lie far from one another, as pages of a pool do.
        let (message, piece) = (i / 16, i % 16);
        let from = (piece * (PIECES as u64 / 16) + message) * PIECE;
        batch.push(from, PIECE as u32, i * PIECE).map_err(|misfit| format!("{misfit:?}"))?;
    }
    let bytes: Vec<u8> = (0..BYTES).map(|i| (i * 13 + i / 257) as u8).collect();
    if !pool.slice().fill(0, &bytes) {
        return Err("the pool cannot be written".into());
    }
    let mut times: [Vec<Duration>; 2] = [Vec::new(), Vec::new()];
    let warm = Instant::now() + WARM;
    // The ways are tried with the first ones.
    while times[0].len() < ROUNDS {
        let since = Instant::now();
        gpu.copy(stream, dst.slice(), pool.slice())?;
        gpu.record(event, stream)?;
        while !gpu.done(event)? {}
        let copied = since.elapsed();
        let since = Instant::now();
        unpacker.start(pool.slice(), dst.slice(), &batch)?;
        while !unpacker.done()? {}
        if Instant::now() > warm {
            times[0].push(copied);
            times[1].push(since.elapsed());
        }
    }
    let got = dst.slice().to_vec();
    for (i, part) in got.chunks_exact(PIECE as usize).enumerate() {
        let from = ((i % 16) * (PIECES / 16) + i / 16) * PIECE as usize;
        if part != &bytes[from..from + PIECE as usize] {
            return Err(format!("piece {i} is wrong").into());
        }
    }
    let mut ratios: Vec<f64> =
        times[0].iter().zip(&times[1]).map(|(copy, unpack)| copy.as_secs_f64() / unpack.as_secs_f64()).collect();
    ratios.sort_by(f64::total_cmp);
    let speed = |times: &mut Vec<Duration>| {
        times.sort();
        BYTES as f64 / times[times.len() / 2].as_secs_f64() / 1e9
    };
    let [copies, unpacks] = &mut times;
    println!(
        "{} {} unpack {:.1} GB/s, copy on the device {:.1} GB/s, ratio {:.2} ({:.2} to {:.2}, {ROUNDS} pairs, goal 0.90), bytes checked",
        gpu.info().id(),
        gpu.info().name,
        speed(unpacks),
        speed(copies),
        ratios[ratios.len() / 2],
        ratios[0],
        ratios[ratios.len() - 1],
    );
    Ok(())
}
