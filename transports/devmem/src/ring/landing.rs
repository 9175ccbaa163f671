//! Where a ring's stream lands.

use std::any::Any;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use linkspan_gpu::{Gpu, GpuBuf, Pinned};
use linkspan_netdev::Source;
use linkspan_transport::{Buf, MemSlice};

use super::{AreaOf, Landing, Ring};
use crate::endpoint::with_sources;
use crate::{Bound, Pool, Via};

impl Bound {
    /// Memory of the GPU that a queue of the card fills with this stream alone. The caller steers it there. `keeps` is
    /// dropped when the ring has ended. Needs CAP_NET_ADMIN, header split on, and a queue that nothing else is spread over.
    ///
    /// # Errors
    /// The reason, as text for the log.
    pub fn by_ring(
        gpu: &Arc<dyn Gpu>,
        stream: BorrowedFd<'_>,
        (interface, queue): (u32, u32),
        len: usize,
        keeps: Box<dyn Any + Send>,
    ) -> Result<Bound, String> {
        let memory = Arc::new(GpuBuf::new(gpu, len).map_err(|e| with_sources(&e))?);
        #[allow(unsafe_code)]
        // SAFETY: the pool and the ring keep the memory for as long as they use the handle.
        let mem = unsafe { memory.slice() };
        let dmabuf = gpu.export(mem).map_err(|e| with_sources(&e))?;
        if dmabuf.offset != 0 {
            return Err(format!("{} gives memory that begins {} bytes into its pages", gpu.info().id(), dmabuf.offset));
        }
        let landing =
            Landing { len: len as u64, area: AreaOf::DmaBuf(dmabuf.fd), keeps: Box::new((memory.clone(), keeps)) };
        let source = Source::Queue { interface, queue };
        Bound::of(landing, source, stream, (mem, Via::Ring(queue)), Box::new(memory))
    }

    /// Host memory that the kernel copies this stream to, and that the GPU reads: io_uring's mode without a card, for tests
    /// (Linux 7.1). Needs CAP_NET_ADMIN.
    ///
    /// # Errors
    /// The reason, as text for the log.
    pub fn copied(gpu: &Arc<dyn Gpu>, stream: BorrowedFd<'_>, len: usize) -> Result<Bound, String> {
        let memory = Arc::new(Pinned::new(gpu, len).map_err(|e| with_sources(&e))?);
        #[allow(unsafe_code)]
        // SAFETY: as above.
        let mem = unsafe { memory.slice() };
        let landing = Landing { len: len as u64, area: AreaOf::Host(mem), keeps: Box::new(memory.clone()) };
        Bound::of(landing, Source::Anywhere, stream, (mem, Via::Copied), Box::new(memory))
    }

    fn of(
        landing: Landing,
        source: Source,
        stream: BorrowedFd<'_>,
        (mem, via): (MemSlice, Via),
        guard: Box<dyn Any + Send>,
    ) -> Result<Bound, String> {
        debug_assert_eq!(landing.len, mem.len() as u64);
        let ring = Ring::start(source, landing, stream).map_err(|e| with_sources(&e))?;
        let pool = Pool { mem, id: ring.id(), lent: Arc::default(), via, guard };
        Ok(Bound { pool, ring: Some(ring) })
    }
}
