//! What the command line says to people: help, mistakes and their exit codes.

use std::process::{Command, Output};

fn lspan(line: &str, env: &[(&str, &str)]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lspan"));
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("LINKSPAN_") || name.to_string_lossy().starts_with("NCCL_") {
            command.env_remove(name);
        }
    }
    command.args(line.split_whitespace()).envs(env.iter().copied()).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// Command line, environment, exit code, parts of the message.
type Case = (&'static str, &'static [(&'static str, &'static str)], i32, &'static [&'static str]);

#[test]
fn mistakes_name_the_thing_the_value_and_the_way_out() {
    let cases: &[Case] = &[
        ("perf bw --size 1T", &[], 2, &["--size", "\"1T\"", "64K"]),
        ("perf bw --size 0", &[], 2, &["\"0\"", "1 to 1G"]),
        ("perf bw --size 2G", &[], 2, &["\"2G\"", "1 to 1G"]),
        ("perf bw --size 8..4", &[], 2, &["\"8..4\"", "ends before"]),
        ("perf bw --size 8,,9", &[], 2, &["\"8,,9\"", "empty"]),
        ("perf bw --duration 5x", &[], 2, &["--duration", "\"5x\"", "500ms"]),
        ("perf bw --duration 2d", &[], 2, &["\"2d\"", "ms, s, m or h"]),
        ("perf bw --iters 0", &[], 2, &["--iters", "0"]),
        ("perf bw --iters 5 --duration 1s", &[], 2, &["--iters", "--duration", "cannot be used with"]),
        ("perf bw --window 0", &[], 2, &["--window", "4096"]),
        ("perf bw --window 4097", &[], 2, &["--window", "4097", "4096"]),
        ("perf bw --window many", &[], 2, &["--window", "many"]),
        ("perf bw --warmup 1000001", &[], 2, &["--warmup", "1000001", "1000000"]),
        ("perf bw --wait fast", &[], 2, &["--wait", "fast", "spin", "sleep"]),
        ("perf bw --direction up", &[], 2, &["--direction", "up", "recv"]),
        ("perf bw --direction recv --bidir", &[], 2, &["--bidir", "--direction"]),
        ("perf bw --device -1", &[], 2, &["-1"]),
        ("perf bw --device x", &[], 2, &["--device", "x"]),
        ("perf bw --seed x", &[], 2, &["--seed", "x"]),
        ("perf bw --timeout 0s", &[], 2, &["--timeout", "LS0715", "24h"]),
        ("perf bw --duration 25h", &[], 2, &["--duration", "25h", "24h"]),
        ("perf bw --size 1..8:1", &[], 2, &["--size", "1..8:1", "factor"]),
        ("perf bw --size 99999999999999999999", &[], 2, &["--size", "99999999999999999999"]),
        ("perf bw --baseline --rounds 1001", &[], 2, &["--rounds", "1001", "1000"]),
        ("perf jitter --interval soon", &[], 2, &["--interval", "\"soon\"", "500ms"]),
        ("perf jitter --interval 31s", &[], 2, &["--interval", "\"31s\"", "LS0715", "30s"]),
        ("perf load --load-size 2G", &[], 2, &["--load-size", "\"2G\"", "1 to 1G"]),
        ("perf serve --port 70000", &[], 2, &["--port", "70000", "65535"]),
        ("perf bw host:port", &[], 2, &["\"host:port\"", "HOST:PORT"]),
        ("perf bw --report /tmp", &[], 1, &["--report /tmp", "directory"]),
        ("perf bw --report /proc/x.html", &[], 1, &["--report /proc/x.html"]),
        ("metrics --listen everywhere", &[], 2, &["--listen", "everywhere", "127.0.0.1"]),
        ("metrics --listen 1 --textfile a", &[], 2, &["--listen", "--textfile"]),
        ("metrics", &[("LINKSPAN_STATS_DIR", "off")], 4, &["LINKSPAN_STATS_DIR=off"]),
        ("stats --watch often", &[], 2, &["--watch", "\"often\""]),
        ("selftest --plugin", &[], 2, &["--plugin", "FILE"]),
        ("perf multi --streams 65", &[], 2, &["--streams", "65", "64"]),
        ("perf bw --path rdma", &[], 2, &["--path", "rdma", "tcp", "shm"]),
        ("perf bw --format csv", &[], 2, &["--format", "csv", "perftest"]),
        ("perf bw --json --json-stream", &[], 2, &["--json", "cannot be used with"]),
        ("perf bw --rounds 20", &[], 2, &["--baseline"]),
        ("perf bw --baseline --rounds 2", &[], 2, &["--rounds", "10"]),
        ("perf matrix a=10.0.0.1 a=10.0.0.1", &[], 2, &["a is there twice"]),
        ("perf jitter --baseline", &[], 2, &["--baseline", "perf bw"]),
        ("perf connect --size 8", &[], 2, &["--size", "moves no data"]),
        ("perf connect --wait spin", &[], 2, &["--wait", "moves no data"]),
        ("perf connect --timeout 1s", &[], 2, &["--timeout", "LINKSPAN_CONNECT_TIMEOUT_MS"]),
        ("perf bw --colour", &[], 2, &["--colour"]),
        ("perf bandwidth", &[], 2, &["bandwidth"]),
        ("perf", &[], 2, &["Usage"]),
        ("frobnicate", &[], 2, &["frobnicate"]),
        ("perf bw 127.0.0.1:0", &[], 2, &["\"127.0.0.1:0\"", "HOST:PORT"]),
        ("perf bw 127.0.0.1:1", &[], 4, &["lspan: LS0732", "127.0.0.1:1", "lspan perf serve"]),
        ("perf bw no-such-host.invalid", &[], 4, &["lspan: LS0731", "no-such-host.invalid"]),
        ("perf bw --path tcp --device 7", &[], 4, &["LS0506", "LS0736", "the other side did not start"]),
        ("perf serve --device 7", &[], 4, &["device 7", "there are"]),
        ("perf serve --bind 192.0.2.77", &[], 4, &["lspan: LS0733", "192.0.2.77", "lspan status"]),
        ("perf serve --bind here", &[], 2, &["--bind", "here"]),
        ("perf bw --report /no/such/folder/x.html", &[], 1, &["--report /no/such/folder/x.html"]),
        ("--client --test speed", &[], 2, &["speed", "latency-load"]),
        ("--server --client", &[], 2, &["--server", "--client"]),
        ("--device 0", &[], 2, &["--client"]),
        ("completions tcsh", &[], 2, &["\"tcsh\"", "bash", "folder"]),
        ("man /no/such/folder", &[], 1, &["lspan: LS0737", "/no/such/folder"]),
        ("mesh", &[], 2, &["lspan: LS0734", "LINKSPAN_PSK_FILE"]),
        ("status", &[("LINKSPAN_IFNAME", "eth0 eth1")], 2, &["LS0602", "LINKSPAN_IFNAME", "eth0 eth1", "comma"]),
        ("status", &[("LINKSPAN_IFNAME", "^")], 2, &["LS0601", "names no interface"]),
        ("status", &[("LINKSPAN_STRICT", "yes")], 2, &["LINKSPAN_STRICT=yes", "0 or 1"]),
        ("status", &[("LINKSPAN_PATH", "rdma")], 2, &["LINKSPAN_PATH=rdma", "tcp"]),
        ("status", &[("LINKSPAN_TCP_CONGESTION", "foo")], 2, &["LINKSPAN_TCP_CONGESTION=foo:", "the kernel refuses"]),
        ("status", &[("LINKSPAN_IB_HCA", "^")], 2, &["LS0518", "LINKSPAN_IB_HCA"]),
        ("env", &[("LINKSPAN_STALL_MS", "-1")], 2, &["LINKSPAN_STALL_MS=-1"]),
        ("perf lat", &[("LINKSPAN_PSK_FILE", "/no/such/key")], 2, &["LINKSPAN_PSK_FILE=/no/such/key"]),
        // Set by a script whose own variable is not: never as if there were no key.
        ("perf lat", &[("LINKSPAN_PSK_FILE", "")], 2, &["LS0501", "LINKSPAN_PSK_FILE=:", "set and empty", "unset it"]),
        ("perf lat", &[("LINKSPAN_PSK_MODE", "")], 2, &["LINKSPAN_PSK_MODE=:", "set and empty"]),
        ("perf lat", &[("LINKSPAN_STRICT", "")], 2, &["LINKSPAN_STRICT=:", "set and empty"]),
    ];
    for (line, env, code, parts) in cases {
        let output = lspan(line, env);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(*code), "{line} {env:?}: {said}");
        for part in *parts {
            assert!(said.contains(part), "{line} {env:?}: {part:?} is missing in: {said}");
        }
        // `env` prints the list all the same: the message points to it.
        let printed = !output.stdout.is_empty();
        assert_eq!(printed, *line == "env", "{line}: mistakes go to standard error");
    }
}

