//! The lab: virtual machines on stock Debian kernels, joined by Ethernet, soft-RoCE and the virtual Thunderbolt cable.
//!
//! `cargo xtask lab WORDS` builds this program and what it puts into guests, then runs it with the same words.
//! Exit codes: 0 done, 1 failed, 2 usage, 77 cannot run on this machine (a line says why).
#![forbid(unsafe_code)]

mod agent;
mod cache;
mod cli;
mod cpio;
mod error;
mod files;
mod fixture;
mod guest;
mod initrd;
mod lab;
mod modules;
mod patience;
mod proc;
mod root;
mod run;
mod setup;
mod shell;
mod suite;
mod tries;
mod vcable;
mod verdict;
mod wire;

use std::process::ExitCode;

use cli::Words;
use error::{Error, Result};

const USAGE: &str = "\
usage: cargo xtask lab COMMAND

  setup [--kernel NAME]... [--sys NAME]...  fetches the Debian root, QEMU, kernels and whole systems; without a name all
  list                                      the tests: name, kernels, what they prove
  run NAME...|all [--kernel NAME]... [--sys NAME]... [--module FILE.ko]... [--seed N] [--once]
                                            runs tests; FILE.ko is put into the guests, in place of a module of that name;
                                            N is for tests that choose by chance (1 where none is given);
                                            a test that fails is run once more after the others, with --once it is not
  shell [--kernel NAME] [--module FILE.ko]... [--hosts N] [--load NAME]...
                                            guests joined by the virtual cable, with a prompt for each of them
  shell --sys NAME                          the same with two whole systems
  module FOLDER [--kernel NAME]             builds the kernel module in FOLDER against a kernel of the lab
  lint FOLDER [--kernel NAME]...            sparse, the compiler with W=1, and checkpatch over the module in FOLDER
  checked-kernel debug|kcsan                builds a kernel with checkers: KASAN, lockdep, kmemleak and those of the DMA API, or KCSAN
  fixtures FOLDER [--kernel NAME]           writes what sysfs shows in guests, for the tests of other crates
";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.first().map(String::as_str) {
        // In a guest, and in the child processes of the runner.
        Some("agent") => return agent::run(&args[1..]),
        Some("guard") => return proc::guard(&args[1..]),
        _ => proc::die_with_parent(),
    }
    match act(&args) {
        Ok(code) => code,
        Err(Error::Unfit(why)) => {
            println!("skipped: lab: {why}");
            ExitCode::from(77)
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn act(args: &[String]) -> Result<ExitCode> {
    let Some(words) = Words::read(args) else {
        eprint!("{USAGE}");
        return Ok(ExitCode::from(2));
    };
    let names: Vec<&str> = words.names.iter().map(String::as_str).collect();
    match (words.command.as_str(), names.as_slice()) {
        ("help", []) => print!("{USAGE}"),
        ("list", []) => run::list(),
        ("setup", []) => {
            setup::run(&cache::Cache::open()?, &words.kernels(), &words.systems())?;
        }
        ("checked-kernel", [name]) => setup::checked::run(&cache::Cache::open()?, name)?,
        ("module", [folder]) => {
            let cache = cache::Cache::open()?;
            let kernel = cache.kernel(&words.one_kernel())?;
            for file in setup::module::build(&cache, &kernel, std::path::Path::new(folder))? {
                println!("{}", file.display());
            }
        }
        ("lint", [folder]) => {
            let cache = cache::Cache::open()?;
            for name in words.kernels() {
                setup::lint::run(&cache, &cache.kernel(&name)?, std::path::Path::new(folder))?;
            }
        }
        ("run", [_, ..]) => return run::run(&words),
        ("shell", []) => shell::run(&words)?,
        ("fixtures", [folder]) => fixture::run(&words, std::path::Path::new(folder))?,
        _ => {
            eprint!("{USAGE}");
            return Ok(ExitCode::from(2));
        }
    }
    Ok(ExitCode::SUCCESS)
}
