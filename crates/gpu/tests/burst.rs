//! Staging before rails made for it. One brings as many chunks at once as the contract allows, for memory of a simulated GPU whose copies
//! take their time: all are copied and reported, in order, though there are fewer events than chunks.

use std::sync::Arc;

use linkspan_gpu::{Gpu, GpuBuf, Pinned, SimConfig, SimGpu, StagedRail, Staging};
use linkspan_proto::conn::{Access, RemoteSlice};
use linkspan_transport::{
    Buf, Busy, Caps, Conn, Down, Error, Head, Kind, MemSlice, Poll, Rail, RailInfo, Sink, StaticBuf, Violation, WaitFd,
};

/// One less than the chunks of a rail that may be on their way in.
const CHUNKS: usize = 511;
const LEN: usize = 64;

fn byte(n: usize) -> u8 {
    (n % 251) as u8
}

/// Long chunks, of which it begins on as many as the sink is ready for before one has landed, as RDMA does.
struct Asking(Burst);

const LONG: usize = 512 << 10;

// SAFETY: as below.
unsafe impl Rail for Asking {
    fn info(&self) -> &RailInfo {
        &self.0.info
    }

    fn ctrl(&mut self, _: &Head, _: MemSlice) -> Result<u64, Busy> {
        Err(Busy)
    }

    fn data(&mut self, _: &Head, _: MemSlice) -> Result<u64, Busy> {
        Err(Busy)
    }

    fn taken(&self) -> u64 {
        0
    }

    fn flush(&mut self) -> Result<Poll, Down> {
        Ok(Poll::Idle)
    }

    fn poll(&mut self, sink: &mut dyn Sink) -> Result<Poll, Down> {
        let failed = |v: Violation| Down::Protocol { path: "asking".into(), why: v.0 };
        let mut head = Head::new(Kind::Chunk);
        head.len.set(LONG as u32);
        let mut begun = 0;
        while self.0.left > 0 && sink.ready(&head) {
            (self.0.left, begun) = (self.0.left - 1, begun + 1);
            sink.place(&head).map_err(failed)?.expect("a place");
        }
        for _ in 0..begun {
            sink.landed(&head).map_err(failed)?;
        }
        Ok(if begun == 0 { Poll::Idle } else { Poll::Active })
    }

    fn arm(&mut self) -> Option<WaitFd> {
        None
    }
}

struct Counter {
    memory: MemSlice,
    landed: usize,
}

impl Sink for Counter {
    fn ctrl(&mut self, _: &Head, _: &[u8]) -> Result<(), Violation> {
        Err(Violation("no control messages here".into()))
    }

    fn place(&mut self, _: &Head) -> Result<Option<MemSlice>, Violation> {
        Ok(Some(self.memory))
    }

    fn landed(&mut self, _: &Head) -> Result<(), Violation> {
        self.landed += 1;
        Ok(())
    }
}

#[test]
fn a_rail_that_begins_on_more_chunks_than_the_arena_has_space_for_is_kept_waiting() {
    let gpu: Arc<dyn Gpu> = SimGpu::new(SimConfig { delay: 40, ..SimConfig::default() }).unwrap();
    let mut below = burst(100);
    below.info.caps.local = false;
    let mut rail = StagedRail::new(Asking(below), &Staging::new(gpu.clone())).unwrap();
    let memory = GpuBuf::new(&gpu, LONG).unwrap();
    // SAFETY: the handle is used before `memory` is dropped.
    let mut target = Counter { memory: unsafe { memory.slice() }, landed: 0 };
    while target.landed < 100 {
        rail.poll(&mut target).unwrap();
    }
}

/// Places all of its chunks, fills them, and then says of each that it has landed: what seven batches of pages do that end together.
struct Burst {
    info: RailInfo,
    left: usize,
    exposed: u32,
}

// SAFETY: what a test's implementation keeps of memory stays allocated until the process ends.
unsafe impl Rail for Burst {
    fn info(&self) -> &RailInfo {
        &self.info
    }

    fn ctrl(&mut self, _: &Head, _: MemSlice) -> Result<u64, Busy> {
        Err(Busy)
    }

    fn data(&mut self, _: &Head, _: MemSlice) -> Result<u64, Busy> {
        Err(Busy)
    }

    fn exposed(&mut self, key: u32, _: MemSlice, _: Access) {
        self.exposed = key;
    }

    fn unexposed(&mut self, key: u32) -> bool {
        std::mem::take(&mut self.exposed) != key
    }

    fn copy_alone(&mut self, _: MemSlice, place: RemoteSlice, write: bool) -> bool {
        write && place.key == self.exposed
    }

    fn copied_by_peer(&mut self) -> [u64; 2] {
        [self.exposed.into(), 1]
    }

    fn taken(&self) -> u64 {
        0
    }

    fn flush(&mut self) -> Result<Poll, Down> {
        Ok(Poll::Idle)
    }

