//! Rails whose payload io_uring receives in its mode without a card: the kernel copies it to pages of host memory, and a simulated GPU,
//! which is late, puts them in place from there.

use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use linkspan_devmem::{Bound, Cards, DevmemRail, KernelSocket, Lent, RailConfig};
use linkspan_gpu::{Gpu, SimGpu};
use linkspan_tcp::Stream;
use linkspan_transport::conformance::{Patience, Room, Want};
use linkspan_transport::{Conn, MemSlice};

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

impl Cards for Copying {
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

/// Rails over loopback; both ends share one device.
pub(crate) struct Uring {
    pub(crate) gpu: Arc<SimGpu>,
    pub(crate) pool: usize,
    pub(crate) patience: Patience,
}

impl Uring {
    /// With so many pages for each end.
    pub(crate) fn new(pages: usize) -> Uring {
        let gpu = SimGpu::new(linkspan_gpu::SimConfig { seed: pages as u64, ..Default::default() }).unwrap();
        Uring { gpu, pool: pages << 12, patience: Patience::Wall(std::time::Duration::from_secs(120)) }
    }

    fn two(&self) -> (SimRail, SimRail) {
        let ((a, b), (c, d)) = (streams(), streams());
        (end(&self.gpu, a, c, self.pool), end(&self.gpu, b, d, self.pool))
    }
}

impl Drop for Uring {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            assert_eq!(self.gpu.fault(), None, "work in a wrong order");
        }
    }
}

impl Room for Uring {
    type R = SimRail;

    fn pair(&mut self, want: Want) -> (Conn<SimRail>, Conn<SimRail>) {
        linkspan_gpu::conformance::use_memory_of(self.gpu.clone());
        let (a, b): (Vec<_>, Vec<_>) = (0..want.rails).map(|_| self.two()).unzip();
        (Conn::new(a, want.acked), Conn::new(b, want.acked))
    }

    fn rails(&self) -> usize {
        3
    }

    fn extra_rail(&mut self) -> Option<(SimRail, SimRail)> {
        Some(self.two())
    }

    fn patience(&self) -> Patience {
        self.patience
    }
}
