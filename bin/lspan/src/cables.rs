//! `lspan link`: what is done about Thunderbolt and USB4 cables, by the service where it is there, else as root.

use linkspan_bus::Error as BusError;
use linkspan_bus::client::Client;
use linkspan_thunderbolt::Error;
use linkspan_thunderbolt::find::Root;

use crate::cli::LinkCommand;
use crate::exit::{Exit, Failure};
use crate::out::Out;

pub(crate) fn run(command: &LinkCommand) -> Result<Exit, Failure> {
    // Root needs no service, but one that runs is to remember what root says.
    let client = match rustix::process::geteuid().is_root() {
        true => Client::running(),
        false => Client::activated(),
    };
    let said = match (command, &client) {
        (LinkCommand::Up { streams, first_hop }, Some(client)) => {
            client.manager().set_up(*streams, *first_hop).map_err(refused)?
        }
        (LinkCommand::Up { streams, first_hop }, None) => Root::default().up(*streams, *first_hop).map_err(failure)?,
        (LinkCommand::Allow { uuid, deny: false }, Some(client)) => {
            let told = client.manager().allow(uuid).map_err(refused)?;
            let now = if told.is_empty() { ", once linkspan.ko is loaded" } else { "" };
            vec![format!("{uuid} is let in whenever it is plugged in{now}")]
        }
        (LinkCommand::Allow { uuid, deny: true }, Some(client)) => {
            client.manager().forget(uuid).map_err(refused)?;
            vec![format!("{uuid} is shut out")]
        }
        (LinkCommand::Allow { uuid, deny }, None) => {
            let told = Root::default().allow(uuid, !deny).map_err(failure)?;
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

/// By the service. Its texts begin with their codes.
fn refused(error: BusError) -> Failure {
    match error {
        BusError::NotAuthorized(why) => Failure::new(Exit::Permission, why),
        BusError::InvalidArgument(why) => Failure::new(Exit::Usage, why),
        BusError::NoHost(why) | BusError::NoDevice(why) => Failure::new(Exit::NoPeer, why),
        BusError::Busy(why) | BusError::LimitReached(why) | BusError::Failed(why) => Failure::new(Exit::Failed, why),
        error => Failure::new(Exit::Failed, format!("linkspand: {error}")),
    }
}
