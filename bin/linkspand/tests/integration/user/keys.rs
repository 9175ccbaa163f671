//! Two users pair over D-Bus, and then have each other's files.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::time::{SystemTime, UNIX_EPOCH};

use linkspan_bus::Dict;
use linkspan_bus::zbus::zvariant::OwnedObjectPath;
use linkspan_fabric::keys::{Keyring, Peer};
use rustix::process::Signal;
use serde_json::Value;

use super::{User, World};

fn peers(user: &User<'_>) -> Vec<Value> {
    let peers: Vec<Dict> = user.ok("Keys.List", &()).body().deserialize().unwrap();
    peers.iter().map(|peer| linkspan_bus::from_dict(peer).unwrap()).collect()
}

#[test]
fn users_that_paired_serve_each_other_and_nobody_else() {
    let world = World::new("pair", false);
    let (Some(one), Some(two)) = (world.user("one"), world.user("two")) else { return };
    let (kind, why) = two.refused("Shares.Serve", &Dict::new());
    assert!(kind == "NotPermitted" && why.starts_with("LS1815"), "{kind}: {why}");
    let (line, until, offer): (String, u64, OwnedObjectPath) =
        two.ok("Keys.Offer", &("two", "one")).body().deserialize().unwrap();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    assert!((now + 500..=now + 600).contains(&until), "ten minutes: {until}, now {now}");
    let join = one.begin("Keys.Join", &(&*line, "one", "two"));
    let (here, there) = (one.ended(&join), two.ended(&offer));
    assert_eq!((here["state"].as_str(), here["name"].as_str()), (Some("done"), Some("two")), "{here}");
    assert_eq!((&here["fingerprint"], there["name"].as_str()), (&there["fingerprint"], Some("one")), "{there}");
    assert!(!here.to_string().contains(&line) && !there.to_string().contains(&line), "the line is nobody else's");
    assert_eq!((peers(&one).len(), peers(&two)[0]["name"].as_str()), (1, Some("one")));
    // Used once.
    let again = one.begin("Keys.Join", &(&*line, "one", "two"));
    assert_eq!(one.ended(&again)["state"], "failed");
    let place = two.serve(&world.path("share"));
    fs::write(world.path("data/a"), "a").unwrap();
    let send = || one.ended(&one.begin("Files.Send", &(vec![world.text("data/a")], &*place, Dict::new())));
    assert_eq!(send()["state"], "done");
    assert_eq!(fs::read_to_string(world.path("share/a")).unwrap(), "a");
    let forgotten: String = two.ok("Keys.Forget", &"one").body().deserialize().unwrap();
    let (shown, own): (String, String) = one.ok("Keys.Show", &"one").body().deserialize().unwrap();
    assert_eq!(forgotten, own);
    let record = send();
    assert_eq!(record["state"], "failed", "{record}");
    // The line of Show brings it back.
    assert_eq!(two.ok("Keys.Add", &(&*shown, "", Vec::<&str>::new())).body().deserialize::<String>().unwrap(), own);
    assert_eq!(send()["state"], "done");
}

#[test]
fn a_bus_that_comes_again_has_the_tasks_that_go_on() {
    let world = World::new("bus", false);
    let Some(mut user) = world.user("one") else { return };
    let (_, _, offer): (String, u64, OwnedObjectPath) = user.ok("Keys.Offer", &("", "")).body().deserialize().unwrap();
    user.restart_bus();
    assert_eq!(user.tasks(), [offer.as_str()]);
    user.cancel(&offer).unwrap();
    assert_eq!(user.ended(&offer)["state"], "cancelled");
    super::until("no object is left", || user.tasks().is_empty());
}

