//! `org.linkspan.Link1.Manager`.

use std::sync::Arc;
use std::time::Duration;

use linkspan_service::admission::canonical;
use linkspan_service::system::System;
use tokio::task::spawn_blocking;
use zbus::message::Header;
use zbus::object_server::SignalEmitter;
use zbus::{Connection, interface};

use crate::numbers::{Numbers, Processes};
use crate::places::{Place, Places};
use crate::polkit::Caller;
use crate::watches::{INTERVAL_MS, Watches, ticks};
use crate::{Dict, Error, PATH, actions, to_dict};

/// Most calls that wait for polkit, its user or the system at a time, and most of one user.
const CALLS: usize = 64;
const CALLS_EACH: usize = 16;

/// Bytes of an interface's name: IFNAMSIZ of linux/if.h without the end of the text.
const INTERFACE: std::ops::RangeInclusive<usize> = 1..=15;

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
    numbers: Numbers,
    calls: Places,
    turn: tokio::sync::Mutex<()>,
    pub(crate) watches: Watches,
    /// Told after each change, so that the objects follow.
    changed: Box<dyn Fn() + Send + Sync>,
}

/// What is to be done, to what, and by which of polkit's actions.
struct Asked {
    /// The method and its arguments, for the log.
    call: String,
    action: &'static str,
    details: Vec<(&'static str, String)>,
}

/// A text of somebody else's as one word of a line: without control characters, and not long; nor does polkit take it for one of its
/// variables.
fn word(text: &str) -> String {
    let plain = |c: char| if c.is_control() || c == '$' { char::REPLACEMENT_CHARACTER } else { c };
    text.chars().take(64).map(plain).collect()
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
        let (numbers, calls) = (Numbers::new(system.clone()), Places::new(CALLS, CALLS_EACH));
        Manager { system, numbers, calls, turn: tokio::sync::Mutex::new(()), watches, changed }
    }

    /// Who calls, and its place among the calls.
    async fn caller(&self, connection: &Connection, header: &Header<'_>) -> Result<(Caller, Place), Error> {
        let caller = Caller::of(connection, header).await?;
        let full = || {
            let uid = caller.uid;
            let text =
                format!("LS3224 {CALLS_EACH} calls of user {uid} are being answered already, or {CALLS} of all users");
            Error::LimitReached(text)
        };
        let place = self.calls.take(caller.uid).ok_or_else(full)?;
        Ok((caller, place))
    }

    /// Asks whether the caller may, does it, and has a line in the log say who it was.
    async fn change<T: Send + 'static, E: Into<Error> + Send + 'static>(
        &self,
        connection: &Connection,
        header: &Header<'_>,
        asked: Asked,
        what: impl FnOnce(&System) -> Result<T, E> + Send + 'static,
    ) -> Result<T, Error> {
        let (caller, _place) = self.caller(connection, header).await?;
        caller.may(connection, asked.action, &asked.details).await?;
        let _turn = self.turn.lock().await;
        let system = self.system.clone();
        let done = spawn_blocking(move || what(&system)).await;
        (self.changed)();
        let done = match done {
            Ok(done) => done.map_err(Into::into),
            Err(error) => Err(Error::Failed(format!("LS3225 the service failed: {error}"))),
        };
        let said = match &done {
            Ok(_) => "done".to_owned(),
            Err(error) => error.to_string(),
        };
        self.system.say(done.is_err(), &format!("user {} called {}: {said}", caller.uid, asked.call));
        done
    }

    /// As `link.allow` and `link.forget` ask; `uuid` as a host has it, for rules of polkit compare it.
    fn of_host(&self, method: &str, action: &'static str, uuid: &str) -> Asked {
        let hosts = self.system.seen().1;
        let name = hosts.iter().find(|host| host.uuid == uuid).and_then(|host| host.name.as_deref());
        let host = word(name.unwrap_or("without a name"));
        Asked { call: format!("{method} {uuid}"), action, details: vec![("host", host), ("uuid", uuid.to_owned())] }
    }

