//! Memory of GPUs: on a simulated one that runs everything late, and on a real one where there is one.

use std::sync::Arc;
use std::time::Duration;

use crate::common::{LONG, context, pair, pattern};
use linkspan::{Access, Error, Gpu, Memory, MemoryKind, Notify, Transport};
use linkspan_gpu::{SimConfig, SimGpu};

type Env = &'static [(&'static str, &'static str)];

const STAGED: [Env; 3] = [
    &[("LINKSPAN_GPU", "staged")],
    &[("LINKSPAN_GPU", "staged"), ("LINKSPAN_PATH", "shm")],
    &[("LINKSPAN_GPU", "staged"), ("LINKSPAN_PATH", "shm"), ("LINKSPAN_CMA", "0")],
];

/// Around every size at which the way of a write changes.
const SIZES: [usize; 7] = [0, 1, 8192, 8193, 100_000, 1 << 20, (3 << 20) + 7];

fn sim() -> (Arc<SimGpu>, Arc<dyn Gpu>) {
    let sim = SimGpu::new(SimConfig::default()).unwrap();
    (sim.clone(), sim)
}

/// Writes, reads, batches and messages between memory of `gpu` and of the host, both ways.
fn everywhere(a: &Transport, b: &Transport, gpu: &Arc<dyn Gpu>) {
    for (n, len) in SIZES.into_iter().enumerate() {
        let bytes = pattern(len, n as u64);
        let (up, down) = (Memory::on_gpu(gpu, len).unwrap(), Memory::on_gpu(gpu, len).unwrap());
        assert!(up.kind() == MemoryKind::Device && up.gpu().is_some());
        let host = Memory::host(len);
        let there = b.expose(&down.view(), Access::ReadWrite).unwrap();
        let hosted = b.expose(&host.view(), Access::ReadWrite).unwrap();
        up.fill(0, &bytes).unwrap();
        // From a GPU into a GPU, and told when it is there.
        a.write_blocking(&up.view(), &there.remote(), Some(Notify::value(n as u64)), Some(LONG)).unwrap();
        assert_eq!(b.wait_for_write_blocking(Some(LONG)).unwrap(), n as u64);
        assert!(down.to_vec() == bytes, "{len} bytes from GPU to GPU");
        // Back into the host, and from the host.
        let back = Memory::host(len);
        a.read_blocking(&back.view_mut().unwrap(), &there.remote(), Some(LONG)).unwrap();
        assert!(back.to_vec() == bytes, "{len} bytes read from a GPU");
        a.write_blocking(&up.view(), &hosted.remote(), None, Some(LONG)).unwrap();
        assert!(host.to_vec() == bytes, "{len} bytes from GPU to host");
        let other: Vec<u8> = bytes.iter().map(|b| !b).collect();
        host.fill(0, &other).unwrap();
        a.read_blocking(&up.view_mut().unwrap(), &hosted.remote(), Some(LONG)).unwrap();
        assert!(up.to_vec() == other, "{len} bytes read into a GPU");
        // A message, from the GPU that reads nothing else.
        std::thread::scope(|s| {
            s.spawn(|| a.send_blocking(7, &up.view(), Some(LONG)).unwrap());
            assert_eq!(b.recv_blocking(7, &down.view_mut().unwrap(), Some(LONG)).unwrap(), len as u64);
        });
        assert!(down.to_vec() == other, "a message of {len} bytes");
        b.unexpose(&there, LONG).unwrap();
        b.unexpose(&hosted, LONG).unwrap();
    }
    // Pages of a GPU, each at another place.
    const PAGE: usize = 16 << 10;
    let count = 67;
    let (up, down) = (Memory::on_gpu(gpu, count * PAGE).unwrap(), Memory::on_gpu(gpu, count * PAGE).unwrap());
    let bytes = pattern(count * PAGE, 99);
    up.fill(0, &bytes).unwrap();
    let remote = b.expose(&down.view(), Access::Write).unwrap().remote();
    let parts: Vec<_> = (0..count)
        .map(|n| {
            let to = remote.slice((n * 31 % count * PAGE) as u64, PAGE as u64).unwrap();
            (up.slice(n * PAGE, PAGE).unwrap(), to)
        })
        .collect();
    a.write_batch_blocking(&parts, Some(Notify::COUNT), Some(LONG)).unwrap();
    b.wait_for_write_blocking(Some(LONG)).unwrap();
    let landed = down.to_vec();
    for n in 0..count {
        let at = n * 31 % count * PAGE;
        assert!(landed[at..at + PAGE] == bytes[n * PAGE..(n + 1) * PAGE], "page {n}");
    }
}

#[test]
fn gpu_memory_is_written_read_and_exposed_over_every_path() {
    for env in STAGED {
        let (sim, gpu) = sim();
        let (a, b) = pair(env);
        a.attach(&gpu).unwrap();
        a.attach(&gpu).unwrap();
        b.attach(&gpu).unwrap();
        everywhere(&a, &b, &gpu);
        let line = a.path().unwrap();
        assert!(line.contains("sim:0 staged through pinned host memory"), "{line}");
        drop((a, b));
        assert_eq!(sim.fault(), None, "{env:?}");
    }
}

