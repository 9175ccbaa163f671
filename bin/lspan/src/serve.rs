//! `lspan perf serve`: the other side of a test.

use std::io::{self, BufRead, Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use linkspan_fabric::{Channel, Gpu, chain};
use linkspan_net::WaitSet;
use linkspan_perf::{Interrupt, Limits, LinkError, PerfError, serve_with};

use crate::child;
use crate::cli::ServeArgs;
use crate::exit::{Exit, Failure};
use crate::fabric;
use crate::link::FabricLink;
use crate::onesided::OneSidedOffers;
use crate::rendezvous::RendezvousServer;
use crate::signals;

/// Sessions at once; a client beyond that is refused at once.
const SESSIONS: usize = 128;

/// Longest that sessions may take to close after Ctrl-C.
const FAREWELL: Duration = Duration::from_secs(2);

pub(crate) fn run(args: &ServeArgs) -> Result<Exit, Failure> {
    let interrupt = match args.stdio {
        true => signals::leave_ctrl_c_to_the_parent().map(|()| Interrupt::new())?,
        false => signals::interrupt()?,
    };
    let limits = Limits { cma: fabric::cma()?, ..Limits::default() };
    let gpu = fabric::gpu(args.mem)?;
    let fabric = match args.stdio {
        true => fabric::local(args.path, args.mem, true)?,
        false => fabric::open(args.path, args.mem)?,
    };
    let listener = fabric.listen(args.device)?;
    let rendezvous_server = if args.stdio {
        follow_parent()?;
        let line = child::encode(&listener.handle());
        let mut out = io::stdout().lock();
        writeln!(out, "{line}")
            .and_then(|()| out.flush())
            .map_err(|error| Failure::system("standard output", &error))?;
        None
    } else {
        let rendezvous_server = RendezvousServer::open(&fabric, &args.bind, args.port)?;
        let addrs: Vec<String> = rendezvous_server.addrs().iter().map(ToString::to_string).collect();
        eprintln!("lspan: waiting on {}; measure with `lspan perf bw HOST` from another host", addrs.join(", "));
        Some(rendezvous_server)
    };

    let sessions = Arc::new(AtomicUsize::new(0));
    let (mut waits, mut fds) = (WaitSet::new(), Vec::new());
    let mut begun = false;
    loop {
        if let Some(rendezvous_server) = &rendezvous_server {
            rendezvous_server.serve(&listener.handle());
        }
        loop {
            match listener.accept() {
                Ok(Some(channel)) => {
                    begun = true;
                    let offers = OneSidedOffers::new(args.path, args.device, args.stdio);
                    begin(channel, gpu.as_ref(), &sessions, limits, &interrupt, args.stdio, offers)?;
                }
                Ok(None) => break,
                // One connection that failed is not the end of the service.
                Err(error) => {
                    eprintln!("lspan: a connection was not accepted: {}", chain(&error));
                    break;
                }
            }
        }
        if args.once && begun && sessions.load(Ordering::Acquire) == 0 {
            return Ok(Exit::Ok);
        }
        if interrupt.raised() {
            // Each session closes its connection, so that its peer learns of it, and the last one takes this process's
            // statistics away.
            let until = Instant::now() + FAREWELL;
            while sessions.load(Ordering::Acquire) > 0 && Instant::now() < until {
                thread::sleep(Duration::from_millis(5));
            }
            return Ok(Exit::Interrupted);
        }
        waits.clear();
        fds.clear();
        listener.wait_fds(&mut fds);
        if let Some(rendezvous_server) = &rendezvous_server {
            rendezvous_server.wait_fds(&mut fds);
        }
        fds.iter().for_each(|fd| {
            waits.add(*fd);
        });
        // Deadlines of half-open connections, and the end of --once, have no descriptor.
        let _ = waits.wait(Some(Duration::from_millis(100)));
    }
}

fn begin(
    channel: Channel,
    gpu: Option<&Arc<dyn Gpu>>,
    sessions: &Arc<AtomicUsize>,
    limits: Limits,
    interrupt: &Interrupt,
    quiet: bool,
    mut offers: OneSidedOffers,
) -> Result<(), Failure> {
    if sessions.load(Ordering::Acquire) >= SESSIONS {
        eprintln!("lspan: a peer was refused: {SESSIONS} sessions are running");
        return Ok(());
    }
    let mut link = match FabricLink::new(channel, gpu) {
        Ok(link) => link,
        Err(error) => {
            eprintln!("lspan: a peer was refused: {error}");
            return Ok(());
        }
    };
    sessions.fetch_add(1, Ordering::AcqRel);
    let (done, interrupt) = (Arc::clone(sessions), interrupt.clone());
    let session = move || {
        // A parent says itself what went wrong with a session.
        match serve_with(&mut link, &limits, &interrupt, &mut offers) {
            Ok(()) | Err(PerfError::Link(LinkError::Interrupted)) => {}
            Err(_) if quiet => {}
            Err(error) => eprintln!("lspan: a session ended: {}", chain(&error)),
        }
        drop(link);
        done.fetch_sub(1, Ordering::AcqRel);
    };
    thread::Builder::new()
        .name("session".into())
        .spawn(session)
        .map(drop)
        .map_err(|error| Failure::system("a thread for the session", &error))
}

/// Ends this process when the parent has gone: its end of our standard input is closed then, however it went.
fn follow_parent() -> Result<(), Failure> {
    let watch = || {
        let mut rest = Vec::new();
        let _ = io::stdin().lock().take(1 << 16).read_until(0, &mut rest);
        std::process::exit(0);
    };
    thread::Builder::new()
        .name("parent".into())
        .spawn(watch)
        .map(drop)
        .map_err(|error| Failure::system("a thread", &error))
}
