//! `lspan events` with the service and without: the same lines.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use linkspan_bus::zbus::object_server::SignalEmitter;
use linkspan_bus::zbus::{self, interface};
use linkspan_bus::{Dict, NAME, PATH, Server, to_dict};
use linkspan_service::system::{Places, System};
use linkspan_topology::fixture::{Fixture, STRIX_HALO};
use serde_json::{Value, json};

use crate::bus::Bus;
use crate::schema;

fn lspan(address: &str, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lspan"));
    command.arg("events").args(args).env("DBUS_SYSTEM_BUS_ADDRESS", address).env("LINKSPAN_STATS_DIR", "off");
    command
}

fn lines(address: &str, args: &[&str]) -> Vec<String> {
    let output = lspan(address, args).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
}

/// Lines of JSON without their times.
fn timeless(lines: &[String]) -> Vec<Value> {
    let json = lines.iter().map(|line| serde_json::from_str::<Value>(line).unwrap());
    json.map(|mut value| {
        assert_eq!(schema::problems("event-1.json", &value), [""; 0]);
        assert!(value.as_object_mut().unwrap().remove("time_us").unwrap().as_u64().unwrap() > 0);
        value
    })
    .collect()
}

struct Follower(Child);

impl Drop for Follower {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn with_the_service_and_without_it_the_lines_are_the_same() {
    let fix = Fixture::tree(STRIX_HALO);
    let nowhere = "unix:path=/nowhere";
    let root = fix.root.display().to_string();
    let alone = lines(nowhere, &["--json", "--root", &root]);
    let text = lines(nowhere, &["--root", &root]);
    assert_eq!(alone.len(), text.len());
    assert!(text[0].contains("Z present ") && text[0].contains("to strix-b"), "{text:?}");
    // Without a bus, and without a service on it, the machine itself is looked at.
    lines(nowhere, &["--json"]);
    let Some(bus) = Bus::start() else { return };
    lines(&bus.address(), &["--json"]);
    let at = |name: &str| fix.root.join(name);
    let places = Places { root: fix.root.clone(), allowed: at("var"), statistics: at("stats"), devmem: at("run") };
    let system = Arc::new(System::new(places, 100, Box::new(|_, _| {})));
    system.look(&std::collections::BTreeSet::new());
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let mut server = runtime.block_on(Server::start(bus.builder(), &system, Arc::default())).unwrap();
    let served = lines(&bus.address(), &["--json"]);
    assert_eq!(timeless(&served), timeless(&alone));
    let all: Vec<String> = lines(&bus.address(), &[]).iter().map(|line| line[20..].to_owned()).collect();
    assert_eq!(all, text.iter().map(|line| line[20..].to_owned()).collect::<Vec<_>>());
    // What happens from now on.
    let mut command = lspan(&bus.address(), &["--json", "--follow"]);
    let mut follower = Follower(command.stdout(Stdio::piped()).spawn().unwrap());
    let mut said = BufReader::new(follower.0.stdout.take().unwrap()).lines().map(Result::unwrap);
    assert_eq!(said.by_ref().take(served.len()).collect::<Vec<_>>(), served);
    std::fs::remove_file(fix.root.join("sys/bus/thunderbolt/devices/0-1")).unwrap();
    let last = system.look(&std::collections::BTreeSet::new()).last().unwrap().time_us;
    let (look, hosts) = system.seen();
    runtime.block_on(async {
        server.update(&look, &hosts).await.unwrap();
        server.events_changed(last).await.unwrap();
    });
    let line: Value = serde_json::from_str(&said.next().unwrap()).unwrap();
    assert_eq!((line["kind"].as_str(), line["cable"].as_str()), (Some("unplugged"), Some("0-1")));
}

/// The service as it was before it had events: a version, and nothing else that is asked for.
struct Older;

#[interface(name = "org.linkspan.Link1.Manager", crate = "linkspan_bus::zbus")]
impl Older {
    #[zbus(property(emits_changed_signal = "const"))]
    fn version(&self) -> &str {
        "0.0.9"
    }
}

#[test]
fn a_service_that_is_older_is_named_and_done_without() {
    let Some(bus) = Bus::start() else { return };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let builder = bus.builder().name(NAME).unwrap().serve_at(PATH, Older).unwrap();
    let _service = runtime.block_on(builder.build()).unwrap();
    let run = |words: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_lspan"));
        command.args(words).env("DBUS_SYSTEM_BUS_ADDRESS", bus.address()).env("LINKSPAN_STATS_DIR", "off");
        let output = command.output().unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let (code, said) = run(&["events", "--json"]);
    assert!(code == Some(0) && said.contains("linkspand (0.0.9) is older than lspan"), "{said}");
    let (code, said) = run(&["status", "--json"]);
    assert!(code == Some(0) && !said.contains("linkspand"), "it asks for nothing: {said}");
    // Here there is no driver either: the same error as without the service.
    let allow = ["link", "allow", "d2040000-0080-7518-b3c8-e1ac3a6b0201"];
    let (code, said) = run(&allow);
    assert!(said.contains("linkspand is older than lspan"), "{said}");
    assert!(code != Some(0) && said.lines().last().is_some_and(|line| line.contains("LS15")), "{said}");
}

/// A service that says a lot before it answers.
struct Talker;

#[allow(missing_docs, reason = "of what the macro makes of a signal")]
#[interface(name = "org.linkspan.Link1.Manager", crate = "linkspan_bus::zbus")]
impl Talker {
    async fn get_events(
        &self,
        after_us: u64,
        _all: bool,
        #[zbus(signal_emitter)] emitter: SignalEmitter<'_>,
    ) -> Vec<Dict> {
        for n in 0..300 {
            Talker::events_changed(&emitter, n).await.unwrap();
        }
        vec![to_dict(&json!({ "time_us": after_us + 1, "kind": "plugged", "text": "0-1" }))]
    }

    #[zbus(signal)]
    async fn events_changed(emitter: &SignalEmitter<'_>, newest_us: u64) -> zbus::Result<()>;

    #[zbus(property(emits_changed_signal = "const"))]
    fn version(&self) -> &str {
        env!("CARGO_PKG_VERSION")
    }
}

#[test]
fn changes_that_come_faster_than_they_are_read_hold_up_no_answer() {
    let Some(bus) = Bus::start() else { return };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let builder = bus.builder().name(NAME).unwrap().serve_at(PATH, Talker).unwrap();
    let _service = runtime.block_on(builder.build()).unwrap();
    let mut command = lspan(&bus.address(), &["--json", "--follow"]);
    let mut follower = Follower(command.stdout(Stdio::piped()).spawn().unwrap());
    let said = BufReader::new(follower.0.stdout.take().unwrap()).lines().map(Result::unwrap);
    let (tell, told) = std::sync::mpsc::channel();
    std::thread::spawn(move || said.take(3).for_each(|line| drop(tell.send(line))));
    for _ in 0..3 {
        told.recv_timeout(Duration::from_secs(60)).expect("a line for each answer");
    }
}
