//! The services on D-Bus, as a stream of [`Input`]s.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use futures_util::StreamExt;
use linkspan_bus::zbus::connection::Builder;
use linkspan_bus::zbus::fdo::{DBusProxy, NameOwnerChangedStream, ObjectManagerProxy};
use linkspan_bus::zbus::message::Type;
use linkspan_bus::zbus::proxy::CacheProperties;
use linkspan_bus::zbus::{Connection, Error, MatchRule, Message, MessageStream, zvariant::OwnedObjectPath};
use linkspan_bus::{Dict, ManagerProxy, NAME, PATH, StatisticsChanged, more_after};
use tokio::sync::Notify;
use tokio::sync::mpsc::{Receiver, Sender};
use tokio::time::{Instant, sleep_until, timeout};

use crate::Input;

/// What a person asks the service for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Ask {
    /// Lets a host in.
    Allow(String),
    /// Shuts it out.
    Forget(String),
    /// Whether statistics are wanted.
    Statistics(bool),
    /// Looks for the service again.
    Retry,
}

impl Ask {
    /// Which host it is about, if any.
    pub(crate) fn host(&self) -> Option<&str> {
        match self {
            Ask::Allow(uuid) | Ask::Forget(uuid) => Some(uuid),
            Ask::Statistics(_) | Ask::Retry => None,
        }
    }
}

/// After a change others follow: all of them are read at once, after this time.
pub(crate) const SETTLE: Duration = Duration::from_millis(100);

/// Between two tries to reach a bus that is away.
pub(crate) const AGAIN: Duration = Duration::from_secs(5);

/// For how long the service may take to tell what is there.
pub(crate) const PATIENCE: Duration = Duration::from_secs(25);

/// Between two looks at statistics, milliseconds.
const INTERVAL_MS: u32 = 1000;

/// Signals of a service, taken from the connection whatever else is awaited: a full queue of them would hold up the answers behind it.
#[derive(Default)]
pub(crate) struct Heard {
    news: Mutex<News>,
    some: Notify,
}

/// What has come since the look before.
#[derive(Default)]
pub(crate) struct News {
    /// The newest signal that has numbers.
    pub(crate) numbers: Option<Message>,
    /// The names of the others are of no matter, but that of a task's end.
    pub(crate) changed: bool,
    pub(crate) ended: bool,
}

impl Heard {
    /// Until the connection ends; `numbers` is what the signal with numbers is called.
    pub(crate) async fn listen(&self, mut signals: MessageStream, numbers: &str) -> Error {
        while let Some(message) = signals.next().await {
            let Ok(message) = message else { continue };
            let member = message.header().member().map(|member| member.to_string()).unwrap_or_default();
            let mut news = self.news.lock().unwrap_or_else(PoisonError::into_inner);
            match member == numbers {
                true => news.numbers = Some(message),
                false => (news.changed, news.ended) = (true, news.ended || member == "TaskEnded"),
            }
            self.some.notify_one();
        }
        Error::Failure("the bus is gone".into())
    }