#[test]
fn killed_in_a_pairing_neither_side_has_stored_anything_and_they_pair_again() {
    let world = World::new("pair-killed", false);
    let (Some(mut one), Some(mut two)) = (world.user("one"), world.user("two")) else { return };
    let offer = |two: &User<'_>| -> (String, u64, OwnedObjectPath) {
        two.ok("Keys.Offer", &("two", "one")).body().deserialize().unwrap()
    };
    let untouched = |user: &User<'_>| user.tasks().is_empty() && user.history().is_empty() && peers(user).is_empty();
    // The one who joins, while the other side takes its connection and says nothing.
    let (line, _, offered) = offer(&two);
    two.signal(Signal::STOP);
    let join = one.begin("Keys.Join", &(&*line, "one", "two"));
    assert_eq!(one.tasks(), [join.as_str()]);
    one.kill_and_restart();
    two.signal(Signal::CONT);
    assert!(untouched(&one));
    // The one who offers.
    assert_eq!(two.tasks(), [offered.as_str()]);
    two.kill_and_restart();
    assert!(untouched(&two));
    let record = one.ended(&one.begin("Keys.Join", &(&*line, "one", "two")));
    assert!(record["state"] == "failed" && record["error"].as_str().unwrap().starts_with("LS05"), "{record}");
    assert!(peers(&one).is_empty());
    let (line, _, offered) = offer(&two);
    let join = one.begin("Keys.Join", &(&*line, "one", "two"));
    let (here, there) = (one.ended(&join), two.ended(&offered));
    assert_eq!((here["state"].as_str(), there["state"].as_str()), (Some("done"), Some("done")), "{here}, {there}");
    // What was stored is there after a kill.
    one.kill_and_restart();
    assert_eq!(peers(&one)[0]["name"], "two");
}

#[test]
fn whoever_changes_peers_or_shares_clients_are_told() {
    let world = World::new("told", false);
    let (Some(one), Some(two)) = (world.user("one"), world.user("two")) else { return };
    let line = |user: &User<'_>, name: &str| -> String {
        user.ok("Keys.Show", &name).body().deserialize::<(String, String)>().unwrap().0
    };
    let theirs = line(&two, "two");
    let mut told = one.signals("Keys", "PeersChanged");
    // By the service.
    one.ok("Keys.Add", &(&*theirs, "", Vec::<&str>::new()));
    told.next().unwrap().unwrap();
    assert_eq!(peers(&one)[0]["name"], "two");
    // By another program, as `lspan key` does it.
    let ring = Keyring::open_in(&world.path("one/config/linkspan")).unwrap();
    ring.forget("two").unwrap();
    told.next().unwrap().unwrap();
    assert_eq!(peers(&one), [] as [Value; 0]);
    ring.add(Peer { name: "three".into(), ..Peer::parse(&theirs).unwrap() }).unwrap();
    told.next().unwrap().unwrap();
    assert_eq!(peers(&one)[0]["name"], "three");
    // Whom nobody may trust, for others could have written it, until that is mended as it says.
    for (mode, refused) in [(0o666, true), (0o644, false)] {
        let file = world.path("one/config/linkspan/peers");
        fs::set_permissions(file, fs::Permissions::from_mode(mode)).unwrap();
        told.next().unwrap().unwrap();
        match refused {
            true => assert!(one.refused("Keys.List", &()).1.contains("chmod 644")),
            false => assert_eq!(peers(&one)[0]["name"], "three"),
        }
    }
    // A pairing.
    let (join, _, offer): (String, u64, OwnedObjectPath) =
        two.ok("Keys.Offer", &("two", "one")).body().deserialize().unwrap();
    let task = one.begin("Keys.Join", &(&*join, "one", "two"));
    told.next().unwrap().unwrap();
    assert_eq!((one.ended(&task)["state"].as_str(), two.ended(&offer)["state"].as_str()), (Some("done"), Some("done")));
    assert_eq!(peers(&one)[0]["name"], "two");
    let mut told = one.signals("Shares", "SharesChanged");
    let count = |user: &User<'_>| user.ok("Shares.List", &()).body().deserialize::<Vec<Dict>>().unwrap().len();
    one.ok("Shares.Add", &("in", &*world.text("data"), false));
    told.next().unwrap().unwrap();
    assert_eq!(count(&one), 1);
    one.ok("Shares.Remove", &"in");
    told.next().unwrap().unwrap();
    assert_eq!(count(&one), 0);
}
