//! `lspan devmem probe`: which network cards can do device-memory TCP, what is missing, and what never will. `lspan devmem up`:
//! one of them set up and lent to processes.

mod broker;
mod card;
mod journal;
mod judge;
mod up;
mod watch;

use std::net::UdpSocket;
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Instant;

use linkspan_fabric::{Ability, Config, MemoryName, gpus, survey};
use linkspan_netdev::{
    Error, HeaderSplit, QueueKind, Socket, channels, foreign_interface, may_bind_receive, may_bind_send, queues, rings,
    starved,
};
use linkspan_topology::{Host, Interface, Roots};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde::Serialize;

use crate::cli::{DownArgs, ProbeArgs, UpArgs};
use crate::exit::{Exit, Failure};
use crate::out::Out;
use crate::peer_lines;
use crate::pools::{self, Pool};
use crate::signals;
use card::KernelCard;
use journal::{Journal, Noted, Unopened};
use judge::{BindVerdict, Card, Verdict};

/// Name and version of the JSON.
const SCHEMA: &str = "linkspan.devmem/1";

#[derive(Debug, Serialize)]
struct Report {
    schema: &'static str,
    kernel: String,
    /// GPUs with what they say of exporting their memory.
    gpus: Vec<String>,
    notes: Vec<String>,
    cards: Vec<Row>,
}

#[derive(Debug, Serialize)]
struct Row {
    interface: String,
    driver: Option<String>,
    receive: Verdict,
    send: Verdict,
    /// Pages of its receive queues; empty where its driver has none that the kernel knows.
    pools: Vec<Pool>,
    /// Packets for which a receive queue had no page, where the driver counts them.
    packets_without_page: Option<u64>,
}

pub(crate) fn run(args: &ProbeArgs) -> Result<Exit, Failure> {
    let config = Config::from_env()?;
    let all = survey(&config)?;
    let asked = |i: &Interface| match args.interfaces.as_slice() {
        [] => i.name != "lo",
        names => names.contains(&i.name),
    };
    if let Some(name) = args.interfaces.iter().find(|name| !all.iter().any(|(i, _)| i.name == **name)) {
        return Err(Failure::new(Exit::Usage, format!("there is no interface {name}: `lspan status` lists them")));
    }
    let kernel = Host::read(&Roots::default()).kernel;
    let mut socket = Socket::open().map_err(|error| Failure::new(Exit::Failed, linkspan_fabric::chain(&error)))?;
    let cards: Vec<Row> = all
        .iter()
        .filter(|(i, _)| asked(i))
        .map(|(interface, _)| {
            let card = look(&mut socket, interface);
            let (receive, send) = (judge::receive(&kernel, &card), judge::send(&kernel, &card));
            let (pools, packets_without_page) = pools::of(&mut socket, interface.index);
            Row { interface: card.name, driver: card.driver, receive, send, pools, packets_without_page }
        })
        .collect();
    let report = Report { schema: SCHEMA, gpus: exports(), notes: notes(), cards, kernel };
    let mut out = Out::default();
    if args.json {
        out.json(&report, true)?;
    } else {
        out.text(&text(&report))?;
    }
    let can = report.cards.iter().any(|row| row.receive.is_yes());
    Ok(if can { Exit::Ok } else { Exit::NoPeer })
}

/// The interface of this name.
fn interface(name: &str) -> Result<Interface, Failure> {
    let found = survey(&Config::from_env()?)?.into_iter().map(|(i, _)| i).find(|i| i.name == name);
    found.ok_or_else(|| Failure::new(Exit::Usage, format!("there is no interface {name}: `lspan status` lists them")))
}

/// Makes the folder of socket and journal where there is none. Everybody may look into it, whatever this process's umask says:
/// the sockets are for other users.
fn make_folder(folder: &Path) -> std::io::Result<()> {
    if folder.is_dir() {
        return Ok(());
    }
    std::fs::create_dir_all(folder)?;
    std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o755))
}

/// The journal of an interface, after what a dead `up` left there was undone.
fn journal(folder: &Path, name: &str, card: &KernelCard) -> Result<(Journal, bool), Failure> {
    Journal::open(folder, name, card).map_err(|why| match why {
        Unopened::Running => Failure::new(Exit::Failed, format!("`lspan devmem up` runs for {name}: Ctrl-C ends it")),
        Unopened::No(why) => Failure::new(Exit::Failed, format!("{name}: {why}")),
    })
}

/// `lspan devmem down`.
pub(crate) fn down(args: &DownArgs) -> Result<Exit, Failure> {
    let interface = interface(&args.interface)?;
    let card = KernelCard::new(interface.name.clone(), interface.index);
    let (_, found) = journal(&args.folder, &interface.name, &card)?;
    let said = if found { "all settings are restored" } else { "nothing is left of an `lspan devmem up`" };
    Out::default().text(&format!("{}: {said}\n", interface.name))?;
    Ok(Exit::Ok)
}

