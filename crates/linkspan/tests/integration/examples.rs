//! The examples run, as programs.

use std::path::PathBuf;
use std::process::Command;

/// Cargo builds examples before tests, beside them.
fn example(name: &str, args: &[&str]) -> String {
    let mut folder: PathBuf = std::env::current_exe().unwrap();
    folder.pop();
    folder.pop();
    let program = folder.join("examples").join(name);
    assert!(program.exists(), "{} is not built: cargo test --examples -p linkspan does", program.display());
    let mut command = Command::new(program);
    command.args(args).env("LINKSPAN_IFNAME", "=lo").env("LINKSPAN_STATS_DIR", "off");
    let mut all = String::new();
    for path in ["tcp", "shm"] {
        let output = command.env("LINKSPAN_PATH", path).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{name} over {path}: {text}{}", String::from_utf8_lossy(&output.stderr));
        all.push_str(&text);
    }
    all
}

#[test]
fn ping_pong() {
    assert!(example("ping_pong", &["--rounds", "500"]).contains("500 rounds of 8 bytes"));
}

#[test]
fn batch() {
    assert!(example("batch", &[]).contains("4 tensors, 4198500 bytes in one call, notification 4198500"));
}

#[test]
fn broadcast() {
    assert!(
        example("broadcast", &["--workers", "3", "--mib", "4", "--steps", "2"]).contains("step 1: 4 MiB to 3 workers")
    );
}

#[test]
fn kv_pages() {
    let said = example("kv_pages", &["--pages", "1000", "--requests", "2"]);
    assert!(said.contains("request 1: 1000 pages of 16 KiB"), "{said}");
}

#[test]
fn soak() {
    assert!(example("soak", &["--count", "20000"]).contains("descriptors"));
}

#[test]
fn blocking_bench() {
    let said = example("blocking_bench", &["--rounds", "3", "--count", "200"]);
    assert!(said.contains("shm: turn median") && said.contains("tcp: alone median"), "{said}");
}

#[test]
fn rate_bench() {
    let said = example("rate_bench", &["--rounds", "1", "--ms", "5", "--pages", "100", "--peers", "4"]);
    assert!(said.contains("shm 100 pages of 16 KiB") && said.contains("4 peers connected"), "{said}");
}

#[test]
fn many_peers() {
    let said = example("many_peers", &["--peers", "16", "--seconds", "3"]);
    assert!(said.contains("16 peers connected") && said.contains("round 2: one notification of each"), "{said}");
    // One thread looks after all of them once a second; a clock of each peer would be 16 a second.
    let woken = said.split_once(" wake-ups a second").and_then(|(before, _)| before.rsplit(' ').next());
    assert!(woken.and_then(|number| number.parse::<f64>().ok()).is_some_and(|woken| woken < 8.0), "{said}");
}
