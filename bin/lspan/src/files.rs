//! The commands about files: what they take is parsed and what comes of it is printed here, the rest is in `crates/files`.

pub(crate) mod mirror;
pub(crate) mod mount;
pub(crate) mod pipe;
pub(crate) mod serve;
pub(crate) mod transfer;
pub(crate) mod trash;

use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use linkspan::{Context, Url};
use linkspan_files::Error;
use linkspan_files::client::{Client, Compared};
use linkspan_files::fs::Kind;
use linkspan_files::hash::hex;
use linkspan_files::name::{RelPath, escape};
use linkspan_files::source::Start;
use linkspan_files::wire::{Answer, Entry, FaultKind, Request};
use linkspan_service::rendezvous::{self, FILES, Service};
use linkspan_user::finder;
use linkspan_user::place::{Local, Place};
use serde_json::{Value, json};

use crate::cli::PathArg;
use crate::cli::files::{DuArgs, LsArgs, MvArgs, PeerArgs, RmArgs, VerifyArgs};
use crate::exit::{Exit, Failure};
use crate::out::Out;
use crate::{fabric, signals};

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        let exit = match &error {
            Error::Lost(_) | Error::Cut(_) | Error::Unjoined(_) | Error::Full(_) => Exit::NoPeer,
            Error::Stopped => Exit::Interrupted,
            Error::Refused(fault) => exit_of(fault.kind),
            Error::Rule(_) => Exit::Usage,
            Error::System { source, .. } if source.kind() == std::io::ErrorKind::PermissionDenied => Exit::Permission,
            Error::Link(error) if error.is_refused() => Exit::Permission,
            Error::Link(linkspan::Error::Connect(_)) => Exit::NoPeer,
            _ => Exit::Failed,
        };
        Failure::new(exit, linkspan_user::Error::from(error).text())
    }
}

impl From<linkspan_user::Error> for Failure {
    fn from(error: linkspan_user::Error) -> Failure {
        use linkspan_user::Error as User;
        let exit = match error {
            User::Files(error) => return error.into(),
            User::Fabric(error) => return error.into(),
            User::Link(error) => return error.into(),
            User::Rendezvous(error) => return error.into(),
            User::Keys(error) => return error.into(),
            User::Mount { ref source, .. } if source.kind() == std::io::ErrorKind::PermissionDenied => Exit::Permission,
            User::System { what, source } => return Failure::system(&what, &source),
            User::Usage(_) => Exit::Usage,
            User::Refused(_) => Exit::Permission,
            _ => Exit::Failed,
        };
        Failure::new(exit, error.text())
    }
}

/// A command line that cannot be meant.
pub(crate) fn usage(why: &str) -> Failure {
    linkspan_user::Error::Usage(why.to_owned()).into()
}

/// How a command ends for which something was refused or failed.
pub(crate) fn exit_of(kind: FaultKind) -> Exit {
    match kind {
        FaultKind::Denied | FaultKind::Forbidden | FaultKind::ReadOnly => Exit::Permission,
        FaultKind::WrongData => Exit::WrongData,
        _ => Exit::Failed,
    }
}

/// A session with the peer.
pub(crate) fn connect(peer: &str, args: &PeerArgs) -> Result<Client, Failure> {
    let (context, find) = reach(peer, args)?;
    let interrupt = signals::interrupt()?;
    Ok(Client::connect(context, find, move || interrupt.raised())?)
}

/// The same for a transfer: says over which path.
fn connect_for_transfer(peer: &str, args: &PeerArgs) -> Result<Client, Failure> {
    let client = connect(peer, args)?;
    if let Some(path) = client.path() {
        eprintln!("lspan: {peer}: {path}");
    }
    Ok(client)
}

/// What connects to the peer, and what names its listener, each time anew: a server that was started again has another handle.
pub(crate) fn reach(
    peer: &str,
    args: &PeerArgs,
) -> Result<(Context, impl Fn() -> Result<Url, Error> + Send + Sync + 'static), Failure> {
    let service = Service { port: args.port, ..FILES };
    let found = rendezvous::ask(peer, service)?;
    let find = finder(peer, service, &found);
    fabric::connect_to(found);
    Ok((fabric::one_sided(PathArg::AUTO, false)?, find))
}

