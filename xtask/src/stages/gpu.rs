//! Everything that wants a GPU, in one command for a machine that has one: what the drivers' tests do on real devices,
//! device memory through every path, the unpack, the plugin with device memory, the C and Python interfaces, real NCCL. Each part
//! that cannot run says why in a line, and the whole is good if nothing failed.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::run::{self, Outcome};

/// Longest time of a part: most take seconds, a build of tests some minutes.
const PATIENCE: Duration = Duration::from_secs(600);

/// Runs everything; `record`: a file for what was measured. Without `build` what was built elsewhere is used: for machines without
/// a registry, or without Rust.
pub(crate) fn run(root: &Path, record: Option<&str>, build: bool) -> Outcome {
    let mut parts = Parts { root, failed: Vec::new(), lines: Vec::new() };
    if build {
        let mut cargo = run::cargo(root);
        cargo.args(["build", "--release", "-p", "lspan", "-p", "linkspan-nccl", "-p", "linkspan-fabric"]);
        if let Err(why) = run::must(cargo.args(["--examples", "--bins", "--lib"])) {
            let way = "without a registry: build on another machine, bring target/ along and say --no-build";
            return Outcome::Failed(format!("{why} ({way})"));
        }
    } else if let Some(missing) = ["lspan", "liblinkspan_nccl.so", "examples/unpack_bench"]
        .into_iter()
        .map(|file| parts.release(file))
        .find(|file| !file.is_file())
    {
        let way = "cargo build --release -p lspan -p linkspan-nccl -p linkspan-fabric --examples --bins --lib";
        return Outcome::Failed(format!(
            "--no-build, and there is no {}: {way}, on another machine",
            missing.display()
        ));
    }
    parts.machine();
    if build {
        let mut drivers = run::cargo(root);
        drivers.args(["test", "-p", "linkspan-cuda", "-p", "linkspan-hip", "--", "--nocapture", "this_machine"]);
        parts.step("drivers", &mut drivers);
        let mut library = run::cargo(root);
        library.args(["test", "--release", "-p", "linkspan", "--test", "integration", "--", "--nocapture", "device::"]);
        parts.step("library", &mut library);
    } else {
        parts.say("skipped: drivers, library: their tests are built by cargo (--no-build)".to_owned());
    }
    let found: Vec<&str> = ["cuda:0", "hip:0"].into_iter().filter(|memory| parts.device(memory)).collect();
    match (found.is_empty(), build) {
        (true, _) => parts.say("skipped: C and Python: there is no device, see above".to_owned()),
        (false, false) => parts.say("skipped: C and Python: both are built by cargo (--no-build)".to_owned()),
        (false, true) => {
            parts.c(&found);
            parts.python(&found);
        }
    }
    let mut cards = Command::new(parts.release("lspan"));
    parts.step("network cards", cards.args(["devmem", "probe"]));
    parts.nccl();
    if let Some(file) = record
        && let Err(error) = fs::write(root.join(file), parts.lines.join("\n") + "\n")
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

/// What a part came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Done,
    Skipped,
    Failed,
}

/// Exit code of `lspan` where there is no such device, or no peer; and the errors that say that it was the device.
const NO_DEVICE: i32 = 4;
const WHICH_DEVICE: [&str; 2] = ["LS1301", "LS1304"];

