//! Memory that can be written from, read into and exposed to a peer, and views of it.

use std::any::Any;
use std::fmt;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use linkspan_fabric::{Buf, Gpu, GpuBuf, HostBuf, MemSlice};
use linkspan_shmring::pages::Pages;

use crate::Error;

/// What kind of memory it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MemoryKind {
    /// This process's own pages.
    Host,
    /// Pages of a file, a memfd or another descriptor that can be mapped.
    Mapped,
    /// Pages that the application owns and has lent.
    Lent,
    /// Memory of a GPU, ours or lent.
    Device,
}

/// What keeps the bytes where they are.
enum Owner {
    Host { _buf: HostBuf },
    Mapped { _pages: Pages },
    Lent { _owner: Box<dyn Any + Send + Sync> },
    Device { _buf: GpuBuf },
}

pub(crate) struct Inner {
    slice: MemSlice,
    writable: bool,
    owner: Owner,
    /// Whose memory it is, where it is not the host's.
    gpu: Option<Arc<dyn Gpu>>,
}

impl Inner {
    /// Memory of the host is always copied.
    fn copied(&self, done: bool, len: usize) -> Result<(), Error> {
        match &self.gpu {
            Some(gpu) if !done => Err(Error::DeviceCopy(gpu.info().id(), len)),
            _ => {
                debug_assert!(done);
                Ok(())
            }
        }
    }
}

/// A range of memory. Cloning gives another handle on the same bytes; they are released when the last handle is gone, no
/// operation uses them and no transport exposes them any more. May be used from any thread: bytes are only ever copied, and
/// no Rust reference to them is made, since a peer may change them at any time.
#[derive(Clone)]
pub struct Memory(Arc<Inner>);

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Memory({:?}, {} bytes)", self.kind(), self.len())
    }
}

impl Memory {
    /// `len` zero bytes of this process, aligned to pages.
    pub fn host(len: usize) -> Memory {
        let buf = HostBuf::new(len);
        #[allow(unsafe_code)]
        // SAFETY: `Inner` keeps the buffer beside the handle, and whoever uses the handle keeps `Inner` (`Hold`, `View`).
        let mem = unsafe { buf.slice() };
        Memory::of(mem, true, Owner::Host { _buf: buf }, None)
    }

    /// A copy of `bytes`.
    pub fn copy_of(bytes: &[u8]) -> Memory {
        let memory = Memory::host(bytes.len());
        let fits = memory.0.slice.fill(0, bytes);
        debug_assert!(fits);
        memory
    }

    /// `len` bytes from `offset` (a multiple of the page size) of what `fd` stands for: a file, a memfd, a dma-buf whose exporter
    /// lets processors map it (and keeps it coherent, or the caller brackets its use with `DMA_BUF_IOCTL_SYNC`). `writable`:
    /// what arrives goes to the descriptor's owner; it must be open for reading and writing then. The descriptor may be closed
    /// afterwards. A file that is made shorter while it is mapped ends the process (SIGBUS); a memfd can be sealed against it.
    ///
    /// # Errors
    /// [`Error::System`]: the range is empty or not inside the file, or `mmap(2)` failed.
    pub fn map(fd: BorrowedFd<'_>, offset: u64, len: usize, writable: bool) -> Result<Memory, Error> {
        let pages = Pages::map(fd, offset, len, writable).map_err(|source| Error::System { call: "mmap", source })?;
        #[allow(unsafe_code)]
        // SAFETY: as in `host`.
        let mem = unsafe { pages.slice() };
        Ok(Memory::of(mem, writable, Owner::Mapped { _pages: pages }, None))
    }

    /// Memory of the application: `owner` keeps the bytes mapped and is dropped when nothing uses them any more, on any thread.
    /// What [`MemSlice::new`] asks for must hold as long as `owner` lives. `writable`: bytes may be written to.
    pub fn lend(slice: MemSlice, writable: bool, owner: impl Any + Send + Sync) -> Memory {
        Memory::of(slice, writable, Owner::Lent { _owner: Box::new(owner) }, None)
    }

