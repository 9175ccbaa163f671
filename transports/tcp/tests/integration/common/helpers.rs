//! What the tests of rails with a helper thread share.

use std::net::TcpStream;

use linkspan_stream::Options;
use linkspan_tcp::{HelpedRail, Helpers, TcpRail};

use super::{rail_with_raw, rails};

pub(crate) fn help(helpers: &Helpers, rail: TcpRail) -> HelpedRail {
    helpers.take(rail, "card", &[]).map_err(|(_, why)| why).expect("a thread")
}

pub(crate) fn helped_rails(helpers: &Helpers, at: &str) -> (HelpedRail, HelpedRail) {
    let (a, b) = rails(at, &Options::default());
    (help(helpers, a), help(helpers, b))
}

pub(crate) fn helped_with_raw(helpers: &Helpers) -> (HelpedRail, TcpStream) {
    let (rail, raw) = rail_with_raw();
    (help(helpers, rail), raw)
}

/// Ids of this process's helper threads.
pub(crate) fn threads() -> Vec<u32> {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap().flatten();
    let named = tasks.filter(|task| {
        std::fs::read_to_string(task.path().join("comm")).is_ok_and(|name| name.starts_with("linkspan-nic"))
    });
    let mut ids: Vec<u32> = named.map(|task| task.file_name().to_str().unwrap().parse().unwrap()).collect();
    ids.sort_unstable();
    ids
}

/// One line of a thread's status.
pub(crate) fn status(thread: u32, name: &str) -> String {
    let text = std::fs::read_to_string(format!("/proc/self/task/{thread}/status")).unwrap();
    text.lines().find_map(|line| line.strip_prefix(name)).unwrap().trim().to_owned()
}

/// Nanoseconds that a thread has run (`schedstat` of proc(5)).
pub(crate) fn ran(thread: u32) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/self/task/{thread}/schedstat")).unwrap();
    text.split_whitespace().next().unwrap().parse().unwrap()
}
