//! A service of a software host.

use super::PeerIo;
use crate::nhi::Frame;
use crate::xdomain::property::Directory;
use crate::xdomain::{Message, Uuid};

/// A service: a directory of properties, messages of its own protocol, frames on the HopIDs that it agreed on.
pub trait Service: Send {
    /// Key in the host's directory, up to eight characters.
    fn key(&self) -> &str;

    /// Its directory.
    fn properties(&self) -> Directory;

    /// Discovery is over: own and remote UUID, and what the remote host says about itself. Also after a change.
    fn ready(&mut self, io: &mut PeerIo, port: usize, uuids: (Uuid, Uuid), remote: &Directory) {
        let _ = (io, port, uuids, remote);
    }

    /// The link is gone.
    fn lost(&mut self, io: &mut PeerIo, port: usize) {
        let _ = (io, port);
    }

    /// A message of another protocol than discovery. True: it was for this service.
    fn message(&mut self, io: &mut PeerIo, port: usize, request: bool, message: &Message) -> bool {
        let _ = (io, port, request, message);
        false
    }

    /// A frame. True: it was for this service.
    fn frame(&mut self, io: &mut PeerIo, port: usize, hop: u16, frame: &Frame) -> bool {
        let _ = (io, port, hop, frame);
        false
    }

    /// A time that was asked for has come; the token keeps its low 32 bits.
    fn timer(&mut self, io: &mut PeerIo, token: u32) {
        let _ = (io, token);
    }

    /// A command from a script or the control socket; `None`: it is not for this service.
    fn command(&mut self, io: &mut PeerIo, words: &[&str]) -> Option<Result<String, String>> {
        let _ = (io, words);
        None
    }
}

/// A service that is only announced: what frames there are comes from a script.
#[derive(Clone, Debug)]
pub struct Announced {
    key: String,
    directory: Directory,
}

impl Announced {
    /// With protocol number, version and revision as Linux names them.
    pub fn new(key: &str, uuid: Uuid, [id, version, revision, settings]: [u32; 4]) -> Announced {
        let directory = Directory::with_uuid(uuid)
            .number("prtcid", id)
            .number("prtcvers", version)
            .number("prtcrevs", revision)
            .number("prtcstns", settings);
        Announced { key: key.to_owned(), directory }
    }
}

impl Service for Announced {
    fn key(&self) -> &str {
        &self.key
    }

    fn properties(&self) -> Directory {
        self.directory.clone()
    }
}
