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
use crate::suite::{ALL, Drivers, Test, system};
use crate::tries::{self, Came, Nth};

/// Our driver, in the folder `kernel`: built for each kernel before a test needs it, unless one is given by `--module`.
const OURS: &str = "linkspan";

/// Prints every test.
pub(crate) fn list() {
    for test in ALL {
        let since = if test.since == (0, 0) { "any".to_owned() } else { format!("{}.{}+", test.since.0, test.since.1) };
        println!("{:<16} {since:<6} {}", test.name, test.what);
    }
    for test in system::ALL {
        println!("{:<16} system {}", test.name, test.what);
    }
}

/// Runs the chosen tests on the chosen kernels and systems, one after the other: two guests keep two cores busy.
pub(crate) fn run(words: &Words) -> Result<ExitCode> {
    let cache = Cache::open()?;
    let (on_kernels, on_systems) = choose(words)?;
    let puts = puts();
    let begun = Instant::now();
    let mut tally = Tally::default();
    let kernels = if on_kernels.is_empty() { Vec::new() } else { words.kernels() };
    for kernel in kernels {
        let mut modules = words.modules.clone();
        if on_kernels.iter().any(|test| test.drivers == Drivers::Ours) && !modules.iter().any(|m| name_of(m) == OURS) {
            modules.extend(setup::module::build(&cache, &cache.kernel(&kernel)?, Path::new("kernel"))?);
        }
        let mut lab = Lab::new(&cache, &kernel, &modules, &puts)?;
        lab.seed = words.seed;
        println!("kernel {kernel} ({})", lab.kernel.release);
        let (patched, others): (Vec<Test>, Vec<Test>) =
            on_kernels.iter().partition(|test| test.drivers == Drivers::Patched && why_not(&lab, test).is_none());
        tally.take(&mut lab, &others, words.once);
        if patched.is_empty() {
            continue;
        }
        match setup::patched::modules(&cache, &kernel) {
            Ok(built) => {
                let given = |m: &PathBuf| words.modules.iter().any(|given| name_of(given) == name_of(m));
                modules.extend(built.into_iter().filter(|m| !given(m)));
                let mut lab = Lab::new(&cache, &kernel, &modules, &puts)?;
                lab.seed = words.seed;
                tally.take(&mut lab, &patched, words.once);
            }
            // The others have run, and the next kernel does.
            Err(error) => {
                println!("  FAILED   the kernel's drivers with patches: {error}");
                tally.failed.extend(patched.iter().map(|test| format!("{} on {kernel}", test.name)));
            }
        }
    }
    let systems = if on_systems.is_empty() { Vec::new() } else { words.systems() };
    for system in systems {
        let mut lab = Lab::system(&cache, &system, &puts)?;
        lab.seed = words.seed;
        println!("system {} ({})", lab.kernel.name, lab.kernel.release);
        tally.take(&mut lab, &on_systems, words.once);
    }
    Ok(tally.tell(begun.elapsed().as_secs_f64()))
}

/// What the tests came to.
#[derive(Debug, Default)]
struct Tally {
    passed: usize,
    second: Vec<String>,
    failed: Vec<String>,
    left_out: usize,
}

impl Tally {
    /// Runs tests in one lab.
    fn take(&mut self, lab: &mut Lab, tests: &[Test], once: bool) {
        let on = lab.kernel.name.clone();
        let tests = tests.iter().filter(|test| match why_not(lab, test) {
            None => true,
            Some(why) => {
                println!("skipped: {} on {on}: {why}", test.name);
                self.left_out += 1;
                false
            }
        });
        let tests: Vec<&Test> = tests.collect();
        for (test, came) in tries::all(&tests, once, |test, nth| attempt(lab, test, nth)) {
            match came {
                Came::Passed => self.passed += 1,
                Came::Second { first } => {
                    self.passed += 1;
                    self.second.push(format!("{} on {on}", test.name));
                    println!("  PASSED ON THE SECOND TRY: {} on {on}. The first one:\n           {first}", test.name);
                }
                Came::Failed => self.failed.push(format!("{} on {on}", test.name)),
            }
        }
    }

    /// Prints the sum.
    fn tell(&self, took: f64) -> ExitCode {
        let Tally { passed, second, failed, left_out } = self;
        let again = if second.is_empty() { String::new() } else { format!(" ({} on the second try)", second.len()) };
        println!("{passed} passed{again}, {} failed, {left_out} left out, {took:.0} s", failed.len());
        if !second.is_empty() {
            println!("passed on the second try: {}", second.join(", "));
        }
        if failed.is_empty() {
            return ExitCode::SUCCESS;
        }
        println!("failed: {}", failed.join(", "));
        ExitCode::FAILURE
    }
}

/// Tests that are not for the kernels with checkers, and why.
const NOT_FOR_CHECKED: [(&str, &str); 5] = [
    ("cable-rings", "its largest operations take longer there than the minute that each has"),
    ("ring-install", "DKMS builds for kernels whose headers are installed as a package"),
    ("ring-memory", "its numbers of pages are for Debian's kernels"),
    ("use-places", "it has no file systems that lie on a disk"),
    ("use-power", "it has no file system that lies on a disk"),
];

/// Why a test is not for this kernel, if so.
fn why_not(lab: &Lab, test: &Test) -> Option<String> {
    if lab.kernel.checked() {
        let patched = (test.drivers == Drivers::Patched).then_some("the patches are for drivers of Debian's kernels");
        let named = NOT_FOR_CHECKED.iter().find(|(name, _)| *name == test.name).map(|(_, why)| *why);
        if let Some(why) = patched.or(named) {
            return Some(why.to_owned());
        }
    }
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

/// The tests asked for: those for kernels, and those for whole systems.
fn choose(words: &Words) -> Result<(Vec<Test>, Vec<Test>)> {
    let (mut on_kernels, mut on_systems) = (Vec::new(), Vec::new());
    for name in &words.names {
        let of = |tests: &[Test]| -> Vec<Test> {
            tests.iter().copied().filter(|test| name == "all" || test.name == name).collect()
        };
        let (kernels, systems) = (of(ALL), of(system::ALL));
        if kernels.is_empty() && systems.is_empty() {
            let known = ALL.iter().chain(system::ALL).map(|test| test.name).collect::<Vec<_>>().join(", ");
            return Err(Error::Unknown { kind: "test", name: name.clone(), known });
        }
        on_kernels.extend(kernels);
        on_systems.extend(systems);
    }
    Ok((on_kernels, on_systems))
}

/// Programs of ours that go into guests: `cargo xtask lab` says where it built them.
pub(crate) fn puts() -> Vec<Put> {
    [
        ("LSPAN", "/usr/bin/lspan"),
        ("PLUGIN", "/usr/lib/libnccl-net-linkspan.so"),
        ("PLUGIN_HOST", "/usr/bin/plugin-host"),
        ("VERBS", "/usr/bin/verbs-conformance"),
        ("RINGTEST", "/usr/bin/ringtest"),
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
