//! Connections over Thunderbolt and USB4 cables, between hosts that are fabrics with cables in software.
#![allow(clippy::unwrap_used)]

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use linkspan_fabric::thunderbolt::soft::{SoftRingLink, SoftStreamLink};
use linkspan_fabric::thunderbolt::{Cable, Place, Ports, Tier};
use linkspan_fabric::{Buf, Channel, Config, Error, Fabric, HostBuf, Log};

type Env = &'static [(&'static str, &'static str)];

struct World {
    ring: Option<SoftRingLink>,
    streams: Vec<SoftStreamLink>,
    fabrics: Vec<Fabric>,
    lines: [Arc<Mutex<Vec<String>>>; 2],
}

fn config(extra: Env) -> Config {
    let base = [("LINKSPAN_IFNAME", "=lo"), ("LINKSPAN_STATS_DIR", "off")];
    Config::read(&|name| base.iter().chain(extra).rev().find(|p| p.0 == name).map(|p| p.1.to_owned())).unwrap()
}

const HOSTS: [[u8; 16]; 2] = [[0xaa; 16], [0xbb; 16]];

/// Two hosts on one cable; `peers`: whom each believes to be at its other end.
fn world(ring: bool, streams: usize, envs: [Env; 2], acked: bool, peers: [[u8; 16]; 2]) -> World {
    let ring = ring.then(SoftRingLink::new);
    let streams: Vec<_> = (0..streams).map(|_| SoftStreamLink::new(256).unwrap()).collect();
    let lines = [(), ()].map(|()| Arc::new(Mutex::new(Vec::new())));
    let fabrics = [0, 1].map(|n| {
        let said = lines[n].clone();
        let log = Log::to(move |level, line| said.lock().unwrap().push(format!("{level:?} {line}")));
        let base = Cable {
            tier: Tier::Ring,
            name: format!("soft{n}"),
            local: HOSTS[n],
            peer: peers[n],
            hops: (0, 0),
            ring: 0,
            speed: 5_000_000_000,
            place: Place::File("/none".into()),
        };
        let mut ports = Ports { plugged: true, ..Ports::default() };
        if let Some(link) = &ring {
            ports.cables.push(Cable { place: Place::SoftRing(link.clone(), n), ..base.clone() });
        } else {
            ports.why_not.push((Tier::Ring, "no /dev/linkspan here".into()));
        }
        for (i, link) in streams.iter().enumerate() {
            let hops = [8 + 2 * i as u16, 9 + 2 * i as u16];
            let hops = (hops[n], hops[1 - n]);
            let place = Place::SoftStream(link.clone(), n);
            ports.cables.push(Cable { tier: Tier::Stream, hops, ring: 256, place, ..base.clone() });
        }
        Fabric::with_cables(config(envs[n]), log, acked, ports.shared()).unwrap()
    });
    World { ring, streams, fabrics: fabrics.into(), lines }
}

fn joined(ring: bool, streams: usize, envs: [Env; 2], acked: bool) -> World {
    world(ring, streams, envs, acked, [HOSTS[1], HOSTS[0]])
}

impl World {
    fn connect(&self) -> (Result<Channel, Error>, Result<Channel, Error>) {
        let listener = self.fabrics[1].listen(0).unwrap();
        let mut connecting = self.fabrics[0].connect(0, &listener.handle()).unwrap();
        let (mut here, mut there) = (None, None);
        let until = Instant::now() + Duration::from_secs(60);
        while here.is_none() || there.is_none() {
            assert!(Instant::now() < until, "neither up nor refused");
            if here.is_none() {
                here = connecting.poll().transpose();
            }
            if there.is_none() {
                there = listener.accept().transpose();
            }
            if let Some(Err(_)) = &here {
                break;
            }
        }
        let none = || Err(Error::NoDevice { index: 9, count: 0 });
        (here.unwrap_or_else(none), there.unwrap_or_else(none))
    }

    fn pair(&self) -> (Channel, Channel) {
        let (a, b) = self.connect();
        (a.unwrap(), b.unwrap())
    }

    fn all(&self, n: usize) -> String {
        self.lines[n].lock().unwrap().join("\n")
    }
}

fn message(a: &mut Channel, b: &mut Channel, len: usize, seed: u8) -> Result<(), String> {
    let (src, dst) = (HostBuf::new(len), HostBuf::new(len));
    let pattern: Vec<u8> = (0..len).map(|i| (i * 7) as u8 ^ seed).collect();
    assert!(src.slice().fill(0, &pattern));
    let until = Instant::now() + Duration::from_secs(60);
    let recv = b.post_recv(&[(3, dst.slice())]).map_err(|e| e.to_string())?.ok_or("busy")?;
    let (mut send, mut sent, mut got) = (None, false, false);
    while !sent || !got {
        assert!(Instant::now() < until, "not done: {} | {}", a.describe(), b.describe());
        let why = |c: &Channel, e: &dyn std::fmt::Display| format!("{e}: {}", c.lost().unwrap_or_default());
        a.progress().map_err(|e| why(a, &e))?;
        b.progress().map_err(|e| why(b, &e))?;
        match send {
            None => send = a.post_send(3, src.slice()).map_err(|e| why(a, &e))?,
            Some(ticket) => sent = sent || a.test(ticket).map_err(|e| why(a, &e))?.is_some(),
        }
        got = got || b.test(recv).map_err(|e| why(b, &e))?.is_some();
    }
    assert!(dst.slice().to_vec() == pattern, "{len} bytes differ");
    Ok(())
}

