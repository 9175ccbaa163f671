//! How a transport's path comes about: dialled, or taken from the peer.

use std::sync::Arc;
use std::time::{Duration, Instant};

use linkspan_fabric::{Channel, PeerState, chain};

use super::{
    Dial, Making, PRECEDENCE, Phase, RECONNECT, REMAKE, TIME_UP, Target, TransportState, patience, refuse, say,
};
use crate::acceptor::PendingHello;
use crate::hello::{Hello, Refusal};
use crate::ops::{Fail, Kind, OpId};
use crate::{Error, Url, UrlKind, deadline};

impl TransportState {
    fn hello(&self, epoch: u32) -> Hello {
        let (endpoint, name) = self.member.as_ref().map_or_else(Default::default, |member| member.own());
        let to = self.target.as_ref().map_or(self.peer, |t| t.to);
        let (past, acked) = (self.past, self.acked);
        Hello { from: self.id, to, epoch, past, acked, refusal: Refusal::None, endpoint, name }
    }

    /// Begins to connect, unless the peer has connected.
    pub(crate) fn connect(&mut self, target: Target, until: Instant) -> Result<(), Error> {
        if self.peer != 0 && target.to != self.peer {
            return Err(Error::HasPeer);
        }
        let now = Instant::now();
        match &self.phase {
            Phase::Broken(why) => return Err(Error::Broken(why.clone())),
            Phase::Making(_) => return Err(Error::HasPeer),
            Phase::Up(_) => {}
            Phase::Idle => {
                let making = Making { dial: Dial::At(now), since: now, until, revoke_by: None, peer: PeerState::Open };
                self.phase = Phase::Making(making);
                self.why = Arc::from(TIME_UP);
            }
        }
        self.peer = target.to;
        self.target = Some(target);
        Ok(())
    }

    /// As [`TransportState::connect`], with an operation that reports it.
    pub(crate) fn begin_connect(&mut self, url: &Url, timeout: Duration) -> Result<OpId, Error> {
        if url.kind() == UrlKind::Transport && url.id == self.id {
            return Err(Error::Connect(Arc::from("this is the transport's own URL; give it to the peer")));
        }
        let until = deadline(timeout);
        self.connect(Target { handle: url.handle.clone(), to: url.id, key: url.key }, until)?;
        let id = self.ops.start(Kind::Connect, None, Some(until));
        match self.phase {
            Phase::Up(_) => self.ops.connected(),
            _ => self.dials_for = Some(id),
        }
        Ok(id)
    }

    /// Begins to wait for the peer.
    pub(crate) fn begin_wait(&mut self, timeout: Duration) -> Result<OpId, Error> {
        if let Phase::Broken(why) = &self.phase {
            return Err(Error::Broken(why.clone()));
        }
        let id = self.ops.start(Kind::Connect, None, Some(deadline(timeout)));
        if let Phase::Up(_) = self.phase {
            self.ops.connected();
        }
        Ok(id)
    }

