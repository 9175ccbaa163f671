//! Transfers, mirrors and mounts between the services of two users.

use std::cell::Cell;
use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use linkspan_bus::user::{NAME, PATH};
use linkspan_bus::zbus::blocking::connection::Builder;
use linkspan_bus::zbus::blocking::fdo::PropertiesProxy;
use linkspan_bus::zbus::zvariant::OwnedObjectPath;
use linkspan_bus::{Dict, to_dict, zbus};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use super::super::bus::Bus;
use super::super::{is_root, until};
use super::{User, World};

/// A file of this many MiB, no two of which are alike.
fn large(path: &Path, mib: u64) {
    let mut file = fs::File::create(path).unwrap();
    let mut seed = 1_u64;
    for _ in 0..mib {
        let words = (0..1 << 17).map(|_| {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            seed
        });
        file.write_all(&words.flat_map(u64::to_le_bytes).collect::<Vec<u8>>()).unwrap();
    }
}

/// What is seen in a directory.
fn names(dir: &Path) -> Vec<String> {
    let names = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter(|name| !name.starts_with(".lspan")).collect()
}

fn listed(user: &User<'_>, place: &str) -> Vec<Value> {
    let (entries, all): (Vec<Dict>, bool) = user.ok("Files.List", &place).body().deserialize().unwrap();
    assert!(all);
    entries.iter().map(|entry| linkspan_bus::from_dict(entry).unwrap()).collect()
}

#[test]
fn what_was_sent_and_fetched_is_the_same_and_a_record_says_so() {
    let world = World::new("send", true);
    let (Some(one), Some(two)) = (world.user("one"), world.user("two")) else { return };
    let place = two.serve(&world.path("share"));
    large(&world.path("data/a"), 3);
    fs::write(world.path("data/b"), "b").unwrap();
    let none = Dict::new();
    let task = one.begin("Files.Send", &(vec![world.text("data")], &*place, &none));
    let record = one.ended(&task);
    assert_eq!(
        (&record["state"], &record["kind"], &record["files_done"]),
        (&json!("done"), &json!("send"), &json!(2)),
        "{record}"
    );
    assert_eq!(record["arguments"], json!([world.text("data"), place]));
    assert_eq!(fs::read(world.path("share/data/a")).unwrap(), fs::read(world.path("data/a")).unwrap());
    let entries = listed(&one, &format!("{place}/data"));
    assert_eq!(entries.iter().map(|entry| entry["name"].as_str().unwrap()).collect::<Vec<_>>(), ["a", "b"]);
    assert_eq!((&entries[0]["size_bytes"], &entries[1]["kind"]), (&json!(3 << 20), &json!("file")));
    let root = place.trim_end_matches("in");
    assert_eq!(listed(&one, root), [json!({ "kind": "share", "name": "in", "writable": true })]);
    let task = one.begin("Files.Get", &(vec![format!("{place}/data/a")], world.text("back"), &none));
    assert_eq!(one.ended(&task)["state"], "done");
    assert_eq!(fs::read(world.path("back")).unwrap(), fs::read(world.path("data/a")).unwrap());
    one.ok("Files.Remove", &(format!("{place}/data"), true));
    assert!(names(&world.path("share")).is_empty());
    assert_eq!(one.refused("Files.Remove", &(format!("{place}/data"), true)).0, "NotFound");
    until("no object is left", || one.tasks().is_empty());
}

#[test]
fn a_cancelled_transfer_leaves_nothing_that_is_seen() {
    let world = World::new("cancel", true);
    let (Some(one), Some(mut two)) = (world.user("one"), world.user("two")) else { return };
    let place = two.serve(&world.path("share"));
    large(&world.path("data/a"), 512);
    let options = to_dict(&json!({ "no_fsync": true }));
    let send = || one.begin("Files.Send", &(vec![world.text("data/a")], &*place, &options));
    let task = send();
    assert_eq!(one.tasks(), [task.as_str()]);
    let moves = |progress: Value| progress["moved_bytes"].as_u64().unwrap_or(0) > 0;
    until("something has moved", || moves(one.progress(&task).expect("it ended before it was cancelled")));
    one.cancel(&task).unwrap();
    let record = one.ended(&task);
    assert_eq!(record["state"], "cancelled", "{record}");
    assert!(names(&world.path("share")).is_empty() && listed(&one, &place).is_empty());
    until("its object goes", || one.tasks().is_empty());
    // By this name the window knows that there is nothing to cancel any more.
    let Err(zbus::Error::MethodError(name, ..)) = one.cancel(&task) else { panic!() };
    assert!(name.as_str() == "org.freedesktop.DBus.Error.UnknownObject" && one.progress(&task).is_none(), "{name}");
    // The peer holds the file until it has noticed, some seconds; another one does not.
    two.kill_and_restart();
    let record = one.ended(&send());
    assert_eq!(record["state"], "done", "{record}");
    assert!(fs::read(world.path("share/a")).unwrap() == fs::read(world.path("data/a")).unwrap());
}

