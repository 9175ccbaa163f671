//! `lspan link`: what is done about Thunderbolt and USB4 cables, by the service where it is there, else as root.

use linkspan_bus::Error as BusError;
use linkspan_bus::client::{Client, unknown};
use linkspan_thunderbolt::Error;
use linkspan_thunderbolt::find::Root;
use linkspan_thunderbolt::up::LinkMode;

use crate::cli::{LinkCommand, ModeName};
use crate::exit::{Exit, Failure};
use crate::out::Out;

pub(crate) fn run(command: &LinkCommand) -> Result<Exit, Failure> {
    // Root needs no service, but one that runs is to remember what root says.
    let client = match rustix::process::geteuid().is_root() {
        true => Client::running(),
        false => Client::activated(),
    };
    let said = match client.map(|client| by_service(&client, command)) {
        Some(Ok(Some(said))) => said,
        Some(Err(error)) if !unknown(&error) => return Err(refused(error)),
        older => {
            if matches!(older, Some(Err(_))) {
                eprintln!("lspan: linkspand is older than lspan and cannot do it; lspan does it itself");
            }
            alone(command)?
        }
    };
    let mut out = Out::default();
    out.text(&(said.join("\n") + "\n"))?;
    Ok(Exit::Ok)
}

/// None: it has no part in this.
fn by_service(client: &Client, command: &LinkCommand) -> Result<Option<Vec<String>>, BusError> {
    Ok(Some(match command {
        LinkCommand::Up { streams, first_hop } => client.manager().set_up(*streams, *first_hop)?,
        LinkCommand::Allow { uuid, deny: false } => {
            let told = client.manager().allow(uuid)?;
            let now = if told.is_empty() { ", once linkspan.ko is loaded" } else { "" };
            vec![format!("{uuid} is allowed whenever it is plugged in{now}")]
        }
        LinkCommand::Allow { uuid, deny: true } => {
            client.manager().forget(uuid)?;
            vec![format!("{uuid} is no longer allowed")]
        }
        LinkCommand::Mode { .. } => return Ok(None),
    }))
}

fn alone(command: &LinkCommand) -> Result<Vec<String>, Failure> {
    Ok(match command {
        LinkCommand::Up { streams, first_hop } => Root::default().up(*streams, *first_hop).map_err(failure)?,
        LinkCommand::Allow { uuid, deny } => {
            let told = Root::default().allow(uuid, !deny).map_err(failure)?;
            let what = if *deny { "may no longer use" } else { "may use" };
            told.into_iter().map(|device| format!("{uuid} {what} {device}")).collect()
        }
        LinkCommand::Mode { mode, uuid } => {
            let mode = match mode {
                ModeName::Direct => LinkMode::Direct,
                ModeName::Network => LinkMode::Network,
            };
            let told = Root::default().set_mode(uuid, mode).map_err(failure)?;
            told.into_iter().map(|device| format!("{device} to {uuid} is in mode {}", mode.name())).collect()
        }
    })
}

fn failure(error: Error) -> Failure {
    let exit = match error.first() {
        Error::NoStreams(_) | Error::NoLink { .. } | Error::NoHost { .. } | Error::NoModule { .. } => Exit::NoPeer,
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
