//! Lines of the library's log on their way to Python's `logging`: a queue that whoever has something to say fills without Python's lock,
//! and that a thread of Python's empties.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard};

use linkspan::{Context, Level, Log};
use pyo3::prelude::*;

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

static LINES: Mutex<Lines> = Mutex::new(Lines { waiting: VecDeque::new(), lost: 0, open: false });
static THERE: Condvar = Condvar::new();

fn lines() -> MutexGuard<'static, Lines> {
    LINES.lock().unwrap_or_else(|e| e.into_inner())
}

fn put(level: Level, line: &str) {
    let mut lines = lines();
    if lines.waiting.len() >= MOST {
        lines.lost += 1;
        return;
    }
    let number = if level == Level::Warn { WARNING } else { INFO };
    lines.waiting.push_back((number, line.to_owned()));
    THERE.notify_one();
}

/// From now on lines are kept for `log_lines`, or, with False, go to standard error again.
#[pyfunction]
pub(crate) fn log_open(py: Python<'_>, open: bool) {
    py.detach(|| {
        // In this order a line that comes meanwhile is kept, or printed, never lost.
        if open {
            lines().open = true;
            Context::log_shared_to(Some(Log::to(put)));
        } else {
            Context::log_shared_to(None);
            lines().open = false;
            THERE.notify_all();
        }
    });
}

/// Waits for lines, each with its level; none are left once it was closed.
#[pyfunction]
pub(crate) fn log_lines(py: Python<'_>) -> Vec<(u32, String)> {
    py.detach(|| {
        let mut lines = lines();
        while lines.open && lines.waiting.is_empty() {
            lines = THERE.wait(lines).unwrap_or_else(|e| e.into_inner());
        }
        let mut all: Vec<_> = lines.waiting.drain(..).collect();
        let lost = std::mem::take(&mut lines.lost);
        if lost > 0 {
            all.push((WARNING, format!("{lost} more lines were lost: {MOST} waited to be logged")));
        }
        all
    })
}
