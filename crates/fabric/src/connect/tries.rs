//! A pair of addresses being tried.

use super::KEEPALIVE;
use crate::route::Path;
use crate::stream_setup::{SetupState, StreamSetup};

/// One pair of addresses being tried.
pub(crate) struct Try {
    pub(super) reach: Path,
    pub(crate) number: u16,
    pub(crate) why: String,
    /// Port speed, bytes per second; 0 when unknown.
    pub(super) speed: u64,
    /// Its stream, and the rails beside it.
    pub(super) setup: StreamSetup,
    /// The first of its pair of addresses, over which queue pairs are set up, and over the very first a cable.
    pub(super) first: bool,
    /// It asks for all rails to the host.
    pub(super) per_host: bool,
    /// The interface over which the routes lead it and that the settings do not choose, with the setting.
    pub(super) outside: Option<String>,
    /// The stream whose payload this one would carry by device-memory TCP; it is no path of its own.
    pub(super) beside: Option<u16>,
    /// Whether both sides would take device-memory TCP on this stream, and why not.
    pub(super) devmem: Result<(), String>,
    /// What keeps devices beside its interface from having rails.
    pub(super) lacks: Vec<String>,
}

impl Try {
    /// Behind the login: what the peer says of device-memory TCP.
    pub(super) fn agree_devmem(&mut self) {
        if self.devmem.is_ok() {
            let peer = &self.setup.greeting;
            self.devmem = match peer.no_devmem.as_str() {
                _ if peer.devmem => Ok(()),
                "" => Err("the peer's card is not set up for it: run `lspan devmem up` there".into()),
                why => Err(format!("the peer says: {why}")),
            };
        }
    }

    pub(super) fn describe(&self) -> String {
        format!("{}: {}", self.name(), self.standing())
    }

    /// Its ends, and why they were chosen.
    pub(super) fn name(&self) -> String {
        let from = self.reach.from().map_or_else(|| "any".to_owned(), |f| f.ip().to_string());
        format!("{from} -> {} ({})", self.reach.to(), self.why)
    }

    /// How far it has got.
    pub(super) fn standing(&self) -> &str {
        match &self.setup.state {
            SetupState::Dial(_) | SetupState::Approach(_) => "no answer yet",
            SetupState::Login(_) => "connected, login not finished",
            SetupState::Rails(_) => "login done, rail handshake not finished",
            SetupState::Up(_) | SetupState::Taken => "up",
            SetupState::Failed(why) => why,
        }
    }

    pub(super) fn is_open(&self) -> bool {
        matches!(self.setup.state, SetupState::Dial(_) | SetupState::Approach(_) | SetupState::Login(_))
    }

    /// Whether it is a way for payload, and up.
    pub(super) fn is_up(&self) -> bool {
        matches!(self.setup.state, SetupState::Up(_) | SetupState::Taken)
            && self.number != KEEPALIVE
            && self.beside.is_none()
    }

    /// Why its stream stands in for rails; empty where people need not be told.
    pub(super) fn lost(&self) -> String {
        let rails = self.setup.rails.as_ref().err().filter(|why| !why.is_empty() && !self.lacks.contains(why));
        rails.into_iter().chain(&self.lacks).cloned().collect::<Vec<_>>().join("; ")
    }

    /// What to say of it where it did not become a rail.
    pub(super) fn failure(&self) -> Option<String> {
        let up = matches!(self.setup.state, SetupState::Up(_) | SetupState::Taken);
        (!up && self.number != KEEPALIVE).then(|| self.describe())
    }
}
