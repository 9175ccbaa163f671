//! What can go wrong with a GPU.

/// Why a call on a GPU or its driver failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GpuError {
    /// The driver's library is not on this machine; normal where there is no such GPU.
    #[error("LS1301 no {what} on this machine: {why}; install the GPU's driver, or use host memory")]
    NoLibrary {
        /// The library, as in `CUDA driver (libcuda.so.1)`.
        what: &'static str,
        /// The error text of the dynamic linker.
        why: String,
    },
    /// The library lacks something that every supported version has.
    #[error(
        "LS1302 {library} has no {symbol}; it is too old or not the driver's own, version {wanted} or later is needed"
    )]
    Symbol {
        /// The file.
        library: String,
        /// The missing function.
        symbol: &'static str,
        /// The first version with it.
        wanted: &'static str,
    },
    /// A driver call failed.
    #[error("LS1303 {call} on {device} failed: {text} (code {code}); see the driver's log (dmesg)")]
    Call {
        /// The call.
        call: &'static str,
        /// The device, as in `cuda:0`, or the driver as a whole.
        device: String,
        /// The driver's code.
        code: i32,
        /// The driver's text for it.
        text: String,
    },
    /// No device of this number.
    #[error(
        "LS1304 there is no device {wanted}: the driver shows {found} (see CUDA_VISIBLE_DEVICES, ROCR_VISIBLE_DEVICES)"
    )]
    NoDevice {
        /// Asked for, as in `cuda:3`.
        wanted: String,
        /// Devices there are.
        found: usize,
    },
    /// The device or its driver cannot do this.
    #[error("LS1305 {device} cannot {what}: {why}")]
    Unsupported {
        /// The device.
        device: String,
        /// What was asked.
        what: &'static str,
        /// Why not.
        why: String,
    },
    /// A range that is not inside one allocation of the device, or not where the call needs it.
    #[error("LS1306 {len} bytes at {addr:#x} cannot be used on {device}: {why}")]
    Range {
        /// The device.
        device: String,
        /// First address.
        addr: u64,
        /// Bytes.
        len: usize,
        /// What is wrong with it.
        why: &'static str,
    },
    /// Streams, events or places used up.
    #[error("LS1307 no more {what} on {device}: {most} are in use; close connections that are not needed")]
    Exhausted {
        /// What.
        what: &'static str,
        /// The device.
        device: String,
        /// How many there can be.
        most: usize,
    },
    /// The simulated GPU saw work in an order that loses or tears data.
    #[error("LS1308 order bug on {device}: {what}")]
    Order {
        /// The device.
        device: String,
        /// What happened.
        what: String,
    },
    /// Device memory on a staged rail that has no device yet.
    #[error("LS1309 device memory on a connection that was given no GPU; attach the GPU that owns it first")]
    NotAttached,
    /// A connection has the memory of one device.
    #[error("LS1310 this connection moves memory of {ours}, not of {other}; use one connection for each GPU")]
    OtherDevice {
        /// Its device.
        ours: String,
        /// The other one.
        other: String,
    },
    /// Staging takes more pinned memory than it may.
    #[error(
        "LS1311 {wanted} bytes of pinned memory for staging are too much beside {used} in use: {most} are allowed (LINKSPAN_STAGE_MEMORY)"
    )]
    StageMemory {
        /// For one direction of one rail.
        wanted: usize,
        /// In use.
        used: usize,
        /// Limit.
        most: usize,
    },
    /// A name that is no device's.
    #[error("LS1312 {name} names no memory: host, cuda:N or hip:N do, as in cuda:0")]
    Name {
        /// The name.
        name: String,
    },
    /// Device memory that no driver knows.
    #[error("LS1313 no driver knows device memory at {addr:#x}: CUDA: {cuda}; HIP: {hip}")]
    NoOwner {
        /// The address.
        addr: u64,
        /// What CUDA says.
        cuda: String,
        /// What HIP says.
        hip: String,
    },
}
