//! Healthy machines are silent; each with one fault gives exactly that finding.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use linkspan_topology::fixture::{self, Fixture};

use crate::finding::{Rule, Severity, Step};
use crate::judge::judge;
use crate::list::{ALL, MESH};
use crate::probe::Heard;
use crate::snapshot::{Closed, Snapshot, Sources};

const HEALTHY: &str = include_str!("../fixtures/healthy.txt");
const FAULTS: &str = include_str!("../fixtures/faults.txt");

/// What is told from a peer's answers, or of two hosts: their tests stand beside the code.
const ELSEWHERE: [&str; 14] = [
    "LS2701", "LS2702", "LS2703", "LS2213", "LS2312", "LS2313", "LS2314", "LS2315", "LS2316", "LS2318", "LS2402",
    "LS2504", "LS2505", "LS2805",
];

/// Lines of the machine, with those of its bases.
pub(crate) fn machines() -> BTreeMap<String, Vec<String>> {
    let mut all: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (name, tree) in fixture::ALL {
        let lines = tree.lines().filter(|l| !l.is_empty() && !l.starts_with('#')).map(str::to_owned);
        all.insert(format!("topology/{name}"), lines.collect());
    }
    let mut name = String::new();
    for line in HEALTHY.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        if let Some(head) = line.strip_prefix("machine ") {
            let words: Vec<&str> = head.split(' ').collect();
            name = words[0].to_owned();
            let base = match words.get(2) {
                // A base of the same name is the tree.
                Some(base) if *base == words[0] => all.get(&format!("topology/{base}")),
                Some(base) => all.get(*base).or_else(|| all.get(&format!("topology/{base}"))),
                None => Some(&Vec::new()),
            };
            let base = base.unwrap_or_else(|| panic!("{line}: no such base")).clone();
            all.insert(name.clone(), base);
        } else if !line.starts_with("from ") {
            change(all.get_mut(&name).unwrap(), line);
        }
    }
    all.retain(|name, _| !name.starts_with("topology/"));
    all.extend(captured());
    all
}

/// Machines as `lspan bugreport` has kept them, a file each.
fn captured() -> Vec<(String, Vec<String>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/captured");
    let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let machine = |file: PathBuf| {
        let text = std::fs::read_to_string(&file).unwrap();
        let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')).map(str::to_owned);
        (format!("captured/{}", file.file_stem().unwrap().display()), lines.collect())
    };
    files.map(machine).collect()
}

/// What a line is about: its path, or the first words.
fn key(line: &str) -> Option<String> {
    let path = line
        .split_once('\t')
        .or_else(|| line.split_once(" -> "))
        .map(|(path, _)| path.trim_start_matches('/').to_owned());
    path.or_else(|| {
        let words: Vec<&str> = line.split(' ').collect();
        match words[..] {
            ["net", name, ..] => Some(format!("net {name}")),
            ["env", set, ..] => Some(format!("env {}", set.split('=').next()?)),
            _ => None,
        }
    })
}

pub(crate) fn change(lines: &mut Vec<String>, line: &str) {
    if let Some(begin) = line.strip_prefix("remove ") {
        let count = lines.len();
        let below = |l: &String| {
            l.strip_prefix(begin).is_some_and(|rest| rest.is_empty() || rest.starts_with(['/', ' ', '\t', '.', ':']))
        };
        lines.retain(|l| !below(l));
        assert!(lines.len() < count, "{line}: nothing is removed");
        return;
    }
    if let Some(own) = key(line) {
        lines.retain(|old| key(old).as_ref() != Some(&own));
    }
    lines.push(line.to_owned());
}

pub(crate) struct Built {
    pub(crate) snapshot: Snapshot,
    _fixture: Fixture,
}

