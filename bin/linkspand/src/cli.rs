//! The command line.

use std::path::PathBuf;

use clap::{Parser, Subcommand};

/// linkspan's services: of the machine (cables and jobs observed, events kept, hosts let in), and of a user (tests, files, keys)
///
/// Started by systemd, or by D-Bus when a program asks for org.linkspan.Link1 on the system bus, or with --user for org.linkspan.User1 on
/// the session bus. SIGHUP has that of the machine read the configuration and look at everything again. No command of lspan needs them.
#[derive(Debug, Parser)]
#[command(name = "linkspand", version, max_term_width = 110)]
pub(crate) struct Cli {
    /// Write lines to standard error, not to the journal
    #[arg(short, long)]
    pub(crate) foreground: bool,
    /// Be the service of this user, on the session bus: tests, transfers, mirrors, mounts, shares and keys for its programs
    #[arg(long)]
    pub(crate) user: bool,
    /// With --user: serve shares also as root, without regard to permissions
    #[arg(long, requires = "user")]
    pub(crate) as_root: bool,
    /// Folder of linkspand.toml and linkspand.d/*.toml, of which a later one wins
    #[arg(long, value_name = "DIR", default_value = crate::config::FOLDER, global = true)]
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
    /// A mount of the service of a user, which starts this
    #[command(hide = true)]
    Mount {
        /// PEER:SHARE[/PATH]
        place: String,
        /// A directory of this host; what is in it is hidden while this is mounted
        directory: PathBuf,
        /// Longest time until data is answered, ms
        timeout_ms: u64,
        /// It may be written
        #[arg(long)]
        rw: bool,
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
