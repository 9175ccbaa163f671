//! Two processes write 8 bytes into each other's memory in turn: `ping_pong [--rounds N]`. Prints half a round trip.

mod common;

use std::time::{Duration, Instant};

use common::{Peer, Result, option, read_ticket, ticket};
use linkspan::{Access, Memory, Notify, RemoteBuffer, Transport};

const LIMIT: Option<Duration> = Some(Duration::from_secs(30));

fn main() -> Result<()> {
    if std::env::args().nth(1).as_deref() == Some("pong") { pong() } else { ping() }
}

fn ping() -> Result<()> {
    let rounds = option("--rounds", 10_000)?;
    let mut peer = Peer::start(&["pong", "--rounds", &rounds.to_string()])?;
    let (url, theirs) = read_ticket(&peer.line()?)?;
    let transport = Transport::new()?;
    let inbox = Memory::host(8);
    let ours = transport.expose(&inbox.view(), Access::Write)?.remote();
    transport.connect_blocking(&url, Duration::from_secs(20))?;
    transport.send_blocking(0, &Memory::copy_of(&ours.encode()).view(), LIMIT)?;
    eprintln!("{}", transport.path().unwrap_or_default());
    let word = Memory::host(8);
    let began = Instant::now();
    for n in 0..rounds {
        word.fill(0, &n.to_le_bytes())?;
        let write = transport.write(&word.view(), &theirs, Some(Notify::value(n)), LIMIT);
        assert_eq!(transport.wait_for_write_blocking(LIMIT)?, n);
        write.wait()?;
        assert_eq!(inbox.to_vec(), (n + 1).to_le_bytes());
    }
    let half = began.elapsed().as_secs_f64() * 1e6 / rounds as f64 / 2.0;
    println!("{rounds} rounds of 8 bytes, {half:.2} us each way");
    peer.finish()
}

fn pong() -> Result<()> {
    let rounds = option("--rounds", 10_000)?;
    let transport = Transport::new()?;
    let inbox = Memory::host(8);
    let ours = transport.expose(&inbox.view(), Access::Write)?.remote();
    println!("{}", ticket(&transport.bind()?, &ours));
    transport.wait_connected_blocking(Duration::from_secs(20))?;
    let card = Memory::host(linkspan::REMOTE_BUFFER_LEN);
    transport.recv_blocking(0, &card.view_mut()?, LIMIT)?;
    let theirs = RemoteBuffer::decode(&card.to_vec())?;
    let word = Memory::host(8);
    for n in 0..rounds {
        assert_eq!(transport.wait_for_write_blocking(LIMIT)?, n);
        assert_eq!(inbox.to_vec(), n.to_le_bytes());
        word.fill(0, &(n + 1).to_le_bytes())?;
        transport.write_blocking(&word.view(), &theirs, Some(Notify::value(n)), LIMIT)?;
    }
    Ok(())
}
