//! `org.linkspan.User1.Task`.

use std::sync::Arc;

use linkspan_user::task::Task;
use zbus::message::Header;
use zbus::{Connection, interface};

use super::UserError;
use super::call::Calls;
use crate::{Dict, to_dict};

/// A task as it is shown.
pub(crate) struct TaskObject {
    calls: Calls,
    task: Arc<Task>,
}

impl TaskObject {
    pub(crate) fn new(calls: Calls, task: Arc<Task>) -> TaskObject {
        TaskObject { calls, task }
    }
}

/// A test, transfer, mirror, mount or pairing that is under way. It goes when it has ended; TaskEnded and GetHistory of the manager say how.
#[interface(name = "org.linkspan.User1.Task")]
impl TaskObject {
    /// `test`, `send`, `get`, `mirror`, `mount` or `pair`.
    #[zbus(property(emits_changed_signal = "const"))]
    fn kind(&self) -> &str {
        self.task.kind.name()
    }

    /// With whom, as asked; empty for a join line of ours.
    #[zbus(property(emits_changed_signal = "const"))]
    fn peer(&self) -> &str {
        &self.task.peer
    }

    /// The other words of what was asked: the test; sources and destination; place and directory.
    #[zbus(property(emits_changed_signal = "const"))]
    fn arguments(&self) -> &[String] {
        &self.task.arguments
    }

    /// Seconds since 1970.
    #[zbus(property(emits_changed_signal = "const"))]
    fn started(&self) -> u64 {
        self.task.started
    }

    /// Has it end soon. Files that have arrived stay, and no half of one is seen. A mount goes from its directory at once, and the task ends
    /// when no program has anything open there. A mirror does not go on with the next start of the service.
    async fn cancel(
        &self,
        #[zbus(connection)] connection: &Connection,
        #[zbus(header)] header: Header<'_>,
    ) -> Result<(), UserError> {
        self.calls.own(connection, &header).await?;
        self.task.cancel();
        let task = self.task.clone();
        self.calls.carry_on(move |user| user.mirrors.release(&task)).await
    }

    /// Keys: state (s: `connecting`, `running`, `waiting` (for a peer that is away, or to pair), `watching` (a mirror), `mounted`), and where
    /// there are some path (s), notes (av of s, the last 16). Of a test: done, of (t: measurements), measuring (s), results (av of a{sv}, with
    /// the keys of `results` in docs/schema/perf-1.json). Of a transfer, and the last run of a mirror: moved_bytes, kept_bytes, files_done,
    /// entries_made, entries_same, entries_would, entries_deleted, entries_failed, entries_left_out, total_bytes (t; once it is known),
    /// current (s), options (a{sv}; with which it goes on: those that were asked for, init until both directories are marked). Of a pairing, once it is made: name, calls_itself, fingerprint (s), confirmed (b).
    #[zbus(out_args("progress"))]
    async fn get_progress(
        &self,
        #[zbus(connection)] connection: &Connection,
        #[zbus(header)] header: Header<'_>,
    ) -> Result<Dict, UserError> {
        self.calls.own(connection, &header).await?;
        Ok(to_dict(&self.task.progress()))
    }
}
