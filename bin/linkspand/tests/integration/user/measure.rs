//! Tests against a peer that answers them.

use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use linkspan_bus::zbus::zvariant::OwnedObjectPath;
use linkspan_bus::{Dict, from_dict, to_dict};
use linkspan_fabric::{Config, Fabric, Log};
use linkspan_perf::{Limits, Quota, serve};
use linkspan_service::rendezvous::RendezvousServer;
use linkspan_topology::IfFilter;
use linkspan_user::link::FabricLink;
use serde_json::{Value, json};

use super::super::until;
use super::World;

/// The other side of tests, in this process: the service is another one.
struct Server {
    port: u16,
    stop: Arc<AtomicBool>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Server {
    fn start() -> Server {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let mut config = Config::from_env().unwrap();
        config.interfaces = IfFilter::parse("test", "=lo").ok();
        let fabric = Fabric::new(config, Log::off(), false, linkspan_transports::all()).unwrap();
        let listener = fabric.listen(0).unwrap();
        let mut rendezvous = RendezvousServer::open(&fabric, &[], false, port).unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let thread = thread::spawn(move || {
            let _fabric = fabric;
            while !stopped.load(Ordering::Relaxed) {
                rendezvous.serve(&mut || listener.handle());
                while let Ok(Some(channel)) = listener.accept() {
                    thread::spawn(move || {
                        let limits = Limits {
                            memory: Quota::new(1 << 30),
                            idle: Some(Duration::from_secs(60)),
                            bare: false,
                            cma: false,
                        };
                        let _ = serve(&mut FabricLink::new(channel, None).unwrap(), &limits);
                    });
                }
                thread::yield_now();
            }
        });
        Server { port, stop, thread: Some(thread) }
    }

    fn peer(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let _ = self.thread.take().map(thread::JoinHandle::join);
    }
}

#[test]
fn each_of_the_five_tests_has_results_and_all_of_them_run_one_after_another() {
    let world = World::new("five", false);
    let Some(user) = world.user("one") else { return };
    let server = Server::start();
    let options = to_dict(&json!({ "sizes": [64], "duration_ms": 20 }));
    for test in ["bw", "lat", "jitter", "load", "multi", "all"] {
        let task = user.begin("Tests.Start", &(test, server.peer(), &options));
        let record = user.ended(&task);
        assert_eq!(record["state"], "done", "{test}: {record}");
        assert_eq!((&record["arguments"], &record["peer"]), (&json!([test]), &json!(server.peer())));
        let names: Vec<&str> =
            record["results"].as_array().unwrap().iter().map(|row| row["test"].as_str().unwrap()).collect();
        assert_eq!(names, if test == "all" { vec!["bw", "lat", "jitter", "load", "multi"] } else { vec![test] });
        assert!(record["results"][0]["wrong_bytes"] == 0 && !record["path"].as_str().unwrap().is_empty());
    }
    assert_eq!(user.history().len(), 6);
    let task = user.begin("Tests.Start", &("bw", "127.0.0.1:1", &options));
    let record = user.ended(&task);
    assert!(record["state"] == "failed" && record["error"].as_str().unwrap().starts_with("LS0732"), "{record}");
}

#[test]
fn a_test_tells_its_progress_to_who_watches_and_ends_when_it_is_cancelled() {
    let world = World::new("progress", false);
    let Some(user) = world.user("one") else { return };
    let server = Server::start();
    let (mut progress, mut ends) = (user.signals("Manager", "ProgressChanged"), user.signals("Manager", "TaskEnded"));
    user.ok("Manager.Watch", &250_u32);
    let options = to_dict(&json!({ "sizes": [64, 4096], "duration_ms": 3_000_000 }));
    let task = user.begin("Tests.Start", &("bw", server.peer(), &options));
    let (kind, text) = user.refused("Tests.Start", &("lat", server.peer(), &options));
    assert!(kind == "LimitReached" && text.starts_with("LS1842"), "{kind}: {text}");
    loop {
        let message = progress.next().unwrap().unwrap();
        let tasks: std::collections::HashMap<OwnedObjectPath, Dict> = message.body().deserialize().unwrap();
        let now: Option<Value> = tasks.get(&task).map(|dict| from_dict(dict).unwrap());
        if now.is_some_and(|now| {
            now["state"] == "running" && now["of"] == 2 && now["measuring"].as_str().unwrap().contains("64 B")
        }) {
            break;
        }
    }
    let now = user.progress(&task).unwrap();
    assert!(now["state"] == "running" && now["of"] == 2, "{now}");
    user.cancel(&task).unwrap();
    let (path, record): (OwnedObjectPath, Dict) = ends.next().unwrap().unwrap().body().deserialize().unwrap();
    let record: Value = from_dict(&record).unwrap();
    assert_eq!((&path, &record["state"]), (&task, &json!("cancelled")), "{record}");
    assert_eq!(record["results"].as_array().unwrap().len(), 1, "what was measured until then: {record}");
    assert!(user.ok("Manager.Unwatch", &()).body().deserialize::<bool>().unwrap());
    let next = user.begin("Tests.Start", &("lat", server.peer(), to_dict(&json!({ "sizes": [8], "duration_ms": 20 }))));
    assert_eq!(user.ended(&next)["state"], "done");
}

#[test]
fn killed_in_a_test_it_has_no_stale_object_and_measures_again() {
    let world = World::new("test-killed", false);
    let Some(mut user) = world.user("one") else { return };
    let server = Server::start();
    let options = |duration_ms: u64| to_dict(&json!({ "sizes": [64], "duration_ms": duration_ms }));
    let task = user.begin("Tests.Start", &("bw", server.peer(), options(3_000_000)));
    until("it measures", || user.progress(&task).expect("it ended before the kill")["state"] == "running");
    user.kill_and_restart();
    assert!(user.tasks().is_empty() && user.history().is_empty());
    let next = user.begin("Tests.Start", &("bw", server.peer(), options(20)));
    assert_eq!(user.ended(&next)["state"], "done");
}
