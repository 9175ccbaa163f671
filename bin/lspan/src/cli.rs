//! Every command and option, once. Help, manual pages and completions are made from this.

use std::path::PathBuf;
use std::time::Duration;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{Args, Parser, Subcommand, ValueEnum};
use linkspan_fabric::MemoryName;
use linkspan_perf::units::{self, BadValue};

use crate::exit;
pub(crate) use link::{LinkCommand, ModeName};
pub(crate) use stats::{MetricsArgs, StatsArgs, TopArgs};

pub(crate) mod files;
mod link;
mod stats;

/// linkspan: memory to memory over any cable.
///
/// Without a command: shows what this machine has and measures every path on it between two processes.
#[derive(Debug, Parser)]
#[command(name = "lspan", version, about, after_long_help = exit::TABLE, max_term_width = 110)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Show cables, interfaces, RDMA devices and GPUs, and why each path is or is not used
    Status(StatusArgs),
    /// Show the mesh of hosts joined by direct cables: which hosts a cable connects, the route of each pair, what is wrong
    /// and the command that fixes it
    ///
    /// Listens for as long as --wait says. Sees hosts that run a job with LINKSPAN_MESH_PORT, `lspan mesh --serve`, or
    /// `lspan mesh` at the same time. Needs LINKSPAN_PSK_FILE.
    Mesh(MeshArgs),
    /// Find what is wrong with this machine and its cables, what it costs and the command that fixes it
    #[command(
        after_long_help = "Changes nothing, and needs neither root nor a running service; as root it also reads the firewall's rules. Exit code 0 if \
                           nothing is wrong, 3 if something is slower than it could be, 1 if a path that should work does not. Two \
                           hosts: `ssh HOST lspan doctor --json > b.json`, `lspan doctor --json > a.json`, `lspan doctor --merge a.json b.json`."
    )]
    Doctor(DoctorArgs),
    /// Wait until a peer can be reached: a cable has a host at its other end, or a host answers
    #[command(
        after_long_help = "Prints the address that answered. A host that refuses the connection counts as reached; --serving waits for \
                           `lspan perf serve` on it. Exit code 124 after --timeout."
    )]
    Wait(WaitArgs),
    /// Measure a path
    #[command(after_long_help = "The older spelling `--server [--device N]` and `--client [HOST] [--device N] --test \
                           bandwidth|latency|jitter|latency-load|mimo` is accepted, with and without `perf`.")]
    Perf {
        #[command(subcommand)]
        perf: Perf,
    },
    /// Test every part that can be tested here: one line each of pass, fail or skip
    Selftest(SelftestArgs),
    /// Collect information about this machine and linkspan in one archive for a bug report, without secrets
    Bugreport(BugreportArgs),
    /// Show what running processes have moved over linkspan
    Stats(StatsArgs),
    /// Watch what running processes move over linkspan, on this host or on several
    #[command(
        after_long_help = "Press h for the keys. Colours are left out where NO_COLOR is set. Other hosts run `lspan stats --json --watch`."
    )]
    Top(TopArgs),
    /// Show events of cables and jobs: plugged, unplugged, speed changed, paths lost, recovered or downgraded
    #[command(
        after_long_help = "If linkspand runs, it has recorded the events. Otherwise shows what this process can see itself: the cables that are plugged in, and \
                           what went wrong in running jobs whose statistics this user may read. linkspand shows jobs of other users to root and, \
                           with --all, to users that polkit allows."
    )]
    Events(EventsArgs),
    /// Print the statistics in the format of Prometheus, or serve them over HTTP
    #[command(
        after_long_help = "The 64 oldest jobs and 256 oldest processes have their own labels; the others are added up as workload \
                           \"other\". No privilege is needed: it shows the processes whose statistics this user may read."
    )]
    Metrics(MetricsArgs),
    /// Serve directories and services of this host to peers
    Files {
        #[command(subcommand)]
        files: files::Files,
    },
    /// List a peer's shares, or what is in one
    Ls(files::LsArgs),
    /// Send files and directory trees to a peer's share; an interrupted transfer resumes where it stopped
    #[command(after_long_help = files::TRANSFER)]
    Send(files::SendArgs),
    /// Get files and directory trees from a peer's share; an interrupted transfer resumes where it stopped
    #[command(after_long_help = files::TRANSFER)]
    Get(files::GetArgs),
    /// Make a directory equal to another one, here or at a peer; what is deleted or replaced goes to the trash
    #[command(after_long_help = files::MIRROR)]
    Mirror(files::MirrorArgs),
    /// List, restore or remove what was deleted or replaced
    #[command(after_long_help = files::TRASH)]
    Trash {
        #[command(subcommand)]
        trash: files::Trash,
    },
    /// Remove files or directories of a peer's share, not to the trash
    Rm(files::RmArgs),
    /// Rename a file or directory of a peer's share; nothing is replaced
    Mv(files::MvArgs),
    /// Count files and bytes below a directory of a peer's share
    Du(files::DuArgs),
    /// Compare local files with a peer's, both read back from the disk
    Verify(files::VerifyArgs),
    /// Mount a peer's share at a directory, read-only, or writable with --rw
    #[command(after_long_help = files::MOUNT)]
    Mount(files::MountArgs),
    /// Connect standard input and output to a service of a peer
    #[command(after_long_help = files::PIPE)]
    Pipe(files::PipeArgs),
    /// Forward connections from a port of this host to a service of a peer, until Ctrl-C
    ///
    /// Every local user who reaches the port uses the service in this user's name.
    Forward(files::ForwardArgs),
    /// Pair with a user of another host, so that each trusts the other from then on
    ///
    /// Without LINE: prints a line to type on the other host (the join line), and waits ten minutes until it is used there.
    /// With the line that the other host printed: pairs with it. Both sides show the same fingerprint. `lspan key list` shows the
    /// peers that are trusted.
    Pair(PairArgs),
    /// Manage this user's key and the peers that are trusted
    Key {
        #[command(subcommand)]
        key: KeyCommand,
    },
    /// Device-memory TCP: payload from the network card straight into GPU memory
    Devmem {
        #[command(subcommand)]
        devmem: Devmem,
    },
    /// Thunderbolt and USB4 cables: allow hosts, set up streams, choose direct use or a network interface
    Link {
        #[command(subcommand)]
        link: LinkCommand,
    },
    /// Run a command with the environment that makes NCCL and RCCL use linkspan, and print which paths it used
    #[command(
        after_long_help = "Works in front of a launcher, as in `lspan run -- torchrun train.py`, and behind one, as in `srun lspan run -- \
                           python train.py`. Sets the variables that `lspan env --nccl` prints, except those already set. Does not run the command if it \
                           cannot work (exit code 125). Ends with the command's exit code, or by its signal."
    )]
    Run(RunArgs),
    /// Show every LINKSPAN_ environment variable, its value here and what it does; or the variables that NCCL and RCCL need
    Env(EnvArgs),
    /// Write manual pages
    Man {
        /// Folder for the pages; it must exist
        #[arg(value_name = "DIR")]
        dir: PathBuf,
    },
    /// Write shell completions
    Completions {
        /// A shell (bash, zsh, fish, elvish, powershell) to print its completions, or a folder for all of them
        #[arg(value_name = "SHELL|DIR")]
        target: String,
    },
}

#[derive(Args, Debug)]
pub(crate) struct StatusArgs {
    /// Print JSON (schema linkspan.status/1)
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args, Debug)]
pub(crate) struct PairArgs {
    /// The line that the other host printed, or - to read it from standard input, where other users of this host do not see it
    #[arg(value_name = "LINE", num_args = 0..=16)]
    pub(crate) line: Vec<String>,
    /// What the peer is called here [default: as it calls itself]
    #[arg(long = "as", value_name = "NAME")]
    pub(crate) peer: Option<String>,
    /// What this side calls itself [default: this host's name]
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<String>,
    /// Print JSON, one object in a line (schema linkspan.pair/1)
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum KeyCommand {
    /// Make this user's key
    New {
        /// Replace an existing key; peers that trust the old key do not trust the new one
        #[arg(long)]
        replace: bool,
    },
    /// Print this user's public key, for `lspan key add` on another host
    Show {
        /// What this side calls itself [default: this host's name]
        #[arg(long, value_name = "NAME")]
        name: Option<String>,
    },
    /// List the peers that are trusted
    List {
        /// Print JSON (schema linkspan.keys/1)
        #[arg(long)]
        json: bool,
    },
    /// Trust a peer: reads the public key that `lspan key show` printed there from standard input
    ///
    /// With ssh to the peer, both ways: `lspan key show | ssh HOST lspan key add` and `ssh HOST lspan key show | lspan key add`.
    Add {
        /// What the peer is called here [default: as it calls itself]
        #[arg(long = "as", value_name = "NAME")]
        peer: Option<String>,
        /// An address or a host name of the peer; repeat it for more
        #[arg(long, value_name = "HOST")]
        host: Vec<String>,
    },
    /// Stop trusting a peer
    Forget {
        /// Its name or fingerprint, as `lspan key list` shows them
        #[arg(value_name = "NAME")]
        name: String,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum Devmem {
    /// Say for each network card whether it can receive into and send from GPU memory, what is missing, and how to get it
    #[command(
        after_long_help = "Changes nothing: it tests the driver with an invalid descriptor. As root it tests more. \
                           Exit code 0 if at least one card can, 4 if none can."
    )]
    Probe(ProbeArgs),
    /// Set up a network card for device-memory TCP and give processes access to its queues, until this command ends
    #[command(
        after_long_help = "Reserves the last receive queues for GPU memory: turns on flow rules (ntuple) and header split, and removes \
                           these queues from the RSS table. Then it waits: processes of the allowed users ask over a local socket in \
                           /run/linkspan to bind their GPU memory to the queues, and a flow rule steers each of their streams there. \
                           All changes are undone when the command ends, by Ctrl-C or a failure. If it is killed, a journal remains \
                           in /run/linkspan, from which the next `up`, or `lspan devmem down`, undoes them. Needs root (CAP_NET_ADMIN)."
    )]
    Up(UpArgs),
    /// Undo the changes to a network card that a killed `lspan devmem up` left behind
    #[command(
        after_long_help = "Needs root (CAP_NET_ADMIN). Does nothing if nothing is left, or while an `up` still runs."
    )]
    Down(DownArgs),
}

#[derive(Args, Debug)]
pub(crate) struct EventsArgs {
    /// Keep printing new events, until Ctrl-C
    #[arg(long)]
    pub(crate) follow: bool,
    /// Events of the jobs of all users
    #[arg(long)]
    pub(crate) all: bool,
    /// Print JSON, a line for each event (schema linkspan.event/1)
    #[arg(long)]
    pub(crate) json: bool,
    /// Without the service, on the machine whose sys and proc are here
    #[arg(long, value_name = "DIR", hide = true)]
    pub(crate) root: Option<PathBuf>,
}

#[derive(Args, Debug)]
pub(crate) struct DownArgs {
    /// The interface
    #[arg(value_name = "IFACE")]
    pub(crate) interface: String,
    /// Folder of the journal
    #[arg(long, value_name = "DIR", default_value = linkspan_fabric::devmem::client::FOLDER, hide = true)]
    pub(crate) folder: PathBuf,
}

#[derive(Args, Debug)]
pub(crate) struct UpArgs {
    /// The interface
    #[arg(value_name = "IFACE")]
    pub(crate) interface: String,
    /// Show what would be done, and change nothing
    #[arg(long)]
    pub(crate) plan: bool,
    /// Number of receive queues to reserve for GPU memory: the last ones
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub(crate) queues: u32,
    /// Queues for each process; no two processes share a queue
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub(crate) each: u32,
    /// Users, by number, whose processes may use the queues, in addition to root
    #[arg(long, value_name = "UID", value_delimiter = ',')]
    pub(crate) allow: Vec<u32>,
    /// Folder of the socket
    #[arg(long, value_name = "DIR", default_value = "/run/linkspan", hide = true)]
    pub(crate) folder: PathBuf,
}

#[derive(Args, Debug)]
pub(crate) struct ProbeArgs {
    /// Interfaces [default: all but loopback]
    #[arg(value_name = "IFACE")]
    pub(crate) interfaces: Vec<String>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args, Debug)]
pub(crate) struct DoctorArgs {
    /// Host to check too (cable, NAME, HOST or HOST:PORT): whether it can be reached, and with which packet size
    #[arg(value_name = "PEER", conflicts_with = "merge")]
    pub(crate) peer: Option<String>,
    /// Print JSON (schema linkspan.doctor/1)
    #[arg(long)]
    pub(crate) json: bool,
    /// Check several hosts together, from the output of `lspan doctor --json` on each
    #[arg(long, value_name = "FILE", num_args = 1..)]
    pub(crate) merge: Vec<PathBuf>,
    /// Also measure each path to PEER, which must run `lspan perf serve`, and compare with earlier results of this pair and equal rails
    /// with each other. Measures nothing while a process has connections over linkspan
    #[arg(long, requires = "peer", conflicts_with_all = ["merge", "no_probe", "root"])]
    pub(crate) speed: bool,
    /// Send no packets
    #[arg(long, conflicts_with = "merge")]
    pub(crate) no_probe: bool,
    /// Folder with the sys, proc, dev, etc, run and lib of another machine
    #[arg(long, value_name = "DIR", hide = true, conflicts_with = "merge")]
    pub(crate) root: Option<PathBuf>,
}

#[derive(Args, Debug)]
pub(crate) struct MeshArgs {
    /// Print JSON (schema linkspan.mesh/1)
    #[arg(long)]
    pub(crate) json: bool,
    /// Measure every cable, also those between other hosts
    #[arg(long)]
    pub(crate) check: bool,
    /// How long to listen before the mesh is shown
    #[arg(long, value_name = "TIME", value_parser = time, default_value = "4s")]
    pub(crate) wait: Duration,
    /// Keep running: find neighbours and relay for them until Ctrl-C
    #[arg(long, conflicts_with_all = ["json", "check", "wait"])]
    pub(crate) serve: bool,
}

#[derive(Args, Debug)]
pub(crate) struct BugreportArgs {
    /// Show what would be in it, and write nothing
    #[arg(long)]
    pub(crate) list: bool,
    /// The archive, which must not exist [default: lspan-bugreport-HOST-TIME.tar here]
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
}

#[derive(Args, Debug)]
pub(crate) struct WaitArgs {
    /// The peer: cable, cable1 and so on, the name of a paired peer or of a host of the mesh, HOST or HOST:PORT
    #[arg(value_name = "PEER")]
    pub(crate) peer: String,
    /// Give up after this time, as in 30s [default: wait without limit]
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub(crate) timeout: Option<Duration>,
    /// Wait until `lspan perf serve` answers there
    #[arg(long)]
    pub(crate) serving: bool,
}

#[derive(Args, Debug)]
pub(crate) struct RunArgs {
    /// Fail instead of using a path slower than possible (LINKSPAN_STRICT=1); exit with 3 instead of 0 if a downgrade was counted nevertheless
    #[arg(long)]
    pub(crate) strict: bool,
    /// The command and its arguments
    #[arg(value_name = "CMD", required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    pub(crate) command: Vec<std::ffi::OsString>,
}

#[derive(Args, Debug)]
pub(crate) struct EnvArgs {
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// Print what NCCL and RCCL need on this machine, as lines for a shell: eval "$(lspan env --nccl)"
    #[arg(long)]
    pub(crate) nccl: bool,
    /// The same for a container, a pod or a batch script: settings, devices, groups, limits and mounts
    #[arg(long = "for", value_name = "WHAT", value_enum, requires = "nccl", conflicts_with = "json")]
    pub(crate) target: Option<Target>,
}

/// What a job runs in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Target {
    /// A toolbox of this host
    Toolbox,
    /// podman run
    Podman,
    /// docker run
    Docker,
    /// A pod of Kubernetes
    K8s,
    /// A batch script for Slurm
    Sbatch,
}

#[derive(Args, Debug)]
pub(crate) struct SelftestArgs {
    /// Host that runs `lspan perf serve`, as cable, NAME, HOST or HOST:PORT
    #[arg(value_name = "PEER")]
    pub(crate) peer: Option<String>,
    /// Plugin file to load, in place of those in LD_LIBRARY_PATH and the usual folders
    #[arg(long, value_name = "FILE")]
    pub(crate) plugin: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// Be the child that loads a plugin
    #[arg(long, hide = true, value_name = "FILE")]
    pub(crate) load: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Perf {
    /// Wait for peers and be the other side of their tests
    #[command(
        after_long_help = "Sockets that a service manager has opened and passes (LISTEN_FDS, sd_listen_fds(3)) take the place of --bind and --port; \
                           without --open only paired peers and holders of the cluster key are accepted there. lspan-perf.socket is such a user \
                           unit, off by default: systemctl --user enable --now lspan-perf.socket"
    )]
    Serve(ServeArgs),
    /// Bandwidth and message rate
    Bw(BulkArgs),
    /// Latency: half round trips of a ping-pong
    Lat(Measure),
    /// Variation of latency: a ping-pong at a fixed pace
    Jitter(JitterArgs),
    /// Latency with and without bulk data moving at the same time
    Load(LoadArgs),
    /// Several streams at once
    Multi(MultiArgs),
    /// bw, lat, jitter, load and multi, one after another
    All(Measure),
    /// Every path to a peer, one after another, in one table
    Compare(CompareArgs),
    /// Bandwidth of each pair of several hosts or ranks, in one table; outliers are named
    #[command(
        after_long_help = "With HOSTs it starts `lspan perf serve` on each in turn, and `lspan perf bw` on the others, by ssh. Without any it is started on \
                           each host by mpirun, srun or torchrun: the ranks find each other through the directory --dir, accept only each other (by a key of the \
                           job in it), and rank 0 prints. Exit code 3 if a pair is below 0.7 of the median, 4 if ranks are missing."
    )]
    Matrix(MatrixArgs),
    /// Connections only: set up and closed one after another
    #[command(mut_args(hide_what_moves_data))]
    Connect(Measure),
    /// One-sided writes into the peer's memory, printed like google-benchmark
    Write(OneSided),
    /// One-sided reads from the peer's memory, printed like google-benchmark
    Read(OneSided),
}

#[derive(Args, Debug, Default)]
pub(crate) struct ServeArgs {
    /// Address to listen on; repeat it for more [default: loopback; with a cluster key or paired peers every usable interface]
    #[arg(long, value_name = "ADDR")]
    pub(crate) bind: Vec<std::net::IpAddr>,
    /// Accept every host that can reach this one, paired or not; without --bind listens on every usable interface and on
    /// loopback. If a cluster key (LINKSPAN_PSK_FILE) is set, clients still need it
    #[arg(long)]
    pub(crate) open: bool,
    /// TCP port to listen on
    #[arg(long, value_name = "N", default_value_t = linkspan_service::rendezvous::PERF.port)]
    pub(crate) port: u16,
    /// Memory for the tests of all clients together, MiB [default: 6144, or half of this host's]
    #[arg(long, value_name = "MIB", value_parser = clap::value_parser!(u64).range(1..=1 << 24))]
    pub(crate) memory: Option<u64>,
    /// End the session of a client that is silent for this time [default: 1m]
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub(crate) idle: Option<Duration>,
    /// End after one session
    #[arg(long)]
    pub(crate) once: bool,
    /// Device number, as `lspan status` lists them
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) device: usize,
    /// End when standard input ends, as that of a command by ssh does
    #[arg(long, hide = true)]
    pub(crate) follow: bool,
    /// Be the other side of a parent process: the handle goes to stdout, the end of stdin ends us
    #[arg(long, hide = true)]
    pub(crate) stdio: bool,
    /// Memory of this side's messages: host, cuda:N or hip:N
    #[arg(long, value_name = "MEM", default_value_t = MemoryName::Host)]
    pub(crate) mem: MemoryName,
    /// As in the other tests, for the parent
    #[arg(long, hide = true, value_parser = path(), default_value = "auto")]
    pub(crate) path: PathArg,
}

#[derive(Args, Debug)]
pub(crate) struct CompareArgs {
    /// Peer that runs `lspan perf serve`: cable, NAME, HOST or HOST:PORT
    #[arg(value_name = "PEER")]
    pub(crate) peer: String,
    /// Length of each measurement
    #[arg(short, long, value_name = "TIME", value_parser = time, default_value = "1s")]
    pub(crate) duration: Duration,
    /// Print JSON (schema linkspan.compare/1)
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args, Debug)]
pub(crate) struct MatrixArgs {
    /// Hosts as for ssh, with =ADDRESS if the other hosts reach it by another address; without hosts, the ranks of the launcher that
    /// started this (mpirun, srun or torchrun)
    #[arg(value_name = "HOST", num_args = 2..)]
    pub(crate) hosts: Vec<String>,
    /// Program that starts a command on another host
    #[arg(long, value_name = "COMMAND", default_value = "ssh", requires = "hosts")]
    pub(crate) rsh: String,
    /// Path of lspan on the hosts
    #[arg(long, value_name = "PROGRAM", default_value = "lspan", requires = "hosts")]
    pub(crate) lspan: String,
    /// TCP port of the servers
    #[arg(long, value_name = "N", default_value_t = linkspan_service::rendezvous::PERF.port, requires = "hosts")]
    pub(crate) port: u16,
    /// The servers accept every host that can reach them; without this, only paired peers and holders of the cluster key
    #[arg(long, requires = "hosts")]
    pub(crate) open: bool,
    /// Directory that all ranks share, to find each other [default: the working directory]
    #[arg(long, value_name = "DIR", conflicts_with = "hosts")]
    pub(crate) dir: Option<PathBuf>,
    /// How long rank 0 waits for the other ranks, and how much longer than its duration a measurement may take
    #[arg(long, value_name = "TIME", value_parser = time, default_value = "60s", conflicts_with = "hosts")]
    pub(crate) timeout: Duration,
    /// Length of each measurement
    #[arg(short, long, value_name = "TIME", value_parser = time, default_value = "1s")]
    pub(crate) duration: Duration,
    /// Print JSON (schema linkspan.matrix/1)
    #[arg(long)]
    pub(crate) json: bool,
    /// Write a page with a heat map, everything in one file
    #[arg(long, value_name = "FILE.html")]
    pub(crate) report: Option<PathBuf>,
}

/// What every test takes.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct Measure {
    /// Peer that runs `lspan perf serve`: cable (cable1, cable2: the host at its other end), the name of a paired peer or of a host of
    /// the mesh, HOST or HOST:PORT; without it the other side is started on this machine
    #[arg(value_name = "PEER")]
    pub(crate) peer: Option<String>,
    /// Message sizes: 8,64K,1M or a range 8..1M (factor 2) or 8..1M:4
    #[arg(short, long, value_name = "SIZES", value_parser = sizes)]
    pub(crate) size: Option<Sizes>,
    /// Number of messages (round trips, connections) to time, instead of --duration
    #[arg(short = 'n', long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..), conflicts_with = "duration")]
    pub(crate) iters: Option<u64>,
    /// Length of the timed part of each size, as in 500ms or 10s [default: 1s; jitter 3s]
    #[arg(short, long, value_name = "TIME", value_parser = time)]
    pub(crate) duration: Option<Duration>,
    /// Messages before the timed part [default: 32 MiB, but 2 to 1000 messages, and a second at most]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(0..=1_000_000))]
    pub(crate) warmup: Option<u32>,
    /// Messages in flight [default: 32 up to 4K, else 8]
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub(crate) window: Option<u32>,
    /// Path to take [default: LINKSPAN_PATH, else auto]
    #[arg(long, value_parser = path(), default_value = "auto", hide_default_value = true)]
    pub(crate) path: PathArg,
    /// Memory of this side's messages: host, cuda:N or hip:N (the serving side has its own --mem). The path line says
    /// whether device memory is reached directly or copied through host memory (staged), and why
    #[arg(long, value_name = "MEM", default_value_t = MemoryName::Host)]
    pub(crate) mem: MemoryName,
    /// How both sides wait: spin; adaptive spins 50 us, then sleeps; sleep
    #[arg(long, value_enum, default_value_t = WaitArg::Adaptive)]
    pub(crate) wait: WaitArg,
    /// Device number, as `lspan status` lists them
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) device: usize,
    /// Time limit for each size [default: 1 minute plus 4 times the duration]
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub(crate) timeout: Option<Duration>,
    /// Do not check the data
    #[arg(long)]
    pub(crate) no_verify: bool,
    /// Seed of the data
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
    /// Also measure what the machine can do without linkspan, and print linkspan's result as a ratio: plain TCP, plain TCP with this
    /// window, a copy by both processes at once, memcpy; in the same run, with the same --wait. For lat, and bw to the peer
    #[arg(long)]
    pub(crate) baseline: bool,
    /// Number of interleaved pairs (linkspan, baseline)
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(10..=1000), requires = "baseline")]
    pub(crate) rounds: u32,
    /// Columns of the table
    #[arg(long, value_enum, default_value_t = Format::Human)]
    pub(crate) format: Format,
    /// Print a histogram below each latency row
    #[arg(long)]
    pub(crate) histogram: bool,
    /// Print one JSON document (schema linkspan.perf/1)
    #[arg(long, conflicts_with = "json_stream")]
    pub(crate) json: bool,
    /// Print a line of JSON for each result as it comes (schema linkspan.perf.stream/1)
    #[arg(long)]
    pub(crate) json_stream: bool,
    /// Write a page with plots, everything in one file
    #[arg(long, value_name = "FILE.html")]
    pub(crate) report: Option<PathBuf>,
}

#[derive(Args, Clone, Debug, Default)]
pub(crate) struct BulkArgs {
    #[command(flatten)]
    pub(crate) measure: Measure,
    /// Direction of the data, as this side sees it
    #[arg(long, value_enum, default_value_t = DirectionArg::Send)]
    pub(crate) direction: DirectionArg,
    /// Both ways at once, the same as --direction both
    #[arg(long, conflicts_with = "direction")]
    pub(crate) bidir: bool,
}

#[derive(Args, Clone, Debug)]
pub(crate) struct JitterArgs {
    #[command(flatten)]
    pub(crate) measure: Measure,
    /// One round trip per this time
    #[arg(long, value_name = "TIME", value_parser = interval, default_value = "1ms")]
    pub(crate) interval: Duration,
}

#[derive(Args, Clone, Debug)]
pub(crate) struct LoadArgs {
    #[command(flatten)]
    pub(crate) bulk: BulkArgs,
    /// Size of the bulk messages
    #[arg(long, value_name = "SIZE", value_parser = units::size, default_value = "1M")]
    pub(crate) load_size: u64,
}

#[derive(Args, Clone, Debug)]
pub(crate) struct MultiArgs {
    #[command(flatten)]
    pub(crate) bulk: BulkArgs,
    /// Connections at once
    #[arg(short = 'P', long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub(crate) streams: u32,
}

/// `perf connect` moves no data: options about data, and about the time that they take, are refused or change nothing.
fn hide_what_moves_data(arg: clap::Arg) -> clap::Arg {
    let moves = ["size", "warmup", "window", "wait", "timeout", "no_verify", "seed", "baseline", "rounds"]
        .contains(&arg.get_id().as_str());
    if moves { arg.hide(true) } else { arg }
}

/// What the one-sided tests take.
#[derive(Args, Clone, Debug)]
pub(crate) struct OneSided {
    /// Host that runs `lspan perf serve`, as cable, NAME, HOST or HOST:PORT; without it the other side is started on this machine
    #[arg(value_name = "PEER")]
    pub(crate) peer: Option<String>,
    /// Sizes: 8,64K,1M or a range 8K..256M (factor 2) or 8K..256M:4
    #[arg(short, long, value_name = "SIZES", value_parser = sizes, default_value = "8K..256M")]
    pub(crate) size: Sizes,
    /// Iterations of each size, instead of --duration
    #[arg(short = 'n', long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..), conflicts_with = "duration")]
    pub(crate) iters: Option<u64>,
    /// Minimum time for each size: the number of iterations grows until one run takes this long
    #[arg(short, long, value_name = "TIME", value_parser = time, default_value = "500ms")]
    pub(crate) duration: Duration,
    /// Path to take [default: LINKSPAN_PATH, else auto]
    #[arg(long, value_parser = path(), default_value = "auto", hide_default_value = true)]
    pub(crate) path: PathArg,
    /// Device number, as `lspan status` lists them
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) device: usize,
    /// Time limit for one operation
    #[arg(long, value_name = "TIME", value_parser = time, default_value = "60s")]
    pub(crate) timeout: Duration,
    /// Do not check the data
    #[arg(long)]
    pub(crate) no_verify: bool,
    /// Print JSON in the layout of google-benchmark
    #[arg(long)]
    pub(crate) json: bool,
}

/// Sizes in the order given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Sizes(pub(crate) Vec<u64>);

fn sizes(text: &str) -> Result<Sizes, BadValue> {
    units::sizes(text).map(Sizes)
}

fn time(text: &str) -> Result<Duration, BadValue> {
    units::time(text)
}

fn interval(text: &str) -> Result<Duration, BadValue> {
    units::interval(text)
}

/// A path by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PathArg(&'static str);

impl PathArg {
    pub(crate) const AUTO: PathArg = PathArg("auto");
    pub(crate) const TCP: PathArg = PathArg("tcp");
    pub(crate) const SHM: PathArg = PathArg("shm");
    pub(crate) const VERBS: PathArg = PathArg("verbs");

    pub(crate) fn name(self) -> &'static str {
        self.0
    }
}

impl Default for PathArg {
    fn default() -> PathArg {
        PathArg::AUTO
    }
}

/// Those that the list of transports has.
fn path() -> impl TypedValueParser<Value = PathArg> {
    let all = linkspan_fabric::paths(&linkspan_transports::all());
    let value = |(name, title): &(&'static str, &'static str)| match *name == PathArg::AUTO.0 {
        true => PossibleValue::new(*name).help(*title),
        false => PossibleValue::new(*name).help(format!("only {title}")),
    };
    let values: Vec<PossibleValue> = all.iter().map(value).collect();
    let found =
        move |name: String| all.iter().find(|path| path.0 == name).map_or(PathArg::AUTO, |path| PathArg(path.0));
    PossibleValuesParser::new(values).map(found)
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum WaitArg {
    /// Poll without pause
    Spin,
    /// Spin 50 us, then sleep
    #[default]
    Adaptive,
    /// Sleep at once
    Sleep,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum DirectionArg {
    /// To the peer
    #[default]
    Send,
    /// From the peer
    Recv,
    /// Both ways at once
    Both,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// Human-readable
    #[default]
    Human,
    /// As nccl-tests prints them
    Nccl,
    /// As perftest prints them
    Perftest,
}

#[cfg(test)]
mod tests;