#[test]
fn killed_in_a_transfer_and_started_again_it_has_no_stale_object_and_serves_as_before() {
    let world = World::new("killed", true);
    let (Some(mut one), Some(mut two)) = (world.user("one"), world.user("two")) else { return };
    let place = two.serve(&world.path("share"));
    large(&world.path("data/a"), 256);
    let options = to_dict(&json!({ "no_fsync": true }));
    let first = one.begin("Files.Send", &(vec![world.text("data/a")], &*place, &options));
    until("something has moved", || {
        one.progress(&first).expect("it ended before the kill")["moved_bytes"].as_u64().unwrap_or(0) > 0
    });
    one.kill_and_restart();
    let history = one.history();
    assert!(one.tasks().is_empty() && history.len() == 1, "{history:?}");
    assert!(history[0]["state"] == "failed" && history[0]["options"]["no_fsync"] == true, "{history:?}");
    assert!(history[0]["error"].as_str().unwrap().starts_with("LS1855"), "{history:?}");
    assert!(names(&world.path("share")).is_empty(), "half of a file has no name");
    // The server, too: its shares are where they were.
    two.kill_and_restart();
    let again = one.begin("Files.Send", &(vec![world.text("data/a")], &*place, &options));
    assert_ne!(again, first);
    let record = one.ended(&again);
    assert_eq!(record["state"], "done", "{record}");
    assert!(fs::read(world.path("share/a")).unwrap() == fs::read(world.path("data/a")).unwrap());
    // Told not to serve, it does not after the next start either.
    assert!(two.ok("Shares.Stop", &()).body().deserialize::<bool>().unwrap());
    two.kill_and_restart();
    assert_eq!(one.refused("Files.List", &place).0, "NoPeer");
    assert_eq!(two.ok("Shares.List", &()).body().deserialize::<Vec<Dict>>().unwrap().len(), 1);
    two.ok("Shares.Remove", &"in");
    assert!(two.ok("Shares.List", &()).body().deserialize::<Vec<Dict>>().unwrap().is_empty());
    // Records outlive the service, and no later task has the number of one.
    one.kill_and_restart();
    assert_eq!(one.history()[0], record);
    let next = one.begin("Files.Get", &(vec![&*place], world.text("back"), Dict::new()));
    assert!(one.ended(&next)["id"].as_u64() > one.history()[1]["id"].as_u64());
    // The end in good order.
    one.end();
    two.end();
}

