//! Manual pages and completions, from the same definitions as the options themselves.

use std::fs;
use std::io;
use std::path::Path;

use clap::{CommandFactory, ValueEnum};
use clap_complete::Shell;

use crate::cli::Cli;
use crate::exit::{Exit, Failure};
use crate::out::Out;

fn folder(dir: &Path) -> Result<(), Failure> {
    match fs::metadata(dir) {
        Ok(meta) if meta.is_dir() => Ok(()),
        Ok(_) => {
            Err(Failure::new(Exit::Usage, format!("LS0735 {} is not a folder; name one that exists", dir.display())))
        }
        Err(error) => Err(Failure::system(&format!("LS0737 {} (name a folder that exists)", dir.display()), &error)),
    }
}

fn write(dir: &Path, error: &io::Error) -> Failure {
    Failure::system(&format!("writing into {}", dir.display()), error)
}

/// One page per command.
pub(crate) fn man(dir: &Path) -> Result<Exit, Failure> {
    folder(dir)?;
    let mut command = Cli::command().disable_help_subcommand(true);
    command.build();
    pages(&command, dir).map_err(|error| write(dir, &error))?;
    Ok(Exit::Ok)
}

/// As `clap_mangen::generate_to`, which has a command's own name and no version in the footer of its page.
fn pages(command: &clap::Command, dir: &Path) -> io::Result<()> {
    command.get_subcommands().filter(|sub| !sub.is_hide_set()).try_for_each(|sub| pages(sub, dir))?;
    let page = clap_mangen::Man::new(command.clone()).source(concat!("linkspan ", env!("CARGO_PKG_VERSION")));
    page.generate_to(dir).map(drop)
}

/// Completions of one shell to standard output, or of all into a folder.
pub(crate) fn completions(target: &str) -> Result<Exit, Failure> {
    let mut command = Cli::command();
    if let Ok(shell) = Shell::from_str(target, true) {
        let mut text = Vec::new();
        clap_complete::generate(shell, &mut command, "lspan", &mut text);
        Out::default().text(&String::from_utf8_lossy(&text))?;
        return Ok(Exit::Ok);
    }
    let dir = Path::new(target);
    if !dir.is_dir() {
        let shells: Vec<String> = Shell::value_variants().iter().map(ToString::to_string).collect();
        let message = format!("{target:?} is neither a shell ({}) nor a folder that exists", shells.join(", "));
        return Err(Failure::new(Exit::Usage, message));
    }
    for shell in Shell::value_variants() {
        clap_complete::generate_to(*shell, &mut command, "lspan", dir).map_err(|error| write(dir, &error))?;
    }
    Ok(Exit::Ok)
}
