//! What a way over one relay costs beside two direct hops, over software NICs: everything in one thread, so that time is work.
//! `relay [MiB]`: so much payload for each size and turn; turns alternate, and the middle of eleven counts.

use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use linkspan_transport::{Conn, MemSlice, StaticBuf};
use linkspan_verbs::{Config, Domain, RELAY_CHUNK, Relay, Setup, VerbsRail, join};
use linkspan_verbs_sys::soft::{SoftConfig, SoftNet, SoftNic};

type Rail = VerbsRail<SoftNic>;

const TURNS: usize = 11;

/// Two ends, and what is between them.
struct RelayedPair {
    ends: [Conn<Rail>; 2],
    relay: Option<Relay<SoftNic>>,
}

fn hop(net: &SoftNet, number: u8, chunk: usize) -> (Rail, Rail) {
    let side = |end| {
        let nic = net.nic(SoftConfig::roce("soft", Ipv4Addr::new(10, 0, number, end), 1));
        Setup::new(Domain::new(nic), Config { chunk, ..Config::default() }).unwrap_or_else(|e| panic!("{e}"))
    };
    join(side(1), side(2)).unwrap_or_else(|e| panic!("{e}"))
}

/// A net of its own for each way, for every poll moves a whole net.
fn direct() -> RelayedPair {
    let (a, b) = hop(&SoftNet::new(1), 1, Config::default().chunk);
    RelayedPair { ends: [Conn::new([a], true), Conn::new([b], true)], relay: None }
}

fn relayed() -> RelayedPair {
    let net = SoftNet::new(1);
    let ((a, near), (far, b)) = (hop(&net, 1, RELAY_CHUNK), hop(&net, 2, RELAY_CHUNK));
    RelayedPair { ends: [Conn::new([a], true), Conn::new([b], true)], relay: Some(Relay::new(near, far)) }
}

impl RelayedPair {
    fn turn(&mut self) {
        let _ = self.ends[0].progress();
        if let Some(relay) = &mut self.relay {
            let _ = relay.poll();
        }
        let _ = self.ends[1].progress();
    }

    /// So many messages, up to `depth` under way; the time of one.
    fn send(&mut self, src: MemSlice, dst: MemSlice, count: usize, depth: usize) -> Duration {
        let (mut sends, mut receives) = (Vec::new(), Vec::new());
        let (mut sent, mut posted, mut got) = (0, 0, 0);
        let since = Instant::now();
        while got < count {
            if posted < count
                && receives.len() < depth
                && let Ok(Some(ticket)) = self.ends[1].post_recv(&[(1, dst)])
            {
                receives.push(ticket);
                posted += 1;
            }
            if sent < posted
                && sends.len() < depth
                && let Ok(Some(ticket)) = self.ends[0].post_send(1, src)
            {
                sends.push(ticket);
                sent += 1;
            }
            self.turn();
            sends.retain(|&ticket| !matches!(self.ends[0].test(ticket), Ok(Some(_))));
            let before = receives.len();
            receives.retain(|&ticket| !matches!(self.ends[1].test(ticket), Ok(Some(_))));
            got += before - receives.len();
        }
        since.elapsed() / count as u32
    }
}

fn main() {
    let mib: usize = std::env::args().nth(1).and_then(|n| n.parse().ok()).unwrap_or(16);
    let (mut near, mut far) = (direct(), relayed());
    println!("| message | one direct hop, us | over one relay, us | relay / two direct hops |");
    println!("|---|---|---|---|");
    for (len, depth) in [(8, 1), (8, 8), (64 << 10, 8), (1 << 20, 8), (4 << 20, 2)] {
        let (src, dst) = (StaticBuf::new(len), StaticBuf::new(len));
        let count = ((mib << 20) / len).clamp(4, 20_000);
        let mut turns: Vec<(f64, f64, f64)> = (0..=TURNS)
            .map(|_| {
                let one = near.send(src.slice(), dst.slice(), count, depth).as_secs_f64() * 1e6;
                let two = far.send(src.slice(), dst.slice(), count, depth).as_secs_f64() * 1e6;
                (two / (2.0 * one), one, two)
            })
            .skip(1) // memory and caches
            .collect();
        turns.sort_by(|a, b| a.0.total_cmp(&b.0));
        let (least, most) = (turns[0].0, turns[TURNS - 1].0);
        let (ratio, one, two) = turns[TURNS / 2];
        println!("| {len} bytes, {depth} under way | {one:.1} | {two:.1} | {ratio:.2} ({least:.2} to {most:.2}) |");
    }
}
