//! `lspan devmem probe`: which network cards can do device-memory TCP, what is missing, and what never will. `lspan devmem up`:
//! one of them set up and lent to processes.

use std::net::UdpSocket;
use std::os::fd::AsFd;

use linkspan_fabric::{Ability, Config, MemoryName, gpus, survey};
use linkspan_netdev::{Socket, foreign_interface};
use linkspan_service::devmem::{self, Lending, Terms, Unlent, Verdict, look};
use linkspan_topology::{Host, Interface, Roots};
use rustix::fs::{Access, access};
use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde::Serialize;

use crate::cli::{DownArgs, ProbeArgs, UpArgs};
use crate::exit::{Exit, Failure};
use crate::out::Out;
use crate::peer_lines;
use crate::pools::{self, Pool};
use crate::signals;

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
            let (receive, send) = (devmem::receive(&kernel, &card), devmem::send(&kernel, &card));
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

fn failure(error: Unlent) -> Failure {
    let exit = match &error {
        Unlent::Never { .. } => Exit::NoPeer,
        Unlent::NotAllowed { .. } => Exit::Permission,
        _ => Exit::Failed,
    };
    Failure::new(exit, error.to_string())
}

/// `lspan devmem down`.
pub(crate) fn down(args: &DownArgs) -> Result<Exit, Failure> {
    let interface = interface(&args.interface)?;
    let found = match access(&args.folder, Access::WRITE_OK) {
        // The folder comes with the first journal.
        Err(Errno::NOENT) => false,
        Err(Errno::ACCESS) => return Err(failure(Unlent::NotAllowed { interface: interface.name })),
        _ => devmem::restore(&args.folder, &interface).map_err(failure)?,
    };
    let said = if found { "all settings are restored" } else { "nothing is left of an `lspan devmem up`" };
    Out::default().text(&format!("{}: {said}\n", interface.name))?;
    Ok(Exit::Ok)
}

/// `lspan devmem up`.
pub(crate) fn up(args: &UpArgs) -> Result<Exit, Failure> {
    let interface = interface(&args.interface)?;
    let name = &interface.name;
    let terms = Terms { queues: args.queues, each: args.each, users: args.allow.clone(), folder: args.folder.clone() };
    if args.plan {
        Out::default().text(&devmem::plan(&interface, &terms).map_err(failure)?)?;
        return Ok(Exit::Ok);
    }
    let lending = Lending::begin(&interface, terms).map_err(failure)?;
    if lending.found {
        eprintln!("{name}: changes left by an `lspan devmem up` that was killed are undone");
    }
    let interrupt = signals::interrupt()?;
    // One for each stream that is steered; with fewer, fewer are.
    let most = getrlimit(Resource::Nofile).maximum;
    let _ = setrlimit(Resource::Nofile, Rlimit { current: most, maximum: most });
    let ready = |line: &str| eprintln!("{name}: {line}; Ctrl-C ends it");
    let say = |line: &str| peer_lines::say(&format!("{name}: {line}"));
    let (restored, said) = lending.serve(ready, || interrupt.raised(), say).map_err(failure)?;
    eprintln!("{name}: {said}");
    Ok(if restored { Exit::Ok } else { Exit::Failed })
}

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
