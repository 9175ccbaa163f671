//! What one node has been told, and how long it is believed.

use std::time::Duration;

use linkspan_proto::mesh::{Beacon, HEARD_MAX, Heard, Node};

use super::Graph;

/// Most nodes that are remembered; a mesh of direct cables has up to 16.
pub const NODES_MAX: usize = 64;

/// A cable without beacons from the neighbour for so long is cut: three beacons and a half of one a second.
pub const LINK_TIME: Duration = Duration::from_millis(3500);

/// A node of which nothing new was received for so long is gone: eight beats of it, which come as evenly over many hops
/// as over one, only later.
pub const NODE_TIME: Duration = Duration::from_secs(8);

/// For so long a cable that is believed no more is remembered. Beacons are late where processors are busy, and then many cables
/// seem cut at once; a host without a route tries one that existed a moment ago. What is silent for longer is forgotten, its epoch too:
/// a host that comes back with a clock that was set back is taken for a new one.
const MEMORY: Duration = Duration::from_secs(60);

/// Least time between two answers to news.
const HURRY: Duration = Duration::from_millis(50);

#[derive(Debug)]
struct Known {
    node: Node,
    /// When its number last grew, and by whose beacon.
    fresh: Duration,
    told_by: u64,
    /// Neighbours it received from once and does not report now, with the time of the last report.
    once: Vec<(Heard, Duration)>,
}

impl Known {
    /// The node with what it told within [`MEMORY`].
    fn remembered(&self, now: Duration) -> Node {
        let mut node = self.node.clone();
        node.heard
            .extend(self.once.iter().filter(|(_, last)| now.saturating_sub(*last) < MEMORY).map(|(heard, _)| *heard));
        node
    }
}

#[derive(Debug)]
struct Adjacent {
    heard: Heard,
    /// Of the last datagram: an older one is a copy from the past.
    stamp: (u64, u64),
    last: Duration,
}

/// Everything that one node was told. Times are on any one clock.
#[derive(Debug, Default)]
pub struct Database {
    known: Vec<Known>,
    adjacent: Vec<Adjacent>,
    /// The newest epoch of this host that was heard of, and when a process of it said one as new.
    own: (u64, Duration),
    /// When a neighbour said last that this host relays, by whichever of its processes.
    relays: Option<Duration>,
    hurry: Option<Duration>,
    /// When something new was learnt last.
    news: Duration,
}

impl Database {
    /// Takes in a beacon that came to the port at place `port` of the node `own`. True when it told something new about
    /// who is there or how they are joined.
    pub fn take(&mut self, own: u64, port: u8, beacon: Beacon, now: Duration) -> bool {
        if beacon.sender == own {
            if beacon.epoch >= self.own.0 {
                self.own = (beacon.epoch, now);
            }
            return false;
        }
        self.known.retain(|k| now.saturating_sub(k.fresh) < MEMORY);
        self.adjacent.retain(|a| now.saturating_sub(a.last) < MEMORY);
        let mut news = self.hear(port, &beacon, now);
        if beacon.node.id != own {
            news |= self.learn(beacon.sender, beacon.node, now);
        } else {
            // Of the process before this one, when the clock was ahead.
            self.own.0 = self.own.0.max(beacon.node.epoch);
            if beacon.node.relays {
                self.relays = Some(now);
            }
        }
        if news {
            self.hurry = Some(now);
            self.news = now;
        }
        news
    }

    /// The newest epoch of this host that was heard of, of which neighbours take no older one any more, and when a process of it said
    /// one as new.
    pub fn own_epoch(&self) -> (u64, Duration) {
        self.own
    }

    fn hear(&mut self, port: u8, beacon: &Beacon, now: Duration) -> bool {
        let heard = Heard { port, node: beacon.sender, theirs: beacon.port };
        let stamp = (beacon.epoch, beacon.tick);
        // The same datagram comes over IPv4 and IPv6; anything older is a copy.
        let newest = self.adjacent.iter().filter(|a| a.heard.node == beacon.sender).map(|a| a.stamp).max();
        if newest.is_some_and(|newest| stamp.0 < newest.0) {
            return false;
        }
        // A mesh server that was opened anew may count its ports in another order.
        self.adjacent.retain(|a| a.heard.node != beacon.sender || a.stamp.0 == stamp.0);
        if let Some(known) = self.adjacent.iter_mut().find(|a| a.heard == heard) {
            if stamp > known.stamp {
                let was = now.saturating_sub(known.last) >= LINK_TIME;
                (known.stamp, known.last) = (stamp, now);
                return was;
            }
            return false;
        }
        if self.adjacent.len() >= HEARD_MAX {
            self.adjacent.retain(|a| now.saturating_sub(a.last) < LINK_TIME);
            if self.adjacent.len() >= HEARD_MAX {
                return false;
            }
        }
        self.adjacent.push(Adjacent { heard, stamp, last: now });
        true
    }

