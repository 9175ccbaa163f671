//! How fast one file is hashed: `hash_file FILE [THREADS]` prints what b3sum(1) prints, and the rate.
#![allow(clippy::unwrap_used, reason = "an instrument: whatever fails ends it")]

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use linkspan_files::hash::{CHUNK, Merger, hex, value, whole};

fn main() {
    let mut args = std::env::args().skip(1);
    let path = args.next().unwrap_or_else(|| panic!("usage: hash_file FILE [THREADS]"));
    let threads: usize = args.next().map_or(1, |text| text.parse().unwrap());
    let file = File::open(&path).unwrap();
    let size = file.metadata().unwrap().len();
    let (chunks, next, merger) = (size.div_ceil(CHUNK), AtomicU64::new(0), Mutex::new(Merger::default()));
    let began = Instant::now();
    if chunks < 2 {
        return println!("{}  {path}", hex(&whole(&std::fs::read(&path).unwrap())));
    }
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                let mut bytes = vec![0; CHUNK as usize];
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    if index >= chunks {
                        return;
                    }
                    let bytes = &mut bytes[..(size - index * CHUNK).min(CHUNK) as usize];
                    file.read_exact_at(bytes, index * CHUNK).unwrap();
                    let value = value(index * CHUNK, bytes);
                    merger.lock().unwrap().push(index, value);
                }
            });
        }
    });
    let hash = merger.into_inner().unwrap().finish(chunks).unwrap();
    println!("{}  {path}", hex(&hash));
    eprintln!("{:.3} GB/s", size as f64 / 1e9 / began.elapsed().as_secs_f64());
}
