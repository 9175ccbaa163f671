//! `lspan`: linkspan at the command line.
#![forbid(unsafe_code)]

/// As that of std, but a standard error that cannot be written, as a terminal that is gone, does not end the program.
macro_rules! eprintln {
    ($($part:tt)*) => { crate::peer_lines::tell(&format!($($part)*)) };
}

mod bugreport;
mod cables;
mod child;
mod cli;
mod devmem;
mod doctor;
mod env;
mod events;
mod exit;
mod fabric;
mod files;
mod job;
mod keys;
mod mesh;
mod metrics;
mod older;
mod onesided;
mod out;
mod overview;
mod pages;
mod passed;
mod peer_lines;
mod perf;
mod pools;
#[cfg(test)]
#[path = "../tests/integration/schema/mod.rs"]
mod schema;
mod selftest;
mod serve;
mod signals;
mod stats;
mod status;
mod top;
mod wait;

use std::ffi::OsString;
use std::process::ExitCode;
use std::sync::Arc;

use clap::Parser;
use signal_hook::consts::SIGCHLD;

use cli::files::Files;
use cli::{Cli, Command, Devmem, Perf};
use exit::Exit;

fn main() -> ExitCode {
    // Where SIGCHLD is ignored, as `trap '' CHLD` leaves it, the kernel keeps no exit status to wait for (wait(2)).
    if job::run::ignored(SIGCHLD) {
        let _ = signal_hook::flag::register(SIGCHLD, Arc::default());
    }
    let args: Vec<OsString> = std::env::args_os().collect();
    let exit = match run(args) {
        Ok(exit) => exit,
        Err(failure) => {
            if !failure.message.is_empty() {
                eprintln!("lspan: {}", failure.message);
            }
            failure.exit
        }
    };
    ExitCode::from(exit as u8)
}

fn run(args: Vec<OsString>) -> Result<Exit, exit::Failure> {
    if let Some(command) = older::spelling(&args) {
        return dispatch(command);
    }
    let cli = Cli::try_parse_from(args).unwrap_or_else(|error| error.exit());
    match cli.command {
        Some(command) => dispatch(command),
        None => overview::run(),
    }
}

fn dispatch(command: Command) -> Result<Exit, exit::Failure> {
    match command {
        Command::Status(args) => status::run(&args),
        Command::Mesh(args) => mesh::run(&args),
        Command::Doctor(args) => doctor::run(&args),
        Command::Perf { perf: Perf::Serve(args) } => serve::run(&args),
        Command::Perf { perf: Perf::Write(args) } => onesided::run(&args, onesided::Direction::Write),
        Command::Perf { perf: Perf::Read(args) } => onesided::run(&args, onesided::Direction::Read),
        Command::Perf { perf: Perf::Compare(args) } => perf::compare::run(&args),
        Command::Perf { perf: Perf::Matrix(args) } => perf::matrix::run(&args),
        Command::Perf { perf } => perf::run(perf),
        Command::Selftest(args) => selftest::run(&args),
        Command::Stats(args) => stats::run(&args),
        Command::Top(args) => top::run(&args),
        Command::Events(args) => events::run(&args),
        Command::Metrics(args) => metrics::run(&args),
        Command::Files { files: Files::Serve(args) } => files::serve::run(&args),
        Command::Ls(args) => files::ls(&args),
        Command::Send(args) => files::transfer::send(&args),
        Command::Get(args) => files::transfer::get(&args),
        Command::Mirror(args) => files::mirror::run(&args),
        Command::Trash { trash } => files::trash::run(&trash),
        Command::Rm(args) => files::rm(&args),
        Command::Mv(args) => files::mv(&args),
        Command::Du(args) => files::du(&args),
        Command::Verify(args) => files::verify(&args),
        Command::Mount(args) => files::mount::run(&args),
        Command::Pipe(args) => files::pipe::pipe(&args),
        Command::Forward(args) => files::pipe::forward(&args),
        Command::Key { key } => keys::run(&key),
        Command::Pair(args) => keys::pair(&args),
        Command::Link { link } => cables::run(&link),
        Command::Devmem { devmem: Devmem::Probe(args) } => devmem::run(&args),
        Command::Devmem { devmem: Devmem::Up(args) } => devmem::up(&args),
        Command::Devmem { devmem: Devmem::Down(args) } => devmem::down(&args),
        Command::Env(args) if args.nccl => job::env::run(&args),
        Command::Env(args) => env::run(&args),
        Command::Bugreport(args) => bugreport::run(&args),
        Command::Wait(args) => wait::run(&args),
        Command::Run(args) => job::run::run(&args),
        Command::Man { dir } => pages::man(&dir),
        Command::Completions { target } => pages::completions(&target),
    }
}
