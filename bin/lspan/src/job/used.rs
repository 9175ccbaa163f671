//! What a job really used, from the statistics pages of its processes.

use std::collections::BTreeSet;

use linkspan_fabric::stats::{Counter, ProcessStats, Record};
use linkspan_perf::format::table;

/// Most downgrades that are named.
const REASONS: usize = 8;

/// The sums of a job.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Used {
    /// Processes that loaded linkspan.
    pub(super) processes: usize,
    /// Slower paths than the machine could give, and rails that were lost.
    pub(super) downgrades: u64,
    /// What they were, as far as it is known; each once.
    reasons: BTreeSet<String>,
    rows: Vec<Row>,
}

#[derive(Debug, PartialEq, Eq)]
struct Row {
    key: [String; 3],
    connections: u64,
    sent: u64,
    received: u64,
    lost: u64,
}

impl Used {
    pub(super) fn of(pages: &[ProcessStats]) -> Used {
        let mut used = Used { processes: pages.len(), ..Used::default() };
        for page in pages {
            used.downgrades += page.downgrades;
            if !page.last_downgrade.is_empty() {
                used.reasons.insert(page.last_downgrade.clone());
            }
            for record in &page.records {
                let count = |counter: Counter| record.counters.get(counter as usize).copied().unwrap_or(0);
                used.downgrades += count(Counter::RailsLost);
                let row = used.row(record);
                row.connections += count(Counter::Connections);
                row.sent += count(Counter::TxBytes) + count(Counter::TxDeviceBytes);
                row.received += count(Counter::RxBytes) + count(Counter::RxDeviceBytes);
                row.lost += count(Counter::RailsLost);
            }
        }
        used.rows.retain(|row| row.connections > 0);
        used.rows.sort_by(|a, b| a.key.cmp(&b.key));
        used
    }

    fn row(&mut self, record: &Record) -> &mut Row {
        let key = [record.transport.clone(), record.device.clone(), record.peer.clone()];
        let at = self.rows.iter().position(|row| row.key == key).unwrap_or_else(|| {
            self.rows.push(Row { key, connections: 0, sent: 0, received: 0, lost: 0 });
            self.rows.len() - 1
        });
        &mut self.rows[at]
    }

    /// Lines for people.
    pub(super) fn text(&self) -> String {
        if self.processes == 0 {
            return "no process loaded linkspan: none called it, or NCCL's network was not used (one rank), or another plugin was taken \
                    (NCCL_DEBUG=INFO says)\n"
                .into();
        }
        let processes =
            if self.processes == 1 { "1 process".to_owned() } else { format!("{} processes", self.processes) };
        if self.rows.is_empty() {
            return format!("{processes} loaded linkspan, and no connection was made\n");
        }
        let mut rows = vec![
            ["path", "device", "peer", "connections", "sent GB", "received GB", "rails lost"]
                .map(String::from)
                .to_vec(),
        ];
        for row in &self.rows {
            let [path, device, peer] = row.key.clone();
            let peer = if peer.is_empty() { "-".into() } else { peer };
            let gb = |bytes: u64| format!("{:.3}", bytes as f64 / 1e9);
            rows.push(vec![
                path,
                device,
                peer,
                row.connections.to_string(),
                gb(row.sent),
                gb(row.received),
                row.lost.to_string(),
            ]);
        }
        let mut text = format!("used by {processes}:\n{}", table(&rows));
        if self.rows.iter().any(|row| row.key[1].contains('+')) {
            text.push_str(
                "a device with several interfaces, as a+b: each connection uses those that lead to its peer; LINKSPAN_LOG=info names them\n",
            );
        }
        if self.downgrades > 0 {
            text.push_str(&format!(
                "{} downgrade(s) were counted: a path was slower than this machine could give, or lost; NCCL_DEBUG=WARN, or outside NCCL \
                 LINKSPAN_LOG=warn, has a line for each, and --strict makes them errors\n",
                self.downgrades
            ));
            self.reasons.iter().take(REASONS).for_each(|what| text.push_str(&format!("  {what}\n")));
            if let Some(more @ 1..) = self.reasons.len().checked_sub(REASONS) {
                text.push_str(&format!("  and {more} more\n"));
            }
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(downgrades: u64, records: &[(&str, &str, u64, u64)]) -> ProcessStats {
        let record = |(transport, peer, connections, lost): &(&str, &str, u64, u64)| {
            let mut counters = vec![0; Counter::ALL.len()];
            counters[Counter::Connections as usize] = *connections;
            counters[Counter::TxBytes as usize] = 1_500_000_000;
            counters[Counter::RailsLost as usize] = *lost;
            Record {
                device: "eth0".into(),
                transport: (*transport).into(),
                peer: (*peer).into(),
                counters,
                ..Record::default()
            }
        };
        ProcessStats { pid: 1, downgrades, records: records.iter().map(record).collect(), ..ProcessStats::default() }
    }

    #[test]
    fn processes_are_summed_by_path() {
        let used = Used::of(&[
            page(1, &[("tcp", "", 2, 0), ("shm", "", 1, 0)]),
            page(0, &[("tcp", "", 3, 1), ("rdma", "", 0, 0)]),
        ]);
        assert_eq!((used.processes, used.downgrades, used.rows.len()), (2, 2, 2));
        let text = used.text();
        let tcp = text.lines().find(|line| line.trim_start().starts_with("tcp")).unwrap();
        assert_eq!(tcp.split_whitespace().collect::<Vec<_>>(), ["tcp", "eth0", "-", "5", "3.000", "0.000", "1"]);
        assert!(text.contains("2 downgrade(s)") && !text.contains("a+b"), "{text}");
        let mut slow = page(2, &[("tcp", "", 1, 0)]);
        slow.last_downgrade = "TCP in place of RDMA: no active port".into();
        let text = Used::of(&[slow.clone(), slow]).text();
        assert_eq!(text.matches("TCP in place of RDMA: no active port\n").count(), 1, "{text}");
        let many = (0..REASONS + 2)
            .map(|n| ProcessStats { last_downgrade: format!("reason {n}"), ..page(1, &[("tcp", "", 1, 0)]) });
        let text = Used::of(&many.collect::<Vec<_>>()).text();
        assert!(text.ends_with("  and 2 more\n") && text.matches("  reason ").count() == REASONS, "{text}");
        let mut two = page(0, &[("tcp", "", 1, 0)]);
        two.records[0].device = "eth0+eth1".into();
        assert!(Used::of(&[two]).text().contains("several interfaces"));
    }

    #[test]
    fn nothing_used_says_so() {
        assert!(Used::of(&[]).text().contains("no process loaded linkspan"));
        assert!(Used::of(&[page(0, &[])]).text().contains("no connection was made"));
    }
}
