//! The text: families, samples, and the bounds of their labels.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use linkspan_fabric::stats::{Counter, Event, ProcessStats};

/// Most jobs that have labels of their own.
const JOBS: usize = 64;

/// Most processes that do. The oldest are taken, so that a series that has begun goes on; the others are added up in one of workload `other`.
const PROCESSES: usize = 256;

struct Family {
    name: &'static str,
    help: &'static str,
    /// What it sums, each with a further label.
    of: &'static [(Counter, &'static str)],
}

const HOST: &str = ",memory=\"host\"";
const DEVICE: &str = ",memory=\"device\"";

/// Counters of each device and transport of a process; all but the first only grow.
const FAMILIES: &[Family] = &[
    Family { name: "linkspan_connections_open", help: "Connections up at the moment.", of: &[(Counter::Open, "")] },
    Family { name: "linkspan_connections_total", help: "Connections made.", of: &[(Counter::Connections, "")] },
    Family {
        name: "linkspan_sent_bytes_total",
        help: "Bytes sent: messages, writes, and what peers read.",
        of: &[(Counter::TxBytes, HOST), (Counter::TxDeviceBytes, DEVICE)],
    },
    Family {
        name: "linkspan_received_bytes_total",
        help: "Bytes received: messages, reads, and what peers wrote.",
        of: &[(Counter::RxBytes, HOST), (Counter::RxDeviceBytes, DEVICE)],
    },
    Family {
        name: "linkspan_sent_operations_total",
        help: "Messages sent and writes begun.",
        of: &[(Counter::TxOps, "")],
    },
    Family {
        name: "linkspan_received_operations_total",
        help: "Receives and reads finished.",
        of: &[(Counter::RxOps, "")],
    },
    Family {
        name: "linkspan_stalls_total",
        help: "Posts refused because too much was in flight, or waited for receives.",
        of: &[(Counter::Stalls, "")],
    },
    Family { name: "linkspan_retries_total", help: "TCP segments sent again.", of: &[(Counter::Retries, "")] },
    Family { name: "linkspan_rails_lost_total", help: "Rails lost.", of: &[(Counter::RailsLost, "")] },
    Family {
        name: "linkspan_rails_back_total",
        help: "Lost rails that were reconnected.",
        of: &[(Counter::RailsBack, "")],
    },
    Family {
        name: "linkspan_connection_failures_total",
        help: "Connections that ended in an error.",
        of: &[(Counter::Failures, "")],
    },
];

