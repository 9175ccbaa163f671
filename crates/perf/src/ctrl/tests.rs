use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use linkspan_transport::{HostBuf, MemSlice};

use super::{Ctrl, PATIENT};
use crate::interrupt::Interrupt;
use crate::link::{Leftovers, Link, LinkDesc, LinkError, MessageMemory, OpMemory, Ticket};
use crate::turn::Turner;
use crate::wire::{Kind, Reply};

/// A link whose peer goes as soon as it has our message: the end and the word that it left come in one turn.
struct Last {
    left: bool,
    gone: bool,
    leftovers: Leftovers,
}

#[allow(unsafe_code)]
// SAFETY: what a test's implementation keeps of memory stays allocated until the process ends.
unsafe impl Link for Last {
    fn describe(&self) -> LinkDesc {
        LinkDesc::default()
    }

    fn leftovers(&self) -> Leftovers {
        self.leftovers.clone()
    }

    fn post_send(&mut self, _: u32, _: MemSlice) -> Result<Option<Ticket>, LinkError> {
        Ok(Some(Ticket(1)))
    }

    fn post_recv(&mut self, _: u32, _: MemSlice) -> Result<Option<Ticket>, LinkError> {
        Ok(Some(Ticket(2)))
    }

    fn progress(&mut self) -> Result<bool, LinkError> {
        self.gone = true;
        Err(LinkError::PeerGone { path: "last".into(), why: "it closed the connection".into() })
    }

    fn test(&mut self, _: Ticket) -> Result<Option<usize>, LinkError> {
        Ok((self.left && self.gone).then_some(1))
    }

    fn wait(&mut self, _: Duration) -> Result<(), LinkError> {
        Ok(())
    }
}

#[test]
fn a_goaway_that_left_before_the_peer_went_was_sent() {
    for left in [true, false] {
        let mut link = Last { left, gone: false, leftovers: Leftovers::default() };
        let mut turner = Turner::new(PATIENT, None, &Interrupt::new());
        let said = Ctrl::new(&link).send(&mut link, &mut turner, &Reply::new(Kind::GoAway));
        assert_eq!(said.is_ok(), left, "{said:?}");
    }
}

/// Memory that says when it is given back.
#[derive(Debug)]
struct Counted(HostBuf, Arc<AtomicU32>);

#[allow(unsafe_code)]
impl MessageMemory for Counted {
    unsafe fn slice(&self) -> MemSlice {
        // SAFETY: the caller's promise.
        unsafe { self.0.slice() }
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.1.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn memory_is_given_back_at_once_or_with_the_link_that_may_still_use_it() {
    let link = Last { left: false, gone: false, leftovers: Leftovers::default() };
    let back = Arc::new(AtomicU32::new(0));
    let memory = || OpMemory::new(&link, Box::new(Counted(HostBuf::new(8), back.clone())));
    let (mut reported, mut used) = (memory(), memory());
    reported.posted();
    reported.reported();
    used.posted();
    drop((reported, used));
    assert_eq!(back.load(Ordering::Relaxed), 1, "an operation of the other one has not reported");
    drop(link);
    assert_eq!(back.load(Ordering::Relaxed), 2);
}
