//! One measurement by an `lspan` of its own, here or on another host: settings of one do not reach the next, and one that fails ends no
//! other.

use std::process::{Command, Stdio};
use std::time::Duration;

use linkspan_doctor::bounded;
use linkspan_fabric::stats::plain;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::exit::Exit;

/// Longest output that is read, bytes.
const OUTPUT_MAX: usize = 4 << 20;

/// What a measurement takes beside its time, at most: a connection that is not answered takes 20 s by default, for each of two tries.
const BESIDE: Duration = Duration::from_secs(60);

/// What a measurement found.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub(crate) struct Once {
    /// Payload, Gb/s.
    pub(crate) gbit_s: f64,
    /// Median of half round trips of 8 bytes, us; none where only bandwidth was measured.
    pub(crate) latency_us: Option<f64>,
    /// The path, a line for each rail.
    pub(crate) path: String,
    /// What made it slower than the machine could give.
    pub(crate) downgrades: Vec<String>,
}

/// How long a measurement may take that is to last `duration`: twice that, and what hosts, launchers and connections take to start.
pub(crate) fn limit(duration: Duration) -> Duration {
    duration.saturating_mul(2).saturating_add(BESIDE)
}

/// Runs the command line, whose standard output is a record of `lspan perf --json`; an error is a sentence. What does not end within the limit,
/// as ssh to a host that is gone, is ended.
pub(crate) fn record(mut command: Command, limit: Duration) -> Result<Value, String> {
    let program = command.get_program().to_string_lossy().into_owned();
    let ended = bounded(command.stderr(Stdio::null()), limit, OUTPUT_MAX);
    let Some((status, bytes)) = ended.map_err(|error| format!("{program}: {error}"))? else {
        return Err(format!("{program} did not end within {} s", limit.as_secs()));
    };
    let text = String::from_utf8_lossy(&bytes);
    let Some(value) = text.find('{').and_then(|at| serde_json::from_str::<Value>(text[at..].trim()).ok()) else {
        return Err(format!("no record: {status}"));
    };
    if let Some(error) = value["error"].as_str() {
        return Err(said(error));
    }
    let good = [Exit::Ok as i32, Exit::Degraded as i32];
    if !status.code().is_some_and(|code| good.contains(&code)) {
        return Err(format!("it ended with {status}"));
    }
    Ok(value)
}

/// Characters of a text that are kept of another process: a path of eight streams takes about 600.
const TEXT_MAX: usize = 2000;

/// What another process says, which may be on another host, for a terminal.
pub(super) fn said(text: &str) -> String {
    plain(&text.chars().take(TEXT_MAX).collect::<String>())
}

/// The figures of a record of `perf bw`, and of one of `perf lat` beside it.
pub(crate) fn figures(bw: &Value, lat: Option<&Value>) -> Result<Once, String> {
    let row = bw["results"].get(0).ok_or("a record without a result")?;
    let gbit_s = row["bw_gbit_s"].as_f64().ok_or("a result without a rate")?;
    let latency = lat.and_then(|record| record["results"].get(0)?["latency"]["p50_ns"].as_f64());
    let texts = |value: &Value| -> Vec<String> {
        value.as_array().into_iter().flatten().take(16).filter_map(|one| Some(said(one.as_str()?))).collect()
    };
    let text = |name: &str| said(row[name].as_str().unwrap_or("?"));
    Ok(Once {
        gbit_s,
        latency_us: latency.map(|ns| ns / 1e3),
        path: format!("{} {}", text("transport"), text("path")),
        downgrades: texts(&bw["downgrades"]),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn shell(script: &str) -> Result<Value, String> {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        record(command, Duration::from_secs(60))
    }

    #[test]
    fn a_record_is_read_and_what_is_none_is_told() {
        let value = shell("echo noise; echo '{\"results\": [], \"error\": null}'").unwrap();
        assert_eq!(figures(&value, None), Err("a record without a result".to_owned()));
        assert_eq!(shell("echo '{\"error\": \"no answer there\"}'; exit 4"), Err("no answer there".to_owned()));
        assert!(shell("echo junk; exit 7").unwrap_err().contains("exit status: 7"));
        assert!(shell("echo '{}'; exit 6").unwrap_err().contains("exit status: 6"));
        assert!(record(Command::new("/no/such/program"), BESIDE).unwrap_err().contains("/no/such/program"));
    }

    #[test]
    fn what_hangs_is_told_and_ended() {
        let mut command = Command::new("sh");
        command.args(["-c", "echo '{'; exec sleep 600"]);
        assert_eq!(record(command, Duration::from_millis(1100)), Err("sh did not end within 1 s".to_owned()));
        assert_eq!(limit(Duration::from_secs(5)), Duration::from_secs(70));
    }

    #[test]
    fn figures_come_with_path_and_downgrades() {
        let bw = json!({ "results": [{ "bw_gbit_s": 9.5, "transport": "tcp", "path": "eth0 a -> b" }], "downgrades": ["x"] });
        let lat = json!({ "results": [{ "latency": { "p50_ns": 12_500.0 } }] });
        let once = figures(&bw, Some(&lat)).unwrap();
        assert_eq!((once.gbit_s, once.latency_us, &*once.path), (9.5, Some(12.5), "tcp eth0 a -> b"));
        assert_eq!(once.downgrades, ["x"]);
    }
}
