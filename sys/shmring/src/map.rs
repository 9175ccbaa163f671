//! The sealed memory both processes map, and typed views of it.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use linkspan_transport::{Buf, MemSlice};
use rustix::fs::{MemfdFlags, SealFlags};
use rustix::mm::{MapFlags, ProtFlags};

use crate::layout::{self, Side};
use crate::region::{Entry, REGIONS, WORDS};
use crate::ring::{Area, Consumer, Producer};
use crate::slot::{MAX_SLICES, Words};

#[cfg(test)]
mod tests;

/// What the map is sealed with: no process can shrink it while it is mapped (SIGBUS), grow it, or unseal it.
const SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::SEAL);

/// A sealed memfd, mapped. A memfd and not a file in `/dev/shm`, whose size limit does not concern it.
#[derive(Debug)]
pub struct Map {
    base: NonNull<u8>,
    ring: usize,
    fd: OwnedFd,
}

// SAFETY: the mapping lives as long as the value and is only touched through atomics and raw copies.
unsafe impl Send for Map {}
// SAFETY: as above.
unsafe impl Sync for Map {}

fn invalid(what: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

impl Map {
    /// A fresh map with two rings of `ring` bytes (a power of two from `RING_MIN` to `RING_MAX`).
    ///
    /// # Errors
    /// `InvalidInput` for a size that is not allowed; the error of `memfd_create(2)`, `ftruncate(2)` or `mmap(2)`.
    pub fn create(ring: usize) -> io::Result<Map> {
        check_size(ring)?;
        let fd = rustix::fs::memfd_create("linkspan", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        rustix::fs::ftruncate(&fd, layout::total(ring) as u64)?;
        rustix::fs::fcntl_add_seals(&fd, SEALS)?;
        let map = Map::over(fd, ring)?;
        map.word(layout::RING_AT).store(ring as u64, Ordering::Relaxed);
        map.word(layout::VERSION_AT).store(layout::VERSION, Ordering::Relaxed);
        map.word(layout::MAGIC_AT).store(layout::MAGIC, Ordering::Release);
        Ok(map)
    }

    /// Maps what the peer sent, if it is a map of ours with rings of `ring` bytes.
    ///
    /// # Errors
    /// `InvalidData` for a descriptor that is not sealed, has another size or another header; the error of `fstat(2)`,
    /// `fcntl(2)` or `mmap(2)`.
    pub fn open(fd: OwnedFd, ring: usize) -> io::Result<Map> {
        check_size(ring)?;
        let seals = rustix::fs::fcntl_get_seals(&fd).map_err(|e| invalid(format!("not a memfd: {e}")))?;
        if !seals.contains(SEALS) {
            return Err(invalid(format!("memory is sealed with {seals:?}, needed are {SEALS:?}")));
        }
        if seals.intersects(SealFlags::WRITE | SealFlags::FUTURE_WRITE) {
            return Err(invalid(format!("memory is sealed against writing ({seals:?})")));
        }
        let size = rustix::fs::fstat(&fd)?.st_size;
        if size != layout::total(ring) as i64 {
            return Err(invalid(format!("memory has {size} bytes, rings of {ring} need {}", layout::total(ring))));
        }
        let map = Map::over(fd, ring)?;
        let found =
            [layout::MAGIC_AT, layout::VERSION_AT, layout::RING_AT].map(|at| map.word(at).load(Ordering::Acquire));
        if found != [layout::MAGIC, layout::VERSION, ring as u64] {
            return Err(invalid(format!(
                "memory begins with {found:x?}, which is not linkspan layout {}",
                layout::VERSION
            )));
        }
        Ok(map)
    }

    fn over(fd: OwnedFd, ring: usize) -> io::Result<Map> {
        let both = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a fresh mapping at an address of the kernel's choice; the seals keep it backed for its life.
        let base =
            unsafe { rustix::mm::mmap(std::ptr::null_mut(), layout::total(ring), both, MapFlags::SHARED, &fd, 0)? };
        let base = NonNull::new(base.cast()).ok_or_else(|| invalid("mapped at address 0".into()))?;
        let map = Map { base, ring, fd };
        for range in layout::always(ring) {
            let flags = MapFlags::SHARED | MapFlags::FIXED | MapFlags::POPULATE;
            // SAFETY: the same pages of the same file once more, inside our own mapping, which is not shared yet. Populated
            // now, because a first touch costs over a microsecond a page.
            unsafe {
                let at = map.base.add(range.start).as_ptr().cast();
                rustix::mm::mmap(at, range.len(), both, flags, &map.fd, range.start as u64)?;
            }
        }
        Ok(map)
    }

    /// Bytes of each ring.
    pub fn ring(&self) -> usize {
        self.ring
    }

    /// The memfd, to be sent to the peer.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    #[inline]
    fn word(&self, at: usize) -> &AtomicU64 {
        assert!(at.is_multiple_of(8) && at + 8 <= layout::total(self.ring));
        // SAFETY: inside the mapping and aligned, by the assertion; atomics may be shared with other processes.
        unsafe { self.base.add(at).cast::<AtomicU64>().as_ref() }
    }

    /// The nonce of a side, two words: proof that both look at the same memory.
    pub fn nonce(&self, side: Side) -> [u64; 2] {
        [0, 8].map(|i| self.word(layout::nonce(side) + i).load(Ordering::Acquire))
    }

    /// Sets the nonce of a side.
    pub fn set_nonce(&self, side: Side, nonce: [u64; 2]) {
        for (i, word) in nonce.into_iter().enumerate() {
            self.word(layout::nonce(side) + 8 * i).store(word, Ordering::Release);
        }
    }

    /// The word that says whether a side has closed.
    pub fn closed(&self, side: Side) -> &AtomicU64 {
        self.word(layout::closed(side))
    }

    /// The word that says whether a side sleeps, for [`crate::doorbell`].
    pub fn sleeping(&self, side: Side) -> &AtomicU64 {
        self.word(layout::sleeping(side))
    }

    /// A futex of each side, for a loop without a [`crate::doorbell`].
    pub fn nap(&self, side: Side) -> &AtomicU32 {
        let word: *const AtomicU64 = self.word(layout::nap(side));
        // SAFETY: inside the mapping and aligned, as the word it is the first half of, which nothing else names; atomics
        // may be shared with other processes.
        unsafe { &*word.cast::<AtomicU32>() }
    }

    /// The thread of a side that may be touching the other's memory; for [`crate::revoke::enter`].
    pub fn inside(&self, side: Side) -> &AtomicU64 {
        self.word(layout::inside(side))
    }

    /// The entry that `key` names among the regions that `side` exposes.
    pub fn region(&self, side: Side, key: u32) -> Entry<'_> {
        let at = layout::region(side, key as usize % REGIONS, self.ring);
        let words: [usize; WORDS] = std::array::from_fn(|n| at + n * size_of::<u64>());
        Entry { words: words.map(|at| self.word(at)) }
    }

    /// Bytes that `side` has copied by itself into regions of the other one, and out of them.
    pub fn copied(&self, side: Side) -> [&AtomicU64; 2] {
        layout::copied(side).map(|at| self.word(at))
    }

    /// Any word of the map; see [`Map::corrupt`].
    #[cfg(feature = "sim")]
    #[doc(hidden)]
    pub fn peek(&self, at: usize) -> u64 {
        self.word(at / 8 * 8 % layout::total(self.ring)).load(Ordering::Relaxed)
    }

    /// Every word of the map, for tests with a misbehaving peer.
    #[cfg(feature = "sim")]
    #[doc(hidden)]
    pub fn corrupt(&self, at: usize, value: u64) {
        self.word(at / 8 * 8 % layout::total(self.ring)).store(value, Ordering::Relaxed);
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        // SAFETY: our own mapping; views keep an `Arc` of it, so none is left.
        let unmapped = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), layout::total(self.ring)) };
        debug_assert!(unmapped.is_ok());
    }
}

