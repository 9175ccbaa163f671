//! Ctrl-C and kill, with real signals, on either side.

use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

pub(crate) fn command(line: &str, stats: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lspan"));
    command.args(line.split_whitespace()).env("LINKSPAN_IFNAME", "=lo").env("LINKSPAN_LOG", "warn");
    command.env("LINKSPAN_STATS_DIR", folder(stats)).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

pub(crate) fn folder(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("lspan-signals-{}-{name}", std::process::id()))
}

fn signal(name: &str, process: u32) {
    let sent = Command::new("kill").args([format!("-{name}"), process.to_string()]).status().unwrap();
    assert!(sent.success());
}

/// Its end, within the time in which a whole test would be over on a busy machine; left alone it would go on for an hour.
fn ended(child: Child) -> Output {
    let since = Instant::now();
    let output = child.wait_with_output().unwrap();
    assert!(since.elapsed() < Duration::from_secs(60), "{:?}", since.elapsed());
    output
}

/// Processes that the process has started, and that are not ended and forgotten.
pub(crate) fn children(process: u32) -> Vec<u32> {
    let list = std::fs::read_to_string(format!("/proc/{process}/task/{process}/children")).unwrap_or_default();
    list.split_whitespace().filter_map(|word| word.parse().ok()).collect()
}

/// Whether it has ended; a zombie has too.
pub(crate) fn gone(process: u32) -> bool {
    match std::fs::read_to_string(format!("/proc/{process}/stat")) {
        Err(_) => true,
        Ok(stat) => stat.rsplit(')').next().unwrap_or("").trim_start().starts_with('Z'),
    }
}