#[test]
fn a_key_file_whose_name_is_not_utf_8_is_not_taken_for_none() {
    let name = std::os::unix::ffi::OsStrExt::from_bytes(b"/no/such/\xff");
    let name: &std::ffi::OsStr = name;
    let mut command = Command::new(env!("CARGO_BIN_EXE_lspan"));
    let output = command.args(["perf", "lat", "-n", "1"]).env("LINKSPAN_PSK_FILE", name).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("LINKSPAN_PSK_FILE=/no/such/"), "{}", text(&output.stderr));
}

#[test]
fn help_and_version_are_results() {
    for (line, parts) in [
        ("--help", &["Usage: lspan", "status", "perf", "selftest", "Exit codes", "124"][..]),
        ("--version", &["lspan "]),
        ("perf --help", &["serve", "bw", "lat", "jitter", "load", "multi", "connect", "latency-load"]),
        (
            "perf bw --help",
            &["--size", "--duration", "--window", "--warmup", "--json-stream", "--report", "--baseline", "PEER"],
        ),
        ("perf serve --help", &["--bind", "24680"]),
    ] {
        let output = lspan(line, &[]);
        assert_eq!(output.status.code(), Some(0), "{line}");
        for part in parts {
            assert!(text(&output.stdout).contains(part), "{line}: {part}");
        }
        assert_eq!(text(&output.stderr), "");
    }
}

