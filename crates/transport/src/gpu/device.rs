//! What a GPU offers to code that moves bytes.

use std::any::Any;
use std::fmt;
use std::os::fd::OwnedFd;

use super::{ForeignStream, GpuError};
use crate::{DeviceMemory, MemSlice, MemoryDomain};

/// Whose device it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// NVIDIA, through the CUDA driver.
    Cuda,
    /// AMD, through HIP.
    Hip,
    /// Simulated.
    Sim,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Kind::Cuda => "cuda",
            Kind::Hip => "hip",
            Kind::Sim => "sim",
        })
    }
}

/// Whether a device can do something, and why not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ability {
    /// It can, according to its driver.
    Yes,
    /// It cannot; the reason.
    No(String),
}

impl Ability {
    /// Whether the device has this ability.
    pub fn yes(&self) -> bool {
        *self == Ability::Yes
    }
}

/// How the device's memory and the host's are one, probed and never assumed from a name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Unified {
    /// The GPU uses the machine's own memory (an APU, GB10).
    pub integrated: bool,
    /// The GPU reads ordinary host memory (`malloc`) by its address.
    pub pageable: bool,
    /// The processor reads the device's allocations by their address.
    pub host_reads: bool,
}

/// What a device is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GpuInfo {
    /// Whose.
    pub kind: Kind,
    /// Number that the driver gives it.
    pub ordinal: usize,
    /// The driver's name for it.
    pub name: String,
    /// Instruction set, as in `sm_90` or `gfx1151`; empty where the driver does not say.
    pub arch: String,
    /// PCI address, as in `0000:01:00.0`.
    pub pci: Option<String>,
    /// NUMA node of that address.
    pub numa: Option<u32>,
    /// Bytes of memory.
    pub memory: u64,
    /// Version of the driver's interface, as in `12.9`.
    pub driver: String,
    /// Memory shared with the host.
    pub unified: Unified,
    /// Its memory can be exported as dma-buf.
    pub dma_buf: Ability,
    /// Network adapters can reach its memory (GPUDirect RDMA).
    pub direct: Ability,
}

impl GpuInfo {
    /// Short name, as in `cuda:0`.
    pub fn id(&self) -> String {
        format!("{}:{}", self.kind, self.ordinal)
    }
}

/// What lies at an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pointer {
    /// Host memory that the driver does not know.
    Host,
    /// Host memory that the driver has pinned.
    Pinned,
    /// Device memory.
    Device {
        /// Number of the device.
        ordinal: usize,
        /// The allocation's first address.
        base: u64,
        /// The allocation's bytes.
        len: usize,
    },
    /// Memory that the driver moves between host and device.
    Managed,
}

/// Device memory as a file descriptor that other drivers understand.
#[derive(Debug)]
pub struct DmaBuf {
    /// The descriptor, ours to close. NCCL closes those that it makes itself.
    pub fd: OwnedFd,
    /// Where in it the range begins, bytes.
    pub offset: u64,
    /// Bytes in the descriptor, a multiple of the host's page size.
    pub len: usize,
}

/// A queue of work on one device, which runs in order. Only a token: the device checks it in every call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stream(pub u32);

/// A mark in a stream that can be asked for. Only a token, as [`Stream`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event(pub u32);

/// One launch of the unpack kernel. All ranges are device memory.
#[derive(Clone, Copy, Debug)]
pub struct UnpackJob {
    /// Where the pieces are; begins at a multiple of 16 and is a multiple of 16 long.
    pub pool: MemSlice,
    /// Where they go.
    pub dst: MemSlice,
    /// The descriptors, `linkspan_gpu::unpack::Piece` one behind the other.
    pub pieces: MemSlice,
    /// How many.
    pub count: u32,
    /// Bytes of the longest.
    pub longest: u32,
}

/// What tells NCCL's kernels which pieces of a pool to put in place (`linkspan_gpu::offload::Queue`). Driven by the thread
/// that drives the connection.
pub trait DeviceQueue: Send + Sync {
    /// The newest open receive whose buffer holds this range, by its number.
    fn of(&self, part: MemSlice) -> Option<u64>;

