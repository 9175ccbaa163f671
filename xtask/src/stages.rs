//! The test stages that plain `cargo test` cannot be: each says what it did, or why it cannot run here.

mod desktop;
pub(crate) mod fuzzing;
mod gpu;
mod lab;
mod memory;
mod prometheus;
pub(crate) mod python;
pub(crate) mod toolchain;
pub(crate) mod unpack;

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::dist;
use crate::machine::Machine;
use crate::run::{self, Outcome};
use crate::tree;

pub(crate) use desktop::run as desktop;
pub(crate) use fuzzing::run as fuzz;
pub(crate) use gpu::{Half, run as gpu};
pub(crate) use lab::lab;
pub(crate) use memory::{asan, miri};
pub(crate) use prometheus::run as prometheus;
pub(crate) use python::{run as python, vllm};

/// Crates whose unit, layout and wire tests run for aarch64.
const AARCH64_TESTED: [&str; 4] = ["linkspan-proto", "linkspan-transport", "linkspan-plugin", "linkspan-shmring"];

/// Programs that are built for it.
const AARCH64_BUILT: [&str; 2] = ["linkspan-nccl", "lspan"];

/// Tests that qemu-user cannot run, and why: whatever else fails there is a failure.
const NOT_UNDER_QEMU: [(&str, &str); 7] = [
    ("cma::tests::", "qemu-user has no process_vm_readv and process_vm_writev (ENOSYS)"),
    ("path::tests::", "connections of the fabric, without layouts"),
    ("a_table_with_nothing_behind_it", "it loads a library that cargo builds with all targets only"),
    ("conn::log::tests::bodies_survive", RANDOM),
    ("conn::tests::hostile::no_peer_can_do_harm", RANDOM),
    ("conn::tests::model::messages_meet_receives_in_order", RANDOM),
    ("login::tests::hostile::one_flipped_bit", RANDOM),
];

/// Why the longest tests of the state machines stay with the native run.
const RANDOM: &str = "random stories of a state machine without `unsafe` or layouts: half a minute each when emulated";

/// A stage in which every step must succeed.
fn all(steps: impl IntoIterator<Item = Result<(), String>>) -> Outcome {
    let failed: Vec<String> = steps.into_iter().filter_map(Result::err).collect();
    if failed.is_empty() { Outcome::Done } else { Outcome::Failed(failed.join("; ")) }
}

/// Plays NCCL's part, in C, against the plugin (built first, so that a stale one is never tested).
pub(crate) fn plugin_host(root: &Path, args: &[&str]) -> Outcome {
    if run::which("cc").is_none() {
        return Outcome::Skipped("no C compiler (Debian: gcc libc6-dev)".to_owned());
    }
    let script = root.join("tests/plugin-host/run.sh");
    if !script.is_file() {
        return Outcome::Failed("tests/plugin-host/run.sh is not in the tree".to_owned());
    }
    let built = Machine::Native.built(root);
    all([compile(root).and_then(|beside| {
        let mut host = Command::new("bash");
        host.arg(script).arg(built.join("liblinkspan_nccl.so")).args(args).current_dir(root);
        host.env("SIM_PLUGIN", beside.join("liblinkspan_sim_plugin.so")).env("LSPAN", built.join("lspan"));
        run::must(&mut host)
    })])
}

