//! A prefill process hands scattered pages of its cache to a decode process, which asks for nothing but a notification per
//! request: `kv_pages [--pages N] [--kib N] [--requests N]`.

mod common;

use std::time::{Duration, Instant};

use common::{Peer, Result, option, read_ticket, ticket};
use linkspan::{Access, Memory, Notify, Transport};

const LIMIT: Option<Duration> = Some(Duration::from_secs(60));

fn main() -> Result<()> {
    if std::env::args().nth(1).as_deref() == Some("decode") { decode() } else { prefill() }
}

/// Where page `n` of a request lies in the other cache: scattered, and no two in one place, since the step is a prime that no
/// sensible number of pages is a multiple of.
fn place(n: usize, pages: usize) -> usize {
    n * 7_919 % pages
}

fn page(request: u64, n: usize, len: usize) -> Vec<u8> {
    vec![(request * 37 + n as u64) as u8; len]
}

fn prefill() -> Result<()> {
    let (pages, kib, requests) =
        (option("--pages", 2048)? as usize, option("--kib", 16)? as usize, option("--requests", 3)?);
    let numbers = [pages.to_string(), kib.to_string(), requests.to_string()];
    let args = ["decode", "--pages", &numbers[0], "--kib", &numbers[1], "--requests", &numbers[2]];
    let mut peer = Peer::start(&args)?;
    let (url, remote) = read_ticket(&peer.line()?)?;
    let transport = Transport::new()?;
    transport.connect_blocking(&url, Duration::from_secs(20))?;
    eprintln!("{}", transport.path().unwrap_or_default());
    let (len, cache) = (kib << 10, Memory::host(pages * (kib << 10)));
    let whole = Memory::host(cache.len());
    for request in 0..requests {
        for n in 0..pages {
            cache.fill(n * len, &page(request, n, len))?;
        }
        let mut parts = Vec::with_capacity(pages);
        for n in 0..pages {
            let there = remote.slice((place(n, pages) * len) as u64, len as u64)?;
            parts.push((cache.slice(n * len, len)?, there));
        }
        // Posted before there can be an answer: what a peer has sent and was not received ends with its transport.
        let word = Memory::host(1);
        let (first, second) =
            (transport.recv(1, &word.view_mut()?, LIMIT), transport.recv(1, &word.view_mut()?, LIMIT));
        let began = Instant::now();
        let bytes = transport.write_batch_blocking(&parts, Some(Notify::value(request)), LIMIT)?;
        let scattered = began.elapsed();
        first.wait()?;
        let began = Instant::now();
        transport.write_blocking(&whole.view(), &remote, Some(Notify::value(request)), LIMIT)?;
        let contiguous = began.elapsed();
        second.wait()?;
        println!(
            "request {request}: {pages} pages of {kib} KiB, {:.2} GB/s; one contiguous write {:.2} GB/s",
            bytes as f64 / scattered.as_secs_f64() / 1e9,
            bytes as f64 / contiguous.as_secs_f64() / 1e9,
        );
    }
    peer.finish()
}

fn decode() -> Result<()> {
    let (pages, kib, requests) =
        (option("--pages", 2048)? as usize, option("--kib", 16)? as usize, option("--requests", 3)?);
    let transport = Transport::new()?;
    let (len, cache) = (kib << 10, Memory::host(pages * (kib << 10)));
    let remote = transport.expose(&cache.view(), Access::Write)?.remote();
    println!("{}", ticket(&transport.bind()?, &remote));
    transport.wait_connected_blocking(Duration::from_secs(20))?;
    let mut got = vec![0; len];
    for request in 0..requests {
        assert_eq!(transport.wait_for_write_blocking(LIMIT)?, request);
        for n in 0..pages {
            cache.read(place(n, pages) * len, &mut got)?;
            assert!(got == page(request, n, len), "page {n} of request {request}");
        }
        transport.send_blocking(1, &Memory::copy_of(&[1]).view(), LIMIT)?;
        assert_eq!(transport.wait_for_write_blocking(LIMIT)?, request);
        transport.send_blocking(1, &Memory::copy_of(&[1]).view(), LIMIT)?;
    }
    Ok(())
}