pub(crate) fn build(lines: &[String]) -> Built {
    let mut sources = Sources::default();
    let mut files = String::new();
    for line in lines {
        match line.split_once(' ') {
            Some(("env", set)) => {
                let (name, value) = set.split_once('=').unwrap();
                sources.env.insert(name.to_owned(), value.to_owned());
            }
            Some(("log", text)) => sources.log = vec![text.to_owned()],
            Some(("signer", key)) => sources.signer = Some(key.trim_matches('-').to_owned()),
            Some(("closed", rest)) => {
                let (file, group) = rest.split_once(' ').map_or((rest, None), |(file, group)| (file, Some(group)));
                sources.closed.push(Closed { file: file.to_owned(), group: group.map(str::to_owned) });
            }
            Some(("tso", name)) => sources.tso.push(name.to_owned()),
            Some(("rules", rules)) => sources.rules = Some(rules.to_owned()),
            Some(("settings", why)) => sources.settings = Some(why.to_owned()),
            Some(("heard", rest)) => {
                let (interface, addr) = rest.split_once(' ').unwrap();
                sources.heard.push(Heard { interface: interface.to_owned(), addr: addr.parse().unwrap() });
            }
            _ => files.push_str(&format!("{line}\n")),
        }
    }
    let fixture = Fixture::tree(&files);
    sources.roots = fixture.roots();
    sources.addrs = fixture.addrs.clone();
    Built { snapshot: Snapshot::read(sources), _fixture: fixture }
}

