use linkspan_topology::fixture::{Fixture, STRIX_HALO};

use super::*;

/// The cables of a fixture that has files more.
fn idle(more: &str) -> Idle {
    let fix = Fixture::tree(&format!("{STRIX_HALO}{more}"));
    let machine = Machine::read(&fix.roots());
    let cables = cables(&machine, &fix.survey());
    Idle::of(&machine, cables)
}

fn beside(idle: &Idle, rail: &str) -> String {
    idle.beside(&[rail.to_owned()]).join("\n")
}

#[test]
fn a_cable_that_carries_nothing_of_a_connection_is_told() {
    let idle = idle("");
    let said = beside(&idle, "tcp eth0 10.1.0.1:1 -> 10.1.0.2:2 (same subnet)");
    assert!(said.starts_with("the cable 0-1 to strix-b is not used: nobody answered over thunderbolt0"), "{said}");
    for used in
        ["tcp thunderbolt0 a -> b (a cable of this host)", "thunderbolt /dev/linkspan/0 (tier 1)", "shm (one host)"]
    {
        assert_eq!(beside(&idle, used), "", "{used}");
    }
}

#[test]
fn hosts_that_are_not_looked_for_are_told() {
    let said = beside(&idle("\nsys/module/thunderbolt/parameters/xdomain\tN\n"), "tcp eth0 a -> b (same subnet)");
    assert!(said.starts_with("no cable is used") && said.contains("thunderbolt.xdomain=0"), "{said}");
    let on = beside(&idle("\nsys/module/thunderbolt/parameters/xdomain\tY\n"), "tcp eth0 a -> b (same subnet)");
    assert!(!on.contains("xdomain=0"), "{on}");
}
