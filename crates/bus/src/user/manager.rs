//! `org.linkspan.User1.Manager`.

use std::collections::HashMap;
use std::time::Duration;

use zbus::message::Header;
use zbus::object_server::SignalEmitter;
use zbus::zvariant::OwnedObjectPath;
use zbus::{Connection, interface};

use super::call::{Calls, path};
use super::server::User;
use super::{PATH, UserError};
use crate::watches::{INTERVAL_MS, Watches, ticks};
use crate::{Dict, to_dict};

/// The interface.
pub(crate) struct Manager {
    pub(crate) calls: Calls,
    pub(crate) watches: Watches,
}

/// How far each task is.
fn progress(user: &User) -> HashMap<OwnedObjectPath, Dict> {
    user.tasks.running().iter().map(|task| (path(task.id), to_dict(&task.progress()))).collect()
}

/// The user's service, for programs of the same user. Errors are `org.linkspan.User1.Error.*`.
#[interface(name = "org.linkspan.User1.Manager")]
impl Manager {
    /// Version of the service.
    #[zbus(property(emits_changed_signal = "const"))]
    fn version(&self) -> &str {
        env!("CARGO_PKG_VERSION")
    }

    /// Records of tasks that have ended, newest first, `most` at most (0: all that are kept, 256). Keys: id (t), kind, peer (s), arguments
    /// (av of s), started_unix_s, ended_unix_s (t), state (s: `done`, `failed`, `cancelled`), error (s; begins with an error code), and
    /// those of the task's GetProgress.
    #[zbus(out_args("records"))]
    async fn get_history(
        &self,
        #[zbus(connection)] connection: &Connection,
        #[zbus(header)] header: Header<'_>,
        most: u32,
    ) -> Result<Vec<Dict>, UserError> {
        let records = move |user: &User| Ok(user.tasks.history(most as usize).iter().map(to_dict).collect());
        self.calls.blocking(connection, &header, records).await
    }

    /// Sends ProgressChanged to the caller alone, at once and every `interval_ms` (250 to 3600000), until Unwatch or until it leaves the
    /// bus. Another call takes the place of the one before.
    async fn watch(
        &self,
        #[zbus(connection)] connection: &Connection,
        #[zbus(header)] header: Header<'_>,
        interval_ms: u32,
    ) -> Result<(), UserError> {
        if !INTERVAL_MS.contains(&interval_ms) {
            let (least, most) = (INTERVAL_MS.start(), INTERVAL_MS.end());
            let text = format!("LS3246 interval_ms is {interval_ms}, and must be {least} to {most}");
            return Err(UserError::InvalidArgument(text));
        }
        let caller = self.calls.own(connection, &header).await?;
        let user = self.calls.user.clone();
        let send = move |emitter: SignalEmitter<'static>| async move {
            let mut ticks = ticks(Duration::from_millis(interval_ms.into()));
            loop {
                ticks.tick().await;
                if Manager::progress_changed(&emitter, progress(&user)).await.is_err() {
                    return;
                }
            }
        };
        let watched = self.watches.begin(connection, PATH, (caller.name, caller.uid), send).await;
        watched.map_err(|error| match error {
            crate::Error::LimitReached(text) => UserError::LimitReached(text),
            error => UserError::Failed(error.to_string()),
        })
    }

    /// Ends Watch. Answers whether the caller watched.
    #[zbus(out_args("watched"))]
    fn unwatch(&self, #[zbus(header)] header: Header<'_>) -> bool {
        header.sender().is_some_and(|sender| self.watches.end(sender))
    }

    /// To a client that watches: the answer of GetProgress of each task.
    #[zbus(signal)]
    pub(crate) async fn progress_changed(
        emitter: &SignalEmitter<'_>,
        tasks: HashMap<OwnedObjectPath, Dict>,
    ) -> zbus::Result<()>;

    /// A task has ended, and its object goes; its record as in GetHistory.
    #[zbus(signal)]
    pub(crate) async fn task_ended(
        emitter: &SignalEmitter<'_>,
        task: OwnedObjectPath,
        record: Dict,
    ) -> zbus::Result<()>;
}
