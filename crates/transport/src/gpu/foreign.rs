//! Streams that other code of this process has made, named by the driver's own handle.
#![allow(unsafe_code)]

/// A stream of the application on one device: a `CUstream`, a `hipStream_t`, or a default stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ForeignStream(u64);

impl ForeignStream {
    /// The default stream that all threads share; `CU_STREAM_LEGACY`, and 1 in `__cuda_array_interface__` and DLPack.
    pub const LEGACY: ForeignStream = ForeignStream(1);
    /// The calling thread's default stream; `CU_STREAM_PER_THREAD`, and 2 in both.
    pub const PER_THREAD: ForeignStream = ForeignStream(2);

    /// The stream of a handle. 0, 1 and 2 are the default streams (0 is 1).
    ///
    /// # Safety
    /// A handle above 2 is that of a stream which the driver of the device has made, and which is not destroyed before the last
    /// call that is given it has returned.
    pub const unsafe fn new(handle: u64) -> ForeignStream {
        if handle == 0 { ForeignStream::LEGACY } else { ForeignStream(handle) }
    }

    /// The handle; 1 for the shared default stream.
    pub const fn handle(self) -> u64 {
        self.0
    }
}
