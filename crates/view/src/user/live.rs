//! The user's service on D-Bus, as a stream of [`Input`]s.

use std::collections::HashMap;
use std::time::Duration;

use futures_util::StreamExt;
use linkspan_bus::user::{
    FilesProxy, KeysProxy, ManagerProxy, NAME, PATH, ProgressChanged, SharesProxy, TaskProxy, TestsProxy, UserError,
};
use linkspan_bus::zbus::connection::Builder;
use linkspan_bus::zbus::fdo::{DBusProxy, NameOwnerChangedStream, ObjectManagerProxy};
use linkspan_bus::zbus::names::OwnedInterfaceName;
use linkspan_bus::zbus::proxy::CacheProperties;
use linkspan_bus::zbus::zvariant::OwnedObjectPath;
use linkspan_bus::zbus::{Connection, Result};
use linkspan_bus::{Dict, to_dict};
use tokio::sync::mpsc::{Receiver, Sender};
use tokio::time::{Instant, sleep_until, timeout};

use super::{Answer, Ask, Update};
use crate::Input;
use crate::live::{AGAIN, Heard, PATIENCE, SETTLE, now_us, signals, start};

/// Between two looks at the progress of tasks, milliseconds. Only while some run.
const INTERVAL_MS: u32 = 500;

/// For how long a call may take: the service asks a peer, which is away perhaps.
const CALL: Duration = Duration::from_secs(120);

/// Feeds a model until it is dropped: with the session bus at `address`, or the usual one. The bus starts the service; where it goes away
/// it is waited for, and had back with its tasks.
pub async fn follow(address: Option<&str>, mut asks: Receiver<Ask>, feed: Sender<Input>) {
    loop {
        let why = match session(address, &mut asks, &feed).await {
            Ok(()) => return,
            Err(error) => error.to_string(),
        };
        if tell(&feed, Update::Down(why)).await.is_err() {
            return;
        }
        // Whoever asks does not wait.
        match timeout(AGAIN, asks.recv()).await {
            Ok(None) => return,
            Ok(Some(Ask::Retry)) | Err(_) => {}
            Ok(Some(ask)) => {
                let _ = tell(&feed, Update::Answered(ask, Err("the service does not run".into()))).await;
            }
        }
    }
}

/// Nobody listens any more.
struct Deaf;

async fn tell(feed: &Sender<Input>, told: Update) -> std::result::Result<(), Deaf> {
    feed.send(Input::User(told)).await.map_err(|_| Deaf)
}

/// One connection, until it breaks (`Err`) or nobody listens any more.
async fn session(address: Option<&str>, asks: &mut Receiver<Ask>, feed: &Sender<Input>) -> Result<()> {
    let builder = match address {
        Some(address) => Builder::address(address)?,
        None => Builder::session()?,
    };
    let connection = builder.method_timeout(CALL).build().await?;
    let bus = DBusProxy::new(&connection).await?;
    let owners = bus.receive_name_owner_changed_with_args(&[(0, NAME)]).await?;
    let (heard, signals) = (Heard::default(), signals(&connection, NAME, PATH).await?);
    tokio::select! {
        ended = heard.listen(signals, "ProgressChanged") => Err(ended),
        ended = followed(&connection, &bus, owners, &heard, asks, feed) => ended,
    }
}

