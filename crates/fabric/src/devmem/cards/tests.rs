#![allow(clippy::unwrap_used)]

use linkspan_gpu::SimGpu;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketType};

use super::*;

#[test]
fn a_session_that_the_broker_has_ended_gets_no_new_stream() {
    let path = std::env::temp_dir().join(format!("linkspan-broker-{}", std::process::id()));
    let listener = rustix::net::socket(AddressFamily::UNIX, SocketType::SEQPACKET, None).unwrap();
    rustix::net::bind(&listener, &SocketAddrUnix::new(&path).unwrap()).unwrap();
    rustix::net::listen(&listener, 1).unwrap();
    let session = Session::open(&path).unwrap();
    let broker = rustix::net::accept(&listener).unwrap();
    std::fs::remove_file(&path).unwrap();

    let gpu: Arc<dyn Gpu> = SimGpu::new(linkspan_gpu::SimConfig::default()).unwrap();
    let memory = GpuBuf::new(&gpu, 4096).unwrap();
    let by = By::Daemon(Mutex::new(session));
    let old = Arc::new(Bound { by, id: 7, memory, interface: "lo".into(), lent: Arc::default(), held: Arc::default() });
    let inner = Inner {
        config: DevmemConfig { queues: None, pool: 4096 },
        folder: std::env::temp_dir(),
        pools: Mutex::new(HashMap::from([(("lo".into(), gpu.place()), Arc::downgrade(&old))])),
        registered: Mutex::default(),
    };
    assert!(inner.bound("lo", &gpu).is_ok_and(|bound| bound.id == 7));
    drop(broker);
    // A stream of the old session lives; memory is to be bound anew, which takes a dma-buf.
    assert!(inner.bound("lo", &gpu).is_err_and(|why| why.contains("dma-buf")));
    drop(old);
}
