//! `org.linkspan.Link1.Manager`.

use std::sync::Arc;
use std::time::Duration;

use linkspan_service::statistics;
use linkspan_service::system::System;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::task::spawn_blocking;
use zbus::message::Header;
use zbus::object_server::SignalEmitter;
use zbus::{Connection, interface};

use crate::polkit::Caller;
use crate::watches::{INTERVAL_MS, Watches, ticks};
use crate::{Dict, Error, PATH, actions, to_dict};

/// Most calls that wait for polkit, its user or the system at a time.
const CALLS: usize = 64;

/// Most users to whom queues are lent.
const USERS: usize = 64;

/// Receive queues of the largest cards, and so of any.
const QUEUES: std::ops::RangeInclusive<u32> = 1..=1024;

/// HopIDs for streams, as `lspan link up` takes them.
const HOPS: std::ops::RangeInclusive<u16> = 8..=256;

/// Most streams to each host.
const STREAMS: std::ops::RangeInclusive<u16> = 1..=8;

/// The interface. What it changes is changed by one call at a time.
pub(crate) struct Manager {
    system: Arc<System>,
    calls: Semaphore,
    turn: tokio::sync::Mutex<()>,
    pub(crate) watches: Watches,
    /// Told after each change, so that the objects follow.
    changed: Box<dyn Fn() + Send + Sync>,
}

/// Statistics of a user's jobs, or of all, as the bus shows them.
async fn read(system: &Arc<System>, uid: Option<u32>) -> Vec<Dict> {
    let system = system.clone();
    let dicts = move || {
        let pages = system.statistics();
        pages
            .iter()
            .filter(|page| uid.is_none_or(|uid| page.uid == uid))
            .map(|page| to_dict(&statistics::json(page)))
            .collect()
    };
    spawn_blocking(dicts).await.unwrap_or_default()
}

fn within<T: PartialOrd + std::fmt::Display>(
    what: &str,
    value: T,
    range: std::ops::RangeInclusive<T>,
) -> Result<(), Error> {
    match range.contains(&value) {
        true => Ok(()),
        false => {
            let text = format!("LS3223 {what} is {value}, and must be {} to {}", range.start(), range.end());
            Err(Error::InvalidArgument(text))
        }
    }
}

impl Manager {
    pub(crate) fn new(system: Arc<System>, watches: Watches, changed: Box<dyn Fn() + Send + Sync>) -> Manager {
        Manager { system, calls: Semaphore::new(CALLS), turn: tokio::sync::Mutex::new(()), watches, changed }
    }

    fn call(&self) -> Result<SemaphorePermit<'_>, Error> {
        let full = |_| Error::LimitReached(format!("LS3224 {CALLS} calls are being answered already"));
        self.calls.try_acquire().map_err(full)
    }

    /// Asks whether the caller may, and does it.
    async fn change<T: Send + 'static, E: Into<Error> + Send + 'static>(
        &self,
        connection: &Connection,
        header: &Header<'_>,
        action: &str,
        what: impl FnOnce(&System) -> Result<T, E> + Send + 'static,
    ) -> Result<T, Error> {
        let _call = self.call()?;
        Caller::of(connection, header).await?.may(connection, action).await?;
        let _turn = self.turn.lock().await;
        let system = self.system.clone();
        let done = spawn_blocking(move || what(&system)).await;
        (self.changed)();
        done.map_err(|error| Error::Failed(format!("LS3225 the service failed: {error}")))?.map_err(Into::into)
    }

    /// The caller's user, or nobody in particular where it asks for all and may.
    async fn whose(&self, connection: &Connection, caller: &Caller, all: bool) -> Result<Option<u32>, Error> {
        if all {
            caller.may(connection, actions::READ_ALL).await?;
        }
        Ok((!all).then_some(caller.uid))
    }
}

/// The service. Whoever is not root needs what polkit is asked for; errors are `org.linkspan.Link1.Error.*`.
#[interface(name = "org.linkspan.Link1.Manager")]
impl Manager {
    /// Version of the service.
    #[zbus(property(emits_changed_signal = "const"))]
    fn version(&self) -> &str {
        env!("CARGO_PKG_VERSION")
    }

    /// Lets a host use the driver linkspan.ko, now and whenever it is plugged in again. The host must be at a cable. Its UUID is its own
    /// word: it keeps cables apart and proves nothing. Answers the driver's devices that were told; none where it is not loaded.
    /// polkit: org.linkspan.link.allow.
    #[zbus(out_args("devices"))]
    async fn allow(
        &self,
        #[zbus(connection)] connection: &Connection,
        #[zbus(header)] header: Header<'_>,
        uuid: String,
    ) -> Result<Vec<String>, Error> {
        self.change(connection, &header, actions::ALLOW, move |system| system.allow(&uuid)).await
    }

    /// Shuts a host out and remembers it no more. polkit: org.linkspan.link.forget.
    #[zbus(out_args("devices"))]
    async fn forget(
        &self,
        #[zbus(connection)] connection: &Connection,
        #[zbus(header)] header: Header<'_>,
        uuid: String,
    ) -> Result<Vec<String>, Error> {
        self.change(connection, &header, actions::FORGET, move |system| system.forget(&uuid)).await
    }