async fn followed(
    connection: &Connection,
    bus: &DBusProxy<'_>,
    mut owners: NameOwnerChangedStream,
    heard: &Heard,
    asks: &mut Receiver<Ask>,
    feed: &Sender<Input>,
) -> Result<()> {
    // What was read of a service is not what the next one of its name says.
    let manager = ManagerProxy::builder(connection).cache_properties(CacheProperties::No).build().await?;
    // Its last signals are no reason to have the bus start it again.
    let (mut watches, mut gone) = (false, false);
    // The place that is looked at: what is in it may be another when a task has ended.
    let mut place = None;
    let begin = async || match start(bus, NAME).await {
        Ok(true) => Ok(Some(Instant::now())),
        Ok(false) => Ok(None),
        Err(why) => tell(feed, Update::Down(why)).await.map(|()| None),
    };
    let Ok(mut read_at) = begin().await else { return Ok(()) };
    loop {
        let told = tokio::select! {
            ask = asks.recv() => match ask {
                None => return Ok(()),
                Some(Ask::Retry) => {
                    let Ok(at) = begin().await else { return Ok(()) };
                    read_at = at;
                    continue;
                }
                Some(ask) => {
                    if let Ask::List(_) = &ask {
                        place = Some(ask.clone());
                    }
                    carry_out(connection, feed, ask);
                    continue;
                }
            },
            owner = owners.next() => {
                let Some(owner) = owner else { break };
                (read_at, watches) = (None, false);
                gone = owner.args()?.new_owner().is_none();
                if !gone {
                    read_at = Some(Instant::now());
                    continue;
                }
                vec![Update::Down("it has ended".into())]
            }
            news = heard.news() => {
                if news.changed && !gone {
                    place.iter().filter(|_| news.ended).for_each(|ask| carry_out(connection, feed, ask.clone()));
                    read_at = read_at.or_else(|| Some(Instant::now() + SETTLE));
                }
                let Some(changed) = news.numbers.and_then(ProgressChanged::from_message) else { continue };
                let plain = |(path, dict): (&OwnedObjectPath, &Dict)| (path.to_string(), dict.clone());
                let Ok(args) = changed.args() else { continue };
                vec![Update::Progress(args.tasks().iter().map(plain).collect(), now_us())]
            }
            () = sleep_until(read_at.unwrap_or_else(Instant::now)), if read_at.is_some() => {
                read_at = None;
                match timeout(PATIENCE, read(connection, &manager)).await {
                    Err(_) => {
                        read_at = Some(Instant::now() + AGAIN);
                        vec![Update::Down("it does not answer".into())]
                    }
                    Ok(Err(error)) => {
                        read_at = Some(Instant::now() + AGAIN);
                        vec![Update::Down(error.to_string())]
                    }
                    Ok(Ok((running, told))) => {
                        // Numbers that nobody has are not sent.
                        if running != watches {
                            let _ = if running { manager.watch(INTERVAL_MS).await } else { manager.unwatch().await.map(drop) };
                            watches = running;
                        }
                        told
                    }
                }
            }
        };
        for one in told {
            if tell(feed, one).await.is_err() {
                return Ok(());
            }
        }
    }
    Err(linkspan_bus::zbus::Error::Failure("the bus is gone".into()))
}

/// All that is there now, and whether a task runs.
async fn read(
    connection: &Connection,
    manager: &ManagerProxy<'_>,
) -> std::result::Result<(bool, Vec<Update>), UserError> {
    let objects = ObjectManagerProxy::new(connection, NAME, PATH).await?.get_managed_objects().await;
    let objects = objects.map_err(|error| UserError::ZBus(error.into()))?;
    let task = |(path, interfaces): (OwnedObjectPath, HashMap<OwnedInterfaceName, Dict>)| {
        let of_task = |(name, _): &(OwnedInterfaceName, Dict)| name.as_str() == "org.linkspan.User1.Task";
        interfaces.into_iter().find(of_task).map(|(_, properties)| (path.to_string(), properties))
    };
    let tasks: Vec<(String, Dict)> = objects.into_iter().filter_map(task).collect();
    let shares = SharesProxy::builder(connection).cache_properties(CacheProperties::No).build().await?;
    let keys = KeysProxy::new(connection).await?;
    let (serving, addresses, error) = (shares.serving().await?, shares.addresses().await?, shares.error().await?);
    let shares = Update::Shares(shares.list().await?, serving, addresses, error);
    let keys = match told(&keys).await {
        Err(UserError::ZBus(error)) => return Err(UserError::ZBus(error)),
        told => Update::Keys(told.map_err(|error| text(&error))),
    };
    let history = Update::History(manager.get_history(0).await?);
    let version = Update::Up(manager.version().await?);
    let running = !tasks.is_empty();
    Ok((running, vec![version, Update::Tasks(tasks), history, shares, keys]))
}

