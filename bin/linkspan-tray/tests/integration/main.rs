//! The program on a bus of our own, with a StatusNotifierWatcher, a portal and a window of our own, beside the real interfaces of the
//! services: on a machine of our own making, and of a user with keys of its own.
#![allow(clippy::unwrap_used, reason = "helpers of tests are not tests to the lint")]
#![allow(missing_docs, reason = "of what the macro makes of a signal")]

use std::collections::{BTreeSet, HashMap};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use linkspan_bus::user::{FilesProxy, SharesProxy, User, UserServer};
use linkspan_bus::{Server, to_dict};
use linkspan_fabric::keys::{Keyring, Peer};
use linkspan_service::system::{Places, System};
use linkspan_topology::fixture::{Fixture, STRIX_HALO};
use linkspan_user::mirrors::Mirrors;
use linkspan_user::shares::Shares;
use linkspan_user::task::Tasks;
use tokio::sync::Notify;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use zbus::object_server::SignalEmitter;
use zbus::zvariant::{OwnedObjectPath, OwnedValue, Structure, Value};
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
    bus_at(&[])
}

fn bus_at(address: &[String]) -> Option<(Running, String)> {
    let mut command = Command::new("dbus-daemon");
    command.args(address);
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

    fn activate_action(&self, name: &str, words: Vec<OwnedValue>, _platform_data: HashMap<String, OwnedValue>) {
        assert_eq!(words, []);
        self.0.send(("asked to", name.to_owned())).unwrap();
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

/// The menu over D-Bus: number and label of each entry, those of its submenus behind it.
async fn menu(menu: &Proxy<'_>) -> Vec<(i32, String)> {
    let reply = menu.call_method("GetLayout", &(0i32, -1i32, Vec::<&str>::new())).await.unwrap();
    let (_, (_, _, children)): (u32, Entry) = reply.body().deserialize().unwrap();
    let (mut open, mut entries) = (children, Vec::new());
    while !open.is_empty() {
        let Value::Structure(structure) = Value::from(open.remove(0)) else { panic!("no entry") };
        let (id, properties, below): Entry = Structure::try_into(structure).unwrap();
        let label = properties.get("label").map(|label| label.to_string().trim_matches('"').to_owned());
        entries.push((id, label.unwrap_or_default()));
        open.splice(0..0, below);
    }
    entries
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
    match tokio::time::timeout(PATIENCE, found).await {
        Ok(id) => id,
        Err(_) => panic!("{label}, there: {there}: {:?}", menu(proxy).await),
    }
}

/// The menu may have changed, and its numbers with it, since it was read.
async fn click(proxy: &Proxy<'_>, label: &str) {
    let clicked = async {
        loop {
            let id = entry(proxy, label, true).await;
            match proxy.call_method("Event", &(id, "clicked", Value::from(0i32), 0u32)).await {
                Ok(_) => return,
                Err(zbus::Error::MethodError(_, Some(why), _)) if why == "id not found" => {}
                Err(other) => panic!("{label}: {other}"),
            }
        }
    };
    tokio::time::timeout(PATIENCE, clicked).await.expect(label);
}

fn program(address: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_linkspan-tray"));
    command.env("DBUS_SESSION_BUS_ADDRESS", address).env("DBUS_SYSTEM_BUS_ADDRESS", address);
    command
}

/// A watcher, a portal and a window on this bus: what they hear, and their connection.
async fn desktop(address: &str) -> (UnboundedReceiver<(&'static str, String)>, Connection) {
    let (hear, from) = unbounded_channel();
    let desktop = Builder::address(address).unwrap();
    let desktop = desktop.serve_at("/StatusNotifierWatcher", Watcher(hear.clone())).unwrap();
    let desktop = desktop.serve_at("/org/freedesktop/portal/desktop", Portal(hear.clone())).unwrap();
    let desktop = desktop.serve_at("/org/linkspan/Desktop", Window(hear)).unwrap();
    let names = ["org.kde.StatusNotifierWatcher", "org.freedesktop.portal.Desktop", "org.linkspan.Desktop"];
    let desktop = names.into_iter().fold(desktop, |desktop, name| desktop.name(name).unwrap());
    (from, desktop.build().await.unwrap())
}

#[tokio::test]
async fn the_tray_shows_the_cables_opens_the_window_tells_what_happens_and_quits() {
    let Some((_daemon, address)) = bus() else { return };
    let (mut from, desktop) = desktop(&address).await;

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
    click(&proxy, "Send Files…").await;
    assert_eq!(heard(&mut from, "asked to").await, "send");

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

#[tokio::test]
async fn the_tray_is_back_with_a_session_bus_that_is_started_again() {
    let socket = std::env::temp_dir().join(format!("linkspan-tray-bus-{}", std::process::id()));
    let at = [format!("--address=unix:path={}", socket.display())];
    let Some((daemon, _)) = bus_at(&at) else { return };
    // Without the number of the daemon, as sessions have it.
    let address = format!("unix:path={}", socket.display());
    let (mut from, first) = desktop(&address).await;
    let mut tray = Running(program(&address).spawn().unwrap());
    let item = heard(&mut from, "registered").await;
    let proxy = Proxy::new(&first, item, "/MenuBar", "com.canonical.dbusmenu").await.unwrap();
    // It has begun.
    click(&proxy, "Open linkspan").await;
    heard(&mut from, "activated").await;
    drop((proxy, daemon, first));
    let (_daemon, _) = bus_at(&at).unwrap();
    let (mut from, desktop) = desktop(&address).await;
    let item = heard(&mut from, "registered").await;
    let second = program(&address).output().unwrap();
    assert!(!second.status.success() && String::from_utf8_lossy(&second.stderr).contains("it runs already"));
    let proxy = Proxy::new(&desktop, item, "/MenuBar", "com.canonical.dbusmenu").await.unwrap();
    click(&proxy, "Quit").await;
    let ended = tokio::task::spawn_blocking(move || tray.0.wait().unwrap().success());
    assert!(tokio::time::timeout(PATIENCE, ended).await.unwrap().unwrap());
    std::fs::remove_file(socket).unwrap();
}

/// A service that says a lot before it answers.
struct Talker;

#[interface(name = "org.freedesktop.DBus.ObjectManager")]
impl Talker {
    async fn get_managed_objects(
        &self,
        #[zbus(signal_emitter)] emitter: SignalEmitter<'_>,
    ) -> HashMap<OwnedObjectPath, HashMap<String, HashMap<String, OwnedValue>>> {
        for n in 0..300u32 {
            Talker::interfaces_added(&emitter, n).await.unwrap();
        }
        HashMap::new()
    }

    #[zbus(signal)]
    async fn interfaces_added(emitter: &SignalEmitter<'_>, n: u32) -> zbus::Result<()>;
}

struct Manager;

#[interface(name = "org.linkspan.Link1.Manager")]
impl Manager {
    fn get_events(&self, _after_us: u64, _all: bool) -> Vec<HashMap<String, OwnedValue>> {
        Vec::new()
    }

    #[zbus(property)]
    fn version(&self) -> &str {
        env!("CARGO_PKG_VERSION")
    }
}

#[tokio::test]
async fn signals_that_come_while_all_is_read_hold_up_no_answer() {
    let Some((_daemon, address)) = bus() else { return };
    let (mut from, desktop) = desktop(&address).await;
    let service = Builder::address(&*address).unwrap().serve_at("/org/linkspan/Link1", Talker).unwrap();
    let service = service.serve_at("/org/linkspan/Link1", Manager).unwrap();
    let _service = service.name("org.linkspan.Link1").unwrap().build().await.unwrap();
    let _tray = Running(program(&address).spawn().unwrap());
    let item = heard(&mut from, "registered").await;
    let proxy = Proxy::new(&desktop, item, "/MenuBar", "com.canonical.dbusmenu").await.unwrap();
    entry(&proxy, "No host at a cable", true).await;
}

/// Two users who trust each other, with what they keep in folders that go with this.
struct Homes(PathBuf);

impl Drop for Homes {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

impl Homes {
    fn new() -> Homes {
        let folder = format!("linkspan-tray-{}", std::process::id());
        let homes = Homes(PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(folder));
        let _ = std::fs::remove_dir_all(&homes.0);
        let [one, two] = ["mini1", "mini2"].map(|name| {
            std::fs::create_dir_all(homes.0.join(name)).unwrap();
            (name, Keyring::make_in(&homes.0.join(name).join("linkspan"), false).unwrap())
        });
        for ((_, own), (name, other)) in [(&one, &two), (&two, &one)] {
            let hosts = vec!["127.0.0.1".into()];
            own.add(Peer { name: (*name).into(), key: other.public(), hosts }).unwrap();
        }
        homes
    }

    /// A folder of its own.
    fn folder(&self, name: &str) -> String {
        let folder = self.0.join(name);
        std::fs::create_dir_all(&folder).unwrap();
        folder.to_str().unwrap().to_owned()
    }

    /// The service of one of them, in a process that has its environment.
    fn service(&self, name: &str, address: &str) -> Running {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "a_user_s_service", "--nocapture", "--test-threads=1"]);
        command.env("TRAY_TEST_SERVICE", "1").env("DBUS_SESSION_BUS_ADDRESS", address);
        command.env("XDG_CONFIG_HOME", self.0.join(name)).env("XDG_STATE_HOME", self.0.join(name).join("state"));
        command.env("LINKSPAN_IFNAME", "=lo").env("LINKSPAN_STATS_DIR", "off").env_remove("LINKSPAN_PSK_FILE");
        Running(command.spawn().unwrap())
    }
}

/// A share `in` of the service on this bus: how others write it.
async fn share(address: &str, directory: &str) -> String {
    let bus = Builder::address(address).unwrap().build().await.unwrap();
    let shares = SharesProxy::new(&bus).await.unwrap();
    let added = async {
        // Until the service has its name.
        while shares.add("in", directory, true).await.is_err() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, added).await.unwrap();
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let options = serde_json::json!({ "bind": ["127.0.0.1"], "port": port });
    shares.serve(&to_dict(&options)).await.unwrap();
    format!("[127.0.0.1:{port}]:in")
}

/// The part of the user's service; not a test of its own.
#[tokio::test]
async fn a_user_s_service() {
    if std::env::var_os("TRAY_TEST_SERVICE").is_none() {
        return;
    }
    let changed = Arc::new(Notify::new());
    let tell: Arc<dyn Fn() + Send + Sync> = Arc::new({
        let changed = changed.clone();
        move || changed.notify_one()
    });
    let state = linkspan_user::place::state_dir("service").unwrap();
    let say: linkspan_user::task::Say = Arc::new(|line: &str| eprintln!("{line}"));
    let told = tell.clone();
    let tasks = Arc::new(Tasks::new(state.join("history"), say.clone(), Box::new(move || told())));
    let shares = Shares::new(state.join("shares.json"), true, say.clone(), tell.clone());
    let mirrors = Mirrors::new(state.join("mirrors.json"), &say);
    let user = Arc::new(User { tasks, mirrors, shares, say, changed: tell });
    let uid = rustix::process::geteuid().as_raw();
    let server = UserServer::start(Builder::session().unwrap(), &user, uid).await.unwrap();
    loop {
        tokio::select! {
            () = changed.notified() => drop(server.update().await),
            // With the bus that the test has ended.
            () = server.closed() => std::process::exit(0),
        }
    }
}

#[tokio::test]
async fn the_tray_shows_what_runs_pauses_mirrors_starts_a_test_and_tells_how_it_ended() {
    let Some(((_daemon, address), (_other, peer))) = bus().zip(bus()) else { return };
    let (mut from, desktop) = desktop(&address).await;
    let homes = Homes::new();
    let (_service, _peer) = (homes.service("mini1", &address), homes.service("mini2", &peer));
    homes.folder("served/copy");
    let (source, place) = (homes.folder("copied"), share(&peer, &homes.folder("served")).await);
    let mut tray = Running(program(&address).spawn().unwrap());
    let item = heard(&mut from, "registered").await;
    let proxy = Proxy::new(&desktop, item.clone(), "/MenuBar", "com.canonical.dbusmenu").await.unwrap();
    entry(&proxy, "Measure Bandwidth", true).await;

    let files = FilesProxy::new(&desktop).await.unwrap();
    let options = to_dict(&HashMap::from([("init", true), ("watch", true)]));
    files.mirror(&source, &format!("{place}/copy"), &options).await.unwrap();
    let mirror = format!("{place}/copy kept like {source}").replace('_', "__");
    for _ in 0..2 {
        entry(&proxy, &mirror, true).await;
        click(&proxy, "Pause Mirrors").await;
        entry(&proxy, &mirror, false).await;
        click(&proxy, "Pause Mirrors").await;
    }
    entry(&proxy, &mirror, true).await;

    // Keys that others may change are used by nothing, and all else is there.
    std::fs::write(homes.0.join("file"), "linkspan").unwrap();
    let file = homes.0.join("file").to_str().unwrap().to_owned();
    let (peers, mode) = (homes.0.join("mini1/linkspan/peers"), std::fs::Permissions::from_mode);
    std::fs::set_permissions(&peers, mode(0o666)).unwrap();
    files.send(std::slice::from_ref(&file), &place, &HashMap::new()).await.unwrap();
    let said = heard(&mut from, "notified").await;
    assert!(said.starts_with("A transfer failed") && said.contains("LS0522"), "{said}");
    entry(&proxy, "Measure Bandwidth", false).await;
    entry(&proxy, &mirror, true).await;
    std::fs::set_permissions(&peers, mode(0o644)).unwrap();
    files.send(&[file], &place, &HashMap::new()).await.unwrap();
    assert_eq!(heard(&mut from, "notified").await, format!("A transfer is done: file to {place}"));
    entry(&proxy, "Measure Bandwidth", true).await;

    // Nobody serves tests there. That mirrors were paused is no news.
    click(&proxy, "mini2").await;
    let said = heard(&mut from, "notified").await;
    assert!(said.starts_with("A test failed: Bandwidth to mini2: ") && said.contains("lspan perf serve"), "{said}");

    let file = format!("/proc/{}/smaps_rollup", tray.0.id());
    let memory = std::fs::read_to_string(file).unwrap();
    let pss = memory.lines().find_map(|line| line.strip_prefix("Pss:")?.split_whitespace().next()).unwrap();
    assert!(pss.parse::<u32>().unwrap() <= 20 << 10, "KiB that are its own or its share of others': {pss}");
    click(&proxy, "Quit").await;
    let ended = tokio::task::spawn_blocking(move || tray.0.wait().unwrap().success());
    assert!(tokio::time::timeout(PATIENCE, ended).await.unwrap().unwrap());
}
