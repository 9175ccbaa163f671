//! `cargo xtask prometheus`: a real Prometheus reads `lspan metrics` over HTTP and node_exporter's file while bytes move, and every
//! query of the dashboard and of the alerts is put to it.

use std::fs;
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::run::{self, Outcome};

/// The programs, and their Debian packages.
const PROGRAMS: [(&str, &str); 3] = [
    ("prometheus", "prometheus"),
    ("promtool", "prometheus"),
    ("prometheus-node-exporter", "prometheus-node-exporter"),
];

/// How long the first samples of everything may take. Prometheus starts within seconds and reads once a second.
const LIMIT: Duration = Duration::from_secs(120);

/// A process that ends with the test.
struct Started(Child);

impl Drop for Started {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub(crate) fn run(root: &Path) -> Outcome {
    if let Some((program, package)) = PROGRAMS.iter().find(|(program, _)| run::which(program).is_none()) {
        return Outcome::Skipped(format!("there is no {program} (Debian: {package})"));
    }
    match test(root) {
        Ok(queries) => {
            println!("prometheus: {queries} queries of dashboard and alerts gave samples");
            Outcome::Done
        }
        Err(why) => Outcome::Failed(why),
    }
}

fn test(root: &Path) -> Result<usize, String> {
    run::must(run::cargo(root).args(["build", "-p", "lspan"]))?;
    let shipped = root.join("bin/lspan/prometheus");
    let mut queries = panels(&shipped.join("linkspan.dashboard.json"))?;
    queries.extend(alerts(&shipped.join("linkspan.rules.yml"))?);
    let dir = run::target_dir(root).join("prometheus");
    let _ = fs::remove_dir_all(&dir);
    let (stats, textfile) = (dir.join("stats"), dir.join("textfile"));
    let text = |path: &Path| path.display().to_string();
    for folder in [&stats, &textfile] {
        fs::create_dir_all(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    }
    let [perf, metrics, node, server] = ports()?;
    let lspan = |words: &[&str]| {
        let mut command = Command::new(run::target_dir(root).join("debug/lspan"));
        command.args(words).env("LINKSPAN_STATS_DIR", &stats).env("SLURM_JOB_ID", "42");
        command
    };
    let config = format!(
        "global: {{ scrape_interval: 1s }}\nrule_files: [ {} ]\nscrape_configs:\n  \
         - {{ job_name: linkspan, static_configs: [ {{ targets: [ '127.0.0.1:{metrics}' ] }} ] }}\n  \
         - {{ job_name: node, static_configs: [ {{ targets: [ '127.0.0.1:{node}' ] }} ] }}\n",
        text(&shipped.join("linkspan.rules.yml"))
    );
    let file = dir.join("prometheus.yml");
    fs::write(&file, config).map_err(|error| format!("{}: {error}", file.display()))?;

    let (port, peer) = (perf.to_string(), format!("127.0.0.1:{perf}"));
    let _server = start(&mut lspan(&["perf", "serve", "--port", &port]))?;
    let _listens = start(&mut lspan(&["metrics", "--listen", &metrics.to_string()]))?;
    let _node = start(Command::new("prometheus-node-exporter").args([
        "--collector.disable-defaults".to_owned(),
        "--collector.textfile".to_owned(),
        format!("--collector.textfile.directory={}", text(&textfile)),
        format!("--web.listen-address=127.0.0.1:{node}"),
    ]))?;
    let _prometheus = start(Command::new("prometheus").args([
        format!("--config.file={}", text(&file)),
        format!("--storage.tsdb.path={}", text(&dir.join("data"))),
        format!("--web.listen-address=127.0.0.1:{server}"),
        "--log.level=error".to_owned(),
    ]))?;
    let url = format!("http://127.0.0.1:{server}");
    let until = Instant::now() + LIMIT;
    let seconds = LIMIT.as_secs().to_string() + "s";
    run::must(&mut lspan(&["wait", &peer, "--serving", "--timeout", &seconds]))?;
    let mut moves = start(&mut lspan(&["perf", "bw", &peer, "--duration", &seconds, "--size", "1M"]))?;
    queries.push("linkspan_processes{job=\"node\"} > 0".to_owned());
    let count = queries.len();
    // What was asked for and had no sample yet.
    while !queries.is_empty() {
        if Instant::now() > until {
            return Err(format!("no sample within {} s: {}", LIMIT.as_secs(), queries.join("\n  ")));
        }
        if let Ok(Some(status)) = moves.0.try_wait() {
            return Err(format!("lspan perf bw ended with {status} before every query had samples"));
        }
        run::must(lspan(&["metrics", "--textfile"]).arg(textfile.join("linkspan.prom")))?;
        queries.retain(|query| {
            let asked = Command::new("promtool").args(["query", "instant", &url, query]).stderr(Stdio::null()).output();
            !asked.is_ok_and(|out| out.status.success() && !out.stdout.trim_ascii().is_empty())
        });
        thread::sleep(Duration::from_secs(1));
    }
    Ok(count)
}

fn start(command: &mut Command) -> Result<Started, String> {
    let program = command.get_program().to_string_lossy().into_owned();
    let child = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn();
    child.map(Started).map_err(|error| format!("{program}: {error}"))
}

/// Ports of loopback that nobody uses at the moment.
fn ports() -> Result<[u16; 4], String> {
    let mut held = Vec::new();
    for _ in 0..4 {
        let bound = TcpListener::bind("127.0.0.1:0").and_then(|socket| Ok((socket.local_addr()?.port(), socket)));
        held.push(bound.map_err(|error| format!("a port of loopback: {error}"))?);
    }
    let ports: Vec<u16> = held.iter().map(|(port, _)| *port).collect();
    ports.try_into().map_err(|_| "four ports".to_owned())
}

/// The queries of the dashboard's panels, with its variables as they are when nothing is chosen.
fn panels(file: &Path) -> Result<Vec<String>, String> {
    let text = fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))?;
    let document: Value = serde_json::from_str(&text).map_err(|error| format!("{}: {error}", file.display()))?;
    let panels = document["panels"].as_array().map(Vec::as_slice).unwrap_or_default();
    let targets = panels.iter().flat_map(|panel| panel["targets"].as_array().map(Vec::as_slice).unwrap_or_default());
    let plain = |query: &str| {
        let chosen = query.replace("$__rate_interval", "10s").replace("$__range", "1m");
        chosen.replace("$instance", ".*").replace("$workload", ".*")
    };
    let queries: Vec<String> = targets.filter_map(|target| target["expr"].as_str()).map(plain).collect();
    match queries.iter().find(|query| query.contains('$')) {
        Some(query) => Err(format!("{}: a variable that Grafana would not know here: {query}", file.display())),
        None if queries.is_empty() => Err(format!("{}: no panel asks for anything", file.display())),
        None => Ok(queries),
    }
}

/// The queries of the alerts without what they are compared with: all is well while this runs.
fn alerts(file: &Path) -> Result<Vec<String>, String> {
    let text = fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))?;
    let queries: Vec<String> = text
        .lines()
        .filter_map(|line| line.trim_start().strip_prefix("expr: "))
        .map(|query| query.rsplit_once(" > ").map_or(query, |(query, _)| query).to_owned())
        .collect();
    if queries.is_empty() { Err(format!("{}: no alert asks for anything", file.display())) } else { Ok(queries) }
}
