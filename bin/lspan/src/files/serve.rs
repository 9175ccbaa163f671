//! `lspan files serve`.

use std::net::SocketAddr;
use std::os::fd::AsFd;

use linkspan_fabric::MemoryName;
use linkspan_files::pipe;
use linkspan_files::serve::Answered;
use linkspan_service::rendezvous::shown;
use linkspan_user::serve::{Admits, Serving, Waiting, not_as_root, share};

use crate::cli::PathArg;
use crate::cli::files::FilesServeArgs;
use crate::exit::{Exit, Failure};
use crate::{fabric, peer_lines, signals};

pub(crate) fn run(args: &FilesServeArgs) -> Result<Exit, Failure> {
    if !args.as_root {
        not_as_root()?;
    }
    let interrupt = signals::interrupt()?;
    let admits = Admits::of_this_user()?;
    if let Admits::Paired(ring) = &admits {
        fabric::accept_paired(ring.clone());
    }
    let shares = args.shares.iter().map(|text| Ok(share(text)?)).collect::<Result<Vec<_>, Failure>>()?;
    let services = args.allow.iter().map(|text| pipe::Service::parse(text)).collect::<Result<Vec<_>, _>>();
    let services = services.map_err(|error| Failure::new(Exit::Usage, error.to_string()))?;
    let rights = |writable| if writable { "read and write" } else { "read-only" };
    let mut names: Vec<String> =
        shares.iter().map(|share| format!("{} ({})", share.name, rights(share.writable))).collect();
    names.extend(args.allow.iter().map(|text| format!("service {text}")));
    let survey = fabric::serving(PathArg::AUTO, MemoryName::Host)?;
    let context = fabric::one_sided(PathArg::AUTO, false)?;
    let (state, bind) = (super::state_dir(), args.bind.clone());
    let what =
        Serving { shares, services, state, bind, port: args.port, device: args.device, answered: Answered::default() };
    let say = |line: &str| peer_lines::say(&format!("lspan: {line}"));
    let waiting = Waiting::open(what, matches!(admits, Admits::Paired(_)), &survey, &context, say)?;
    let listed = |addrs: &[SocketAddr]| addrs.iter().map(shown).collect::<Vec<_>>().join(", ");
    eprintln!("lspan: serving {} on {}, for {}", names.join(", "), listed(&waiting.addrs()), admits.shown());
    let moved = |now: &[SocketAddr]| say(&format!("serving on {} now", listed(now)));
    let stop = signals::descriptor()?;
    waiting.run(stop.as_fd(), &|| interrupt.raised(), &moved, &say)?;
    Ok(Exit::Interrupted)
}
