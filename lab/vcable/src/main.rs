//! `vcable`: serves a virtual Thunderbolt/USB4 cable to virtual machines.

#![forbid(unsafe_code)]

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Parser, Subcommand, ValueEnum};
use linkspan_vcable::fault::Script;
use linkspan_vcable::serve::{self, Config, ServeError, Server};
use linkspan_vcable::time;
use linkspan_vcable::topology::{PRESETS, Topology};
use linkspan_vcable::trace::text::describe;
use linkspan_vcable::trace::{Trace, What};
use linkspan_vcable::world::Options;

#[derive(Parser)]
#[command(name = "vcable", version, about = "A virtual Thunderbolt/USB4 cable between virtual machines")]
struct Cli {
    #[command(subcommand)]
    command: Cmd,
}

#[derive(Subcommand)]
enum Cmd {
    /// Serve host interfaces over vfio-user to QEMU 10.1 or newer
    Serve(Serve),
    /// Send a command to a running server and print its answer
    Ctl {
        /// Control socket of the server
        socket: PathBuf,
        /// stats, check, trace on|off, quit, or a fault: unplug CABLE, replug CABLE, drop xdomain nth=2, ...
        #[arg(required = true, trailing_var_arg = true)]
        command: Vec<String>,
    },
    /// Print a trace like a protocol analyser
    Trace {
        /// File that 'vcable serve --trace' wrote
        file: PathBuf,
        /// Only this host
        #[arg(long)]
        host: Option<String>,
        /// Only control packets, frames or events
        #[arg(long)]
        only: Option<Only>,
    },
}

#[derive(Clone, Copy, ValueEnum)]
enum Only {
    Control,
    Frame,
    Event,
}

#[derive(Clone, Copy, ValueEnum)]
enum RouterVersion {
    V1,
    V2,
}

#[derive(Clone, Copy, ValueEnum)]
enum Irq {
    Intel,
    Plain,
}

#[derive(clap::Args)]
struct Serve {
    /// Built-in topology (pair, pair2, twonhi, chain3, triangle, peer, peer2) or a file
    #[arg(long, default_value = "pair")]
    topology: String,
    /// Folder for the sockets, one NAME.sock per guest's host interface
    #[arg(long)]
    dir: PathBuf,
    /// Lanes per port of all hosts
    #[arg(long, value_parser = clap::value_parser!(u8).range(1..=2))]
    lanes: Option<u8>,
    /// Router version of all hosts
    #[arg(long)]
    router: Option<RouterVersion>,
    /// Interrupt behaviour of all hosts: intel clears status by itself
    #[arg(long)]
    irq: Option<Irq>,
    /// MSI instead of MSI-X on all hosts
    #[arg(long)]
    msi: bool,
    /// No power management on all hosts: no wake events, a suspended host interface misses a plug
    #[arg(long)]
    no_pm: bool,
    /// Link generation of all hosts
    #[arg(long = "gen", value_parser = clap::value_parser!(u8).range(2..=4))]
    generation: Option<u8>,
    /// Seed of random faults
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Packets take their time on the wire, in real time
    #[arg(long)]
    wire_time: bool,
    /// Milliseconds that an XDomain message takes from one host to the other
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u64).range(0..=1000))]
    latency: u64,
    /// Commands with their times, one per line
    #[arg(long)]
    script: Option<PathBuf>,
    /// Write a trace as pcap-ng; 'vcable trace FILE' prints it
    #[arg(long)]
    trace: Option<PathBuf>,
    /// Payload bytes of a frame that the trace keeps
    #[arg(long, default_value_t = 128)]
    snap: usize,
    /// Socket for commands
    #[arg(long)]
    control: Option<PathBuf>,
}

fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Cmd::Serve(args) => serve_world(&args),
        Cmd::Ctl { socket, command } => serve::ask(&socket, &command.join(" ")).map(|answer| {
            if !answer.is_empty() {
                println!("{answer}");
            }
            ExitCode::SUCCESS
        }),
        Cmd::Trace { file, host, only } => print_trace(&file, host.as_deref(), only),
    };
    result.unwrap_or_else(|error| {
        eprintln!("vcable: {error}");
        ExitCode::FAILURE
    })
}

fn read(path: &Path) -> Result<String, ServeError> {
    std::fs::read_to_string(path).map_err(|what| ServeError::File { path: path.to_owned(), what })
}

fn topology(args: &Serve) -> Result<Topology, ServeError> {
    let mut topology = match Topology::preset(&args.topology) {
        Some(preset) => preset,
        None => {
            let text = read(Path::new(&args.topology)).inspect_err(|_| {
                eprintln!("vcable: built-in topologies are {}", PRESETS.join(", "));
            })?;
            Topology::parse(&text)?
        }
    };
    for host in &mut topology.hosts {
        // A link of generation 4 has two lanes.
        let least = if args.generation == Some(4) { 2 } else { host.lanes };
        host.lanes = args.lanes.unwrap_or(least);
        host.generation = args.generation.unwrap_or(host.generation);
        host.version_2 = args.router.map_or(host.version_2, |r| matches!(r, RouterVersion::V2));
        host.intel = args.irq.map_or(host.intel, |i| matches!(i, Irq::Intel));
        host.msi |= args.msi;
        host.pm &= !args.no_pm;
    }
    Ok(topology)
}

fn serve_world(args: &Serve) -> Result<ExitCode, ServeError> {
    let topology = topology(args)?;
    let script = match &args.script {
        Some(path) => Script::parse(&read(path)?, &topology)?,
        None => Script::default(),
    };
    let config = Config {
        topology,
        options: Options { seed: args.seed, wire_time: args.wire_time, latency: args.latency * time::MS },
        script,
        dir: args.dir.clone(),
        control: args.control.clone(),
        trace: args.trace.clone(),
        snap: args.snap,
    };
    let server = Server::start(config)?;
    for (name, path) in server.sockets() {
        println!("{name} {}", path.display());
    }
    println!("ready");
    let failures = server.run();
    if failures > 0 {
        eprintln!("vcable: {failures} failures of drivers on record");
        return Ok(ExitCode::FAILURE);
    }
    Ok(ExitCode::SUCCESS)
}

fn print_trace(file: &Path, host: Option<&str>, only: Option<Only>) -> Result<ExitCode, ServeError> {
    let bytes = std::fs::read(file).map_err(|what| ServeError::File { path: file.to_owned(), what })?;
    let trace = Trace::parse(&bytes)?;
    let width = trace.names.iter().map(String::len).max().unwrap_or(0);
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    for entry in &trace.entries {
        let name = trace.names.get(entry.host).map_or("?", String::as_str);
        let wanted = match only {
            None => true,
            Some(Only::Control) => matches!(entry.what, What::Control { .. }),
            Some(Only::Frame) => matches!(entry.what, What::Frame { .. }),
            Some(Only::Event) => matches!(entry.what, What::Event(_)),
        };
        if !wanted || host.is_some_and(|h| h != name) {
            continue;
        }
        let text = describe(&entry.what, entry.full_len);
        // A reader that has seen enough, such as head, closes the pipe.
        if writeln!(out, "{:>12} {name:width$} {text}", time::display(entry.at)).is_err() {
            break;
        }
    }
    Ok(ExitCode::SUCCESS)
}