impl Parts<'_> {
    fn say(&mut self, line: String) {
        println!("{line}");
        self.lines.push(line);
    }

    /// What the record is of.
    fn machine(&mut self) {
        let told = |program: &str, args: &[&str]| {
            let out = run::output(Command::new(program).args(args).current_dir(self.root).stderr(Stdio::null()));
            out.ok().map(|text| text.trim().replace('\n', "; ")).filter(|text| !text.is_empty())
        };
        let commit = told("git", &["describe", "--always", "--dirty"]);
        let gpus = told("nvidia-smi", &["--query-gpu=name,driver_version,pcie.link.gen.max", "--format=csv,noheader"]);
        let kernel = told("uname", &["-srm"]);
        for (what, text) in [("commit", commit), ("kernel", kernel), ("GPUs", gpus)] {
            self.say(format!("{what}: {}", text.unwrap_or_else(|| "unknown".to_owned())));
        }
    }

    /// A part with its output.
    fn step(&mut self, name: &str, command: &mut Command) -> Part {
        let (code, text, error) = match self.finish(name, command.current_dir(self.root)) {
            Ok(ended) => ended,
            Err(why) => {
                self.say(format!("FAILED: {name}: {why}"));
                self.failed.push(format!("{name}: {why}"));
                return Part::Failed;
            }
        };
        match code {
            Some(0) => {
                let missing = text.lines().chain(error.lines()).filter(|l| l.starts_with("cannot be tested here"));
                let missing: Vec<String> = missing.map(|l| format!("skipped: {name}: {l}")).collect();
                missing.into_iter().for_each(|line| self.say(line));
                let keep = |l: &&str| !l.is_empty() && !l.starts_with("running") && !l.starts_with("cannot");
                let kept: Vec<String> = text.lines().filter(keep).map(str::to_owned).collect();
                kept.into_iter().for_each(|line| self.say(format!("{name}: {line}")));
                Part::Done
            }
            Some(NO_DEVICE) if WHICH_DEVICE.iter().any(|code| error.contains(code)) => {
                self.say(format!("skipped: {name}: {}", error.trim()));
                Part::Skipped
            }
            // No card that can is an answer too.
            Some(NO_DEVICE) if name == "network cards" => {
                text.lines().map(|l| format!("{name}: {l}")).collect::<Vec<_>>().into_iter().for_each(|l| self.say(l));
                Part::Skipped
            }
            Some(code) if code == i32::from(run::SKIP) => {
                let why = text.lines().find_map(|l| l.strip_prefix("skipped: ")).unwrap_or("it says no reason");
                self.say(format!("skipped: {name}: {why}"));
                Part::Skipped
            }
            code => {
                eprint!("{text}{error}");
                let ended = code.map_or("was killed by a signal".to_owned(), |code| format!("ended with {code}"));
                let last = error.lines().chain(text.lines()).rfind(|l| !l.trim().is_empty()).unwrap_or_default();
                self.say(format!("FAILED: {name} {ended}: {last}"));
                self.failed.push(format!("{name} {ended}"));
                Part::Failed
            }
        }
    }

    /// Exit code, output and errors of a command that is not waited for without end.
    fn finish(&self, name: &str, command: &mut Command) -> Result<(Option<i32>, String, String), String> {
        let dir = run::target_dir(self.root).join("gpu");
        fs::create_dir_all(&dir).map_err(|e| format!("{}: {e}", dir.display()))?;
        let plain: String = name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
        let file = |kind: &str| dir.join(format!("{plain}.{kind}"));
        let make = |path: &Path| File::create(path).map_err(|e| format!("{}: {e}", path.display()));
        let (out, err) = (file("out"), file("err"));
        command.stdin(Stdio::null()).stdout(make(&out)?).stderr(make(&err)?);
        let program = command.get_program().to_string_lossy().into_owned();
        let mut child = command.spawn().map_err(|e| format!("{program} does not start: {e}"))?;
        let until = Instant::now() + PATIENCE;
        let status = loop {
            match child.try_wait().map_err(|e| e.to_string())? {
                Some(status) => break status,
                None if Instant::now() < until => std::thread::sleep(Duration::from_millis(50)),
                None => {
                    let _ = child.kill();
                    let _ = child.wait();
                    let said = fs::read_to_string(&err).unwrap_or_default();
                    return Err(format!("not done after {} s; it said: {}", PATIENCE.as_secs(), said.trim()));
                }
            }
        };
        let read = |path: &Path| String::from_utf8_lossy(&fs::read(path).unwrap_or_default()).into_owned();
        Ok((status.code(), read(&out), read(&err)))
    }

    fn release(&self, file: &str) -> PathBuf {
        run::target_dir(self.root).join("release").join(file)
    }

    /// What one device can: messages over each path, checked on the device; the unpack; the plugin. False: there is no such
    /// device.
    fn device(&mut self, memory: &str) -> bool {
        for (test, path) in [("bw", "tcp"), ("lat", "tcp"), ("bw", "shm"), ("lat", "shm")] {
            let mut perf = Command::new(self.release("lspan"));
            perf.args(["perf", test, "--mem", memory, "--path", path, "--size", "8,4K,64K,1M,16M"]);
            if self.step(&format!("{memory} {test} over {path}"), &mut perf) == Part::Skipped {
                return false;
            }
        }
        let mut unpack = Command::new(self.release("examples/unpack_bench"));
        self.step(&format!("{memory} unpack"), unpack.arg(memory));
        // The program that plays NCCL's part uses CUDA.
        if memory.starts_with("cuda") {
            if run::which("cc").is_none() {
                self.say("skipped: plugin with device memory: no C compiler (Debian: gcc libc6-dev)".to_owned());
                return true;
            }
            match super::compile_plugin_host(self.root) {
                Ok(host) => {
                    let plugin = self.release("liblinkspan_nccl.so");
                    let mut command = Command::new(host);
                    command.arg("--plugin").arg(plugin).args(["--mem", "cuda", "--quick", "--version", "all"]);
                    // A real device may export no dma-buf; the stand-in must.
                    command.env("LINKSPAN_GPU", "staged").env("PLUGIN_HOST_REAL", "1");
                    self.step("plugin with device memory", &mut command);
                }
                Err(why) => self.broken("plugin with device memory", why),
            }
        }
        true
    }

    /// What could not even be begun.
    fn broken(&mut self, name: &str, why: String) {
        self.say(format!("FAILED: {name}: {why}"));
        self.failed.push(why);
    }

    /// The cases of the C and C++ interface, with the library as it is installed, on the devices named.
    fn c(&mut self, devices: &[&str]) {
        for (compiler, package) in [("cc", "gcc libc6-dev"), ("c++", "g++")] {
            if run::which(compiler).is_none() {
                return self.say(format!("skipped: C: no {compiler} (Debian: {package})"));
            }
        }
        let place = run::target_dir(self.root).join("gpu");
        let installed = match crate::capi::install::install(self.root, &place.join("prefix")) {
            Ok(installed) => installed,
            Err(why) => return self.broken("C", why),
        };
        let tests = self.root.join("bindings/c/tests");
        let mut cases = vec![("C", "cc", "-std=c11", tests.join("c/device.c"), devices)];
        // That program uses CUDA alone.
        if devices.contains(&"cuda:0") {
            cases.push(("C++", "c++", "-std=c++17", tests.join("cpp/device.cpp"), &[]));
        }
        let lib = installed.prefix.join("lib");
        for (name, compiler, standard, source, names) in cases {
            let program = place.join(source.file_name().unwrap_or_default()).with_extension(compiler);
            let mut compile = Command::new(compiler);
            compile.args([standard, "-O1", "-g", "-I"]).arg(installed.prefix.join("include")).arg(source);
            compile.arg("-L").arg(&lib).args(["-llinkspan", "-ldl", "-lpthread", "-o"]).arg(&program);
            if let Err(why) = run::must(&mut compile) {
                self.broken(name, why);
                continue;
            }
            self.step(name, Command::new(&program).args(names).env("LD_LIBRARY_PATH", before(&lib)));
        }
    }

    /// The cases of the Python package, on the devices named.
    fn python(&mut self, devices: &[&str]) {
        let bin = match super::python::installed(self.root) {
            Ok(bin) => bin,
            Err(Outcome::Skipped(why)) => return self.say(format!("skipped: Python: {why}")),
            Err(Outcome::Failed(why)) => return self.broken("Python", why),
            Err(Outcome::Done) => return,
        };
        let mut pytest = Command::new(bin.join("python"));
        pytest.args(["-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider", "bindings/python/tests/device_cases.py"]);
        pytest.env("PYTHONDONTWRITEBYTECODE", "1").env("LINKSPAN_REAL_GPUS", devices.join(" "));
        self.step("Python", &mut pytest);
    }

    /// Real NCCL, once as it comes and once with our staging.
    fn nccl(&mut self) {
        let Some(python) = run::which("python3") else {
            return self.say("skipped: NCCL: no python3".to_owned());
        };
        // Under the name that NCCL of every version looks for.
        let dir = run::target_dir(self.root).join("gpu").join("nccl");
        let _ = fs::remove_dir_all(&dir);
        let plugin = self.release("liblinkspan_nccl.so");
        let made = fs::create_dir_all(&dir)
            .and_then(|()| std::os::unix::fs::symlink(&plugin, dir.join("libnccl-net-linkspan.so")))
            .and_then(|()| std::os::unix::fs::symlink(&plugin, dir.join("librccl-net-linkspan.so")));
        if let Err(e) = made {
            self.failed.push(format!("{}: {e}", dir.display()));
            return;
        }
        for gpu in ["auto", "staged"] {
            let mut ranks = Command::new(&python);
            ranks.arg("tests/gpu/two_ranks.py").env("LINKSPAN_GPU", gpu).env("PYTHONUNBUFFERED", "1");
            ranks.env("LD_LIBRARY_PATH", before(&dir)).env("NCCL_NET_PLUGIN", "linkspan");
            self.step(&format!("NCCL, LINKSPAN_GPU={gpu}"), &mut ranks);
        }
    }
}

/// A search path for libraries that begins with `dir`.
fn before(dir: &Path) -> String {
    let more = std::env::var("LD_LIBRARY_PATH").map(|more| format!(":{more}")).unwrap_or_default();
    format!("{}{more}", dir.display())
}
