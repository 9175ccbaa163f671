//! Everything that wants a GPU, in one command for a machine that has one: what the drivers' tests do on real devices,
//! device memory through every path, the unpack, the plugin with device memory, the C and Python interfaces, real NCCL. Each part
//! that cannot run says why in a line, and the whole is good if nothing failed.

use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::run::{self, Outcome};

/// Longest time of a part: most take seconds.
const PATIENCE: Duration = Duration::from_secs(600);

/// What is done of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Half {
    /// Everything.
    Both,
    /// All programs are built into `target/gpu`, to be taken to a machine without Rust.
    Build,
    /// What lies there is run.
    Run,
}

/// Builds and runs everything; `record`: a file for what was measured.
pub(crate) fn run(root: &Path, record: Option<&str>, half: Half) -> Outcome {
    // Links to what lies there are made elsewhere, too.
    let place = std::path::absolute(run::target_dir(root)).unwrap_or_else(|_| run::target_dir(root)).join("gpu");
    if half != Half::Run
        && let Err(why) = build(root, &place)
    {
        return Outcome::Failed(why);
    }
    if half == Half::Build {
        let tar = format!("tar -cJf gpu.tar.xz {} tests/gpu bindings/python/tests", place.display());
        println!("to take along: {tar}; there, in a folder of the same path: {}/xtask gpu --no-build", place.display());
        return Outcome::Done;
    }
    let mut parts = Parts { root, place, failed: Vec::new(), lines: Vec::new() };
    if let Some(missing) = PROGRAMS.into_iter().map(|(_, name)| parts.program(name)).find(|file| !file.is_file()) {
        let way = "cargo xtask gpu --build on a machine with Rust makes it";
        return Outcome::Failed(format!("--no-build, and there is no {}: {way}", missing.display()));
    }
    parts.machine();
    parts.rust("drivers", &["cuda-driver", "hip-driver"], "this_machine");
    parts.rust("library", &["library"], "device::");
    let found: Vec<&str> = ["cuda:0", "hip:0"].into_iter().filter(|memory| parts.device(memory)).collect();
    if found.is_empty() {
        parts.say("skipped: C and Python: there is no device, see above".to_owned());
    } else {
        parts.c(&found);
        parts.python(&found);
    }
    let mut cards = Command::new(parts.program("lspan"));
    parts.step("network cards", cards.args(["devmem", "probe"]));
    parts.beside_kernel();
    parts.nccl();
    if let Some(file) = record
        && let Err(error) = fs::write(root.join(file), parts.lines.join("\n") + "\n")
    {
        parts.failed.push(format!("{file}: {error}"));
    }
    if parts.failed.is_empty() { Outcome::Done } else { Outcome::Failed(parts.failed.join("; ")) }
}

/// What cargo builds of it, below the target folder, and its name here.
const PROGRAMS: [(&str, &str); 4] = [
    ("release/lspan", "lspan"),
    ("release/liblinkspan_nccl.so", "liblinkspan_nccl.so"),
    ("debug/xtask", "xtask"),
    ("release/examples/unpack_bench", "unpack_bench"),
];

/// Tests that look for a device by themselves: package, test program, name here.
const TESTS: [(&str, &str, &str); 3] = [
    ("linkspan-cuda", "driver", "cuda-driver"),
    ("linkspan-hip", "driver", "hip-driver"),
    ("linkspan", "integration", "library"),
];