/// `lspan devmem up`.
pub(crate) fn up(args: &UpArgs) -> Result<Exit, Failure> {
    let interface = interface(&args.interface)?;
    let kernel = Host::read(&Roots::default()).kernel;
    let mut socket = Socket::open().map_err(|error| Failure::new(Exit::Failed, linkspan_fabric::chain(&error)))?;
    let looked = look(&mut socket, &interface);
    let name = &interface.name;
    match judge::receive(&kernel, &looked) {
        Verdict::Never { why } => {
            return Err(Failure::new(Exit::NoPeer, format!("{name} cannot receive into GPU memory: {why}")));
        }
        Verdict::AskAsRoot { .. } => {
            let why = format!("{name} cannot be set up by this user: CAP_NET_ADMIN is missing (sudo)");
            return Err(Failure::new(Exit::Permission, why));
        }
        Verdict::Yes | Verdict::After { .. } => {}
    }
    let card = KernelCard::new(name.clone(), interface.index);
    let journal = if args.plan { None } else { Some(journal(&args.folder, name, &card)?) };
    let state = up::CardState::read(&card).map_err(|why| Failure::new(Exit::Failed, format!("{name}: {why}")))?;
    let changes = up::plan(&state, args.queues).map_err(|why| Failure::new(Exit::Failed, format!("{name}: {why}")))?;
    let Some((journal, found)) = journal else {
        Out::default().text(&up::text(name, &state, &changes, args.queues))?;
        return Ok(Exit::Ok);
    };
    if found {
        eprintln!("{name}: changes left by an `lspan devmem up` that was killed are undone");
    }
    let interrupt = signals::interrupt()?;
    let set_up = up::SetUp::make(&card, &state, &changes, Some(&journal))
        .map_err(|why| Failure::new(Exit::Failed, format!("{name}: {why}")))?;
    let first = state.queues - args.queues;
    let allowed = broker::Allowed::new(&args.allow);
    let broker = broker::DevmemBroker::open(&args.folder, name, allowed, (first..state.queues).collect(), args.each)
        .map_err(|why| Failure::new(Exit::Failed, why))?;
    let last = state.queues - 1;
    eprintln!("{name}: queues {first} to {last} can be used through {}; Ctrl-C ends it", broker.path().display());
    // One for each stream that is steered; with fewer, fewer are.
    let most = getrlimit(Resource::Nofile).maximum;
    let _ = setrlimit(Resource::Nofile, Rlimit { current: most, maximum: most });
    let mut watch = watch::Watch::new(first);
    let mut end = || {
        if watch.due(Instant::now())
            && let Some(line) = starved(&mut socket, interface.index).ok().and_then(|found| watch.look(&found))
        {
            eprintln!("{name}: {line}");
        }
        interrupt.raised()
    };
    let noted = Noted { card: &card, journal: &journal };
    let mut say = |line: &str| peer_lines::say(&format!("{name}: {line}"));
    let ended = broker.serve(&noted, &mut end, &mut say);
    let (restored, said) = set_up.end();
    ended.map_err(|why| Failure::new(Exit::Failed, format!("{name}: {why}; {said}")))?;
    eprintln!("{name}: {said}");
    Ok(if restored { Exit::Ok } else { Exit::Failed })
}

/// Asks the kernel and the driver.
fn look(socket: &mut Socket, interface: &Interface) -> Card {
    let index = interface.index;
    let receive = queues(socket, index).map(|all| all.iter().filter(|q| q.kind == QueueKind::Receive).count());
    let found = rings(socket, index).ok();
    Card {
        name: interface.name.clone(),
        driver: interface.driver.clone(),
        queues: channels(socket, index).ok().map(|c| c.receive as usize).or(receive.ok()),
        split: found.map_or(HeaderSplit::Unknown, |r| r.split),
        threshold: found.and_then(|r| r.threshold),
        may_receive: answer(may_bind_receive(index)),
        may_send: answer(may_bind_send(index)),
    }
}

fn answer(asked: Result<(), Error>) -> BindVerdict {
    match asked {
        Ok(()) => BindVerdict::Yes,
        Err(Error::NoFamily(_)) => BindVerdict::NoKernel,
        Err(error) if error.errno() == Some(EPERM) => BindVerdict::NotAllowed,
        Err(error) => BindVerdict::No(linkspan_fabric::chain(&error)),
    }
}

/// errno(3): the capability is missing.
const EPERM: i32 = 1;

/// What each GPU says of exporting its memory.
fn exports() -> Vec<String> {
    let mut all = Vec::new();
    for (kind, devices) in gpus::drivers() {
        match devices {
            Err(error) => all.push(format!("{kind}: {error}")),
            Ok(0) => all.push(format!("{kind}: the driver is installed and shows no device")),
            Ok(n) => all.extend((0..n).map(|ordinal| match gpus::open(MemoryName::Device(kind, ordinal)) {
                Ok(Some(gpu)) => match &gpu.info().dma_buf {
                    Ability::Yes => format!("{}: {}, exports its memory as dma-buf", gpu.info().id(), gpu.info().name),
                    Ability::No(why) => format!("{}: {}, no dma-buf: {why}", gpu.info().id(), gpu.info().name),
                },
                Ok(None) => String::new(),
                Err(error) => format!("{kind}:{ordinal}: {error}"),
            })),
        }
    }
    all
}

fn notes() -> Vec<String> {
    let socket = UdpSocket::bind("127.0.0.1:0");
    let foreign = socket.is_ok_and(|s| foreign_interface(s.as_fd()));
    let note = "this kernel has Google's own interface for device memory (TCPX, socket option 97); linkspan does not use it \
                and needs an upstream kernel";
    foreign.then(|| note.to_owned()).into_iter().collect()
}

fn text(report: &Report) -> String {
    let mut text = format!("kernel {}\n", report.kernel);
    for line in report.gpus.iter().chain(&report.notes) {
        text.push_str(&format!("{line}\n"));
    }
    if report.cards.is_empty() {
        text.push_str("no network card\n");
    }
    for row in &report.cards {
        text.push_str(&format!("{} ({})\n", row.interface, row.driver.as_deref().unwrap_or("no driver")));
        for (way, verdict) in [("receive", &row.receive), ("send", &row.send)] {
            text.push_str(&format!("  {way}: {verdict}\n"));
        }
        row.pools.iter().for_each(|pool| text.push_str(&format!("  {pool}\n")));
        if let Some(n) = row.packets_without_page {
            text.push_str(&format!("  packets that found no page: {n}\n"));
        }
    }
    text
}
