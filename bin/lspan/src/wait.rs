//! `lspan wait`: until a peer is there.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use linkspan_service::rendezvous::{self, PERF, RendezvousError, shown};

use crate::cli::WaitArgs;
use crate::exit::{Exit, Failure};
use crate::out::{Out, Progress};
use crate::signals;

/// From one try to the next: a cable takes some seconds to come up.
const PAUSE: Duration = Duration::from_millis(300);

/// Longest wait for an answer to one try.
const TRY: Duration = Duration::from_secs(1);

pub(crate) fn run(args: &WaitArgs) -> Result<Exit, Failure> {
    let interrupt = signals::interrupt()?;
    let since = Instant::now();
    let mut progress = Progress::new();
    loop {
        let why = match look(&args.peer, args.serving) {
            Ok(addr) => {
                progress.clear();
                Out::default().text(&format!("{}\n", shown(&addr)))?;
                return Ok(Exit::Ok);
            }
            Err(Miss::Never(error)) => return Err(error),
            Err(Miss::Yet(why)) => why,
        };
        if interrupt.raised() {
            return Ok(Exit::Interrupted);
        }
        let waited = since.elapsed();
        if args.timeout.is_some_and(|most| waited >= most) {
            progress.clear();
            let text = format!("LS0742 {} could not be reached within {:.0} s: {why}", args.peer, waited.as_secs_f64());
            return Err(Failure::new(Exit::Timeout, text));
        }
        progress.say(&format!("waiting for {}: {why}", args.peer));
        thread::sleep(PAUSE);
    }
}

/// Why a peer is not there.
enum Miss {
    /// It may come.
    Yet(String),
    /// Waiting does not help.
    Never(Failure),
}

fn look(peer: &str, serving: bool) -> Result<SocketAddr, Miss> {
    let addrs = rendezvous::addresses(peer, PERF).map_err(|error| match error {
        RendezvousError::Name { .. } | RendezvousError::Cable { .. } => Miss::Yet(error.to_string()),
        other => Miss::Never(other.into()),
    })?;
    let mut why = String::from("the name has no address");
    for addr in addrs {
        let tried = match serving {
            true => rendezvous::answers(&addr, PERF, TRY),
            false => TcpStream::connect_timeout(&addr, TRY).map(drop),
        };
        match tried {
            Ok(()) => return Ok(addr),
            // Somebody is there and says no.
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused && !serving => return Ok(addr),
            Err(error) => why = format!("{}: {error}", shown(&addr)),
        }
    }
    Err(Miss::Yet(if serving { format!("{why}; {} there", PERF.begin) } else { why }))
}
