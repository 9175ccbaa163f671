//! Device-memory TCP: what a network card can do ([`look`], [`receive`], [`send`]), and one of them set up and lent to processes
//! ([`Lending`]).

mod broker;
mod card;
mod journal;
mod judge;
mod lend;
mod up;
mod watch;

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use linkspan_netdev::{
    Error as NetdevError, HeaderSplit, QueueKind, Socket, channels, may_bind_receive, may_bind_send, queues, rings,
};
use linkspan_topology::Interface;

pub use card::Card as CardControl;
pub use judge::{BindVerdict, Card, Verdict, receive, send};
pub use lend::{Cards, Lending, Terms, Unlent, kernel_cards, plan, restore};

/// Makes the folder of socket and journal where there is none. Everybody may look into it, whatever this process's umask says:
/// the sockets are for other users.
fn make_folder(folder: &Path) -> std::io::Result<()> {
    if folder.is_dir() {
        return Ok(());
    }
    std::fs::create_dir_all(folder)?;
    std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o755))
}

/// Asks the kernel and the driver what this card can do. Changes nothing.
pub fn look(socket: &mut Socket, interface: &Interface) -> Card {
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

fn answer(asked: Result<(), NetdevError>) -> BindVerdict {
    match asked {
        Ok(()) => BindVerdict::Yes,
        Err(NetdevError::NoFamily(_)) => BindVerdict::NoKernel,
        Err(error) if error.errno() == Some(EPERM) => BindVerdict::NotAllowed,
        Err(error) => BindVerdict::No(linkspan_fabric::chain(&error)),
    }
}

/// errno(3): the capability is missing.
const EPERM: i32 = 1;
