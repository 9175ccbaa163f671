//! Chunks whose receive is over, between chunks for the device: pages have parts of both.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::common::{rails, until};
use linkspan_devmem::sim::SimConfig;
use linkspan_gpu::conformance::StaticGpuBuf;
use linkspan_gpu::{Gpu, SimGpu};
use linkspan_proto::{Head, Kind};
use linkspan_transport::{Buf, MemSlice, Rail, Sink, Violation};

const LEN: usize = 9_001;

fn content(seq: u32) -> Vec<u8> {
    (0..LEN as u32).map(|i| (i * 31 + seq * 7 + (i >> 9)) as u8).collect()
}

/// Every other chunk goes nowhere.
struct Halves {
    dst: MemSlice,
    placed: VecDeque<u32>,
    landed: u32,
}

impl Halves {
    fn place_of(&self, seq: u32) -> Option<MemSlice> {
        seq.is_multiple_of(2).then(|| self.dst.sub(u64::from(seq) * LEN as u64, LEN as u64).unwrap())
    }
}

impl Sink for Halves {
    fn ctrl(&mut self, _: &Head, _: &[u8]) -> Result<(), Violation> {
        Ok(())
    }

    fn place(&mut self, head: &Head) -> Result<Option<MemSlice>, Violation> {
        self.placed.push_back(head.seq.get());
        Ok(self.place_of(head.seq.get()))
    }

    fn landed(&mut self, head: &Head) -> Result<(), Violation> {
        assert_eq!(self.placed.pop_front(), Some(head.seq.get()));
        if let Some(place) = self.place_of(head.seq.get()) {
            assert!(place.to_vec() == content(head.seq.get()), "chunk {} has bytes of others", head.seq);
        }
        self.landed += 1;
        Ok(())
    }
}

#[test]
fn a_page_that_ends_with_bytes_for_nowhere_stays_until_the_gpu_has_read_its_beginning() {
    const CHUNKS: u32 = 60;
    for seed in 1..=3 {
        let sim = SimConfig { seed, pages: 12, mss: 4096, linear: 0, plain: 0, lends: false, ..SimConfig::default() };
        let gpu = SimGpu::new(linkspan_gpu::SimConfig { seed, delay: 60, ..Default::default() }).unwrap();
        let any: Arc<dyn Gpu> = gpu.clone();
        let (mut a, mut b) = rails(&gpu, sim);
        let all = CHUNKS as usize * LEN;
        let (src, dst) = (StaticGpuBuf::new(&any, all).unwrap(), StaticGpuBuf::new(&any, all).unwrap());
        for seq in 0..CHUNKS {
            assert!(src.slice().fill(u64::from(seq) * LEN as u64, &content(seq)));
        }
        let mut sink = Halves { dst: dst.slice(), placed: VecDeque::new(), landed: 0 };
        let mut next = 0;
        until("all chunks", || {
            if next < CHUNKS {
                let mut head = Head::new(Kind::Chunk);
                (head.len, head.seq) = ((LEN as u32).into(), next.into());
                let part = src.slice().sub(u64::from(next) * LEN as u64, LEN as u64).unwrap();
                next += u32::from(a.data(&head, part).is_ok());
            }
            a.flush().unwrap();
            a.poll(&mut Halves { dst: dst.slice(), placed: VecDeque::new(), landed: 0 }).unwrap();
            b.poll(&mut sink).unwrap();
            b.flush().unwrap();
            (sink.landed == CHUNKS).then_some(())
        });
        assert_eq!(gpu.fault(), None, "work in a wrong order");
    }
}
