//! The mesh server: neighbours log in with the cluster key and ask for something.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, TryRecvError, sync_channel};
use std::time::Duration;

use linkspan_proto::login::{Guard, LoginTable, ServerParams};
use linkspan_proto::mesh::{LISTEN_ID, MeshReply, Request};
use linkspan_setup::clock;
use linkspan_setup::log::warn_seldom;
use linkspan_setup::logins::{LoginRun, LoginStep, Slot, drop_unproven};
use linkspan_setup::stats::Event;
use linkspan_stream::{Listen, Stream};
use linkspan_topology::mesh::same_subnet;
use linkspan_transport::{Site, WaitFd, chain};

use super::agent::Agent;
use super::crossing::Over;
use super::hops::{self, Hops, RelayMark};
use super::work::{Work, WorkSlot};
use super::{Approach, Means, measure, relay};

/// How long connecting to the next hop may take: less than the login of the client.
const LEAD_ON: Duration = Duration::from_secs(4);

#[derive(Default)]
pub(super) struct MeshServer {
    table: Arc<LoginTable>,
    pending_logins: Vec<PendingLogin>,
    /// The socket that is asked first.
    turn: usize,
}

struct PendingLogin {
    run: LoginRun,
    slot: Slot,
    peer: SocketAddr,
    state: State,
}

enum State {
    Login,
    /// Leading on, with a slot among the relays; whether the next hop is the last.
    Reaching(Box<Approach>, WorkSlot, bool),
    /// It leads on to this stream, which may go over to RDMA.
    Joined(Box<Stream>, WorkSlot, Option<Box<Over>>),
    Sink(WorkSlot),
    Measuring(Receiver<Result<u64, String>>),
    /// Only the answer is still to be sent.
    Answered,
}

impl MeshServer {
    pub(super) fn is_idle(&self) -> bool {
        self.pending_logins.is_empty()
    }

    /// What those who are being served wait for.
    pub(super) fn wait_fds(&self, fds: &mut Vec<WaitFd>) {
        for pending in &self.pending_logins {
            match &pending.state {
                // The client may have closed meanwhile, which would wake us forever.
                State::Reaching(approach, ..) => approach.wait_fds(fds),
                State::Measuring(_) => {}
                _ => fds.push(pending.run.wait_fd()),
            }
        }
    }

    /// Accepts as many streams as there are slots, from each socket in turn, and reads what they have said already.
    pub(super) fn admit(&mut self, listens: &mut [Listen], agent: &Agent) {
        let mut empty = 0;
        while empty < listens.len() {
            let slot = Slot::take().or_else(|| {
                drop_unproven(&mut self.pending_logins, &agent.config.stats, |p| Some((&p.run, &p.slot)));
                Slot::take()
            });
            let Some(slot) = slot else { return };
            let at = self.turn % listens.len();
            self.turn = at + 1;
            match listens[at].accept() {
                Ok(Some((stream, peer))) => {
                    self.enter(slot, stream, peer, &agent.means);
                    empty = 0;
                }
                Ok(None) => empty += 1,
                Err(error) => {
                    if matches!(error, linkspan_stream::Error::Shortage { .. }) {
                        agent.config.stats.count(Event::AcceptPauses);
                    }
                    warn_seldom(&agent.config.log, "mesh accept", &format!("mesh: {}", chain(&error)));
                    return;
                }
            }
        }
    }

    fn enter(&mut self, slot: Slot, stream: Stream, peer: SocketAddr, means: &Means) {
        let params = ServerParams {
            guard: Guard::Psk { psk: means.psk.clone(), encrypt: false },
            blob: None,
            ..ServerParams::new(LISTEN_ID, means.keys.token(), self.table.clone())
        };
        if let Ok(run) = LoginRun::server(stream, params) {
            self.pending_logins.push(PendingLogin { run, slot, peer, state: State::Login });
        }
    }

    pub(super) fn pump(&mut self, agent: &Agent) {
        let mut n = 0;
        while n < self.pending_logins.len() {
            match self.pending_logins[n].poll(agent) {
                Ok(false) => n += 1,
                Ok(true) => self.pending_logins.swap_remove(n).end(agent),
                Err(why) => {
                    let pending = self.pending_logins.swap_remove(n);
                    agent.config.log.info(&format!("mesh: the login of {} failed: {why}", pending.peer));
                }
            }
        }
    }
}

