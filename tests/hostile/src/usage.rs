//! What a process uses, looked at again and again.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Time between two looks.
const LOOK: Duration = Duration::from_millis(20);

/// What it used at one time, or the most that it used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Resident memory, KiB.
    pub memory_kib: u64,
    /// Locked and pinned memory, KiB.
    pub pinned_kib: u64,
    /// Threads.
    pub threads: u64,
    /// Open descriptors.
    pub descriptors: u64,
    /// Processor time of all its threads since it began, ns.
    pub processor_ns: u64,
}

impl Usage {
    /// Of a process. `None`: it has ended.
    pub fn of(process: u32) -> Option<Usage> {
        let status = fs::read_to_string(format!("/proc/{process}/status")).ok()?;
        // proc(5), `status`: a name, a number, a unit.
        let number = |name: &str| -> u64 {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            line.and_then(|rest| rest.split_whitespace().next()?.parse().ok()).unwrap_or(0)
        };
        // sched(7): the first number of `schedstat` is the time on a processor.
        let task = |entry: fs::DirEntry| fs::read_to_string(entry.path().join("schedstat")).ok();
        let tasks = fs::read_dir(format!("/proc/{process}/task")).ok()?.flatten();
        Some(Usage {
            memory_kib: number("VmRSS:"),
            pinned_kib: number("VmLck:") + number("VmPin:"),
            threads: number("Threads:"),
            descriptors: fs::read_dir(format!("/proc/{process}/fd")).ok()?.count() as u64,
            processor_ns: tasks.filter_map(task).filter_map(|t| t.split(' ').next()?.parse::<u64>().ok()).sum(),
        })
    }

    /// The larger of each.
    pub fn most(self, other: Usage) -> Usage {
        Usage {
            memory_kib: self.memory_kib.max(other.memory_kib),
            pinned_kib: self.pinned_kib.max(other.pinned_kib),
            threads: self.threads.max(other.threads),
            descriptors: self.descriptors.max(other.descriptors),
            processor_ns: self.processor_ns.max(other.processor_ns),
        }
    }

    /// What it is more than `other`, of each.
    pub fn beyond(self, other: Usage) -> Usage {
        Usage {
            memory_kib: self.memory_kib.saturating_sub(other.memory_kib),
            pinned_kib: self.pinned_kib.saturating_sub(other.pinned_kib),
            threads: self.threads.saturating_sub(other.threads),
            descriptors: self.descriptors.saturating_sub(other.descriptors),
            processor_ns: self.processor_ns.saturating_sub(other.processor_ns),
        }
    }
}

/// Looks at a process until it is asked.
#[derive(Debug)]
pub struct Watch {
    before: Usage,
    since: Instant,
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Usage>,
}

impl Watch {
    /// Begins. `None`: there is no such process.
    pub fn begin(process: u32) -> Option<Watch> {
        let before = Usage::of(process)?;
        let stop = Arc::new(AtomicBool::new(false));
        let told = stop.clone();
        let thread = std::thread::spawn(move || {
            let mut most = before;
            while !told.load(Ordering::Relaxed) {
                most = Usage::of(process).map_or(most, |now| most.most(now));
                std::thread::sleep(LOOK);
            }
            most
        });
        Some(Watch { before, since: Instant::now(), stop, thread })
    }

    /// The most that it used beyond what it used when this began; processor time is ns in each second.
    pub fn end(self) -> Usage {
        self.stop.store(true, Ordering::Relaxed);
        let most = self.thread.join().unwrap_or(self.before);
        let seconds = self.since.elapsed().as_secs_f64().max(1e-3);
        let more = most.beyond(self.before);
        Usage { processor_ns: (more.processor_ns as f64 / seconds) as u64, ..more }
    }
}
