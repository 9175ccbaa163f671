//! Reads 4 KiB at random places of a file: `readers FILE THREADS READS`, so many reads by each thread. Prints thousands of reads in a second.
#![allow(clippy::unwrap_used, reason = "an instrument: whatever fails ends it")]

use std::os::unix::fs::FileExt;
use std::time::Instant;

const BYTES: u64 = 4096;

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let [_, file, threads, reads] = &args[..] else { panic!("usage: readers FILE THREADS READS") };
    let (threads, reads): (u64, u64) = (threads.parse().unwrap(), reads.parse().unwrap());
    let file = std::fs::File::open(file).unwrap();
    let places = file.metadata().unwrap().len() / BYTES;
    let began = Instant::now();
    std::thread::scope(|scope| {
        for seed in 1..=threads {
            let file = &file;
            scope.spawn(move || {
                let (mut bytes, mut random) = ([0; BYTES as usize], seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
                for _ in 0..reads {
                    // Marsaglia's xorshift, 64 bits.
                    random ^= random << 13;
                    random ^= random >> 7;
                    random ^= random << 17;
                    file.read_exact_at(&mut bytes, random % places * BYTES).unwrap();
                }
            });
        }
    });
    println!("{}", (threads * reads) as f64 / 1000.0 / began.elapsed().as_secs_f64());
}
