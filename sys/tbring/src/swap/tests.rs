use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU32, Ordering};

use super::*;
use crate::abi::{Cqe, Hello, OP_RECV, OP_SEND};
use crate::queue::Queues;

const AT: u64 = 8192;
const BUFFER: usize = 4096;

/// A swap with the test in the driver's place.
struct Stage {
    swap: Swap,
    queues: NonNull<u8>,
    told: u32,
}

impl Stage {
    fn new() -> Stage {
        let shared = Map::anonymous(12288).unwrap();
        let queues = shared.base();
        let hello = Hello { sq_entries: 32, cq_entries: 32, sq_offset: 4096, cq_offset: AT, ..Default::default() };
        // SAFETY: the map is as long and goes with the ring.
        let over = unsafe { Queues::new(queues, 12288, &hello) }.unwrap();
        let file: OwnedFd = std::io::pipe().unwrap().0.into();
        let (ring, regions) = Ring::over(over, shared, file);
        let mut swap = Swap {
            _regions: regions,
            ring,
            map: Map::anonymous(BUFFERS * BUFFER).unwrap(),
            channel: 7,
            bytes: BUFFER as u64,
            places: [BufferState::Ours; BUFFERS],
            front: 0,
            next: 2,
            deaf: false,
            ended: false,
            wait: Duration::ZERO,
        };
        swap.give(2).unwrap();
        swap.give(3).unwrap();
        Stage { swap, queues, told: 0 }
    }

    fn complete(&mut self, opcode: u32, cookie: u64, length: u64, result: i32) {
        let cqe = Cqe { cookie, length, result, channel: 7, opcode, reserved: 0 };
        // SAFETY: inside of the map that the ring holds, and aligned; words of it may be shared.
        unsafe {
            self.queues.add(AT as usize).cast::<Cqe>().add(self.told as usize).write_volatile(cqe);
            self.told += 1;
            self.queues.add(abi::queue::CQ_TAIL).cast::<AtomicU32>().as_ref().store(self.told, Ordering::Release);
        }
    }

    fn received(&mut self) -> Result<Option<usize>> {
        Ok(self.swap.receive(Duration::ZERO)?.map(<[u8]>::len))
    }
}

#[test]
fn what_the_peer_sent_before_it_closed_is_received_though_a_send_was_refused_meanwhile() {
    let mut stage = Stage::new();
    stage.complete(OP_RECV, 2, 11, 0);
    assert_eq!(stage.received().unwrap(), Some(11));
    stage.swap.send(5).unwrap();
    // The peer has closed: our answer ends first, what it sent is given out as places for it come.
    stage.complete(OP_SEND, 0, 0, -libc::EPIPE);
    stage.complete(OP_RECV, 3, 12, 0);
    assert_eq!(stage.received().unwrap(), Some(12));
    stage.complete(OP_RECV, 2, 13, 0);
    assert_eq!(stage.received().unwrap(), Some(13));
    for sent in [stage.swap.send(5), stage.swap.flush(), stage.swap.front().map(drop)] {
        assert!(matches!(sent, Err(Error::Ended { channel: 7 })), "{sent:?}");
    }
    stage.complete(OP_RECV, 3, 0, -libc::EPIPE);
    for _ in 0..2 {
        let end = stage.received();
        assert!(matches!(end, Err(Error::Ended { channel: 7 })), "{end:?}");
    }
}
