use std::io::Write as _;

use super::*;

#[test]
fn tar_reads_the_archive() {
    let mut bytes = Vec::new();
    for (name, content) in [("r/empty", &b""[..]), ("r/one", b"1"), ("r/block", &[7; 512]), ("r/more", &[8; 513])] {
        tar::add(&mut bytes, name, content, 1_000_000_000);
    }
    tar::end(&mut bytes);
    assert_eq!(bytes.len() % 10_240, 0);
    let Ok(mut child) = Command::new("tar").args(["-tvf", "-"]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()
    else {
        eprintln!("skipped: no tar on this machine");
        return;
    };
    child.stdin.take().unwrap().write_all(&bytes).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let list = String::from_utf8_lossy(&output.stdout).into_owned();
    let sizes: Vec<(&str, &str)> =
        list.lines().filter_map(|l| Some((l.split_whitespace().nth(2)?, l.split_whitespace().last()?))).collect();
    assert_eq!(sizes, [("0", "r/empty"), ("1", "r/one"), ("512", "r/block"), ("513", "r/more")]);
    assert!(list.contains("-rw-------"), "{list}");
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
