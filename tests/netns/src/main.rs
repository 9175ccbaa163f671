//! Several hosts on one machine: network namespaces joined by virtual cables that can be shaped and cut.
//!
//! `linkspan-netns list` names the tests, `linkspan-netns NAME...` or `all` runs them. A test that fails is run once more when
//! the others are done, alone; with `--once` it is not. `linkspan-netns soak SECONDS` is a long run of its own. Needs root and iproute2; makes its own namespaces and removes them.
#![forbid(unsafe_code)]

mod doctor;
mod guides;
mod hostile;
mod mesh;
mod node;
mod soak;
mod tests;
mod world;

use std::process::ExitCode;
use std::time::Instant;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["node", rest @ ..] => node::main(rest),
        ["--once", rest @ ..] | [rest @ .., "--once"] => run_named(rest, true),
        ["soak", seconds, seed @ ..] => {
            let seed = match seed {
                [] => Some(std::process::id().into()),
                [seed] => seed.parse().ok(),
                _ => None,
            };
            let (Ok(seconds), Some(seed)) = (seconds.parse(), seed) else {
                eprintln!("usage: linkspan-netns soak SECONDS [SEED]");
                return ExitCode::from(2);
            };
            println!("soak: seed {seed}");
            match report("soak", Instant::now(), soak::run(seconds, seed)) {
                Ok(()) => ExitCode::SUCCESS,
                Err(_) => ExitCode::FAILURE,
            }
        }
        ["list"] => {
            for test in all() {
                println!("{:<22} {}", test.name, test.what);
            }
            ExitCode::SUCCESS
        }
        names => run_named(names, false),
    }
}

fn run_named(names: &[&str], once: bool) -> ExitCode {
    match names {
        [] => {
            eprintln!("usage: linkspan-netns list | all [--once] | NAME... [--once] | soak SECONDS [SEED]");
            ExitCode::from(2)
        }
        ["all"] => run(&all().collect::<Vec<_>>(), once),
        names => {
            let mut chosen = Vec::new();
            for name in names {
                let Some(test) = all().find(|t| t.name == *name) else {
                    eprintln!("there is no test {name}: `linkspan-netns list` names them");
                    return ExitCode::from(2);
                };
                chosen.push(test);
            }
            run(&chosen, once)
        }
    }
}

fn all() -> impl Iterator<Item = &'static tests::Test> {
    tests::ALL.iter().chain(mesh::ALL).chain(doctor::ALL).chain(hostile::ALL)
}

/// What a test says first that could not be run here: it has neither passed nor failed.
pub(crate) const SKIPPED: &str = "skipped: ";

/// Tells how a test ended; its error.
fn report(name: &str, since: Instant, result: Result<String, String>) -> Result<(), String> {
    let took = since.elapsed().as_secs_f64();
    match result {
        Ok(said) if said.starts_with(SKIPPED) => {
            // At the beginning of a line, where .ci/stage.sh looks for it.
            println!("{SKIPPED}{name}: {}", &said[SKIPPED.len()..]);
            Ok(())
        }
        Ok(said) => {
            println!("ok     {name:<22} {took:>5.1} s  {said}");
            Ok(())
        }
        Err(why) => {
            println!("FAILED {name:<22} {took:>5.1} s  {why}");
            Err(why)
        }
    }
}

/// The slow tests wait for timers of the kernel; those run side by side, in namespaces of their own. Tests that
/// measure have the machine for themselves. What failed is run once more: on a busy machine a process can be late for a
/// reason outside of the test; a defect comes again.
fn run(chosen: &[&'static tests::Test], once: bool) -> ExitCode {
    let (mut again, mut skipped) = (Vec::new(), 0);
    for &test in chosen.iter().filter(|t| !t.waits) {
        let since = Instant::now();
        let result = (test.run)();
        skipped += usize::from(result.as_ref().is_ok_and(|said| said.starts_with(SKIPPED)));
        if let Err(first) = report(test.name, since, result) {
            again.push((test, first));
        }
    }
    let since = Instant::now();
    let waiting: Vec<_> = chosen.iter().filter(|t| t.waits).map(|&test| (test, std::thread::spawn(test.run))).collect();
    for (test, thread) in waiting {
        let result = thread.join().unwrap_or_else(|_| Err("panicked".into()));
        skipped += usize::from(result.as_ref().is_ok_and(|said| said.starts_with(SKIPPED)));
        if let Err(first) = report(test.name, since, result) {
            again.push((test, first));
        }
    }
    let mut second = Vec::new();
    if !once {
        again.retain(|(test, first)| {
            println!("once more: {}", test.name);
            let since = Instant::now();
            let result = std::thread::spawn(test.run).join().unwrap_or_else(|_| Err("panicked".into()));
            let held = report(test.name, since, result).is_ok();
            if held {
                println!("PASSED ON THE SECOND TRY: {}. The first one:\n       {first}", test.name);
                second.push(test.name);
            }
            !held
        });
    }
    let passed = chosen.len() - again.len() - skipped;
    let tried = if second.is_empty() { String::new() } else { format!(" ({} on the second try)", second.len()) };
    let left = if skipped == 0 { String::new() } else { format!(", {skipped} skipped") };
    println!("{passed} passed{tried}{left}, {} failed", again.len());
    if !second.is_empty() {
        println!("passed on the second try: {}", second.join(", "));
    }
    if again.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