    /// Leaves `len` bytes at device address `from` to the kernel, which brings them to `to`, part of the receive's buffer.
    /// False: the queue cannot say that.
    fn push(&self, number: u64, from: u64, len: u32, to: u64) -> bool;

    /// All receives below this number were consumed.
    fn consumed(&self) -> u64;

    /// Keeps what pieces lie in, of a path that ends: until the receives below `end` were consumed, or the queue is dropped.
    fn keep(&self, end: u64, pages: Box<dyn Any + Send>);
}

/// Shape of the launch: blocks in x and y, of 256 threads.
///
/// 32 threads work on a piece, or on 4 KiB of a long one, so a block does 8. Enough blocks to fill the largest GPUs
/// several times; more would only wait.
pub fn launch_shape(job: &UnpackJob) -> (u32, u32) {
    (job.count.div_ceil(8).clamp(1, 1024), job.longest.div_ceil(4096).clamp(1, 64))
}

/// Threads in a block of the unpack kernel.
pub const LAUNCH_THREADS: u32 = 256;

/// A device. Every call may come from any thread; none but those that say so waits for the device. Calls below
/// "data path" neither allocate nor lock on real devices.
///
/// Implemented by drivers. Addresses in a [`MemSlice`] are the device's where its place is the device's and the
/// process's otherwise.
///
/// # Safety
/// An implementation touches memory within the call, or in the order of a stream until an event recorded behind it is done;
/// pinned memory it names to the driver until it is unpinned. [`Gpu::alloc`] gives memory that nothing else uses, and that is
/// mapped for the device until [`Gpu::free`].
#[allow(unsafe_code)]
pub unsafe trait Gpu: DeviceMemory + fmt::Debug {
    /// What it is.
    fn info(&self) -> &GpuInfo;

    /// The place of its memory.
    fn place(&self) -> MemoryDomain;

    /// Allocates device memory; see `linkspan_gpu::GpuBuf`.
    ///
    /// # Errors
    /// [`GpuError::Call`] where the driver refuses (out of memory), [`GpuError::Exhausted`].
    fn alloc(&self, len: usize) -> Result<MemSlice, GpuError>;

    /// Takes memory of [`Gpu::alloc`] back. Real devices keep it for the next `alloc`, and mapped until [`Gpu::give_back`], so that a
    /// handle that lived too long leads to device memory.
    ///
    /// # Safety
    /// `mem` is what [`Gpu::alloc`] gave, and nothing uses the handle, a copy or a part of it any more.
    unsafe fn free(&self, mem: MemSlice);

    /// Lets the driver have what came back by [`Gpu::free`] and is kept for the next [`Gpu::alloc`]. It may wait for all that the
    /// device does: not where a kernel may be waiting for this process.
    fn give_back(&self) {}

    /// Pins host memory, so that copies from and to it run beside the processor; see `linkspan_gpu::Pinned`.
    ///
    /// # Errors
    /// [`GpuError::Range`] for memory that is not the host's, [`GpuError::Call`] where the driver refuses, as for the
    /// limit on locked memory (`ulimit -l`).
    fn pin(&self, mem: MemSlice) -> Result<(), GpuError>;

    /// Unpins it.
    fn unpin(&self, mem: MemSlice);

    /// Address at which the device itself reads and writes pinned host memory: with unified addressing the process's own.
    ///
    /// # Errors
    /// [`GpuError::Unsupported`] where the device does not read host memory, [`GpuError::Call`] for memory that is not
    /// pinned.
    fn device_address(&self, pinned: MemSlice) -> Result<u64, GpuError> {
        Ok(pinned.as_ptr() as u64)
    }

    /// A stream that does not wait for the device's default stream.
    ///
    /// # Errors
    /// [`GpuError::Exhausted`], [`GpuError::Call`].
    fn stream(&self) -> Result<Stream, GpuError>;

    /// Takes a stream back; its work goes on.
    fn retire_stream(&self, stream: Stream);

