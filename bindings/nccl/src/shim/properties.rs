//! getProperties: one `Props`, six shapes.

use std::ffi::{c_char, c_int};

use super::border::{call, device, given};
use crate::abi::{self, PropsV6, PropsV7, PropsV8, PropsV9, PropsV11, PropsV12, VDevice4, VDevice8};
use crate::{Exported, Global, NetPlugin, Props};

/// A properties structure of one version.
pub(super) trait Shape: Sized {
    fn from_props<P: NetPlugin>(global: &Global<P>, dev: usize, props: &Props) -> Self;
}

pub(super) unsafe extern "C" fn get<P: Exported, S: Shape>(dev: c_int, props: *mut S) -> c_int {
    call::<P>("getProperties", || {
        given(props, "props")?;
        let global = P::global();
        let plugin = global.plugin("getProperties")?;
        let dev = device(dev, plugin.devices())?;
        let shape = S::from_props(global, dev, &plugin.properties(dev)?);
        // SAFETY: not null, and NCCL's structure of this version.
        unsafe { props.write(shape) };
        Ok(())
    })
}

/// What all shapes have, in C's types.
struct Common {
    name: *const c_char,
    pci_path: *const c_char,
    ptr_support: c_int,
    speed: c_int,
    max_comms: c_int,
    max_recvs: c_int,
    members: Vec<c_int>,
}

fn int(n: impl TryInto<c_int>) -> c_int {
    n.try_into().unwrap_or(c_int::MAX)
}

fn id(n: Option<u16>) -> i16 {
    n.and_then(|n| i16::try_from(n).ok()).unwrap_or(abi::ID_UNDEF)
}

fn common<P: NetPlugin>(global: &Global<P>, dev: usize, p: &Props) -> Common {
    let mut ptr_support = abi::PTR_HOST;
    if p.device_memory {
        ptr_support |= abi::PTR_CUDA;
    }
    if p.dma_buf {
        ptr_support |= abi::PTR_DMABUF;
    }
    let max_recvs = if p.unpack_since.is_some() { 1 } else { p.max_recvs };
    let members = if p.members.is_empty() { vec![dev] } else { p.members.clone() };
    Common {
        name: global.intern(&p.name),
        pci_path: p.pci_path.as_deref().map_or(std::ptr::null(), |path| global.intern(path)),
        ptr_support,
        speed: int(p.speed_mbps.max(1)),
        max_comms: int(p.max_comms.max(1)),
        max_recvs: int(max_recvs.clamp(1, crate::MAX_RECVS as u32)),
        members: members.into_iter().map(int).collect(),
    }
}

/// Whether NCCL of this version is told of the offload.
fn unpacks(p: &Props, version: u32) -> bool {
    p.unpack_since.is_some_and(|since| version >= since)
}

fn device_type(p: &Props, version: u32) -> c_int {
    if unpacks(p, version) { abi::DEVICE_UNPACK } else { abi::DEVICE_HOST }
}

fn device_version(p: &Props, version: u32) -> c_int {
    if unpacks(p, version) { abi::DEVICE_UNPACK_VERSION } else { abi::DEVICE_INVALID_VERSION }
}

/// The first members, and how many of them.
fn merged<const N: usize>(members: &[c_int]) -> (c_int, [c_int; N]) {
    let mut devs = [0; N];
    let n = members.len().min(N);
    devs[..n].copy_from_slice(&members[..n]);
    (n as c_int, devs)
}

fn vdevice4(members: &[c_int]) -> VDevice4 {
    let (ndevs, devs) = merged(members);
    VDevice4 { ndevs, devs }
}

fn vdevice8(members: &[c_int]) -> VDevice8 {
    let (ndevs, devs) = merged(members);
    VDevice8 { ndevs, devs }
}

/// NCCL refuses 0 and more than 1 TiB.
fn limit(bytes: usize) -> usize {
    bytes.clamp(1, abi::MAX_NET_SIZE_BYTES)
}

macro_rules! shape {
    ($name:ident { $($field:ident: $value:expr,)* }, |$dev:ident, $p:ident, $c:ident|) => {
        impl Shape for $name {
            fn from_props<P: NetPlugin>(global: &Global<P>, $dev: usize, $p: &Props) -> Self {
                let $c = common(global, $dev, $p);
                $name {
                    name: $c.name,
                    pci_path: $c.pci_path,
                    guid: $p.guid,
                    ptr_support: $c.ptr_support,
                    speed: $c.speed,
                    port: int($p.port),
                    latency: $p.latency_us,
                    max_comms: $c.max_comms,
                    max_recvs: $c.max_recvs,
                    $($field: $value,)*
                }
            }
        }
    };
}

shape!(PropsV6 {}, |dev, p, c|);
shape!(PropsV7 { device_type: device_type(p, 7), device_version: device_version(p, 7), }, |dev, p, c|);
shape!(
    PropsV8 {
        device_type: device_type(p, 8),
        device_version: device_version(p, 8),
        reg_is_global: c_int::from(p.reg_is_global),
    },
    |dev, p, c|
);
shape!(
    PropsV9 {
        device_type: device_type(p, 9),
        device_version: device_version(p, 9),
        reg_is_global: c_int::from(p.reg_is_global),
        force_flush: c_int::from(p.force_flush),
        vprops: vdevice4(&c.members),
        max_p2p_bytes: limit(p.max_p2p_bytes),
        max_coll_bytes: limit(p.max_coll_bytes),
    },
    |dev, p, c|
);
shape!(
    PropsV11 {
        device_type: device_type(p, 11),
        device_version: device_version(p, 11),
        reg_is_global: c_int::from(p.reg_is_global),
        force_flush: c_int::from(p.force_flush),
        vprops: vdevice4(&c.members),
        max_p2p_bytes: limit(p.max_p2p_bytes),
        max_coll_bytes: limit(p.max_coll_bytes),
        max_multi_request_size: int(p.max_multi_request),
    },
    |dev, p, c|
);
shape!(
    PropsV12 {
        device_type: device_type(p, 12),
        device_version: device_version(p, 12),
        reg_is_global: c_int::from(p.reg_is_global),
        force_flush: c_int::from(p.force_flush),
        vprops: vdevice8(&c.members),
        max_p2p_bytes: limit(p.max_p2p_bytes),
        max_coll_bytes: limit(p.max_coll_bytes),
        max_multi_request_size: int(p.max_multi_request),
        rail_id: id(p.rail),
        plane_id: id(p.plane),
    },
    |dev, p, c|
);
