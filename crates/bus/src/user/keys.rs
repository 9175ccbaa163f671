//! `org.linkspan.User1.Keys`.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::UNIX_EPOCH;

use linkspan_fabric::keys::{Keyring, Peer, name_fault};
use linkspan_service::pairing::Names;
use linkspan_user::task::Kind;
use linkspan_user::{Error, keys, work};
use serde_json::json;
use tokio::task::spawn_blocking;
use zbus::message::Header;
use zbus::object_server::{InterfaceRef, ObjectServer, SignalEmitter};
use zbus::zvariant::OwnedObjectPath;
use zbus::{Connection, interface};

use super::UserError;
use super::call::{Calls, texts};
use crate::{Dict, to_dict};

/// The interface, with the peers that were last told of.
pub(crate) struct Keys {
    calls: Calls,
    told: Mutex<Option<Arc<[Peer]>>>,
}

impl Keys {
    pub(crate) fn new(calls: Calls) -> Keys {
        Keys { calls, told: Mutex::new(trusted()) }
    }
}

/// The trusted peers; `None`: their file cannot be read.
fn trusted() -> Option<Arc<[Peer]>> {
    Keyring::find().ok().map(|ring| ring.map_or_else(|| Arc::new([]) as Arc<[Peer]>, |ring| ring.peers()))
}

fn ring() -> Result<Keyring, Error> {
    Ok(Keyring::open_or_make()?.0)
}

/// What is empty was not said.
fn said(text: &str) -> Option<&str> {
    Some(text).filter(|text| !text.is_empty())
}

fn names(own: &str, peer: &str) -> Result<Names, Error> {
    if let Some((name, why)) = said(peer).and_then(|name| Some((name, name_fault(name)?))) {
        return Err(Error::Usage(format!("the name {name:?} {why}")));
    }
    Ok(Names { own: keys::own_name(said(own))?, peer: said(peer).map(str::to_owned) })
}

fn dict(peer: &Peer) -> Dict {
    to_dict(&json!({ "name": peer.name, "fingerprint": peer.key.fingerprint(), "hosts": peer.hosts }))
}

/// This user's key, and whom it trusts.
#[interface(name = "org.linkspan.User1.Keys")]
impl Keys {
    /// The line by which another user adds this one, as `lspan key show` prints it, and the fingerprint of the key, which is made where
    /// there is none. `name`: what this side calls itself; empty: as its host.
    #[zbus(out_args("line", "fingerprint"))]
    async fn show(
        &self,
        #[zbus(connection)] connection: &Connection,
        #[zbus(header)] header: Header<'_>,
        name: String,
    ) -> Result<(String, String), UserError> {
        let show = move |_: &_| {
            let ring = ring()?;
            Ok((keys::own(&ring, said(&name))?.line(), ring.public().fingerprint()))
        };
        self.calls.blocking(connection, &header, show).await
    }

    /// The trusted peers. Keys: name, fingerprint (s), hosts (av of s).
    #[zbus(out_args("peers"))]
    async fn list(
        &self,
        #[zbus(connection)] connection: &Connection,
        #[zbus(header)] header: Header<'_>,
    ) -> Result<Vec<Dict>, UserError> {
        let list = |_: &_| Ok(Keyring::find()?.map(|ring| ring.peers().iter().map(dict).collect()).unwrap_or_default());
        self.calls.blocking(connection, &header, list).await
    }

    /// Trusts the peer of a line of Show. `name`: what it is called here; empty: as the line says. Answers its fingerprint.
    #[zbus(out_args("fingerprint"))]
    async fn add(
        &self,
        #[zbus(connection)] connection: &Connection,
        #[zbus(header)] header: Header<'_>,
        line: String,
        name: String,
        hosts: Vec<String>,
    ) -> Result<String, UserError> {
        texts("hosts", &hosts)?;
        let add = move |_: &_| Ok(keys::add(&ring()?, &line, said(&name), &hosts)?.key.fingerprint());
        let added = self.calls.blocking(connection, &header, add).await;
        (self.calls.user.changed)();
        added
    }

    /// Trusts a peer no more, named as it is called here or by its fingerprint, which is answered.
    #[zbus(out_args("fingerprint"))]
    async fn forget(
        &self,
        #[zbus(connection)] connection: &Connection,
        #[zbus(header)] header: Header<'_>,
        name: String,
    ) -> Result<String, UserError> {
        texts("name", [&name])?;
        let forget = move |_: &_| Ok(ring()?.forget(&name)?.key.fingerprint());
        let forgotten = self.calls.blocking(connection, &header, forget).await;
        (self.calls.user.changed)();
        forgotten
    }

    /// The list is another one, or can or cannot be read now, whoever has changed it: List has it, or says why not.
    #[zbus(signal)]
    async fn peers_changed(emitter: &SignalEmitter<'_>) -> zbus::Result<()>;

    /// Makes a join line, a secret until it was used, and waits ten minutes at most for somebody to join with it. `own_name`, `peer_name`:
    /// what we call ourselves, and what the peer is called here; empty: as the hosts are.
    #[zbus(out_args("line", "until_unix_s", "task"))]
    async fn offer(
        &self,
        #[zbus(connection)] connection: &Connection,
        #[zbus(header)] header: Header<'_>,
        #[zbus(object_server)] objects: &ObjectServer,
        own_name: String,
        peer_name: String,
    ) -> Result<(String, u64, OwnedObjectPath), UserError> {
        let names = names(&own_name, &peer_name)?;
        let offer = self.calls.blocking(connection, &header, |user| work::offer(ring()?, &user.say)).await?;
        let (line, until) = (offer.line().text(), offer.line().until());
        let until = until.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let run = move |task: &_| work::offered(task, offer, &names);
        let task = self.calls.begin(objects, (Kind::Pair, "", Vec::new()), run).await?;
        Ok((line, until, task))
    }

    /// Joins with a line that another user's Offer or `lspan pair` has made. Names as for Offer.
    #[zbus(out_args("task"))]
    async fn join(
        &self,
        #[zbus(connection)] connection: &Connection,
        #[zbus(header)] header: Header<'_>,
        #[zbus(object_server)] objects: &ObjectServer,
        line: String,
        own_name: String,
        peer_name: String,
    ) -> Result<OwnedObjectPath, UserError> {
        self.calls.own(connection, &header).await?;
        texts("line", [&line])?;
        let (line, names) = (work::join_line(&line)?, names(&own_name, &peer_name)?);
        let run = move |task: &_| work::joined(task, &line, &names);
        self.calls.begin(objects, (Kind::Pair, &peer_name, Vec::new()), run).await
    }
}

/// Tells those who listen where the peers are others than they were, or can or cannot be read now.
pub(crate) async fn change(object: &InterfaceRef<Keys>) -> zbus::Result<()> {
    let Ok(now) = spawn_blocking(trusted).await else { return Ok(()) };
    let keys = object.get().await;
    let old = std::mem::replace(&mut *keys.told.lock().unwrap_or_else(PoisonError::into_inner), now.clone());
    if old != now {
        Keys::peers_changed(object.signal_emitter()).await?;
    }
    Ok(())
}
