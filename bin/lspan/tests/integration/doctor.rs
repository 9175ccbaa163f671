//! `lspan doctor` on the machine that runs the tests, and with files from elsewhere.

use std::path::PathBuf;
use std::process::{Command, Output};

use serde_json::Value;

use crate::schema;

fn doctor(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lspan"));
    command.arg("doctor").args(args).env_remove("LINKSPAN_IFNAME").output().unwrap()
}

/// A file that goes away with this value.
struct File(PathBuf);

impl File {
    fn new(name: &str, bytes: &[u8]) -> File {
        let path = std::env::temp_dir().join(format!("lspan-doctor-{}-{name}", std::process::id()));
        std::fs::write(&path, bytes).unwrap();
        File(path)
    }

    fn path(&self) -> &str {
        self.0.to_str().unwrap()
    }
}

impl Drop for File {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn refused(files: &[&str], part: &str) {
    let output = doctor(&[&["--merge"], files].concat());
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains(part), "{part}: {said}");
    assert_eq!((output.status.code(), output.stdout.len()), (Some(1), 0), "{said}");
}

#[test]
fn this_machine_is_judged_and_its_json_fits_the_schema() {
    let output = doctor(&["--json", "--no-probe"]);
    let value: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(schema::problems("doctor-1.json", &value), Vec::<String>::new());
    assert_eq!(value["exit_code"].as_i64(), output.status.code().map(i64::from), "{value}");
    assert!(output.stderr.is_empty(), "nothing is sent, so nothing is announced");
    let text = doctor(&["--no-probe"]);
    assert!(String::from_utf8_lossy(&text.stdout).contains("connections to other hosts use"));
}

/// A program of the system that hangs is ended, said, and the rest is judged.
#[test]
fn a_program_that_hangs_is_said_and_the_rest_is_judged() {
    use std::os::unix::fs::PermissionsExt;
    let folder = std::env::temp_dir().join(format!("lspan-doctor-{}-hangs", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("ip"), "#!/bin/sh\nexec sleep 600\n").unwrap();
    std::fs::set_permissions(folder.join("ip"), PermissionsExt::from_mode(0o755)).unwrap();
    let path = format!("{}:{}", folder.display(), std::env::var("PATH").unwrap());
    let lspan = |args: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_lspan"));
        command.args(args).env("PATH", &path).env_remove("LINKSPAN_IFNAME").output().unwrap()
    };
    let note = "`ip` did not end within 5 s";
    let output = lspan(&["doctor", "--json", "--no-probe"]);
    let value: Value = serde_json::from_slice(&output.stdout).unwrap();
    let notes: Vec<&str> = value["notes"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
    assert_eq!(notes.iter().filter(|one| one.contains(note)).count(), 1, "{notes:?}");
    assert!(!value["end"]["ports"].as_array().unwrap().is_empty() || !value["findings"].as_array().unwrap().is_empty());
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn files_of_two_hosts_are_judged_together() {
    let own = doctor(&["--json", "--no-probe"]).stdout;
    let mut other: Value = serde_json::from_slice(&own).unwrap();
    other["end"]["host"] = "another".into();
    other["end"]["boot_id"] = "another".into();
    for port in other["end"]["ports"].as_array_mut().unwrap() {
        port["addrs"] = Value::Array(Vec::new());
    }
    let (a, b) = (File::new("a", &own), File::new("b", other.to_string().as_bytes()));
    let output = doctor(&["--json", "--merge", a.path(), b.path()]);
    let value: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(schema::problems("doctor-1.json", &value), Vec::<String>::new());
    assert_eq!(value["hosts"][1], "another");
    assert!(value["end"].is_null());
    refused(&[a.path(), a.path()], "LS2014");
    refused(&[a.path()], "LS2015");
    // The output for several hosts is none of one.
    let merged = File::new("merged", &output.stdout);
    refused(&[a.path(), merged.path()], "LS2011");
}

#[test]
fn files_that_are_none_are_refused_by_name() {
    let (junk, other) = (File::new("junk", b"junk"), File::new("other", br#"{"schema":"linkspan.doctor/9"}"#));
    refused(&[junk.path(), other.path()], "LS2011");
    let said = String::from_utf8_lossy(&doctor(&["--merge", junk.path(), other.path()]).stderr).into_owned();
    assert_eq!(said.matches(" at line ").count(), 1, "the cause is told once: {said}");
    refused(&[other.path(), junk.path()], "LS2012");
    let long = File::new("long", &vec![b' '; (1 << 20) + 1]);
    refused(&[long.path(), junk.path()], "LS2010");
    refused(&["/nowhere/a.json", junk.path()], "/nowhere/a.json");
    let both = doctor(&["peer", "--merge", junk.path()]);
    assert_eq!(both.status.code(), Some(2));
}

#[test]
fn a_setting_that_is_refused_is_a_finding_and_the_rest_is_judged() {
    for (name, value) in [("LINKSPAN_STRICT", "perhaps"), ("LINKSPAN_TCP_CONGESTION", "no-such-control")] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_lspan"));
        let command = command.args(["doctor", "--json", "--no-probe"]).env(name, value).env("NCCL_MESH_DEBUG", "1");
        let output = command.output().unwrap();
        let value: Value = serde_json::from_slice(&output.stdout).unwrap();
        let codes = value["findings"].as_array().unwrap().iter().map(|f| f["code"].as_str().unwrap());
        let codes: Vec<&str> = codes.collect();
        assert!(codes.contains(&"LS2301") && codes.contains(&"LS2801"), "{name}: {codes:?}");
        assert_eq!(output.status.code(), Some(1));
    }
}

#[test]
fn a_misspelt_setting_is_told() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lspan"));
    let output = command.args(["doctor", "--json", "--no-probe"]).env("LINKSPAN_STRCT", "1").output().unwrap();
    let value: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(value["notes"].to_string().contains("LINKSPAN_STRCT is set, but no such parameter exists"), "{value}");
}

#[test]
fn a_peer_to_which_nothing_could_be_measured_is_no_success() {
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let stats = std::env::temp_dir().join(format!("lspan-doctor-stats-{}", std::process::id()));
    std::fs::create_dir_all(&stats).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_lspan"));
    command
        .args(["doctor", "--json", "--speed", &free])
        .env("LINKSPAN_STATS_DIR", &stats)
        .env_remove("LINKSPAN_IFNAME");
    let output = command.output().unwrap();
    let value: Value = serde_json::from_slice(&output.stdout).unwrap();
    std::fs::remove_dir_all(&stats).unwrap();
    let broken = value["findings"].as_array().unwrap().iter().any(|one| one["severity"] == "broken");
    let wanted = if broken { 1 } else { 4 };
    assert!(value["notes"].to_string().contains("LS0732") && output.status.code() == Some(wanted), "{value}");
}