/// Builds all that is run into `place`: what a machine here cannot build for want of a compiler says so in a line.
fn build(root: &Path, place: &Path) -> Result<(), String> {
    let put = |from: &Path, name: &str| super::lean(place, from, name).map(drop);
    super::compile(root)?;
    let mut cargo = run::cargo(root);
    run::must(cargo.args(["build", "--release", "-p", "linkspan-fabric", "--example", "unpack_bench"]))?;
    for (file, name) in PROGRAMS {
        put(&run::target_dir(root).join(file), name)?;
    }
    for (package, test, name) in TESTS {
        let mut cargo = run::cargo(root);
        cargo.args(["test", "--no-run", "--message-format=json", "-p", package, "--test", test]);
        let text = run::output(&mut cargo)?;
        let messages = text.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
        let programs: Vec<String> = messages.filter_map(|m| m["executable"].as_str().map(str::to_owned)).collect();
        let program = programs.last().ok_or_else(|| format!("cargo names no program of {package}'s test {test}"))?;
        put(Path::new(program), name)?;
    }
    if run::which("cc").is_none() || run::which("c++").is_none() {
        println!("skipped: C, C++, the plugin with device memory: no C and C++ compiler (Debian: g++)");
    } else {
        put(&super::compile_plugin_host(root)?, "plugin-host")?;
        c(root, place)?;
    }
    match super::python::wheel_for(root, place) {
        Err(Outcome::Failed(why)) => return Err(why),
        Err(Outcome::Skipped(why)) => println!("skipped: Python: {why}"),
        _ => {}
    }
    Ok(())
}

/// The cases of the C and C++ interface, with the library as it is installed.
fn c(root: &Path, place: &Path) -> Result<(), String> {
    let installed = crate::capi::install::install(root, &place.join("prefix"))?;
    let (tests, lib) = (root.join("bindings/c/tests"), installed.prefix.join("lib"));
    for (compiler, standard, source, name) in
        [("cc", "-std=c11", "c/device.c", "device-c"), ("c++", "-std=c++17", "cpp/device.cpp", "device-cpp")]
    {
        let mut compile = Command::new(compiler);
        compile.args([standard, "-O1", "-g", "-I"]).arg(installed.prefix.join("include")).arg(tests.join(source));
        compile.arg("-L").arg(&lib).args(["-llinkspan", "-ldl", "-lpthread", "-o"]).arg(place.join(name));
        run::must(&mut compile)?;
    }
    Ok(())
}