    /// `len` bytes of a GPU ([`crate::gpu`] opens them), with undefined contents. A transport carries them once the GPU is
    /// [attached](crate::Transport::attach).
    ///
    /// # Errors
    /// [`Error::Gpu`]: the driver has no memory left, or failed.
    pub fn on_gpu(gpu: &Arc<dyn Gpu>, len: usize) -> Result<Memory, Error> {
        let buf = GpuBuf::new(gpu, len)?;
        #[allow(unsafe_code)]
        // SAFETY: as in `host`.
        let mem = unsafe { buf.slice() };
        Ok(Memory::of(mem, true, Owner::Device { _buf: buf }, Some(gpu.clone())))
    }

    /// Memory of a GPU that the application owns, as [`Memory::lend`]: `slice` was made by [`MemSlice::on_device`] at
    /// the place of
    /// `gpu`. What is written from it was finished by the GPU before; what was read into it the GPU may use at once.
    pub fn lend_gpu(gpu: &Arc<dyn Gpu>, slice: MemSlice, writable: bool, owner: impl Any + Send + Sync) -> Memory {
        let gpu = (!slice.is_host()).then(|| gpu.clone());
        Memory::of(slice, writable, Owner::Lent { _owner: Box::new(owner) }, gpu)
    }

    fn of(slice: MemSlice, writable: bool, owner: Owner, gpu: Option<Arc<dyn Gpu>>) -> Memory {
        Memory(Arc::new(Inner { slice, writable, owner, gpu }))
    }

    /// The GPU whose memory it is; `None` for memory of the host.
    pub fn gpu(&self) -> Option<&Arc<dyn Gpu>> {
        self.0.gpu.as_ref()
    }

    /// What kind it is.
    pub fn kind(&self) -> MemoryKind {
        match self.0.owner {
            _ if self.0.gpu.is_some() => MemoryKind::Device,
            Owner::Device { .. } => MemoryKind::Device,
            Owner::Host { .. } => MemoryKind::Host,
            Owner::Mapped { .. } => MemoryKind::Mapped,
            Owner::Lent { .. } => MemoryKind::Lent,
        }
    }

    /// Bytes in it.
    pub fn len(&self) -> usize {
        self.0.slice.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether its bytes may be written to.
    pub fn is_writable(&self) -> bool {
        self.0.writable
    }

    /// Address of the first byte; of a GPU's memory, the GPU's address.
    pub fn as_ptr(&self) -> *const u8 {
        self.0.slice.as_ptr()
    }

    /// Whether `len` bytes at `ptr` lie inside.
    pub fn contains(&self, ptr: *const u8, len: usize) -> bool {
        self.offset_of(ptr, len).is_some()
    }

    fn offset_of(&self, ptr: *const u8, len: usize) -> Option<usize> {
        let offset = (ptr as usize).checked_sub(self.as_ptr() as usize)?;
        (offset.checked_add(len)? <= self.len()).then_some(offset)
    }

    fn part(&self, offset: usize, len: usize) -> Result<MemSlice, Error> {
        self.0.slice.sub(offset as u64, len as u64).ok_or(Error::Bounds {
            offset: offset as u64,
            len: len as u64,
            of: "memory",
            have: self.len() as u64,
        })
    }

    /// All of it, to read from.
    pub fn view(&self) -> View<'_> {
        View { slice: self.0.slice, keep: Keep::Borrowed(&self.0) }
    }

