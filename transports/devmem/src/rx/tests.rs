use std::io::Write;
use std::os::unix::net::UnixStream;

use linkspan_gpu::SimGpu;
use linkspan_gpu::conformance::StaticGpuBuf;
use linkspan_proto::Kind;

use super::*;
use crate::sim::{SimConfig, SimSocket};
use crate::tx::tests::Local;

struct Place(MemSlice);

impl Sink for Place {
    fn ctrl(&mut self, _: &Head, _: &[u8]) -> Result<(), Violation> {
        Ok(())
    }

    fn place(&mut self, _: &Head) -> Result<Option<MemSlice>, Violation> {
        Ok(Some(self.0))
    }

    fn landed(&mut self, _: &Head) -> Result<(), Violation> {
        Ok(())
    }
}

#[test]
fn means_that_could_not_be_set_up_leave_their_streams_and_events_to_others() {
    // The unpack's table finds no memory.
    let full = linkspan_gpu::SimConfig { memory: 4096, ..Default::default() };
    let gpu: Arc<dyn Gpu> = SimGpu::new(full).unwrap();
    let first = || {
        let (stream, event) = (gpu.stream().unwrap(), gpu.event().unwrap());
        gpu.retire_stream(stream);
        gpu.retire_event(event);
        (stream, event)
    };
    let before = first();
    assert!(Means::new(&gpu, true, None, &StageMemory::default()).is_err());
    assert_eq!(first(), before);
    // No event, and one.
    let events: Vec<_> = std::iter::from_fn(|| gpu.event().ok()).collect();
    for event in &events[..2] {
        assert!(Means::new(&gpu, false, None, &StageMemory::default()).is_err());
        assert_eq!(gpu.stream().unwrap(), before.0);
        gpu.retire_stream(before.0);
        gpu.retire_event(*event);
    }
}

#[test]
fn pages_that_other_streams_of_the_pool_hold_count_as_a_lack() {
    for (others, scarce) in [(870, 0), (890, 1)] {
        let (ours, mut peer) = UnixStream::pair().unwrap();
        let sim = SimConfig { pages: 1000, linear: 0, plain: 0, ..SimConfig::default() };
        let mut socket = SimSocket::beside_any(Local(ours), "local".into(), sim);
        // Copies take a while: pages stay with us.
        let slow = linkspan_gpu::SimConfig { delay: 40, ..Default::default() };
        let gpu: Arc<dyn Gpu> = SimGpu::new(slow).unwrap();
        let memory = StaticGpuBuf::new(&gpu, 9000).unwrap();
        let pool = socket.bind(&gpu).unwrap();
        let all = pool.held.clone();
        all.store(others, Relaxed);
        let mut intake = Intake::new();
        let means = Means::new(&gpu, true, None, &StageMemory::default()).unwrap();
        intake.attach(&gpu, means, Some(pool));
        let mut head = Head::new(Kind::Chunk);
        head.len.set(9000);
        intake.announced(head);
        peer.write_all(&[7; 4000]).unwrap();
        assert!(intake.poll(&mut socket, &mut Place(memory.slice())).is_ok_and(|moved| moved));
        let held = all.load(Relaxed);
        assert!((others + 1..others + 5).contains(&held), "{held} of {others}");
        assert_eq!(intake.counts.scarce, scarce);
        intake.finish();
        assert_eq!(all.load(Relaxed), others);
    }
}
