//! Lost paths coming back, standby paths activated and deactivated, and routes around what does not carry.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use linkspan_proto::handle::Addr;
use linkspan_setup::log::warn_seldom;
use linkspan_setup::stats::Counter;
use linkspan_topology::mesh::{MeshRoute, ROUTES_MAX};
use linkspan_transport::BoxRail;

use super::offload::device_queue;
use super::{Channel, ReconnectPolicy, TICK};
use crate::reconnect::{Dialled, Reconnector, Recovered, rail_id};
use crate::route::Path;
use crate::{Fabric, chain};

/// Time between two looks for a route around a path that does not carry.
const REROUTE: Duration = Duration::from_millis(500);

/// How long nothing has moved on a connection that is stuck.
const STUCK: Duration = Duration::from_secs(1);

/// The same where nothing is under way: a send that waits for its receive has nothing out that could be missed, and only
/// the mesh tells it that the cable is gone.
const STUCK_IDLE: Duration = Duration::from_secs(3);

/// Most routes that one connection remembers: twice as many as it has rails.
const MAX_ROUTES: usize = 2 * linkspan_transport::MAX_RAILS;

impl Channel {
    /// Holds a warning of a lost rail back until the next periodic check: rails of a peer that closes may end before its GOAWAY
    /// on another rail is read.
    pub(super) fn hold_line(&mut self, line: String, now: Instant) {
        if self.untold.is_empty() {
            self.untold_since = now;
        }
        self.untold.push(line);
    }

    /// Gives the warnings that were held back, or drops them where the peer has closed the connection.
    pub(super) fn tell_losses(&mut self, now: Instant) {
        if self.untold.is_empty() || now.duration_since(self.untold_since) < TICK {
            return;
        }
        let lost = std::mem::take(&mut self.lost_untold);
        let lines = std::mem::take(&mut self.untold);
        if self.peer_closed() {
            return;
        }
        self.rails_lost += lost;
        self.meter.add(Counter::RailsLost, lost);
        lines.iter().for_each(|line| self.fabric.log().warn(line));
    }

    /// Where no queue pair or cable is left, the rail on standby is activated; it is deactivated when there is one again.
    pub(super) fn switch_standby(&mut self, now: Instant) {
        let left = self.conn.rails().any(|(_, rail)| !rail.info().standby);
        let lost = self.fabric.title(self.transport);
        for (path, active) in self.conn.switch_standby(!left) {
            if active {
                self.hold_line(format!("downgrade: TCP carries on in place of {lost}: {path}"), now);
            } else {
                self.fabric.log().warn(&format!("{lost} is in use again, TCP is on standby: {path}"));
            }
        }
    }

    /// In a mesh: where no path carries any more, others may lead around.
    pub(super) fn reroute(&mut self, now: Instant) {
        if !self.fabric.config().meshes() || now.duration_since(self.looked) < REROUTE || self.conn.lost().is_some() {
            return;
        }
        self.looked = now;
        self.know_peer();
        let ReconnectPolicy::Dials { handle, reconnectors, .. } = &mut self.policy else { return };
        let Ok(Some(mesh)) = self.fabric.mesh() else { return };
        let addrs: Vec<SocketAddr> = handle.addrs().iter().map(Addr::socket).collect();
        let relayed = reconnectors.iter().any(|r| r.reach().relays() > 0);
        let cabled = relayed || matches!(mesh.way(handle.host, addrs.clone(), false), MeshRoute::Direct(_));
        // That the mesh no longer reports the peer may be a busy processor; that nothing moves either is a cut cable.
        let stuck = stuck(self.conn.moving(), self.last_active, self.last_moved, now);
        let carries = self.conn.carries();
        if carries && (cabled || !stuck) {
            if relayed {
                add_routes(&self.fabric, reconnectors, mesh.way(handle.host, addrs, false), self.rdma);
            }
            return;
        }
        let MeshRoute::Over(routes) = mesh.reroute(handle.host, &addrs, carries) else { return };
        for route in routes {
            let over = route.over.join(", ");
            let reach = Path::Over(route);
            if reconnectors.iter().any(|r| r.reach().is_same(&reach)) || !transport_for_one(&self.fabric, reconnectors)
            {
                continue;
            }
            let what = format!("LS1423 no data passes on the path to the peer any more; relaying over {over}");
            if self.fabric.config().strict {
                let line = format!("LINKSPAN_STRICT=1 forbids this downgrade: {what}");
                warn_seldom(self.fabric.log(), &format!("reroute {} {over}", handle.host), &line);
                return;
            }
            self.fabric.log().warn(&format!("downgrade: {what}"));
            reconnectors.push(Reconnector::now(reach).wanting(self.rdma));
        }
    }

