use linkspan_fabric::{Config, Log};
use linkspan_topology::fixture::Fixture;
use linkspan_topology::{AddrEntry, interfaces};

use super::*;

#[test]
fn an_address_that_two_interfaces_have_is_waited_on_once() {
    let both = ["v1", "v2"].map(|name| AddrEntry::new(name.into(), 1, "10.92.0.1".parse().unwrap(), 32));
    let list = interfaces(&Fixture::new().roots(), &both);
    let survey: Vec<(Interface, Verdict)> = list.into_iter().map(|one| (one, Verdict::Usable)).collect();
    assert_eq!(survey.len(), 2);
    assert_eq!(addresses(&survey, 7), [SocketAddr::from(([10, 92, 0, 1], 7))]);
}

#[test]
fn interfaces_that_cannot_be_listed_for_want_of_a_descriptor_are_looked_at_again() {
    const NAME: &str =
        "rendezvous::server::tests::interfaces_that_cannot_be_listed_for_want_of_a_descriptor_are_looked_at_again";
    if std::env::var_os("LSPAN_TEST_FEW").is_none() {
        // In a process of its own, which has few.
        let mut child = std::process::Command::new("sh");
        child.args(["-c", "ulimit -n 100; exec \"$0\" \"$@\""]).arg(std::env::current_exe().unwrap());
        let out = child.args(["--exact", NAME, "--nocapture"]).env("LSPAN_TEST_FEW", "1").output().unwrap();
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
        return;
    }
    let fabric = Fabric::new(Config::from_env().unwrap(), Log::off(), false, Vec::new()).unwrap();
    let mut server = RendezvousServer::open(&fabric, &[], true, 0).unwrap();
    let all: Vec<std::fs::File> = std::iter::from_fn(|| std::fs::File::open("/dev/null").ok()).collect();
    let now = Instant::now();
    server.follow(now);
    assert!(server.wait_most().is_some());
    drop(all);
    server.follow(now + LATER);
    assert!(!server.interfaces.unwrap().changed);
}