fn check_size(ring: usize) -> io::Result<()> {
    if ring.is_power_of_two() && (layout::RING_MIN..=layout::RING_MAX).contains(&ring) {
        return Ok(());
    }
    Err(invalid(format!(
        "ring of {ring} bytes: must be a power of two from {} to {}",
        layout::RING_MIN,
        layout::RING_MAX
    )))
}

/// The ring that one side writes.
#[derive(Debug)]
pub struct RingView {
    data: NonNull<u8>,
    tail: NonNull<AtomicU64>,
    head: NonNull<AtomicU64>,
    size: usize,
    at: usize,
    map: Arc<Map>,
}

// SAFETY: pointers into a map that the lane keeps alive, used through atomics and raw copies only.
unsafe impl Send for RingView {}

impl RingView {
    /// The ring that `writer` writes and its peer reads.
    pub fn new(map: &Arc<Map>, writer: Side) -> RingView {
        let at = layout::ring(writer, map.ring);
        RingView {
            // SAFETY: `at` lies inside the mapping, by the layout.
            data: unsafe { map.base.add(at) },
            tail: NonNull::from(map.word(layout::tail(writer))),
            head: NonNull::from(map.word(layout::head(writer.other()))),
            size: map.ring,
            at,
            map: map.clone(),
        }
    }