/// This user's key, and whom it trusts.
async fn told(keys: &KeysProxy<'_>) -> std::result::Result<(String, String, Vec<Dict>), UserError> {
    let trusted = keys.list().await?;
    // To show a key is to make one: who trusts nobody may do without.
    let (line, fingerprint) = if trusted.is_empty() { Default::default() } else { keys.show("").await? };
    Ok((line, fingerprint, trusted))
}

/// Asks for it beside everything else: a peer may be slow.
fn carry_out(connection: &Connection, feed: &Sender<Input>, ask: Ask) {
    let (connection, feed) = (connection.clone(), feed.clone());
    tokio::spawn(async move {
        let _ = tell(&feed, Update::Asked(ask.clone())).await;
        let answer = call(&connection, &ask).await.map_err(|error| text(&error));
        let _ = tell(&feed, Update::Answered(ask, answer)).await;
    });
}

/// A task that has ended has no object any more.
fn gone(error: &UserError) -> bool {
    match error {
        UserError::NotFound(_) => true,
        UserError::ZBus(linkspan_bus::zbus::Error::MethodError(name, ..)) => {
            name.as_str() == "org.freedesktop.DBus.Error.UnknownObject"
        }
        _ => false,
    }
}

/// What the service said, without the name of the error.
fn text(error: &UserError) -> String {
    match error {
        UserError::NotPermitted(text)
        | UserError::InvalidArgument(text)
        | UserError::NoPeer(text)
        | UserError::NotFound(text)
        | UserError::LimitReached(text)
        | UserError::Failed(text) => text.clone(),
        other => other.to_string(),
    }
}

async fn call(connection: &Connection, ask: &Ask) -> std::result::Result<Answer, UserError> {
    let (tests, files) = (TestsProxy::new(connection).await?, FilesProxy::new(connection).await?);
    let (keys, shares) = (KeysProxy::new(connection).await?, SharesProxy::new(connection).await?);
    let none = Dict::new();
    let asked = |options: &str| to_dict(&serde_json::from_str::<serde_json::Value>(options).unwrap_or_default());
    match ask {
        Ask::Test { test, peer } => drop(tests.start(test, peer, &none).await?),
        Ask::Cancel(path) => {
            let path = OwnedObjectPath::try_from(path.as_str()).map_err(linkspan_bus::zbus::Error::Variant)?;
            match TaskProxy::builder(connection).destination(NAME)?.path(path)?.build().await?.cancel().await {
                // It has ended by itself meanwhile.
                Err(error) if gone(&error) => {}
                cancelled => cancelled?,
            }
        }
        Ask::Send { from, to, options } => drop(files.send(from, to, &asked(options)).await?),
        Ask::Get { from, to, options } => drop(files.get(from, to, &asked(options)).await?),
        Ask::Mirror { source, destination, options } => drop(files.mirror(source, destination, &asked(options)).await?),
        Ask::List(place) => {
            let (entries, all) = files.list(place).await?;
            return Ok(Answer::Listed(entries, all));
        }
        Ask::Share { name, directory, writable } => shares.add(name, directory, *writable).await?,
        Ask::Unshare(name) => shares.remove(name).await?,
        Ask::Serve(true) => shares.serve(&none).await?,
        Ask::Serve(false) => drop(shares.stop().await?),
        Ask::Offer => {
            let (line, _, task) = keys.offer("", "").await?;
            return Ok(Answer::Offered(line, task.to_string()));
        }
        Ask::Join(line) => drop(keys.join(line, "", "").await?),
        Ask::Distrust(name) => drop(keys.forget(name).await?),
        Ask::Retry => {}
    }
    Ok(Answer::Done)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_that_has_ended_meanwhile_needs_no_cancelling_and_what_is_refused_is_said() {
        let bus = |name: &str| {
            let call = linkspan_bus::zbus::Message::method_call("/", "Cancel").unwrap().build(&()).unwrap();
            UserError::ZBus(linkspan_bus::zbus::Error::MethodError(name.try_into().unwrap(), None, call))
        };
        assert!(gone(&bus("org.freedesktop.DBus.Error.UnknownObject")));
        assert!(gone(&UserError::NotFound("no such task".into())));
        assert!(!gone(&bus("org.freedesktop.DBus.Error.NoReply")));
        assert!(!gone(&UserError::LimitReached("too many calls".into())));
    }
}