    /// Sets 1 to 8 USB4STREAM devices up to every host at a cable, from this HopID on (8 to 256, the same on both hosts). Answers a line
    /// for each. polkit: org.linkspan.link.configure.
    #[zbus(out_args("lines"))]
    async fn set_up(
        &self,
        #[zbus(connection)] connection: &Connection,
        #[zbus(header)] header: Header<'_>,
        streams: u16,
        first_hop: u16,
    ) -> Result<Vec<String>, Error> {
        within("streams", streams, STREAMS)?;
        within("first_hop", first_hop, HOPS)?;
        let up = move |system: &System| {
            use linkspan_service::system::LinkError;
            system.set_up(streams, first_hop).map_err(|error| match error {
                LinkError::NoStreams(_) => Error::NoDevice(error.to_string()),
                error => Error::Failed(error.to_string()),
            })
        };
        self.change(connection, &header, actions::CONFIGURE, up).await
    }

    /// Sets a network card up for device-memory TCP and lends its last receive queues to processes of these users, and of root: `each`
    /// of them to a process. As `lspan devmem up` does, until EndLending or the end of the service. polkit:
    /// org.linkspan.devmem.configure.
    #[zbus(out_args("line"))]
    async fn lend_queues(
        &self,
        #[zbus(connection)] connection: &Connection,
        #[zbus(header)] header: Header<'_>,
        interface: String,
        queues: u32,
        each: u32,
        users: Vec<u32>,
    ) -> Result<String, Error> {
        within("queues", queues, QUEUES)?;
        within("each", each, QUEUES)?;
        within("the number of users", users.len(), 0..=USERS)?;
        let lend = move |system: &System| system.lend(&interface, queues, each, users);
        self.change(connection, &header, actions::DEVMEM, lend).await
    }

    /// Ends the lending of a card's queues and undoes its set-up. polkit: org.linkspan.devmem.configure.
    #[zbus(out_args("line"))]
    async fn end_lending(
        &self,
        #[zbus(connection)] connection: &Connection,
        #[zbus(header)] header: Header<'_>,
        interface: String,
    ) -> Result<String, Error> {
        self.change(connection, &header, actions::DEVMEM, move |system| system.end_lending(&interface)).await
    }

    /// Interfaces whose queues are lent.
    #[zbus(out_args("interfaces"))]
    fn lendings(&self) -> Vec<String> {
        // Never held for longer than a look at it.
        self.system.lent()
    }

    /// What the caller's running jobs have counted, or with `all` every user's: a dictionary for each process, with the keys of
    /// `lspan stats --json`. polkit, for `all`: org.linkspan.statistics.read-all.
    #[zbus(out_args("processes"))]
    async fn get_statistics(
        &self,
        #[zbus(connection)] connection: &Connection,
        #[zbus(header)] header: Header<'_>,
        all: bool,
    ) -> Result<Vec<Dict>, Error> {
        let _call = self.call()?;
        let uid = self.whose(connection, &Caller::of(connection, &header).await?, all).await?;
        Ok(read(&self.system, uid).await)
    }

    /// Sends StatisticsChanged to the caller alone, at once and every `interval_ms` (250 to 3600000), until Unwatch or until it leaves
    /// the bus. `all` as for GetStatistics. Another call takes the place of the one before.
    async fn watch(
        &self,
        #[zbus(connection)] connection: &Connection,
        #[zbus(header)] header: Header<'_>,
        interval_ms: u32,
        all: bool,
    ) -> Result<(), Error> {
        within("interval_ms", interval_ms, INTERVAL_MS)?;
        let _call = self.call()?;
        let caller = Caller::of(connection, &header).await?;
        let uid = self.whose(connection, &caller, all).await?;
        let system = self.system.clone();
        let send = move |emitter: SignalEmitter<'static>| async move {
            let mut ticks = ticks(Duration::from_millis(interval_ms.into()));
            loop {
                ticks.tick().await;
                if Manager::statistics_changed(&emitter, read(&system, uid).await).await.is_err() {
                    return;
                }
            }
        };
        self.watches.begin(connection, PATH, caller.name, send).await
    }

    /// Ends Watch. Answers whether the caller watched.
    #[zbus(out_args("watched"))]
    fn unwatch(&self, #[zbus(header)] header: Header<'_>) -> Result<bool, Error> {
        Ok(header.sender().is_some_and(|sender| self.watches.end(sender)))
    }

    /// Events later than this time (microseconds since 1970; 0: all that are kept), oldest first: those of cables, and those of the
    /// caller's jobs, or with `all` of every user's. Keys: time_us (t), kind (s), text (s), and where they apply cable, peer, peer_uuid,
    /// comm, device, transport (s), uid, pid, count (t). polkit, for `all`: org.linkspan.statistics.read-all.
    #[zbus(out_args("events"))]
    async fn get_events(
        &self,
        #[zbus(connection)] connection: &Connection,
        #[zbus(header)] header: Header<'_>,
        after_us: u64,
        all: bool,
    ) -> Result<Vec<Dict>, Error> {
        let _call = self.call()?;
        let uid = self.whose(connection, &Caller::of(connection, &header).await?, all).await?;
        Ok(self.system.events(after_us, uid).iter().map(to_dict).collect())
    }

    /// Something has happened; its time. GetEvents says what, to those who may know.
    #[zbus(signal)]
    pub(crate) async fn events_changed(emitter: &SignalEmitter<'_>, last_us: u64) -> zbus::Result<()>;

    /// The answer of GetStatistics, to a client that watches.
    #[zbus(signal)]
    pub(crate) async fn statistics_changed(emitter: &SignalEmitter<'_>, processes: Vec<Dict>) -> zbus::Result<()>;
}