    pub(super) fn take_back(&mut self, now: Instant) {
        let mut back: Vec<Recovered> = Vec::new();
        match &mut self.policy {
            ReconnectPolicy::Never => {}
            ReconnectPolicy::Accepts { acceptor, conn, relayed } => {
                let came = acceptor.lock().unwrap_or_else(|e| e.into_inner()).returned(**conn);
                back.extend(came.filter(|rail| may_join(&self.fabric, rail, relayed)));
            }
            // It has closed the connection: a stream for it would be taken and never read.
            ReconnectPolicy::Dials { .. } if self.conn.peer_sent_goaway() => {}
            ReconnectPolicy::Dials { handle, conn, next, reconnectors } => {
                let to = Dialled { handle, conn: *conn, peer_key: self.peer_key.as_ref() };
                back.extend(reconnectors.iter_mut().filter_map(|r| r.poll(&self.fabric, to, next, now)));
            }
        }
        let some = !back.is_empty();
        for Recovered { number, secured, rails, relayed } in back {
            if !rails.is_empty() {
                // The stream has done its part.
                drop(secured);
                for (n, rail) in rails.into_iter().enumerate() {
                    self.add(rail, rail_id(number, n), now);
                }
                continue;
            }
            let made = if self.standbys {
                self.fabric.standby(secured, relayed, self.transport)
            } else {
                self.fabric.tcp_rail(secured, relayed.as_deref().unwrap_or("came back"), None)
            };
            match made {
                Ok(rail) => self.add(rail, u32::from(number), now),
                Err(error) => self.fabric.log().warn(&chain(&error)),
            }
        }
        if some {
            self.switch_standby(now);
        }
    }

    pub(super) fn add(&mut self, rail: BoxRail, id: u32, now: Instant) {
        let info = rail.info().clone();
        let (transport, path) = (info.transport, &info.path);
        let mut rail = self.fabric.staged(rail);
        let attached = self.gpu.as_ref().map_or(Ok(()), |gpu| rail.attach(gpu));
        if let Err(error) = &attached {
            self.fabric.log().warn(&chain(error));
        }
        if let Some(queue) = &self.queue {
            rail.offload(&device_queue(queue));
        }
        // Before anything is posted there.
        if let Err(why) = self.memory.take_in(&*rail) {
            let what = format!("downgrade: device memory is staged for {transport} {path}: {why}");
            self.fabric.log().warn(&what);
        }
        if attached.is_err() || self.conn.add_rail(rail, id).is_err() {
            if let ReconnectPolicy::Dials { reconnectors, .. } = &mut self.policy {
                reconnectors.iter_mut().for_each(|r| r.lost(path, now));
            }
            return;
        }
        self.renewed();
        if self.missed.is_back(&info) {
            self.meter.add(Counter::RailsBack, 1);
            // The loss was a warning; so is its end, or a log of warnings would show losses alone.
            self.fabric.log().warn(&format!("rail back: {transport} {path}"));
        } else {
            let now = self.conn.rails().count();
            self.fabric.log().info(&format!("rail added: {transport} {path}: reachable now; {now} rails in all"));
        }
    }
}

/// Whether a rail that the peer adds is taken. Over other hosts it is a downgrade of a connection that was not `relayed` before.
fn may_join(fabric: &Fabric, rail: &Recovered, relayed: &mut bool) -> bool {
    let Some(over) = rail.relayed.as_ref().filter(|_| !*relayed) else { return true };
    match fabric.downgrade(format!("a rail is {over}: {}", rail.secured.stream.path())) {
        Ok(()) => *relayed = true,
        // The peer tries again.
        Err(error) => {
            warn_seldom(fabric.log(), "relayed rail", &chain(&error));
        }
    }
    *relayed
}

/// Whether nothing has moved for too long, with so many operations under way.
pub(super) fn stuck(moving: usize, active: Instant, moved: Instant, now: Instant) -> bool {
    moving > 0 && now.duration_since(active) > STUCK || now.duration_since(moved) > STUCK_IDLE
}

/// A connection that is relayed takes what the mesh has learnt since: another way round, or a cable of its own.
fn add_routes(fabric: &Fabric, reconnectors: &mut Vec<Reconnector>, way: MeshRoute, rdma: Option<&'static str>) {
    let (reaches, over): (Vec<Path>, bool) = match way {
        MeshRoute::Direct(links) => (links.iter().map(Path::link).collect(), false),
        MeshRoute::Over(routes) => (routes.into_iter().map(Path::Over).collect(), true),
        MeshRoute::None(_) => return,
    };
    for reach in reaches {
        let ways = reconnectors.iter().filter(|r| r.is_up() && r.reach().relays() > 0).count();
        let known = reconnectors.iter().any(|r| r.reach().is_same(&reach));
        if known || over && ways >= ROUTES_MAX || !transport_for_one(fabric, reconnectors) {
            continue;
        }
        let what = match &reach {
            Path::Over(route) => format!("another route, over {}", route.over.join(", ")),
            Path::Plain { to, .. } => format!("a cable to {}", to.ip()),
        };
        fabric.log().info(&format!("the mesh has found {what}"));
        reconnectors.push(Reconnector::now(reach).wanting(rdma));
    }
}

/// Whether one more route can be remembered; one over relays that carries nothing is dropped.
fn transport_for_one(fabric: &Fabric, reconnectors: &mut Vec<Reconnector>) -> bool {
    if reconnectors.len() >= MAX_ROUTES
        && let Some(idle) = reconnectors.iter().position(|r| !r.is_up() && !r.is_busy() && r.reach().relays() > 0)
    {
        let way = reconnectors.remove(idle).reach().way().unwrap_or_default();
        fabric.log().info(&format!("mesh: {way} is down and is given up: a newer route replaces it"));
    }
    reconnectors.len() < MAX_ROUTES
}
