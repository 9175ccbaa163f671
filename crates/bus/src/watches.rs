//! Numbers as they change, for each client that asks, to it alone, until it says so or has left the bus. Nothing is read or sent while
//! nobody watches.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::task::AbortHandle;
use tokio::time::{Interval, MissedTickBehavior};
use zbus::names::{BusName, UniqueName};
use zbus::object_server::SignalEmitter;
use zbus::{Connection, MatchRule, MessageStream, fdo};

use crate::Error;
use crate::places::{Place, Places};

/// Most clients that watch at a time, and most of one user where several may.
pub(crate) const WATCHES: usize = 256;
pub(crate) const WATCHES_EACH: usize = 64;

/// Shortest and longest time between two signals.
pub(crate) const INTERVAL_MS: std::ops::RangeInclusive<u32> = 250..=3_600_000;

/// One task for each client that watches.
#[derive(Clone, Debug)]
pub(crate) struct Watches {
    tasks: Arc<Mutex<Tasks>>,
    places: Places,
    each: usize,
}

type Tasks = HashMap<UniqueName<'static>, (AbortHandle, Place)>;

impl Watches {
    /// So many clients of each user may watch.
    pub(crate) fn new(each: usize) -> Watches {
        Watches { tasks: Arc::default(), places: Places::new(WATCHES, each), each }
    }

    fn tasks(&self) -> MutexGuard<'_, Tasks> {
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins for a client of a user, in place of what it had asked for before: runs what `send` makes of an emitter to it alone.
    pub(crate) async fn begin<F: Future<Output = ()> + Send + 'static>(
        &self,
        connection: &Connection,
        path: &'static str,
        client: (UniqueName<'static>, u32),
        send: impl FnOnce(SignalEmitter<'static>) -> F,
    ) -> Result<(), Error> {
        let (client, uid) = client;
        self.end(&client);
        let full = || {
            let each = self.each;
            Error::LimitReached(format!("LS3222 {each} clients of user {uid} watch already, or {WATCHES} of all users"))
        };
        let place = self.places.take(uid).ok_or_else(full)?;
        // Heard before it is asked whether it is still there, so that its end is missed in neither case.
        let left = MatchRule::builder()
            .msg_type(zbus::message::Type::Signal)
            .sender("org.freedesktop.DBus")?
            .interface("org.freedesktop.DBus")?
            .member("NameOwnerChanged")?
            .arg(0, client.as_str())?
            .build();
        let left = MessageStream::for_match_rule(left, connection, None).await?;
        let bus = fdo::DBusProxy::new(connection).await?;
        if !bus.name_has_owner(client.clone().into()).await.map_err(|e| Error::ZBus(e.into()))? {
            return Ok(());
        }
        let emitter = SignalEmitter::new(connection, path)?.set_destination(BusName::from(client.clone())).into_owned();
        let (watches, name, sending) = (self.clone(), client.clone(), send(emitter));
        let mut tasks = self.tasks();
        // Two calls of one client at a time: the later one counts.
        if let Some((task, _)) = tasks.remove(&client) {
            task.abort();
        }
        let task = tokio::spawn(async move {
            tokio::select! {
                () = sending => {}
                () = next(left) => {}
            }
            watches.tasks().remove(&name);
        });
        tasks.insert(client, (task.abort_handle(), place));
        Ok(())
    }

    /// Ends for a client, if it watches.
    pub(crate) fn end(&self, client: &UniqueName<'_>) -> bool {
        let task = self.tasks().remove(&client.to_owned());
        task.inspect(|(task, _)| task.abort()).is_some()
    }

    /// Ends for all.
    pub(crate) fn end_all(&self) {
        self.tasks().drain().for_each(|(_, (task, _))| task.abort());
    }

    /// How many there are.
    pub(crate) fn count(&self) -> usize {
        self.tasks().len()
    }
}

/// Until the stream has something, or ends.
async fn next(mut stream: MessageStream) {
    std::future::poll_fn(|context| {
        zbus::export::futures_core::Stream::poll_next(std::pin::Pin::new(&mut stream), context)
    })
    .await;
}

/// Regular, whatever each turn takes.
pub(crate) fn ticks(interval: Duration) -> Interval {
    let mut ticks = tokio::time::interval(interval);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks
}
