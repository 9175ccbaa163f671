use linkspan_topology::fixture::Fixture;

use super::*;

/// The command for an address, on a machine with these files beside an interface of the number 7.
fn address(files: &str, kind: &Kind) -> String {
    let fixture = Fixture::tree(&format!("sys/class/net/x0/ifindex\t7\n{files}\n"));
    let (Step::Run(text) | Step::Do(text)) =
        Manages::of(&fixture.roots(), "x0", kind).address("x0", "10.0.0.1/30").remove(0);
    text
}

const OWN: &str = "sudo nmcli connection modify linkspan-x0 ";
const BY_HAND: &str = "sudo ip addr add 10.0.0.1/30 dev x0";

#[test]
fn who_manages_the_interface_is_told_to_change_it() {
    for (files, begin) in [
        ("run/NetworkManager/devices/7\t[device]\\nmanaged=true\\nconnection-uuid=u", OWN),
        ("run/NetworkManager/devices/1\t[device]\\nmanaged=true", OWN),
        ("run/NetworkManager/devices/7\t[device]\\nmanaged=false", BY_HAND),
        // What NetworkManager's settings leave out has no such line, and what ifupdown has it leaves alone.
        ("run/NetworkManager/devices/7\t[device]\netc/network/interfaces\tauto lo x0\\niface x0 inet static", BY_HAND),
        ("run/NetworkManager/devices/1\t[device]\netc/network/interfaces.d/x\tiface x0 inet6 auto", BY_HAND),
        ("run/NetworkManager/devices/1\t[device]\netc/network/interfaces\tiface x01 inet dhcp", OWN),
        // netplan: networkd has this one.
        (
            "run/NetworkManager/devices/7\t[device]\nrun/systemd/netif/links/7\tADMIN_STATE=configured",
            "printf '[Match]\\nName=x0",
        ),
        (
            "run/NetworkManager/devices/7\t[device]\\nmanaged=true\nrun/systemd/netif/links/7\tADMIN_STATE=unmanaged",
            OWN,
        ),
        (
            "run/NetworkManager/devices/7\t[device]\\nmanaged=false\nrun/systemd/netif/links/7\tADMIN_STATE=unmanaged",
            BY_HAND,
        ),
        ("run/systemd/netif/links/7\tADMIN_STATE=pending", "printf '[Match]\\nName=x0"),
        // Debian makes the folder at boot, where networkd does not run too.
        ("run/systemd/netif/links/1\tADMIN_STATE=unmanaged", BY_HAND),
        ("run/NetworkManager/devices/7\t[device]\\nmanaged=true\nproc/1/net/dev\tInter-|\\n lo: 0", BY_HAND),
        ("", BY_HAND),
    ] {
        let text = address(files, &Kind::Physical);
        assert!(text.starts_with(begin), "{files}: {text}");
    }
}

#[test]
fn a_bond_or_a_vlan_keeps_its_own_profile() {
    let active = "run/NetworkManager/devices/7\t[device]\\nmanaged=true\\nconnection-uuid=6f0-1";
    for kind in [Kind::Bond, Kind::Vlan, Kind::Bridge { wired: true }] {
        assert!(
            address(active, &kind)
                .starts_with("sudo nmcli connection modify uuid 6f0-1 ipv4.addresses 10.0.0.1/30 ipv4.method manual"),
            "{kind}"
        );
        let text = address("run/NetworkManager/devices/7\t[device]\\nmanaged=true", &kind);
        assert!(text.starts_with("change the connection of x0") && !text.contains("type ethernet"), "{text}");
    }
    assert!(address(active, &Kind::Infiniband).contains("type infiniband ifname x0"));
}

#[test]
fn a_profile_that_is_there_is_changed_and_no_second_one_of_its_name_added() {
    let fixture = Fixture::new();
    let own = Manages::NetworkManager(Profile::Own("ethernet"));
    // An `nmcli` that keeps a profile of this name as one line of settings.
    fixture.file(
        "nmcli",
        "#!/bin/sh\ncase \"$2\" in\nmodify) test -e profile || exit 10; shift 3;;\nadd) test ! -e profile || exit 9; shift 8;;\n\
         up) exit 0;;\nesac\nprintf '[%s] ' \"$@\" >profile\n",
    );
    let mut kept = Vec::new();
    for steps in [own.address("x0", "10.0.0.1/30"), own.link_local("x0"), own.address("x0", "10.0.0.5/30")] {
        let [Step::Run(text)] = &steps[..] else { panic!("{steps:?}") };
        let text = text.replace("sudo nmcli", "sh ./nmcli");
        let done = std::process::Command::new("sh").args(["-c", &text]).current_dir(&fixture.root).status().unwrap();
        assert!(done.success(), "{text}");
        kept.push(std::fs::read_to_string(fixture.root.join("profile")).unwrap());
    }
    assert!(kept[0].contains("[ipv4.addresses] [10.0.0.1/30] [ipv4.method] [manual]"), "{kept:?}");
    assert!(kept[1].contains("[ipv4.addresses] [] [ipv4.method] [disabled]"), "{kept:?}");
    assert!(kept[2].contains("[ipv4.addresses] [10.0.0.5/30] [ipv4.method] [manual]"), "{kept:?}");
}

#[test]
fn a_name_that_means_something_to_a_shell_is_quoted() {
    let name = "a;b";
    for manager in [Manages::NetworkManager(Profile::Own("ethernet")), Manages::Networkd, Manages::None] {
        for steps in
            [manager.address(name, "10.0.0.1/30"), manager.link_local(name), manager.up(name), manager.mtu(name, 9000)]
        {
            let Step::Run(text) = &steps[0] else { panic!("{steps:?}") };
            assert_eq!(text.matches("a;b").count(), text.matches('\'').count() / 2, "{text}");
        }
    }
    assert!(
        Manages::None
            .link_local("e0.5")
            .iter()
            .any(|step| matches!(step, Step::Run(text) if text.contains("conf.e0/5.disable")))
    );
}

#[test]
fn an_interface_below_thousands_of_others_is_of_the_first_namespace() {
    let counters = " 0".repeat(60);
    let others: String = (0..2000).map(|n| format!("veth{n}:{counters}\\n")).collect();
    let managed = "run/NetworkManager/devices/7\t[device]\\nmanaged=true";
    let text = address(&format!("proc/1/net/dev\t{others}x0:{counters}\n{managed}"), &Kind::Physical);
    assert!(text.starts_with(OWN), "{text}");
    let text = address(&format!("proc/1/net/dev\t{others}\n{managed}"), &Kind::Physical);
    assert!(text.starts_with(BY_HAND), "it is in another one: {text}");
}
