//! What joins two rails on a host between: messages go from one to the other as they come.
//!
//! A control message is copied from slot to slot; a chunk is written by the card before into a piece of registered memory of
//! ours and from there by our card to the next host. The first chunk of a message leaves before the last has come. Where the
//! next host takes no more, chunks are told no place and receives are not posted again, so the peer stops as if the receiver
//! were its neighbour, and memory is bounded by [`BOUNCE`], a number of chunks, and a ring of slots each way.

mod direction;

use std::time::{Duration, Instant};

use linkspan_transport::{Down, HostBuf, Poll, Rail, WaitFd};
use linkspan_verbs_sys::Nic;

use crate::VerbsRail;
use direction::{Nobody, RelayDirection, Through};

/// Chunk size of rails whose way leads over a relay: so small that several are under way on each hop at a time, which a relay
/// needs to receive and to send at once.
pub const RELAY_CHUNK: usize = 128 << 10;

/// Memory for chunks each way: eight of [`RELAY_CHUNK`]. A chunk of another rail that is sent again here may be larger, up to
/// half of this.
pub(crate) const BOUNCE: usize = 8 * RELAY_CHUNK;

/// How long what was taken from a peer that has gone is still passed on.
const LAST: Duration = Duration::from_secs(2);

/// What a relay has passed on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RelayCounts {
    /// Control messages from the first side to the second, and back.
    pub frames: [u64; 2],
    /// Chunks.
    pub chunks: [u64; 2],
    /// Bytes of chunks and control messages, without heads.
    pub bytes: [u64; 2],
}

/// Two rails, joined.
///
/// Dropping it drops both, so the far ends are told; from then on nothing lands in its memory.
pub struct Relay<N: Nic> {
    // Dropped before the memory.
    rails: Option<[VerbsRail<N>; 2]>,
    /// From the first to the second, and back.
    lanes: [RelayDirection; 2],
    gone: Option<Gone>,
}

/// A side that has gone.
struct Gone {
    side: usize,
    why: Down,
    since: Instant,
    /// What had come from it was not read to its end. Only where a request of ours failed: behind what could not be read, the next
    /// would be out of order.
    unread: bool,
}

impl<N: Nic> Relay<N> {
    /// Joins two rails.
    pub fn new(a: VerbsRail<N>, b: VerbsRail<N>) -> Relay<N> {
        let lanes = [RelayDirection::new(a.slots()), RelayDirection::new(b.slots())];
        let mut rails = [a, b];
        for (at, direction) in lanes.iter().enumerate() {
            // Whole, so that no chunk registers a part. Where it fails, the first chunk says so.
            rails[at].prepare(direction.memory(), true);
            rails[1 - at].prepare(direction.memory(), false);
        }
        Relay { rails: Some(rails), lanes, gone: None }
    }

    /// Counts of what was forwarded.
    pub fn counts(&self) -> RelayCounts {
        let of = |f: fn(&RelayDirection) -> u64| [f(&self.lanes[0]), f(&self.lanes[1])];
        RelayCounts { frames: of(|l| l.frames), chunks: of(|l| l.chunks), bytes: of(|l| l.bytes) }
    }

    /// Forwards what has arrived, without blocking.
    ///
    /// # Errors
    /// [`Down`] of the side that ended, after what had come from it was passed on as far as the other side takes it.
    /// The relay is to be dropped then.
    pub fn poll(&mut self) -> Result<Poll, Down> {
        let Some([a, b]) = &mut self.rails else { return Ok(Poll::Idle) };
        if self.gone.is_some() {
            return self.drain();
        }
        let mut moved = Poll::Idle;
        for (at, direction) in self.lanes.iter_mut().enumerate() {
            let passed = if at == 0 { pass(direction, a, b) } else { pass(direction, b, a) };
            match passed {
                Ok(Poll::Active) => moved = Poll::Active,
                Ok(Poll::Idle) => {}
                Err(Failed { end, why, unread }) => {
                    let side = if end == 0 { at } else { 1 - at };
                    self.gone = Some(Gone { side, why, since: Instant::now(), unread });
                    return Ok(Poll::Active);
                }
            }
        }
        Ok(moved)
    }

    /// One side is gone: passes on what had come from it.
    fn drain(&mut self) -> Result<Poll, Down> {
        let (Some([a, b]), Some(mut gone)) = (&mut self.rails, self.gone.take()) else {
            return Ok(Poll::Idle);
        };
        let direction = &mut self.lanes[gone.side];
        let (from, left) = if gone.side == 0 { (a, b) } else { (b, a) };
        if gone.unread {
            gone.unread = from.take_in(&mut Through { direction, to: left }).is_ok();
        }
        direction.pump(left);
        if (direction.is_empty() && !gone.unread) || gone.since.elapsed() > LAST || left.flush().is_err() {
            return Err(gone.why);
        }
        let moved = left.take_in(&mut Nobody)?;
        left.take_more(&mut Nobody, 0)?;
        self.gone = Some(gone);
        Ok(moved)
    }

    /// Prepares for sleep: what to wait for, or `None` when there is work already. See [`Rail::arm`].
    pub fn arm(&mut self) -> Option<[WaitFd; 2]> {
        let [a, b] = self.rails.as_mut().filter(|_| self.gone.is_none())?;
        Some([a.arm()?, b.arm()?])
    }

    /// Looks whether the paths still carry; to be called now and then, also while nothing moves. False: one does not.
    pub fn look(&mut self) -> bool {
        let Some(rails) = &mut self.rails else { return false };
        rails.iter_mut().all(|rail| !rail.stalled())
    }
}

impl<N: Nic> linkspan_transport::Relay for Relay<N> {
    fn poll(&mut self) -> Result<Poll, Down> {
        self.poll()
    }

    fn arm(&mut self) -> Option<[WaitFd; 2]> {
        self.arm()
    }

    fn look(&mut self) -> bool {
        self.look()
    }

    fn bytes(&self) -> [u64; 2] {
        self.counts().bytes
    }
}

impl<N: Nic> Drop for Relay<N> {
    fn drop(&mut self) {
        let Some(rails) = self.rails.take() else { return };
        let domains = rails.each_ref().map(|rail| rail.domain().clone());
        drop(rails);
        for domain in domains {
            self.lanes.iter().for_each(|direction| domain.invalidate(direction.memory()));
        }
    }
}

/// What ends the passing on: 0 where it comes from, 1 where it goes to.
struct Failed {
    end: usize,
    why: Down,
    unread: bool,
}

/// One direction.
fn pass<N: Nic>(
    direction: &mut RelayDirection,
    from: &mut VerbsRail<N>,
    to: &mut VerbsRail<N>,
) -> Result<Poll, Failed> {
    let read = |why| Failed { end: 0, why, unread: false };
    let mut moved = from.take_in(&mut Through { direction, to }).map_err(read)?;
    if direction.pump(to) {
        moved = Poll::Active;
    }
    let held = direction.held();
    from.take_more(&mut Through { direction, to }, held).map_err(read)?;
    for (end, rail) in [(0, from), (1, to)] {
        if rail.flush().map_err(|why| Failed { end, why, unread: true })? == Poll::Active {
            moved = Poll::Active;
        }
    }
    Ok(moved)
}

/// Memory of one lane, for what is registered and dropped with it.
pub(crate) fn bounce() -> HostBuf {
    HostBuf::new(BOUNCE)
}
