//! The services on D-Bus, as a stream of [`Input`]s.

use std::time::Duration;

use futures_util::StreamExt;
use linkspan_bus::zbus::connection::Builder;
use linkspan_bus::zbus::fdo::{DBusProxy, ObjectManagerProxy};
use linkspan_bus::zbus::proxy::CacheProperties;
use linkspan_bus::zbus::{Connection, MatchRule, MessageStream, zvariant::OwnedObjectPath};
use linkspan_bus::{Dict, ManagerProxy, NAME, PATH, StatisticsChanged};
use tokio::sync::mpsc::{Receiver, Sender};
use tokio::time::{Instant, sleep_until, timeout};

use crate::Input;

/// What a person asks the service for.
#[derive(Clone, Debug, PartialEq, Eq)]
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

/// After a change others follow: all of them are read at once, after this time.
pub(crate) const SETTLE: Duration = Duration::from_millis(100);

/// Between two tries to reach a bus that is away.
pub(crate) const AGAIN: Duration = Duration::from_secs(5);

/// For how long the service may take to tell what is there.
pub(crate) const PATIENCE: Duration = Duration::from_secs(25);

/// Between two looks at statistics, milliseconds.
const INTERVAL_MS: u32 = 1000;

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
            Ok(Some(Ask::Allow(uuid) | Ask::Forget(uuid))) => {
                let _ = feed.send(Input::Answered(uuid, Err("the service does not run".into()))).await;
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
    let mut owners = bus.receive_name_owner_changed_with_args(&[(0, NAME)]).await?;
    let rule =
        MatchRule::builder().msg_type(linkspan_bus::zbus::message::Type::Signal).sender(NAME)?.path_namespace(PATH)?;
    let mut signals = MessageStream::for_match_rule(rule.build(), &connection, Some(64)).await?;
    // What was read of a service is not what the next one of its name says.
    let manager = ManagerProxy::builder(&connection).cache_properties(CacheProperties::No).build().await?;
    let (mut after_us, mut read_at) = (0, begin(&bus, feed).await);
    loop {
        tokio::select! {
            ask = asks.recv() => match ask {
                None => return Ok(()),
                Some(Ask::Retry) => read_at = begin(&bus, feed).await,
                Some(Ask::Statistics(wanted)) => {
                    *statistics = wanted;
                    let _ = if wanted { manager.watch(INTERVAL_MS, false).await } else { manager.unwatch().await.map(drop) };
                }
                Some(Ask::Allow(uuid)) => change(&manager, feed, uuid, true),
                Some(Ask::Forget(uuid)) => change(&manager, feed, uuid, false),
            },
            owner = owners.next() => {
                let Some(owner) = owner else { break };
                read_at = None;
                if owner.args()?.new_owner().is_some() {
                    (after_us, read_at) = (0, Some(Instant::now()));
                } else if feed.send(Input::Down("it has ended".into())).await.is_err() {
                    return Ok(());
                }
            }
            signal = signals.next() => match signal {
                None => break,
                Some(Err(_)) => {}
                Some(Ok(message)) => match StatisticsChanged::from_message(message) {
                    Some(changed) => {
                        let now = now_us();
                        let processes = changed.args().map(|args| args.processes().clone());
                        if let Ok(processes) = processes && feed.send(Input::Statistics(processes, now)).await.is_err() {
                            return Ok(());
                        }
                    }
                    None => read_at = read_at.or_else(|| Some(Instant::now() + SETTLE)),
                },
            },
            () = sleep_until(read_at.unwrap_or_else(Instant::now)), if read_at.is_some() => {
                read_at = None;
                let told = match timeout(PATIENCE, read(&connection, &manager, after_us)).await {
                    Err(_) => vec![Input::Down("it does not answer".into())],
                    Ok(Err(error)) => vec![Input::Down(error.to_string())],
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
    Err(linkspan_bus::zbus::Error::Failure("the bus is gone".into()))
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
    let events = manager.get_events(after_us, false).await?;
    let time = |event: &Dict| event.get("time_us").and_then(|time| u64::try_from(time).ok());
    let last = events.iter().filter_map(time).max().unwrap_or_default().max(after_us);
    let version = manager.version().await?;
    Ok((last, vec![Input::Up(version), Input::Objects(objects), Input::Events(events)]))
}

/// Asks for it beside everything else: a person may have to give a password.
fn change(manager: &ManagerProxy<'static>, feed: &Sender<Input>, uuid: String, allow: bool) {
    let (manager, feed) = (manager.clone(), feed.clone());
    tokio::spawn(async move {
        let _ = feed.send(Input::Asked(uuid.clone())).await;
        let answer = if allow { manager.allow(&uuid).await } else { manager.forget(&uuid).await };
        let answer = answer.map(drop).map_err(|error| error.to_string());
        let _ = feed.send(Input::Answered(uuid, answer)).await;
    });
}

/// Microseconds since 1970.
pub fn now_us() -> u64 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |since| since.as_micros() as u64)
}