#[test]
fn whether_shares_are_served_and_why_not_are_properties() {
    let world = World::new("properties", true);
    let Some(mut user) = world.user("one") else { return };
    let property = |user: &User<'_>, name: &str| {
        let properties = PropertiesProxy::new(&user.client, NAME, PATH).unwrap();
        properties.get(format!("{NAME}.Shares").try_into().unwrap(), name).unwrap()
    };
    let serving = |user: &User<'_>| bool::try_from(property(user, "Serving")).unwrap();
    let error = |user: &User<'_>| String::try_from(property(user, "Error")).unwrap();
    assert!(!serving(&user) && error(&user).is_empty());
    let changes = PropertiesProxy::new(&user.client, NAME, PATH).unwrap();
    let mut changes = changes.receive_properties_changed().unwrap();
    let place = user.serve(&world.path("share"));
    let told = changes.next().unwrap();
    assert!(told.args().unwrap().changed_properties().contains_key("Serving"));
    until("it says that it serves", || serving(&user));
    let addresses = Vec::<String>::try_from(property(&user, "Addresses")).unwrap();
    assert_eq!(format!("[{}]:in", addresses[0]), place);
    let port = addresses[0].rsplit(':').next().unwrap().parse::<u16>().unwrap();
    let (kind, _) = user.refused("Shares.Serve", &to_dict(&json!({ "bind": ["192.0.2.1"], "port": port })));
    assert_eq!((kind.as_str(), serving(&user)), ("Failed", true), "what is refused changes nothing");
    assert_eq!(user.refused("Shares.Add", &("in", world.text("data"), false)).0, "InvalidArgument");
    let (kind, text) = user.refused("Shares.Add", &("a=b", world.text("data"), false));
    assert!(kind == "InvalidArgument" && text.contains("\"a=b\" cannot name a share"), "{kind} {text}");
    // A directory that has gone.
    fs::remove_dir(world.path("share")).unwrap();
    user.kill_and_restart();
    assert!(!serving(&user) && error(&user).starts_with("LS") && error(&user).contains("share"), "{}", error(&user));
    // It comes, as a disk or an address does that was not there yet when the session began.
    fs::create_dir(world.path("share")).unwrap();
    until("it serves by itself", || serving(&user) && error(&user).is_empty());
    fs::remove_dir(world.path("share")).unwrap();
    user.kill_and_restart();
    assert!(!serving(&user));
    user.ok("Shares.Remove", &"in");
    until("it serves again", || serving(&user) && error(&user).is_empty());
}

#[test]
fn a_share_whose_directory_is_missing_is_named_and_keeps_no_other_from_being_served() {
    let world = World::new("absent", true);
    let (Some(one), Some(mut two)) = (world.user("one"), world.user("two")) else { return };
    let place = two.serve(&world.path("share"));
    fs::create_dir(world.path("other")).unwrap();
    two.ok("Shares.Add", &("disk", world.text("other"), false));
    fs::remove_dir(world.path("other")).unwrap();
    two.kill_and_restart();
    let property = |name: &str| {
        let properties = PropertiesProxy::new(&two.client, NAME, PATH).unwrap();
        properties.get(format!("{NAME}.Shares").try_into().unwrap(), name).unwrap()
    };
    let error = || String::try_from(property("Error")).unwrap();
    assert!(bool::try_from(property("Serving")).unwrap(), "{}", error());
    assert!(error().starts_with("LS") && error().contains("share disk"), "{}", error());
    let root = place.trim_end_matches("in");
    assert_eq!(listed(&one, root).len(), 1);
    fs::create_dir(world.path("other")).unwrap();
    until("its directory has come", || error().is_empty());
    assert_eq!(listed(&one, root).len(), 2);
}

#[test]
fn a_mirror_follows_what_changes_until_it_is_cancelled() {
    let world = World::new("mirror", true);
    let (Some(one), Some(two)) = (world.user("one"), world.user("two")) else { return };
    let place = two.serve(&world.path("share"));
    fs::create_dir(world.path("share/copy")).unwrap();
    fs::write(world.path("data/a"), "a").unwrap();
    let ends = (world.text("data"), format!("{place}/copy"));
    let without = one.begin("Files.Mirror", &(&*ends.0, &*ends.1, Dict::new()));
    let record = one.ended(&without);
    assert!(record["error"].as_str().unwrap().starts_with("LS1828"), "no mark: {record}");
    let first = to_dict(&json!({ "init": true, "watch": true }));
    let nowhere = one.begin("Files.Mirror", &(&*ends.0, format!("{}none", place.trim_end_matches("in")), first));
    let record = one.ended(&nowhere);
    assert!(record["state"] == "failed" && record["options"]["init"] == true, "it goes on as it began: {record}");
    let options = to_dict(&json!({ "init": true, "watch": true, "no_fsync": true }));
    // Its end has been told by then.
    until("its object goes", || one.tasks().is_empty());
    let mut told = one.signals("Manager", "TaskEnded");
    let task = one.begin("Files.Mirror", &(&*ends.0, &*ends.1, &options));
    let copied = |name: &str| fs::read_to_string(world.path("share/copy").join(name)).unwrap_or_default();
    until("the first run is done", || copied("a") == "a");
    until("it watches", || one.progress(&task).unwrap()["state"] == "watching");
    fs::write(world.path("data/b"), "b").unwrap();
    until("a new file is there", || copied("b") == "b");
    until("it is told", || {
        let now = one.progress(&task).unwrap();
        now["files_done"] == 1 && now["current"] == "b"
    });
    one.cancel(&task).unwrap();
    let (path, record): (OwnedObjectPath, Dict) = told.next().unwrap().unwrap().body().deserialize().unwrap();
    let record: Value = linkspan_bus::from_dict(&record).unwrap();
    assert!(path == task && record["state"] == "cancelled" && record["files_done"] == 1, "{record}");
    assert_eq!(one.ended(&task), record);
}

