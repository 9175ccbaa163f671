//! The phases of a test and how each side runs one.

use std::time::{Duration, Instant};

use crate::clock::thread_cpu_ns;
use crate::ctrl::Ctrl;
use crate::error::PerfError;
use crate::gate::Gate;
use crate::hist::Recorder;
use crate::link::{Link, LinkError, WAIT_MAX};
use crate::pump::{BulkRecv, BulkSend, Check, Ping, Pong, Tally};
use crate::spec::{Direction, Stop, Test};
use crate::turn::Turner;
use crate::wire::{Kind, Plan, Reply};

/// Busy turns of a sending server between two checks for the client's message that it wants no more.
const ASK: u32 = 64;

/// Longest that a stream waits for others to begin a phase with it: servers end the sessions of clients that are silent for a minute.
const TOGETHER: Duration = Duration::from_secs(10);

/// What a phase is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// Warms up; not reported.
    Warm,
    /// Measured.
    Timed,
    /// Measured without load, for comparison.
    Idle,
    /// Every byte checked; not timed.
    Verify,
}

/// Bulk data of a phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Bulk {
    size: usize,
    window: u32,
    direction: Direction,
    /// `None`: until the ping-pong ends.
    stop: Option<Stop>,
}

/// Ping-pong of a phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Pings {
    stop: Stop,
    interval: Option<Duration>,
}

/// One phase; both sides derive the same list from the [`Plan`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Phase {
    pub(crate) role: Role,
    pings: Option<Pings>,
    bulk: Option<Bulk>,
    check: Check,
}

/// The phases of a test in their order. `device`: one side's messages are in device memory, where a look at each would
/// wait for a copy and be measured with it; only what is checked in full is checked then.
pub(crate) fn phases(plan: &Plan, device: bool) -> Vec<Phase> {
    let stamp = if plan.verify > 0 && !device { Check::Stamp } else { Check::No };
    let bulk = |stop| Bulk { size: plan.size, window: plan.window, direction: plan.direction, stop: Some(stop) };
    let load = Bulk { size: plan.load_size, window: plan.load_window, direction: plan.direction, stop: None };
    let interval = (plan.test == Test::Jitter).then_some(plan.interval);
    let is_bulk = plan.test == Test::Bw;
    let phase = |role, stop, check| Phase {
        role,
        pings: (!is_bulk).then_some(Pings { stop, interval: interval.filter(|_| role != Role::Warm) }),
        bulk: is_bulk.then(|| bulk(stop)),
        check,
    };

    let mut list = Vec::new();
    if plan.warmup > 0 {
        list.push(phase(Role::Warm, Stop::Messages(plan.warmup.into()), stamp));
    }
    if plan.test == Test::Load {
        list.push(phase(Role::Idle, plan.stop, stamp));
    }
    let mut timed = phase(Role::Timed, plan.stop, stamp);
    if plan.test == Test::Load {
        timed.bulk = Some(load);
    }
    list.push(timed);
    if plan.verify > 0 {
        let direction = if is_bulk { plan.direction } else { Direction::Both };
        let bulk = Bulk { direction, ..bulk(Stop::Messages(plan.verify.into())) };
        list.push(Phase { role: Role::Verify, pings: None, bulk: Some(bulk), check: Check::Full });
    }
    list
}

/// What the asking side knows after a phase.
#[derive(Debug)]
pub(crate) struct Part {
    pub(crate) role: Role,
    /// The common start of both sides.
    pub(crate) began: Instant,
    pub(crate) rec: Option<Recorder>,
    /// To the peer: messages, bytes, time.
    pub(crate) up: Option<(Tally, Duration)>,
    pub(crate) down: Option<(Tally, Duration)>,
    pub(crate) wrong: u64,
    pub(crate) cpu_local_ns: u64,
    pub(crate) cpu_peer_ns: u64,
}