/// The text of all pages. Processes, devices and transports of equal labels are added up: peers, and pid namespaces in which
/// numbers repeat.
pub(super) fn render(found: &[ProcessStats]) -> String {
    let mut oldest: Vec<&ProcessStats> = found.iter().collect();
    oldest.sort_by_key(|process| (process.start, process.uid, process.pid));
    let mut jobs = BTreeSet::new();
    let (mut labelled, mut downgrades) = (0, BTreeMap::new());
    let mut events: BTreeMap<String, [u64; Event::ALL.len()]> = BTreeMap::new();
    let mut paths: BTreeMap<String, [u64; Counter::ALL.len()]> = BTreeMap::new();
    for process in oldest {
        let known = jobs.contains(&process.job) || jobs.len() < JOBS;
        let own = known && labelled < PROCESSES;
        let (pid, comm, job) = if own {
            labelled += 1;
            jobs.insert(&process.job);
            (process.pid.to_string(), process.comm.as_str(), process.job.as_str())
        } else {
            (String::new(), "other", "other")
        };
        let labels = format!("pid=\"{pid}\",comm=\"{}\",workload=\"{}\"", escape(comm), escape(job));
        let sum: &mut u64 = downgrades.entry(labels.clone()).or_default();
        *sum = sum.saturating_add(process.downgrades);
        let sums = events.entry(labels.clone()).or_insert([0; Event::ALL.len()]);
        sums.iter_mut().zip(&process.events).for_each(|(sum, count)| *sum = sum.saturating_add(*count));
        for record in &process.records {
            // What has no labels of its own is one series per transport: names of devices are another's choice too.
            let device = if own { record.device.as_str() } else { "other" };
            let path = format!("device=\"{}\",transport=\"{}\"", escape(device), escape(&record.transport));
            let sums = paths.entry(format!("{labels},{path}")).or_insert([0; Counter::ALL.len()]);
            for (sum, count) in sums.iter_mut().zip(&record.counters) {
                *sum = sum.saturating_add(*count);
            }
        }
    }
    let mut text = String::new();
    head(&mut text, "linkspan_processes", "Processes that write statistics.");
    let _ = writeln!(text, "linkspan_processes {}", found.len());
    head(&mut text, "linkspan_downgrades_total", "Paths that were slower than this machine could give.");
    for (labels, count) in &downgrades {
        let _ = writeln!(text, "linkspan_downgrades_total{{{labels}}} {count}");
    }
    head(&mut text, "linkspan_setup_events_total", "Who was not let in, and what had to be tried again.");
    for (labels, sums) in &events {
        for (event, sum) in Event::ALL.iter().zip(sums) {
            let _ = writeln!(text, "linkspan_setup_events_total{{{labels},reason=\"{}\"}} {sum}", event.name());
        }
    }
    for family in FAMILIES {
        head(&mut text, family.name, family.help);
        for (labels, sums) in &paths {
            for (counter, further) in family.of {
                let _ = writeln!(text, "{}{{{labels}{further}}} {}", family.name, sums[*counter as usize]);
            }
        }
    }
    text
}

