//! What is changed on a network card, and the kernel's one.

use std::any::Any;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;

use linkspan_fabric::chain;
use linkspan_netdev::{
    Channels, HeaderSplit, Rings, Socket, begin_rule, bind_receive, channels, end_rule, rings, set_spread,
    split_headers, spread, take_rules, takes_rules,
};

/// A card. Texts of errors are for people and have the kernel's own in them. Used by the thread that lends its queues.
pub trait Card {
    /// Receive queues in use.
    fn queues(&self) -> Result<u32, String>;

    /// Header split and its threshold.
    fn rings(&self) -> Result<Rings, String>;

    /// Switches header split.
    fn split(&self, on: bool, threshold: Option<u32>) -> Result<(), String>;

    /// The table that spreads streams without a rule.
    fn spread(&self) -> Result<Vec<u32>, String>;

    /// Sets it.
    fn set_spread(&self, table: &[u32]) -> Result<(), String>;

    /// Whether rules for streams are on.
    fn takes_rules(&self) -> Result<bool, String>;

    /// Switches them.
    fn take_rules(&self, on: bool) -> Result<(), String>;

    /// Binds a dma-buf to queues, until what is returned is dropped: with its number.
    fn bind(&self, queues: &[u32], dmabuf: BorrowedFd<'_>) -> Result<(u32, Box<dyn Any>), String>;

    /// Steers a stream to a queue, until [`Card::unsteer`]: the place of the rule.
    fn steer(&self, local: SocketAddr, peer: SocketAddr, queue: u32) -> Result<u32, String>;

    /// Ends the rule of a stream at this place, or wherever there is one, and no rule of another stream. None is no error.
    fn unsteer(&self, place: Option<u32>, local: SocketAddr, peer: SocketAddr) -> Result<(), String>;
}

/// The kernel's.
#[derive(Debug)]
pub(super) struct KernelCard {
    name: String,
    index: u32,
}

impl KernelCard {
    pub(super) fn new(name: String, index: u32) -> KernelCard {
        KernelCard { name, index }
    }

    fn socket(&self) -> Result<Socket, String> {
        Socket::open().map_err(|e| chain(&e))
    }
}

impl Card for KernelCard {
    fn queues(&self) -> Result<u32, String> {
        let found = channels(&mut self.socket()?, self.index);
        found.map(|Channels { receive }| receive).map_err(|e| chain(&e))
    }

    fn rings(&self) -> Result<Rings, String> {
        rings(&mut self.socket()?, self.index).map_err(|e| chain(&e))
    }

    fn split(&self, on: bool, threshold: Option<u32>) -> Result<(), String> {
        split_headers(&mut self.socket()?, self.index, on, threshold).map_err(|e| chain(&e))
    }

    fn spread(&self) -> Result<Vec<u32>, String> {
        spread(&self.name).map_err(|e| chain(&e))
    }

    fn set_spread(&self, table: &[u32]) -> Result<(), String> {
        set_spread(&self.name, table).map_err(|e| chain(&e))
    }

    fn takes_rules(&self) -> Result<bool, String> {
        takes_rules(&self.name).map_err(|e| chain(&e))
    }

    fn take_rules(&self, on: bool) -> Result<(), String> {
        take_rules(&self.name, on).map_err(|e| chain(&e))?;
        // A driver without them says nothing.
        match self.takes_rules()? == on {
            true => Ok(()),
            false => {
                Err("the driver has no rules for single streams (ntuple filters), or keeps them as they are".into())
            }
        }
    }

    fn bind(&self, queues: &[u32], dmabuf: BorrowedFd<'_>) -> Result<(u32, Box<dyn Any>), String> {
        let bound = bind_receive(self.index, queues, dmabuf).map_err(|e| chain(&e))?;
        Ok((bound.id(), Box::new(bound)))
    }

    fn steer(&self, local: SocketAddr, peer: SocketAddr, queue: u32) -> Result<u32, String> {
        begin_rule(&self.name, local, peer, queue).map_err(|e| chain(&e))
    }

    fn unsteer(&self, place: Option<u32>, local: SocketAddr, peer: SocketAddr) -> Result<(), String> {
        end_rule(&self.name, place, local, peer).map_err(|e| chain(&e))
    }
}

/// Whether a card has header split at all.
pub(super) fn splits(rings: &Rings) -> bool {
    rings.split != HeaderSplit::Unknown
}
