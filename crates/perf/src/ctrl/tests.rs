use std::time::Duration;

use linkspan_transport::MemSlice;

use super::{Ctrl, PATIENT};
use crate::interrupt::Interrupt;
use crate::link::{Link, LinkDesc, LinkError, Ticket};
use crate::turn::Turner;
use crate::wire::{Kind, Reply};

/// A link whose peer goes as soon as it has our message: the end and the word that it left come in one turn.
struct Last {
    left: bool,
    gone: bool,
}

#[allow(unsafe_code)]
// SAFETY: what a test's implementation keeps of memory stays allocated until the process ends.
unsafe impl Link for Last {
    fn describe(&self) -> LinkDesc {
        LinkDesc::default()
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
        let mut link = Last { left, gone: false };
        let mut turner = Turner::new(PATIENT, None, &Interrupt::new());
        let said = Ctrl::new().send(&mut link, &mut turner, &Reply::new(Kind::GoAway));
        assert_eq!(said.is_ok(), left, "{said:?}");
    }
}
