//! Device properties as the plugin gives them.

use crate::abi;

/// What one device is. Everything NCCL asks for in any version.
#[derive(Clone, Debug, PartialEq)]
pub struct Props {
    /// Unique name, as in `mlx5_0` or `linkspan0`. Shown to people.
    pub name: String,
    /// Path of its PCI device in /sys; `None` hangs it off the CPU.
    pub pci_path: Option<String>,
    /// Equal numbers mean ports of the same physical adapter; unique otherwise.
    pub guid: u64,
    /// Device memory may be registered.
    pub device_memory: bool,
    /// First table version in which NCCL is told that its own kernels put in place what is received (device offload "unpack",
    /// 7 or later); `None`: in none. Such a device takes one buffer in a receive.
    pub unpack_since: Option<u32>,
    /// dma-buf descriptors may be registered.
    pub dma_buf: bool,
    /// A registration holds for every comm of this device (since v8).
    pub reg_is_global: bool,
    /// Device memory needs a flush after each receive, whatever the GPU (since v9).
    pub force_flush: bool,
    /// Speed, megabits per second; above 0.
    pub speed_mbps: u32,
    /// Port number on the adapter.
    pub port: u32,
    /// Latency, microseconds; 0 for unknown.
    pub latency_us: f32,
    /// Most comms at once; above 0.
    pub max_comms: u32,
    /// Most buffers in one receive; 1 to [`crate::MAX_RECVS`].
    pub max_recvs: u32,
    /// Devices merged in this one; empty stands for the device itself (since v9).
    pub members: Vec<usize>,
    /// Largest point-to-point operation, bytes (since v9).
    pub max_p2p_bytes: usize,
    /// Largest collective step, bytes (since v9).
    pub max_coll_bytes: usize,
    /// Requests in one multi-request (since v11).
    pub max_multi_request: u32,
    /// Rail this device is on (since v12).
    pub rail: Option<u16>,
    /// Plane this device is on (since v12).
    pub plane: Option<u16>,
}

impl Default for Props {
    /// A host-memory device without a name: 1 Gb/s, unbounded sizes, no grouped receives.
    fn default() -> Props {
        Props {
            name: String::new(),
            pci_path: None,
            guid: 0,
            device_memory: false,
            unpack_since: None,
            dma_buf: false,
            reg_is_global: false,
            force_flush: false,
            speed_mbps: 1000,
            port: 0,
            latency_us: 0.0,
            max_comms: 64 << 10,
            max_recvs: 1,
            members: Vec::new(),
            max_p2p_bytes: abi::MAX_NET_SIZE_BYTES,
            max_coll_bytes: abi::MAX_NET_SIZE_BYTES,
            max_multi_request: 1,
            rail: None,
            plane: None,
        }
    }
}
