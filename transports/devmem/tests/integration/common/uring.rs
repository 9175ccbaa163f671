//! Rails whose payload io_uring receives in its mode without a card: the kernel copies it to pages of host memory, and a simulated GPU,
//! which is late, puts them in place from there.

use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

use linkspan_devmem::{Bound, Cards, DevmemRail, KernelSocket, Lent, RailConfig};
use linkspan_gpu::{Gpu, SimGpu};
use linkspan_tcp::Stream;
use linkspan_transport::conformance::Patience;
use linkspan_transport::{MemSlice, Rail};

use super::bed::Devmem;
use super::{Leaves, SimRail, streams};

/// Whether this kernel has the mode and lets this process use it.
pub(crate) fn here() -> Result<(), String> {
    let gpu: Arc<dyn Gpu> = SimGpu::new(linkspan_gpu::SimConfig::default()).unwrap();
    let (a, _b) = streams();
    let stream = Leaves::new(a);
    Bound::copied(&gpu, std::os::fd::AsFd::as_fd(&stream), 64 << 12).map(drop)
}

/// Receives so many bytes of pool by io_uring.
#[derive(Debug)]
struct Copying(usize);

// SAFETY: what a test's implementation keeps of memory stays allocated until the process ends.
unsafe impl Cards for Copying {
    fn bind(
        &self,
        _: &str,
        _: (SocketAddr, SocketAddr),
        stream: BorrowedFd<'_>,
        gpu: &Arc<dyn Gpu>,
    ) -> Result<Bound, String> {
        Bound::copied(gpu, stream, self.0)
    }

    fn lend(&self, _: &str, _: &Arc<dyn Gpu>, _: MemSlice) -> Result<Lent, String> {
        Err("io_uring sends from the host only".into())
    }
}

/// One end.
pub(crate) fn end(gpu: &Arc<SimGpu>, control: Stream, data: Stream, pool: usize) -> SimRail {
    let (interface, path) = (data.interface(), data.path());
    let socket = KernelSocket::new(Leaves::new(data), interface, path, Arc::new(Copying(pool)));
    let control = control.into_rail(Default::default(), &[]).unwrap();
    let mut rail = DevmemRail::new(control, Box::new(socket), RailConfig::default()).unwrap();
    let any: Arc<dyn Gpu> = gpu.clone();
    rail.attach(&any).unwrap();
    rail
}

/// Rails with so many pages for each end.
pub(crate) fn uring(pages: usize) -> Devmem {
    let mut bed = Devmem::of(pages as u64, move |gpu, control, data| end(gpu, control, data, pages << 12));
    bed.patience = Patience::Wall(Duration::from_secs(120));
    bed
}
