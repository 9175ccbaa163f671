use linkspan_topology::fixture::{self, Fixture};

use super::*;

fn machine(name: &str) -> Machine {
    let (_, tree) = fixture::ALL.iter().find(|(have, _)| *have == name).unwrap();
    let lines: Vec<&str> = tree.lines().filter(|l| !l.is_empty() && !l.starts_with('#')).collect();
    Machine::read(&Fixture::tree(&(lines.join("\n") + "\n")).roots())
}

fn shown(ports: &[CablePort]) -> Vec<String> {
    ports.iter().map(CablePort::shown).collect()
}

#[test]
fn spellings() {
    for (name, wanted) in [
        ("cable", Some(0)),
        ("cable1", Some(1)),
        ("cable12", Some(12)),
        ("cable0", None),
        ("cable1x", None),
        ("cables", None),
        ("Cable", None),
        ("cable99999", None),
        ("mini", None),
    ] {
        assert_eq!(number(name), wanted, "{name}");
    }
}

#[test]
fn cables_are_numbered_thunderbolt_first() {
    let ports = of(&machine("strix-halo"), None, &[]);
    assert_eq!(shown(&ports), ["cable1 (0-1, thunderbolt0, to strix-b)"]);
    let asked = IfFilter::parse("x", "enp,wlp").unwrap();
    let present = ["lo", "enp193s0", "thunderbolt0"].map(String::from);
    assert_eq!(shown(&of(&machine("strix-halo"), Some(&asked), &present))[1..], ["cable2 (enp193s0)"]);
    let spark = of(&machine("spark"), None, &[]);
    assert!(spark.iter().all(|port| port.peer.is_none() && port.interface.as_ref() == Some(&port.cable)), "{spark:?}");
    assert!(spark.len() >= 2, "the ports of its RDMA cards: {spark:?}");
    assert_eq!(of(&machine("laptop"), None, &[]), []);
}

#[test]
fn the_only_host_is_meant_and_more_than_one_are_told() {
    let port = |n: usize, id: Option<&str>| CablePort {
        name: format!("cable{n}"),
        cable: format!("0-{n}"),
        interface: Some(format!("thunderbolt{n}")),
        peer: id.map(|id| format!("host-{id}")),
        id: id.map(str::to_owned),
        heard: Vec::new(),
    };
    let everybody = |_: &CablePort| true;
    let names = |found: Result<Vec<CablePort>, String>| {
        found.map(|list| list.into_iter().map(|one| one.name).collect::<Vec<_>>())
    };
    let one_host = [port(1, Some("a")), port(2, Some("a")), port(3, None)];
    assert_eq!(names(choose(&one_host, 0, &everybody)), Ok(vec!["cable1".to_owned(), "cable2".to_owned()]));
    assert_eq!(names(choose(&one_host, 3, &everybody)), Ok(vec!["cable3".to_owned()]));
    assert!(names(choose(&one_host, 4, &everybody)).unwrap_err().contains("cable1 (0-1, thunderbolt1, to host-a)"));
    let two_hosts = [port(1, Some("a")), port(2, Some("b"))];
    assert!(names(choose(&two_hosts, 0, &everybody)).unwrap_err().contains("several cables: name one of cable1"));
    let cards = [port(1, None), port(2, None)];
    assert_eq!(names(choose(&cards, 0, &|port| port.name == "cable2")), Ok(vec!["cable2".to_owned()]));
    assert!(names(choose(&cards, 0, &everybody)).is_err());
    assert!(names(choose(&cards, 0, &|_| false)).unwrap_err().contains("nobody answers"));
    assert!(names(choose(&[], 0, &everybody)).unwrap_err().contains("no cable with a host"));
}