    pub(crate) async fn news(&self) -> News {
        self.some.notified().await;
        std::mem::take(&mut *self.news.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The signals of `name` below `path` from now on.
pub(crate) async fn signals(
    connection: &Connection,
    name: &'static str,
    path: &'static str,
) -> linkspan_bus::zbus::Result<MessageStream> {
    let rule = MatchRule::builder().msg_type(Type::Signal).sender(name)?.path_namespace(path)?;
    MessageStream::for_match_rule(rule.build(), connection, Some(64)).await
}

/// Feeds a model until it is dropped: with the system bus at `address`, or the usual one. The bus starts the service; where it goes away
/// it is waited for, and had back with its objects.
pub async fn follow(address: Option<&str>, mut asks: Receiver<Ask>, feed: Sender<Input>) {
    let mut statistics = false;
    loop {
        let ended = session(address, &mut asks, &feed, &mut statistics).await;
        let why = match ended {
            Ok(()) => return,
            Err(error) => error.to_string(),
        };
        if feed.send(Input::Down(why)).await.is_err() {
            return;
        }
        // Whoever asks does not wait.
        match timeout(AGAIN, asks.recv()).await {
            Ok(None) => return,
            Ok(Some(Ask::Statistics(wanted))) => statistics = wanted,
            Ok(Some(Ask::Retry)) | Err(_) => {}
            Ok(Some(ask)) => {
                let _ = feed.send(Input::Answered(ask, Err("the service does not run".into()))).await;
            }
        }
    }
}

/// One connection, until it breaks (`Err`) or nobody listens any more.
async fn session(
    address: Option<&str>,
    asks: &mut Receiver<Ask>,
    feed: &Sender<Input>,
    statistics: &mut bool,
) -> linkspan_bus::zbus::Result<()> {
    let builder = match address {
        Some(address) => Builder::address(address)?,
        None => Builder::system()?,
    };
    let connection = builder.method_timeout(Duration::from_secs(120)).build().await?;
    let bus = DBusProxy::new(&connection).await?;
    let owners = bus.receive_name_owner_changed_with_args(&[(0, NAME)]).await?;
    let (heard, signals) = (Heard::default(), signals(&connection, NAME, PATH).await?);
    tokio::select! {
        ended = heard.listen(signals, "StatisticsChanged") => Err(ended),
        ended = followed(&connection, &bus, owners, &heard, asks, feed, statistics) => ended,
    }
}

async fn followed(
    connection: &Connection,
    bus: &DBusProxy<'_>,
    mut owners: NameOwnerChangedStream,
    heard: &Heard,
    asks: &mut Receiver<Ask>,
    feed: &Sender<Input>,
    statistics: &mut bool,
) -> linkspan_bus::zbus::Result<()> {
    // What was read of a service is not what the next one of its name says.
    let manager = ManagerProxy::builder(connection).cache_properties(CacheProperties::No).build().await?;
    let (mut after_us, mut read_at) = (0, begin(bus, feed).await);
    // Its last signals are no reason to have the bus start it again.
    let mut gone = false;
    loop {
        tokio::select! {
            ask = asks.recv() => match ask {
                None => return Ok(()),
                Some(Ask::Retry) => read_at = begin(bus, feed).await,
                Some(Ask::Statistics(wanted)) => {
                    *statistics = wanted;
                    let _ = if wanted { manager.watch(INTERVAL_MS, false).await } else { manager.unwatch().await.map(drop) };
                }
                Some(ask) => change(&manager, feed, ask),
            },
            owner = owners.next() => {
                let Some(owner) = owner else { break };
                read_at = None;
                gone = owner.args()?.new_owner().is_none();
                if !gone {
                    (after_us, read_at) = (0, Some(Instant::now()));
                } else if feed.send(Input::Down("it has ended".into())).await.is_err() {
                    return Ok(());
                }
            }
            news = heard.news() => {
                let now = now_us();
                if let Some(changed) = news.numbers.and_then(StatisticsChanged::from_message)
                    && let Ok(args) = changed.args()
                    && feed.send(Input::Statistics(args.processes().clone(), now)).await.is_err()
                {
                    return Ok(());
                }
                if news.changed && !gone {
                    read_at = read_at.or_else(|| Some(Instant::now() + SETTLE));
                }
            }
            () = sleep_until(read_at.unwrap_or_else(Instant::now)), if read_at.is_some() => {
                read_at = None;
                let told = match timeout(PATIENCE, read(connection, &manager, after_us)).await {
                    Err(_) => {
                        read_at = Some(Instant::now() + AGAIN);
                        vec![Input::Down("it does not answer".into())]
                    }
                    Ok(Err(error)) => {
                        read_at = Some(Instant::now() + AGAIN);
                        vec![Input::Down(error.to_string())]
                    }
                    Ok(Ok((last, told))) => {
                        after_us = last;
                        told
                    }
                };
                for input in told {
                    if feed.send(input).await.is_err() {
                        return Ok(());
                    }
                }
                if *statistics {
                    let _ = manager.watch(INTERVAL_MS, false).await;
                }
            }
        }
    }
    Err(Error::Failure("the bus is gone".into()))
}

/// Has the bus start a service: true, it runs now; false, its owner changes when it does.
pub(crate) async fn start(bus: &DBusProxy<'_>, name: &'static str) -> Result<bool, String> {
    let owned = || name.try_into().map_err(|error: linkspan_bus::zbus::names::Error| error.to_string());
    if bus.name_has_owner(owned()?).await.unwrap_or(false) {
        return Ok(true);
    }
    let name = name.try_into().map_err(|error: linkspan_bus::zbus::names::Error| error.to_string())?;
    bus.start_service_by_name(name, 0).await.map(|_| false).map_err(|error| error.to_string())
}

/// Says when the service is to be read, or that it is not there. `None`: its owner changes then.
async fn begin(bus: &DBusProxy<'_>, feed: &Sender<Input>) -> Option<Instant> {
    match start(bus, NAME).await {
        Ok(runs) => runs.then(Instant::now),
        Err(why) => {
            let _ = feed.send(Input::Down(why)).await;
            None
        }
    }
}

/// All that is there now, and the events since.
async fn read(
    connection: &Connection,
    manager: &ManagerProxy<'_>,
    after_us: u64,
) -> Result<(u64, Vec<Input>), linkspan_bus::Error> {
    let objects = ObjectManagerProxy::new(connection, NAME, PATH).await?.get_managed_objects().await;
    let objects = objects.map_err(|error| linkspan_bus::Error::ZBus(error.into()))?;
    let plain = |(path, interfaces): (OwnedObjectPath, _)| {
        let interfaces: std::collections::HashMap<_, Dict> = interfaces;
        let named =
            interfaces.into_iter().map(|(name, properties): (linkspan_bus::zbus::names::OwnedInterfaceName, Dict)| {
                (name.to_string(), properties)
            });
        (path.to_string(), named.collect())
    };
    let objects = objects.into_iter().map(plain).collect();
    let mut events = manager.get_events(after_us, false).await?;
    let mut more = more_after(&events);
    while let Some(after_us) = more {
        let next = manager.get_events(after_us, false).await?;
        more = more_after(&next);
        events.extend(next);
    }
    let time = |event: &Dict| event.get("time_us").and_then(|time| u64::try_from(time).ok());
    let last = events.iter().filter_map(time).max().unwrap_or_default().max(after_us);
    let version = manager.version().await?;
    Ok((last, vec![Input::Up(version), Input::Objects(objects), Input::Events(events)]))
}

/// Asks for it beside everything else: a person may have to give a password.
fn change(manager: &ManagerProxy<'static>, feed: &Sender<Input>, ask: Ask) {
    let (manager, feed) = (manager.clone(), feed.clone());
    tokio::spawn(async move {
        let _ = feed.send(Input::Asked(ask.clone())).await;
        let answer = match &ask {
            Ask::Allow(uuid) => manager.allow(uuid).await.map(drop),
            Ask::Forget(uuid) => manager.forget(uuid).await.map(drop),
            Ask::Statistics(_) | Ask::Retry => Ok(()),
        };
        let _ = feed.send(Input::Answered(ask, answer.map_err(|error| error.to_string()))).await;
    });
}

/// Microseconds since 1970.
pub fn now_us() -> u64 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |since| since.as_micros() as u64)
}
