//! Device properties, one structure per shape. v10 has that of v9.

use std::ffi::{c_char, c_float, c_int};

use super::{VDevice4, VDevice8};

macro_rules! props {
    ($(#[$doc:meta])* $name:ident { $($(#[$fdoc:meta])* $field:ident: $ty:ty,)* }) => {
        $(#[$doc])*
        #[repr(C)]
        #[derive(Clone, Copy, Debug)]
        #[allow(missing_docs, reason = "the fields are those of `crate::Props`, documented there")]
        pub struct $name { $($(#[$fdoc])* pub $field: $ty,)* }
    };
}

props! {
    /// Properties, v6 (48 bytes).
    PropsV6 {
        name: *const c_char, pci_path: *const c_char, guid: u64, ptr_support: c_int, speed: c_int, port: c_int,
        latency: c_float, max_comms: c_int, max_recvs: c_int,
    }
}
props! {
    /// Properties, v7 (56 bytes).
    PropsV7 {
        name: *const c_char, pci_path: *const c_char, guid: u64, ptr_support: c_int, speed: c_int, port: c_int,
        latency: c_float, max_comms: c_int, max_recvs: c_int, device_type: c_int, device_version: c_int,
    }
}
props! {
    /// Properties, v8 (64 bytes). `reg_is_global` stands before `speed`.
    PropsV8 {
        name: *const c_char, pci_path: *const c_char, guid: u64, ptr_support: c_int, reg_is_global: c_int,
        speed: c_int, port: c_int, latency: c_float, max_comms: c_int, max_recvs: c_int, device_type: c_int,
        device_version: c_int,
    }
}
props! {
    /// Properties, v9 and v10 (104 bytes).
    PropsV9 {
        name: *const c_char, pci_path: *const c_char, guid: u64, ptr_support: c_int, reg_is_global: c_int,
        force_flush: c_int, speed: c_int, port: c_int, latency: c_float, max_comms: c_int, max_recvs: c_int,
        device_type: c_int, device_version: c_int, vprops: VDevice4, max_p2p_bytes: usize, max_coll_bytes: usize,
    }
}
props! {
    /// Properties, v11 (112 bytes).
    PropsV11 {
        name: *const c_char, pci_path: *const c_char, guid: u64, ptr_support: c_int, reg_is_global: c_int,
        force_flush: c_int, speed: c_int, port: c_int, latency: c_float, max_comms: c_int, max_recvs: c_int,
        device_type: c_int, device_version: c_int, vprops: VDevice4, max_p2p_bytes: usize, max_coll_bytes: usize,
        max_multi_request_size: c_int,
    }
}
props! {
    /// Properties, v12 (128 bytes).
    PropsV12 {
        name: *const c_char, pci_path: *const c_char, guid: u64, ptr_support: c_int, reg_is_global: c_int,
        force_flush: c_int, speed: c_int, port: c_int, latency: c_float, max_comms: c_int, max_recvs: c_int,
        device_type: c_int, device_version: c_int, vprops: VDevice8, max_p2p_bytes: usize, max_coll_bytes: usize,
        max_multi_request_size: c_int, rail_id: i16, plane_id: i16,
    }
}
