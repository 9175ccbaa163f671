//! What users of older projects type, and what replaces it.

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

#[cfg(test)]
mod tests;
