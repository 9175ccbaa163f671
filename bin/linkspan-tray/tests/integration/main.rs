//! The program on a bus of our own, with a StatusNotifierWatcher, a portal and a window of our own, beside the real interfaces of the
//! service on a machine of our own making.
#![allow(clippy::unwrap_used, reason = "helpers of tests are not tests to the lint")]

use std::collections::{BTreeSet, HashMap};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use linkspan_bus::Server;
use linkspan_service::system::{Places, System};
use linkspan_topology::fixture::{Fixture, STRIX_HALO};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use zbus::zvariant::{OwnedValue, Structure, Value};
use zbus::{Connection, Proxy, connection::Builder, interface};

/// How long what must come may take on a slow machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// Ended with the test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A session bus, which is the system bus too. `None`, with a line: there is no dbus-daemon here.
fn bus() -> Option<(Running, String)> {
    let mut command = Command::new("dbus-daemon");
    command.args(["--session", "--nofork", "--nopidfile", "--print-address"]).stdout(Stdio::piped());
    let mut daemon = match command.spawn() {
        Ok(daemon) => Running(daemon),
        Err(error) => {
            eprintln!("skipped: dbus-daemon: {error}");
            return None;
        }
    };
    let mut line = String::new();
    let out = daemon.0.stdout.take().unwrap();
    std::io::BufRead::read_line(&mut std::io::BufReader::new(out), &mut line).unwrap();
    Some((daemon, line.trim().to_owned()))
}

