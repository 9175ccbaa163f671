//! Device memory over paths that reach host memory only, on a simulated GPU that runs everything late.

use std::sync::Arc;
use std::time::{Duration, Instant};

use linkspan_fabric::{Buf, Channel, Config, Fabric, Gpu, Log, MemSlice};
use linkspan_gpu::conformance::StaticGpuBuf;
use linkspan_gpu::{SimConfig, SimGpu};
use linkspan_transport::StaticBuf;

type Env = &'static [(&'static str, &'static str)];

fn pair(extra: Env) -> (Channel, Channel) {
    let get = move |name: &str| {
        let base = [("LINKSPAN_IFNAME", "=lo"), ("LINKSPAN_PATH", "tcp"), ("LINKSPAN_STATS_DIR", "off")];
        base.iter().chain(extra).rev().find(|p| p.0 == name).map(|p| p.1.to_owned())
    };
    let fabric = Fabric::new(Config::read(&get).unwrap(), Log::off(), false, Vec::new()).unwrap();
    let listener = fabric.listen(0).unwrap();
    let mut connecting = fabric.connect(0, &listener.handle()).unwrap();
    let (mut here, mut there) = (None, None);
    let until = Instant::now() + Duration::from_secs(20);
    while here.is_none() || there.is_none() {
        assert!(Instant::now() < until, "no connection within 20 s");
        here = here.take().or_else(|| connecting.poll().unwrap());
        there = there.take().or_else(|| listener.accept().unwrap());
    }
    (here.unwrap(), there.unwrap())
}

fn gpu() -> (Arc<SimGpu>, Arc<dyn Gpu>) {
    let sim = SimGpu::new(SimConfig::default()).unwrap();
    (sim.clone(), sim)
}

/// One message; false where the connection is lost.
fn message(a: &mut Channel, b: &mut Channel, src: MemSlice, dst: MemSlice) -> bool {
    let (mut ta, mut tb) = (None, None);
    let (mut sent, mut got) = (None, None);
    let until = Instant::now() + Duration::from_secs(60);
    while sent.is_none() || got.is_none() {
        assert!(Instant::now() < until, "no completion within 60 s");
        if tb.is_none() {
            tb = b.post_recv(&[(3, dst)]).unwrap();
        }
        if ta.is_none() {
            ta = a.post_send(3, src).unwrap();
        }
        if a.progress().is_err() || b.progress().is_err() {
            return false;
        }
        if let (Some(ticket), None) = (ta, sent) {
            sent = a.test(ticket).unwrap();
        }
        if let (Some(ticket), None) = (tb, got) {
            got = b.test(ticket).unwrap();
        }
    }
    assert_eq!((sent, got), (Some(src.len() as u64), Some(src.len() as u64)));
    true
}

fn pattern(len: usize, seed: usize) -> Vec<u8> {
    // It repeats after so many bytes; to make each one takes long in a build without optimisation.
    let mut bytes =
        (0..251 * 256).map(|i| (i * 7 + i / 251 + seed) as u8).collect::<Vec<u8>>().repeat(len / (251 * 256) + 1);
    bytes.truncate(len);
    bytes
}

#[test]
fn device_memory_goes_over_every_path() {
    let _alone = crate::helpers::alone();
    const RING: Env = &[("LINKSPAN_GPU", "staged"), ("LINKSPAN_PATH", "shm"), ("LINKSPAN_CMA", "0")];
    const SHM: Env = &[("LINKSPAN_GPU", "staged"), ("LINKSPAN_PATH", "shm")];
    const HELPED: Env = &[("LINKSPAN_GPU", "staged"), ("LINKSPAN_HELPERS", "force:1")];
    for env in [&[("LINKSPAN_GPU", "staged")] as Env, RING, SHM, HELPED] {
        let (mut a, mut b) = pair(env);
        let (sim, gpu) = gpu();
        for (n, len) in [0, 1, 8192, 8193, 100_000, (3 << 20) + 7, 17 << 20].into_iter().enumerate() {
            let (on_host, bytes) = (StaticBuf::new(len), pattern(len, n));
            assert!(on_host.slice().fill(0, &bytes));
            // Host memory first, so that staging begins in mid-stream.
            let landed = StaticBuf::new(len);
            assert!(message(&mut a, &mut b, on_host.slice(), landed.slice()) && landed.slice().to_vec() == bytes);
            a.attach(&gpu).unwrap();
            b.attach(&gpu).unwrap();
            let (up, down) = (StaticGpuBuf::new(&gpu, len).unwrap(), StaticGpuBuf::new(&gpu, len).unwrap());
            assert!(up.slice().fill(0, &bytes));
            assert!(message(&mut a, &mut b, up.slice(), down.slice()));
            assert!(down.slice().to_vec() == bytes, "{len} bytes over {}", a.describe());
            // One side alone stages.
            let landed = StaticBuf::new(len);
            assert!(message(&mut b, &mut a, down.slice(), landed.slice()) && landed.slice().to_vec() == bytes);
        }
        let line = a.describe();
        assert!(line.contains("sim:0 staged through pinned host memory: "), "{line}");
        assert_eq!(sim.fault(), None, "{line}");
        drop((a, b));
        assert_eq!(sim.fault(), None, "after the end");
    }
}

#[test]
fn without_staging_a_host_path_says_no() {
    let (mut a, _b) = pair(&[]);
    let (_sim, gpu) = gpu();
    let why = a.attach(&gpu).unwrap_err().to_string();
    assert!(
        why.starts_with("LS1305") && why.contains("tcp reaches host memory only") && why.contains("LINKSPAN_GPU"),
        "{why}"
    );
    assert!(a.gpu().is_none() && !a.describe().contains("staged"));
}

#[test]
fn one_gpu_for_each_connection() {
    let (mut a, _b) = pair(&[("LINKSPAN_GPU", "staged")]);
    let ((_one, first), (_two, second)) = (gpu(), gpu());
    a.attach(&first).unwrap();
    a.attach(&first).unwrap();
    assert!(a.attach(&second).unwrap_err().to_string().starts_with("LS1310"));
}

#[test]
fn more_staging_than_allowed_ends_the_connection_with_the_reason() {
    let (mut a, mut b) = pair(&[("LINKSPAN_GPU", "staged"), ("LINKSPAN_STAGE_MEMORY", "8")]);
    let (_sim, gpu) = gpu();
    a.attach(&gpu).unwrap();
    b.attach(&gpu).unwrap();
    let mem = StaticGpuBuf::new(&gpu, 1 << 20).unwrap();
    // 8 MiB for the way out of one end; the way in of the other finds none left.
    assert!(!message(&mut a, &mut b, mem.slice(), mem.slice()));
    let why = [a.lost(), b.lost()].into_iter().flatten().collect::<Vec<_>>().join("; ");
    assert!(why.contains("LS1311") && why.contains("LINKSPAN_STAGE_MEMORY"), "{why}");
}
