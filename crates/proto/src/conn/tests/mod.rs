//! The engine without a transport: two of them joined by queues, or one against an enemy.

mod hostile;
mod model;
mod onesided;
mod rails;
mod waiting;
mod wire;
mod wrap;

use super::control::Control;
use super::rails::Rails;
use wire::{CHUNK, Joined, Mem};

/// What only tests ask.
impl Control {
    fn start_at(&mut self, seq: u64) {
        self.next_seq = seq;
        self.peer_has = seq;
        self.rx_next = seq;
        self.reported = seq;
    }

    /// Number of the next message to send.
    fn next(&self) -> u32 {
        self.next_seq as u32
    }

    /// Number of the next message to receive.
    fn due(&self) -> u32 {
        self.rx_next as u32
    }
}

impl Rails<Mem> {
    fn landed_on(&self, slot: usize) -> u32 {
        self.rails[slot].landed
    }
}

impl super::Engine<Mem> {
    fn rails_landed(&self, slot: usize) -> u32 {
        self.rails.landed_on(slot)
    }
}
