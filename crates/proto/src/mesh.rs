//! The mesh that needs no switch: what neighbours tell each other, and how they ask each other to relay.
//!
//! Everything here is guarded by the cluster key. Beacons carry a code under a key derived from it; requests travel as
//! the blob of a login whose token is derived from it too and which proves the key by Noise. Layouts and rules:
//! `docs/PROTOCOL.md`, "Mesh".

mod beacon;
mod request;

pub use beacon::{BEACON_MAX, BadBeacon, Beacon, HEARD_MAX, Heard, MeshPort, NAME_MAX, Node, PORTS_MAX};
pub use request::{BadRequest, HOPS_MAX, MeshReply, Request, TEXT_MAX};

use crate::login::{Psk, Secret, Token, derive, mac};

/// The listener's number in the logins of neighbours; every mesh server has the same, the cluster key tells clusters apart.
pub const LISTEN_ID: u64 = u64::from_le_bytes(*b"lspnmesh");

const LABEL_TOKEN: &str = "linkspan mesh token 1";
const LABEL_BEACON: &str = "linkspan mesh beacon 1";
const LABEL_CODE: &str = "beacon";

/// What the cluster key gives to a mesh.
#[derive(Clone, Debug)]
pub struct Keys {
    token: Token,
    beacon: Secret<32>,
}

impl Keys {
    /// Derives both keys from the cluster key.
    pub fn new(psk: &Psk) -> Keys {
        let whole = derive(psk.expose(), LABEL_TOKEN, &[]);
        let mut token = [0; 16];
        token.copy_from_slice(&whole.expose()[..16]);
        Keys { token: Token::new(token), beacon: derive(psk.expose(), LABEL_BEACON, &[]) }
    }

    /// Puts the code of a beacon behind its bytes. Every holder of the key can, so the bytes before it are not to be trusted
    /// in any other way.
    pub fn seal(&self, body: &mut Vec<u8>) {
        let code = mac(self.beacon.expose(), LABEL_CODE, &[body]);
        body.extend_from_slice(&code);
    }

    /// The token of logins between neighbours.
    pub fn token(&self) -> Token {
        self.token.clone()
    }
}

#[cfg(test)]
mod tests;
