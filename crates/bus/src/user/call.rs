//! Who may call, and how calls that may block are made.

use std::sync::Arc;

use serde::de::DeserializeOwned;
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;
use zbus::Connection;
use zbus::message::Header;
use zbus::object_server::ObjectServer;
use zbus::zvariant::OwnedObjectPath;

use linkspan_user::Error;
use linkspan_user::task::{Kind, Task};

use super::error::told;
use super::server::User;
use super::task::TaskObject;
use super::{PATH, UserError};
use crate::polkit::Caller;
use crate::{Dict, from_dict};

/// Most calls that wait for a peer or the disk at a time.
const CALLS: usize = 32;

/// Longest text, bytes: a path has 4096 at most (PATH_MAX), and a place a peer's name before it.
pub(super) const TEXT: usize = 8192;

/// Most texts in a list.
const TEXTS: usize = 1024;

/// What all interfaces share.
#[derive(Clone)]
pub(crate) struct Calls {
    pub(crate) user: Arc<User>,
    free: Arc<Semaphore>,
    uid: u32,
}

impl Calls {
    /// For programs of this user.
    pub(crate) fn new(user: Arc<User>, uid: u32) -> Calls {
        Calls { user, free: Arc::new(Semaphore::new(CALLS)), uid }
    }

    /// Refuses other users, whoever the bus lets in.
    pub(crate) async fn own(&self, connection: &Connection, header: &Header<'_>) -> Result<Caller, UserError> {
        let caller = Caller::of(connection, header).await.map_err(|error| UserError::Failed(error.to_string()))?;
        match caller.uid == self.uid {
            true => Ok(caller),
            false => Err(UserError::NotPermitted(format!(
                "LS3241 this is the service of user {}, and user {} calls",
                self.uid, caller.uid
            ))),
        }
    }

    /// Does what may block.
    pub(crate) async fn blocking<T: Send + 'static>(
        &self,
        connection: &Connection,
        header: &Header<'_>,
        what: impl FnOnce(&User) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, UserError> {
        self.own(connection, header).await?;
        let full = |_| UserError::LimitReached(format!("LS3242 {CALLS} calls are being answered already"));
        let _free = self.free.try_acquire().map_err(full)?;
        self.carry_on(what).await
    }

    /// The same for what has begun, and is to be finished whether or not the caller is still there.
    pub(crate) async fn carry_on<T: Send + 'static>(
        &self,
        what: impl FnOnce(&User) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, UserError> {
        let user = self.user.clone();
        let done = spawn_blocking(move || what(&user)).await;
        done.map_err(|error| UserError::Failed(format!("LS3243 the service failed: {error}")))?.map_err(Into::into)
    }

    /// Begins a task, whose object is there before it runs.
    pub(crate) async fn begin(
        &self,
        objects: &ObjectServer,
        asked: (Kind, &str, Vec<String>),
        run: impl FnOnce(&Arc<Task>) -> Result<(), Error> + Send + 'static,
    ) -> Result<OwnedObjectPath, UserError> {
        let (kind, peer, arguments) = asked;
        let task = self.user.tasks.prepare(kind, peer, arguments)?;
        let path = path(task.id);
        let shown = objects.at(&path, TaskObject::new(self.clone(), task.clone())).await;
        self.user.tasks.start(&task, run);
        shown.map(|_| path).map_err(Into::into)
    }
}

/// The object of a task.
pub(crate) fn path(id: u64) -> OwnedObjectPath {
    zbus::zvariant::ObjectPath::from_string_unchecked(format!("{PATH}/task/{id}")).into()
}

/// Refuses what is longer than anything that is meant.
pub(crate) fn texts<'a>(what: &str, all: impl IntoIterator<Item = &'a String>) -> Result<(), UserError> {
    for (n, text) in all.into_iter().enumerate() {
        if n == TEXTS || text.len() > TEXT {
            let text = format!("LS3244 {what}: {TEXTS} texts of {TEXT} bytes are the most");
            return Err(UserError::InvalidArgument(text));
        }
    }
    Ok(())
}

/// Options; an unknown one is refused.
pub(crate) fn options<T: DeserializeOwned>(dict: &Dict) -> Result<T, UserError> {
    from_dict(dict).map_err(|error| UserError::InvalidArgument(told(format!("LS3245 the options: {error}"))))
}
