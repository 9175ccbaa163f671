//! What users of older projects type and set, and what replaces it.

use std::ffi::OsString;

use clap::{Parser, ValueEnum};

use crate::cli::{BulkArgs, Command, JitterArgs, LoadArgs, Measure, MultiArgs, Perf, ServeArgs};

/// The older spelling of `lspan perf`.
#[derive(Debug, Parser)]
#[command(
    name = "lspan perf",
    about = "The older spelling of lspan perf",
    override_usage = "lspan perf --server [--device N]\n       lspan perf --client [HOST] [--device N] [--test bandwidth|latency|jitter|latency-load|mimo]"
)]
struct Older {
    /// Be the serving side
    #[arg(long, conflicts_with_all = ["client", "test"])]
    server: bool,
    /// Be the asking side; without HOST the other side is started on this machine
    #[arg(long, value_name = "HOST", num_args = 0..=1, required_unless_present = "server")]
    client: Option<Option<String>>,
    /// Device number
    #[arg(long, value_name = "N", default_value_t = 0)]
    device: usize,
    /// What to measure
    #[arg(long, value_enum, default_value_t = OlderTest::Bandwidth)]
    test: OlderTest,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum OlderTest {
    Bandwidth,
    Latency,
    Jitter,
    LatencyLoad,
    Mimo,
}

/// The command that an older spelling means; `None` where it is none. Ends the program where it is malformed.
pub(crate) fn spelling(args: &[OsString]) -> Option<Command> {
    let mut rest = args.get(1..)?;
    if rest.first().is_some_and(|arg| arg == "perf") {
        rest = &rest[1..];
    }
    // Every current command line begins with a command or with --help or --version.
    let first = rest.first()?.to_str()?;
    if !["--server", "--client", "--device", "--test"].iter().any(|name| first.split('=').next() == Some(name)) {
        return None;
    }
    let line = args.first().into_iter().chain(rest);
    let older = Older::try_parse_from(line).unwrap_or_else(|error| error.exit());
    Some(Command::Perf { perf: older.perf() })
}

impl Older {
    fn perf(self) -> Perf {
        let Some(peer) = self.client else {
            let port = linkspan_service::rendezvous::PERF.port;
            return Perf::Serve(ServeArgs { port, device: self.device, open: true, ..ServeArgs::default() });
        };
        let measure = Measure { peer, device: self.device, seed: 1, ..Measure::default() };
        let bulk = BulkArgs { measure: measure.clone(), ..BulkArgs::default() };
        match self.test {
            OlderTest::Bandwidth => Perf::Bw(bulk),
            OlderTest::Latency => Perf::Lat(measure),
            OlderTest::Jitter => Perf::Jitter(JitterArgs { measure, interval: std::time::Duration::from_millis(1) }),
            OlderTest::LatencyLoad => Perf::Load(LoadArgs { bulk, load_size: 1 << 20 }),
            OlderTest::Mimo => Perf::Multi(MultiArgs { bulk, streams: 4 }),
        }
    }
}

/// Environment names of older projects: the name, or its beginning where it ends in `*`, and what replaces it.
const NAMES: &[(&str, &str)] = &[
    ("RCCL_NET_PLUGIN", "RCCL reads no such name; set NCCL_NET_PLUGIN=linkspan"),
    ("NCCL_NET_PLUGIN=mesh", "NCCL_NET_PLUGIN=linkspan"),
    ("NCCL_NET_PLUGIN=tb5", "NCCL_NET_PLUGIN=linkspan"),
    ("RCCL_PLUGIN_DIR", "RCCL reads no such name; put the folder into LD_LIBRARY_PATH"),
    ("RCCL_DEBUG", "RCCL reads no such name; set NCCL_DEBUG=INFO"),
    ("NCCL_MESH_TIMEOUT_MS", "LINKSPAN_CONNECT_TIMEOUT_MS"),
    ("NCCL_MESH_RETRY_COUNT", "LINKSPAN_CONNECT_TIMEOUT_MS; retries happen inside it"),
    ("NCCL_MESH_FAST_FAIL", "LINKSPAN_CONNECT_TIMEOUT_MS"),
    ("NCCL_MESH_DEBUG", "NCCL_DEBUG=INFO inside NCCL, LINKSPAN_LOG=info outside"),
    ("NCCL_MESH_ENABLE_RELAY", "LINKSPAN_MESH_PORT and LINKSPAN_PSK_FILE (docs/mesh.md)"),
    ("NCCL_MESH_MAX_HOPS", "LINKSPAN_MESH_PORT and LINKSPAN_PSK_FILE (docs/mesh.md); the shortest routes are taken"),
    ("NCCL_MESH_GID_INDEX", "found by itself; LINKSPAN_GID_INDEX overrides"),
    ("NCCL_MESH_DISABLE_RDMA", "LINKSPAN_PATH=tcp"),
    ("NCCL_MESH_*", "nothing needs to be set; LINKSPAN_IFNAME chooses interfaces"),
    ("UCCL_TCPX_UNPACK_IMPL", "LINKSPAN_UNPACK, with the same values and auto"),
    ("UCCL_TCPX_*", "nothing needs to be set; `lspan devmem probe` shows what device-memory TCP needs"),
    ("ODL_TB5_*", "nothing needs to be set; LINKSPAN_THUNDERBOLT_TIER chooses how a cable is used"),
];

/// The older names among `names`, each with what replaces it.
pub(crate) fn names<'a>(names: impl Iterator<Item = &'a str>) -> Vec<(&'a str, &'static str)> {
    let meaning = |name: &str| {
        let hit = |pattern: &str| match pattern.strip_suffix('*') {
            Some(start) => name.starts_with(start),
            None => name == pattern,
        };
        NAMES.iter().find(|(pattern, _)| hit(pattern)).map(|(_, text)| *text)
    };
    let mut found: Vec<_> = names.filter_map(|name| Some((name, meaning(name)?))).collect();
    found.sort_unstable();
    found
}

#[cfg(test)]
mod tests;
