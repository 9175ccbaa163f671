//! The plan sent, the answer awaited, and the connection made of what is up.

use linkspan_mesh::hops;
use linkspan_proto::plan::{AGREED, AGREED_LEN, Carrier, Plan};
use linkspan_setup::secured::{MessageError, Secured};
use linkspan_transport::{BoxRail, Conn, MAX_RAILS};

use super::{Connecting, KEEPALIVE, Try};
use crate::Error;
use crate::channel::{Channel, Parts, ReconnectPolicy};
use crate::listener::FIRST_RETURN;
use crate::reconnect::Reconnector;
use crate::route::Path;

impl Connecting {
    /// Sends the plan, waits for the answer, makes the connection.
    pub(super) fn conclude(&mut self) -> Result<Option<Channel>, Error> {
        let Some((plan, at)) = self.proposed.take() else {
            return Ok(None);
        };
        let speaker = &mut self.tries[at];
        let peer = speaker.reach.to();
        let Some(secured) = speaker.setup.up() else { return Err(Error::Vanished { peer }) };
        match secured.flush().map_err(MessageError::from).and_then(|_| secured.read::<AGREED_LEN>()) {
            Ok(Some(AGREED)) => self.finish(plan).map(Some),
            Ok(None) => {
                self.proposed = Some((plan, at));
                Ok(None)
            }
            Err(MessageError::Io(_)) => Err(Error::Vanished { peer }),
            Ok(Some(_)) => {
                Err(Error::Answer { peer, why: "it is neither an acceptance nor the end of the stream".into() })
            }
            Err(error) => Err(Error::Answer { peer, why: error.to_string() }),
        }
    }

    fn take(&mut self, number: u16) -> Option<(Secured, &Try)> {
        let attempt = self.tries.iter_mut().find(|t| t.number == number)?;
        Some((attempt.setup.take()?, attempt))
    }

    fn finish(&mut self, plan: Plan) -> Result<Channel, Error> {
        let fabric = self.fabric.clone();
        let mut keepalive = plan.keepalive.and_then(|n| self.take(n)).map(|(secured, _)| secured.into_keepalive());
        let mut rails: Vec<BoxRail> = Vec::new();
        let mut cabled = false;
        let mut reconnectors = Vec::new();
        match self.shm.take() {
            Some(rail) => {
                keepalive = self.take(plan.streams[0]).map(|(secured, _)| secured.into_keepalive());
                rails.push(Box::new(rail));
            }
            None if plan.carrier == Carrier::Offered => {
                for &number in &plan.streams {
                    let Some(attempt) = self.tries.iter_mut().find(|t| t.number == number) else { continue };
                    let made = std::mem::replace(&mut attempt.setup.rails, Ok(Vec::new())).unwrap_or_default();
                    let (cables, cards): (Vec<_>, Vec<_>) = made.iter().partition(|rail| rail.info().plug.is_some());
                    if !cards.is_empty() {
                        reconnectors.push(Reconnector::queue_pairs(attempt.reach.clone(), &made));
                    }
                    cabled |= !cables.is_empty();
                    // Each for itself: one that is plugged in again is not kept waiting by another.
                    reconnectors.extend(cables.into_iter().map(|rail| Reconnector::cable(attempt.reach.clone(), rail)));
                    rails.extend(made);
                }
                if let (true, Some((secured, attempt))) = (plan.acked, self.take(plan.streams[0])) {
                    reconnectors.push(Reconnector::new(attempt.reach.clone(), secured.stream.path()));
                    let behind = rails.first().map_or("", |rail| rail.info().transport);
                    rails.push(fabric.standby(secured, attempt.reach.relayed(), behind)?);
                }
            }
            None if plan.carrier == Carrier::Devmem => {
                for pair in plan.streams.chunks_exact(2) {
                    let Some((control, attempt)) = self.take(pair[0]) else { continue };
                    let (why, speed) = (attempt.why.clone(), attempt.speed);
                    let Some((data, _)) = self.take(pair[1]) else { continue };
                    rails.push(crate::devmem::rail(&fabric, control, data, &why, speed)?);
                }
            }
            None => {
                for &number in &plan.streams {
                    let Some((secured, attempt)) = self.take(number) else {
                        continue;
                    };
                    let (reach, why, speed) = (attempt.reach.clone(), attempt.why.clone(), attempt.speed);
                    reconnectors.push(Reconnector::new(reach, secured.stream.path()));
                    rails.push(fabric.tcp_rail(secured, &why, Some(speed))?);
                }
            }
        }
        let mut left_out: Vec<String> = self.tries.iter().filter_map(Try::failure).collect();
        let policy = if plan.acked && !reconnectors.is_empty() {
            let over = self.tries.iter().any(|t| plan.streams.contains(&t.number) && t.reach.relays() > 0);
            let offered = plan.carrier == Carrier::Offered;
            let wants = rails.first().map(|rail| rail.info().transport).filter(|_| offered);
            let taken = |t: &Try| t.number == KEEPALIVE || t.beside.is_some() || plan.streams.contains(&t.number);
            // Cables need one stream of all.
            let wanted =
                |t: &&Try| !taken(t) && !cabled && (t.first || !offered) && !t.reach.is_guess() && !self.is_needless(t);
            let late = self.tries.iter().filter(wanted).filter(|t| over || t.reach.relays() == 0);
            let late = late.filter(|t| t.reach.from().is_some());
            reconnectors.extend(late.map(|t| Reconnector::later(t.reach.clone()).wanting(wants)));
            if !cabled && reconnectors.iter().all(|r| r.from().is_some()) {
                left_out.extend(self.later.iter().map(|(.., name)| format!("{name} (no link, added when it is up)")));
                let mut later = self.later.clone();
                if offered {
                    later.dedup();
                }
                reconnectors.extend(later.into_iter().map(|(from, to, name)| {
                    let device = fabric.config().meshes().then_some(name);
                    Reconnector::later(Path::Plain { from: Some(from), to, device }).wanting(wants)
                }));
            }
            reconnectors.truncate(MAX_RAILS);
            ReconnectPolicy::Dials { handle: self.handle.clone(), conn: self.conn_id, next: FIRST_RETURN, reconnectors }
        } else {
            ReconnectPolicy::Never
        };
        Ok(Channel::new(
            &fabric,
            Parts {
                conn: Conn::new(rails.into_iter().map(|rail| fabric.staged(rail)), plan.acked),
                keepalive,
                policy,
                device: self.device.clone(),
                verb: "connected",
                peer_key: self.peer_key,
                left_out,
            },
        ))
    }

