//! Every performance test of `lspan` between two guests: that it runs and which path it names, never how fast.

use std::time::Duration;

use super::tb::SOON;
use crate::error::{Result, check};
use crate::guest::Guest;

/// The tests, with as little work as each makes sense with; all check their data.
const TESTS: [(&str, &str); 5] = [
    ("bw", "--size 1M --iters 8"),
    ("lat", "--size 4K --iters 20"),
    ("jitter", "--size 4K --iters 20"),
    ("load", "--size 4K --iters 20 --load-size 256K"),
    ("multi", "--size 256K --iters 8 --streams 2"),
];

/// What they warm up with by default is more than an emulated cable moves in a minute where others keep the machine busy; the patience of
/// the lab is what ends a test that hangs.
const SMALL: &str = "--warmup 2 --timeout 5m";

/// What was measured, for a line of the log.
pub(crate) const ALL: &str = "lspan perf bw, lat, jitter, load, multi, every byte checked";

/// A path to be measured, from one guest to another.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MeasuredPath<'a> {
    /// Where the server is reached.
    pub(crate) at: &'a str,
    /// What both sides run with.
    pub(crate) env: &'a str,
    /// The kind of path that both ask for.
    pub(crate) path: &'a str,
    /// What each test has to name as the path that it took.
    pub(crate) device: &'a str,
}

/// Runs each test from `a` against a server of its own on `b`.
pub(crate) fn all(a: &Guest, b: &Guest, way: MeasuredPath<'_>) -> Result<()> {
    let MeasuredPath { at, env, path, device } = way;
    for (test, more) in TESTS {
        let serve =
            format!("{env} LINKSPAN_PATH={path} LINKSPAN_LOG=info exec lspan perf serve --open >/tmp/serve.log 2>&1");
        let mut server = b.spawn(&serve)?;
        b.until("the server", SOON, "pidof lspan >/dev/null && netstat -ltn 2>/dev/null | grep -q LISTEN")?;
        let said = a.run(SOON * 4, &format!("{env} lspan perf {test} {at} --path {path} {SMALL} {more} 2>&1"))?;
        // 3: it works, and something faster was left out, which the text names.
        let works = said.code == 0 || path == "auto" && said.code == 3;
        check(works && said.out.contains(device), || {
            let there = b.sh("cat /tmp/serve.log; dmesg | tail -5").unwrap_or_default();
            let text = format!("{}{}", said.out, said.err);
            format!("lspan perf {test} ended with {} or names no {device}: {text}\n{there}", said.code)
        })?;
        server.kill();
        let _ = server.expect("nothing", Duration::from_millis(10));
        b.until("the server to go", SOON, "! pidof lspan >/dev/null")?;
    }
    Ok(())
}
