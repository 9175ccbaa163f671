//! `lspan key` and `lspan pair`: whom this user trusts.

use std::io::{self, IsTerminal, Read, Write};
use std::sync::Arc;
use std::time::UNIX_EPOCH;

use linkspan_fabric::keys::{KeyError, Keyring, LINE_MAX, Peer, name_fault};
use linkspan_fabric::{Config, chain};
use linkspan_perf::format::table;
use linkspan_service::host_name;
use linkspan_service::pairing::{JoinLine, LIFETIME, Names, PairError, Paired, PairingOffer, join};
use linkspan_service::rendezvous::RendezvousError;
use linkspan_user::keys;
use serde_json::{Value, json};

use crate::cli::{KeyCommand, PairArgs};
use crate::exit::{Exit, Failure};
use crate::out::Out;
use crate::{peer_lines, signals};

/// Schema of `lspan key list --json`: `docs/schema/keys-1.json`.
const KEYS: &str = "linkspan.keys/1";

/// Schema of `lspan pair --json`: `docs/schema/pair-1.json`.
const PAIR: &str = "linkspan.pair/1";

impl From<KeyError> for Failure {
    fn from(error: KeyError) -> Failure {
        let exit = match &error {
            KeyError::File { source, .. } if source.kind() == io::ErrorKind::PermissionDenied => Exit::Permission,
            KeyError::Open { .. } => Exit::Permission,
            KeyError::Nowhere | KeyError::NotAKey { .. } | KeyError::Line { .. } | KeyError::Name { .. } => Exit::Usage,
            KeyError::Taken { .. } | KeyError::Unknown { .. } | KeyError::Own | KeyError::Exists { .. } => Exit::Usage,
            _ => Exit::Failed,
        };
        Failure::new(exit, chain(&error))
    }
}

impl From<RendezvousError> for Failure {
    fn from(error: RendezvousError) -> Failure {
        let exit = match error {
            RendezvousError::Keys(error) => return error.into(),
            RendezvousError::Spelling { .. } => Exit::Usage,
            RendezvousError::Name { .. } | RendezvousError::NoPeer { .. } | RendezvousError::Cable { .. } => {
                Exit::NoPeer
            }
            RendezvousError::Unproven { .. } | RendezvousError::Unpaired { .. } => Exit::Permission,
            RendezvousError::Wait { ref source, .. } => match source.kind() {
                io::ErrorKind::PermissionDenied => Exit::Permission,
                io::ErrorKind::AddrNotAvailable => Exit::NoPeer,
                _ => Exit::Failed,
            },
            _ => Exit::Failed,
        };
        Failure::new(exit, error.to_string())
    }
}

impl From<PairError> for Failure {
    fn from(error: PairError) -> Failure {
        let exit = match error {
            PairError::Fabric(error) => return error.into(),
            PairError::Keys(error) => return error.into(),
            PairError::Line(_) => Exit::Usage,
            PairError::Expired => Exit::Timeout,
            PairError::Unanswered { .. } | PairError::NoInterface { .. } => Exit::NoPeer,
            PairError::Cancelled => Exit::Interrupted,
            _ => Exit::Failed,
        };
        Failure::new(exit, chain(&error))
    }
}

pub(crate) fn run(command: &KeyCommand) -> Result<Exit, Failure> {
    let mut out = Out::default();
    match command {
        KeyCommand::New { replace } => {
            let ring = Keyring::make(*replace)?;
            out.text(&format!("new key {} in {}\n", ring.public().fingerprint(), ring.dir().display()))?;
        }
        KeyCommand::Show { name } => {
            let ring = ring()?;
            out.text(&(keys::own(&ring, name.as_deref())?.line() + "\n"))?;
            eprintln!("lspan: this user's key is {}", ring.public().fingerprint());
        }
        KeyCommand::List { json: true } => {
            let ring = ring()?;
            let own = Peer { name: host_name(), key: ring.public(), hosts: Vec::new() };
            let peers: Vec<Value> = ring.peers().iter().map(described).collect();
            out.json(&json!({ "schema": KEYS, "own": described(&own), "peers": peers }), true)?;
        }
        KeyCommand::List { json: false } => {
            let ring = ring()?;
            let peers = ring.peers();
            if peers.is_empty() {
                out.text("no peer is trusted yet: pair with one by `lspan pair`\n")?;
            } else {
                let row = |peer: &Peer| vec![peer.name.clone(), peer.key.fingerprint(), peer.hosts.join(", ")];
                let rows: Vec<_> = [["name", "key", "last seen at"].map(String::from).to_vec()]
                    .into_iter()
                    .chain(peers.iter().map(row))
                    .collect();
                out.text(&table(&rows))?;
            }
            eprintln!("lspan: this user's key is {}", ring.public().fingerprint());
        }
        KeyCommand::Add { peer: name, host } => {
            let ring = ring()?;
            if io::stdin().is_terminal() {
                eprintln!("lspan: paste what `lspan key show` printed on the peer's host");
            }
            let mut text = String::new();
            // One line, and it has come whole.
            let read = io::BufRead::read_line(&mut io::stdin().lock().take(LINE_MAX as u64 + 1), &mut text);
            read.map_err(|error| Failure::system("standard input", &error))?;
            let peer = keys::add(&ring, &text, name.as_deref(), host)?;
            out.text(&format!("{} is trusted; its key is {}\n", peer.name, peer.key.fingerprint()))?;
        }
        KeyCommand::Forget { name } => {
            let peer = ring()?.forget(name)?;
            out.text(&format!("{} ({}) is trusted no more\n", peer.name, peer.key.fingerprint()))?;
        }
    }
    Ok(Exit::Ok)
}