    fn learn(&mut self, told_by: u64, node: Node, now: Duration) -> bool {
        if let Some(known) = self.known.iter_mut().find(|k| k.node.id == node.id) {
            if (node.epoch, node.seq) <= (known.node.epoch, known.node.seq) {
                return false;
            }
            let stale = now.saturating_sub(known.fresh) >= NODE_TIME;
            let told = |n: &Node| (n.ports.clone(), n.heard.clone(), n.relays, n.server_port);
            let news = stale || told(&known.node) != told(&node);
            // After its ports have moved nothing of before holds.
            let same = (node.epoch, &node.ports) == (known.node.epoch, &known.node.ports);
            let mut once = std::mem::take(&mut known.once);
            once.retain(|(heard, last)| same && now.saturating_sub(*last) < MEMORY && !node.heard.contains(heard));
            let gone = known.node.heard.iter().filter(|heard| same && !node.heard.contains(heard));
            let was = known.fresh;
            once.extend(gone.map(|heard| (*heard, was)));
            once.truncate(HEARD_MAX);
            *known = Known { node, fresh: now, told_by, once };
            return news;
        }
        if self.known.len() >= NODES_MAX {
            // The one that was silent longest is dropped, if it is gone.
            let oldest = self.known.iter().enumerate().min_by_key(|(_, k)| k.fresh).map(|(n, k)| (n, k.fresh));
            match oldest.filter(|(_, fresh)| now.saturating_sub(*fresh) >= NODE_TIME) {
                Some((at, _)) => drop(self.known.swap_remove(at)),
                None => return false,
            }
        }
        self.known.push(Known { node, fresh: now, told_by, once: Vec::new() });
        true
    }

    /// The neighbours this node receives from now.
    pub fn heard(&self, now: Duration) -> Vec<Heard> {
        self.heard_within(LINK_TIME, now)
    }

    fn heard_within(&self, time: Duration, now: Duration) -> Vec<Heard> {
        let fresh = self.adjacent.iter().filter(|a| now.saturating_sub(a.last) < time);
        let mut heard: Vec<Heard> = fresh.map(|a| a.heard).collect();
        heard.sort_by_key(|h| (h.port, h.node, h.theirs));
        heard
    }

    fn relays(&self, time: Duration, now: Duration) -> bool {
        self.relays.is_some_and(|last| now.saturating_sub(last) < time)
    }

    /// What is known of other nodes now.
    pub fn others(&self, now: Duration) -> impl Iterator<Item = &Node> {
        self.known.iter().filter(move |k| now.saturating_sub(k.fresh) < NODE_TIME).map(|k| &k.node)
    }

    /// Whether this node is heard of by another one's beacons now, and by its own no more: no cable of ours to
    /// it carries, and another route does.
    pub fn heard_around(&self, node: u64, now: Duration) -> bool {
        let mut known = self.known.iter().filter(|k| k.node.id == node);
        known.any(|k| k.told_by != node && now.saturating_sub(k.fresh) < LINK_TIME)
    }

    /// The mesh with `own` in it; the neighbours of `own` are filled in here.
    pub fn graph(&self, mut own: Node, now: Duration) -> Graph {
        own.heard = self.heard(now);
        own.relays |= self.relays(NODE_TIME, now);
        let others = self.others(now).filter(|n| n.id != own.id).cloned();
        Graph::new(others.chain(std::iter::once(own.clone())).collect())
    }

    /// The mesh with `own` in it, and with cables and nodes that were there within the last 60 s.
    pub fn remembered(&self, mut own: Node, now: Duration) -> Graph {
        own.heard = self.heard_within(MEMORY, now);
        own.relays |= self.relays(MEMORY, now);
        let others = self.known.iter().filter(|k| now.saturating_sub(k.fresh) < MEMORY && k.node.id != own.id);
        Graph::new(others.map(|k| k.remembered(now)).chain(std::iter::once(own.clone())).collect())
    }

    /// Whether neighbours should be told at once what has just been learnt. True once per piece of news.
    pub fn hurries(&mut self, told: Duration, now: Duration) -> bool {
        let due = self.hurry.is_some() && now.saturating_sub(told) >= HURRY;
        if due {
            self.hurry = None;
        }
        due
    }

    /// When something new was learnt last; zero before the first time.
    pub fn last_news(&self) -> Duration {
        self.news
    }

    /// The places of our ports have changed: `place` gives the new place of each port, if it still exists. A neighbour that was
    /// heard on a port that stayed is known still: when a cable goes, the others are what leads around it.
    pub fn move_ports(&mut self, place: impl Fn(u8) -> Option<u8>) {
        self.adjacent.retain_mut(|a| {
            let now = place(a.heard.port);
            a.heard.port = now.unwrap_or(a.heard.port);
            now.is_some()
        });
    }
}

#[cfg(test)]
mod tests;
