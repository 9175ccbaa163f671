//! The system service for programs that block, and that do their work without it.

use std::sync::mpsc::{TrySendError, sync_channel};
use std::time::Duration;

use linkspan_service::events::Event;
use zbus::blocking::connection::Builder;
use zbus::blocking::fdo::DBusProxy;
use zbus::names::BusName;

use crate::{Error, ManagerProxyBlocking, NAME, from_dict, more_after};

/// For how long an answer is waited for: a person may have to give a password.
const PATIENCE: Duration = Duration::from_secs(120);

/// Whether an error means that the service has no such method: it is older than this program.
pub fn unknown(error: &Error) -> bool {
    let Error::ZBus(zbus::Error::MethodError(name, ..)) = error else { return false };
    ["UnknownMethod", "UnknownInterface", "UnknownObject"]
        .iter()
        .any(|kind| name.as_str() == format!("org.freedesktop.DBus.Error.{kind}"))
}

/// The service.
#[derive(Clone, Debug)]
pub struct Client {
    manager: ManagerProxyBlocking<'static>,
}

impl Client {
    /// The service, if it runs. Does not start it.
    pub fn running() -> Option<Client> {
        Client::connect(|bus, name| bus.name_has_owner(name).unwrap_or(false))
    }

    /// The service, started by the bus if need be. `None`: there is no system bus, it is not installed, or it is masked.
    pub fn activated() -> Option<Client> {
        Client::connect(|bus, name| {
            bus.name_has_owner(name).unwrap_or(false)
                || NAME.try_into().is_ok_and(|name| bus.start_service_by_name(name, 0).is_ok())
        })
    }

    fn connect(there: impl FnOnce(&DBusProxy<'_>, BusName<'_>) -> bool) -> Option<Client> {
        let connection = Builder::system().ok()?.method_timeout(PATIENCE).build().ok()?;
        let bus = DBusProxy::new(&connection).ok()?;
        if !there(&bus, NAME.try_into().ok()?) {
            return None;
        }
        ManagerProxyBlocking::new(&connection).ok().map(|manager| Client { manager })
    }

    /// The methods.
    pub fn manager(&self) -> &ManagerProxyBlocking<'static> {
        &self.manager
    }

    /// Events later than this time: of cables, and of the caller's jobs or of all.
    ///
    /// # Errors
    /// [`Error::NotAuthorized`]: polkit refuses. [`Error::ZBus`]: the service has ended, or does not answer.
    pub fn events(&self, after_us: u64, all: bool) -> Result<Vec<Event>, Error> {
        let (mut events, mut after) = (Vec::new(), Some(after_us));
        while let Some(after_us) = after {
            let dicts = self.manager.get_events(after_us, all)?;
            // What a newer service tells of another kind is passed over.
            events.extend(dicts.iter().filter_map(|dict| from_dict(dict).ok()));
            after = more_after(&dicts);
        }
        Ok(events)
    }

    /// Version of the service; empty where it does not say.
    pub fn version(&self) -> String {
        self.manager.version().unwrap_or_default()
    }

    /// An item when something has happened since the one before. A thread takes the signals: left in the connection's queue until the
    /// caller comes back, they would hold up the answers behind them.
    ///
    /// # Errors
    /// [`zbus::Error`] of the bus, which refused the match rule or has ended the connection, or of a thread that cannot be had.
    pub fn changes(&self) -> zbus::Result<impl Iterator<Item = ()>> {
        let changes = self.manager.receive_events_changed()?;
        let (tell, told) = sync_channel(1);
        let hear = move || {
            for _ in changes {
                if matches!(tell.try_send(()), Err(TrySendError::Disconnected(()))) {
                    break;
                }
            }
        };
        let spawned = std::thread::Builder::new().name("events".into()).spawn(hear);
        spawned.map_err(|error| zbus::Error::InputOutput(error.into()))?;
        Ok(told.into_iter())
    }
}
