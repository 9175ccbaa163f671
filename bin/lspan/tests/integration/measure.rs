//! Real measurements between two processes of this machine, over loopback TCP.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::signals;

fn command(line: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lspan"));
    // Network tests stay on loopback.
    command.args(line.split_whitespace()).env("LINKSPAN_IFNAME", "=lo").env("LINKSPAN_LOG", "warn");
    command
}

fn run(line: &str) -> Output {
    command(line).output().unwrap()
}

fn json(line: &str) -> Value {
    let output = run(line);
    assert_eq!(output.status.code(), Some(0), "{line}: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn fits(file: &str, value: &Value) {
    let problems = crate::schema::problems(file, value);
    assert!(problems.is_empty(), "{file}: {problems:#?}");
}

#[test]
fn every_test_fits_the_schema_and_finds_no_wrong_byte() {
    for (line, rows, bulk, latency) in [
        ("bw -s 1,100,64K -n 20", 3, true, false),
        ("bw -s 1M -n 5 --direction recv", 1, true, false),
        ("bw -s 3M -n 5 --bidir --wait sleep", 1, true, false),
        ("lat -s 8,64K -n 20", 2, false, true),
        ("lat -s 8 -n 200 --wait spin", 1, false, true),
        ("jitter -n 10 --interval 1ms", 1, false, true),
        ("load -s 64 -d 500ms --load-size 256K --bidir", 1, true, true),
        ("multi -s 64K -n 10 -P 3", 1, true, false),
        ("connect -n 5", 1, false, true),
    ] {
        let record = json(&format!("perf {line} --path tcp --json"));
        fits("perf-1.json", &record);
        let results = record["results"].as_array().unwrap();
        assert_eq!(results.len(), rows, "{line}");
        for row in results {
            assert_eq!(row["transport"], "tcp");
            assert!(row["path"].as_str().unwrap().contains("127.0.0.1"), "{row}");
            if row["test"] != "connect" {
                assert_eq!(row["wrong_bytes"], 0, "{line}");
            }
            assert_eq!(row["bytes"].as_u64().unwrap() > 0, bulk, "{line}");
            assert_eq!(row["latency"].is_object(), latency, "{line}");
        }
    }
}

#[test]
fn the_path_of_each_connection_is_logged_where_info_is_asked_for_and_not_else() {
    let said = |level| {
        let output = command("perf lat -s 8 -n 5 --path tcp").env("LINKSPAN_LOG", level).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        String::from_utf8_lossy(&output.stderr)
            .lines()
            .any(|line| line.starts_with("linkspan: INFO connected via tcp "))
    };
    assert!(said("info") && !said("warn"));
}

#[test]
fn every_command_with_json_has_a_schema_that_it_fits() {
    for (line, schema) in [
        ("status --json", "status-1.json"),
        ("env --json", "env-1.json"),
        ("selftest --json", "selftest-1.json"),
        ("devmem probe --json", "devmem-1.json"),
    ] {
        let output = run(line);
        let value: Value = serde_json::from_slice(&output.stdout)
            .unwrap_or_else(|e| panic!("{line}: {e}: {}", String::from_utf8_lossy(&output.stderr)));
        fits(schema, &value);
    }
}

#[test]
fn shared_memory_works_or_says_why_not() {
    let output = run("perf lat -s 8,64K,1M -n 20 --path shm --json");
    let record: Value = serde_json::from_slice(&output.stdout).unwrap();
    fits("perf-1.json", &record);
    match output.status.code() {
        // 3: shared memory without cross-memory attach, which a container may forbid too.
        Some(0 | 3) => {
            let rows = record["results"].as_array().unwrap();
            assert!(
                rows.len() == 3 && rows.iter().all(|row| row["transport"] == "shm" && row["wrong_bytes"] == 0),
                "{record}"
            );
        }
        // A container may forbid it.
        Some(4) => assert!(record["error"].as_str().unwrap().contains("LINKSPAN_PATH=shm cannot be used"), "{record}"),
        other => panic!("{other:?}: {record}"),
    }
}

#[test]
fn one_sided_tests_print_the_table_of_google_benchmark() {
    for (way, name) in [("write", "Write"), ("read", "Read")] {
        for path in ["tcp", "shm"] {
            let output = run(&format!("perf {way} --path {path} -s 8K,300K,4M -n 5"));
            let text = String::from_utf8(output.stdout).unwrap();
            assert_eq!(output.status.code(), Some(0), "{text}{}", String::from_utf8_lossy(&output.stderr));
            let lines: Vec<&str> = text.lines().collect();
            let names: Vec<&str> = lines[1].split_whitespace().collect();
            assert_eq!(names, ["Benchmark", "Time", "CPU", "Iterations"], "{text}");
            assert_eq!(lines.len(), 6, "{text}");
            for (line, size) in lines[3..].iter().zip([8 << 10, 300 << 10, 4 << 20]) {
                let words: Vec<&str> = line.split_whitespace().collect();
                assert_eq!(words[0], format!("BM_Transport_{name}/{size}/real_time"));
                assert!(words[1].parse::<f64>().unwrap() > 0.0 && words[2] == "us" && words[4] == "us", "{line}");
                assert!(words[5] == "5" && words[6].starts_with("bytes_per_second="), "{line}");
            }
            assert!(String::from_utf8_lossy(&output.stderr).contains(path), "the path that was taken is named");
        }
    }
}

#[test]
fn one_sided_tests_as_json_run_as_long_as_asked() {
    let value = json("perf write --path tcp -s 8K -d 60ms --json");
    let row = &value["benchmarks"][0];
    let time = row["real_time"].as_f64().unwrap() * row["iterations"].as_f64().unwrap();
    assert!(time >= 60_000.0, "{time} us");
    assert_eq!(row["name"], "BM_Transport_Write/8192/real_time");
    let rate = row["bytes_per_second"].as_f64().unwrap();
    assert!((rate * row["real_time"].as_f64().unwrap() / 1e6 / 8192.0 - 1.0).abs() < 1e-6);
    assert!(value["context"]["path"].as_str().unwrap().contains("tcp"));
}

#[test]
fn the_schema_check_finds_mistakes() {
    let record = json("perf lat -s 8 -n 3 --path tcp --json");
    for (pointer, value) in [
        ("/schema", Value::from("linkspan.perf/2")),
        ("/results/0/size_bytes", Value::from(-1)),
        ("/results/0/latency/p99_ns", Value::from("fast")),
        ("/ok", Value::Null),
    ] {
        let mut broken = record.clone();
        *broken.pointer_mut(pointer).unwrap() = value;
        assert_eq!(crate::schema::problems("perf-1.json", &broken).len(), 1, "{pointer}");
    }
    let mut more = record.clone();
    more["results"][0]["speed"] = Value::from(1);
    more.as_object_mut().unwrap().remove("host");
    assert_eq!(crate::schema::problems("perf-1.json", &more).len(), 2);
}

#[test]
fn json_lines_come_one_per_result() {
    let output = run("perf bw -s 8,1K -n 10 --path tcp --json-stream");
    let lines: Vec<Value> =
        String::from_utf8(output.stdout).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let events: Vec<&str> = lines.iter().map(|line| line["event"].as_str().unwrap()).collect();
    assert_eq!(events, ["start", "result", "result", "end"]);
    lines.iter().for_each(|line| fits("perf-stream-1.json", line));
}

#[test]
fn an_early_end_is_still_a_whole_document() {
    let output = run("perf bw 127.0.0.1:1 --json");
    assert_eq!(output.status.code(), Some(4));
    let record: Value = serde_json::from_slice(&output.stdout).unwrap();
    fits("perf-1.json", &record);
    assert_eq!((&record["ok"], &record["exit_code"]), (&Value::from(false), &Value::from(4)));
    assert!(record["error"].as_str().unwrap().contains("perf serve"));
}

#[test]
fn a_baseline_is_a_ratio_of_interleaved_pairs() {
    let record = json("perf lat -s 8 -n 50 --path tcp --baseline --json");
    fits("perf-1.json", &record);
    let base = &record["results"][0]["baseline"][0];
    assert_eq!((&base["kind"], &base["rounds"]), (&Value::from("bare_tcp"), &Value::from(10)));
    let of = |name: &str| base[name].as_f64().unwrap();
    assert!(of("ratio_min") > 0.0 && of("ratio_min") <= of("ratio") && of("ratio") <= of("ratio_max"), "{base}");
    let record = json("perf bw -s 64K -n 20 --path tcp --baseline --json");
    fits("perf-1.json", &record);
    let kinds: Vec<&Value> =
        record["results"][0]["baseline"].as_array().unwrap().iter().map(|base| &base["kind"]).collect();
    let shared = |kinds: &[&Value]| kinds.iter().any(|kind| **kind == "split_cma");
    let notes = record["results"][0]["baseline_notes"].to_string();
    assert!(shared(&kinds) || notes.contains("split_cma not measured"), "{record}");
    assert_eq!(kinds[..3], ["bare_tcp", "memcpy", "bare_tcp_window"]);
    let tcp = &record["results"][0]["baseline"][0];
    let cpu = |name: &str| tcp[name].as_f64().unwrap();
    assert!(cpu("cpu_ours_s_per_gbyte") > 0.0 && cpu("cpu_base_s_per_gbyte") > 0.0, "{tcp}");
    assert!(cpu("cpu_ratio_min") <= cpu("cpu_ratio") && cpu("cpu_ratio") <= cpu("cpu_ratio_max"), "{tcp}");
    // The same in every way of waiting, over shared memory, and with the direct way switched off.
    for line in ["bw -s 64K -w 8 -n 20 --wait sleep --path shm", "lat -s 8,64K -n 20 --wait sleep --path shm"] {
        let output = run(&format!("perf {line} --baseline --json"));
        let record: Value = serde_json::from_slice(&output.stdout).unwrap();
        fits("perf-1.json", &record);
        assert!(matches!(output.status.code(), Some(0 | 4)), "{record}");
    }
    let off = command("perf bw -s 64K -n 20 --path tcp --baseline").env("LINKSPAN_CMA", "0").output().unwrap();
    let said = String::from_utf8(off.stdout).unwrap();
    assert!(said.contains("split_cma not measured: switched off here (LINKSPAN_CMA=0)"), "{said}");
}

#[test]
fn status_and_selftest_as_json() {
    fits("status-1.json", &json("status --json"));
    let output = run("selftest --json");
    let found: Value = serde_json::from_slice(&output.stdout).unwrap();
    let tcp = found["parts"].as_array().unwrap().iter().find(|part| part["part"] == "path tcp").unwrap();
    assert_eq!(tcp["verdict"], "pass", "{found}");
}

#[test]
fn a_report_is_one_file_with_plots() {
    let file = std::env::temp_dir().join(format!("lspan-report-{}.html", std::process::id()));
    let output = run(&format!("perf lat -s 8,1K -n 50 --path tcp --report {}", file.display()));
    assert_eq!(output.status.code(), Some(0));
    let page = std::fs::read_to_string(&file).unwrap();
    std::fs::remove_file(&file).unwrap();
    assert!(page.matches("<svg").count() >= 4, "two lines and two distributions");
    assert!(page.contains("</html>") && !page.contains("<script"));
    let links = page.matches("http").count() - page.matches("http://www.w3.org/2000/svg").count();
    assert_eq!(links, 0, "nothing is fetched");
}

#[test]
fn columns_of_other_tools() {
    let nccl = String::from_utf8(run("perf bw -s 1K -n 10 --path tcp --format nccl").stdout).unwrap();
    assert!(
        nccl.contains("#wrong")
            && nccl.contains("# Out of bounds values : 0 OK")
            && nccl.contains("# Avg bus bandwidth")
    );
    let row = nccl.lines().find(|line| !line.starts_with('#')).unwrap();
    assert_eq!(row.split_whitespace().count(), 9, "{row}");
    let perftest = String::from_utf8(run("perf lat -s 8 -n 10 --path tcp --format perftest").stdout).unwrap();
    assert!(perftest.contains("#bytes") && perftest.contains("99% percentile[usec]"), "{perftest}");
}

/// A serving process, ended with the value.
struct Server(Child, String);

impl Server {
    fn start(more: &str) -> Server {
        Server::with(more, &[])
    }

    fn with(more: &str, env: &[(&str, &str)]) -> Server {
        // A free port of this moment; nothing else of this test binary asks for ports by number.
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let line = format!("perf serve --bind 127.0.0.1 --port {port} {more}");
        let mut child = command(&line).envs(env.iter().copied()).stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok);
        let server = Server(child, format!("127.0.0.1:{port}"));
        assert!(lines.any(|line| line.contains("waiting on")), "it ended before it waited");
        // Keep reading, so that the server never waits for us.
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

#[test]
fn a_server_serves_one_after_another_and_several_at_once() {
    let server = Server::start("");
    for line in ["bw -s 64K -n 10", "lat -s 8 -n 10", "multi -s 1K -n 10 -P 4", "connect -n 3"] {
        let record = json(&format!("perf {line} {} --json", server.1));
        fits("perf-1.json", &record);
        assert_eq!(record["peer"], Value::from(server.1.as_str()));
    }
    // The older spelling, to the same server.
    let output = command("--client").args([&server.1, "--test", "latency"]).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    // An unauthenticated client on the port is ignored.
    drop(TcpStream::connect(&server.1).unwrap());
    json(&format!("perf lat -s 8 -n 3 {} --json", server.1));
}

#[test]
fn statistics_of_a_running_process() {
    let dir = std::env::temp_dir().join(format!("lspan-stats-{}", std::process::id()));
    let stats = |line: &str| command(line).env("LINKSPAN_STATS_DIR", &dir).output().unwrap();
    let none = stats("stats");
    assert_eq!(none.status.code(), Some(0), "{}", String::from_utf8_lossy(&none.stderr));
    assert!(String::from_utf8_lossy(&none.stdout).contains("no process"));
    let mut job = command("perf bw -s 64K -d 1h --path tcp")
        .env("LINKSPAN_STATS_DIR", &dir)
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let until = Instant::now() + Duration::from_secs(60);
    let (sent, received) = loop {
        let found: Value = serde_json::from_slice(&stats("stats --json").stdout).unwrap();
        fits("stats-1.json", &found);
        let paths = found["processes"].as_array().unwrap().iter().flat_map(|one| one["paths"].as_array().unwrap());
        let sum = |name: &str| -> u64 { paths.clone().filter_map(|path| path[name].as_u64()).sum() };
        let (sent, received) = (sum("tx_host_bytes"), sum("rx_host_bytes"));
        if sent.min(received) > 1 << 20 || Instant::now() > until {
            break (sent, received);
        }
        std::thread::sleep(Duration::from_millis(50));
    };
    let table = stats("stats");
    let printed = stats("metrics");
    let file = dir.with_extension("prom");
    std::fs::write(&file, "what was there").unwrap();
    let written = stats(&format!("metrics --textfile {}", file.display()));
    let in_file = std::fs::read_to_string(&file).unwrap();
    let _ = std::fs::remove_file(&file);
    let scraped = scrape(&dir);
    job.kill().unwrap();
    job.wait().unwrap();
    let _ = std::fs::remove_dir_all(&dir);
    assert!(sent > 1 << 20 && received > 1 << 20, "sent {sent}, received {received}");
    let table = String::from_utf8_lossy(&table.stdout);
    assert!(table.contains("sent GB") && table.contains("rails back"), "{table}");
    assert!(table.contains(": tcp over ") && table.contains(": same host;"), "why this path: {table}");
    let printed = String::from_utf8_lossy(&printed.stdout).into_owned();
    assert!(written.status.success() && written.stdout.is_empty());
    for text in [printed, in_file, scraped] {
        let sums = ["linkspan_sent_bytes_total", "linkspan_received_bytes_total"].map(|name| -> u64 {
            let ours = |line: &&str| line.starts_with(name) && line.contains(",comm=\"lspan\",workload=\"\",");
            text.lines().filter(ours).map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap()).sum()
        });
        assert!(sums[0] >= sent && sums[1] >= received, "{sums:?} after {sent} and {received}\n{text}");
    }
}

/// What `lspan metrics --listen` gives to a client on loopback.
fn scrape(dir: &Path) -> String {
    let mut serving =
        command("metrics --listen 0").env("LINKSPAN_STATS_DIR", dir).stderr(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(serving.stderr.take().unwrap()).read_line(&mut line).unwrap();
    let address = line.trim().strip_prefix("lspan: http://").unwrap().strip_suffix("/metrics").unwrap();
    assert!(address.starts_with("127.0.0.1:"), "{line}");
    let mut client = TcpStream::connect(address).unwrap();
    client.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    let mut text = String::new();
    client.read_to_string(&mut text).unwrap();
    serving.kill().unwrap();
    serving.wait().unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4"), "{head}");
    body.to_owned()
}

#[test]
fn a_run_that_was_downgraded_lists_why_and_exits_with_3() {
    let server = Server::with("", &[("LINKSPAN_CMA", "0")]);
    let end = |line: &str| {
        let output = run(&line.replace("SERVER", &server.1));
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        (output.status.code(), text)
    };
    let why = "every byte is copied twice through the ring";
    for (path, code) in [("", 3), ("--path tcp", 0)] {
        let listed = |list: &Value| match list.as_array().unwrap().as_slice() {
            [] => code == 0,
            [one] => code == 3 && one.as_str().unwrap().starts_with(why),
            _ => false,
        };
        let (found, text) = end(&format!("perf bw SERVER -s 64K -n 10 --json {path}"));
        let record: Value = serde_json::from_str(&text).unwrap();
        fits("perf-1.json", &record);
        assert!(found == Some(code) && listed(&record["downgrades"]), "{found:?}: {text}");
        assert_eq!((&record["exit_code"], &record["ok"]), (&Value::from(code), &Value::from(true)));
        let (found, text) = end(&format!("perf lat SERVER -s 8 -n 10 --json-stream {path}"));
        let last: Value = serde_json::from_str(text.lines().last().unwrap()).unwrap();
        fits("perf-stream-1.json", &last);
        assert!(found == Some(code) && listed(&last["downgrades"]), "{found:?}: {text}");
        let (found, text) = end(&format!("perf write SERVER -s 8K -n 3 --json {path}"));
        let record: Value = serde_json::from_str(&text).unwrap();
        assert!(found == Some(code) && listed(&record["context"]["downgrades"]), "{found:?}: {text}");
        let (found, text) = end(&format!("perf lat SERVER -s 8 -n 10 {path}"));
        assert!(found == Some(code) && text.contains(&format!("# degraded: {why}")) == (code == 3), "{text}");
    }
}

#[test]
fn compare_measures_no_way_twice_and_says_who_has_to_serve() {
    let server = Server::start("");
    let table = json(&format!("perf compare {} --duration 50ms --json", server.1));
    fits("compare-1.json", &table);
    let ways: Vec<&str> = table["ways"].as_array().unwrap().iter().filter_map(|way| way["way"].as_str()).collect();
    assert_eq!(ways, ["shared memory (as chosen)", "tcp over loopback"]);
    assert!(table["ways"].as_array().unwrap().iter().all(|way| way["error"].is_null()), "{table}");
    let peer = server.1.clone();
    drop(server);
    let output = run(&format!("perf compare {peer}"));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(4) && output.stdout.is_empty(), "{said}");
    assert!(said.contains("LS0732") && said.contains("type `lspan perf serve --port "), "{said}");
}

#[test]
fn one_sided_tests_go_to_a_server_too() {
    let server = Server::start("");
    for (way, rows) in [("read", 2), ("write", 2)] {
        let value = json(&format!("perf {way} {} --path tcp -s 8K,1M -n 3 --json", server.1));
        assert_eq!(value["benchmarks"].as_array().unwrap().len(), rows);
    }
    // And so do tests of messages, after it as before.
    json(&format!("perf lat -s 8 -n 3 {} --json", server.1));
}

#[test]
fn once_is_once() {
    let mut server = Server::start("--once");
    json(&format!("perf lat -s 8 -n 3 {} --json", server.1));
    let status = server.0.wait().unwrap();
    assert_eq!(status.code(), Some(0));
}

#[test]
fn a_killed_server_is_reported_at_once() {
    let mut server = Server::start("");
    let line = format!("perf bw -s 64K -d 1h {}", server.1);
    let client = signals::command(&line, "killed-server").spawn().unwrap();
    signals::under_way("killed-server", 200);
    server.0.kill().unwrap();
    let killed = Instant::now();
    let output = client.wait_with_output().unwrap();
    // Less than the 25 s after which a silent host counts as dead.
    assert!(killed.elapsed() < Duration::from_secs(15), "{:?}", killed.elapsed());
    let _ = std::fs::remove_dir_all(signals::folder("killed-server"));
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("LS0701") && said.contains("gone"), "{said}");
}

