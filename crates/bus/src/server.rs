//! The service on a bus.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use linkspan_service::admission::Host;
use linkspan_service::observe::Look;
use linkspan_service::system::System;
use tokio::sync::Notify;
use zbus::connection::Builder;
use zbus::fdo::{ObjectManager, RequestNameFlags, RequestNameReply};
use zbus::object_server::SignalEmitter;
use zbus::zvariant::OwnedObjectPath;
use zbus::{Connection, fdo};

use crate::cable::{self, CableObject};
use crate::manager::Manager;
use crate::peer::{self, PeerObject};
use crate::watches::{WATCHES_EACH, Watches};
use crate::{NAME, PATH, object_path};

/// The service on one connection.
#[derive(Debug)]
pub struct Server {
    connection: Connection,
    watches: Watches,
    cables: HashSet<OwnedObjectPath>,
    peers: HashSet<OwnedObjectPath>,
}

impl Server {
    /// Puts the objects on a connection, as they are at the moment, and then asks for the name, which is refused where another process has
    /// it. `changed` is notified when a client has changed something.
    ///
    /// # Errors
    /// The bus does not answer, or another process has the name ([`zbus::Error::NameTaken`]).
    pub async fn start(builder: Builder<'_>, system: &Arc<System>, changed: Arc<Notify>) -> zbus::Result<Server> {
        let watches = Watches::new(WATCHES_EACH);
        let manager = Manager::new(system.clone(), watches.clone(), Box::new(move || changed.notify_one()));
        let connection = builder.serve_at(PATH, ObjectManager)?.serve_at(PATH, manager)?.build().await?;
        let mut server = Server { connection, watches, cables: HashSet::new(), peers: HashSet::new() };
        let (look, hosts) = system.seen();
        server.update(&look, &hosts).await?;
        if server.connection.is_bus() {
            let reply = server.connection.request_name_with_flags(NAME, RequestNameFlags::DoNotQueue.into()).await?;
            if reply != RequestNameReply::PrimaryOwner {
                return Err(zbus::Error::NameTaken);
            }
        }
        Ok(server)
    }

    /// Makes the objects those of this look.
    ///
    /// # Errors
    /// [`zbus::Error`]: the connection has ended.
    pub async fn update(&mut self, look: &Look, hosts: &[Host]) -> zbus::Result<()> {
        let objects = self.connection.object_server();
        let uuid = |name: &String| hosts.iter().find(|host| host.cables.contains(name)).map(|host| &*host.uuid);
        let cables: HashMap<OwnedObjectPath, CableObject> = look
            .cables
            .iter()
            .map(|cable| (object_path("cable", &cable.name), CableObject::new(cable, uuid(&cable.name))))
            .collect();
        let peers: HashMap<OwnedObjectPath, PeerObject> =
            hosts.iter().map(|host| (object_path("peer", &host.uuid), PeerObject(host.clone()))).collect();
        // Peers before the cables that lead to them, and after them when they go.
        for gone in self.cables.iter().filter(|path| !cables.contains_key(*path)) {
            objects.remove::<CableObject, _>(gone).await?;
        }
        for gone in self.peers.iter().filter(|path| !peers.contains_key(*path)) {
            objects.remove::<PeerObject, _>(gone).await?;
        }
        self.cables.retain(|path| cables.contains_key(path));
        self.peers.retain(|path| peers.contains_key(path));
        for (path, object) in peers {
            match self.peers.insert(path.clone()) {
                true => drop(objects.at(path, object).await?),
                false => peer::change(&objects.interface(path).await?, object).await?,
            }
        }
        for (path, object) in cables {
            match self.cables.insert(path.clone()) {
                true => drop(objects.at(path, object).await?),
                false => cable::change(&objects.interface(path).await?, object).await?,
            }
        }
        Ok(())
    }

    /// Tells everybody that something has happened: the time of the last event.
    ///
    /// # Errors
    /// [`zbus::Error`]: the connection has ended.
    pub async fn events_changed(&self, last_us: u64) -> zbus::Result<()> {
        Manager::events_changed(&SignalEmitter::new(&self.connection, PATH)?, last_us).await
    }

    /// How many clients watch.
    pub fn watching(&self) -> usize {
        self.watches.count()
    }

    /// Until the bus has ended the connection.
    pub fn closed(&self) -> impl Future<Output = ()> + 'static {
        let connection = self.connection.clone();
        async move { connection.closed().await }
    }

    /// Ends the connection, also where calls are still answered over it, and with it the name on the bus.
    pub async fn close(self) {
        let _ = self.connection.clone().close().await;
    }

    /// Gives the name back, and says everything that was to be said.
    pub async fn end(self) {
        self.watches.end_all();
        if self.connection.is_bus()
            && let Ok(bus) = fdo::DBusProxy::new(&self.connection).await
            && let Ok(name) = NAME.try_into()
        {
            // A bus that has gone has taken the name along.
            let _ = bus.release_name(name).await;
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.watches.end_all();
    }
}
