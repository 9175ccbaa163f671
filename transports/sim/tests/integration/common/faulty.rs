//! Rails that break the contract, each in one way, for the suite to catch.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

use linkspan_sim::SimRail;
use linkspan_transport::conformance::{Patience, Side, Testbed, Want};
use linkspan_transport::{Buf, Busy, Down, Head, MemSlice, Poll, Rail, RailInfo, Sink, Violation, WaitFd};

use super::SimBed;

/// How a rail breaks the contract.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RailBug {
    /// Each chunk is written once more, some polls after it has landed.
    LateDuplicate,
    /// Items count as taken when they are accepted.
    TakenTooEarly,
    /// A chunk counts as landed when its head has come.
    LandedTooEarly,
    /// Two control messages change places.
    ControlSwapped,
    /// A dropped rail goes on writing what was under way.
    WritesAfterDrop,
    /// The payload of a chunk lands at the place of the chunk before.
    WrongPlace,
    /// An item is given twice to the peer.
    ChunkTwice,
}

type Zombies = Rc<RefCell<Vec<SimRail>>>;

pub(crate) struct Faulty {
    inner: Option<SimRail>,
    bug: RailBug,
    accepted: u64,
    zombies: Zombies,
    state: State,
}

#[derive(Default)]
struct State {
    polls: u64,
    place: Option<MemSlice>,
    last_place: Option<MemSlice>,
    late: VecDeque<(u64, MemSlice, Vec<u8>)>,
    held: Option<(Head, Vec<u8>)>,
    controls: u64,
}

impl Faulty {
    fn inner(&mut self) -> &mut SimRail {
        self.inner.as_mut().expect("taken on drop only")
    }
}

impl Drop for Faulty {
    fn drop(&mut self) {
        let inside = self.inner.as_ref().is_some_and(SimRail::is_inside_chunk);
        if self.bug == RailBug::WritesAfterDrop && inside {
            self.zombies.borrow_mut().extend(self.inner.take());
        }
    }
}

// SAFETY: what a test's implementation keeps of memory stays allocated until the process ends.
unsafe impl Rail for Faulty {
    fn info(&self) -> &RailInfo {
        self.inner.as_ref().expect("taken on drop only").info()
    }

    fn ctrl(&mut self, head: &Head, body: MemSlice) -> Result<u64, Busy> {
        self.accepted = self.inner().ctrl(head, body)?;
        Ok(self.accepted)
    }

    fn data(&mut self, head: &Head, src: MemSlice) -> Result<u64, Busy> {
        self.accepted = self.inner().data(head, src)?;
        if self.bug == RailBug::ChunkTwice {
            self.accepted = self.inner().data(head, src)?;
        }
        Ok(self.accepted)
    }

    fn taken(&self) -> u64 {
        if self.bug == RailBug::TakenTooEarly {
            return self.accepted;
        }
        self.inner.as_ref().map_or(0, Rail::taken)
    }

    fn flush(&mut self) -> Result<Poll, Down> {
        self.inner().flush()
    }

    fn poll(&mut self, sink: &mut dyn Sink) -> Result<Poll, Down> {
        self.state.polls += 1;
        while self.state.late.front().is_some_and(|late| late.0 + 20 < self.state.polls) {
            let (_, place, bytes) = self.state.late.pop_front().expect("just seen");
            assert!(place.fill(0, &bytes), "as long as its place");
        }
        let inner = self.inner.as_mut().expect("taken on drop only");
        inner.poll(&mut Tamper { sink, bug: self.bug, state: &mut self.state })
    }

    fn arm(&mut self) -> Option<WaitFd> {
        None
    }
}

struct Tamper<'a> {
    sink: &'a mut dyn Sink,
    bug: RailBug,
    state: &'a mut State,
}

impl Sink for Tamper<'_> {
    fn ctrl(&mut self, head: &Head, payload: &[u8]) -> Result<(), Violation> {
        self.state.controls += 1;
        if self.bug == RailBug::ControlSwapped {
            if let Some((held, body)) = self.state.held.take() {
                self.sink.ctrl(head, payload)?;
                return self.sink.ctrl(&held, &body);
            }
            if self.state.controls % 16 == 15 {
                self.state.held = Some((*head, payload.to_vec()));
                return Ok(());
            }
        }
        self.sink.ctrl(head, payload)
    }

    fn place(&mut self, head: &Head) -> Result<Option<MemSlice>, Violation> {
        let place = self.sink.place(head)?;
        let last = std::mem::replace(&mut self.state.last_place, place);
        self.state.place = place;
        match self.bug {
            RailBug::LandedTooEarly => self.sink.landed(head)?,
            RailBug::WrongPlace => {
                if let (Some(place), Some(last)) = (place, last)
                    && place.len() == last.len()
                {
                    return Ok(Some(last));
                }
            }
            _ => {}
        }
        Ok(place)
    }

    fn landed(&mut self, head: &Head) -> Result<(), Violation> {
        if self.bug == RailBug::LandedTooEarly {
            return Ok(());
        }
        if let (RailBug::LateDuplicate, Some(place)) = (self.bug, self.state.place.take()) {
            let late = (self.state.polls, place, place.to_vec());
            self.state.late.push_back(late);
        }
        self.sink.landed(head)
    }
}

/// Nothing has a place any more.
struct Nowhere;

impl Sink for Nowhere {
    fn ctrl(&mut self, _: &Head, _: &[u8]) -> Result<(), Violation> {
        Ok(())
    }

    fn place(&mut self, _: &Head) -> Result<Option<MemSlice>, Violation> {
        Ok(None)
    }

    fn landed(&mut self, _: &Head) -> Result<(), Violation> {
        Ok(())
    }
}

/// Such rails.
pub(crate) struct FaultyBed {
    bed: SimBed,
    bug: RailBug,
    zombies: Zombies,
}

impl FaultyBed {
    pub(crate) fn new(bed: SimBed, bug: RailBug) -> FaultyBed {
        FaultyBed { bed, bug, zombies: Zombies::default() }
    }

    fn wrap(&self, rail: SimRail) -> Faulty {
        Faulty { inner: Some(rail), bug: self.bug, accepted: 0, zombies: self.zombies.clone(), state: State::default() }
    }
}

impl Testbed for FaultyBed {
    type R = Faulty;

    fn rail(&mut self, want: Want, n: usize) -> (Faulty, Faulty) {
        let (a, b) = self.bed.rail(want, n);
        (self.wrap(a), self.wrap(b))
    }

    fn rails(&self) -> usize {
        self.bed.rails()
    }

    fn pass(&mut self) {
        for zombie in self.zombies.borrow_mut().iter_mut() {
            let _ = zombie.poll(&mut Nowhere);
        }
        self.bed.pass();
    }

    fn sleep(&mut self, time: std::time::Duration) {
        self.bed.sleep(time);
    }

    fn kill(&mut self, side: Side) {
        self.bed.kill(side);
    }

    fn stall(&mut self, side: Side, n: usize) {
        self.bed.stall(side, n);
    }

    fn release(&mut self) {
        self.bed.release();
    }

    fn patience(&self) -> Patience {
        self.bed.patience()
    }
}
