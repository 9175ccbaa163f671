//! `lspan perf serve`: the other side of a test.

use std::io::{self, BufRead, Read, Write};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use linkspan_fabric::keys::Keyring;
use linkspan_fabric::{Channel, Config, Fabric, Gpu, Listener, chain};
use linkspan_net::WaitSet;
use linkspan_perf::{Interrupt, Limits, LinkError, PerfError, Quota, serve_with};
use linkspan_service::rendezvous::{PERF, RendezvousServer, shown};
use linkspan_topology::{Host, Roots};
use linkspan_user::link::FabricLink;

use crate::child;
use crate::cli::ServeArgs;
use crate::exit::{Exit, Failure};
use crate::fabric;
use crate::onesided::OneSidedOffers;
use crate::passed;
use crate::peer_lines;
use crate::signals;

/// Sessions at once; a client beyond that is refused at once. Each has a thread, one more for a baseline, and one for
/// one-sided tests.
const SESSIONS: u64 = 128;

/// Memory for the tests of all clients: messages of 1 GiB both ways.
const MEMORY: u64 = 6 << 30;

/// How long a client may be silent.
const IDLE: Duration = Duration::from_secs(60);

/// Longest that the kernel may look for duplicates of an address: a second or two (RFC 4862, 5.4).
const DUPLICATES: Duration = Duration::from_secs(3);

/// Longest that sessions may take to close after Ctrl-C.
const FAREWELL: Duration = Duration::from_secs(2);