struct Parts<'a> {
    root: &'a Path,
    /// Where the programs lie.
    place: PathBuf,
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
        let plain: String = name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
        let file = |kind: &str| self.place.join(format!("{plain}.{kind}"));
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

    fn program(&self, name: &str) -> PathBuf {
        self.place.join(name)
    }

    /// Tests in Rust, those with these words in their names.
    fn rust(&mut self, what: &str, programs: &[&str], words: &str) {
        for name in programs {
            let mut tests = Command::new(self.program(name));
            self.step(what, tests.args(["--nocapture", words]));
        }
    }

    /// What one device can: messages over each path, checked on the device; the unpack; the plugin. False: there is no such
    /// device.
    fn device(&mut self, memory: &str) -> bool {
        for (test, path) in [("bw", "tcp"), ("lat", "tcp"), ("bw", "shm"), ("lat", "shm")] {
            let mut perf = Command::new(self.program("lspan"));
            perf.args(["perf", test, "--mem", memory, "--path", path, "--size", "8,4K,64K,1M,16M"]);
            if self.step(&format!("{memory} {test} over {path}"), &mut perf) == Part::Skipped {
                return false;
            }
        }
        let mut unpack = Command::new(self.program("unpack_bench"));
        self.step(&format!("{memory} unpack"), unpack.arg(memory));
        // The program that plays NCCL's part uses CUDA.
        if memory.starts_with("cuda") {
            let (host, plugin) = (self.program("plugin-host"), self.program("liblinkspan_nccl.so"));
            if host.is_file() {
                let mut command = Command::new(host);
                command.arg("--plugin").arg(plugin).args(["--mem", "cuda", "--quick", "--version", "all"]);
                // A real device may export no dma-buf; the stand-in must.
                command.env("LINKSPAN_GPU", "staged").env("PLUGIN_HOST_REAL", "1");
                self.step("plugin with device memory", &mut command);
            } else {
                self.say("skipped: plugin with device memory: it was built without a C compiler".to_owned());
            }
        }
        true
    }

    /// The cases of the C and C++ interface, on the devices named.
    fn c(&mut self, devices: &[&str]) {
        // The program in C++ uses CUDA alone.
        let cpp = devices.contains(&"cuda:0").then_some(("C++", "device-cpp", &[][..]));
        for (name, program, names) in [("C", "device-c", devices)].into_iter().chain(cpp) {
            let program = self.program(program);
            if !program.is_file() {
                return self.say("skipped: C: it was built without a C and C++ compiler".to_owned());
            }
            let lib = self.place.join("prefix/lib");
            self.step(name, Command::new(&program).args(names).env("LD_LIBRARY_PATH", before(&lib)));
        }
    }

    /// The cases of the Python package, on the devices named, with this machine's Python.
    fn python(&mut self, devices: &[&str]) {
        let Some(wheel) = super::python::built(&self.place) else {
            return self.say("skipped: Python: it was built without Python".to_owned());
        };
        let (Some(python), site) = (run::which("python3"), self.place.join("site")) else {
            return self.say("skipped: Python: no python3".to_owned());
        };
        let mut pip = Command::new(&python);
        pip.args(["-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--upgrade", "--target"]).arg(&site);
        if let Err(why) = run::output(pip.arg(wheel)) {
            return self.say(format!("skipped: Python: {why}"));
        }
        if run::output(Command::new(&python).args(["-c", "import pytest, pytest_timeout"])).is_err() {
            return self.say("skipped: Python: no pytest with pytest-timeout".to_owned());
        }
        let mut pytest = Command::new(python);
        pytest.args(["-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider", "bindings/python/tests/device_cases.py"]);
        pytest.env("PYTHONDONTWRITEBYTECODE", "1").env("REAL_GPUS", devices.join(" ")).env("PYTHONPATH", site);
        self.step("Python", &mut pytest);
    }

    /// What of the driver goes on while a kernel runs that waits.
    fn beside_kernel(&mut self) {
        let Some(nvcc) = run::which("nvcc") else {
            return self.say("skipped: calls beside a kernel: no nvcc".to_owned());
        };
        let program = self.program("beside_kernel");
        let mut compile = Command::new(nvcc);
        compile.args(["-O2", "-std=c++17", "tests/gpu/beside_kernel.cu", "-lcuda", "-o"]).arg(&program);
        match run::output(compile.current_dir(self.root)) {
            Ok(_) => drop(self.step("calls beside a kernel", &mut Command::new(&program))),
            Err(why) => {
                self.say(format!("FAILED: calls beside a kernel: {why}"));
                self.failed.push(why);
            }
        }
    }

    /// Real NCCL over shared memory and TCP.
    fn nccl(&mut self) {
        let Some(python) = run::which("python3") else {
            return self.say("skipped: NCCL: no python3".to_owned());
        };
        // Under the name that NCCL of every version looks for.
        let (dir, plugin) = (self.place.join("nccl"), self.program("liblinkspan_nccl.so"));
        let _ = fs::remove_dir_all(&dir);
        let made = fs::create_dir_all(&dir)
            .and_then(|()| symlink(&plugin, dir.join("libnccl-net-linkspan.so")))
            .and_then(|()| symlink(&plugin, dir.join("librccl-net-linkspan.so")));
        if let Err(e) = made {
            self.failed.push(format!("{}: {e}", dir.display()));
            return;
        }
        for path in ["shm", "tcp"] {
            let mut ranks = Command::new(&python);
            ranks
                .arg("tests/gpu/two_ranks.py")
                .env("LINKSPAN_PATH", path)
                .env("LINKSPAN_GPU", "auto")
                .env("PYTHONUNBUFFERED", "1");
            ranks.env("LD_LIBRARY_PATH", before(&dir)).env("NCCL_NET_PLUGIN", "linkspan");
            self.step(&format!("NCCL over {path}"), &mut ranks);
        }
    }
}

/// A search path for libraries that begins with `dir`.
fn before(dir: &Path) -> String {
    let more = std::env::var("LD_LIBRARY_PATH").map(|more| format!(":{more}")).unwrap_or_default();
    format!("{}{more}", dir.display())
}