#[test]
fn a_path_that_is_made_again_carries_it_too() {
    for env in STAGED {
        let (sim, gpu) = sim();
        let (a, b) = (context(env).transport().unwrap(), context(env).transport().unwrap());
        // Before there is any path.
        a.attach(&gpu).unwrap();
        b.attach(&gpu).unwrap();
        let inbox = Memory::on_gpu(&gpu, 8 << 20).unwrap();
        let remote = b.expose(&inbox.view(), Access::ReadWrite).unwrap().remote();
        a.connect_blocking(&b.bind().unwrap(), LONG).unwrap();
        b.wait_connected_blocking(LONG).unwrap();
        let big = Memory::on_gpu(&gpu, 8 << 20).unwrap();
        let result = a.write_blocking(&big.view(), &remote, Some(Notify::value(1)), Some(Duration::ZERO));
        assert!(matches!(result, Err(Error::Timeout)), "{result:?}");
        // Local memory is free, and the transport usable.
        let bytes = pattern(8 << 20, 3);
        big.fill(0, &bytes).unwrap();
        a.write_blocking(&big.view(), &remote, Some(Notify::value(2)), Some(LONG)).unwrap();
        assert_eq!(b.wait_for_write_blocking(Some(LONG)).unwrap(), 2);
        assert!(inbox.to_vec() == bytes && a.epoch() > 1);
        // What an operation that was dropped leaves behind is freed while the GPU still copies.
        drop(a.write(&big.view(), &remote, None, Some(LONG)));
        drop((big, a, b, inbox));
        assert_eq!(sim.fault(), None, "{env:?}");
    }
}

#[test]
fn what_is_not_carried_is_refused_with_the_reason() {
    let ((_one, first), (_two, second)) = (sim(), sim());
    let (a, b) = pair(STAGED[0]);
    let (ours, theirs) = (Memory::on_gpu(&first, 100).unwrap(), Memory::on_gpu(&second, 100).unwrap());
    let host = Memory::host(100);
    let remote = b.expose(&host.view(), Access::ReadWrite).unwrap().remote();
    let refused = |memory: &Memory| {
        let write = a.write_blocking(&memory.view(), &remote, None, Some(LONG)).unwrap_err();
        let batch = a.write_batch_blocking(&[(memory.view(), remote)], None, Some(LONG)).unwrap_err();
        let read = a.read_blocking(&memory.view_mut().unwrap(), &remote, Some(LONG)).unwrap_err();
        let send = a.send_blocking(1, &memory.view(), Some(LONG)).unwrap_err();
        let expose = a.expose(&memory.view(), Access::Read).unwrap_err();
        [write, batch, read, send, expose].map(|e| e.to_string())
    };
    assert!(refused(&ours).iter().all(|e| e.starts_with("LS1127") && e.contains("host memory only")));
    a.attach(&first).unwrap();
    a.write_blocking(&ours.view(), &remote, None, Some(LONG)).unwrap();
    assert!(refused(&theirs).iter().all(|e| e.starts_with("LS1127")));
    assert_eq!(a.attach(&second).unwrap_err().code(), "LS1127");
    // Where nothing is staged, a path over host memory says so.
    let (plain, _peer) = pair(&[]);
    let why = plain.attach(&first).unwrap_err().to_string();
    assert!(why.starts_with("LS1305") && why.contains("LINKSPAN_GPU"), "{why}");
    plain.write_blocking(&host.view(), &remote, None, Some(LONG)).unwrap_err();
    assert!(plain.connected());
}

#[test]
fn memory_of_a_gpu_has_views_and_bounds_and_is_freed_by_its_last_user() {
    let (sim, gpu) = sim();
    let memory = Memory::on_gpu(&gpu, 1000).unwrap();
    memory.fill(10, b"abc").unwrap();
    let mut out = [0; 3];
    memory.read(10, &mut out).unwrap();
    assert_eq!(&out, b"abc");
    assert_eq!(memory.slice(10, 3).unwrap().to_vec(), b"abc");
    assert!(memory.slice(1000, 0).is_ok() && matches!(memory.slice(999, 2), Err(Error::Bounds { .. })));
    let view = memory.slice(10, 3).unwrap().shared();
    drop(memory);
    assert_eq!(view.to_vec(), b"abc");
    drop(view);
    assert_eq!(sim.fault(), None);
}

/// On the machine's own GPU; a line says so where there is none.
#[test]
fn a_real_gpu() {
    let found = ["cuda:0", "hip:0"].into_iter().map(|name| (name, linkspan::gpu(name)));
    let mut whys = Vec::new();
    for (name, gpu) in found {
        match gpu {
            Ok(gpu) => {
                for env in STAGED {
                    let (a, b) = pair(env);
                    a.attach(&gpu).unwrap();
                    b.attach(&gpu).unwrap();
                    everywhere(&a, &b, &gpu);
                    println!("{}", a.path().unwrap());
                }
                let own = Memory::on_gpu(&gpu, 4096).unwrap();
                assert_eq!(linkspan::gpu_of(own.as_ptr() as u64).unwrap().place(), gpu.place());
                assert!(Transport::for_gpu(name).is_ok());
                return;
            }
            Err(why) => whys.push(why.to_string()),
        }
    }
    assert!(whys.iter().all(|why| why.starts_with("LS13")), "{whys:?}");
    assert!(Transport::for_gpu("cuda:0").is_err() && Transport::for_gpu("nvidia").is_err());
    assert!(linkspan::gpu_of(std::ptr::from_ref(&whys) as u64).is_err());
    println!("skipped: a real GPU: {}", whys.join("; "));
}