    /// Moves the making of a path on. True: something has moved.
    pub(super) fn make(&mut self) -> bool {
        let mut active = self.poll_acceptor();
        let now = Instant::now();
        let Phase::Making(making) = &mut self.phase else { return true };
        making.peer = match std::mem::replace(&mut making.peer, PeerState::Open) {
            PeerState::Ask(liveness) => {
                let peer = liveness.ask();
                if !matches!(peer, PeerState::Ask(_)) {
                    let limit = patience(self.target.is_some(), self.ctx.fabric().config().revoke, &peer);
                    making.until = (making.since + REMAKE).max(now + limit);
                }
                peer
            }
            known => known,
        };
        if matches!(making.peer, PeerState::Gone) && self.target.is_none() {
            return self.ends_with_peer();
        }
        if making.revoke_by.is_some_and(|by| now >= by) {
            making.revoke_by = None;
            self.ops.end(Fail::Unrevoked, |op| op.expired);
            return true;
        }
        if now >= making.until {
            return self.dials_on(now) || self.give_up(&self.overdue());
        }
        let dial = std::mem::replace(&mut making.dial, Dial::Off);
        let next = match (dial, &self.target) {
            (Dial::At(when), Some(target)) if now >= when => {
                match self.ctx.fabric().connect(self.device, target.handle.expose()) {
                    Ok(connecting) => {
                        active = true;
                        // A dial that nobody answers tells something of a peer that we had.
                        let connecting = if self.epoch > 0 { connecting.once() } else { connecting };
                        Dial::Connecting(Box::new(connecting))
                    }
                    Err(error) => return self.undialled(chain(&error), false, now),
                }
            }
            (Dial::Connecting(mut connecting), _) => match connecting.poll() {
                Ok(None) => Dial::Connecting(connecting),
                Ok(Some(mut ch)) => {
                    active = true;
                    if let Some(why) = self.stranger(&ch) {
                        ch.cut(&why);
                        return self.give_up(&why);
                    }
                    if let Err(why) = self.outfit(&mut ch) {
                        return self.give_up(&why);
                    }
                    self.dialled = self.dialled.max(self.epoch).saturating_add(1);
                    if !say(&mut ch, self.hello(self.dialled)) {
                        return self.undialled("the new path was lost at once".to_owned(), true, now);
                    }
                    Dial::Join(Box::new(PendingHello::new(ch)))
                }
                Err(error) => {
                    use linkspan_fabric::Error as E;
                    let again = matches!(error, E::Vanished { .. } | E::Timeout { .. });
                    return self.undialled(chain(&error), again, now);
                }
            },
            (Dial::Join(mut pending), _) => match pending.poll() {
                Ok(None) => Dial::Join(pending),
                Ok(Some(hello)) if hello.refusal != Refusal::None => {
                    let again = hello.refusal != Refusal::Taken;
                    return self.undialled(refused(hello.refusal).to_owned(), again, now);
                }
                Ok(Some(hello)) => {
                    if let Some(why) = self.member.as_ref().and_then(|member| member.is_another(&hello)) {
                        return self.give_up(&why);
                    }
                    if !self.is_peer(&hello, &pending.channel) || hello.to != self.id {
                        return self.give_up("another process answered at that URL");
                    }
                    // A path that has the number 0 would, once lost, count as one that never was.
                    if hello.epoch < self.dialled {
                        let (got, dialled) = (hello.epoch, self.dialled);
                        return self.give_up(&format!("path {dialled} was answered with number {got} at that URL"));
                    }
                    self.up(pending.channel, &hello);
                    return true;
                }
                Err(why) => {
                    pending.leave(&why);
                    return self.undialled(why, true, now);
                }
            },
            (dial, _) => dial,
        };
        if let Phase::Making(making) = &mut self.phase {
            making.dial = next;
        }
        active
    }

    /// A dial has come to nothing. A path that was up is dialled again until its deadline, whatever the error: a cable that is out, or
    /// a listener that is full, looks like one that is gone. A first one only where that may help: without a listener, or
    /// where the settings forbid every path, it does not.
    fn undialled(&mut self, why: String, again: bool, now: Instant) -> bool {
        match &mut self.phase {
            Phase::Making(Making { peer: PeerState::Gone, .. }) => self.ends_with_peer(),
            Phase::Making(making) if again || self.epoch > 0 => {
                self.ctx.fabric().count(linkspan_fabric::stats::Event::PathRetries);
                making.dial = Dial::At(now + RECONNECT);
                self.why = Arc::from(why);
                false
            }
            _ => self.give_up(&why),
        }
    }

    /// Why there is no path at the deadline of the call that makes it.
    pub(super) fn overdue(&self) -> String {
        match &self.phase {
            Phase::Making(Making { dial: Dial::Connecting(connecting), .. }) => {
                let before = if &*self.why == TIME_UP { String::new() } else { format!("; before that {}", self.why) };
                format!("{TIME_UP}, tried {}{before}", connecting.tried())
            }
            _ => self.why.to_string(),
        }
    }

    /// The first path to a peer of an endpoint is dialled for all calls that wait for it: whether there is another one, which then is the one
    /// that it is dialled for.
    pub(super) fn dials_on(&mut self, now: Instant) -> bool {
        let (Phase::Making(making), Some(_), 0) = (&mut self.phase, &self.member, self.epoch) else { return false };
        let Some((id, until)) = self.ops.longest_connect().filter(|longest| longest.1 > now) else { return false };
        (making.until, self.dials_for) = (until, Some(id));
        true
    }

    /// No path comes about.
    pub(super) fn give_up(&mut self, why: &str) -> bool {
        if self.epoch > 0 {
            let why = format!("the path could not be made again: {why}");
            self.breaks(&why);
        } else if self.member.is_some() {
            self.breaks(why);
        } else {
            self.why = Arc::from(why);
            self.phase = Phase::Idle;
            self.peer = 0;
            self.target = None;
            // Those that wait for whoever comes go on.
            if let Some(id) = self.dials_for.take() {
                self.ops.finish(id, Err(Fail::Connect));
            }
        }
        true
    }

    /// Takes connections from the acceptor.
    pub(crate) fn poll_acceptor(&mut self) -> bool {
        let mut any = false;
        while let Some((ch, hello)) = self.acceptor.as_ref().and_then(|acceptor| acceptor.next()) {
            any = true;
            self.adopt(ch, &hello);
        }
        any
    }