/// A mirror of `data` at the share, once it follows.
fn follows(world: &World, one: &User<'_>, place: &str) -> OwnedObjectPath {
    fs::create_dir(world.path("share/copy")).unwrap();
    let options = to_dict(&json!({ "init": true, "watch": true, "no_fsync": true }));
    let task = one.begin("Files.Mirror", &(world.text("data"), format!("{place}/copy"), &options));
    until("it watches", || one.progress(&task).unwrap()["state"] == "watching");
    task
}

/// The one task that runs, once it does.
fn alone(one: &User<'_>) -> OwnedObjectPath {
    until("a task runs", || one.tasks().len() == 1);
    one.tasks()[0].as_str().try_into().unwrap()
}

fn kept(world: &World) -> Value {
    serde_json::from_str(&fs::read_to_string(world.path("one/state/linkspan/service/mirrors.json")).unwrap()).unwrap()
}

#[test]
fn a_mirror_that_follows_goes_on_with_each_start_until_it_is_cancelled() {
    let world = World::new("mirror-again", true);
    let (Some(mut one), Some(two)) = (world.user("one"), world.user("two")) else { return };
    let place = two.serve(&world.path("share"));
    follows(&world, &one, &place);
    let copied = |name: &str| fs::read_to_string(world.path("share/copy").join(name)).unwrap_or_default();
    one.kill_and_restart();
    fs::write(world.path("data/a"), "a").unwrap();
    until("it follows again", || copied("a") == "a");
    // After an end in good order, too, which is none of the mirror.
    one.end();
    one.kill_and_restart();
    fs::write(world.path("data/b"), "b").unwrap();
    until("it follows again", || copied("b") == "b");
    assert!(one.history().is_empty(), "{:?}", one.history());
    let task = alone(&one);
    let options = one.progress(&task).unwrap()["options"].clone();
    assert!(options["init"] == false && options["no_fsync"] == true, "{options}");
    let ends = (world.text("data"), format!("{place}/copy"), to_dict(&options));
    let (kind, why) = one.refused("Files.Mirror", &ends);
    assert!(kind == "LimitReached" && why.starts_with("LS1853"), "{kind}: {why}");
    one.cancel(&task).unwrap();
    assert_eq!(one.ended(&task)["state"], "cancelled");
    assert_eq!(kept(&world), json!([]));
    one.kill_and_restart();
    assert!(one.tasks().is_empty());
}

#[test]
fn a_mirror_that_goes_on_waits_for_a_peer_or_a_disk_and_ends_where_too_much_would_go() {
    let world = World::new("mirror-waits", true);
    let (Some(mut one), Some(mut two)) = (world.user("one"), world.user("two")) else { return };
    let place = two.serve(&world.path("share"));
    (0..20).for_each(|n| fs::write(world.path("data").join(n.to_string()), "x").unwrap());
    follows(&world, &one, &place);
    let copied = |name: &str| fs::read_to_string(world.path("share/copy").join(name)).unwrap_or_default();
    let waits = |one: &User<'_>, why: &str| {
        let task = alone(one);
        until(&format!("it waits and says {why}"), || {
            let now = one.progress(&task).unwrap_or_else(|| panic!("{:?}", one.history()));
            now["state"] == "waiting" && now["notes"].to_string().contains(why)
        });
    };
    two.end();
    one.kill_and_restart();
    waits(&one, "LS07");
    fs::write(world.path("data/a"), "a").unwrap();
    two.kill_and_restart();
    until("the peer is back", || copied("a") == "a");
    // The share's disk comes after the peer, then that of this machine.
    fs::rename(world.path("share/copy"), world.path("away")).unwrap();
    one.kill_and_restart();
    waits(&one, "LS1828");
    fs::rename(world.path("away"), world.path("share/copy")).unwrap();
    fs::write(world.path("data/b"), "b").unwrap();
    until("the peer's disk is back", || copied("b") == "b");
    fs::rename(world.path("data"), world.path("away")).unwrap();
    one.kill_and_restart();
    waits(&one, "LS1831");
    fs::write(world.path("away/c"), "c").unwrap();
    fs::rename(world.path("away"), world.path("data")).unwrap();
    until("the disk is back", || copied("c") == "c");
    // Nobody is asked whether so much may go.
    one.end();
    (0..20).for_each(|n| fs::remove_file(world.path("data").join(n.to_string())).unwrap());
    one.kill_and_restart();
    until("it ends", || !one.history().is_empty());
    let record = &one.history()[0];
    assert!(record["state"] == "failed" && record["error"].as_str().unwrap().starts_with("LS1826"), "{record}");
    assert!(copied("7") == "x" && kept(&world) == json!([]));
}

