//! `linkspand`: linkspan's services. That of the machine observes cables and jobs, keeps events, and does what polkit lets its callers do;
//! that of a user (`--user`) does for programs what `lspan` does for people. What they do is in `linkspan-service` and `linkspan-user`,
//! and on D-Bus in `linkspan-bus`.
#![forbid(unsafe_code)]

mod cli;
mod config;
mod log;
mod run;
mod user;

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::Parser;

use cli::{Cli, Command, ConfigCommand};
use config::Config;
use log::Log;

/// The command line or the configuration cannot be understood, as in `lspan`.
const USAGE: u8 = 2;

fn main() -> ExitCode {
    let cli = Cli::parse();
    let log = || Arc::new(if cli.foreground { Log::stderr() } else { Log::journal() });
    match &cli.command {
        Some(Command::Mount { place, directory, timeout_ms, rw }) => {
            let how = linkspan_user::mount::How { data: Duration::from_millis(*timeout_ms), writable: *rw };
            let served = linkspan_user::mount::serve(place, directory, how);
            if served { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        Some(Command::Config { config: ConfigCommand::Show { origin } }) => configured(&cli, |config| {
            print!("{}", config.text(*origin));
            ExitCode::SUCCESS
        }),
        None if cli.user => {
            let log = log();
            ended(user::run(cli.as_root, log.clone()), &log)
        }
        None => configured(&cli, |config| {
            let log = log();
            ended(run::run(&cli, config, log.clone()), &log)
        }),
    }
}

fn configured(cli: &Cli, with: impl FnOnce(Config) -> ExitCode) -> ExitCode {
    match Config::read(&cli.config) {
        Ok(config) => with(config),
        Err(error) => {
            eprintln!("linkspand: {error}");
            ExitCode::from(USAGE)
        }
    }
}

fn ended(ran: Result<(), String>, log: &Log) -> ExitCode {
    match ran {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            log.line(log::Priority::Error, &error);
            ExitCode::FAILURE
        }
    }
}
