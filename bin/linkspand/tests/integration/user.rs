//! The service of a user as it runs: the program on a bus of its own, with a state of its own, and another one as its peer.

mod files;
mod keys;
mod measure;

use std::cell::RefCell;
use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use linkspan_bus::user::{NAME, PATH};
use linkspan_bus::zbus::blocking::connection::Builder;
use linkspan_bus::zbus::blocking::fdo::{DBusProxy, ObjectManagerProxy, PropertiesProxy};
use linkspan_bus::zbus::blocking::{Connection, MessageIterator};
use linkspan_bus::zbus::zvariant::{DynamicType, OwnedObjectPath};
use linkspan_bus::zbus::{self, MatchRule, Message};
use linkspan_bus::{Dict, from_dict, to_dict};
use serde::Serialize;
use serde_json::Value;

use super::bus::Bus;
use super::{come, is_root, program, until};

/// Folders of two users that have one cluster key, or none; gone with the value.
pub(crate) struct World {
    dir: PathBuf,
    key: bool,
}

impl World {
    pub(crate) fn new(name: &str, key: bool) -> World {
        World::below(Path::new(env!("CARGO_TARGET_TMPDIR")), name, key)
    }

    fn below(folder: &Path, name: &str, key: bool) -> World {
        let dir = folder.join(format!("linkspan-user-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&dir);
        for sub in ["one", "two", "data"] {
            fs::create_dir_all(dir.join(sub)).unwrap();
        }
        fs::write(dir.join("key"), "0123456789abcdef".repeat(4)).unwrap();
        fs::set_permissions(dir.join("key"), fs::Permissions::from_mode(0o600)).unwrap();
        World { dir, key }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    pub(crate) fn text(&self, name: &str) -> String {
        self.path(name).to_str().unwrap().to_owned()
    }

    fn spawn(&self, home: &str, bus: &Bus) -> Child {
        self.start(program(), home, &bus.address())
    }

    fn start(&self, mut command: Command, home: &str, address: &str) -> Child {
        command.args(["--user", "-f", "--as-root"]).stdin(Stdio::null());
        command.env("DBUS_SESSION_BUS_ADDRESS", address).env("HOME", self.path(home));
        for (variable, sub) in [("XDG_STATE_HOME", "state"), ("XDG_CONFIG_HOME", "config")] {
            command.env(variable, self.path(home).join(sub));
        }
        command.env("LINKSPAN_IFNAME", "=lo").env("LINKSPAN_STATS_DIR", "off").env("LINKSPAN_LOG", "warn");
        match self.key {
            true => command.env("LINKSPAN_PSK_FILE", self.path("key")),
            false => command.env_remove("LINKSPAN_PSK_FILE"),
        };
        command.spawn().unwrap()
    }

    /// The service of a user. `None`, with a line: there is no dbus-daemon here.
    pub(crate) fn user(&self, home: &'static str) -> Option<User<'_>> {
        let bus = Bus::start()?;
        let process = self.spawn(home, &bus);
        let client = Builder::address(&*bus.address()).unwrap().build().unwrap();
        let user = User { world: self, home, bus, process, client };
        user.await_name();
        Some(user)
    }
}

impl Drop for World {
    fn drop(&mut self) {
        let _ = rustix::mount::unmount(self.path("at"), rustix::mount::UnmountFlags::DETACH);
        let _ = fs::remove_dir_all(&self.dir);
    }
}

/// A user's service, and a client of it.
pub(crate) struct User<'a> {
    world: &'a World,
    home: &'static str,
    pub(crate) bus: Bus,
    process: Child,
    pub(crate) client: Connection,
}

impl User<'_> {
    fn await_name(&self) {
        let bus = DBusProxy::new(&self.client).unwrap();
        until("the name is there", || bus.name_has_owner(NAME.try_into().unwrap()).unwrap());
    }

    pub(crate) fn kill_and_restart(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
        self.process = self.world.spawn(self.home, &self.bus);
        // Its predecessor's end is seen by the bus before the name has another owner.
        self.await_name();
    }

    pub(crate) fn signal(&self, signal: rustix::process::Signal) {
        rustix::process::kill_process(rustix::process::Pid::from_child(&self.process), signal).unwrap();
    }

    /// Signals of an interface of the service's own object that are called so, as they come.
    pub(crate) fn signals(&self, interface: &str, member: &str) -> MessageIterator {
        let rule = MatchRule::builder().msg_type(zbus::message::Type::Signal).sender(NAME).unwrap();
        let rule = rule.path(PATH).unwrap().interface(format!("{NAME}.{interface}")).unwrap();
        MessageIterator::for_match_rule(rule.member(member).unwrap().build(), &self.client, None).unwrap()
    }

    /// What a file of /proc says of each thread.
    pub(crate) fn threads(&self, file: &'static str) -> impl Iterator<Item = String> + use<> {
        let threads = fs::read_dir(format!("/proc/{}/task", self.process.id())).unwrap().flatten();
        threads.filter_map(move |thread| fs::read_to_string(thread.path().join(file)).ok())
    }

    pub(crate) fn restart_bus(&mut self) {
        self.bus.restart();
        self.client = Builder::address(&*self.bus.address()).unwrap().build().unwrap();
        self.await_name();
    }

    pub(crate) fn end(&mut self) {
        self.signal(rustix::process::Signal::TERM);
        assert!(self.process.wait().unwrap().success());
    }

    /// A method of an interface of the service's own object.
    pub(crate) fn call<B: Serialize + DynamicType>(&self, method: &str, body: &B) -> zbus::Result<Message> {
        let (interface, method) = method.split_once('.').unwrap();
        self.client.call_method(Some(NAME), PATH, Some(&*format!("{NAME}.{interface}")), method, body)
    }

    pub(crate) fn ok<B: Serialize + DynamicType>(&self, method: &str, body: &B) -> Message {
        self.call(method, body).unwrap_or_else(|error| panic!("{method}: {error}"))
    }

    /// Which error comes of it, without the prefix, and its text.
    pub(crate) fn refused<B: Serialize + DynamicType>(&self, method: &str, body: &B) -> (String, String) {
        match self.call(method, body) {
            Err(zbus::Error::MethodError(name, text, _)) => {
                let name = name.as_str().trim_start_matches(&format!("{NAME}.Error.")).to_owned();
                (name, text.unwrap_or_default())
            }
            other => panic!("{method}: {other:?}"),
        }
    }

    /// A method that begins a task.
    pub(crate) fn begin<B: Serialize + DynamicType>(&self, method: &str, body: &B) -> OwnedObjectPath {
        self.ok(method, body).body().deserialize().unwrap()
    }

    pub(crate) fn cancel(&self, task: &OwnedObjectPath) -> zbus::Result<Message> {
        self.client.call_method(Some(NAME), task, Some(&*format!("{NAME}.Task")), "Cancel", &())
    }

    /// How far it is; `None`: it has ended.
    pub(crate) fn progress(&self, task: &OwnedObjectPath) -> Option<Value> {
        let answer = self.client.call_method(Some(NAME), task, Some(&*format!("{NAME}.Task")), "GetProgress", &());
        Some(from_dict(&answer.ok()?.body().deserialize::<Dict>().unwrap()).unwrap())
    }

    pub(crate) fn history(&self) -> Vec<Value> {
        let records: Vec<Dict> = self.ok("Manager.GetHistory", &0_u32).body().deserialize().unwrap();
        records.iter().map(|record| from_dict(record).unwrap()).collect()
    }

    /// The record of a task, once it has ended.
    pub(crate) fn ended(&self, task: &OwnedObjectPath) -> Value {
        let id: u64 = task.as_str().rsplit('/').next().unwrap().parse().unwrap();
        let find = || self.history().into_iter().find(|record| record["id"] == id);
        until(&format!("{} has ended", task.as_str()), || find().is_some());
        find().unwrap()
    }

    /// Objects of tasks.
    pub(crate) fn tasks(&self) -> Vec<String> {
        let manager = ObjectManagerProxy::new(&self.client, NAME, PATH).unwrap();
        let all = manager.get_managed_objects().unwrap();
        all.keys().map(|path| path.to_string()).filter(|path| path.contains("/task/")).collect()
    }

    /// Serves a new directory as `in`, writable: how the place is written for the other one.
    pub(crate) fn serve(&self, directory: &Path) -> String {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        fs::create_dir_all(directory).unwrap();
        self.ok("Shares.Add", &("in", directory.to_str().unwrap(), true));
        let options = serde_json::json!({ "bind": ["127.0.0.1"], "port": port });
        self.ok("Shares.Serve", &to_dict(&options));
        format!("[127.0.0.1:{port}]:in")
    }
}

impl Drop for User<'_> {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
fn junk_is_refused_by_name_and_the_service_goes_on() {
    let world = World::new("junk", true);
    let Some(user) = world.user("one") else { return };
    let (none, long) = (Dict::new(), "x".repeat(1 << 16));
    let options = |json: Value| to_dict(&json);
    let invalid = |(name, text): (String, String)| {
        assert!(name == "InvalidArgument" && text.starts_with("LS"), "{name}: {text}");
    };
    invalid(user.refused("Tests.Start", &("bandwidth", "x", &none)));
    invalid(user.refused("Tests.Start", &("connect", "x", &none)));
    invalid(user.refused("Tests.Start", &("bw", &*long, &none)));
    invalid(user.refused("Tests.Start", &("bw", "x", options(serde_json::json!({ "size": 1 })))));
    invalid(user.refused("Tests.Start", &("bw", "x", options(serde_json::json!({ "sizes": [0] })))));
    invalid(user.refused("Tests.Start", &("bw", "x", options(serde_json::json!({ "duration_ms": 1e9 as u64 })))));
    invalid(user.refused("Files.Send", &(vec!["relative"], "x:in", &none)));
    invalid(user.refused("Files.Send", &(vec!["/etc/hostname"], "nowhere", &none)));
    invalid(user.refused("Files.Send", &(Vec::<&str>::new(), "x:in", &none)));
    invalid(user.refused("Files.Send", &(vec!["/x"; 2000], "x:in", &none)));
    invalid(user.refused("Files.Send", &(vec!["/x"], "x:in", options(serde_json::json!({ "watch": true })))));
    invalid(user.refused("Files.Send", &(vec!["/x"], "x:in", options(serde_json::json!({ "exclude": ["[z-a]"] })))));
    invalid(user.refused("Files.Get", &(vec!["a:in", "b:in"], "/tmp", &none)));
    invalid(user.refused("Files.Mirror", &("/a", "/b", &none)));
    invalid(user.refused("Files.Mirror", &("a", "x:in", &none)));
    invalid(user.refused("Files.Send", &(vec!["/x"], "x:in", options(serde_json::json!({ "again": true })))));
    invalid(user.refused("Files.Mirror", &("/a", "x:in", options(serde_json::json!({ "again": true })))));
    let both = serde_json::json!({ "again": true, "watch": true, "init": true });
    invalid(user.refused("Files.Mirror", &("/a", "x:in", options(both))));
    invalid(user.refused("Files.Mount", &("x:", "/mnt", &none)));
    invalid(user.refused("Files.Mount", &("x:in", "/mnt", options(serde_json::json!({ "timeout_ms": 1 })))));
    invalid(user.refused("Files.List", &"x:in/../.."));
    invalid(user.refused("Keys.Add", &("junk", "", Vec::<&str>::new())));
    invalid(user.refused("Keys.Join", &("junk", "", "")));
    invalid(user.refused("Keys.Offer", &("", "cluster")));
    invalid(user.refused("Shares.Add", &("a/b", "/tmp", false)));
    invalid(user.refused("Shares.Add", &("a", "tmp", false)));
    invalid(user.refused("Shares.Serve", &options(serde_json::json!({ "bind": ["everywhere"] }))));
    invalid(user.refused("Manager.Watch", &249_u32));
    assert_eq!(user.refused("Shares.Remove", &"none").0, "NotFound");
    assert_eq!(user.refused("Keys.Forget", &"none").0, "NotFound");
    assert_eq!(user.refused("Files.List", &"[127.0.0.1:1]:in").0, "NoPeer");
    for n in 0..200_u32 {
        assert!(user.call("Tests.Start", &(n, n)).is_err() && user.call("Manager.Nothing", &n).is_err());
    }
    assert!(user.tasks().is_empty() && user.history().is_empty());
    // What cannot be known before is told at the end.
    let task = user.begin("Files.Send", &(vec![world.text("missing")], "[127.0.0.1:1]:in", &none));
    let record = user.ended(&task);
    assert!(record["state"] == "failed" && record["error"].as_str().unwrap().contains("missing"), "{record}");
}

#[test]
fn a_nul_in_a_place_or_in_a_file_of_state_does_not_end_the_connection_to_the_bus() {
    let world = World::new("nul", true);
    let Some(mut user) = world.user("one") else { return };
    let owner =
        |user: &User<'_>| DBusProxy::new(&user.client).unwrap().get_name_owner(NAME.try_into().unwrap()).unwrap();
    let (none, first) = (Dict::new(), owner(&user));
    let watch = to_dict(&serde_json::json!({ "watch": true, "again": true }));
    for place in ["linkspan://a%00b/in/", "linkspan://a/i%00n/", "linkspan://a%0Ab/in/"] {
        for refused in [
            user.refused("Files.List", &place),
            user.refused("Files.Send", &(vec!["/x"], place, &none)),
            user.refused("Files.Mirror", &("/x", place, &watch)),
        ] {
            assert!(refused.0 == "InvalidArgument" && refused.1.contains("control character"), "{refused:?}");
        }
    }
    assert!(user.tasks().is_empty() && owner(&user) == first);
    user.end();
    // What an earlier release or an editor has left there.
    let state = |file: &str, what: Value| {
        fs::write(world.path("one/state/linkspan/service").join(file), format!("{what}\n")).unwrap()
    };
    state("history", serde_json::json!({ "id": 1, "ended_unix_s": 1, "error": "a\0b", "c\0d": ["e\0f"] }));
    let long = format!("/{}", "x".repeat(8192));
    let ends = [["/x", "linkspan://a%00b/in/"], ["/x", "a\0b:in"], [&*long, "a:in"]];
    let ends = ends.map(|ends| serde_json::json!({ "ends": ends, "options": { "watch": true } }));
    state("mirrors.json", ends.into());
    let share = serde_json::json!({ "name": "a", "directory": "/a\0b", "writable": false });
    state("shares.json", serde_json::json!({ "shares": [share], "serve": { "bind": ["127.0.0.1"] } }));
    user.kill_and_restart();
    let second = owner(&user);
    let record = serde_json::json!({ "id": 1, "ended_unix_s": 1, "error": "a\u{fffd}b", "c\u{fffd}d": ["e\u{fffd}f"] });
    assert_eq!(user.history(), [record]);
    let error = PropertiesProxy::new(&user.client, NAME, PATH).unwrap();
    let error = error.get(format!("{NAME}.Shares").try_into().unwrap(), "Error").unwrap();
    assert!(String::try_from(error.clone()).unwrap().contains("/a\u{fffd}b"), "{error:?}");
    let (_, text) = user.refused("Shares.Serve", &to_dict(&serde_json::json!({ "bind": ["127.0.0.1"] })));
    assert!(text.contains("/a\u{fffd}b"), "{text}");
    user.ok("Shares.List", &());
    assert!(user.tasks().is_empty() && owner(&user) == second);
}

#[test]
fn an_error_about_a_long_text_is_short_enough_for_the_bus() {
    let world = World::new("long", true);
    let Some(user) = world.user("one") else { return };
    // The bus takes 32 MiB, and each of these is told as five bytes.
    let long = "\u{1}".repeat(7 << 20);
    for refused in [
        user.refused("Keys.Offer", &("", &*long)),
        user.refused("Tests.Start", &("bw", "x", to_dict(&serde_json::json!({ "sizes": long })))),
    ] {
        assert!(refused.0 == "InvalidArgument" && refused.1.len() <= 8192, "{}: {:.200}", refused.0, refused.1);
    }
}

#[test]
fn another_user_is_refused_though_the_bus_lets_it_in() {
    let world = World::new("other", true);
    let Some(user) = world.user("one") else { return };
    if !is_root() || Command::new("setpriv").arg("--version").output().is_err() {
        eprintln!("skipped: needs root and setpriv, to be another user");
        return;
    }
    let call = |uid: &str, method: &str, arguments: &[&str]| {
        let mut command = Command::new("setpriv");
        command.args([
            "--reuid",
            uid,
            "--regid",
            uid,
            "--clear-groups",
            "gdbus",
            "call",
            "--address",
            &user.bus.address(),
        ]);
        let method = format!("{NAME}.{method}");
        let output = command.args(["-d", NAME, "-o", PATH, "-m", &method]).args(arguments).output().unwrap();
        String::from_utf8_lossy(&if output.status.success() { output.stdout } else { output.stderr }).into_owned()
    };
    assert!(call("0", "Manager.GetHistory", &["0"]).starts_with('('));
    for (method, arguments) in [
        ("Manager.GetHistory", &["0"][..]),
        ("Manager.Watch", &["1000"]),
        ("Tests.Start", &["bw", "x", "{}"]),
        ("Files.Send", &["['/x']", "x:in", "{}"]),
        ("Files.Get", &["['x:in']", "/x", "{}"]),
        ("Files.Mirror", &["/x", "x:in", "{}"]),
        ("Files.Mount", &["x:in", "/x", "{}"]),
        ("Files.List", &["x:in"]),
        ("Files.Remove", &["x:in/a", "false"]),
        ("Keys.Show", &[""]),
        ("Keys.List", &[]),
        ("Keys.Add", &["x", "", "[]"]),
        ("Keys.Forget", &["x"]),
        ("Keys.Offer", &["", ""]),
        ("Shares.List", &[]),
        ("Shares.Add", &["x", "/tmp", "false"]),
        ("Shares.Remove", &["x"]),
        ("Shares.Serve", &["{}"]),
        ("Shares.Stop", &[]),
    ] {
        let said = call("65534", method, arguments);
        assert!(said.contains("NotPermitted") && said.contains("LS3241"), "{method}: {said}");
    }
    assert!(user.tasks().is_empty());
}

#[test]
fn a_second_service_of_a_user_ends_and_names_the_first() {
    let world = World::new("second", true);
    let Some(user) = world.user("one") else { return };
    let output = {
        let mut command = program();
        command.args(["--user", "-f"]).env("DBUS_SESSION_BUS_ADDRESS", user.bus.address());
        command.env("XDG_STATE_HOME", world.path("two")).output().unwrap()
    };
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.code() == Some(1) && said.contains("LS3235"), "{said}");
}

#[test]
fn a_second_service_of_a_user_on_another_bus_is_refused_until_the_first_has_ended() {
    let world = World::new("two-buses", true);
    let (Some(mut user), Some(other)) = (world.user("one"), Bus::start()) else { return };
    let start = || {
        let mut command = program();
        command.stderr(Stdio::piped());
        world.start(command, "one", &other.address())
    };
    let second = RefCell::new(start());
    until("the second one has ended", || second.borrow_mut().try_wait().unwrap().is_some());
    let output = second.into_inner().wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let dir = world.text("one/state/linkspan/service");
    assert!(output.status.code() == Some(1) && said.contains("LS1856") && said.contains(&dir), "{said}");
    user.ok("Manager.GetHistory", &0_u32);
    user.end();
    let mut third = start();
    let client = Builder::address(&*other.address()).unwrap().build().unwrap();
    let bus = DBusProxy::new(&client).unwrap();
    until("the name is there", || bus.name_has_owner(NAME.try_into().unwrap()).unwrap());
    third.kill().unwrap();
    third.wait().unwrap();
}

#[test]
fn a_bus_that_does_not_answer_holds_up_no_end() {
    let world = World::new("mute", true);
    let term = |process: &Child| {
        rustix::process::kill_process(rustix::process::Pid::from_child(process), rustix::process::Signal::TERM)
            .unwrap();
    };
    let bus = std::os::unix::net::UnixListener::bind(world.path("socket")).unwrap();
    let mut starting = world.start(program(), "two", &format!("unix:path={}", world.text("socket")));
    let _silent = come(&bus);
    term(&starting);
    assert!(starting.wait().unwrap().success());
    let Some(mut user) = world.user("one") else { return };
    let bus = user.bus.mute();
    let _silent = come(&bus);
    user.end();
}

#[test]
fn a_session_bus_starts_it_for_who_calls_it() {
    if Command::new("dbus-run-session").arg("--version").output().is_err() {
        eprintln!("skipped: there is no dbus-run-session");
        return;
    }
    let world = World::new("session", false);
    let file = "org.linkspan.User1.service";
    let installed = Path::new(env!("CARGO_MANIFEST_DIR")).join("data").join(file);
    let text = fs::read_to_string(installed).unwrap().replace("/usr/sbin/linkspand", env!("CARGO_BIN_EXE_linkspand"));
    fs::create_dir_all(world.path("data/dbus-1/services")).unwrap();
    fs::write(world.path("data/dbus-1/services").join(file), text).unwrap();
    // Ended before its bus, for whose return it would wait.
    let script = format!(
        "gdbus call --session -d {NAME} -o {PATH} -m {NAME}.Manager.GetHistory 0
         pid=$(gdbus call --session -d org.freedesktop.DBus -o / -m org.freedesktop.DBus.GetConnectionUnixProcessID {NAME})
         kill $(echo \"$pid\" | sed 's/.*uint32 //; s/,.*//')"
    );
    let mut command = Command::new("dbus-run-session");
    command.args(["--", "sh", "-c", &script]).env("XDG_DATA_DIRS", world.path("data"));
    let output = command.env("XDG_STATE_HOME", world.path("one")).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success() && said.contains("aa{sv}"), "{output:?}");
}
