//! A trainer writes its weights into N workers, each a process: `broadcast [--workers N] [--mib N] [--steps N]`.

mod common;

use std::time::{Duration, Instant};

use common::{Peer, Result, option, read_ticket, ticket};
use linkspan::{Access, Memory, Notify, Transport};

const LIMIT: Option<Duration> = Some(Duration::from_secs(60));

fn main() -> Result<()> {
    if std::env::args().nth(1).as_deref() == Some("worker") { worker() } else { trainer() }
}

fn weights(len: usize, step: u64) -> Vec<u8> {
    (0..len).map(|n| (n as u64 * 31 + step) as u8).collect()
}

fn trainer() -> Result<()> {
    let (workers, mib, steps) = (option("--workers", 3)?, option("--mib", 16)?, option("--steps", 3)?);
    let args = ["worker", "--mib", &mib.to_string(), "--steps", &steps.to_string()];
    let mut peers = (0..workers).map(|_| Peer::start(&args)).collect::<Result<Vec<Peer>>>()?;
    let mut routes = Vec::new();
    for peer in &mut peers {
        let (url, remote) = read_ticket(&peer.line()?)?;
        let transport = Transport::new()?;
        transport.connect_blocking(&url, Duration::from_secs(20))?;
        eprintln!("{}", transport.path().unwrap_or_default());
        routes.push((transport, remote));
    }
    let model = Memory::host((mib << 20) as usize);
    for step in 0..steps {
        model.fill(0, &weights(model.len(), step))?;
        // Posted before there can be an answer: what a peer has sent and was not received ends with its transport.
        let word = Memory::host(1);
        let looked: Vec<_> =
            routes.iter().map(|(t, _)| Ok(t.recv(1, &word.view_mut()?, LIMIT))).collect::<Result<_>>()?;
        let began = Instant::now();
        let writes: Vec<_> =
            routes.iter().map(|(t, to)| t.write(&model.view(), to, Some(Notify::value(step)), LIMIT)).collect();
        for write in writes {
            write.wait()?;
        }
        let took = began.elapsed().as_secs_f64();
        let rate = (model.len() as u64 * workers) as f64 / took / 1e9;
        println!("step {step}: {mib} MiB to {workers} workers, {rate:.2} GB/s in all");
        // The workers have looked before the weights change again.
        for answer in looked {
            assert_eq!(answer.wait()?, 1);
        }
    }
    peers.into_iter().try_for_each(Peer::finish)
}

fn worker() -> Result<()> {
    let (mib, steps) = (option("--mib", 16)?, option("--steps", 3)?);
    let transport = Transport::new()?;
    let model = Memory::host((mib << 20) as usize);
    let remote = transport.expose(&model.view(), Access::Write)?.remote();
    println!("{}", ticket(&transport.bind()?, &remote));
    for step in 0..steps {
        if step == 0 {
            transport.wait_connected_blocking(Duration::from_secs(20))?;
        }
        assert_eq!(transport.wait_for_write_blocking(LIMIT)?, step);
        assert!(model.to_vec() == weights(model.len(), step), "weights of step {step}");
        transport.send_blocking(1, &Memory::copy_of(&[1]).view(), LIMIT)?;
    }
    Ok(())
}