pub(crate) fn run(args: &ServeArgs) -> Result<Exit, Failure> {
    let interrupt = match args.stdio {
        true => signals::leave_ctrl_c_to_the_parent().map(|()| Interrupt::new())?,
        false => signals::interrupt()?,
    };
    // A parent that is stopped is silent for as long.
    let idle = (!args.stdio).then(|| args.idle.unwrap_or(IDLE));
    let limits = Limits { memory: Quota::new(memory(args)), idle, bare: true, cma: fabric::cma()? };
    let gpu = fabric::gpu(args.mem)?;
    let passed = match args.stdio {
        true => Vec::new(),
        false => passed::listeners().map_err(|error| Failure::system("the sockets that were passed", &error))?,
    };
    if !passed.is_empty() && !args.bind.is_empty() {
        let why = "--bind names addresses, and a service manager has passed sockets: leave one of them out";
        return Err(Failure::new(Exit::Usage, why));
    }
    let paired = if args.stdio || args.open { None } else { paired(!passed.is_empty())? };
    if let Some(ring) = &paired {
        fabric::accept_paired(ring.clone());
    }
    let fabric = match args.stdio {
        true => fabric::local(args.path, args.mem, true)?,
        false => fabric::serving(args.path, args.mem)?,
    };
    let listener = listen(&fabric, args.device, &interrupt)?;
    let mut rendezvous_server = if args.stdio {
        follow_parent()?;
        let line = child::encode(&listener.handle());
        let mut out = io::stdout().lock();
        writeln!(out, "{line}")
            .and_then(|()| out.flush())
            .map_err(|error| Failure::system("standard output", &error))?;
        None
    } else {
        let key = fabric.config().has_key();
        let open = (args.open || key || paired.is_some()) && args.bind.is_empty() && passed.is_empty();
        let rendezvous_server = match passed.is_empty() {
            true => RendezvousServer::open(&fabric, &args.bind, open, args.port)?,
            false => RendezvousServer::passed(passed)?,
        };
        let addrs: Vec<String> = rendezvous_server.addrs().iter().map(shown).collect();
        let local = rendezvous_server.addrs().iter().all(|addr| addr.ip().is_loopback());
        let usable = fabric.survey().iter().any(|(_, verdict)| verdict.is_usable());
        // Chosen by the system where it is 0.
        let port = rendezvous_server.addrs().first().map_or(PERF.port, |addr| addr.port());
        let port = if port == PERF.port { String::new() } else { format!(":{port}") };
        let measure = format!("measure with `lspan perf bw HOST{port}` from another host");
        let whom = match (key, &paired, local) {
            _ if open && !usable => {
                "for this host only: no network interface is usable, `lspan status` says why".into()
            }
            (true, ..) => format!("for everybody who has the cluster key; {measure}"),
            (false, Some(ring), _) => {
                let names = ring.names().join(", ");
                let names = if names.is_empty() { "none yet: `lspan pair`" } else { &names };
                format!("for paired peers ({names}); {measure}, where HOST is what this one is called there")
            }
            (false, None, true) if open => {
                "for everybody on this host, because LINKSPAN_IFNAME chooses only loopback; without it, for every host"
                    .into()
            }
            (false, None, true) => {
                "for everybody on this host; to accept others: `lspan pair` for one, --open or --bind ADDR for all"
                    .into()
            }
            (false, None, false) => format!(
                "for everybody who can reach it: there is no cluster key (LINKSPAN_PSK_FILE), and --open or --bind accepts \
                 every host; {measure}"
            ),
        };
        eprintln!("lspan: waiting on {}, {whom}", addrs.join(", "));
        Some(rendezvous_server)
    };

    if args.follow {
        follow_parent()?;
    }
    let mut addrs = rendezvous_server.as_ref().map(RendezvousServer::addrs).unwrap_or_default();
    let sessions = Quota::new(SESSIONS);
    let (mut waits, mut fds) = (WaitSet::new(), Vec::new());
    let (mut begun, mut outdated) = (false, String::new());
    loop {
        let mut handle = || {
            listener.renew().unwrap_or_else(|error| {
                let why = chain(&error);
                // Once: each of many clients may meet it.
                if why != outdated {
                    peer_lines::say(&format!("lspan: a client gets the addresses of before: {why}"));
                    outdated = why;
                }
                listener.handle()
            })
        };
        if let Some(error) = rendezvous_server.as_mut().and_then(|server| server.serve(&mut handle)) {
            peer_lines::say(&format!("lspan: no peer can be accepted at the moment: {error}"));
        }
        loop {
            match listener.accept() {
                Ok(Some(channel)) => {
                    begun = true;
                    let offers = OneSidedOffers::new(args.path, args.device, args.stdio);
                    begin(channel, gpu.as_ref(), &sessions, limits.clone(), &interrupt, args.stdio, offers);
                }
                Ok(None) => break,
                // One connection that failed is not the end of the service.
                Err(error) => {
                    peer_lines::say(&format!("lspan: a connection was not accepted: {}", chain(&error)));
                    break;
                }
            }
        }
        if args.once && begun && sessions.left() == SESSIONS {
            return Ok(Exit::Ok);
        }
        if let Some(now) = rendezvous_server.as_ref().map(RendezvousServer::addrs).filter(|now| *now != addrs) {
            peer_lines::say(&format!("lspan: waiting on {} now", now.iter().map(shown).collect::<Vec<_>>().join(", ")));
            addrs = now;
        }
        if interrupt.raised() {
            // Each session closes its connection, so that its peer learns of it, and the last one takes this process's
            // statistics away.
            let until = Instant::now() + FAREWELL;
            while sessions.left() < SESSIONS && Instant::now() < until {
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

/// Listens. Right after an interface came up the kernel looks for duplicates of its IPv6 addresses, and until then none can be bound.
fn listen(fabric: &Fabric, device: usize, interrupt: &Interrupt) -> Result<Listener, Failure> {
    let until = Instant::now() + DUPLICATES;
    loop {
        match fabric.listen(device) {
            Err(error) if absent(&error) && Instant::now() < until && !interrupt.raised() => {
                thread::sleep(Duration::from_millis(50));
            }
            listener => return Ok(listener?),
        }
    }
}

/// Whether an address cannot be bound because no interface has it, or not yet.
fn absent(error: &(dyn std::error::Error + 'static)) -> bool {
    let kind = error.downcast_ref::<io::Error>().map(io::Error::kind);
    kind == Some(io::ErrorKind::AddrNotAvailable) || error.source().is_some_and(absent)
}

fn begin(
    channel: Channel,
    gpu: Option<&Arc<dyn Gpu>>,
    sessions: &Quota,
    limits: Limits,
    interrupt: &Interrupt,
    quiet: bool,
    mut offers: OneSidedOffers,
) {
    let refused = |why: &dyn std::fmt::Display| peer_lines::say(&format!("lspan: a peer was refused: {why}"));
    // Counted before anything is made for it.
    let Some(counted) = sessions.take(1) else {
        return refused(&format!("{SESSIONS} sessions are running"));
    };
    let mut link = match FabricLink::new(channel, gpu) {
        Ok(link) => link,
        Err(error) => return refused(&error),
    };
    let interrupt = interrupt.clone();
    let session = move || {
        // A parent says itself what went wrong with a session.
        match serve_with(&mut link, &limits, &interrupt, &mut offers) {
            Ok(()) | Err(PerfError::Link(LinkError::Interrupted)) => {}
            Err(_) if quiet => {}
            Err(error) => peer_lines::say(&format!("lspan: a session ended: {}", chain(&error))),
        }
        drop(link);
        drop(offers);
        drop(counted);
    };
    if let Err(error) = thread::Builder::new().name("session".into()).spawn(session) {
        refused(&error);
    }
}

/// This user's keys, where they decide who may measure: there are peers, and no cluster key goes before. With `always` also where there
/// are none yet: a socket that was passed is open to everybody who reaches it, and waits for those who pair later.
fn paired(always: bool) -> Result<Option<Arc<Keyring>>, Failure> {
    if Config::from_env()?.has_key() {
        return Ok(None);
    }
    if always {
        return Ok(Some(Arc::new(Keyring::open_or_make()?.0)));
    }
    Ok(Keyring::find()?.filter(|ring| !ring.peers().is_empty()).map(Arc::new))
}

/// Memory for the tests of all clients, bytes. A parent knows what it asks for.
fn memory(args: &ServeArgs) -> u64 {
    let half = || Some(Host::read(&Roots::default()).memory_bytes / 2).filter(|&bytes| bytes > 0 && !args.stdio);
    args.memory.map_or_else(|| half().unwrap_or(MEMORY).min(MEMORY), |mib| mib << 20)
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
