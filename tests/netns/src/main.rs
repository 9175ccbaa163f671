//! Several hosts on one machine: network namespaces joined by virtual cables that can be shaped and cut.
//!
//! `linkspan-netns list` names the tests, `linkspan-netns NAME...` or `all` runs them. Needs root and iproute2; makes
//! its own namespaces and removes them.
#![forbid(unsafe_code)]

mod mesh;
mod node;
mod tests;
mod world;

use std::process::ExitCode;
use std::time::Instant;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["node", rest @ ..] => node::main(rest),
        ["list"] => {
            for test in all() {
                println!("{:<22} {}", test.name, test.what);
            }
            ExitCode::SUCCESS
        }
        [] => {
            eprintln!("usage: linkspan-netns list | all | NAME...");
            ExitCode::from(2)
        }
        ["all"] => run(&all().collect::<Vec<_>>()),
        names => {
            let mut chosen = Vec::new();
            for name in names {
                let Some(test) = all().find(|t| t.name == *name) else {
                    eprintln!("there is no test {name}: `linkspan-netns list` names them");
                    return ExitCode::from(2);
                };
                chosen.push(test);
            }
            run(&chosen)
        }
    }
}

fn all() -> impl Iterator<Item = &'static tests::Test> {
    tests::ALL.iter().chain(mesh::ALL)
}

/// The slow tests wait for timers of the kernel; those run side by side, in namespaces of their own. Tests that
/// measure have the machine for themselves.
fn run(chosen: &[&'static tests::Test]) -> ExitCode {
    let mut failed = 0;
    let mut report = |name: &str, since: Instant, result: Result<String, String>| {
        let took = since.elapsed().as_secs_f64();
        match result {
            Ok(said) => println!("ok     {name:<22} {took:>5.1} s  {said}"),
            Err(why) => {
                failed += 1;
                println!("FAILED {name:<22} {took:>5.1} s  {why}");
            }
        }
    };
    for test in chosen.iter().filter(|t| !t.waits) {
        let since = Instant::now();
        report(test.name, since, (test.run)());
    }
    let since = Instant::now();
    let waiting: Vec<_> =
        chosen.iter().filter(|t| t.waits).map(|test| (test.name, std::thread::spawn(test.run))).collect();
    for (name, thread) in waiting {
        report(name, since, thread.join().unwrap_or_else(|_| Err("panicked".into())));
    }
    let passed = chosen.len() - failed;
    println!("{passed} passed, {failed} failed");
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
