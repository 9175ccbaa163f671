//! One-sided tests: the serving side offers memory, the asking side writes into it or reads from it by the library's own
//! calls. This module carries the offer; what is in it is the callers' affair.

use linkspan_net::Share;
use linkspan_proto::Buf;

use crate::ctrl::{Ctrl, PATIENT};
use crate::error::PerfError;
use crate::link::{Link, OpMemory};
use crate::session::Client;
use crate::turn::Turner;
use crate::wire::{BadMessage, Kind, OFFER_MAX, Params, TAG_OFFER};

/// What the serving side offers for one-sided tests.
pub trait Offers {
    /// Text by which a client reaches `bytes` bytes of memory, at most [`OFFER_MAX`] long; it stays good until the next
    /// call. `share` is kept for as long as the memory. `None`: not possible here.
    fn offer(&mut self, bytes: u64, share: Share) -> Option<String>;

    /// Whether the client uses it: its session is not idle then, though nothing comes over its link.
    fn in_use(&self) -> bool {
        false
    }
}

/// A side that offers nothing.
impl Offers for () {
    fn offer(&mut self, _: u64, _: Share) -> Option<String> {
        None
    }
}

impl<L: Link> Client<L> {
    /// Asks the peer for `bytes` bytes of memory for one-sided tests and returns its answer, which says how to reach them.
    ///
    /// # Errors
    /// [`PerfError::Refused`]: the peer refuses. [`PerfError::Link`]: the link is down. [`PerfError::Message`]: its
    /// answer cannot be read.
    pub fn offer(&mut self, bytes: u64) -> Result<String, PerfError> {
        let deadline = self.deadline();
        let interrupt = self.interrupt().clone();
        let (link, ctrl) = self.parts();
        let mut patient = Turner::new(PATIENT, deadline, &interrupt);
        let mut place = OpMemory::host(link, OFFER_MAX);
        ctrl.send(link, &mut patient, &Params::offer(bytes))?;
        ctrl.expect(link, &mut patient, Kind::Ready)?;
        let ticket = loop {
            if let Some(ticket) = link.post_recv(TAG_OFFER, place.slice())? {
                break ticket;
            }
            patient.turn(link, false)?;
        };
        place.posted();
        let len = loop {
            if let Some(len) = link.test(ticket)? {
                break len;
            }
            patient.turn(link, false)?;
        };
        place.reported();
        let mut text = vec![0; len];
        let inside = place.slice().read(0, &mut text);
        debug_assert!(inside);
        String::from_utf8(text).map_err(|_| BadMessage::Offer.into())
    }
}

/// Sends an offer behind its `Ready`.
pub(crate) fn send<L: Link + ?Sized>(
    link: &mut L,
    ctrl: &mut Ctrl,
    patient: &mut Turner,
    text: &str,
) -> Result<(), PerfError> {
    ctrl.send(link, patient, &crate::wire::Reply::new(Kind::Ready))?;
    let mut place = OpMemory::host(link, text.len());
    let inside = place.slice().fill(0, text.as_bytes());
    debug_assert!(inside);
    let ticket = loop {
        if let Some(ticket) = link.post_send(TAG_OFFER, place.slice())? {
            break ticket;
        }
        patient.turn(link, false)?;
    };
    place.posted();
    while link.test(ticket)?.is_none() {
        patient.turn(link, false)?;
    }
    place.reported();
    Ok(())
}
