use std::io::Write as _;

use super::*;

/// `tar -t` of an archive.
fn listed(bytes: &[u8], options: &[&str]) -> String {
    let mut child = Command::new("tar").args(options).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(bytes).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn tar_reads_the_archive() {
    let mut bytes = Vec::new();
    for (name, content) in [("empty", &b""[..]), ("one", b"1"), ("block", &[7; 512]), ("more", &[8; 513])] {
        tar::add(&mut bytes, "r", name, content, 1_000_000_000);
    }
    tar::end(&mut bytes);
    assert_eq!(bytes.len() % 10_240, 0);
    let list = listed(&bytes, &["-tvf", "-"]);
    let sizes: Vec<(&str, &str)> =
        list.lines().filter_map(|l| Some((l.split_whitespace().nth(2)?, l.split_whitespace().last()?))).collect();
    assert_eq!(sizes, [("0", "r/empty"), ("1", "r/one"), ("512", "r/block"), ("513", "r/more")]);
    assert!(list.contains("-rw-------"), "{list}");
}

#[test]
fn whatever_the_host_is_called_the_archive_has_the_files_of_the_list() {
    for host in ["h".repeat(57), "h".repeat(64), "a/b c".to_owned(), "\u{e4}".repeat(32)] {
        let folder = format!("lspan-bugreport-{}-1764150000", plain(&host));
        assert!(folder.len() <= tar::FOLDER && !folder.contains('/'), "{folder}");
        let part = |name: &str| Part { name: name.into(), what: String::new(), text: name.into() };
        let parts: Vec<Part> = OURS.iter().map(|(name, ..)| part(name)).chain([part("environment.txt")]).collect();
        let names: Vec<String> = parts.iter().map(|part| format!("{folder}/{}", part.name)).collect();
        let bytes = archive(&folder, &parts, 1);
        // tar(1) quotes what is no ASCII.
        let list = listed(&bytes, &["-tf", "-", "--quoting-style=literal"]);
        assert_eq!(list.lines().collect::<Vec<_>>(), names, "{host}");
    }
}

#[test]
fn the_key_of_a_router_is_not_read_and_that_of_a_service_is() {
    use linkspan_topology::fixture::{Fixture, STRIX_HALO};
    let secret = "0123456789abcdef".repeat(4);
    let real = "sys/devices/pci0000:00/0000:00:08.3/0000:c6:00.5/domain0/0-0";
    let fixture = Fixture::tree(&format!(
        "{STRIX_HALO}\nsys/bus/thunderbolt/devices/0-9/key\t{secret}\n{real}/0-1/key\t{secret}\n{real}/key\t{secret}\n"
    ));
    let tree = tree::capture(&fixture.roots());
    assert!(!tree.contains(&secret), "{tree}");
    assert!(tree.contains("0-1.0/key\tnetwork"), "{tree}");
}

#[test]
fn of_network_managers_it_keeps_who_has_which_interface_and_nothing_else() {
    use linkspan_topology::fixture::Fixture;
    let fixture = Fixture::tree(
        "run/NetworkManager/devices/2\t[device]\\nmanaged=true\\nconnection-uuid=6f0\n\
         run/NetworkManager/devices/3\t[device]\\nconnection-uuid=6f1\n\
         run/systemd/netif/links/2\tADMIN_STATE=unmanaged\\nDNS=10.0.0.1\n\
         etc/network/interfaces.d/radio\tiface wlan0 inet dhcp\\n  wpa-psk correct-horse-battery",
    );
    let tree = tree::capture(&fixture.roots());
    for line in [
        "/run/NetworkManager/devices/2\tmanaged=true\n",
        "/run/NetworkManager/devices/3\t-\n",
        "/run/systemd/netif/links/2\tADMIN_STATE=unmanaged\n",
        "/etc/network/interfaces.d/radio\tiface wlan0 inet dhcp\n",
    ] {
        assert!(tree.contains(line), "{line}: {tree}");
    }
    assert!(["6f0", "6f1", "10.0.0.1", "horse"].iter().all(|secret| !tree.contains(secret)), "{tree}");
}

/// The tree of this machine, read anew as files, has the interfaces and the findings of the machine.
#[test]
fn a_captured_machine_is_judged_as_the_machine_itself() {
    use linkspan_doctor::{Snapshot, Sources, judge};
    use linkspan_topology::fixture::Fixture;
    let fixture = Fixture::tree(&tree::capture(&Roots::default()));
    let copy = Snapshot::read(Sources { roots: fixture.roots(), addrs: fixture.addrs.clone(), ..Sources::default() });
    let here = Sources {
        env: std::collections::BTreeMap::new(),
        rules: None,
        log: Vec::new(),
        closed: Vec::new(),
        ..Sources::here(None)
    };
    let here = Snapshot::read(here);
    let interfaces = |snapshot: &Snapshot| {
        let shown = |(iface, verdict): &(linkspan_topology::Interface, linkspan_topology::Verdict)| {
            format!("{} {:?} {:?} {:?} {verdict:?}", iface.name, iface.kind, iface.mtu, iface.carrier)
        };
        snapshot.survey().iter().map(shown).collect::<Vec<_>>()
    };
    assert_eq!(interfaces(&copy), interfaces(&here));
    let codes = |snapshot: &Snapshot| {
        judge(snapshot, None).findings.iter().map(|f| (f.rule.code(), f.subject.clone())).collect::<Vec<_>>()
    };
    assert_eq!(codes(&copy), codes(&here));
}