#[test]
fn status_names_every_interface_and_older_names() {
    let output = lspan("status", &[("RCCL_NET_PLUGIN", "tb5"), ("NCCL_MESH_DEBUG", "1"), ("LINKSPAN_SPEED", "9")]);
    let said = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert!(said.contains("lo ") && said.contains("reaches this host only"), "{said}");
    assert!(said.contains("RCCL_NET_PLUGIN is of an older project") && said.contains("NCCL_NET_PLUGIN=linkspan"));
    assert!(said.contains("NCCL_MESH_DEBUG") && said.contains("LINKSPAN_LOG"));
    assert!(text(&output.stderr).contains("LINKSPAN_SPEED"), "unknown names of ours are warned about");
    assert!(!said.contains('\u{1b}'), "no colours into a pipe");
}

#[test]
fn a_standard_error_that_cannot_be_written_changes_no_exit_code() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lspan"));
    let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
    let status = command.args(["perf", "connect", "--size", "8"]).stderr(full).status().unwrap();
    assert_eq!(status.code(), Some(2));
}

/// A program in a network of its own, whose loopback is down; `None`, with a word, where this host does not let us.
fn without_network(line: &str) -> Option<Output> {
    let flags = if rustix::process::geteuid().is_root() { "-n" } else { "-rn" };
    if !Command::new("unshare").args([flags, "true"]).status().is_ok_and(|status| status.success()) {
        eprintln!("skipped: this host lets us make no network");
        return None;
    }
    let mut command = Command::new("unshare");
    command.args([flags, env!("CARGO_BIN_EXE_lspan")]).args(line.split_whitespace()).env_remove("LINKSPAN_IFNAME");
    Some(command.output().unwrap())
}

#[test]
fn status_shows_the_machine_where_no_interface_is_usable() {
    for line in ["status", ""] {
        let Some(output) = without_network(line) else { return };
        let (shown, said) = (text(&output.stdout), text(&output.stderr));
        assert_eq!(output.status.code(), Some(4), "{line}: {shown}{said}");
        assert!(said.contains("LS0505") && said.contains("lspan doctor"), "{said}");
        assert!(shown.contains("processors") && shown.contains("interface ") && shown.contains("lo "), "{shown}");
    }
    let Some(output) = without_network("status --json") else { return };
    let value: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(crate::schema::problems("status-1.json", &value), Vec::<String>::new());
    assert_eq!(value["devices"].as_array().map(Vec::len), Some(0));
    let Some(output) = without_network("perf lat -n 1 --path tcp") else { return };
    let said = text(&output.stderr);
    assert!(output.status.code() == Some(4) && said.contains("LS0505") && !said.contains("lspan="), "{said}");
}

