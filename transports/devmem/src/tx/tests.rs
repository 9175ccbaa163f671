use std::io::Read;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;

use linkspan_gpu::SimGpu;
use linkspan_gpu::conformance::StaticGpuBuf;

use super::*;
use crate::Owner;
use crate::sim::{SimConfig, SimSocket};

#[derive(Debug)]
pub(crate) struct Local(pub(crate) UnixStream);

impl AsFd for Local {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Owner for Local {
    fn ends(&self) -> (SocketAddr, SocketAddr) {
        let nowhere = (Ipv4Addr::UNSPECIFIED, 0).into();
        (nowhere, nowhere)
    }

    fn cut(&mut self) {}
}

/// A sending half with a GPU, its stream, and what the peer reads.
fn sends(config: SimConfig) -> (Outgoing, SimSocket<Local>, UnixStream, Arc<dyn Gpu>) {
    let (ours, theirs) = UnixStream::pair().unwrap();
    theirs.set_nonblocking(true).unwrap();
    let gpu: Arc<dyn Gpu> = SimGpu::new(linkspan_gpu::SimConfig::default()).unwrap();
    let mut out = Outgoing::new(StageMemory::default());
    out.attach(&gpu);
    (out, SimSocket::beside_any(Local(ours), "local".into(), config), theirs, gpu)
}

#[test]
fn staging_that_could_not_be_set_up_leaves_its_stream_and_events_to_others() {
    let gpu: Arc<dyn Gpu> = SimGpu::new(linkspan_gpu::SimConfig::default()).unwrap();
    let all: Vec<_> = std::iter::from_fn(|| gpu.event().ok()).collect();
    all[..3].iter().for_each(|event| gpu.retire_event(*event));
    assert!(Staging::new(&gpu, &StageMemory::default()).is_err(), "it takes four events");
    assert_eq!(gpu.stream().unwrap(), linkspan_gpu::Stream(0));
    assert_eq!(std::iter::from_fn(|| gpu.event().ok()).count(), 3);
}

#[test]
fn a_kernel_that_has_no_memory_for_one_more_call_is_asked_again_when_others_were_noticed() {
    for seed in 1..=3 {
        let (mut out, mut socket, mut peer, gpu) = sends(SimConfig { seed, ..SimConfig::default() });
        let memory = StaticGpuBuf::new(&gpu, 1 << 20).unwrap();
        let bytes: Vec<u8> = (0..1 << 20).map(|i: u32| (i * 31 + (i >> 9)) as u8).collect();
        assert!(memory.slice().fill(0, &bytes));
        out.prepare(&mut socket, memory.slice());
        (0..128).for_each(|n| out.push(n + 1, part(memory.slice(), n as usize * 8192, 8192)));
        let mut came = Vec::new();
        while out.gone_before().is_some() || came.len() < bytes.len() {
            assert!(out.flush(&mut socket).is_ok());
            let mut some = [0; 20_000];
            if let Ok(n) = peer.read(&mut some) {
                came.extend_from_slice(&some[..n]);
            }
        }
        assert!(came == bytes && out.refused.is_none() && out.staging.is_none(), "seed {seed}: {:?}", out.refused);
    }
}

#[test]
fn memory_that_the_card_does_not_know_leaves_other_memory_as_it_is() {
    let (mut out, mut socket, _peer, gpu) = sends(SimConfig { unregistered: 1, ..SimConfig::default() });
    let [unknown, known] = [4096, 4096].map(|len| StaticGpuBuf::new(&gpu, len).unwrap());
    out.prepare(&mut socket, unknown.slice());
    assert!(out.refused.take().is_some_and(|why| why.starts_with("LS1341")) && out.lent.is_empty());
    out.prepare(&mut socket, known.slice());
    out.prepare(&mut socket, unknown.slice());
    let lent: Vec<MemSlice> = out.lent.iter().map(|lent| lent.mem).collect();
    assert_eq!((lent, out.refused), (vec![known.slice()], None));
}
