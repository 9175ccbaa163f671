//! `lspan run` and `lspan env --nccl`, with real processes and the built plugin.

use std::io::{BufRead, BufReader};
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

use crate::schema;

/// A folder with the plugin under NCCL's name, and one for statistics.
struct Place(PathBuf);

impl Place {
    fn new(name: &str) -> Place {
        let dir = std::env::temp_dir().join(format!("lspan-job-{}-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        std::fs::create_dir_all(&dir).unwrap();
        let built = std::env::current_exe().unwrap().with_file_name("liblinkspan_nccl.so");
        std::os::unix::fs::symlink(built, dir.join("libnccl-net-linkspan.so")).unwrap();
        Place(dir)
    }

    fn lspan(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_lspan"));
        for name in
            ["NCCL_NET", "NCCL_NET_PLUGIN", "NCCL_SOCKET_IFNAME", "LINKSPAN_STRICT", "LOCAL_RANK", "SLURM_LOCALID"]
        {
            command.env_remove(name);
        }
        command.args(args).env("LD_LIBRARY_PATH", &self.0).env("LINKSPAN_IFNAME", "=lo");
        command.env("LINKSPAN_STATS_DIR", self.0.join("stats")).env("XDG_CONFIG_HOME", self.0.join("config"));
        command
    }

    fn run(&self, args: &[&str]) -> Output {
        self.lspan(args).output().unwrap()
    }

    /// No folder of a run is left.
    fn is_tidy(&self) -> bool {
        std::fs::read_dir(self.0.join("stats")).unwrap().next().is_none()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn a_command_gets_what_nccl_needs_and_its_exit_code_comes_back() {
    let place = Place::new("code");
    let output = place.run(&["run", "--", "sh", "-c", "env; exit 7"]);
    let (out, said) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(7), "{said}");
    for line in ["NCCL_NET_PLUGIN=linkspan", "NCCL_NET=linkspan"] {
        assert!(out.lines().any(|have| have == line) && said.contains(line), "{line}: {out}{said}");
    }
    assert!(!out.contains("LINKSPAN_STRICT") && said.contains("processes of this host   shared memory"), "{said}");
    assert!(said.contains("no process loaded linkspan"), "{said}");
    assert!(place.is_tidy());
    let output = place.run(&["run", "--strict", "sh", "-c", "env"]);
    assert!(text(&output.stdout).contains("LINKSPAN_STRICT=1\n"));
    assert_eq!(output.status.code(), Some(0));
}

#[test]
fn the_signal_that_ends_a_command_ends_lspan_too_and_those_to_lspan_are_passed_on() {
    let place = Place::new("signal");
    assert_eq!(place.run(&["run", "--", "sh", "-c", "kill -9 $$"]).status.signal(), Some(9));
    assert_eq!(place.run(&["run", "--", "sh", "-c", "kill -TERM $$"]).status.signal(), Some(15));
    for (signal, code) in [("TERM", 21), ("INT", 22), ("USR1", 23), ("HUP", 24)] {
        let script = format!("trap 'exit {code}' {signal}; echo ready; while read line; do :; done");
        // A session of its own has no terminal whose keys would reach the command as well.
        let mut child = Command::new("setsid")
            .args(["-w", "env", "--default-signal"]) // under nohup a shell could not trap HUP
            .args([env!("CARGO_BIN_EXE_lspan"), "run", "--", "sh", "-c", &script])
            .env("LD_LIBRARY_PATH", &place.0)
            .env("LINKSPAN_STATS_DIR", place.0.join("stats"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        // wait() would close it, which ends the script.
        let _stdin = child.stdin.take();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
        let lspan = setsid_of(child.id());
        let sent = Command::new("kill").args([format!("-{signal}"), lspan.to_string()]).status().unwrap();
        assert!(sent.success());
        assert_eq!(child.wait().unwrap().code(), Some(code), "{signal}");
    }
    assert!(place.is_tidy());
}

#[test]
fn the_exit_code_comes_back_where_the_parent_ignores_sigchld() {
    let place = Place::new("sigchld");
    let lspan = place.lspan(&[]);
    let mut command = Command::new("env");
    command.args(["--ignore-signal=CHLD", env!("CARGO_BIN_EXE_lspan"), "run", "--", "sh", "-c", "exit 7"]);
    for (name, value) in lspan.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(7), "{}", text(&output.stderr));
}

/// setsid(1) becomes the program itself, or where it leads a group already has it as a child.
fn setsid_of(process: u32) -> u32 {
    let name = std::fs::read_to_string(format!("/proc/{process}/comm")).unwrap();
    if name.trim() == "lspan" { process } else { crate::signals::children(process)[0] }
}

#[test]
fn what_cannot_work_is_not_run() {
    let place = Place::new("refused");
    let mark = place.0.join("mark");
    let touch = ["run", "--", "touch", mark.to_str().unwrap()];
    for (name, value, part) in [
        ("NCCL_NET", "IB", "LS2804"),
        ("NCCL_NET_PLUGIN", "aws-ofi", "unset NCCL_NET_PLUGIN"),
        ("LD_LIBRARY_PATH", "/nowhere", "LS2802"),
        ("LINKSPAN_STRICT", "perhaps", "LS2301"),
    ] {
        // Where this machine has the plugin installed, an empty LD_LIBRARY_PATH is no fault.
        if name == "LD_LIBRARY_PATH"
            && text(&place.lspan(&["env", "--nccl", "--json"]).env(name, value).output().unwrap().stdout)
                .contains("\"plugin\": \"")
        {
            continue;
        }
        let output = place.lspan(&touch).env("NCCL_NET_PLUGIN", "linkspan").env(name, value).output().unwrap();
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(125), "{name}: {said}");
        assert!(said.contains(part) && said.contains("LS2031"), "{part}: {said}");
        assert!(!mark.exists(), "{name}: it was run");
    }
    assert_eq!(place.run(&touch).status.code(), Some(0));
    assert!(mark.exists());
    assert_eq!(place.run(&["run", "--", "/no/such/program"]).status.code(), Some(127));
    assert_eq!(place.run(&["run", "--", "/etc/passwd"]).status.code(), Some(126));
    assert_eq!(place.run(&["run"]).status.code(), Some(2));
}

#[test]
fn what_was_used_is_said_and_strict_tells_a_downgrade() {
    let place = Place::new("used");
    let output =
        place.run(&["run", "--strict", "--", env!("CARGO_BIN_EXE_lspan"), "perf", "bw", "--size", "64K", "-n", "20"]);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{said}");
    let row = said.lines().find(|line| line.contains("shm")).unwrap_or_else(|| panic!("{said}"));
    let cells: Vec<&str> = row.split_whitespace().collect();
    assert!(said.contains("used by 2 processes") && cells[4].parse::<u32>().unwrap() > 0, "{said}");
    assert!(!said.contains("downgrade"), "{said}");
    // Every byte is copied twice, for one side may not be read. Strict mode would not connect; these processes take it back, and it shows
    // all the same.
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let lspan = env!("CARGO_BIN_EXE_lspan");
    let twice = format!(
        "exec >/dev/null 2>&1; export LINKSPAN_STRICT=0; LINKSPAN_CMA=0 {lspan} perf serve --port {port} --once & \
         until {lspan} perf bw 127.0.0.1:{port} --size 64K -n 20; [ $? -eq 3 ]; do :; done; wait"
    );
    let output = place.run(&["run", "--strict", "--", "sh", "-c", &twice]);
    let said = text(&output.stderr);
    assert!(said.contains("downgrade(s) were counted") && said.contains("exit code 3 in place of 0"), "{said}");
    assert_eq!(output.status.code(), Some(3), "{said}");
    let output = place.run(&["run", "--", "sh", "-c", &twice]);
    assert_eq!(output.status.code(), Some(0), "without --strict the code is the command's");
    assert!(text(&output.stderr).contains("downgrade(s) were counted"));
    // The outer one sees what an inner one has counted.
    let output = place.run(&["run", "--strict", "--", lspan, "run", "--", "sh", "-c", &twice]);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{said}");
    assert!(said.matches("used by ").count() == 2 && !said.contains("no process loaded linkspan"), "{said}");
    let output = place.run(&["run", "--strict", "--", "sh", "-c", &format!("{twice}; exit 9")]);
    assert_eq!(output.status.code(), Some(9), "an exit code of the command's own is never replaced");
    assert!(place.is_tidy());
}

#[test]
fn a_program_of_the_system_that_hangs_keeps_no_job_from_starting() {
    use std::os::unix::fs::PermissionsExt;
    let place = Place::new("hangs");
    std::fs::write(place.0.join("ip"), "#!/bin/sh\nexec sleep 600\n").unwrap();
    std::fs::set_permissions(place.0.join("ip"), PermissionsExt::from_mode(0o755)).unwrap();
    let path = format!("{}:{}", place.0.display(), std::env::var("PATH").unwrap());
    let output = place.lspan(&["run", "--", "true"]).env("PATH", path).output().unwrap();
    let said = text(&output.stderr);
    assert!(said.contains("`ip` did not end within 5 s") && output.status.success(), "{said}");
}

#[test]
fn one_rank_of_a_host_speaks_for_all() {
    let place = Place::new("rank");
    for (rank, speaks) in [("0", true), ("1", false)] {
        let output = place.lspan(&["run", "true"]).env("SLURM_LOCALID", rank).output().unwrap();
        assert_eq!(text(&output.stderr).contains("NCCL_NET"), speaks);
    }
}

#[test]
fn without_statistics_strict_is_refused_and_the_rest_says_so() {
    let place = Place::new("off");
    let off = |args: &[&str]| place.lspan(args).env("LINKSPAN_STATS_DIR", "off").output().unwrap();
    assert_eq!(off(&["run", "--strict", "true"]).status.code(), Some(125));
    let output = off(&["run", "true"]);
    assert!(output.status.success() && text(&output.stderr).contains("will not be known"));
}

#[test]
fn the_lines_for_a_shell_set_what_run_sets() {
    let place = Place::new("shell");
    let lspan = env!("CARGO_BIN_EXE_lspan");
    let script = format!("eval \"$({lspan} env --nccl)\"; echo $NCCL_NET_PLUGIN $NCCL_NET");
    let mut shell = Command::new("sh");
    shell.args(["-c", &script]).env("LD_LIBRARY_PATH", &place.0).env_remove("NCCL_NET").env_remove("NCCL_NET_PLUGIN");
    assert_eq!(text(&shell.output().unwrap().stdout), "linkspan linkspan\n");
    let output = place.run(&["env", "--nccl", "--json"]);
    let value: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(schema::problems("nccl-1.json", &value), Vec::<String>::new());
    assert!(value["plugin"].as_str().unwrap().ends_with("libnccl-net-linkspan.so"));
    for target in ["toolbox", "podman", "docker", "k8s", "sbatch"] {
        let output = place.run(&["env", "--nccl", "--for", target]);
        assert!(output.status.success() && !output.stdout.is_empty(), "{target}");
    }
    assert_eq!(place.run(&["env", "--for", "podman"]).status.code(), Some(2));
}