#[test]
fn a_cable_is_taken_and_the_line_says_which_tier_and_why() {
    for acked in [false, true] {
        for (ring, streams, tier, why) in [
            (true, 1, "tier 1 (ring)", "our ring driver"),
            (false, 2, "tier 2 (stream)", "no tier 1 (ring): no /dev/linkspan here"),
        ] {
            let world = joined(ring, streams, [&[], &[]], acked);
            let (mut a, mut b) = world.pair();
            for (n, len) in [0, 1, 8192, 8193, 1 << 20, (3 << 20) + 7].into_iter().enumerate() {
                message(&mut a, &mut b, len, n as u8).unwrap();
                message(&mut b, &mut a, len, 99).unwrap();
            }
            for end in [&a, &b] {
                let line = end.describe();
                assert!(line.contains("thunderbolt") && line.contains(tier), "{line}");
            }
            assert!(world.all(0).contains(why), "{}", world.all(0));
            assert!(!world.all(0).contains("Warn") && !world.all(1).contains("Warn"), "{}", world.all(0));
            assert_eq!(a.memory().is_registered(), ring);
        }
    }
}

#[test]
fn a_tier_can_be_forced_and_says_when_it_cannot_be_had() {
    let world = joined(true, 1, [&[("LINKSPAN_THUNDERBOLT_TIER", "stream")], &[]], false);
    let (mut a, mut b) = world.pair();
    message(&mut a, &mut b, 100_000, 1).unwrap();
    assert!(a.describe().contains("tier 2 (stream)"), "{}", a.describe());
    assert!(world.all(0).contains("LINKSPAN_THUNDERBOLT_TIER=stream leaves it out"), "{}", world.all(0));

    for tier in ["off", "net"] {
        let env: Env = if tier == "off" {
            &[("LINKSPAN_THUNDERBOLT_TIER", "off")]
        } else {
            &[("LINKSPAN_THUNDERBOLT_TIER", "net")]
        };
        let world = joined(true, 0, [env, env], false);
        let (mut a, mut b) = world.pair();
        message(&mut a, &mut b, 100_000, 1).unwrap();
        assert!(a.describe().contains("tcp"), "{}", a.describe());
    }

    let env: Env = &[("LINKSPAN_THUNDERBOLT_TIER", "ring")];
    let world = joined(false, 1, [env, env], false);
    let refused = world.connect().0.err().unwrap().to_string();
    assert!(refused.contains("thunderbolt") && refused.contains("no /dev/linkspan here"), "{refused}");
}

#[test]
fn a_cable_to_somebody_else_is_nobodys_trouble() {
    let world = world(true, 1, [&[("LINKSPAN_STRICT", "1")], &[]], false, [[1; 16], [2; 16]]);
    let (mut a, mut b) = world.pair();
    message(&mut a, &mut b, 100_000, 1).unwrap();
    assert!(a.describe().contains("tcp"), "{}", a.describe());
    assert!(!world.all(0).contains("Warn"), "{}", world.all(0));
}

#[test]
fn a_stream_that_is_in_use_is_a_downgrade_that_is_said() {
    let world = joined(false, 1, [&[], &[]], false);
    let (mut a, mut b) = world.pair();
    let (mut c, mut d) = world.pair();
    message(&mut a, &mut b, 100_000, 1).unwrap();
    message(&mut c, &mut d, 100_000, 2).unwrap();
    assert!(c.describe().contains("tcp"), "{}", c.describe());
    assert!(
        world.all(0).contains("downgrade") && world.all(0).contains("another connection has it"),
        "{}",
        world.all(0)
    );
}

#[test]
fn an_unplugged_cable_leaves_the_reserve_or_ends_the_connection() {
    for acked in [true, false] {
        let world = joined(true, 0, [&[], &[]], acked);
        let (mut a, mut b) = world.pair();
        message(&mut a, &mut b, 1 << 20, 1).unwrap();
        world.ring.as_ref().unwrap().unplug();
        let after = message(&mut a, &mut b, 1 << 20, 2);
        assert_eq!(after.is_ok(), acked, "{after:?}");
        if acked {
            assert!(world.all(0).contains("TCP carries on"), "{}", world.all(0));
        }
        assert!(world.streams.is_empty());
    }
}