#[test]
fn a_mirror_that_is_begun_again_is_kept_and_waits_for_its_peer() {
    let world = World::new("mirror-paused", true);
    let (Some(one), Some(mut two)) = (world.user("one"), world.user("two")) else { return };
    let place = two.serve(&world.path("share"));
    let task = follows(&world, &one, &place);
    one.cancel(&task).unwrap();
    one.ended(&task);
    assert_eq!(kept(&world), json!([]));
    two.end();
    let options = to_dict(&json!({ "watch": true, "no_fsync": true, "again": true }));
    let task = one.begin("Files.Mirror", &(world.text("data"), format!("{place}/copy"), &options));
    until("it waits", || {
        let now = one.progress(&task).unwrap_or_else(|| panic!("{:?}", one.history()));
        now["state"] == "waiting"
    });
    assert_eq!(kept(&world).as_array().unwrap().len(), 1);
    fs::write(world.path("data/a"), "a").unwrap();
    two.kill_and_restart();
    until("the peer is back", || world.path("share/copy/a").exists());
}

#[test]
fn what_a_transfer_replaces_is_in_the_trash_and_all_else_stays() {
    let world = World::new("replaced", true);
    let (Some(one), Some(two)) = (world.user("one"), world.user("two")) else { return };
    let place = two.serve(&world.path("share"));
    for dir in ["share/data/a", "share/data/b", "back/data"] {
        fs::create_dir_all(world.path(dir)).unwrap();
    }
    for (file, text) in [
        ("data/a", "file"),
        ("data/x", "newer"),
        ("share/data/x", "old"),
        ("share/data/y", "y"),
        ("back/data/x", "own"),
    ] {
        fs::write(world.path(file), text).unwrap();
    }
    let text = |path: &str| fs::read_to_string(world.path(path)).unwrap_or_default();
    // What lies at a path in the trash of a directory, of all runs.
    let trash = |dir: &str, path: &str| {
        let runs = fs::read_dir(world.path(dir).join(".lspan/trash")).into_iter().flatten().flatten();
        runs.filter_map(|run| fs::read_to_string(run.path().join(path)).ok()).collect::<Vec<_>>()
    };
    let options = json!({ "no_fsync": true, "exclude": ["*.o"] });
    let send = one.begin("Files.Send", &(vec![world.text("data")], format!("{place}/"), to_dict(&options)));
    let record = one.ended(&send);
    // A directory is not replaced by a file.
    let why = record["error"].as_str().unwrap();
    assert!(record["entries_failed"] == 1 && why.contains("data/a: there is a directory of this name"), "{record}");
    assert_eq!((&*text("share/data/x"), &*text("share/data/y")), ("newer", "y"));
    assert!(world.path("share/data/a").is_dir() && world.path("share/data/b").is_dir());
    assert_eq!((trash("share", "data/x"), trash("share", "data/y")), (vec!["old".to_owned()], vec![]));
    // As which it goes on.
    let asked = &record["options"];
    assert!(asked["no_fsync"] == true && asked["exclude"] == json!(["*.o"]) && asked["delete"] == false, "{asked}");
    let get = one.begin("Files.Get", &(vec![format!("{place}/data")], world.text("back"), Dict::new()));
    let record = one.ended(&get);
    assert!(record["state"] == "done" && record["entries_deleted"] == 0, "{record}");
    assert_eq!((&*text("back/data/x"), &*text("back/data/y")), ("newer", "y"));
    assert_eq!(trash("back", "data/x"), ["own"]);
    // The whole share, into a directory with more in it.
    fs::write(world.path("back/more"), "more").unwrap();
    let get = one.begin("Files.Get", &(vec![&*place], world.text("back"), Dict::new()));
    assert_eq!(one.ended(&get)["state"], "done");
    assert_eq!(text("back/more"), "more");
}

