//! `list` and `run`.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use crate::cache::{Cache, KERNELS};
use crate::cli::{Level, Words};
use crate::error::{Error, Result};
use crate::initrd::Put;
use crate::lab::Lab;
use crate::modules::name_of;
use crate::setup;
use crate::suite::{ALL, Test};

/// Our driver, in the folder `kernel`: built for each kernel before a test needs it, unless one is given by `--module`.
const OURS: &str = "linkspan";

/// Prints every test.
pub(crate) fn list() {
    for test in ALL {
        let level = if test.level == Level::Quick { "quick" } else { "full" };
        let since = if test.since == (0, 0) { "any".to_owned() } else { format!("{}.{}+", test.since.0, test.since.1) };
        println!("{:<16} {level:<6} {since:<6} {}", test.name, test.what);
    }
}

/// Runs the chosen tests on the chosen kernels, one after the other: two guests keep two cores busy.
pub(crate) fn run(words: &Words) -> Result<ExitCode> {
    let cache = Cache::open()?;
    let chosen = choose(words)?;
    let puts = puts();
    let begun = Instant::now();
    let (mut passed, mut failed, mut left_out) = (0, Vec::new(), 0);
    for kernel in words.kernels() {
        let mut modules = words.modules.clone();
        if chosen.iter().any(|test| test.ours) && !modules.iter().any(|file| name_of(file) == OURS) {
            modules.extend(setup::module::build(&cache, &cache.kernel(&kernel)?, Path::new("kernel"))?);
        }
        let mut lab = Lab::new(&cache, &kernel, &modules, &puts)?;
        println!("kernel {kernel} ({})", lab.kernel.release);
        for test in &chosen {
            if lab.kernel.version() < test.since {
                println!("  left out {:<16} needs a kernel since {}.{}", test.name, test.since.0, test.since.1);
                left_out += 1;
                continue;
            }
            // Asked for by name, or on a kernel asked for by name, it runs.
            let whole = words.names == ["all"] && words.chosen.is_empty() && words.level == Level::Quick;
            if whole && test.newest && kernel != KERNELS[0].name {
                println!("  left out {:<16} runs on the newest kernel at this level", test.name);
                left_out += 1;
                continue;
            }
            println!("  {:<16} {}", test.name, test.what);
            let _ = std::io::stdout().flush();
            let since = Instant::now();
            let result = lab.begin(test.name).and_then(|()| (test.run)(&mut lab));
            let took = since.elapsed().as_secs_f64();
            match result {
                Ok(()) => {
                    passed += 1;
                    println!("  ok       {:<16} {} checks, {took:.1} s", test.name, lab.checks());
                }
                Err(error) => {
                    failed.push(format!("{} on {kernel}", test.name));
                    println!("  FAILED   {:<16} {took:.1} s: {error}", test.name);
                    println!("           consoles: {}", lab.logs().display());
                }
            }
        }
    }
    println!("{passed} passed, {} failed, {left_out} left out, {:.0} s", failed.len(), begun.elapsed().as_secs_f64());
    if failed.is_empty() {
        return Ok(ExitCode::SUCCESS);
    }
    println!("failed: {}", failed.join(", "));
    Ok(ExitCode::FAILURE)
}

fn choose(words: &Words) -> Result<Vec<Test>> {
    let mut chosen: Vec<Test> = Vec::new();
    for name in &words.names {
        if name == "all" {
            chosen.extend(ALL.iter().filter(|test| test.level <= words.level));
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
    ]
    .into_iter()
    .filter_map(|(name, to)| {
        let from = std::env::var_os(name).filter(|path| !path.is_empty()).map(PathBuf::from)?;
        Some(Put { from, to: to.to_owned() })
    })
    .collect()
}