impl PendingLogin {
    /// True when the login is done and the stream is free.
    fn poll(&mut self, agent: &Agent) -> Result<bool, String> {
        loop {
            let step = self.run.poll().map_err(|error| {
                agent.config.stats.count(error.event(&self.run));
                chain(&error)
            });
            match step? {
                LoginStep::Done(_) => return Ok(true),
                LoginStep::Pending => return Ok(false),
                LoginStep::Asked => {
                    let Some(answer) = self.work(agent) else { return Ok(false) };
                    if let MeshReply::No(why) = &answer {
                        agent.config.log.info(&format!("mesh: refused {}: {why}", self.peer));
                        self.state = State::Answered;
                    }
                    self.run.login.answer(&answer.encode()).map_err(|e| chain(&e))?;
                }
            }
        }
    }

    /// The answer, once there is one.
    fn work(&mut self, agent: &Agent) -> Option<MeshReply> {
        match &mut self.state {
            State::Login => {
                let request = match Request::decode(self.run.login.peer_blob().unwrap_or_default()) {
                    Ok(request) => request,
                    Err(error) => return Some(MeshReply::No(error.to_string())),
                };
                match self.begin(request, agent) {
                    Ok(answer) => answer,
                    Err(why) => Some(MeshReply::No(why)),
                }
            }
            State::Reaching(approach, _, last) => match approach.poll() {
                Ok(None) => None,
                Ok(Some((stream, text))) => {
                    let beyond = (!*last).then(|| Hops::parse(&text));
                    let (hops, over) = match over(agent, [&self.run.stream, &stream], beyond) {
                        Ok(over) => (Hops::Rdma(over.mark), Some(Box::new(over))),
                        Err(why) => (Hops::Tcp(why), None),
                    };
                    if let State::Reaching(_, relay_slot, _) = std::mem::replace(&mut self.state, State::Answered) {
                        self.state = State::Joined(Box::new(stream), relay_slot, over);
                    }
                    Some(MeshReply::Yes(hops.text()))
                }
                Err(why) => Some(MeshReply::No(why)),
            },
            State::Measuring(result) => match result.try_recv() {
                Err(TryRecvError::Empty) => None,
                Err(TryRecvError::Disconnected) => Some(MeshReply::No("the measurement ended early".into())),
                Ok(Ok(mbps)) => {
                    self.state = State::Answered;
                    Some(MeshReply::Yes(mbps.to_string()))
                }
                Ok(Err(why)) => Some(MeshReply::No(why)),
            },
            State::Joined(..) | State::Sink(_) | State::Answered => None,
        }
    }

    fn begin(&mut self, request: Request, agent: &Agent) -> Result<Option<MeshReply>, String> {
        match request {
            Request::Sink => {
                self.state = State::Sink(WorkSlot::take(&agent.shared, Work::Measure)?);
                Ok(Some(MeshReply::Yes(String::new())))
            }
            Request::Relay(path) => {
                let (name, from) = out(agent, &path)?;
                let relay_slot = WorkSlot::take(&agent.shared, Work::Relay)?;
                let approach = Approach::start(&agent.means, &name, from, &path, LEAD_ON)?;
                self.state = State::Reaching(Box::new(approach), relay_slot, path.len() == 1);
                Ok(None)
            }
            Request::Measure(to) => {
                let (name, from) = out(agent, &[to])?;
                let measure_slot = WorkSlot::take(&agent.shared, Work::Measure)?;
                let (tell, told) = sync_channel(1);
                let means = agent.means.clone();
                let thread = thread("linkspan measure");
                let begun = thread.spawn(move || {
                    linkspan_net::block_signals();
                    let _ = tell.send(measure::cable(&means, &name, from, to));
                    drop(measure_slot);
                });
                agent.shared.keep(begun.map_err(|e| e.to_string())?);
                self.state = State::Measuring(told);
                Ok(None)
            }
        }
    }

