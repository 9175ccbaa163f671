//! `list` and `run`.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use crate::cache::Cache;
use crate::cli::Words;
use crate::error::{Error, Result};
use crate::initrd::Put;
use crate::lab::Lab;
use crate::modules::name_of;
use crate::setup;
use crate::suite::{ALL, Test};
use crate::tries::{self, Came, Nth};

/// Our driver, in the folder `kernel`: built for each kernel before a test needs it, unless one is given by `--module`.
const OURS: &str = "linkspan";

/// Prints every test.
pub(crate) fn list() {
    for test in ALL {
        let since = if test.since == (0, 0) { "any".to_owned() } else { format!("{}.{}+", test.since.0, test.since.1) };
        println!("{:<16} {since:<6} {}", test.name, test.what);
    }
}

/// Runs the chosen tests on the chosen kernels, one after the other: two guests keep two cores busy.
pub(crate) fn run(words: &Words) -> Result<ExitCode> {
    let cache = Cache::open()?;
    let chosen = choose(words)?;
    let puts = puts();
    let begun = Instant::now();
    let (mut passed, mut second, mut failed, mut left_out) = (0, Vec::new(), Vec::new(), 0);
    for kernel in words.kernels() {
        let mut modules = words.modules.clone();
        if chosen.iter().any(|test| test.ours) && !modules.iter().any(|file| name_of(file) == OURS) {
            modules.extend(setup::module::build(&cache, &cache.kernel(&kernel)?, Path::new("kernel"))?);
        }
        let mut lab = Lab::new(&cache, &kernel, &modules, &puts)?;
        println!("kernel {kernel} ({})", lab.kernel.release);
        let tests = chosen.iter().filter(|test| match why_not(&lab, test) {
            None => true,
            Some(why) => {
                println!("  left out {:<16} {why}", test.name);
                left_out += 1;
                false
            }
        });
        let tests: Vec<&Test> = tests.collect();
        for (test, came) in tries::all(&tests, words.once, |test, nth| attempt(&mut lab, test, nth)) {
            match came {
                Came::Passed => passed += 1,
                Came::Second { first } => {
                    passed += 1;
                    second.push(format!("{} on {kernel}", test.name));
                    println!(
                        "  PASSED ON THE SECOND TRY: {} on {kernel}. The first one:\n           {first}",
                        test.name
                    );
                }
                Came::Failed => failed.push(format!("{} on {kernel}", test.name)),
            }
        }
    }
    let again = if second.is_empty() { String::new() } else { format!(" ({} on the second try)", second.len()) };
    let took = begun.elapsed().as_secs_f64();
    println!("{passed} passed{again}, {} failed, {left_out} left out, {took:.0} s", failed.len());
    if !second.is_empty() {
        println!("passed on the second try: {}", second.join(", "));
    }
    if failed.is_empty() {
        return Ok(ExitCode::SUCCESS);
    }
    println!("failed: {}", failed.join(", "));
    Ok(ExitCode::FAILURE)
}

/// Why a test is not for this kernel, if so.
fn why_not(lab: &Lab, test: &Test) -> Option<String> {
    (lab.kernel.version() < test.since).then(|| format!("needs a kernel since {}.{}", test.since.0, test.since.1))
}

/// One run of one test; the error with the place of the logs.
fn attempt(lab: &mut Lab, test: &Test, nth: Nth) -> std::result::Result<(), String> {
    let again = if nth == Nth::Second { "once more: " } else { "" };
    println!("  {:<16} {again}{}", test.name, test.what);
    let _ = std::io::stdout().flush();
    let since = Instant::now();
    let result = lab.begin(test.name, nth).and_then(|()| (test.run)(lab));
    let took = since.elapsed().as_secs_f64();
    match result {
        Ok(()) => {
            println!("  ok       {:<16} {} checks, {took:.1} s", test.name, lab.checks());
            Ok(())
        }
        Err(error) => {
            let text = format!("{error}\n           logs: {}", lab.logs().display());
            println!("  FAILED   {:<16} {took:.1} s: {text}", test.name);
            Err(text)
        }
    }
}

fn choose(words: &Words) -> Result<Vec<Test>> {
    let mut chosen: Vec<Test> = Vec::new();
    for name in &words.names {
        if name == "all" {
            chosen.extend(ALL);
            continue;
        }
        let Some(test) = ALL.iter().find(|test| test.name == name) else {
            let known = ALL.iter().map(|test| test.name).collect::<Vec<_>>().join(", ");
            return Err(Error::Unknown { kind: "test", name: name.clone(), known });
        };
        chosen.push(*test);
    }
    Ok(chosen)
}

/// Programs of ours that go into guests: `cargo xtask lab` says where it built them.
pub(crate) fn puts() -> Vec<Put> {
    [
        ("LSPAN", "/usr/bin/lspan"),
        ("PLUGIN", "/usr/lib/libnccl-net-linkspan.so"),
        ("PLUGIN_HOST", "/usr/bin/plugin-host"),
        ("VERBS", "/usr/bin/verbs-conformance"),
        ("RINGTEST", "/usr/bin/ringtest"),
        ("URING", "/usr/bin/uring-conformance"),
        ("CABLES", "/usr/bin/cables"),
        ("RING_C", "/usr/bin/ring-c"),
        ("RING_CPP", "/usr/bin/ring-cpp"),
        ("LIBLINKSPAN", "/usr/lib/x86_64-linux-gnu/liblinkspan.so.0"),
    ]
    .into_iter()
    .filter_map(|(name, to)| {
        let from = std::env::var_os(name).filter(|path| !path.is_empty()).map(PathBuf::from)?;
        Some(Put { from, to: to.to_owned() })
    })
    .collect()
}