/// Where journals are; `None` with a word where that cannot be.
pub(crate) fn state_dir() -> Option<OwnedFd> {
    let journals = linkspan_user::transfer::journals();
    if let Err(error) = &journals {
        eprintln!("lspan: no journal can be kept: {}; a transfer that is cut begins anew", error.text());
    }
    journals.ok()
}

/// A number of things.
fn counted(n: u64, one: &str, many: &str) -> String {
    format!("{n} {}", if n == 1 { one } else { many })
}

fn size(bytes: u64) -> String {
    indicatif::BinaryBytes(bytes).to_string()
}

pub(crate) fn ls(args: &LsArgs) -> Result<Exit, Failure> {
    let place = Place::parse(&args.at)?;
    let mut client = connect(&place.peer, &args.peer)?;
    let mut out = Out::default();
    if place.share.is_empty() {
        let Answer::Shares(shares) = client.request(Request::Shares)? else { return Ok(Exit::Failed) };
        for (name, writable) in shares {
            if args.json {
                out.json(&json!({"schema": "linkspan.ls/1", "share": name, "writable": writable}), false)?;
            } else {
                out.text(&format!("{}{}\n", escape(name.as_bytes()), if writable { "" } else { "  (read-only)" }))?;
            }
        }
        return Ok(Exit::Ok);
    }
    let Answer::Stat(entry) = client.request(Request::Stat(place.at()))? else { return Ok(Exit::Failed) };
    if entry.kind != Kind::Dir {
        print(&mut out, &entry, args)?;
        return Ok(Exit::Ok);
    }
    // Sorted as far as they fit; a directory of more comes in the order of the peer's file system.
    const SORTED: usize = 100_000;
    let (mut entries, mut failure) = (Vec::new(), None);
    client.list(&place.at(), |entry| {
        entries.push(entry);
        if entries.len() >= SORTED {
            failure = flush(&mut out, &mut entries, args).err();
        }
    })?;
    flush(&mut out, &mut entries, args)?;
    failure.map_or(Ok(Exit::Ok), Err)
}

fn flush(out: &mut Out, entries: &mut Vec<Entry>, args: &LsArgs) -> Result<(), Failure> {
    entries.sort_by(|a, b| a.name.cmp(&b.name));
    entries.drain(..).try_for_each(|entry| print(out, &entry, args))
}

/// A name for JSON: as text where it is UTF-8, and as hexadecimal digits where it is not.
pub(crate) fn name_json(of: &mut Value, key: &str, bytes: &[u8]) {
    match std::str::from_utf8(bytes) {
        Ok(text) => of[key] = json!(text),
        Err(_) => of[format!("{key}_hex")] = json!(hex(bytes)),
    }
}

fn print(out: &mut Out, entry: &Entry, args: &LsArgs) -> Result<(), Failure> {
    let kind = match entry.kind {
        Kind::File => ("file", '-', ""),
        Kind::Dir => ("directory", 'd', "/"),
        Kind::Symlink => ("symlink", 'l', "@"),
        Kind::Special => ("special", 's', ""),
    };
    if args.json {
        let mut line = json!({
            "schema": "linkspan.ls/1", "kind": kind.0, "size_bytes": entry.size, "mode": entry.mode,
            "mtime_s": entry.mtime.sec, "mtime_ns": entry.mtime.nsec,
        });
        name_json(&mut line, "path", &entry.name);
        return out.json(&line, false);
    }
    let name = escape(&entry.name);
    if !args.long {
        return out.text(&format!("{name}{}\n", kind.2));
    }
    let right = |shift: u32| {
        let bits = entry.mode >> shift;
        [(4, 'r'), (2, 'w'), (1, 'x')].map(|(bit, c)| if bits & bit != 0 { c } else { '-' }).iter().collect::<String>()
    };
    let date = u64::try_from(entry.mtime.sec).map_or("before 1970".into(), linkspan_perf::format::gbench::date);
    out.text(&format!("{}{}{}{} {:>14} {date} {name}{}\n", kind.1, right(6), right(3), right(0), entry.size, kind.2))
}

