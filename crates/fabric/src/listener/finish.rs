//! A connection of which all streams are there, and its plan: what may not be is refused, and of the rest a channel is made.

use linkspan_proto::login::PublicKey;
use linkspan_proto::plan::{AGREED, Carrier};
use linkspan_setup::handshake::QPS_MAX;
use linkspan_transport::{BoxRail, Conn};

use super::{PendingConn, PendingStream};
use crate::channel::{Channel, Parts, ReconnectPolicy};
use crate::{Error, Fabric};

/// Why a path that the settings want is not taken.
fn chosen(carrier: Carrier) -> String {
    format!("the peer, which connects, has chosen {carrier:?}: give it the same LINKSPAN_PATH, or see its log")
}

/// The reason of a path over so many other hosts.
pub(super) fn relayed(hosts: u8) -> Option<String> {
    (hosts > 0).then(|| format!("relayed over {hosts} host(s), chosen by the peer"))
}

impl PendingConn {
    /// Refuses what may not be before the peer is told that the connection is up.
    pub(super) fn finish(
        mut self,
        fabric: &Fabric,
        device: &str,
        policy: impl FnOnce(bool) -> ReconnectPolicy,
        peer_key: Option<PublicKey>,
    ) -> Result<Channel, Error> {
        let (speaker, plan) = self.plan.take().ok_or(Error::Vanished { peer: self.peer })?;
        let bad = |why: String| Error::Plan { peer: self.peer, why };
        let take = |number: u16, streams: &mut Vec<PendingStream>| {
            let at = streams.iter().position(|s| s.number == number)?;
            let mut stream = streams.swap_remove(at);
            Some((stream.setup.take()?, stream))
        };
        let mut streams = std::mem::take(&mut self.streams);
        let relays = streams
            .iter()
            .filter(|s| plan.streams.contains(&s.number))
            .map(|s| s.setup.greeting.relays)
            .max()
            .unwrap_or(0);
        if relays > 0 {
            let what = format!(
                "LS1424 the peer is reached through {relays} other host(s), the nearest of which is at {}: no cable connects it to this one",
                self.peer
            );
            fabric.downgrade_seldom(what)?;
        }
        let missing = || bad("it names a stream that never came".into());
        let mut members = Vec::new();
        for number in &plan.streams {
            members.push(take(*number, &mut streams).ok_or_else(missing)?);
        }
        let lost: Vec<String> = members
            .iter()
            .filter_map(|(_, s)| s.setup.rails.as_ref().err().cloned())
            .filter(|w| !w.is_empty())
            .collect();
        if plan.carrier == Carrier::Tcp && !lost.is_empty() {
            let what = format!("TCP in place of {}: {}", fabric.instead(), lost.join("; "));
            fabric.downgrade_seldom(what)?;
        }
        // Said when the fabric was made. Processes of this host come by no interface.
        let far = members.iter().any(|(secured, _)| !secured.stream.is_local());
        if let (Carrier::Tcp, true, true, Some(what)) =
            (plan.carrier, far, fabric.config().strict, fabric.last_resort())
        {
            return Err(Error::Strict { what });
        }
        let lost_devmem = members.iter().map(|(_, s)| &s.no_devmem).find(|why| !why.is_empty()).cloned();
        if let (Carrier::Tcp, Some(why)) = (plan.carrier, &lost_devmem) {
            let what = format!("TCP in place of device-memory TCP: {why}");
            fabric.downgrade_seldom(what)?;
        }
        if plan.carrier != Carrier::Devmem && fabric.config().path.is("devmem") {
            let why = lost_devmem.unwrap_or_else(|| chosen(plan.carrier));
            return Err(Error::Forced { path: "devmem".into(), why });
        }
        for (path, carrier) in [("shm", Carrier::Shm), ("tcp", Carrier::Tcp)] {
            if fabric.config().path.is(path) && plan.carrier != carrier {
                return Err(Error::Forced { path: path.into(), why: chosen(plan.carrier) });
            }
        }
        let by_path = fabric.config().path.forced().is_some();
        let forced = fabric.forced().filter(|_| by_path || plan.carrier == Carrier::Tcp);
        if let Some(provider) = forced.filter(|_| plan.carrier != Carrier::Offered) {
            let why = lost.first().cloned().unwrap_or_else(|| chosen(plan.carrier));
            return Err(Error::Forced { path: provider.name().to_owned(), why });
        }
        if plan.keepalive.is_some_and(|number| streams.iter().all(|s| s.number != number)) {
            return Err(missing());
        }
        match plan.carrier {
            Carrier::Shm if self.rail.is_none() => {
                return Err(match self.offer.take() {
                    Some(Err(why)) => Error::Shm { why },
                    _ => bad("shared memory that was never offered".into()),
                });
            }
            Carrier::Offered => {
                let mut count = 0;
                for (_, stream) in &members {
                    let made = stream.setup.rails.as_ref();
                    let none = |why| bad(format!("rails beside it that did not come up: {why}"));
                    count += made.map_err(none)?.len();
                }
                if count > QPS_MAX {
                    return Err(bad(format!("{count} rails beside its streams")));
                }
                if !plan.acked && count > 1 {
                    return Err(bad("several rails without acknowledgements".into()));
                }
            }
            Carrier::Devmem => {
                if !plan.acked && members.len() > 2 {
                    return Err(bad("several rails without acknowledgements".into()));
                }
                if !members.iter().all(|(_, stream)| stream.devmem && stream.setup.greeting.devmem) {
                    return Err(bad("device-memory TCP on streams that have not agreed on it".into()));
                }
            }
            Carrier::Shm | Carrier::Tcp => {}
        }
        let taken = members.iter_mut().find(|(_, s)| s.number == speaker).map(|(secured, _)| secured);
        let left = streams.iter_mut().find(|s| s.number == speaker).and_then(|s| s.setup.up());
        if let Some(secured) = taken.or(left) {
            // A fresh socket takes these few bytes at once or not at all.
            if secured.send(&AGREED).is_err() || !secured.flush().is_ok_and(|all| all) {
                return Err(Error::Vanished { peer: self.peer });
            }
        }
        let mut keepalive = match plan.keepalive {
            Some(number) => Some(take(number, &mut streams).ok_or_else(missing)?.0.into_keepalive()),
            None => None,
        };
        let rails: Vec<BoxRail> = match plan.carrier {
            Carrier::Shm => {
                keepalive = members.pop().map(|(secured, _)| secured.into_keepalive());
                self.rail.take().into_iter().map(|rail| Box::new(rail) as BoxRail).collect()
            }
            Carrier::Offered => {
                let mut rails = Vec::new();
                let mut standby = None;
                for (secured, stream) in members {
                    rails.extend(stream.setup.rails.unwrap_or_default());
                    standby.get_or_insert(secured);
                }
                if let (true, Some(secured)) = (plan.acked, standby) {
                    let behind = rails.first().map_or("", |rail: &BoxRail| rail.info().transport);
                    rails.push(fabric.standby(secured, relayed(relays), behind)?);
                }
                rails
            }
            Carrier::Devmem => {
                let mut rails = Vec::new();
                let mut members = members.into_iter();
                while let (Some((control, _)), Some((data, _))) = (members.next(), members.next()) {
                    rails.push(crate::devmem::rail(fabric, control, data, "chosen by the peer", 0)?);
                }
                rails
            }
            Carrier::Tcp => {
                let why = match self.offer.take() {
                    Some(Err(why)) => format!("shared memory not possible: {why}"),
                    _ => relayed(relays).unwrap_or_else(|| "chosen by the peer".into()),
                };
                let rails = members.into_iter().map(|(secured, _)| fabric.tcp_rail(secured, &why, None));
                rails.collect::<Result<_, Error>>()?
            }
        };
        let comes_back = plan.carrier != Carrier::Devmem;
        let policy = if plan.acked && comes_back { policy(relays > 0) } else { ReconnectPolicy::Never };
        Ok(Channel::new(
            fabric,
            Parts {
                conn: Conn::new(rails.into_iter().map(|rail| fabric.staged(rail)), plan.acked),
                keepalive,
                policy,
                device: device.to_owned(),
                verb: "accepted",
                peer_key,
                left_out: Vec::new(),
            },
        ))
    }
}
