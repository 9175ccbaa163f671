//! The kernel's own sockets, as far as a machine without such a card goes: everything comes as host data, and what the kernel
//! refuses goes another way.

use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use crate::common::bed::{Devmem, PAYLOAD, run};
use crate::common::{Leaves, SimRail};
use linkspan_devmem::{Cards, DevmemRail, KernelSocket, Lent, Pool, RailConfig};
use linkspan_gpu::{Gpu, SimGpu};
use linkspan_stream::Stream;
use linkspan_tcp::TcpRail;
use linkspan_transport::conformance::{Testbed, Want};
use linkspan_transport::{MemSlice, Rail};

/// Binds nothing, and lends under a number that no kernel gave out.
#[derive(Debug)]
struct NoCards;

// SAFETY: what a test's implementation keeps of memory stays allocated until the process ends.
unsafe impl Cards for NoCards {
    fn bind(&self, _: &str, _: (SocketAddr, SocketAddr), _: BorrowedFd<'_>, _: &Arc<dyn Gpu>) -> Result<Pool, String> {
        Err("Operation not supported (os error 95)".into())
    }

    fn lend(&self, _: &str, _: &Arc<dyn Gpu>, mem: MemSlice) -> Result<Lent, String> {
        Ok(Lent { mem, id: 0x00ff_fff0, offset: 0, alive: Arc::new(AtomicBool::new(true)) })
    }
}

fn end(gpu: &Arc<SimGpu>, control: Stream, data: Stream) -> SimRail {
    let (interface, path) = (data.interface(), data.path());
    let socket = KernelSocket::new(Leaves::new(data), interface, path, Arc::new(NoCards));
    let control = TcpRail::new(control, Default::default(), &[]).unwrap();
    let mut rail = DevmemRail::new(control, Box::new(socket), RailConfig::default()).unwrap();
    let any: Arc<dyn Gpu> = gpu.clone();
    rail.attach(&any).unwrap();
    rail
}

fn kernel() -> Devmem {
    Devmem::of(0, end)
}

#[test]
fn host_data_over_the_kernels_sockets() {
    run(&PAYLOAD, kernel);
}

#[test]
fn a_refused_send_goes_by_way_of_the_host_and_is_told_with_the_kernels_word() {
    let mut bed = kernel();
    let gpu = bed.gpu.clone();
    let (mut a, mut b) = bed.pair(Want::PLAIN);
    let any: Arc<dyn Gpu> = gpu.clone();
    let (src, dst) = (
        linkspan_gpu::conformance::StaticGpuBuf::new(&any, 1 << 20).unwrap(),
        linkspan_gpu::conformance::StaticGpuBuf::new(&any, 1 << 20).unwrap(),
    );
    use linkspan_transport::Buf;
    assert!(src.slice().fill(0, &[0x5a; 1 << 20]));
    let recv = b.post_recv(&[(1, dst.slice())]).unwrap().unwrap();
    let mut send = None;
    crate::common::until("the message", || {
        send = send.or_else(|| a.post_send(1, src.slice()).unwrap());
        a.progress().unwrap();
        b.progress().unwrap();
        b.test(recv).unwrap()
    });
    assert!(dst.slice().to_vec() == vec![0x5a; 1 << 20]);
    let mut events = Vec::new();
    a.try_each_rail(|rail| {
        events.extend(std::iter::from_fn(|| rail.event()));
        Ok::<(), ()>(())
    })
    .unwrap();
    assert!(events.iter().any(|l| l.contains("LS1340") && l.contains("Operation not supported")), "{events:?}");
    assert!(events.iter().any(|l| l.contains("LS1345") && l.contains("Invalid argument")), "{events:?}");
    assert_eq!(gpu.fault(), None);
}