    /// The one or two pieces of the ring that `len` bytes at `pos` occupy: offset and length of the first.
    #[inline]
    fn split(&self, pos: u64, len: usize) -> (usize, usize) {
        let at = (pos as usize) & (self.size - 1);
        (at, len.min(self.size - at))
    }
}

// SAFETY: offsets are masked and split at the end, so that copies of up to `size` bytes stay inside the ring.
unsafe impl Area for RingView {
    #[inline]
    fn tail(&self) -> &AtomicU64 {
        // SAFETY: points into the map kept alive by `self.map`.
        unsafe { self.tail.as_ref() }
    }
    #[inline]
    fn head(&self) -> &AtomicU64 {
        // SAFETY: as above.
        unsafe { self.head.as_ref() }
    }
    #[inline]
    fn size(&self) -> u64 {
        self.size as u64
    }
    #[inline]
    unsafe fn put(&self, pos: u64, src: *const u8, len: usize) {
        let (at, first) = self.split(pos, len);
        // SAFETY: both pieces lie inside the ring; `src` is readable by the caller's promise; a source inside the
        // same map cannot be had by safe means.
        unsafe {
            linkspan_mem::copy(src, self.data.add(at).as_ptr(), first);
            if first < len {
                linkspan_mem::copy(src.add(first), self.data.as_ptr(), len - first);
            }
        }
    }
    #[inline]
    unsafe fn get(&self, pos: u64, dst: *mut u8, len: usize) {
        let (at, first) = self.split(pos, len);
        // SAFETY: as in `put`.
        unsafe {
            linkspan_mem::copy(self.data.add(at).as_ptr(), dst, first);
            if first < len {
                linkspan_mem::copy(self.data.as_ptr(), dst.add(first), len - first);
            }
        }
    }
}

impl Producer<RingView> {
    /// Like [`Producer::put`], from memory that other threads may access.
    #[inline]
    #[must_use]
    pub fn put_mem(&mut self, at: usize, src: MemSlice) -> bool {
        // SAFETY: readable by the promise of `MemSlice::new`; `fits` bounds the length.
        self.fits(at, src.len())
            && unsafe {
                self.area.put(self.tail.wrapping_add(at as u64), src.as_ptr(), src.len());
                true
            }
    }

    /// Like [`Producer::put_mem`] through the kernel: memory that cannot be read is an error, not a signal.
    ///
    /// # Errors
    /// `EFAULT` where the memory cannot be read; `EINVAL` beyond free space.
    pub fn put_checked(&mut self, at: usize, src: MemSlice) -> io::Result<()> {
        if !self.fits(at, src.len()) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let (start, first) = self.area.split(self.tail.wrapping_add(at as u64), src.len());
        for (from, offset, len) in [(0, start, first), (first, 0, src.len() - first)] {
            let Some(part) = src.sub(from as u64, len as u64) else {
                continue;
            };
            // SAFETY: a system call that reads `len` bytes at an address and checks them itself.
            let n = unsafe {
                libc::pwrite(
                    std::os::fd::AsRawFd::as_raw_fd(&self.area.map.fd),
                    part.as_ptr().cast(),
                    len,
                    (self.area.at + offset) as libc::off_t,
                )
            };
            whole(n, len)?;
        }
        Ok(())
    }
}

impl Consumer<RingView> {
    /// Like [`Consumer::get`], into memory that other threads may access.
    #[inline]
    #[must_use]
    pub fn get_mem(&self, at: usize, dst: MemSlice) -> bool {
        // SAFETY: writable by the promise of `MemSlice::new`; `holds` bounds the length.
        self.holds(at, dst.len())
            && unsafe {
                self.area.get(self.head.wrapping_add(at as u64), dst.as_ptr(), dst.len());
                true
            }
    }