#[test]
fn a_mount_shows_the_share_and_goes_when_it_is_cancelled() {
    if !Path::new("/dev/fuse").exists() {
        eprintln!("skipped: there is no /dev/fuse");
        return;
    }
    let world = World::new("mount", true);
    let (Some(mut one), Some(two)) = (world.user("one"), world.user("two")) else { return };
    let place = two.serve(&world.path("share"));
    fs::write(world.path("share/a"), "a").unwrap();
    fs::create_dir(world.path("at")).unwrap();
    let task = one.begin("Files.Mount", &(&*place, world.text("at"), Dict::new()));
    until("it is mounted, or has failed", || one.progress(&task).is_none_or(|now| now["state"] == "mounted"));
    if one.progress(&task).is_none() {
        let record = one.ended(&task);
        assert!(record["error"].as_str().unwrap().starts_with("LS1824"), "{record}");
        eprintln!("skipped: {}", record["error"]);
        return;
    }
    assert_eq!(fs::read_to_string(world.path("at/a")).unwrap(), "a");
    let written = fs::write(world.path("at/new"), "new");
    assert!(written.is_err_and(|error| error.kind() == std::io::ErrorKind::ReadOnlyFilesystem), "nobody said writable");
    // What is open stays open, but has no name any more.
    let mut open = fs::File::open(world.path("at/a")).unwrap();
    one.cancel(&task).unwrap();
    until("it has gone from its directory", || !world.path("at/a").exists());
    assert_eq!(one.progress(&task).unwrap()["state"], "mounted");
    one.cancel(&task).unwrap();
    assert_eq!(std::io::read_to_string(&mut open).unwrap(), "a");
    drop(open);
    assert_eq!(one.ended(&task)["state"], "done");
    let mount = |one: &User<'_>| {
        let writable = to_dict(&json!({ "writable": true }));
        let task = one.begin("Files.Mount", &(&*place, world.text("at"), writable));
        let ended = || panic!("{:?}", one.history());
        until("it is mounted", || one.progress(&task).unwrap_or_else(ended)["state"] == "mounted");
        fs::write(world.path("at/a"), "a").unwrap();
        assert_eq!(fs::read_to_string(world.path("share/a")).unwrap(), "a");
        task
    };
    // That of a service which is killed goes, also while that one itself waits there for a peer that has stopped.
    mount(&one);
    fs::write(world.path("share/b"), vec![7; 1 << 20]).unwrap();
    let Some(three) = world.user("three") else { return };
    let words = (vec![world.text("at/b")], format!("{}/", three.serve(&world.path("other"))), Dict::new());
    two.signal(Signal::STOP);
    one.begin("Files.Send", &words);
    // Not everybody sees where a thread waits. After so long its request has been taken, and cannot be taken back.
    if fs::read_to_string("/proc/thread-self/stack").is_ok() {
        let since = Cell::new(None);
        until("it waits in its own mount", || {
            let waits = one.threads("stack").any(|calls| calls.contains("fuse_"));
            since.set(waits.then(|| since.get().unwrap_or_else(Instant::now)));
            since.get().is_some_and(|begun| begun.elapsed() > Duration::from_millis(200))
        });
    }
    one.kill_and_restart();
    two.signal(Signal::CONT);
    let gone = || fs::read_dir(world.path("at")).is_ok_and(|mut entries| entries.next().is_none());
    until("the mount has gone", gone);
    assert!(one.tasks().is_empty());
    // One whose process was killed leaves its directory, too.
    let task = mount(&one);
    let child = one.threads("children").find_map(|ids| ids.split_whitespace().next()?.parse().ok()).unwrap();
    kill_process(Pid::from_raw(child).unwrap(), Signal::KILL).unwrap();
    let record = one.ended(&task);
    assert!(record["error"].as_str().unwrap().starts_with("LS1831") && gone(), "{record}");
    let task = mount(&one);
    one.cancel(&task).unwrap();
    assert_eq!(one.ended(&task)["state"], "done");
    // Cancelled before its peer has said a word.
    two.signal(Signal::STOP);
    let task = one.begin("Files.Mount", &(&*place, world.text("at"), Dict::new()));
    until("its process is there", || one.threads("children").any(|ids| !ids.trim().is_empty()));
    let asked = Instant::now();
    one.cancel(&task).unwrap();
    let record = one.ended(&task);
    assert!(asked.elapsed() < Duration::from_secs(4), "it waits for the peer: {:?}", asked.elapsed());
    assert!(record["state"] == "cancelled" && gone(), "{record}");
    two.signal(Signal::CONT);
}

