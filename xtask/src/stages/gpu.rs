//! Everything that wants a GPU, in one command for a machine that has one: what the drivers' tests do on real devices,
//! device memory through every path, the unpack, the plugin with device memory, real NCCL. Each part that cannot run says why
//! in a line, and the whole is good if nothing failed.

use std::path::Path;
use std::process::Command;

use crate::run::{self, Outcome};

/// Runs everything; `record`: a file for what was measured.
pub(crate) fn run(root: &Path, record: Option<&str>) -> Outcome {
    let mut build = run::cargo(root);
    build.args(["build", "--release", "-p", "lspan", "-p", "linkspan-nccl", "-p", "linkspan-fabric", "--examples"]);
    build.args(["--bins", "--lib"]);
    if let Err(why) = run::must(&mut build) {
        return Outcome::Failed(why);
    }
    let mut parts = Parts { root, failed: Vec::new(), lines: Vec::new() };
    let mut drivers = run::cargo(root);
    drivers.args(["test", "-p", "linkspan-cuda", "-p", "linkspan-hip", "--", "--nocapture", "this_machine"]);
    parts.step("drivers", &mut drivers);
    for memory in ["cuda:0", "hip:0"] {
        parts.device(memory);
    }
    parts.nccl();
    if let Some(file) = record
        && let Err(error) = std::fs::write(root.join(file), parts.lines.join("\n") + "\n")
    {
        parts.failed.push(format!("{file}: {error}"));
    }
    if parts.failed.is_empty() { Outcome::Done } else { Outcome::Failed(parts.failed.join("; ")) }
}

struct Parts<'a> {
    root: &'a Path,
    failed: Vec<String>,
    /// What is worth keeping of what was printed.
    lines: Vec<String>,
}

/// Exit code of `lspan` where there is no such device.
const NO_DEVICE: i32 = 4;

impl Parts<'_> {
    fn say(&mut self, line: String) {
        println!("{line}");
        self.lines.push(line);
    }

    /// A part with its output; false where it was skipped or failed.
    fn step(&mut self, name: &str, command: &mut Command) -> bool {
        let out = match command.current_dir(self.root).output() {
            Ok(out) => out,
            Err(error) => {
                self.failed.push(format!("{name} did not start: {error}"));
                return false;
            }
        };
        let text = String::from_utf8_lossy(&out.stdout).into_owned();
        let error = String::from_utf8_lossy(&out.stderr).into_owned();
        match out.status.code() {
            Some(0) => {
                let missing = text.lines().chain(error.lines()).filter(|l| l.starts_with("cannot be tested here"));
                let missing: Vec<String> = missing.map(|l| format!("skipped: {name}: {l}")).collect();
                missing.into_iter().for_each(|line| self.say(line));
                let keep = |l: &&str| !l.is_empty() && !l.starts_with("running") && !l.starts_with("cannot");
                let kept: Vec<String> = text.lines().filter(keep).map(str::to_owned).collect();
                kept.into_iter().for_each(|line| self.say(format!("{name}: {line}")));
                true
            }
            Some(NO_DEVICE) => {
                self.say(format!("skipped: {name}: {}", error.trim()));
                false
            }
            Some(code) if code == i32::from(run::SKIP) => {
                let why = text.lines().find_map(|l| l.strip_prefix("skipped: ")).unwrap_or("it says no reason");
                self.say(format!("skipped: {name}: {why}"));
                false
            }
            _ => {
                eprint!("{text}{error}");
                self.failed.push(format!("{name} ended with {}", out.status));
                false
            }
        }
    }

    fn release(&self, file: &str) -> std::path::PathBuf {
        run::target_dir(self.root).join("release").join(file)
    }

    /// What one device can: messages over each path, checked on the device; the unpack; the plugin.
    fn device(&mut self, memory: &str) {
        let mut there = true;
        for (test, path) in [("bw", "tcp"), ("lat", "tcp"), ("bw", "shm"), ("lat", "shm")] {
            let mut perf = Command::new(self.release("lspan"));
            perf.args(["perf", test, "--mem", memory, "--path", path, "--size", "8,4K,64K,1M,16M"]);
            there = there && self.step(&format!("{memory} {test} over {path}"), &mut perf);
        }
        if !there {
            return;
        }
        let mut unpack = Command::new(self.release("examples/unpack_bench"));
        self.step(&format!("{memory} unpack"), unpack.arg(memory));
        // The program that plays NCCL's part speaks CUDA.
        if memory.starts_with("cuda") {
            match super::compile_plugin_host(self.root) {
                Ok(host) => {
                    let plugin = self.release("liblinkspan_nccl.so");
                    let mut command = Command::new(host);
                    command.arg("--plugin").arg(plugin).args(["--mem", "cuda", "--quick", "--version", "all"]);
                    self.step("plugin with device memory", command.env("LINKSPAN_GPU", "staged"));
                }
                Err(why) => self.say(format!("skipped: plugin with device memory: {why}")),
            }
        }
    }

    /// Real NCCL, once as it comes and once with our staging.
    fn nccl(&mut self) {
        let Some(python) = run::which("python3") else {
            return self.say("skipped: NCCL: no python3".to_owned());
        };
        for gpu in ["auto", "staged"] {
            let mut ranks = Command::new(&python);
            ranks.arg("tests/gpu/two_ranks.py").env("LINKSPAN_GPU", gpu);
            ranks.env("NCCL_NET_PLUGIN", self.release("liblinkspan_nccl.so"));
            self.step(&format!("NCCL, LINKSPAN_GPU={gpu}"), &mut ranks);
        }
    }
}