    /// The login is over.
    fn end(self, agent: &Agent) {
        let stream = self.run.stream;
        let begun = match self.state {
            State::Joined(on, relay_slot, over) => {
                let (stats, log) = (agent.config.stats.clone(), agent.config.log.clone());
                log.info(&format!("mesh: relaying for {} to {}", self.peer, on.peer_addr()));
                thread("linkspan relay").spawn(move || {
                    linkspan_net::block_signals();
                    relay::run(stream, *on, over.map(|o| *o), &relay_slot, &stats, &log);
                })
            }
            State::Sink(measure_slot) => thread("linkspan sink").spawn(move || {
                linkspan_net::block_signals();
                measure::sink(stream);
                drop(measure_slot);
            }),
            _ => return,
        };
        match begun {
            Ok(thread) => agent.shared.keep(thread),
            Err(error) => agent.config.log.warn(&format!("mesh: the relay thread cannot be started: {error}")),
        }
    }
}

/// A thread with the stack that Rust gives it, 2 MiB of addresses. Not less: glibc takes out of a thread's stack what the program and
/// its libraries keep for each thread, and that can be a megabyte.
fn thread(name: &str) -> std::thread::Builder {
    std::thread::Builder::new().name(name.into())
}

/// What it takes to relay by RDMA between two streams, `beyond` being what the next mesh server says, or why that cannot be.
fn over(agent: &Agent, streams: [&Stream; 2], beyond: Option<Hops>) -> Result<Over, String> {
    let provider = agent.config.providers.iter().find(|provider| provider.relayer().is_some());
    let candidate = |stream: &Stream| {
        let site = Site { local: stream.local_addr(), relayed: Some("this host relays"), ..agent.config.site };
        let relayer = provider.and_then(|provider| provider.relayer()).ok_or_else(String::new);
        relayer.and_then(|relayer| relayer.hop(&site)).map_err(|why| match why.as_str() {
            "" => format!("{} has no RDMA device to use on {}", agent.name(), stream.interface()),
            why => format!("{}: {why}", agent.name()),
        })
    };
    let next = match beyond {
        None => None,
        Some(Hops::Rdma(mark)) => Some(mark),
        Some(Hops::Tcp(why)) if why.is_empty() => return Err(hops::EARLIER.into()),
        Some(Hops::Tcp(why)) => return Err(why),
    };
    let candidates = [candidate(streams[0])?, candidate(streams[1])?];
    let mark = RelayMark::random().map_err(|e| chain(&e))?;
    let provider = provider.cloned().ok_or_else(String::new)?;
    Ok(Over { provider, candidates, mark, next })
}

/// The port out of which a path leads, with its address. Only a cabled one will do, so nothing ever leaks to another network;
/// and a path on which this host comes again is a loop.
fn out(agent: &Agent, path: &[SocketAddr]) -> Result<(String, IpAddr), String> {
    let host = |text: String| format!("{text} (says {})", agent.shared.known().own.name);
    let ours = |ip: IpAddr| agent.ports.iter().any(|c| c.port.addr.is_some_and(|a| a.0 == ip));
    // An address may be there again on a far cable, but not as a mesh server, nor next.
    let again = |(n, hop): &(usize, &SocketAddr)| ours(hop.ip()) && (*n == 0 || hop.port() == agent.config.port);
    if let Some((_, again)) = path.iter().enumerate().find(again) {
        return Err(host(format!("LS1407 the route leads back to {}: it runs in a loop", again.ip())));
    }
    let Some(next) = path.first() else { return Err(host("a route without hops".into())) };
    let known = agent.shared.known();
    // A neighbour from which a beacon with this address came is behind that port; one without beacons behind the port
    // of its subnet.
    let told = known.database.heard(clock::now()).into_iter().find_map(|heard| {
        let node = known.database.others(clock::now()).find(|n| n.id == heard.node)?;
        let port = node.ports.get(usize::from(heard.theirs))?;
        port.addr.filter(|a| a.0 == next.ip()).map(|_| usize::from(heard.port))
    });
    drop(known);
    let meets = |c: &super::ports::Cabled| c.port.carrier && c.port.addr.is_some_and(|a| same_subnet(a, next.ip()));
    let port =
        told.and_then(|n| agent.ports.get(n)).filter(|c| meets(c)).or_else(|| agent.ports.iter().find(|c| meets(c)));
    match port.and_then(|c| Some((c.port.name.clone(), c.port.addr?.0))) {
        Some(found) => Ok(found),
        None => Err(host(format!("LS1408 no cable leads to {}", next.ip()))),
    }
}

#[cfg(test)]
mod tests;