    /// A path came in. Its peer is told by our hello that the old one is read no longer.
    pub(crate) fn adopt(&mut self, mut ch: Channel, hello: &Hello) {
        if let Some(why) = self.objection(hello, &ch) {
            self.ctx.fabric().log().info(&format!("an incoming connection was refused: {why}"));
            if hello.to == self.id && !self.is_peer(hello, &ch) {
                let (from, to, epoch, refusal) = (self.id, hello.from, hello.epoch, Refusal::Taken);
                return refuse(&mut ch, Hello { from, to, epoch, refusal, ..Hello::default() });
            }
            return ch.cut(why);
        }
        self.cut("the peer makes a new path");
        if let Some(why) = self.carries_too_much() {
            ch.cut(why);
            return self.breaks(why);
        }
        self.cut_join("the peer's path came first", Dial::Off);
        if let Phase::Making(making) = &mut self.phase {
            making.dial = Dial::Off;
        }
        if let Err(why) = self.outfit(&mut ch) {
            ch.cut(&why);
            self.breaks(&why);
            return;
        }
        let epoch = hello.epoch.max(self.epoch.saturating_add(1));
        let answer = Hello { to: hello.from, ..self.hello(epoch) };
        if !say(&mut ch, answer) {
            // It has gone again; it, or we, will dial once more.
            let now = Instant::now();
            return match &mut self.phase {
                _ if self.epoch > 0 => self.remake(now, None, PeerState::Open),
                Phase::Making(making) => making.dial = Dial::At(now),
                _ => {}
            };
        }
        self.up(ch, &Hello { epoch, ..*hello });
    }

    /// Whether a path is of the peer that we have, or the first one. The number of a transport is no secret among peers of a listener: from
    /// the first path on its key tells it from others.
    fn is_peer(&self, hello: &Hello, ch: &Channel) -> bool {
        let of_our_key = || self.epoch == 0 || ch.peer_key() == self.peer_key.as_ref();
        self.peer == 0 || hello.from == self.peer && of_our_key()
    }

    /// What is wrong with the key of whoever answers at the target: it is not that of the host which was named.
    fn stranger(&self, ch: &Channel) -> Option<String> {
        let (wanted, config) = (self.target.as_ref()?.key?, self.ctx.fabric().config());
        (ch.peer_key() != Some(&wanted)).then(|| {
            let proven = ch.peer_key().map_or_else(|| "no key".to_owned(), |key| format!("the key of {}", config.name_of(key)));
            format!(
                "{} was asked for, and {proven} was proven there: name the host that has the key, or pair with this one anew (`lspan pair`)",
                config.name_of(&wanted)
            )
        })
    }

    pub(super) fn objection(&self, hello: &Hello, ch: &Channel) -> Option<&'static str> {
        if hello.to != self.id {
            return Some("it wants another transport");
        }
        if !self.is_peer(hello, ch) {
            return Some("it is not our peer");
        }
        if self.stranger(ch).is_some() {
            return Some("it has not proven the key of the host that was asked for");
        }
        match &self.phase {
            Phase::Broken(_) => Some("this transport is broken"),
            Phase::Up(_) if hello.epoch <= self.epoch => Some("it is older than the path we have"),
            Phase::Making(Making { dial: Dial::Connecting(_) | Dial::Join(_), since, .. })
                if self.id < hello.from && since.elapsed() < PRECEDENCE =>
            {
                Some("we dial the peer ourselves at this moment")
            }
            _ => None,
        }
    }

    fn up(&mut self, ch: Channel, hello: &Hello) {
        let (seen, refused) = hello.seen(self.ended.0);
        self.epoch = hello.epoch;
        (self.peer, self.peer_endpoint, self.peer_key) = (hello.from, hello.endpoint, ch.peer_key().copied());
        if let Some(target) = &mut self.target {
            target.to = hello.from;
        }
        let line = ch.describe();
        self.phase = Phase::Up(Box::new(ch));
        if self.epoch > 1 {
            self.ctx.fabric().log().info(&format!("connected again, path {}: {line}", self.epoch));
        }
        if let Some(member) = &mut self.member {
            member.up();
            self.news = true;
        }
        self.ops.relink(seen, &refused);
        self.ops.keep_known(hello.known(self.ended.0, self.ended.1));
        self.ops.meet_all();
        self.ops.connected();
        self.settle();
        if let Phase::Up(ch) = &mut self.phase {
            ch.flush();
        }
    }
}

/// What a refusal says.
pub(crate) fn refused(refusal: Refusal) -> &'static str {
    match refusal {
        Refusal::None => "",
        Refusal::Name => "the endpoint there is connected with another process of this one's name",
        Refusal::Full => "the endpoint there has as many peers as it can",
        Refusal::Taken => "the transport there has another peer; a listener or an endpoint takes several",
    }
}
