//! What a seed decides: the links, the traffic and what goes wrong when.

use linkspan_sim::{End, Fault, LinkConfig, Rng};

/// One thing that goes wrong.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Trouble {
    /// A link has a fault.
    Link(usize, Fault),
    /// A side is not scheduled for this long, ns.
    Stop(usize, u64),
    /// A side's process dies.
    Crash(usize),
    /// A side gives a healthy link up.
    GiveUp(usize, usize),
    /// Both sides get one more link.
    Add,
}

/// Everything a seed decides before the run begins.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) acked: bool,
    pub(crate) links: Vec<LinkConfig>,
    /// Messages each way.
    pub(crate) messages: u64,
    /// Trouble, each after so many rounds.
    pub(crate) troubles: Vec<(u64, Trouble)>,
    /// One side closes while the last of the traffic is under way.
    pub(crate) early_close: bool,
    /// The connection may end before its work: all links have a mortal fault, or a side dies.
    pub(crate) may_die: bool,
}

const MS: u64 = 1_000_000;

/// What ten minutes are in nanoseconds: how long a stopped peer must be waited for.
pub(crate) const TEN_MINUTES: u64 = 600_000 * MS;

impl Plan {
    pub(crate) fn new(rng: &mut Rng) -> Plan {
        let n = rng.within(1, 4) as usize;
        let acked = n > 1 || rng.one_in(2);
        let links = (0..n).map(|_| link(rng)).collect();
        let messages = rng.within(5, 40);
        let mut plan =
            Plan { acked, links, messages, troubles: Vec::new(), early_close: rng.one_in(6), may_die: false };
        let mut mortal = vec![false; n];
        for _ in 0..rng.below(6) {
            let when = rng.below(messages * 12);
            let trouble = plan.trouble(rng, &mut mortal);
            plan.troubles.push((when, trouble));
        }
        plan.may_die |= mortal.iter().all(|&m| m);
        plan.troubles.sort_by_key(|t| t.0);
        plan
    }

    /// Something that goes wrong while the last bytes of a closed side are under way.
    pub(crate) fn at_close(n: usize, rng: &mut Rng) -> Trouble {
        let end = *rng.choose(&[End::A, End::B]);
        let fault = match rng.below(5) {
            0 => stall(rng, end, Some(MS)),
            1 => Fault::Delay { time: MS },
            2 => Fault::Storm { at: end, time: MS },
            3 => Fault::Corrupt { to: end, after: 0 },
            _ => Fault::Cut { a: Some(rng.below(MS)), b: Some(rng.below(MS)) },
        };
        Trouble::Link(n, fault)
    }

    fn trouble(&mut self, rng: &mut Rng, mortal: &mut [bool]) -> Trouble {
        let n = self.links.len();
        let at = rng.below(n as u64) as usize;
        let side = rng.below(2) as usize;
        let end = *rng.choose(&[End::A, End::B]);
        match rng.below(16) {
            0 => return Trouble::Stop(side, TEN_MINUTES),
            1 => return Trouble::Stop(side, rng.below(50 * MS)),
            2 if rng.one_in(2) => {
                self.may_die = true;
                return Trouble::Crash(side);
            }
            3 if self.acked => return Trouble::Add,
            4 | 5 => {
                let time = rng.below(20 * MS);
                return Trouble::Link(at, Fault::Storm { at: end, time });
            }
            6 => {
                let time = rng.below(10 * MS);
                return Trouble::Link(at, Fault::Delay { time });
            }
            7 | 8 => return Trouble::Link(at, stall(rng, end, Some(rng.clone().below(30 * MS)))),
            _ => {}
        }
        // The rest kills the link. The last healthy one is spared in most seeds.
        let others = (0..n).filter(|&l| l != at && !mortal[l]).count();
        if others == 0 && !rng.one_in(4) {
            return Trouble::Link(at, stall(rng, end, Some(MS)));
        }
        mortal[at] = true;
        let fault = match rng.below(6) {
            0 | 1 => Fault::Cut { a: Some(rng.below(5 * MS)), b: Some(rng.below(5 * MS)) },
            2 if end == End::A => Fault::Cut { a: None, b: Some(rng.below(MS)) },
            2 => Fault::Cut { a: Some(rng.below(MS)), b: None },
            3 => stall(rng, end, None),
            4 => Fault::Corrupt { to: end, after: rng.below(8) },
            _ => return Trouble::GiveUp(side, at),
        };
        Trouble::Link(at, fault)
    }
}

fn stall(rng: &mut Rng, to: End, time: Option<u64>) -> Fault {
    // Mostly within a chunk.
    let after = rng.below(30_000);
    Fault::Stall { to, after, time }
}

fn link(rng: &mut Rng) -> LinkConfig {
    let chunk = *rng.choose(&[4096usize, 16 << 10, 64 << 10, 256 << 10]);
    LinkConfig {
        ordered: !rng.one_in(3),
        chunk,
        queue: *rng.choose(&[1, 2, 4, 16, 64]),
        buffer: *rng.choose(&[1000usize, 9000, 64 << 10, 512 << 10]),
        segment: *rng.choose(&[333usize, 1500, 9000, 64 << 10]),
        budget: *rng.choose(&[700usize, 5000, 40_000, 400_000]),
        latency: rng.within(500, 200_000),
        jitter: *rng.choose(&[0, 1000, 300_000]),
        speed: *rng.choose(&[50_000_000, 125_000_000, 1_250_000_000, 10_000_000_000]),
    }
}
