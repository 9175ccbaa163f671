//! A link's end as the contract's rail.

use std::collections::VecDeque;

use linkspan_proto::head::HEAD_LEN;
use linkspan_transport::{Buf, Busy, Caps, Down, Head, MemSlice, Poll, Rail, RailInfo, Sink, WaitFd};

use crate::parse::Parser;
use crate::{End, LinkConfig, LinkId, World};

#[derive(Debug)]
enum Body {
    Copied(Vec<u8>),
    /// Read when it leaves, not before.
    Lent(MemSlice),
}

#[derive(Debug)]
struct Item {
    number: u64,
    head: [u8; HEAD_LEN],
    body: Body,
    /// Bytes that have left, head included.
    sent: usize,
}

impl Item {
    fn len(&self) -> usize {
        HEAD_LEN
            + match &self.body {
                Body::Copied(bytes) => bytes.len(),
                Body::Lent(mem) => mem.len(),
            }
    }
}

/// One end of a simulated link.
#[derive(Debug)]
pub struct SimRail {
    world: World,
    id: LinkId,
    end: End,
    config: LinkConfig,
    info: RailInfo,
    accepted: u64,
    out: [VecDeque<Item>; 2],
    parsers: [Parser; 2],
}

impl SimRail {
    pub(crate) fn new(world: World, id: LinkId, end: End, config: LinkConfig) -> SimRail {
        let caps = Caps {
            one_sided: false,
            device_memory: false,
            ordered: config.ordered,
            chunk: config.chunk,
            speed: config.speed,
            local: false,
            tells_end: true,
        };
        SimRail {
            info: RailInfo::new("sim", format!("link {} end {end:?}", id.0), "made by a simulation".into(), caps),
            world,
            id,
            end,
            config,
            accepted: 0,
            out: [VecDeque::new(), VecDeque::new()],
            parsers: [Parser::new(), Parser::new()],
        }
    }

    /// The link.
    pub fn link(&self) -> LinkId {
        self.id
    }

    /// Which end of it.
    pub fn end(&self) -> End {
        self.end
    }

    /// Whether the payload of a chunk has begun to arrive and is not complete.
    pub fn is_inside_chunk(&self) -> bool {
        self.parsers.iter().any(Parser::is_inside_chunk)
    }

    fn accept(&mut self, lane: usize, head: &Head, body: Body) -> Result<u64, Busy> {
        let waiting = self.out[0].len() + self.out[1].len();
        if waiting >= self.config.queue || self.world.storming(self.id, self.end) {
            return Err(Busy);
        }
        self.accepted += 1;
        self.out[lane].push_back(Item { number: self.accepted, head: *head.as_wire(), body, sent: 0 });
        Ok(self.accepted)
    }

    fn gone(&self, why: &str) -> Down {
        Down::PeerGone { path: self.info.path.clone(), why: why.into() }
    }

    /// Moves one segment's worth of a lane onto the link. False: nothing could move.
    fn leave(&mut self, lane: usize) -> bool {
        let space = self.world.space(self.id, self.end, lane);
        // Space is awaited rather than used in small pieces, or segments would shrink forever (RFC 9293, 3.8.6.2).
        if space < self.config.segment.min(self.config.buffer / 4).max(1) {
            return false;
        }
        let most = space.min(self.config.segment.max(1));
        let mut bytes = Vec::new();
        while bytes.len() < most {
            let Some(item) = self.out[lane].front_mut() else {
                break;
            };
            if item.sent == 0 {
                self.world.damage(self.id, self.end, &mut item.head);
            }
            if item.sent < HEAD_LEN {
                let n = (HEAD_LEN - item.sent).min(most - bytes.len());
                bytes.extend_from_slice(&item.head[item.sent..item.sent + n]);
                item.sent += n;
            }
            let at = item.sent.saturating_sub(HEAD_LEN);
            let n = (item.len() - item.sent).min(most - bytes.len());
            if item.sent >= HEAD_LEN && n > 0 {
                match &item.body {
                    Body::Copied(body) => bytes.extend_from_slice(&body[at..at + n]),
                    Body::Lent(mem) => {
                        let part = mem.sub(at as u64, n as u64).expect("what is sent lies inside its buffer");
                        bytes.extend_from_slice(&part.to_vec());
                    }
                }
                item.sent += n;
            }
            if item.sent == item.len() {
                self.out[lane].pop_front();
            } else {
                break;
            }
        }
        if bytes.is_empty() {
            return false;
        }
        self.world.put(self.id, self.end, lane, bytes);
        true
    }
}

#[allow(unsafe_code)]
// SAFETY: payload is copied when it is sent; a place is written when its bytes arrive, and never after the rail was dropped.
unsafe impl Rail for SimRail {
    fn info(&self) -> &RailInfo {
        &self.info
    }

    fn ctrl(&mut self, head: &Head, body: MemSlice) -> Result<u64, Busy> {
        debug_assert_eq!(head.len.get() as usize, body.len());
        self.accept(0, head, Body::Copied(body.to_vec()))
    }

    fn data(&mut self, head: &Head, src: MemSlice) -> Result<u64, Busy> {
        debug_assert_eq!(head.len.get() as usize, src.len());
        let lane = usize::from(!self.config.ordered);
        self.accept(lane, head, Body::Lent(src))
    }

    fn taken(&self) -> u64 {
        let waiting = self.out.iter().filter_map(|q| q.front()).map(|i| i.number);
        waiting.min().map_or(self.accepted, |first| first - 1)
    }

    fn flush(&mut self) -> Result<Poll, Down> {
        if let Some(why) = self.world.down(self.id, self.end) {
            return Err(self.gone(why));
        }
        if self.world.reset(self.id, self.end) {
            return Err(self.gone("connection reset"));
        }
        let mut active = false;
        for lane in [1, 0] {
            while self.leave(lane) {
                active = true;
            }
        }
        Ok(if active { Poll::Active } else { Poll::Idle })
    }

    fn poll(&mut self, sink: &mut dyn Sink) -> Result<Poll, Down> {
        let mut active = false;
        for lane in [1, 0] {
            let mut budget = 1 + self.world.below(self.config.budget as u64) as usize;
            while budget > 0 {
                let bytes = self.world.take(self.id, self.end, lane, budget);
                if bytes.is_empty() {
                    break;
                }
                active = true;
                budget -= bytes.len();
                self.parsers[lane]
                    .feed(&bytes, sink)
                    .map_err(|why| Down::Protocol { path: self.info.path.clone(), why })?;
            }
        }
        if active {
            return Ok(Poll::Active);
        }
        if let Some(why) = self.world.down(self.id, self.end) {
            return Err(self.gone(why));
        }
        if self.world.ended(self.id, self.end) {
            return Err(self.gone("end of stream"));
        }
        Ok(Poll::Idle)
    }

    fn arm(&mut self) -> Option<WaitFd> {
        None // a virtual clock has nothing to sleep on
    }
}

impl Drop for SimRail {
    fn drop(&mut self) {
        self.world.close(self.id, self.end);
    }
}