/// The keys of this user; a new one is said.
fn ring() -> Result<Keyring, Failure> {
    let (ring, new) = Keyring::open_or_make()?;
    if new {
        eprintln!("lspan: made a key for this user, {}, in {}", ring.public().fingerprint(), ring.dir().display());
    }
    Ok(ring)
}

fn described(peer: &Peer) -> Value {
    let key = peer.line().split(' ').nth(1).map(str::to_owned);
    json!({ "name": peer.name, "fingerprint": peer.key.fingerprint(), "key": key, "hosts": peer.hosts })
}

pub(crate) fn pair(args: &PairArgs) -> Result<Exit, Failure> {
    let names = Names { own: keys::own_name(args.name.as_deref())?, peer: args.peer.clone() };
    if let Some((name, why)) = names.peer.as_deref().and_then(|name| Some((name, name_fault(name)?))) {
        return Err(KeyError::Name { name: name.to_owned(), why }.into());
    }
    let line = match args.line.as_slice() {
        [] => None,
        [dash] if dash == "-" => {
            let mut text = Vec::new();
            let read = io::stdin().lock().take(4096).read_to_end(&mut text);
            read.map_err(|error| Failure::system("standard input", &error))?;
            Some(JoinLine::parse(&String::from_utf8_lossy(&text)).map_err(PairError::from)?)
        }
        parts => Some(JoinLine::parse(&parts.concat()).map_err(PairError::from)?),
    };
    let (ring, config) = (Arc::new(ring()?), Config::from_env()?);
    let interrupt = signals::interrupt()?;
    let stop = || interrupt.raised();
    let mut out = Out::default();
    let paired = match line {
        Some(line) => join(config, &ring, peer_lines::log(), &line, &names, &stop)?,
        None => {
            let offer = PairingOffer::open(config, ring, peer_lines::log())?;
            show(&mut out, offer.line(), args.json)?;
            offer.wait(&names, &stop)?
        }
    };
    say(&mut out, &paired, args.json)
}

fn show(out: &mut Out, line: &JoinLine, json: bool) -> Result<(), Failure> {
    let text = line.text();
    if json {
        let until = line.until().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        return out.json(&json!({ "schema": PAIR, "join_line": text, "good_until_unix_s": until }), false);
    }
    out.text(&format!("lspan pair {text}\n"))?;
    if io::stderr().is_terminal()
        && let Ok(code) = qrcode::QrCode::new(&text)
    {
        // Dark on light, whatever the terminal's own colours: readers of codes want that.
        let style = anstyle::Style::new()
            .fg_color(Some(anstyle::AnsiColor::Black.into()))
            .bg_color(Some(anstyle::AnsiColor::BrightWhite.into()));
        for row in code.render::<qrcode::render::unicode::Dense1x2>().build().lines() {
            let _ = writeln!(anstream::stderr(), "{style}{row}{style:#}");
        }
    }
    eprintln!(
        "lspan: type this line on the other host within {} minutes, or paste it after `lspan pair -` there. It works once.",
        LIFETIME.as_secs() / 60
    );
    Ok(())
}

fn say(out: &mut Out, paired: &Paired, json: bool) -> Result<Exit, Failure> {
    let Paired { peer, says, fingerprint, confirmed } = paired;
    if json {
        let (peer, confirmed) = (described(peer), *confirmed);
        let said = json!({
            "schema": PAIR, "peer": peer, "calls_itself": says, "fingerprint": fingerprint, "confirmed": confirmed,
        });
        out.json(&said, false)?;
    } else {
        let also = if *says == peer.name { String::new() } else { format!(" (it calls itself {says})") };
        out.text(&format!("paired with {}{also}\nfingerprint of the pairing: {fingerprint}\n", peer.name))?;
        eprintln!("lspan: the other host must show the same fingerprint; if not: `lspan key forget {}`", peer.name);
    }
    if !confirmed {
        eprintln!(
            "lspan: the other host did not say that it has stored this user's key: look at `lspan key list` there, and pair again if it is missing"
        );
        return Ok(Exit::Degraded);
    }
    Ok(Exit::Ok)
}