    /// The caller's user, or nobody in particular where it asks for all and may.
    async fn whose(&self, connection: &Connection, caller: &Caller, all: bool) -> Result<Option<u32>, Error> {
        if all {
            caller.may(connection, actions::READ_ALL, &[]).await?;
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
        // Before polkit is asked, which may take for ever: the message is kept that long.
        let uuid = canonical(&uuid)?;
        let asked = self.of_host("Allow", actions::ALLOW, &uuid);
        self.change(connection, &header, asked, move |system| system.allow(&uuid)).await
    }

    /// Shuts a host out and remembers it no more. polkit: org.linkspan.link.forget.
    #[zbus(out_args("devices"))]
    async fn forget(
        &self,
        #[zbus(connection)] connection: &Connection,
        #[zbus(header)] header: Header<'_>,
        uuid: String,
    ) -> Result<Vec<String>, Error> {
        // Before polkit is asked, which may take for ever: the message is kept that long.
        let uuid = canonical(&uuid)?;
        let asked = self.of_host("Forget", actions::FORGET, &uuid);
        self.change(connection, &header, asked, move |system| system.forget(&uuid)).await
    }

    /// Sets 1 to 8 USB4STREAM devices up to every host at a cable, from this HopID on (8 to 256, the same on both hosts), and gives the
    /// interface of every cable in the mode network its IPv4 address. Answers a line for each. polkit: org.linkspan.link.configure.
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
            system.set_up(streams, first_hop).map_err(|error| match error.first() {
                LinkError::NoStreams(_) | LinkError::NoLink { .. } => Error::NoDevice(error.to_string()),
                _ => Error::Failed(error.to_string()),
            })
        };
        let call = format!("SetUp {streams} {first_hop}");
        let details = vec![("streams", streams.to_string()), ("first_hop", first_hop.to_string())];
        self.change(connection, &header, Asked { call, action: actions::CONFIGURE, details }, up).await
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
        within("the length of the interface's name", interface.len(), INTERFACE)?;
        let name = word(&interface);
        let call = format!("LendQueues {name} {queues} {each} {users:?}");
        let details = vec![("interface", name)];
        let lend = move |system: &System| system.lend(&interface, queues, each, users);
        self.change(connection, &header, Asked { call, action: actions::DEVMEM, details }, lend).await
    }

    /// Ends the lending of a card's queues and undoes its set-up. polkit: org.linkspan.devmem.configure.
    #[zbus(out_args("line"))]
    async fn end_lending(
        &self,
        #[zbus(connection)] connection: &Connection,
        #[zbus(header)] header: Header<'_>,
        interface: String,
    ) -> Result<String, Error> {
        within("the length of the interface's name", interface.len(), INTERFACE)?;
        let name = word(&interface);
        let asked =
            Asked { call: format!("EndLending {name}"), action: actions::DEVMEM, details: vec![("interface", name)] };
        self.change(connection, &header, asked, move |system| system.end_lending(&interface)).await
    }

    /// Interfaces whose queues are lent, or are about to be.
    #[zbus(out_args("interfaces"))]
    fn lendings(&self) -> Vec<String> {
        // Never held for longer than a look at it.
        self.system.lent()
    }

    /// What the caller's running jobs have counted, or with `all` every user's: a dictionary for each process, with the keys
    /// that `lspan stats` prints as JSON, 128 at most, of all users by turns. polkit, for `all`: org.linkspan.statistics.read-all.
    #[zbus(out_args("processes"))]
    async fn get_statistics(
        &self,
        #[zbus(connection)] connection: &Connection,
        #[zbus(header)] header: Header<'_>,
        all: bool,
    ) -> Result<Processes, Error> {
        let (caller, _place) = self.caller(connection, &header).await?;
        let uid = self.whose(connection, &caller, all).await?;
        Ok(self.numbers.read(&self.numbers.answer(uid), uid).await)
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
        let (caller, _place) = self.caller(connection, &header).await?;
        let uid = self.whose(connection, &caller, all).await?;
        let numbers = self.numbers.clone();
        let send = move |emitter: SignalEmitter<'static>| async move {
            let mut ticks = ticks(Duration::from_millis(interval_ms.into()));
            loop {
                ticks.tick().await;
                let answer = numbers.answer(uid);
                let _turn = answer.sending.lock().await;
                let processes = numbers.read(&answer, uid).await;
                if Manager::statistics_changed(&emitter, processes).await.is_err() {
                    return;
                }
            }
        };
        self.watches.begin(connection, PATH, (caller.name, caller.uid), send).await
    }

    /// Ends Watch. Answers whether the caller watched.
    #[zbus(out_args("watched"))]
    fn unwatch(&self, #[zbus(header)] header: Header<'_>) -> Result<bool, Error> {
        Ok(header.sender().is_some_and(|sender| self.watches.end(sender)))
    }

    /// Events later than this time (microseconds since 1970; 0: all that are kept), oldest first: those of cables, and those of the
    /// caller's jobs, or with `all` of every user's. Keys: time_us (t), kind (s), text (s), and where they apply cable, peer, peer_uuid,
    /// comm, device, transport (s), uid, pid, count (t). Of 4096 events, which one answer has at most, the others are later than the last
    /// one's time. polkit, for `all`: org.linkspan.statistics.read-all.
    #[zbus(out_args("events"))]
    async fn get_events(
        &self,
        #[zbus(connection)] connection: &Connection,
        #[zbus(header)] header: Header<'_>,
        after_us: u64,
        all: bool,
    ) -> Result<Vec<Dict>, Error> {
        let (caller, _place) = self.caller(connection, &header).await?;
        let uid = self.whose(connection, &caller, all).await?;
        Ok(self.system.events(after_us, uid).iter().map(to_dict).collect())
    }

    /// Something has happened; its time. GetEvents says what, to those who may know.
    #[zbus(signal)]
    pub(crate) async fn events_changed(emitter: &SignalEmitter<'_>, last_us: u64) -> zbus::Result<()>;

    /// The answer of GetStatistics, to a client that watches.
    #[zbus(signal)]
    pub(crate) async fn statistics_changed(emitter: &SignalEmitter<'_>, processes: Processes) -> zbus::Result<()>;
}