#[test]
fn a_killed_client_leaves_no_other_side_behind() {
    let mut client = signals::command("perf bw -s 64K -d 1h --path tcp", "killed-client").spawn().unwrap();
    signals::wait_until("the other side is not started", || !signals::children(client.id()).is_empty());
    let other = signals::children(client.id())[0];
    signals::under_way("killed-client", 200);
    client.kill().unwrap();
    client.wait().unwrap();
    signals::wait_until("the other side outlived its parent", || signals::gone(other));
    let _ = std::fs::remove_dir_all(signals::folder("killed-client"));
}

#[test]
fn time_that_runs_out_has_its_own_code() {
    let output = run("perf bw -s 1M -d 1h --timeout 300ms --path tcp");
    assert_eq!(output.status.code(), Some(124), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(String::from_utf8_lossy(&output.stderr).contains("--timeout"));
}

#[test]
fn with_json_a_failure_has_its_document_too() {
    // What the doctor finds on this host comes first in its exit code.
    let found = command("doctor --no-probe").output().unwrap().status.code();
    let cases = [
        ("perf write 127.0.0.1:1 --json", 4, None),
        ("perf compare 127.0.0.1:1 --json", 4, Some("compare-1.json")),
        ("doctor host:port --json", found.filter(|code| *code != 0).unwrap_or(2), Some("doctor-1.json")),
    ];
    for (line, code, schema) in cases {
        let output = run(line);
        let said = String::from_utf8_lossy(&output.stderr);
        let value: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{line}: {e}: {said}"));
        schema.iter().for_each(|schema| fits(schema, &value));
        assert_eq!(output.status.code(), Some(code), "{line}: {said}");
        if code == 1 || code == 3 {
            continue;
        }
        let why = said.trim().lines().last().unwrap().strip_prefix("lspan: ").unwrap();
        let told = [&value["error"], &value["context"]["error"], &value["notes"]];
        assert!(told.iter().any(|one| one.to_string().contains(why.split('"').next().unwrap())), "{why}: {value}");
    }
}

#[test]
fn nothing_is_measured_for_a_reader_that_has_left() {
    let began = Instant::now();
    let line = format!("perf bw -s 8{} -d 1s --no-verify --path tcp", ",8".repeat(59));
    let mut child = command(&line).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(began.elapsed() < Duration::from_secs(30), "{:?}", began.elapsed());

    // Nor is a failure hidden from whoever started it.
    let mut child = command("perf bw 127.0.0.1:1 --json-stream -d 1s");
    let mut child = child.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(4), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn a_reader_that_leaves_is_no_error() {
    let mut child =
        command("perf bw -s 8,16,32 -n 10 --path tcp").stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(!String::from_utf8_lossy(&output.stderr).contains("panicked"));
}
