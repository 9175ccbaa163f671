//! The small structures that calls pass.

use std::ffi::{c_int, c_void};

/// Settings of a communicator (init since v11, connect in v10).
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Traffic class, or [`super::TRAFFIC_CLASS_UNDEF`].
    pub traffic_class: c_int,
}

/// What a plugin with device offload tells NCCL's kernels from connect and accept.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct DeviceHandle {
    /// One of the `DEVICE_*` numbers.
    pub device_type: c_int,
    /// Version of the device's protocol.
    pub version: c_int,
    /// The plugin's data for the kernel.
    pub handle: *mut c_void,
    /// Bytes at `handle`.
    pub size: usize,
    /// Whether the proxy has to call `test`.
    pub needs_proxy_progress: c_int,
}

/// Devices merged into one, v9 to v11.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct VDevice4 {
    /// Used entries of `devs`.
    pub ndevs: c_int,
    /// Device numbers.
    pub devs: [c_int; 4],
}

/// Devices merged into one, since v12.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct VDevice8 {
    /// Used entries of `devs`.
    pub ndevs: c_int,
    /// Device numbers.
    pub devs: [c_int; 8],
}

/// How one direction of a communicator will use the network.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CommAttr {
    /// Most peers at once.
    pub max_concurrent_peers: i32,
    /// Fewest peers at once.
    pub min_concurrent_peers: i32,
    /// Most flows per peer.
    pub max_flows_per_peer: i32,
    /// Fewest flows per peer.
    pub min_flows_per_peer: i32,
}

/// Hints of `setNetAttr` (since v11).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NetAttr {
    /// Sending.
    pub send: CommAttr,
    /// Receiving.
    pub recv: CommAttr,
    /// Bit set of operations.
    pub op: u32,
    /// Bit set of algorithms.
    pub algo: u32,
    /// Bit set of protocols.
    pub proto: u32,
}