    /// What to say of a connection that other hosts relay, with queue pairs or without.
    pub(super) fn relays(&self, verbs: Option<&Plan>) -> Option<String> {
        let up = |t: &&Try| t.reach.relays() > 0 && t.setup.is_up();
        let taken = |t: &&Try| verbs.is_none_or(|plan| plan.streams.contains(&t.number));
        let kind = if verbs.is_some() { "rdma" } else { "tcp" };
        let way = |t: &Try| match &t.reach {
            Path::Over(route) => format!("{} ({})", t.why, hops::shown(kind, &route.over)),
            Path::Plain { .. } => t.why.clone(),
        };
        let ways: Vec<String> = self.tries.iter().filter(up).filter(taken).map(way).collect();
        let to = self.handle.addrs().first()?.ip;
        (!ways.is_empty()).then(|| format!("LS1409 {} to {to}: no cable of this host reaches it", ways.join(" and ")))
    }

    /// What was tried so far, and what came of it.
    pub fn tried(&self) -> String {
        // Streams of one path, and paths that end in the same way, are named together.
        let mut groups: Vec<(&str, Vec<String>)> = Vec::new();
        for attempt in &self.tries {
            let (name, how) = (attempt.name(), attempt.standing());
            match groups.iter_mut().find(|(other, _)| *other == how) {
                Some((_, names)) if names.contains(&name) => {}
                Some((_, names)) => names.push(name),
                None => groups.push((how, vec![name])),
            }
        }
        let mut each: Vec<String> = groups.iter().map(|(how, names)| format!("{}: {how}", names.join(", "))).collect();
        if !self.failed_before.is_empty() && self.tries.iter().all(Try::is_open) {
            each.push(format!("before that {}", self.failed_before));
        }
        each.extend(self.asked.iter().filter(|(_, why)| !why.is_empty()).map(|(_, why)| format!("the mesh: {why}")));
        if each.is_empty() { "nothing: the handle has no address this host can use".into() } else { each.join("; ") }
    }
}