/// Runs a phase on the asking side. After `limit` it ends, as by an interrupt, with what has moved until then.
pub(crate) fn ask<L: Link + ?Sized>(
    link: &mut L,
    ctrl: &mut Ctrl,
    turner: &mut Turner,
    plan: &Plan,
    phase: &Phase,
    gate: &mut Option<Gate>,
    limit: Option<Duration>,
) -> Result<Part, PerfError> {
    let (up_seed, down_seed) = (plan.seed, plan.seed.rotate_left(32));
    let pings = phase.pings;
    let mut ping = pings
        .map(|pings| Ping::new(link, plan.size, plan.depth, pings.stop, pings.interval, plan.seed, phase.check))
        .transpose()?;
    let (up, down) = (|b: &Bulk| b.direction.up(), |b: &Bulk| b.direction.down());
    let mut send = phase.bulk.filter(up).map(|bulk| sender(link, &bulk, up_seed, phase.check)).transpose()?;
    let mut recv = phase.bulk.filter(down).map(|bulk| receiver(link, &bulk, down_seed, phase.check)).transpose()?;

    while !(ctrl.prime(link)?
        && ping.as_mut().map_or(Ok(true), |ping| ping.prime(link))?
        && recv.as_mut().map_or(Ok(true), |recv| recv.prime(link))?)
    {
        turner.turn(link, false)?;
    }
    let since = Instant::now();
    while gate.as_mut().is_some_and(|gate| !gate.passed(WAIT_MAX)) && !turner.interrupted() {
        if since.elapsed() >= TOGETHER {
            // Who waits no more is not waited for.
            *gate = None;
        }
        link.progress()?;
        turner.check()?;
    }
    let asked = Instant::now();
    ctrl.send(link, turner, &Reply::new(Kind::Go))?;
    ctrl.expect(link, turner, Kind::Go)?;
    ctrl.prime(link)?;
    let now = Instant::now();
    // The server began half a round trip ago.
    let began = asked + (now - asked) / 2;
    let cpu = thread_cpu_ns();
    if let Some(ping) = &mut ping {
        ping.start(now);
    }
    if let Some(send) = &mut send {
        send.start(now);
    }

    let mut told = false;
    loop {
        let mut moved = false;
        let mut finished = true;
        if !told && (turner.interrupted() || limit.is_some_and(|limit| now.elapsed() >= limit)) {
            told = true;
            ping.iter_mut().for_each(Ping::end);
            send.iter_mut().for_each(BulkSend::end);
            if recv.is_some() && ping.is_none() {
                ctrl.send(link, turner, &Reply::new(Kind::Stop))?;
            }
        }
        if let Some(ping) = &mut ping {
            moved |= ping.poll(link)?;
            finished &= ping.finished();
            turner.due(ping.due());
        }
        if let Some(send) = &mut send {
            if ping.as_ref().is_some_and(Ping::ending) {
                send.end();
            }
            moved |= send.poll(link)?;
            finished &= send.finished();
        }
        if let Some(recv) = &mut recv {
            moved |= recv.poll(link)?;
            finished &= recv.finished();
        }
        if finished {
            break;
        }
        turner.turn(link, moved)?;
    }
    let report = ctrl.expect(link, turner, Kind::Report)?;
    let cpu_local_ns = thread_cpu_ns().saturating_sub(cpu);

    let mut wrong = report.wrong.get();
    let up = send.is_some().then(|| {
        let tally = Tally { messages: report.messages.get(), bytes: report.bytes.get(), wrong: 0, last: None };
        (tally, Duration::from_nanos(report.elapsed_ns.get()))
    });
    let down = recv.map(|recv| {
        wrong = wrong.saturating_add(recv.tally().wrong);
        (*recv.tally(), recv.tally().since(began))
    });
    let rec = ping.map(|ping| {
        let (rec, tally) = ping.into_results();
        wrong = wrong.saturating_add(tally.wrong);
        rec
    });
    Ok(Part { role: phase.role, began, rec, up, down, wrong, cpu_local_ns, cpu_peer_ns: report.cpu_ns.get() })
}

/// Runs a phase on the serving side. False: the client wants no further one.
pub(crate) fn answer<L: Link + ?Sized>(
    link: &mut L,
    ctrl: &mut Ctrl,
    patient: &mut Turner,
    turner: &mut Turner,
    plan: &Plan,
    phase: &Phase,
) -> Result<bool, PerfError> {
    let (up_seed, down_seed) = (plan.seed, plan.seed.rotate_left(32));
    let pong = phase.pings.map(|_| Pong::new(link, plan.size, plan.depth, plan.seed, phase.check));
    let mut pong = pong.transpose()?;
    let (up, down) = (|b: &Bulk| b.direction.up(), |b: &Bulk| b.direction.down());
    let mut recv = phase.bulk.filter(up).map(|bulk| receiver(link, &bulk, up_seed, phase.check)).transpose()?;
    let mut send = phase.bulk.filter(down).map(|bulk| sender(link, &bulk, down_seed, phase.check)).transpose()?;

    if !ctrl.go(link, patient)? {
        return Ok(false);
    }
    while !(ctrl.prime(link)?
        && pong.as_mut().map_or(Ok(true), |pong| pong.prime(link))?
        && recv.as_mut().map_or(Ok(true), |recv| recv.prime(link))?)
    {
        turner.turn(link, false)?;
    }
    let cpu = thread_cpu_ns();
    let began = Instant::now();
    ctrl.send(link, turner, &Reply::new(Kind::Go))?;
    if let Some(send) = &mut send {
        send.start(Instant::now());
    }

    let mut turns = 0u32;
    loop {
        let mut moved = false;
        let mut finished = true;
        turns = turns.wrapping_add(1);
        if let Some(send) = &mut send
            && pong.is_none()
            && turns.is_multiple_of(ASK)
            && ctrl.stopped(link)?
        {
            send.end();
        }
        if let Some(pong) = &mut pong {
            moved |= pong.poll(link)?;
            finished &= pong.finished();
        }
        if let Some(recv) = &mut recv {
            moved |= recv.poll(link)?;
            finished &= recv.finished();
        }
        if let Some(send) = &mut send {
            if pong.as_ref().is_some_and(Pong::ending) {
                send.end();
            }
            moved |= send.poll(link)?;
            finished &= send.finished();
        }
        if finished {
            break;
        }
        // Where nothing moves the next turn may be a sleep away.
        turns |= if moved { 0 } else { ASK - 1 };
        turner.turn(link, moved)?;
    }

    let mut report = Reply::new(Kind::Report);
    let mut wrong = pong.as_ref().map_or(0, |pong| pong.tally().wrong);
    if let Some(recv) = &recv {
        let tally = recv.tally();
        report.messages = tally.messages.into();
        report.bytes = tally.bytes.into();
        report.elapsed_ns = (tally.since(began).as_nanos() as u64).into();
        wrong = wrong.saturating_add(tally.wrong);
    }
    report.wrong = wrong.into();
    report.cpu_ns = thread_cpu_ns().saturating_sub(cpu).into();
    ctrl.send(link, turner, &report)?;
    Ok(true)
}

fn sender<L: Link + ?Sized>(link: &L, bulk: &Bulk, seed: u64, check: Check) -> Result<BulkSend, LinkError> {
    BulkSend::new(link, bulk.size, bulk.window, bulk.stop, seed, check)
}

fn receiver<L: Link + ?Sized>(link: &L, bulk: &Bulk, seed: u64, check: Check) -> Result<BulkRecv, LinkError> {
    BulkRecv::new(link, bulk.size, bulk.window, seed, check)
}

#[cfg(test)]
mod tests;
