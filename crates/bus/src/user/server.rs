//! The user's service on a bus.

use std::sync::Arc;

use linkspan_user::mirrors::Mirrors;
use linkspan_user::shares::Shares;
use linkspan_user::task::{Say, Tasks};
use zbus::Connection;
use zbus::connection::Builder;
use zbus::fdo::{self, ObjectManager, RequestNameFlags, RequestNameReply};
use zbus::object_server::SignalEmitter;

use super::call::{Calls, path};
use super::manager::Manager;
use super::task::TaskObject;
use super::{NAME, PATH, files, keys, measure, shares};
use crate::to_dict;
use crate::watches::{WATCHES, Watches};

/// What the service knows and does.
pub struct User {
    /// What is under way, and was.
    pub tasks: Arc<Tasks>,
    /// Those that go on with the next start.
    pub mirrors: Mirrors,
    /// What peers see.
    pub shares: Shares,
    /// Gets what is worth a line.
    pub say: Say,
    /// Told after each change, so that [`UserServer::update`] is called.
    pub changed: Arc<dyn Fn() + Send + Sync>,
}

impl std::fmt::Debug for User {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("User").field("tasks", &self.tasks).field("shares", &self.shares).finish_non_exhaustive()
    }
}

/// The service on one connection.
#[derive(Debug)]
pub struct UserServer {
    connection: Connection,
    watches: Watches,
    user: Arc<User>,
}

impl UserServer {
    /// Puts the objects on a connection, with those of the tasks that run, and then asks for the name; with it the mirrors that are kept begin.
    /// `uid`: whose programs may call.
    ///
    /// # Errors
    /// The bus does not answer, or another process has the name ([`zbus::Error::NameTaken`]).
    pub async fn start(builder: Builder<'_>, user: &Arc<User>, uid: u32) -> zbus::Result<UserServer> {
        let (watches, calls) = (Watches::new(WATCHES), Calls::new(user.clone(), uid));
        let builder = builder
            .serve_at(PATH, ObjectManager)?
            .serve_at(PATH, Manager { calls: calls.clone(), watches: watches.clone() })?
            .serve_at(PATH, measure::Tests(calls.clone()))?
            .serve_at(PATH, files::Files(calls.clone()))?
            .serve_at(PATH, keys::Keys::new(calls.clone()))?
            .serve_at(PATH, shares::Shares::new(calls.clone()))?;
        let connection = builder.build().await?;
        let server = UserServer { connection, watches, user: user.clone() };
        // Nobody on this bus knows of them.
        user.tasks.take_ended();
        for task in user.tasks.running() {
            server.connection.object_server().at(path(task.id), TaskObject::new(calls.clone(), task)).await?;
        }
        server.update().await?;
        if server.connection.is_bus() {
            let reply = server.connection.request_name_with_flags(NAME, RequestNameFlags::DoNotQueue.into()).await?;
            if reply != RequestNameReply::PrimaryOwner {
                return Err(zbus::Error::NameTaken);
            }
        }
        files::resume(&calls, server.connection.object_server()).await;
        Ok(server)
    }

    /// Tells of the tasks that have ended, takes their objects away, and says what is different of shares and peers.
    ///
    /// # Errors
    /// [`zbus::Error`]: the connection has ended.
    pub async fn update(&self) -> zbus::Result<()> {
        let (objects, emitter) = (self.connection.object_server(), SignalEmitter::new(&self.connection, PATH)?);
        for record in self.user.tasks.take_ended() {
            let task = path(record["id"].as_u64().unwrap_or_default());
            Manager::task_ended(&emitter, task.clone(), to_dict(&record)).await?;
            objects.remove::<TaskObject, _>(task).await?;
        }
        shares::change(&objects.interface(PATH).await?).await?;
        keys::change(&objects.interface(PATH).await?).await
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
        let _ = self.update().await;
        if self.connection.is_bus()
            && let Ok(bus) = fdo::DBusProxy::new(&self.connection).await
            && let Ok(name) = NAME.try_into()
        {
            // A bus that has gone has taken the name along.
            let _ = bus.release_name(name).await;
        }
    }
}

impl Drop for UserServer {
    fn drop(&mut self) {
        self.watches.end_all();
    }
}