#[test]
fn healthy_machines_are_silent() {
    let machines = machines();
    assert!(machines.len() >= 20, "{} machines", machines.len());
    let mut wrong = Vec::new();
    for (name, lines) in &machines {
        let built = build(lines);
        let report = judge(&built.snapshot, None);
        wrong.extend(report.findings.iter().map(|f| format!("{name}: {} {}: {}", f.rule.code(), f.subject, f.what)));
        wrong.extend(
            built
                .snapshot
                .notes()
                .iter()
                .filter(|note| !note.contains("/proc cannot"))
                .map(|note| format!("{name}: note {note}")),
        );
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// A fault of the file.
struct Fault {
    head: String,
    code: &'static str,
    subject: &'static str,
    machine: &'static str,
    lines: Vec<&'static str>,
    /// Texts that one of the steps has.
    mends: Vec<&'static str>,
}

fn faults() -> Vec<Fault> {
    let blocks = FAULTS.split("\n\n").filter(|block| block.lines().any(|line| line.starts_with("fault ")));
    let fault = |block: &'static str| {
        let mut lines = block.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
        let head = lines.next().unwrap();
        let ["fault", code, subject, "of", machine] = head.split(' ').collect::<Vec<_>>()[..] else { panic!("{head}") };
        let subject = if subject == "-" { "" } else { subject };
        let (mends, lines): (Vec<_>, Vec<_>) = lines.partition(|line| line.starts_with("mend "));
        let mends = mends.into_iter().filter_map(|line| line.strip_prefix("mend ")).collect();
        Fault { head: head.to_owned(), code, subject, machine, lines, mends }
    };
    blocks.map(fault).collect()
}

#[test]
fn each_fault_gives_exactly_its_finding() {
    let machines = machines();
    let mut wrong = Vec::new();
    let mut seen = BTreeSet::new();
    let spared: Vec<&String> =
        machines.keys().filter(|name| faults().iter().all(|one| one.machine != **name)).collect();
    assert!(spared.is_empty(), "no fault is put into {spared:?}");
    for fault in faults() {
        let head = &fault.head;
        let mut all = machines.get(fault.machine).unwrap_or_else(|| panic!("{head}: no such machine")).clone();
        fault.lines.iter().for_each(|line| change(&mut all, line));
        let built = build(&all);
        let report = judge(&built.snapshot, None);
        let found: Vec<(&str, &str)> = report.findings.iter().map(|f| (f.rule.code(), f.subject.as_str())).collect();
        if found != [(fault.code, fault.subject)] {
            let what: Vec<&String> = report.findings.iter().map(|f| &f.what).collect();
            wrong.push(format!("{head}: {found:?} {what:?}"));
            continue;
        }
        let one = &report.findings[0];
        let steps = one.mend.iter().map(|step| match step {
            Step::Run(text) | Step::Do(text) => text,
        });
        let steps: Vec<&String> = steps.collect();
        for text in fault.mends {
            if !steps.iter().any(|step| step.contains(text)) {
                wrong.push(format!("{head}: no step has {text:?}: {steps:?}"));
            }
        }
        if one.mend.is_empty() || one.what.is_empty() {
            wrong.push(format!("{head}: no mend"));
        }
        seen.insert(fault.code.to_owned());
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    let all: BTreeSet<String> = ALL.iter().map(|rule| rule.code().to_owned()).collect();
    let told = |code: &String| seen.contains(code) || ELSEWHERE.contains(&code.as_str());
    let missing: Vec<&String> = all.iter().filter(|code| !told(code)).collect();
    assert!(missing.is_empty(), "no fault makes {missing:?}");
}

#[test]
fn what_was_asked_for_and_works_as_it_is_makes_a_fact_and_no_finding() {
    let machines = machines();
    for (machine, lines, fact) in [
        (
            "two-networks",
            &["env LINKSPAN_IFNAME=enp2s0,enp1s0", "remove address enp2s0", "address enp2s0 fe80::2/64"][..],
            "enp2s0 has link-local addresses only: linkspan uses it",
        ),
        ("captured/namespace", &["remove address cab0 10.77.0.1/24"], "cab0 has link-local addresses only"),
        (
            "h100-roce",
            &[
                "net enp25s0np0 4 pci0000:15/0000:15:02.0/0000:19:00.0 speed=-1 flags=0x1002 operstate=down",
                "remove address enp25s0np0",
                "sys/devices/pci0000:15/0000:15:02.0/0000:19:00.0/infiniband/mlx5_0/ports/1/state\t1: DOWN",
                "sys/devices/pci0000:15/0000:15:02.0/0000:19:00.0/infiniband/mlx5_0/ports/1/phys_state\t3: Disabled",
            ],
            "mlx5_0/1: its interface enp25s0np0 is switched off; whether a cable is there is not seen",
        ),
        (
            "strix-halo",
            &[
                "remove address thunderbolt0",
                "address thunderbolt0 10.0.0.1/24",
                "address thunderbolt0 fd00::1/64",
                r#"rules {"nftables":[{"chain":{"family":"ip6","table":"f","name":"INPUT","hook":"input","policy":"drop"}}]}"#,
            ],
            "connections of IPv6 that come in on thunderbolt0 are dropped by its policy in ip6 f INPUT",
        ),
        (
            "strix-halo",
            &[
                r#"rules {"nftables":[{"chain":{"family":"ip","table":"filter","name":"INPUT","hook":"input","policy":"drop"}},{"rule":{"family":"ip","table":"filter","chain":"INPUT","handle":4,"expr":[{"xt":{"type":"match","name":"conntrack"}},{"accept":null}]}}]}"#,
            ],
            "whether the firewall lets connections of IPv4 in on thunderbolt0 is not known",
        ),
        (
            "plain-server",
            &["env LINKSPAN_IFNAME=ib,enp1,xd"],
            "no interface has a name that begins with ib or xd; the others",
        ),
    ] {
        let mut all = machines[machine].clone();
        lines.iter().for_each(|line| change(&mut all, line));
        let report = judge(&build(&all).snapshot, None);
        assert_eq!(report.findings, [], "{machine} {lines:?}");
        assert!(report.facts.iter().any(|one| one.contains(fact)), "{machine}: {:?}", report.facts);
    }
}

/// Whether two changes are of different things, so that both faults can be there at once.
fn apart(a: &Fault, b: &Fault) -> bool {
    let about = |fault: &Fault| -> Vec<String> {
        let plain = |line: &&str| line.strip_prefix("remove ").map(str::to_owned).or_else(|| key(line));
        // One name hides the other.
        let one_list = |about: String| about.replace("NCCL_SOCKET_IFNAME", "LINKSPAN_IFNAME");
        fault.lines.iter().filter_map(plain).map(one_list).collect()
    };
    let (a, b) = (about(a), about(b));
    let meets = |x: &String, y: &String| x.starts_with(y.as_str()) || y.starts_with(x.as_str());
    a.iter().all(|x| b.iter().all(|y| !meets(x, y)))
}

/// Faults of which the second leaves nothing of what the first is about: without its cable an interface has no firewall. Beside the
/// causes that the list names.
const GONE: [(&str, &str); 31] = [
    ("LS2103", "LS2112"),
    ("LS2104", "LS2112"),
    ("LS2106", "LS2112"),
    ("LS2107", "LS2112"),
    ("LS2108", "LS2112"),
    ("LS2109", "LS2112"),
    ("LS2110", "LS2112"),
    ("LS2111", "LS2112"),
    ("LS2110", "LS2111"),
    // The router whose UUID makes the loop is gone with its driver.
    ("LS2112", "LS2105"),
    ("LS2118", "LS2117"),
    ("LS2119", "LS2101"),
    ("LS2119", "LS2106"),
    ("LS2119", "LS2107"),
    ("LS2119", "LS2108"),
    ("LS2119", "LS2112"),
    ("LS2209", "LS2205"),
    ("LS2209", "LS2208"),
    ("LS2211", "LS2205"),
    ("LS2211", "LS2208"),
    ("LS2211", "LS2209"),
    ("LS2304", "LS2302"),
    ("LS2307", "LS2111"),
    ("LS2307", "LS2303"),
    ("LS2307", "LS2308"),
    ("LS2401", "LS2101"),
    ("LS2401", "LS2106"),
    ("LS2401", "LS2107"),
    ("LS2401", "LS2108"),
    ("LS2401", "LS2109"),
    // A container's kernel modules are its host's affair.
    ("LS2604", "LS2201"),
];

/// Every pair is too many for each run: one in so many of them.
const EACH: usize = 5;

#[test]
fn two_faults_give_both_findings_or_the_root_cause() {
    let (machines, faults) = (machines(), faults());
    let rule = |code: &str| *ALL.iter().find(|rule| rule.code() == code).unwrap();
    let (mut wrong, mut tried) = (Vec::new(), 0);
    for (at, a) in faults.iter().enumerate() {
        let others = faults[at + 1..].iter().filter(|b| b.machine == a.machine && b.code != a.code && apart(a, b));
        // With the newer plugin gone the older one is found, and alone: no fault is left. A port that is off and bare is nobody's fault.
        let none_left = [("LS2802", "LS2803"), ("LS2205", "LS2207")];
        let others = others.filter(|b| !none_left.contains(&(a.code, b.code)));
        for b in others {
            tried += 1;
            if tried % EACH != 0 {
                continue;
            }
            let mut all = machines[a.machine].clone();
            a.lines.iter().chain(&b.lines).for_each(|line| change(&mut all, line));
            let built = build(&all);
            let found = judge(&built.snapshot, None).findings;
            let told = |code: &str| found.iter().any(|f| f.rule.code() == code);
            let follows = |one: &str, cause: &str| {
                GONE.contains(&(one, cause)) || rule(one).after.iter().any(|r| r.code() == cause)
            };
            // Who asks for an interface by name is told that this one has no address or is off, in place of that there is none.
            let instead = |code: &str| matches!(code, "LS2306" | "LS2317") && b.code == "LS2304";
            let own = |code: &str| code == a.code || code == b.code || instead(code);
            let extra = found.iter().any(|f| !own(f.rule.code()));
            let missing = |one: &Fault, other: &Fault| !told(one.code) && !follows(one.code, other.code);
            if extra || missing(a, b) || missing(b, a) {
                let codes: Vec<&str> = found.iter().map(|f| f.rule.code()).collect();
                wrong.push(format!("{} + {}: {codes:?}", a.head, b.head));
            }
        }
    }
    assert!(wrong.is_empty(), "of {tried} pairs: {wrong:#?}");
    assert!(tried / EACH >= 20, "{tried} pairs");
}

#[test]
fn the_list_is_in_order_and_complete() {
    let codes = |list: &[&Rule]| -> Vec<String> { list.iter().map(|rule| rule.code().to_owned()).collect() };
    for list in [ALL, MESH] {
        let codes = codes(list);
        assert!(codes.is_sorted() && codes.iter().all(|code| code.len() == 6));
        for rule in list {
            assert!(!rule.slug().is_empty() && !rule.slug().contains(' '), "{rule:?}");
            assert!(rule.after.iter().all(|cause| cause.code() != rule.code()), "{rule:?}");
        }
    }
    assert_eq!(ALL.iter().filter(|rule| rule.severity == Severity::Never).count(), 1);
}
