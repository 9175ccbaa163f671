//! `lspan wait`: until a peer is there.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::sync::mpsc::{RecvTimeoutError, channel};
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

/// How often it is looked whether the time is over.
const TICK: Duration = Duration::from_millis(50);

pub(crate) fn run(args: &WaitArgs) -> Result<Exit, Failure> {
    let interrupt = signals::interrupt()?;
    let since = Instant::now();
    let mut progress = Progress::new();
    // What a try under way says is worth the second that it takes for one address.
    let over = || interrupt.raised() || args.timeout.is_some_and(|most| since.elapsed() >= most.saturating_add(TRY));
    let mut why = String::from("no answer yet");
    loop {
        let (peer, serving) = (args.peer.clone(), args.serving);
        match tried(move || look(&peer, serving), over)? {
            Some(Ok(addr)) => {
                progress.clear();
                Out::default().text(&format!("{}\n", shown(&addr)))?;
                return Ok(Exit::Ok);
            }
            Some(Err(Miss::Never(error))) => return Err(error),
            Some(Err(Miss::Yet(said))) => why = said,
            None => {}
        }
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

/// What a try finds; `None` where it is over before. It takes a second for each address, and a resolver that does not answer far longer: its
/// thread ends with it, or with the process.
fn tried<T: Send + 'static>(
    look: impl FnOnce() -> T + Send + 'static,
    over: impl Fn() -> bool,
) -> Result<Option<T>, Failure> {
    let (to, from) = channel();
    let look = move || drop(to.send(look()));
    let spawned = thread::Builder::new().name("look".into()).spawn(look);
    spawned.map_err(|error| Failure::system("a thread that looks for the peer", &error))?;
    loop {
        match from.recv_timeout(TICK) {
            Ok(found) => return Ok(Some(found)),
            Err(RecvTimeoutError::Timeout) if !over() => {}
            Err(_) => return Ok(None),
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_try_that_does_not_end_is_left_when_the_time_is_over() {
        let (keep, never) = channel::<()>();
        assert!(tried(move || never.recv(), || true).unwrap().is_none());
        drop(keep);
        assert_eq!(tried(|| 7, || false).unwrap(), Some(7));
    }
}