    /// `len` bytes from `offset`, to read from. No bytes at either end are fine.
    ///
    /// # Errors
    /// [`Error::Bounds`]: the range is not inside this memory.
    pub fn slice(&self, offset: usize, len: usize) -> Result<View<'_>, Error> {
        Ok(View { slice: self.part(offset, len)?, keep: Keep::Borrowed(&self.0) })
    }

    /// `len` bytes at the address `ptr`, to read from.
    ///
    /// # Errors
    /// [`Error::NotInside`]: the range is not inside this memory.
    pub fn slice_at(&self, ptr: *const u8, len: usize) -> Result<View<'_>, Error> {
        match self.offset_of(ptr, len) {
            Some(offset) => self.slice(offset, len),
            None => {
                Err(Error::NotInside { address: ptr as usize, len, base: self.as_ptr() as usize, have: self.len() })
            }
        }
    }

    /// All of it, to read into.
    ///
    /// # Errors
    /// [`Error::ReadOnly`]: this memory must not be written.
    pub fn view_mut(&self) -> Result<MutableView<'_>, Error> {
        self.slice_mut(0, self.len())
    }

    /// `len` bytes from `offset`, to read into.
    ///
    /// # Errors
    /// [`Error::Bounds`]: the range is not inside this memory. [`Error::ReadOnly`]: it must not be written.
    pub fn slice_mut(&self, offset: usize, len: usize) -> Result<MutableView<'_>, Error> {
        if !self.0.writable {
            return Err(Error::ReadOnly);
        }
        self.slice(offset, len).map(MutableView)
    }

    /// `len` bytes at the address `ptr`, to read into.
    ///
    /// # Errors
    /// [`Error::NotInside`]: the range is not inside this memory. [`Error::ReadOnly`]: it must not be written.
    pub fn slice_mut_at(&self, ptr: *const u8, len: usize) -> Result<MutableView<'_>, Error> {
        let view = self.slice_at(ptr, len)?;
        if self.0.writable { Ok(MutableView(view)) } else { Err(Error::ReadOnly) }
    }

    /// Copies `bytes` to `offset`.
    ///
    /// # Errors
    /// [`Error::Bounds`]: the range is not inside this memory. [`Error::ReadOnly`]: it must not be written.
    /// [`Error::DeviceCopy`]: the GPU did not copy the bytes.
    pub fn fill(&self, offset: usize, bytes: &[u8]) -> Result<(), Error> {
        let part = self.part(offset, bytes.len())?;
        if !self.0.writable {
            return Err(Error::ReadOnly);
        }
        self.0.copied(part.fill(0, bytes), bytes.len())
    }

    /// Copies bytes from `offset` into `out`.
    ///
    /// # Errors
    /// [`Error::Bounds`]: the range is not inside this memory. [`Error::DeviceCopy`]: the GPU did not copy the bytes.
    pub fn read(&self, offset: usize, out: &mut [u8]) -> Result<(), Error> {
        let part = self.part(offset, out.len())?;
        self.0.copied(part.read(0, out), out.len())
    }

    /// The bytes themselves, where this is the only handle on memory of [`Memory::host`]: no operation uses it and no transport
    /// exposes it. `None` otherwise.
    pub fn get_mut(&mut self) -> Option<&mut [u8]> {
        let Inner { slice, owner: Owner::Host { .. }, .. } = Arc::get_mut(&mut self.0)? else { return None };
        #[allow(unsafe_code)]
        // SAFETY: whoever else reaches the bytes of a buffer of ours, an operation, a region or a view, holds or borrows `Inner`;
        // there is one holder, and it is borrowed exclusively for as long as the slice lives. The buffer was zeroed when it was made.
        Some(unsafe { std::slice::from_raw_parts_mut(slice.as_ptr(), slice.len()) })
    }

    /// A copy of all bytes.
    pub fn to_vec(&self) -> Vec<u8> {
        self.0.slice.to_vec()
    }
}

#[derive(Clone)]
enum Keep<'m> {
    Borrowed(&'m Arc<Inner>),
    Owned(Arc<Inner>),
}

/// What keeps memory alive while something uses it.
#[derive(Clone)]
pub(crate) struct Hold {
    inner: Arc<Inner>,
}