    /// The driver's own handle of a stream, which other code of this process may let wait for its work.
    ///
    /// # Errors
    /// [`GpuError::Range`]: the stream is not one of this device's. [`GpuError::Unsupported`]: a simulated GPU has
    /// none.
    fn native(&self, stream: Stream) -> Result<u64, GpuError>;

    /// Waits until what is queued on a foreign stream has run.
    ///
    /// # Errors
    /// [`GpuError::Call`]: the work in the stream failed, or the handle is not valid.
    fn finish(&self, stream: ForeignStream) -> Result<(), GpuError>;

    /// An event, which counts as done until it is recorded.
    ///
    /// # Errors
    /// [`GpuError::Exhausted`], [`GpuError::Call`].
    fn event(&self) -> Result<Event, GpuError>;

    /// Takes an event back.
    fn retire_event(&self, event: Event);

    /// Data path: queues a copy of as many bytes as both ranges have. Host ranges are pinned. Until an event recorded
    /// behind it is done, the source is read and the destination holds anything.
    ///
    /// # Errors
    /// [`GpuError::Range`] for ranges of different lengths or a stream of another device, [`GpuError::Call`].
    fn copy(&self, on: Stream, dst: MemSlice, src: MemSlice) -> Result<(), GpuError>;

    /// Data path: marks the place in the stream.
    ///
    /// # Errors
    /// [`GpuError::Range`] for an event or a stream of another device, [`GpuError::Call`].
    fn record(&self, event: Event, on: Stream) -> Result<(), GpuError>;

    /// Data path: whether everything before the mark has run.
    ///
    /// # Errors
    /// [`GpuError::Call`]: the device failed. [`GpuError::Range`] for an event of another device.
    fn done(&self, event: Event) -> Result<bool, GpuError>;

    /// Data path: later work on the stream waits for the event.
    ///
    /// # Errors
    /// [`GpuError::Range`] for an event or a stream of another device, [`GpuError::Call`].
    fn after(&self, on: Stream, event: Event) -> Result<(), GpuError>;

    /// Makes what network adapters have written to this device visible to work that is queued from now on.
    ///
    /// # Errors
    /// [`GpuError::Call`]: the device failed.
    fn flush_writes(&self) -> Result<(), GpuError>;

    /// What lies at an address.
    ///
    /// # Errors
    /// [`GpuError::Call`]: the driver cannot look the address up.
    fn pointer(&self, addr: u64) -> Result<Pointer, GpuError>;

    /// Exports the pages that hold a range of device memory.
    ///
    /// # Errors
    /// [`GpuError::Unsupported`] where device or driver have no dma-bufs, [`GpuError::Range`] for memory that is not
    /// within one allocation of the device, [`GpuError::Call`].
    fn export(&self, mem: MemSlice) -> Result<DmaBuf, GpuError>;

    /// Whether it can run the unpack kernel; the first call makes it ready, which takes time.
    fn kernel(&self) -> Ability {
        Ability::No("its driver has no unpack kernel".into())
    }

    /// Data path: queues one launch of the unpack kernel.
    ///
    /// # Errors
    /// [`GpuError::Unsupported`] where the device cannot run the kernel, [`GpuError::Range`] for memory that the kernel
    /// does not take, [`GpuError::Call`].
    fn unpack(&self, on: Stream, job: &UnpackJob) -> Result<(), GpuError> {
        let (device, what) = (self.info().id(), "run the unpack kernel");
        let (Ability::No(why), _) = (self.kernel(), (on, job)) else {
            return Err(GpuError::Unsupported { device, what, why: "its driver has no launch".into() });
        };
        Err(GpuError::Unsupported { device, what, why })
    }

    /// Waits until an event is done.
    ///
    /// # Errors
    /// [`GpuError::Call`]: the device failed. [`GpuError::Range`] for an event of another device.
    fn wait(&self, event: Event) -> Result<(), GpuError> {
        while !self.done(event)? {
            std::thread::yield_now();
        }
        Ok(())
    }
}