pub(crate) fn rm(args: &RmArgs) -> Result<Exit, Failure> {
    let places = Place::of_one_peer(&args.at)?;
    let mut client = connect(&places[0].peer, &args.peer)?;
    let mut exit = Exit::Ok;
    for place in &places {
        match client.request(Request::Remove(place.at(), args.recursive)) {
            Ok(_) => {}
            Err(Error::Refused(fault)) => {
                eprintln!("lspan: {}", Error::Refused(fault.clone()));
                exit = exit_of(fault.kind);
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(exit)
}

pub(crate) fn mv(args: &MvArgs) -> Result<Exit, Failure> {
    let (from, to) = (Place::whole(&args.from)?, Place::whole(&args.to)?);
    if (&from.peer, &from.share) != (&to.peer, &to.share) {
        return Err(usage("a file is renamed inside one share; to another one it is sent"));
    }
    let mut client = connect(&from.peer, &args.peer)?;
    client.request(Request::Rename(from.at(), to.path))?;
    Ok(Exit::Ok)
}

pub(crate) fn du(args: &DuArgs) -> Result<Exit, Failure> {
    let place = Place::whole(&args.at)?;
    let mut client = connect(&place.peer, &args.peer)?;
    let Answer::Usage(sum) = client.request(Request::Usage(place.at()))? else { return Ok(Exit::Failed) };
    let mut out = Out::default();
    if args.json {
        let line = json!({
            "schema": "linkspan.du/1", "files": sum.files, "directories": sum.dirs, "others": sum.others,
            "size_bytes": sum.bytes, "disk_bytes": sum.disk, "unread": sum.unread,
        });
        out.json(&line, false)?;
    } else {
        let text = format!(
            "{} ({} bytes) in {} and {}, {} on the disk\n",
            size(sum.bytes),
            sum.bytes,
            counted(sum.files, "file", "files"),
            counted(sum.dirs, "directory", "directories"),
            size(sum.disk)
        );
        out.text(&text)?;
    }
    if sum.unread > 0 {
        eprintln!("lspan: {} could not be read", counted(sum.unread, "entry", "entries"));
        return Ok(Exit::Degraded);
    }
    Ok(Exit::Ok)
}

pub(crate) fn verify(args: &VerifyArgs) -> Result<Exit, Failure> {
    let place = Place::whole(&args.at)?;
    let Local { dir, name, opened, .. } = Local::find(&args.own)?;
    let mut client = connect(&place.peer, &args.peer)?;
    let (mut out, mut exit, mut broken) = (Out::default(), Exit::Ok, None);
    let (mut files, mut others) = (0u64, 0u64);
    let start = Start { dir, name: Some(name), path: RelPath::default(), shallow: false, opened };
    let shown = |path: &RelPath| {
        let below = std::ffi::OsString::from_vec(path.bytes().to_vec());
        let whole = if path.is_root() { args.own.clone() } else { args.own.join(below) };
        escape(whole.as_os_str().as_bytes())
    };
    client.verify(start, &place.at(), |path, result| {
        let line = match result {
            Ok(Compared::Same(None)) => {
                others += 1;
                Ok(())
            }
            Ok(Compared::Same(Some(hash))) => {
                files += 1;
                out.text(&format!("{}  {}\n", hex(&hash), shown(path)))
            }
            Ok(Compared::Different) => {
                exit = Exit::WrongData;
                let name = shown(path);
                let text = format!(
                    "LS1813 {name} differs from the peer's; files of equal size and time are not sent again: remove one of both (`lspan rm`), then send or get it"
                );
                eprintln!("lspan: {text}");
                Ok(())
            }
            Err(fault) => {
                if exit == Exit::Ok {
                    exit = exit_of(fault.kind);
                }
                eprintln!("lspan: {}: {fault}", shown(path));
                Ok(())
            }
        };
        broken = broken.take().or(line.err());
    })?;
    if let Some(failure) = broken {
        return Err(failure);
    }
    let others = match others {
        0 => String::new(),
        n => format!(" and {}", counted(n, "directory or link", "directories and links")),
    };
    let are = if files == 1 && others.is_empty() { "is" } else { "are" };
    eprintln!("lspan: {}{others} {are} the same at both ends", counted(files, "file", "files"));
    Ok(exit)
}