impl Hold {
    /// Whether both keep the same memory.
    pub(crate) fn is_same(&self, other: &Hold) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }

    /// Both ranges as one, where the second begins at the end of the first.
    pub(crate) fn joined(&self, first: MemSlice, second: MemSlice) -> Option<MemSlice> {
        let at = (first.as_ptr() as usize).checked_sub(self.inner.slice.as_ptr() as usize)?;
        let next = first.as_ptr() as usize + first.len() == second.as_ptr() as usize;
        if next { self.inner.slice.sub(at as u64, (first.len() + second.len()) as u64) } else { None }
    }
}

/// A range of a [`Memory`] to read from. The borrow ties it to its memory; [`View::shared`] holds the memory itself.
#[derive(Clone)]
pub struct View<'m> {
    slice: MemSlice,
    keep: Keep<'m>,
}

impl fmt::Debug for View<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "View({} bytes at {:p})", self.len(), self.as_ptr())
    }
}

impl View<'_> {
    /// Bytes in it.
    pub fn len(&self) -> usize {
        self.slice.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.slice.is_empty()
    }

    /// Address of the first byte.
    pub fn as_ptr(&self) -> *const u8 {
        self.slice.as_ptr()
    }

    /// A copy of the bytes.
    pub fn to_vec(&self) -> Vec<u8> {
        self.slice.to_vec()
    }

    /// Copies its first bytes into `out`.
    ///
    /// # Errors
    /// [`Error::Bounds`]: `out` has another length than the view. [`Error::DeviceCopy`]: the GPU did not copy the
    /// bytes.
    pub fn read(&self, out: &mut [u8]) -> Result<(), Error> {
        let (len, have) = (out.len() as u64, self.len() as u64);
        let part = self.slice.sub(0, len).ok_or(Error::Bounds { offset: 0, len, of: "a view", have })?;
        self.inner().copied(part.read(0, out), out.len())
    }

    /// The GPU whose memory it is; `None` for memory of the host.
    #[inline]
    pub fn gpu(&self) -> Option<&Arc<dyn Gpu>> {
        self.inner().gpu.as_ref()
    }

    /// The same range, which keeps its memory alive by itself.
    pub fn shared(&self) -> View<'static> {
        View { slice: self.slice, keep: Keep::Owned(self.inner().clone()) }
    }

    fn inner(&self) -> &Arc<Inner> {
        match &self.keep {
            Keep::Borrowed(inner) => inner,
            Keep::Owned(inner) => inner,
        }
    }

    pub(crate) fn raw(&self) -> MemSlice {
        self.slice
    }

    pub(crate) fn hold(&self) -> Hold {
        Hold { inner: self.inner().clone() }
    }

    pub(crate) fn is_writable(&self) -> bool {
        self.inner().writable
    }
}

impl<'m> View<'m> {
    /// `len` bytes from `offset` of this view.
    ///
    /// # Errors
    /// [`Error::Bounds`]: the range is not inside this view.
    pub fn slice(&self, offset: usize, len: usize) -> Result<View<'m>, Error> {
        let have = self.len() as u64;
        let (offset, len) = (offset as u64, len as u64);
        let slice = self.slice.sub(offset, len).ok_or(Error::Bounds { offset, len, of: "a view", have })?;
        Ok(View { slice, keep: self.keep.clone() })
    }
}

/// A range of a [`Memory`] to read into.
#[derive(Clone)]
pub struct MutableView<'m>(View<'m>);

impl fmt::Debug for MutableView<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MutableView({} bytes at {:p})", self.0.len(), self.0.as_ptr())
    }
}

impl<'m> MutableView<'m> {
    /// The same range, to read from.
    pub fn view(&self) -> &View<'m> {
        &self.0
    }

    /// Bytes in it.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// `len` bytes from `offset` of this view.
    ///
    /// # Errors
    /// [`Error::Bounds`]: the range is not inside this view.
    pub fn slice(&self, offset: usize, len: usize) -> Result<MutableView<'m>, Error> {
        self.0.slice(offset, len).map(MutableView)
    }

    /// The same range, which keeps its memory alive by itself.
    pub fn shared(&self) -> MutableView<'static> {
        MutableView(self.0.shared())
    }
}

#[cfg(test)]
mod tests;
