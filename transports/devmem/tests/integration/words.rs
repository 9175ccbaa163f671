//! Words that a reader polls while they arrive, as NCCL's LL kernels watch theirs in host memory: four bytes of data and a flag behind
//! them. Wherever segments end, whatever way a part of them takes, a flag is never there before its data.

#[cfg(feature = "planted")]
use std::panic::catch_unwind;
use std::sync::Arc;

use crate::common::{rail, rails, streams, until};
use linkspan_devmem::RailConfig;
use linkspan_devmem::sim::SimConfig;
#[cfg(feature = "planted")]
use linkspan_devmem::{PlantedBug, plant};
use linkspan_gpu::conformance::StaticGpuBuf;
use linkspan_gpu::{Gpu, SimGpu};
use linkspan_transport::{Buf, Conn, MemSlice, Rail, StaticBuf};

/// Words of a message: few, for all of them are looked at after every step.
const WORDS: usize = 6_001;

fn data(word: usize, round: u32) -> u32 {
    (word as u32).wrapping_mul(0x9E37_79B9) ^ round.wrapping_mul(0x85EB_CA6B)
}

fn message(round: u32) -> Vec<u8> {
    (0..WORDS).flat_map(|word| [data(word, round).to_le_bytes(), round.to_le_bytes()].concat()).collect()
}

/// Words whose flag is there and whose data is not.
fn torn(seen: &[u8], round: u32) -> Option<usize> {
    let words = seen.chunks_exact(8).enumerate();
    words.into_iter().find_map(|(n, word)| {
        let number = |at: usize| u32::from_le_bytes(*word[at..].first_chunk().unwrap());
        (number(4) == round && number(0) != data(n, round)).then_some(n)
    })
}

fn watch(sim: SimConfig, src: impl Fn(&Arc<dyn Gpu>, &[u8]) -> (MemSlice, Box<dyn std::any::Any>)) {
    let gpu = SimGpu::new(linkspan_gpu::SimConfig { seed: sim.seed, delay: 40, ..Default::default() }).unwrap();
    let any: Arc<dyn Gpu> = gpu.clone();
    let (a, b) = rails(&gpu, sim);
    let (mut a, mut b) = (Conn::new([a], false), Conn::new([b], false));
    let dst = StaticBuf::new(WORDS * 8);
    for round in 1..=4 {
        let bytes = message(round);
        let (src, _keeps) = src(&any, &bytes);
        let recv = b.post_recv(&[(1, dst.slice())]).unwrap().unwrap();
        let mut send = None;
        until("the message", || {
            send = send.or_else(|| a.post_send(1, src).unwrap());
            a.progress().unwrap();
            b.progress().unwrap();
            let done = b.test(recv).unwrap();
            let seen = dst.slice().to_vec();
            assert_eq!(torn(&seen, round), None, "round {round}: a flag before its data");
            done
        });
        until("the send", || {
            a.progress().unwrap();
            a.test(send.unwrap()).unwrap()
        });
        assert!(dst.slice().to_vec() == bytes, "round {round}");
    }
    assert_eq!(gpu.fault(), None);
}

#[test]
fn a_rail_whose_payload_nobody_acknowledges_has_stopped_carrying() {
    let gpu = SimGpu::new(linkspan_gpu::SimConfig::default()).unwrap();
    let ((a, b), (c, d)) = (streams(), streams());
    // `BPF_RET | BPF_K`, 0 bytes (linux/bpf_common.h): the stream of heads goes on.
    socket2::SockRef::from(&d).attach_filter(&[socket2::SockFilter::new(6, 0, 0, 0)]).unwrap();
    let ends =
        [(a, c), (b, d)].map(|(heads, data)| rail(&gpu, heads, data, SimConfig::default(), RailConfig::default()));
    let [mut a, mut b] = ends.map(|end| Conn::new([end], false));
    let (src, dst) = (StaticBuf::new(100_000), StaticBuf::new(100_000));
    b.post_recv(&[(1, dst.slice())]).unwrap().unwrap();
    let mut send = None;
    until("retransmissions", || {
        send = send.or_else(|| a.post_send(1, src.slice()).unwrap());
        a.progress().unwrap();
        b.progress().unwrap();
        (!a.carries()).then_some(())
    });
    let [(_, end)] = a.rails().collect::<Vec<_>>()[..] else { panic!("one rail") };
    assert!(!end.control().health().dead && end.health().retransmitted > 0);
}

/// Segments of odd lengths, many of them in part or wholly by way of the host.
fn odd(seed: u64) -> SimConfig {
    SimConfig { seed, pages: 512, mss: 1003, linear: 3, plain: 11, ..SimConfig::default() }
}

fn from_host(_: &Arc<dyn Gpu>, bytes: &[u8]) -> (MemSlice, Box<dyn std::any::Any>) {
    let buf = StaticBuf::new(bytes.len());
    assert!(buf.slice().fill(0, bytes));
    (buf.slice(), Box::new(buf))
}

fn from_device(gpu: &Arc<dyn Gpu>, bytes: &[u8]) -> (MemSlice, Box<dyn std::any::Any>) {
    let buf = StaticGpuBuf::new(gpu, bytes.len()).unwrap();
    assert!(buf.slice().fill(0, bytes));
    (buf.slice(), Box::new(buf))
}

#[test]
fn no_flag_before_its_data() {
    for seed in 1..=2 {
        watch(odd(seed), from_host);
        watch(odd(seed), from_device);
        watch(SimConfig { mss: 8948, pages: 24, ..odd(seed) }, from_host);
    }
}

#[cfg(feature = "planted")]
#[test]
fn bytes_that_overtake_are_caught() {
    plant(Some(PlantedBug::HostAhead));
    let caught = (1..=5).any(|seed| catch_unwind(|| watch(odd(seed), from_host)).is_err());
    plant(None);
    assert!(caught, "a flag came before its data, and it was not noticed");
}