/// What was heard of the program: the method, and what it said.
type Heard = UnboundedSender<(&'static str, String)>;

struct Watcher(Heard);

#[interface(name = "org.kde.StatusNotifierWatcher")]
impl Watcher {
    fn register_status_notifier_item(&self, service: &str) {
        self.0.send(("registered", service.to_owned())).unwrap();
    }

    #[zbus(property)]
    fn is_status_notifier_host_registered(&self) -> bool {
        true
    }
}

struct Portal(Heard);

#[interface(name = "org.freedesktop.portal.Notification")]
impl Portal {
    fn add_notification(&self, id: &str, notification: HashMap<String, OwnedValue>) {
        let text = |key: &str| String::try_from(notification[key].clone()).unwrap();
        assert!(!id.is_empty());
        self.0.send(("notified", format!("{}: {}", text("title"), text("body")))).unwrap();
    }
}

struct Window(Heard);

#[interface(name = "org.freedesktop.Application")]
impl Window {
    fn activate(&self, _platform_data: HashMap<String, OwnedValue>) {
        self.0.send(("activated", String::new())).unwrap();
    }
}

async fn heard(from: &mut UnboundedReceiver<(&'static str, String)>, what: &str) -> String {
    loop {
        let (method, text) = tokio::time::timeout(PATIENCE, from.recv()).await.expect(what).unwrap();
        if method == what {
            return text;
        }
    }
}

/// An entry of a menu (com.canonical.dbusmenu): number, properties, entries below.
type Entry = (i32, HashMap<String, OwnedValue>, Vec<OwnedValue>);

/// The menu over D-Bus: number and label of each entry.
async fn menu(menu: &Proxy<'_>) -> Vec<(i32, String)> {
    let reply = menu.call_method("GetLayout", &(0i32, -1i32, Vec::<&str>::new())).await.unwrap();
    let (_, (_, _, children)): (u32, Entry) = reply.body().deserialize().unwrap();
    let entry = |child: OwnedValue| {
        let Value::Structure(structure) = Value::from(child) else { panic!("no entry") };
        let entry: Entry = Structure::try_into(structure).unwrap();
        (entry.0, entry.1.get("label").map(|label| label.to_string().trim_matches('"').to_owned()).unwrap_or_default())
    };
    children.into_iter().map(entry).collect()
}

/// Until the menu has, or has not, an entry of this label: its number.
async fn entry(proxy: &Proxy<'_>, label: &str, there: bool) -> i32 {
    let found = async {
        loop {
            let entries = menu(proxy).await;
            match entries.iter().find(|(_, text)| text == label) {
                Some((id, _)) if there => return *id,
                None if !there => return 0,
                _ => tokio::task::yield_now().await,
            }
        }
    };
    tokio::time::timeout(PATIENCE, found).await.unwrap_or_else(|_| panic!("{label}, there: {there}"))
}

async fn click(proxy: &Proxy<'_>, label: &str) {
    let id = entry(proxy, label, true).await;
    proxy.call_method("Event", &(id, "clicked", Value::from(0i32), 0u32)).await.unwrap();
}

fn program(address: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_linkspan-tray"));
    command.env("DBUS_SESSION_BUS_ADDRESS", address).env("DBUS_SYSTEM_BUS_ADDRESS", address);
    command
}

#[tokio::test]
async fn the_tray_shows_the_cables_opens_the_window_tells_what_happens_and_quits() {
    let Some((_daemon, address)) = bus() else { return };
    let (hear, mut from) = unbounded_channel();
    let desktop = Builder::address(&*address).unwrap();
    let desktop = desktop.serve_at("/StatusNotifierWatcher", Watcher(hear.clone())).unwrap();
    let desktop = desktop.serve_at("/org/freedesktop/portal/desktop", Portal(hear.clone())).unwrap();
    let desktop = desktop.serve_at("/org/linkspan/Desktop", Window(hear)).unwrap();
    let names = ["org.kde.StatusNotifierWatcher", "org.freedesktop.portal.Desktop", "org.linkspan.Desktop"];
    let desktop = names.into_iter().fold(desktop, |desktop, name| desktop.name(name).unwrap());
    let desktop: Connection = desktop.build().await.unwrap();

    let fix = Fixture::tree(STRIX_HALO);
    let at = |name: &str| fix.root.join(name);
    let places = Places { root: fix.root.clone(), allowed: at("var"), statistics: at("stats"), devmem: at("run") };
    let system = Arc::new(System::new(places, 100, Box::new(|_, _| {})));
    system.look(&BTreeSet::new());
    let service = Builder::address(&*address).unwrap();
    let mut service = Server::start(service, &system, Arc::default()).await.unwrap();

    let mut tray = Running(program(&address).spawn().unwrap());
    let item = heard(&mut from, "registered").await;
    let proxy = Proxy::new(&desktop, item.clone(), "/MenuBar", "com.canonical.dbusmenu").await.unwrap();
    entry(&proxy, "strix-b: 40 Gb/s", true).await;
    entry(&proxy, "A cable cannot be used", true).await;
    let icon = Proxy::new(&desktop, item, "/StatusNotifierItem", "org.kde.StatusNotifierItem").await.unwrap();
    assert_eq!(icon.get_property::<String>("IconName").await.unwrap(), "network-error-symbolic");

    click(&proxy, "Open linkspan").await;
    heard(&mut from, "activated").await;

    let (cable, away) = (at("sys/bus/thunderbolt/devices/0-1"), at("away"));
    let mut plug = async |there: bool| {
        if there { std::fs::rename(&away, &cable) } else { std::fs::rename(&cable, &away) }.unwrap();
        system.look(&BTreeSet::new());
        let (look, hosts) = system.seen();
        service.update(&look, &hosts).await.unwrap();
    };
    plug(false).await;
    entry(&proxy, "No host at a cable", true).await;
    entry(&proxy, "strix-b: 40 Gb/s", false).await;
    plug(true).await;
    assert!(heard(&mut from, "notified").await.starts_with("Cable plugged in: "));

    click(&proxy, "Notifications").await;
    plug(false).await;
    entry(&proxy, "No host at a cable", true).await;
    plug(true).await;
    entry(&proxy, "strix-b: 40 Gb/s", true).await;
    // One of its kind; it says so and leaves.
    let second = program(&address).output().unwrap();
    assert!(!second.status.success() && String::from_utf8_lossy(&second.stderr).contains("it runs already"));

    click(&proxy, "Quit").await;
    let ended = tokio::task::spawn_blocking(move || tray.0.wait().unwrap().success());
    assert!(tokio::time::timeout(PATIENCE, ended).await.unwrap().unwrap());
    while let Ok((method, text)) = from.try_recv() {
        assert!(method != "notified" || text.starts_with("Cable cannot be used"), "{method} {text}");
    }
}
