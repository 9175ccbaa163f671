//! `lspan stats`, `top` and `metrics`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::time;

#[derive(Args, Debug)]
pub(crate) struct StatsArgs {
    /// Repeat at this interval, as in 500ms or 2s, with rates
    #[arg(long, value_name = "TIME", value_parser = time, num_args = 0..=1, default_missing_value = "1s")]
    pub(crate) watch: Option<Duration>,
    /// Print JSON (schema linkspan.stats/1), with --watch one line each time
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args, Debug)]
pub(crate) struct TopArgs {
    /// Update interval, as in 500ms or 2s
    #[arg(long, value_name = "TIME", value_parser = time, default_value = "1s")]
    pub(crate) every: Duration,
    /// Show these hosts instead of this one, over ssh
    #[arg(long, value_name = "HOST,...", value_delimiter = ',')]
    pub(crate) ssh: Vec<String>,
    /// Program that runs a command on another host
    #[arg(long, value_name = "COMMAND", default_value = "ssh", requires = "ssh")]
    pub(crate) rsh: String,
    /// Path of lspan on the other hosts
    #[arg(long, value_name = "PATH", default_value = "lspan", requires = "ssh")]
    pub(crate) lspan: String,
}

#[derive(Args, Debug)]
pub(crate) struct MetricsArgs {
    /// Serve them over HTTP at /metrics; ADDR is a PORT of loopback or IP:PORT
    #[arg(long, value_name = "ADDR", value_parser = listen, conflicts_with = "textfile")]
    pub(crate) listen: Option<SocketAddr>,
    /// Write them to a file for node_exporter's textfile collector (NAME.prom), replacing its content
    #[arg(long, value_name = "FILE")]
    pub(crate) textfile: Option<PathBuf>,
}

/// A port is of loopback: who else may read is said by an address.
fn listen(text: &str) -> Result<SocketAddr, &'static str> {
    let port = text.parse().map(|port: u16| SocketAddr::from(([127, 0, 0, 1], port)));
    port.or_else(|_| text.parse()).map_err(|_| "takes PORT (of 127.0.0.1), IPV4:PORT or [IPV6]:PORT")
}