fn head(text: &mut String, name: &str, help: &str) {
    let kind = if name.ends_with("_total") { "counter" } else { "gauge" };
    let _ = write!(text, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
}

/// A label's value as the format has it.
fn escape(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::process::{Command, Stdio};
    use std::time::Duration;

    use linkspan_fabric::stats::Record;

    use super::*;

    fn process(pid: u32, job: &str, records: &[(&str, &str, u64)]) -> ProcessStats {
        let record = |(device, peer, sent): &(&str, &str, u64)| {
            let mut counters = vec![0; Counter::ALL.len()];
            (counters[Counter::TxBytes as usize], counters[Counter::Open as usize]) = (*sent, 1);
            let (device, transport, peer) = ((*device).into(), "tcp".into(), (*peer).into());
            Record { device, transport, peer, counters, ..Record::default() }
        };
        let (job, start) = (job.into(), Duration::from_secs(pid.into()));
        let records = records.iter().map(record).collect();
        ProcessStats { pid, comm: "python3".into(), job, start, downgrades: 1, records, ..ProcessStats::default() }
    }

    #[test]
    fn the_shipped_alerts_and_panels_ask_for_what_there_is_and_alerts_come_when_they_should() {
        let rules = include_str!("../../prometheus/linkspan.rules.yml");
        let dashboard = include_str!("../../prometheus/linkspan.dashboard.json");
        let text = render(&[process(7, "42", &[("eth0", "", 5)])]);
        let words = |line: &'static str| line.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        let asked = || rules.lines().filter(|line| line.trim_start().starts_with("expr:"));
        let panels = || dashboard.lines().filter(|line| line.trim_start().starts_with("\"expr\":"));
        let metrics = asked().chain(panels()).flat_map(words).filter(|word| word.starts_with("linkspan_"));
        assert!(asked().count() >= 4 && panels().count() >= 16);
        for metric in metrics {
            assert!(text.contains(&format!("# TYPE {metric} ")), "{metric}");
        }
        let by =
            asked().filter_map(|line| line.split_once("by (")?.1.split_once(')')).flat_map(|(by, _)| by.split(", "));
        for label in by.filter(|label| *label != "instance") {
            assert!(text.contains(&format!("{label}=\"")), "{label}");
        }
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/prometheus");
        for what in [["check", "rules", "linkspan.rules.yml"], ["test", "rules", "linkspan.test.yml"]] {
            let Ok(output) = Command::new("promtool").args(what).current_dir(folder).output() else {
                return eprintln!("skipped: there is no promtool (package prometheus)");
            };
            assert!(output.status.success(), "{what:?}: {output:?}");
        }
    }

    /// Runs `promtool check metrics`, which fails on what Prometheus cannot read and on names against its conventions.
    fn check(text: &str) {
        let tool =
            Command::new("promtool").args(["check", "metrics"]).stdin(Stdio::piped()).stderr(Stdio::piped()).spawn();
        let Ok(mut tool) = tool else { return eprintln!("skipped: there is no promtool (package prometheus)") };
        tool.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
        let output = tool.wait_with_output().unwrap();
        assert!(output.status.success(), "{}\n{text}", String::from_utf8_lossy(&output.stderr));
    }

    #[test]
    fn every_counter_is_in_a_family_and_promtool_finds_no_fault() {
        let text = render(&[process(7, "42", &[("eth0", "", 5), ("eth0", "peer", 6), ("eth1", "", 1)])]);
        for line in [
            "# TYPE linkspan_sent_bytes_total counter",
            "# TYPE linkspan_connections_open gauge",
            "linkspan_processes 1",
            "linkspan_downgrades_total{pid=\"7\",comm=\"python3\",workload=\"42\"} 1",
            "linkspan_sent_bytes_total{pid=\"7\",comm=\"python3\",workload=\"42\",device=\"eth0\",transport=\"tcp\",memory=\"host\"} 11",
            "linkspan_connections_open{pid=\"7\",comm=\"python3\",workload=\"42\",device=\"eth1\",transport=\"tcp\"} 1",
        ] {
            assert!(text.lines().any(|l| l == line), "{line}\n{text}");
        }
        for counter in Counter::ALL {
            assert!(FAMILIES.iter().any(|family| family.of.iter().any(|(one, _)| one == counter)), "{counter:?}");
        }
        check(&text);
        check(&render(&[]));
    }

    #[test]
    fn labels_of_any_text_stay_labels() {
        let text = render(&[process(7, "a\"} 1\nevil 2\\", &[("e\\\"h", "", 5)])]);
        assert!(text.contains("workload=\"a\\\"} 1\\nevil 2\\\\\",device=\"e\\\\\\\"h\""), "{text}");
        assert!(!text.lines().any(|line| line.starts_with("evil")));
        check(&text);
    }

    #[test]
    fn labels_are_bounded_and_no_byte_is_left_out() {
        let device = |n: u32| format!("eth{n}");
        for (jobs, processes, own) in [(500, 500, JOBS), (1, 500, PROCESSES)] {
            let one = |n: u32| process(n + 1, &(n % jobs).to_string(), &[(device(n).as_str(), "", 2)]);
            let text = render(&(0..processes).map(one).collect::<Vec<_>>());
            let samples = |name: &str| -> Vec<u64> {
                let lines = text.lines().filter(|line| line.starts_with(name) && line.contains("memory=\"host\""));
                lines.map(|line| line.rsplit(' ').next().unwrap().parse().unwrap()).collect()
            };
            let sent = samples("linkspan_sent_bytes_total");
            assert_eq!((sent.len(), sent.iter().sum::<u64>()), (own + 1, 1000));
            assert!(text.contains("pid=\"\",comm=\"other\",workload=\"other\",device=\"other\""));
            check(&text);
        }
    }

    #[test]
    fn equal_numbers_of_two_pid_namespaces_are_one_series() {
        let text = render(&[process(1, "", &[("eth0", "", 5)]), process(1, "", &[("eth0", "", 6)])]);
        assert_eq!(text.matches("linkspan_sent_bytes_total{").count(), 2, "host and device memory\n{text}");
        assert!(text.contains("memory=\"host\"} 11\n"));
        check(&text);
    }
}
