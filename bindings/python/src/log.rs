//! Lines of the library's log on their way to Python's `logging`: a queue that whoever has something to say fills without Python's lock,
//! and that a thread of Python's empties.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

use linkspan::{Context, Level, Log};
use pyo3::prelude::*;

use crate::process;

/// Lines that wait at most; more are counted. Some minutes' worth of what a process says while paths come and go.
const MOST: usize = 1024;

/// Numbers of `logging.INFO` and `logging.WARNING`.
const INFO: u32 = 20;
const WARNING: u32 = 30;

struct Lines {
    waiting: VecDeque<(u32, String)>,
    lost: u64,
    open: bool,
}

struct Queue {
    lines: Mutex<Lines>,
    there: Condvar,
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, Lines> {
        self.lines.lock().unwrap_or_else(|e| e.into_inner())
    }

    fn put(&self, level: Level, line: &str) {
        let mut lines = self.lock();
        if lines.waiting.len() >= MOST {
            lines.lost += 1;
            return;
        }
        let number = if level == Level::Warn { WARNING } else { INFO };
        lines.waiting.push_back((number, line.to_owned()));
        self.there.notify_one();
    }
}

/// Where lines go. In a child of fork(2) nothing is said any more, and a thread of the parent may have the lock for good.
fn send_to(log: Option<Log>) {
    if !process::is_forked() {
        Context::log_shared_to(log);
    }
}

/// Lines of the library's log, from when it is made until `close`. Each thread that logs has its own: a lock of the parent's is no use in a
/// child of fork(2).
#[pyclass(frozen, module = "linkspan")]
pub(crate) struct LogLines(Arc<Queue>);

#[pymethods]
impl LogLines {
    #[new]
    fn new(py: Python<'_>) -> LogLines {
        let lines = Lines { waiting: VecDeque::new(), lost: 0, open: true };
        let queue = Arc::new(Queue { lines: Mutex::new(lines), there: Condvar::new() });
        let to = queue.clone();
        py.detach(|| send_to(Some(Log::to(move |level, line| to.put(level, line)))));
        LogLines(queue)
    }

    /// Waits for lines, each with its level; none are left once it was closed.
    fn wait(&self, py: Python<'_>) -> Vec<(u32, String)> {
        py.detach(|| {
            let mut lines = self.0.lock();
            while lines.open && lines.waiting.is_empty() {
                lines = self.0.there.wait(lines).unwrap_or_else(|e| e.into_inner());
            }
            let mut all: Vec<_> = lines.waiting.drain(..).collect();
            let lost = std::mem::take(&mut lines.lost);
            if lost > 0 {
                all.push((WARNING, format!("{lost} more lines were lost: {MOST} waited to be logged")));
            }
            all
        })
    }

    /// From now on lines go to standard error again.
    fn close(&self, py: Python<'_>) {
        // In this order a line that comes meanwhile is kept, or printed, never lost.
        py.detach(|| {
            send_to(None);
            self.0.lock().open = false;
            self.0.there.notify_all();
        });
    }
}