    fn poll(&mut self, sink: &mut dyn Sink) -> Result<Poll, Down> {
        let failed = |v: Violation| Down::Protocol { path: "burst".into(), why: v.0 };
        let heads: Vec<Head> = (0..std::mem::take(&mut self.left))
            .map(|n| {
                let mut head = Head::new(Kind::Chunk);
                head.len.set(LEN as u32);
                head.id.set(n as u32);
                head
            })
            .collect();
        for (n, head) in heads.iter().enumerate() {
            let place = sink.place(head).map_err(failed)?.expect("a place");
            assert!(place.is_host() && place.fill(0, &[byte(n); LEN]), "pinned memory");
        }
        for head in &heads {
            sink.landed(head).map_err(failed)?;
        }
        Ok(if heads.is_empty() { Poll::Idle } else { Poll::Active })
    }

    fn arm(&mut self) -> Option<WaitFd> {
        None
    }
}

struct Target {
    memory: MemSlice,
    landed: u32,
}

impl Sink for Target {
    fn ctrl(&mut self, _: &Head, _: &[u8]) -> Result<(), Violation> {
        Err(Violation("no control messages here".into()))
    }

    fn place(&mut self, head: &Head) -> Result<Option<MemSlice>, Violation> {
        Ok(self.memory.sub(u64::from(head.id.get()) * LEN as u64, LEN as u64))
    }

    fn landed(&mut self, head: &Head) -> Result<(), Violation> {
        assert_eq!(head.id.get(), self.landed, "in order");
        self.landed += 1;
        Ok(())
    }
}

fn burst(chunks: usize) -> Burst {
    let caps = Caps {
        one_sided: false,
        device_memory: false,
        ordered: false,
        chunk: 1 << 20,
        speed: 0,
        local: true,
        tells_end: true,
    };
    Burst { info: RailInfo::new("burst", "burst".into(), "test".into(), caps), left: chunks, exposed: 0 }
}

#[test]
fn more_chunks_than_events_land_in_order() {
    let sim = SimGpu::new(SimConfig { delay: 40, ..SimConfig::default() }).unwrap();
    let gpu: Arc<dyn Gpu> = sim.clone();
    let mut rail = StagedRail::new(burst(CHUNKS), &Staging::new(gpu.clone())).unwrap();
    let memory = GpuBuf::new(&gpu, CHUNKS * LEN).unwrap();
    // SAFETY: the handle is used before `memory` is dropped.
    let mem = unsafe { memory.slice() };
    let mut target = Target { memory: mem, landed: 0 };
    for _ in 0..100_000 {
        rail.poll(&mut target).unwrap();
        if target.landed as usize == CHUNKS {
            break;
        }
    }
    assert_eq!(target.landed as usize, CHUNKS);
    let seen = Pinned::new(&gpu, CHUNKS * LEN).unwrap();
    let (stream, event) = (gpu.stream().unwrap(), gpu.event().unwrap());
    // SAFETY: as above; the copy is waited for.
    let to = unsafe { seen.slice() };
    gpu.copy(stream, to, mem).and_then(|()| gpu.record(event, stream)).unwrap();
    gpu.wait(event).unwrap();
    let right: Vec<u8> = (0..CHUNKS * LEN).map(|at| byte(at / LEN)).collect();
    assert_eq!(to.to_vec(), right);
    gpu.retire_event(event);
    gpu.retire_stream(stream);
    drop(rail);
    sim.settle();
    assert_eq!(sim.fault(), None);
}

#[test]
fn what_a_rail_below_copies_alone_is_copied_beside_a_gpu_too() {
    let gpu: Arc<dyn Gpu> = SimGpu::new(SimConfig::default()).unwrap();
    let mut rail = StagedRail::new(burst(0), &Staging::new(gpu)).unwrap();
    let (memory, place) = (StaticBuf::new(8), RemoteSlice { key: 9, offset: 0 });
    rail.exposed(9, memory.slice(), Access::ReadWrite);
    assert!(rail.copy_alone(memory.slice(), place, true) && !rail.copy_alone(memory.slice(), place, false));
    assert_eq!(rail.copied_by_peer(), [9, 1]);
    assert!(!rail.unexposed(9) && rail.unexposed(9), "as the rail below says");
    assert!(!rail.copy_alone(memory.slice(), place, true));
}

#[test]
fn a_small_message_in_memory_that_can_be_read_no_more_ends_its_connection_by_name() {
    let gpu: Arc<dyn Gpu> = SimGpu::new(SimConfig::default()).unwrap();
    let rail = StagedRail::new(burst(0), &Staging::new(gpu.clone())).unwrap();
    let mut conn: Conn<StagedRail<Burst>> = Conn::new([rail], false);
    let memory = GpuBuf::new(&gpu, LEN).unwrap();
    // SAFETY: a simulated GPU finds by itself that its memory is gone.
    let mem = unsafe { memory.slice() };
    drop(memory);
    // It waits where no rail takes it.
    let ticket = conn.post_send(1, mem).unwrap().expect("it waits");
    assert!(matches!(conn.progress(), Err(Error::Lost)), "it waits for a rail that never takes it");
    assert!(matches!(conn.test(ticket), Err(Error::Lost)));
    let why = conn.lost().map(ToString::to_string).unwrap_or_default();
    assert!(why.starts_with("LS0104") && why.contains("LS1306 64 bytes at") && why.contains("cannot be read"), "{why}");
}
