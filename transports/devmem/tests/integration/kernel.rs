//! The kernel's own sockets, as far as a machine without such a card goes: everything comes as host data, and what the kernel
//! refuses goes another way.

use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicUsize};

use crate::common::bed::{Devmem, PAYLOAD, run};
use crate::common::{Leaves, SimRail};
use linkspan_devmem::{Cards, DevmemRail, KernelSocket, Lent, NotLent, Pool, RailConfig};
use linkspan_gpu::{Gpu, SimGpu};
use linkspan_stream::Stream;
use linkspan_tcp::TcpRail;
use linkspan_transport::conformance::{Testbed, Want};
use linkspan_transport::{MemSlice, Rail};

/// Binds nothing, and lends as often as it says under a number that no kernel gave out.
#[derive(Debug)]
struct NoCards(AtomicUsize);

// SAFETY: what a test's implementation keeps of memory stays allocated until the process ends.
unsafe impl Cards for NoCards {
    fn bind(&self, _: &str, _: (SocketAddr, SocketAddr), _: BorrowedFd<'_>, _: &Arc<dyn Gpu>) -> Result<Pool, String> {
        Err("Operation not supported (os error 95)".into())
    }

    fn lend(&self, _: &str, _: &Arc<dyn Gpu>, mem: MemSlice) -> Result<Lent, NotLent> {
        if self.0.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1)).is_err() {
            return Err(NotLent { why: "Cannot allocate memory (os error 12)".into(), lasting: false });
        }
        Ok(Lent { mem, id: 0x00ff_fff0, offset: 0, alive: Arc::new(AtomicBool::new(true)) })
    }
}

fn end(gpu: &Arc<SimGpu>, control: Stream, data: Stream) -> SimRail {
    lending(usize::MAX, gpu, control, data)
}

fn lending(times: usize, gpu: &Arc<SimGpu>, control: Stream, data: Stream) -> SimRail {
    let (interface, path) = (data.interface(), data.path());
    let socket = KernelSocket::new(Leaves::new(data), interface, path, Arc::new(NoCards(times.into())));
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

#[test]
fn what_was_copied_already_does_not_leave_in_place_of_what_the_card_refused() {
    let mut bed = Devmem::of(0, |gpu, control, data| lending(1, gpu, control, data));
    let any: Arc<dyn Gpu> = bed.gpu.clone();
    let (mut a, mut b) = bed.pair(Want::PLAIN);
    let memory = || linkspan_gpu::conformance::StaticGpuBuf::new(&any, 1 << 20).unwrap();
    // The card is to send the first from where it lies, the second is copied.
    let (from, to) = ([memory(), memory()], [memory(), memory()]);
    use linkspan_transport::Buf;
    for (n, src) in from.iter().enumerate() {
        assert!(src.slice().fill(0, &[n as u8 + 1; 1 << 20]));
    }
    let taken = to.each_ref().map(|dst| b.post_recv(&[(1, dst.slice())]).unwrap().unwrap());
    let mut sends = Vec::new();
    for (dst, recv) in to.iter().zip(taken) {
        crate::common::until("a message", || {
            while let Some(src) = from.get(sends.len()) {
                let Some(send) = a.post_send(1, src.slice()).unwrap() else { break };
                sends.push(send);
            }
            a.progress().unwrap();
            b.progress().unwrap();
            b.test(recv).unwrap()
        });
        let n = dst.slice().to_vec()[0];
        assert!(dst.slice().to_vec() == vec![n; 1 << 20]);
    }
    assert_eq!(to.each_ref().map(|dst| dst.slice().to_vec()[0]), [1, 2]);
}
