//! Compile-time proof of every size and offset (64-bit targets; x86-64 and aarch64 agree).

use std::mem::{offset_of, size_of};

use super::{
    CommAttr, Config, DeviceHandle, NetAttr, NetV6, NetV7, NetV8, NetV9, NetV10, NetV11, NetV12, PropsV6, PropsV7,
    PropsV8, PropsV9, PropsV11, PropsV12, TunerV3, TunerV4, TunerV5, TunerV6, VDevice4, VDevice8,
};

macro_rules! layout {
    ($ty:ty, $size:literal, $($field:ident $at:literal),* $(,)?) => {
        const _: () = {
            assert!(size_of::<$ty>() == $size);
            $(assert!(offset_of!($ty, $field) == $at);)*
        };
    };
}

layout!(Config, 4, traffic_class 0);
layout!(DeviceHandle, 32, device_type 0, version 4, handle 8, size 16, needs_proxy_progress 24);
layout!(VDevice4, 20, ndevs 0, devs 4);
layout!(VDevice8, 36, ndevs 0, devs 4);
layout!(CommAttr, 16, max_concurrent_peers 0, min_concurrent_peers 4, max_flows_per_peer 8, min_flows_per_peer 12);
layout!(NetAttr, 44, send 0, recv 16, op 32, algo 36, proto 40);

layout!(PropsV6, 48, name 0, pci_path 8, guid 16, ptr_support 24, speed 28, port 32, latency 36, max_comms 40,
    max_recvs 44);
layout!(PropsV7, 56, name 0, pci_path 8, guid 16, ptr_support 24, speed 28, port 32, latency 36, max_comms 40,
    max_recvs 44, device_type 48, device_version 52);
layout!(PropsV8, 64, name 0, pci_path 8, guid 16, ptr_support 24, reg_is_global 28, speed 32, port 36, latency 40,
    max_comms 44, max_recvs 48, device_type 52, device_version 56);
layout!(PropsV9, 104, name 0, pci_path 8, guid 16, ptr_support 24, reg_is_global 28, force_flush 32, speed 36,
    port 40, latency 44, max_comms 48, max_recvs 52, device_type 56, device_version 60, vprops 64, max_p2p_bytes 88,
    max_coll_bytes 96);
layout!(PropsV11, 112, name 0, pci_path 8, guid 16, ptr_support 24, reg_is_global 28, force_flush 32, speed 36,
    port 40, latency 44, max_comms 48, max_recvs 52, device_type 56, device_version 60, vprops 64, max_p2p_bytes 88,
    max_coll_bytes 96, max_multi_request_size 104);
layout!(PropsV12, 128, name 0, pci_path 8, guid 16, ptr_support 24, reg_is_global 28, force_flush 32, speed 36,
    port 40, latency 44, max_comms 48, max_recvs 52, device_type 56, device_version 60, vprops 64, max_p2p_bytes 104,
    max_coll_bytes 112, max_multi_request_size 120, rail_id 124, plane_id 126);

macro_rules! table_layout {
    ($ty:ty, $size:literal $(, $field:ident $at:literal)*) => {
        layout!($ty, $size, name 0, init 8, devices 16, get_properties 24, listen 32, connect 40, accept 48,
            reg_mr 56, reg_mr_dma_buf 64, dereg_mr 72, isend 80, irecv 88, iflush 96, test 104, close_send 112,
            close_recv 120, close_listen 128 $(, $field $at)*);
    };
}

table_layout!(NetV6, 136);
table_layout!(NetV7, 152, get_device_mr 136, irecv_consumed 144);
table_layout!(NetV8, 152, get_device_mr 136, irecv_consumed 144);
table_layout!(NetV9, 160, get_device_mr 136, irecv_consumed 144, make_vdevice 152);
table_layout!(NetV10, 160, get_device_mr 136, irecv_consumed 144, make_vdevice 152);
table_layout!(NetV11, 176, get_device_mr 136, irecv_consumed 144, make_vdevice 152, finalize 160, set_net_attr 168);
table_layout!(NetV12, 176, get_device_mr 136, irecv_consumed 144, make_vdevice 152, finalize 160, set_net_attr 168);

layout!(TunerV3, 32, name 0, init 8, get_coll_info 16, destroy 24);
layout!(TunerV4, 32, name 0, init 8, get_coll_info 16, destroy 24);
layout!(TunerV5, 32, name 0, init 8, get_coll_info 16, finalize 24);
layout!(TunerV6, 40, name 0, init 8, get_coll_info 16, finalize 24, get_chunk_size 32);
