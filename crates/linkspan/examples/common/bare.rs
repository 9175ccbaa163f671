//! Loops without a library, for ratios: a record of times alone says little on a machine whose speed changes.
#![allow(dead_code)]

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use linkspan_fabric::Buf;
use linkspan_shmring::cma::{AccessGuard, Remote};
use linkspan_transport::StaticBuf;

use super::Result;

fn streams() -> Result<(TcpStream, TcpStream)> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let a = TcpStream::connect(listener.local_addr()?)?;
    let (b, _) = listener.accept()?;
    for stream in [&a, &b] {
        stream.set_nodelay(true)?;
    }
    Ok((a, b))
}

/// Reads to the end of the buffer without ever sleeping.
fn spin_read(stream: &mut TcpStream, mut buf: &mut [u8]) -> std::io::Result<()> {
    while !buf.is_empty() {
        match stream.read(buf) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(n) => buf = &mut buf[n..],
            Err(e) if e.kind() == ErrorKind::WouldBlock => std::hint::spin_loop(),
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

/// Two TCP streams' ends in two threads that spin: a half round trip of 8 bytes.
pub(crate) struct TcpPing(TcpStream, TcpStream);

impl TcpPing {
    pub(crate) fn new() -> Result<TcpPing> {
        let (a, b) = streams()?;
        a.set_nonblocking(true)?;
        b.set_nonblocking(true)?;
        Ok(TcpPing(a, b))
    }

    /// Microseconds for each half of `count` round trips.
    pub(crate) fn half(&mut self, count: u64) -> Result<f64> {
        let TcpPing(a, b) = self;
        let began = Instant::now();
        thread::scope(|s| -> Result<()> {
            let echo = s.spawn(move || -> std::io::Result<()> {
                let mut word = [0; 8];
                for _ in 0..count {
                    spin_read(b, &mut word)?;
                    b.write_all(&word)?;
                }
                Ok(())
            });
            let mut word = [1; 8];
            for _ in 0..count {
                a.write_all(&word)?;
                spin_read(a, &mut word)?;
            }
            Ok(echo.join().map_err(|_| "the echo panicked")??)
        })?;
        Ok(began.elapsed().as_secs_f64() * 1e6 / (2 * count) as f64)
    }
}

/// Two cache lines that two threads watch: a half round trip of a word, in microseconds.
pub(crate) fn line_half(count: u64) -> f64 {
    #[repr(align(128))]
    struct Line(AtomicU64);
    let lines = [Line(AtomicU64::new(0)), Line(AtomicU64::new(0))];
    let until = |line: &Line, n: u64| {
        while line.0.load(Ordering::Acquire) < n {
            std::hint::spin_loop();
        }
    };
    let began = Instant::now();
    thread::scope(|s| {
        s.spawn(|| {
            for n in 1..=count {
                until(&lines[0], n);
                lines[1].0.store(n, Ordering::Release);
            }
        });
        for n in 1..=count {
            lines[0].0.store(n, Ordering::Release);
            until(&lines[1], n);
        }
    });
    began.elapsed().as_secs_f64() * 1e6 / (2 * count) as f64
}

/// A stream that is written and read in pieces of `len` for about `time`, each acknowledged by a byte: GB/s.
pub(crate) fn tcp_rate(len: usize, time: Duration) -> Result<f64> {
    let (mut a, mut b) = streams()?;
    thread::scope(|s| -> Result<f64> {
        let sink = s.spawn(move || -> std::io::Result<()> {
            let mut buf = vec![0; len];
            while b.read_exact(&mut buf).is_ok() {
                b.write_all(&[1])?;
            }
            Ok(())
        });
        let (buf, mut word, mut count) = (vec![1; len], [0], 0u64);
        let began = Instant::now();
        while began.elapsed() < time {
            a.write_all(&buf)?;
            a.read_exact(&mut word)?;
            count += 1;
        }
        let rate = (count * len as u64) as f64 / began.elapsed().as_secs_f64() / 1e9;
        drop(a);
        sink.join().map_err(|_| "the sink panicked")??;
        Ok(rate)
    })
}

/// One thread that copies by process_vm_writev(2), as a writer whose target takes no part: GB/s.
pub(crate) fn cma_rate(len: usize, time: Duration) -> Result<f64> {
    let guard = AccessGuard::new([1, 2])?;
    let remote = Remote::new(std::process::id() as i32, guard.address());
    let (src, dst) = (StaticBuf::new(len), StaticBuf::new(len));
    let touched = src.slice().fill(0, &vec![1; len]) && dst.slice().fill(0, &vec![2; len]);
    debug_assert!(touched);
    let (mut count, began) = (0u64, Instant::now());
    while began.elapsed() < time {
        remote.push(src.slice(), dst.slice().as_ptr() as u64)?;
        count += 1;
    }
    Ok((count * len as u64) as f64 / began.elapsed().as_secs_f64() / 1e9)
}