    /// Like [`Consumer::get_mem`], past the caches where the processor can: for a place among many, which is not read soon.
    #[inline]
    #[must_use]
    pub fn get_mem_past(&self, at: usize, dst: MemSlice) -> bool {
        if !self.holds(at, dst.len()) {
            return false;
        }
        let (start, first) = self.area.split(self.head.wrapping_add(at as u64), dst.len());
        // SAFETY: both pieces lie inside the ring, by the mask and the split; `dst` is writable by the promise of `MemSlice::new`.
        unsafe {
            linkspan_mem::copy_past_caches(self.area.data.add(start).as_ptr(), dst.as_ptr(), first);
            if first < dst.len() {
                linkspan_mem::copy_past_caches(self.area.data.as_ptr(), dst.as_ptr().add(first), dst.len() - first);
            }
        }
        true
    }

    /// Like [`Consumer::get_mem`] through the kernel: memory that cannot be written is an error, not a signal.
    ///
    /// # Errors
    /// `EFAULT` where the memory cannot be written; `EINVAL` beyond what is ready.
    pub fn get_checked(&self, at: usize, dst: MemSlice) -> io::Result<()> {
        if !self.holds(at, dst.len()) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let (start, first) = self.area.split(self.head.wrapping_add(at as u64), dst.len());
        for (from, offset, len) in [(0, start, first), (first, 0, dst.len() - first)] {
            let Some(part) = dst.sub(from as u64, len as u64) else {
                continue;
            };
            // SAFETY: a system call that writes `len` bytes of memory that `MemSlice` promises us, and checks it.
            let n = unsafe {
                libc::pread(
                    std::os::fd::AsRawFd::as_raw_fd(&self.area.map.fd),
                    part.as_ptr().cast(),
                    len,
                    (self.area.at + offset) as libc::off_t,
                )
            };
            whole(n, len)?;
        }
        Ok(())
    }
}

/// A transfer that ended early hit memory that cannot be touched.
pub(crate) fn whole(n: isize, len: usize) -> io::Result<()> {
    match n {
        n if n == len as isize => Ok(()),
        n if n < 0 => Err(io::Error::last_os_error()),
        _ => Err(io::Error::from_raw_os_error(libc::EFAULT)),
    }
}

/// The transfer slots of one direction.
#[derive(Debug)]
pub struct Slots {
    map: Arc<Map>,
    sender: Side,
}

impl Slots {
    /// The slots of what `sender` sends.
    pub fn new(map: &Arc<Map>, sender: Side) -> Slots {
        Slots { map: map.clone(), sender }
    }

    /// Slot `i`, below [`crate::SLOTS`].
    #[inline]
    pub fn get(&self, i: usize) -> Option<SlotWords<'_>> {
        let (at, places) = (layout::slot, layout::place);
        (i < layout::SLOTS).then(|| SlotWords {
            map: &self.map,
            at: at(self.sender, i),
            places: places(self.sender, i, 0),
        })
    }
}

/// The words of one slot: the cursor, the sender's and the receiver's, a line each.
#[derive(Clone, Copy, Debug)]
pub struct SlotWords<'a> {
    map: &'a Map,
    at: usize,
    places: usize,
}

impl SlotWords<'_> {
    /// Where slice `n` of a row goes, 0: nowhere; the receiver's. `n` is below [`crate::slot::MAX_SLICES`].
    #[inline]
    pub fn place(&self, n: u32) -> &AtomicU64 {
        self.map.word(self.places + (n % MAX_SLICES) as usize * size_of::<u64>())
    }
}

impl Words for SlotWords<'_> {
    fn cursor(&self) -> &AtomicU64 {
        self.map.word(self.at)
    }
    fn sent(&self) -> &AtomicU64 {
        self.map.word(self.at + 64)
    }
    fn unsent(&self) -> &AtomicU64 {
        self.map.word(self.at + 72)
    }
    fn dest(&self) -> &AtomicU64 {
        self.map.word(self.at + 128)
    }
    fn unread(&self) -> &AtomicU64 {
        self.map.word(self.at + 136)
    }
}