/// Runs a transport that nothing in this workspace knows: the suite of all transports, the library and the plugin over it. Its stack
/// from `isend` to the rail is counted in the debug build, by the transport.
pub(crate) fn foreign(root: &Path) -> Outcome {
    if run::which("cc").is_none() {
        return Outcome::Skipped("no C compiler (Debian: gcc libc6-dev)".to_owned());
    }
    let (folder, target) = (root.join("tests/foreign"), run::target_dir(root));
    let cargo = |word: &str| {
        let mut cargo = run::cargo(&folder);
        run::must(cargo.args([word, "--locked"]).env("CARGO_TARGET_DIR", &target))
    };
    let plays = || {
        let name = unknown_name(root)?;
        let mut host = Command::new(compile_plugin_host(root)?);
        host.arg("--plugin").arg(target.join("debug/libforeign.so")).args(["--version", "12", "--test", "allreduce"]);
        host.arg("--quick").env("LINKSPAN_PATH", &name).env("LINKSPAN_STATS_DIR", "off");
        let out = host.output().map_err(|e| format!("plugin-host did not start: {e}"))?;
        let text = [out.stdout, out.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
        println!("{text}");
        let counted = text.contains("isend to data: ");
        let fine = out.status.success() && counted;
        if fine { Ok(()) } else { Err(format!("AllReduce over {name}: {}, depth counted: {counted}", out.status)) }
    };
    all([cargo("build"), cargo("test"), plays()])
}

/// The name of that transport, which is nowhere else in the tree.
fn unknown_name(root: &Path) -> Result<String, String> {
    let sources = tree::sources(root);
    let own = |path: &str| path.starts_with("tests/foreign/");
    let told = sources.iter().filter(|s| own(&s.path)).find_map(|s| s.text.split_once("pub const NAME: &str = \""));
    let name = told.and_then(|(_, rest)| rest.split_once('"')).map(|(name, _)| name.to_owned());
    let name = name.ok_or("tests/foreign does not say its transport's name")?;
    match sources.iter().find(|s| !own(&s.path) && s.text.contains(&name)) {
        Some(knows) => Err(format!("{} knows the foreign transport {name}", knows.path)),
        None => Ok(name),
    }
}

/// Runs the tests that plant bugs, each of which must be caught: built with the feature that no other build has.
pub(crate) fn planted(root: &Path) -> Outcome {
    all(["linkspan-sim", "linkspan-devmem"].map(|name| {
        let mut cargo = run::cargo(root);
        run::must(cargo.args(["test", "--quiet", "-p", name, "--features", "planted", "--test", "integration"]))
    }))
}

/// Runs the unit tests of every crate that has loom among its needs, with the model checker switched in (`--cfg loom`).
pub(crate) fn loom(root: &Path) -> Outcome {
    let sources = tree::sources(root);
    let manifests = sources.iter().filter(|s| s.path.ends_with("/Cargo.toml"));
    let names: Vec<&str> = manifests
        .filter(|s| s.text.lines().any(|l| l.starts_with("loom")))
        .filter_map(|s| s.text.lines().find_map(|l| l.strip_prefix("name = \"")?.strip_suffix('"')))
        .collect();
    if names.is_empty() {
        return Outcome::Failed("no crate has loom among its needs".to_owned());
    }
    all(names.into_iter().map(|name| {
        let mut cargo = run::cargo(root);
        cargo.args(["test", "--release", "-p", name, "--lib"]).env("RUSTFLAGS", "--cfg loom");
        cargo.env("CARGO_TARGET_DIR", run::target_dir(root).join("loom"));
        cargo.env("LOOM_MAX_PREEMPTIONS", std::env::var("LOOM_MAX_PREEMPTIONS").unwrap_or_else(|_| "3".into()));
        let text = run::output(&mut cargo)?;
        print!("{text}");
        let ran = text.lines().any(|l| l.starts_with("test ") && l.ends_with(" ok"));
        if ran { Ok(()) } else { Err(format!("{name}: no test ran under the model checker")) }
    }))
}

/// Runs the namespace tests of `tests/netns`, or those of these names, against what is handed out.
pub(crate) fn netns(root: &Path, words: &[&str]) -> Outcome {
    if let Some(why) = no_namespaces() {
        return Outcome::Skipped(why);
    }
    let built = Machine::Native.built(root);
    all([compile(root).and_then(|beside| {
        let mut tests = Command::new(beside.join("linkspan-netns"));
        tests.args(words).current_dir(root).env("LSPAN", built.join("lspan"));
        run::must(tests.env("PLUGIN", built.join("liblinkspan_nccl.so")))
    })])
}

/// Why network namespaces cannot be made here, if they cannot: tried, not guessed.
fn no_namespaces() -> Option<String> {
    let Some(ip) = run::which("ip") else {
        return Some("no ip command (Debian: iproute2)".to_owned());
    };
    if !run::is_root() {
        return Some("network namespaces need root".to_owned());
    }
    let probe = format!("lspan-probe-{}", std::process::id());
    let made = run::output(Command::new(&ip).args(["netns", "add", &probe]));
    let _ = run::output(Command::new(&ip).args(["netns", "delete", &probe]));
    made.err()
}

/// Cross-builds with Debian's own toolchain and runs the tests under qemu-user.
pub(crate) fn aarch64(root: &Path, fresh: bool) -> Outcome {
    if cfg!(target_arch = "aarch64") {
        return Outcome::Skipped("this machine is aarch64 itself: cargo test --workspace covers it".to_owned());
    }
    let tools = match toolchain::ready(root, fresh) {
        Ok(tools) => tools,
        Err(why) => return Outcome::Skipped(why),
    };
    let packages = |names: &'static [&'static str]| names.iter().flat_map(|name| ["-p", name]);
    let mut test = tools.cargo(root);
    test.args(["test", "--lib", "--tests"]).args(packages(&AARCH64_TESTED)).arg("--");
    for (tests, why) in NOT_UNDER_QEMU {
        println!("skipped: aarch64 {tests}*: {why}");
        test.args(["--skip", tests]);
    }
    let mut build = tools.cargo(root);
    build.arg("build").args(packages(&AARCH64_BUILT));
    all([run::must(&mut test), run::must(&mut build)])
}