const AS_NOBODY: [&str; 4] = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"];

/// Has /dev/fuse as udev makes it, for every user; that of containers is often root's alone.
const OPEN_FUSE: &str =
    "mount -t tmpfs -o mode=755,dev tmpfs dev && mknod -m 666 dev/fuse c 10 229 && mount --bind dev/fuse /dev/fuse";

/// What a program says.
fn said(program: &str, words: &[&str]) -> String {
    let output = Command::new(program).args(words).stdin(Stdio::null()).output().unwrap();
    String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
}

#[test]
fn a_user_who_is_not_root_has_a_mount_and_it_goes_when_it_is_cancelled() {
    if !is_root() {
        eprintln!("skipped: who is not root cannot become another user; the test before has shown it");
        return;
    }
    let world = World::below(&std::env::temp_dir(), "nobody", true);
    let Some(two) = world.user("two") else { return };
    let place = two.serve(&world.path("share"));
    fs::write(world.path("share/a"), "read").unwrap();
    for sub in ["at", "dev", "program"] {
        fs::create_dir(world.path(sub)).unwrap();
    }
    fs::copy(env!("CARGO_BIN_EXE_linkspand"), world.path("program/linkspand")).unwrap();
    for name in ["", "one", "at", "key"] {
        std::os::unix::fs::chown(world.path(name), Some(65534), Some(65534)).unwrap();
    }
    let may = Command::new("unshare").args(["-m", "sh", "-c", OPEN_FUSE]).current_dir(world.path("")).output().unwrap();
    if !may.status.success() {
        eprintln!("skipped: /dev/fuse cannot be had for another user: {}", String::from_utf8_lossy(&may.stderr));
        return;
    }
    let Some(bus) = Bus::start() else { return };
    let mut command = Command::new("unshare");
    let script = format!("{OPEN_FUSE} && exec \"$@\"");
    command.args(["-m", "sh", "-c", &script, "sh"]).args(AS_NOBODY).arg(world.path("program/linkspand"));
    command.current_dir(world.path(""));
    let process = world.start(command, "one", &bus.address());
    let client = Builder::address(&*bus.address()).unwrap().build().unwrap();
    let one = User { world: &world, home: "one", bus, process, client };
    one.await_name();
    let (address, pid) = (one.bus.address(), one.process.id().to_string());
    let call = |path: &str, method: &str, arguments: &[&str]| {
        let words = ["gdbus", "call", "--address", &address, "-d", NAME, "-o", path, "-m", &format!("{NAME}.{method}")];
        said(AS_NOBODY[0], &[&AS_NOBODY[1..], &words[..], arguments].concat())
    };
    let history = || call(PATH, "Manager.GetHistory", &["0"]);
    let task = call(PATH, "Files.Mount", &[&place, &world.text("at"), "{}"]);
    let task = task.split('\'').nth(1).unwrap_or_else(|| panic!("{task}")).to_owned();
    until("it is mounted, or has failed", || {
        call(&task, "Task.GetProgress", &[]).contains("'mounted'") || history().contains("LS")
    });
    if history().contains("LS1824") {
        eprintln!("skipped: {}", history());
        return;
    }
    let read = || said("nsenter", &[&["-m", "-t", &pid][..], &AS_NOBODY, &["cat", &world.text("at/a")]].concat());
    assert_eq!(read(), "read", "{}", history());
    call(&task, "Task.Cancel", &[]);
    until("it has ended", || history().contains("'done'"));
    assert!(read().contains("No such file"), "{}", read());
}
