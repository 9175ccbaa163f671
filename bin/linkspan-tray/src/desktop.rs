//! What the session's desktop does for us: notifications by the portal, the window by D-Bus activation.

use std::collections::HashMap;
use std::time::Duration;

use linkspan_bus::zbus::connection::Builder;
use linkspan_bus::zbus::fdo::{DBusProxy, RequestNameFlags};
use linkspan_bus::zbus::zvariant::{DynamicType, Value};
use linkspan_bus::zbus::{Connection, Result, fdo::RequestNameReply};
use linkspan_view::Notice;
use serde::Serialize;

/// The name of the window's program (freedesktop Desktop Entry Specification, D-Bus activation).
const WINDOW: &str = "org.linkspan.Desktop";

/// Our own, so that there is one tray.
const OWN: &str = "org.linkspan.Tray";

/// How long the window or the portal may take to be started by the bus and to answer.
const PATIENCE: Duration = Duration::from_secs(25);

#[derive(Clone, Debug)]
pub(crate) struct Desktop(Connection);

impl Desktop {
    pub(crate) async fn connect() -> Result<Desktop> {
        Builder::session()?.method_timeout(PATIENCE).build().await.map(Desktop)
    }

    /// False: another one has the name.
    pub(crate) async fn alone(&self) -> bool {
        let answer = self.0.request_name_with_flags(OWN, RequestNameFlags::DoNotQueue.into()).await;
        matches!(answer, Ok(RequestNameReply::PrimaryOwner | RequestNameReply::AlreadyOwner))
    }

    /// Until the bus has ended the connection.
    pub(crate) async fn closed(&self) {
        self.0.closed().await;
    }

    /// Whether the window runs or can be started.
    pub(crate) async fn has_window(&self) -> bool {
        let Ok(bus) = DBusProxy::new(&self.0).await else { return false };
        let names = bus.list_activatable_names().await.unwrap_or_default();
        let Ok(name) = WINDOW.try_into() else { return false };
        names.iter().any(|name| name.as_str() == WINDOW) || bus.name_has_owner(name).await.unwrap_or(false)
    }

    pub(crate) async fn open_window(&self) -> Result<()> {
        let data: HashMap<&str, Value<'_>> = HashMap::new();
        self.window("Activate", &data).await
    }

    /// The window asks which.
    pub(crate) async fn send_files(&self) -> Result<()> {
        let (data, none): (HashMap<&str, Value<'_>>, Vec<Value<'_>>) = Default::default();
        self.window("ActivateAction", &("send", none, data)).await
    }

    async fn window(&self, method: &str, body: &(impl Serialize + DynamicType)) -> Result<()> {
        let (path, interface) = ("/org/linkspan/Desktop", "org.freedesktop.Application");
        self.0.call_method(Some(WINDOW), path, Some(interface), method, body).await.map(drop)
    }

    /// By org.freedesktop.portal.Notification; the same id takes the place of the notification before.
    pub(crate) async fn notify(&self, notice: &Notice) -> Result<()> {
        let (title, body) = (notice.title.as_str(), notice.text.as_str());
        let fields: HashMap<&str, Value<'_>> = HashMap::from([("title", title.into()), ("body", body.into())]);
        let (name, path) = ("org.freedesktop.portal.Desktop", "/org/freedesktop/portal/desktop");
        let interface = Some("org.freedesktop.portal.Notification");
        self.0.call_method(Some(name), path, interface, "AddNotification", &(&*notice.id, fields)).await.map(drop)
    }
}