pub(crate) fn wait_until(what: &str, true_at_last: impl Fn() -> bool) {
    let until = Instant::now() + Duration::from_secs(60);
    while !true_at_last() {
        assert!(Instant::now() < until, "{what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Waits until the processes with this statistics folder have made so many transfers: they are well into their measurement.
pub(crate) fn under_way(stats: &str, transfers: u64) {
    wait_until("nothing moves", || measures(stats, transfers));
}

fn measures(stats: &str, transfers: u64) -> bool {
    let output = command("stats --json", stats).output().unwrap();
    let found: Value = serde_json::from_slice(&output.stdout).unwrap();
    let paths = || found["processes"].as_array().into_iter().flatten().flat_map(|one| one["paths"].as_array());
    let sum = |name: &str| paths().flatten().filter_map(|path| path[name].as_u64()).sum::<u64>();
    sum("tx_ops") + sum("rx_ops") > transfers || sum("connections") > 8
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn ctrl_c_keeps_what_was_measured_and_leaves_nothing_behind() {
    for (name, line) in [
        ("send", "bw -s 64K -d 1h --path tcp"),
        ("recv", "bw -s 64K -d 1h --path tcp --direction recv --wait sleep"),
        ("both", "bw -s 64K -d 1h --path auto --bidir"),
        ("lat", "lat -s 8 -d 1h --path tcp"),
        ("multi", "multi -s 64K -P 2 -d 1h --path tcp"),
        ("connect", "connect -d 1h --path tcp"),
    ] {
        let client = command(&format!("perf {line} --warmup 0 --json"), name).spawn().unwrap();
        wait_until("the other side is not started", || !children(client.id()).is_empty());
        let other = children(client.id())[0];
        under_way(name, 200);
        // As a terminal does it: both processes get it.
        signal("INT", other);
        signal("INT", client.id());
        let output = ended(client);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(130), "{line}: {said}");
        let record: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!((&record["ok"], &record["exit_code"]), (&Value::from(false), &Value::from(130)));
        assert!(record["error"].as_str().unwrap().contains("LS0709"), "{record}");
        let rows = record["results"].as_array().unwrap();
        assert_eq!(rows.len(), 1, "{line}: {record}");
        let row = &rows[0];
        assert!(row["messages"].as_u64().unwrap() > 0 || row["latency"]["count"].as_u64().unwrap() > 0, "{row}");
        assert!(row["wrong_bytes"] == 0 || name == "connect", "{row}");
        wait_until("the other side is still there", || gone(other));
        let left: Vec<_> = std::fs::read_dir(folder(name)).unwrap().map(|file| file.unwrap().path()).collect();
        // The other side may have been ended before it could clean up; the next process removes its page.
        let own = format!("{other}.stats");
        assert!(left.iter().all(|file| file.ends_with(&own)), "{left:?}");
        std::fs::remove_dir_all(folder(name)).unwrap();
    }
}

/// What a program leaves that was interrupted after so many transfers.
fn interrupted(name: &str, line: &str, transfers: u64) -> Output {
    let client = command(line, name).spawn().unwrap();
    wait_until("the other side is not started", || !children(client.id()).is_empty());
    under_way(name, transfers);
    signal("INT", client.id());
    let output = ended(client);
    let _ = std::fs::remove_dir_all(folder(name));
    assert_eq!(output.status.code(), Some(130), "{line}: {}", text(&output.stderr));
    output
}

#[test]
fn ctrl_c_ends_one_sided_tests_and_keeps_what_was_measured() {
    for way in ["write", "read"] {
        let output = interrupted(way, &format!("perf {way} -s 64K -n 1000000000 --path tcp --json"), 200);
        let found: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert!(found["context"]["error"].as_str().unwrap().contains("LS0709"), "{found}");
        let runs = found["benchmarks"].as_array().unwrap();
        assert!(runs.len() == 1 && runs[0]["iterations"].as_u64().unwrap() > 0, "{found}");
    }
}

#[test]
fn ctrl_c_keeps_the_lines_of_the_overview_and_of_the_selftest() {
    // Beyond the warm-up of a thousand round trips, which both sides count.
    let shown = text(&interrupted("overview", "", 6000).stdout);
    assert!(shown.contains("64K GB/s") && shown.lines().any(|line| line.starts_with("tcp  ")), "{shown}");
    let found: Value = serde_json::from_slice(&interrupted("selftest", "selftest --json", 200).stdout).unwrap();
    assert!(found["exit_code"] == 130 && !found["parts"].as_array().unwrap().is_empty(), "{found}");
}

struct Server(Child, String);

impl Server {
    fn start(stats: &str) -> Server {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let mut child = command(&format!("perf serve --bind 127.0.0.1 --port {port}"), stats).spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok);
        let server = Server(child, format!("127.0.0.1:{port}"));
        assert!(lines.any(|line| line.contains("waiting on")), "it ended before it waited");
        std::thread::spawn(move || lines.for_each(drop));
        server
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Threads of a process; a session of the server is one.
fn threads(process: u32) -> usize {
    std::fs::read_dir(format!("/proc/{process}/task")).unwrap().count()
}

/// Names of what a process holds open that a connection brings: sockets and shared memory.
fn held(process: u32) -> usize {
    let names = std::fs::read_dir(format!("/proc/{process}/fd")).unwrap().flatten();
    let names = names.filter_map(|file| std::fs::read_link(file.path()).ok());
    names.filter(|name| ["socket:", "/memfd:"].iter().any(|kind| name.to_string_lossy().starts_with(kind))).count()
}

#[test]
fn the_server_goes_on_and_holds_nothing_of_a_client_that_left() {
    let server = Server::start("goes-on");
    let before = held(server.0.id());
    for (how, code) in [("INT", Some(130)), ("TERM", Some(130)), ("KILL", None)] {
        for path in ["tcp", "auto"] {
            let line = format!("perf bw -s 1M -d 1h --path {path} {}", server.1);
            // The server has a folder of its own, for it goes on counting.
            let client = command(&line, "goes-on-client").spawn().unwrap();
            wait_until("no session came", || threads(server.0.id()) > 1);
            under_way("goes-on-client", 20);
            signal(how, client.id());
            assert_eq!(ended(client).status.code(), code);
            wait_until("the session goes on", || threads(server.0.id()) == 1);
            // A socket whose last words may still be on their way is kept until the next connection is worked on.
            wait_until("the server still holds the connection", || held(server.0.id()) <= before + 1);
        }
    }
    let output = command(&format!("perf lat -s 8 -n 5 {}", server.1), "goes-on").output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    drop(server);
    let _ = std::fs::remove_dir_all(folder("goes-on"));
    let _ = std::fs::remove_dir_all(folder("goes-on-client"));
}

#[test]
fn ctrl_c_on_the_server_ends_it_and_the_client_says_so() {
    for path in ["tcp", "auto"] {
        let mut server = Server::start("ends");
        let line = format!("perf bw -s 64K -d 1h --path {path} {}", server.1);
        let client = command(&line, "ends").spawn().unwrap();
        under_way("ends", 200);
        signal("INT", server.0.id());
        assert_eq!(server.0.wait().unwrap().code(), Some(130));
        let output = ended(client);
        assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
        let said = text(&output.stderr);
        assert!(said.contains("LS0701") && said.contains("gone"), "{said}");
        let own = format!("{}.stats", server.0.id());
        assert!(!folder("ends").join(own).exists(), "the server's statistics are left behind");
    }
    let _ = std::fs::remove_dir_all(folder("ends"));
}

#[test]
fn a_child_that_is_killed_is_named_as_a_peer_that_is_gone() {
    for path in ["tcp", "auto"] {
        let client = command(&format!("perf bw -s 64K -d 1h --path {path}"), "killed").spawn().unwrap();
        wait_until("the other side is not started", || !children(client.id()).is_empty());
        let other = children(client.id())[0];
        under_way("killed", 200);
        signal("KILL", other);
        let output = ended(client);
        assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
        assert!(text(&output.stderr).contains("LS0701"), "{}", text(&output.stderr));
    }
    let _ = std::fs::remove_dir_all(folder("killed"));
}

#[test]
fn ctrl_c_in_the_last_way_that_the_doctor_measures_keeps_no_speeds() {
    let (server, state) = (Server::start("speed-server"), folder("speed-state"));
    let line = format!("doctor --json --speed {}", server.1);
    let doctor = command(&line, "speed").env("XDG_STATE_HOME", &state).spawn().unwrap();
    // Over TCP it is the last on a host without RDMA.
    let last = |child: &u32| {
        let words = std::fs::read_to_string(format!("/proc/{child}/cmdline")).unwrap_or_default();
        words.contains("\0--path\0tcp\0")
    };
    wait_until("TCP is not measured", || children(doctor.id()).iter().any(last));
    signal("INT", doctor.id());
    let output = ended(doctor);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(130), "{said}");
    assert!(said.contains("interrupted; nothing was kept"), "{said}");
    let found: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(found["exit_code"], 130, "{found}");
    assert!(!state.exists(), "a record was written");
    drop(server);
    for name in ["speed", "speed-server"] {
        let _ = std::fs::remove_dir_all(folder(name));
    }
}
