use std::path::Path;
use std::sync::Arc;

use linkspan_service::admission::Host;
use linkspan_service::system::{Places, System};
use linkspan_topology::{Cable, Link, Medium};
use zbus::object_server::Interface;

use super::*;
use crate::cable::CableObject;
use crate::manager::Manager;
use crate::peer::PeerObject;
use crate::watches::Watches;

#[test]
fn whatever_a_cable_is_called_it_has_a_path() {
    for (name, path) in
        [("0-1", "0_2d1"), ("enp193s0", "enp193s0"), ("", "_"), ("a/../b", "a_2f_2e_2e_2fb"), ("ä", "_c3_a4")]
    {
        let made = object_path("cable", name);
        assert_eq!(made.as_str(), format!("{PATH}/cable/{path}"));
        assert!(zbus::zvariant::ObjectPath::try_from(made.as_str()).is_ok());
    }
}

/// An interface as introspection shows it.
fn shown<I: Interface>(object: &I) -> (String, String) {
    let mut xml = String::from(
        "<!DOCTYPE node PUBLIC \"-//freedesktop//DTD D-BUS Object Introspection 1.0//EN\" \
         \"http://www.freedesktop.org/standards/dbus/1.0/introspect.dtd\">\n<node>\n",
    );
    object.introspect_to_writer(&mut xml, 2);
    (I::name().to_string(), xml + "</node>\n")
}

/// Those of the user's service.
fn of_user() -> Vec<(String, String)> {
    use linkspan_user::{mirrors, shares, task};
    let say: task::Say = Arc::new(|_| {});
    let tasks = Arc::new(task::Tasks::new("/x/history".into(), say.clone(), Box::new(|| {})));
    let task = tasks.prepare(task::Kind::Pair, "", Vec::new()).unwrap();
    let shares = shares::Shares::new("/x/shares".into(), false, say.clone(), Arc::new(|| {}));
    let mirrors = mirrors::Mirrors::new("/x/mirrors".into(), &say);
    let user = user::User { tasks, mirrors, shares, say, changed: Arc::new(|| {}) };
    let calls = user::Calls::new(Arc::new(user), 0);
    vec![
        shown(&user::Manager { calls: calls.clone(), watches: Watches::new(1) }),
        shown(&user::Tests(calls.clone())),
        shown(&user::Files(calls.clone())),
        shown(&user::Keys::new(calls.clone())),
        shown(&user::Shares::new(calls.clone())),
        shown(&user::TaskObject::new(calls, task)),
    ]
}

#[test]
fn the_xml_that_is_checked_in_is_what_the_services_show_and_parsers_take_it() {
    let places = Places { root: "/x".into(), allowed: "/x".into(), statistics: "/x".into(), devmem: "/x".into() };
    let system = Arc::new(System::new(places, 1, Box::new(|_, _| {})));
    let link = Link::default();
    let (medium, paths, notes) = (Medium::Thunderbolt, Vec::new(), Vec::new());
    let cable = Cable {
        medium,
        name: "0-1".into(),
        link,
        peer: None,
        neighbours: Vec::new(),
        neighbour_count: 0,
        paths,
        notes,
    };
    let mut changed = Vec::new();
    let of_machine = [
        shown(&Manager::new(system, Watches::new(1), Box::new(|| {}))),
        shown(&CableObject::new(&cable, None)),
        shown(&PeerObject(Host::default())),
    ];
    for (name, xml) in of_machine.into_iter().chain(of_user()) {
        // XML has no other use of two hyphens than the ends of a comment: parsers refuse all of it.
        assert!(!xml.replace("<!--", "").replace("-->", "").contains("--"), "{name}: a comment with two hyphens");
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("xml/{name}.xml"));
        if std::fs::read_to_string(&file).unwrap_or_default() != xml {
            let new = std::env::temp_dir().join(format!("{name}.xml"));
            std::fs::write(&new, &xml).unwrap();
            changed.push(format!("cp {} {}", new.display(), file.display()));
        }
    }
    assert!(
        changed.is_empty(),
        "the interfaces have changed, which only adds; if that is meant:\n{}",
        changed.join("\n")
    );
}

#[test]
fn polkit_knows_every_action_and_asks_for_no_other() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../bin/linkspand/data/org.linkspan.policy");
    let policy = std::fs::read_to_string(file).unwrap();
    let listed: Vec<&str> =
        policy.split("<action id=\"").skip(1).map(|part| part.split('"').next().unwrap_or_default()).collect();
    assert_eq!(listed, actions::ALL);
    assert_eq!(policy.matches(">auth_admin_keep<").count(), 12);
    assert_eq!(policy.matches(">auth_admin<").count(), 3, "lending queues asks each time");
}
