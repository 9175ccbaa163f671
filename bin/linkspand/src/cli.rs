//! The command line.

use std::path::PathBuf;

use clap::{Parser, Subcommand};

/// linkspan's system service: cables and jobs observed, events kept, hosts let in
///
/// Started by systemd, or by D-Bus when a program asks for org.linkspan.Link1. SIGHUP reads the configuration and looks at everything
/// again. No command of lspan needs it.
#[derive(Debug, Parser)]
#[command(name = "linkspand", version, max_term_width = 110)]
pub(crate) struct Cli {
    /// Write lines to standard error, not to the journal
    #[arg(short, long)]
    pub(crate) foreground: bool,
    /// Folder of linkspand.toml and linkspand.d/*.toml, of which a later one wins
    #[arg(long, value_name = "DIR", default_value = "/etc/linkspan", global = true)]
    pub(crate) config: PathBuf,
    /// Folder of what is remembered
    #[arg(long, value_name = "DIR", default_value = "/var/lib/linkspan", env = "STATE_DIRECTORY", hide = true)]
    pub(crate) state: PathBuf,
    /// Folder of the sockets of lent queues
    #[arg(long, value_name = "DIR", default_value = linkspan_fabric::devmem::client::FOLDER, hide = true)]
    pub(crate) runtime: PathBuf,
    /// Where sys and proc are
    #[arg(long, value_name = "DIR", default_value = "/", hide = true)]
    pub(crate) root: PathBuf,
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// The configuration
    Config {
        #[command(subcommand)]
        config: ConfigCommand,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Print every key with its value
    Show {
        /// Say too where each comes from
        #[arg(long)]
        origin: bool,
    },
}
