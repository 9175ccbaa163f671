//! `lspan link`: what root does about Thunderbolt and USB4 cables.

use linkspan_fabric::thunderbolt::Error;
use linkspan_fabric::thunderbolt::find::Root;

use crate::cli::LinkCommand;
use crate::exit::{Exit, Failure};
use crate::out::Out;

pub(crate) fn run(command: &LinkCommand) -> Result<Exit, Failure> {
    let root = Root::default();
    let said = match command {
        LinkCommand::Up { streams, first_hop } => root.up(*streams, *first_hop).map_err(failure)?,
        LinkCommand::Allow { uuid, deny } => {
            let told = root.allow(uuid, !deny).map_err(failure)?;
            let what = if *deny { "is shut out of" } else { "is let in to" };
            told.into_iter().map(|device| format!("{uuid} {what} {device}")).collect()
        }
    };
    let mut out = Out::default();
    out.text(&(said.join("\n") + "\n"))?;
    Ok(Exit::Ok)
}

fn failure(error: Error) -> Failure {
    let exit = match &error {
        Error::NoStreams(_) | Error::NoHost { .. } | Error::NoModule { .. } => Exit::NoPeer,
        Error::Up { source, .. } if source.kind() == std::io::ErrorKind::PermissionDenied => Exit::Permission,
        _ => Exit::Failed,
    };
    Failure::new(exit, error.to_string())
}