/// Compiles what users load, as they get it, and then what tests run beside it; says where that lies.
fn compile(root: &Path) -> Result<PathBuf, String> {
    dist::compile(root, &Machine::Native)?;
    programs(root)
}

/// Compiles the programs and examples of the workspace without optimisation, and says where they lie. In the very set that
/// `cargo test --workspace` compiles: another one has other features, and cargo compiles the crates below anew for each.
pub(crate) fn programs(root: &Path) -> Result<PathBuf, String> {
    let mut cargo = run::cargo(root);
    run::must(cargo.args(["build", "--quiet", "--workspace", "--lib", "--bins", "--examples"]))?;
    Ok(run::target_dir(root).join("debug"))
}

/// Copies a program into `dir` without what a debugger wants, which is most of it: what a guest unpacks into its memory, or is taken
/// to another machine.
fn lean(dir: &Path, file: &Path, name: &str) -> Result<PathBuf, String> {
    std::fs::create_dir_all(dir).map_err(|e| format!("{}: {e}", dir.display()))?;
    let out = dir.join(name);
    crate::capi::install::replace(file, &out)?;
    if run::which("strip").is_some() {
        run::must(Machine::Native.tool("strip").arg("--strip-debug").arg(&out))?;
    }
    Ok(out)
}

/// Builds the program that plays NCCL's part.
pub(crate) fn compile_plugin_host(root: &Path) -> Result<PathBuf, String> {
    let dir = root.join("tests/plugin-host");
    let built = Machine::Native.built(root);
    std::fs::create_dir_all(&built).map_err(|e| format!("{}: {e}", built.display()))?;
    let out = built.join("plugin-host");
    let list = std::fs::read_dir(&dir).map_err(|e| format!("{}: {e}", dir.display()))?;
    let sources = list.flatten().map(|e| e.path()).filter(|p| {
        let name = p.file_name().unwrap_or_default().to_string_lossy();
        name.ends_with(".c") && name != "reference.c"
    });
    let mut cc = Command::new("cc");
    cc.args(["-std=c11", "-O2", "-pthread"]).args(sources).arg("-ldl").arg("-o").arg(&out);
    run::must(&mut cc).map(|()| out)
}