#[test]
fn devmem_down_without_permission_says_so_and_with_nothing_to_undo_needs_none() {
    use std::os::unix::fs::PermissionsExt;
    let folder = std::env::temp_dir().join(format!("lspan-down-{}", std::process::id()));
    let down = || {
        // Root writes everywhere while it has this capability.
        let root = ["setpriv", "--inh-caps=-dac_override", "--bounding-set=-dac_override"];
        let before: &[&str] = if rustix::process::geteuid().is_root() { &root } else { &["env"] };
        let mut command = Command::new(before[0]);
        command.args(&before[1..]).arg(env!("CARGO_BIN_EXE_lspan"));
        command.args(["devmem", "down", "lo", "--folder"]).arg(&folder).output().unwrap()
    };
    let output = down();
    assert!(output.status.code() == Some(0) && text(&output.stdout).contains("nothing is left"), "{output:?}");
    assert!(!folder.exists());
    std::fs::create_dir(&folder).unwrap();
    std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o555)).unwrap();
    let output = down();
    std::fs::remove_dir(&folder).unwrap();
    assert!(output.status.code() == Some(5) && text(&output.stderr).contains("LS3202"), "{output:?}");
}

#[test]
fn status_is_degraded_where_no_other_host_can_be_reached() {
    let output = lspan("status", &[("LINKSPAN_IFNAME", "no-such-if")]);
    let said = format!("{}{}", text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(3), "{said}");
}

#[test]
fn status_says_which_setting_left_an_interface_out() {
    let output = lspan("status", &[("LINKSPAN_IFNAME", "=lo")]);
    let said = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0));
    assert!(said.lines().any(|line| line.starts_with("lo ") && line.ends_with("yes")), "{said}");
    assert!(said.contains("device 0: lo"), "{said}");
}

#[test]
fn env_lists_every_name() {
    let said = text(&lspan("env", &[("LINKSPAN_LOG", "off")]).stdout);
    for param in linkspan_fabric::params::ALL {
        assert!(said.contains(param.name) && said.contains(param.text), "{}", param.name);
    }
    assert!(said.lines().any(|line| line.starts_with("LINKSPAN_LOG ") && line.contains(" off ")));
    let json: serde_json::Value = serde_json::from_slice(&lspan("env --json", &[]).stdout).unwrap();
    assert_eq!(json["parameters"].as_array().unwrap().len(), linkspan_fabric::params::ALL.len());
}

#[test]
fn pages_and_completions_come_from_the_definitions() {
    let dir = std::env::temp_dir().join(format!("lspan-pages-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    for command in ["man", "completions"] {
        let output = lspan(&format!("{command} {}", dir.display()), &[]);
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    }
    let read = |name: &str| std::fs::read_to_string(dir.join(name)).unwrap_or_else(|e| panic!("{name}: {e}"));
    assert!(read("lspan.1").contains("Exit codes"));
    assert!(read("lspan-perf-bw.1").contains("json\\-stream"));
    for name in ["lspan.bash", "_lspan", "lspan.fish"] {
        assert!(read(name).contains("selftest"), "{name}");
    }
    std::fs::remove_dir_all(&dir).unwrap();
    assert!(text(&lspan("completions bash", &[]).stdout).contains("_lspan()"));
}

#[test]
fn a_key_file_that_others_may_read_is_refused_by_its_mode() {
    use std::os::unix::fs::PermissionsExt;
    let file = std::env::temp_dir().join(format!("lspan-key-{}", std::process::id()));
    let name = file.to_str().unwrap();
    for (mode, content, parts) in [
        (0o644, "00".repeat(32), &["LS0503", "644", "600"][..]),
        (0o620, "00".repeat(32), &["LS0503", "620", "600"]),
        (0o600, String::new(), &["LS0503"]),
        (0o600, "secret words that are no key".into(), &["LS0503"]),
    ] {
        std::fs::write(&file, &content).unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(mode)).unwrap();
        let output = lspan("perf lat", &[("LINKSPAN_PSK_FILE", name)]);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{mode:o}: {said}");
        assert!(said.contains(name) && parts.iter().all(|part| said.contains(part)), "{mode:o}: {said}");
        assert!(!said.contains("secret words") && !said.contains(&"00".repeat(32)), "the key is never shown: {said}");
        let _ = std::fs::remove_file(&file);
    }
}
