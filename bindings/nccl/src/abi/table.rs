//! The tables, in the order of their fields.

use std::ffi::c_char;

use super::{
    AcceptV6, AcceptV7, Close, ConnectV6, ConnectV7, ConnectV10, ConnectV11, DeregMr, Devices, GetDeviceMr,
    GetProperties, Iflush, InitV6, InitV10, InitV11, IrecvConsumed, IrecvV6, IrecvV9, IrecvV10, IsendV6, IsendV9,
    IsendV10, ListenV6, ListenV11, MakeVDevice, PropsV6, PropsV7, PropsV8, PropsV9, PropsV11, PropsV12, RegMrDmaBuf,
    RegMrV6, RegMrV8, SetNetAttr, Test, VDevice4, VDevice8,
};

macro_rules! table {
    ($(#[$doc:meta])* $name:ident { $($field:ident: $ty:ty,)* }) => {
        $(#[$doc])*
        #[repr(C)]
        #[derive(Clone, Copy)]
        #[allow(missing_docs, reason = "each field has the type that documents it")]
        pub struct $name { pub name: *const c_char, $(pub $field: Option<$ty>,)* }

        // SAFETY: a table is constant: a pointer to a static C string and pointers to functions.
        unsafe impl Sync for $name {}
        // SAFETY: as above.
        unsafe impl Send for $name {}
    };
}

table! {
    /// `ncclNetPlugin_v6`.
    NetV6 {
        init: InitV6, devices: Devices, get_properties: GetProperties<PropsV6>, listen: ListenV6, connect: ConnectV6,
        accept: AcceptV6, reg_mr: RegMrV6, reg_mr_dma_buf: RegMrDmaBuf, dereg_mr: DeregMr, isend: IsendV6,
        irecv: IrecvV6, iflush: Iflush, test: Test, close_send: Close, close_recv: Close, close_listen: Close,
    }
}
table! {
    /// `ncclNetPlugin_v7`.
    NetV7 {
        init: InitV6, devices: Devices, get_properties: GetProperties<PropsV7>, listen: ListenV6, connect: ConnectV7,
        accept: AcceptV7, reg_mr: RegMrV6, reg_mr_dma_buf: RegMrDmaBuf, dereg_mr: DeregMr, isend: IsendV6,
        irecv: IrecvV6, iflush: Iflush, test: Test, close_send: Close, close_recv: Close, close_listen: Close,
        get_device_mr: GetDeviceMr, irecv_consumed: IrecvConsumed,
    }
}
table! {
    /// `ncclNetPlugin_v8`.
    NetV8 {
        init: InitV6, devices: Devices, get_properties: GetProperties<PropsV8>, listen: ListenV6, connect: ConnectV7,
        accept: AcceptV7, reg_mr: RegMrV8, reg_mr_dma_buf: RegMrDmaBuf, dereg_mr: DeregMr, isend: IsendV6,
        irecv: IrecvV6, iflush: Iflush, test: Test, close_send: Close, close_recv: Close, close_listen: Close,
        get_device_mr: GetDeviceMr, irecv_consumed: IrecvConsumed,
    }
}
table! {
    /// `ncclNetPlugin_v9`.
    NetV9 {
        init: InitV6, devices: Devices, get_properties: GetProperties<PropsV9>, listen: ListenV6, connect: ConnectV7,
        accept: AcceptV7, reg_mr: RegMrV8, reg_mr_dma_buf: RegMrDmaBuf, dereg_mr: DeregMr, isend: IsendV9,
        irecv: IrecvV9, iflush: Iflush, test: Test, close_send: Close, close_recv: Close, close_listen: Close,
        get_device_mr: GetDeviceMr, irecv_consumed: IrecvConsumed, make_vdevice: MakeVDevice<VDevice4>,
    }
}
table! {
    /// `ncclNetPlugin_v10`.
    NetV10 {
        init: InitV10, devices: Devices, get_properties: GetProperties<PropsV9>, listen: ListenV6,
        connect: ConnectV10, accept: AcceptV7, reg_mr: RegMrV8, reg_mr_dma_buf: RegMrDmaBuf, dereg_mr: DeregMr,
        isend: IsendV10, irecv: IrecvV10, iflush: Iflush, test: Test, close_send: Close, close_recv: Close,
        close_listen: Close, get_device_mr: GetDeviceMr, irecv_consumed: IrecvConsumed,
        make_vdevice: MakeVDevice<VDevice4>,
    }
}
table! {
    /// `ncclNetPlugin_v11`.
    NetV11 {
        init: InitV11, devices: Devices, get_properties: GetProperties<PropsV11>, listen: ListenV11,
        connect: ConnectV11, accept: AcceptV7, reg_mr: RegMrV8, reg_mr_dma_buf: RegMrDmaBuf, dereg_mr: DeregMr,
        isend: IsendV10, irecv: IrecvV10, iflush: Iflush, test: Test, close_send: Close, close_recv: Close,
        close_listen: Close, get_device_mr: GetDeviceMr, irecv_consumed: IrecvConsumed,
        make_vdevice: MakeVDevice<VDevice4>, finalize: Close, set_net_attr: SetNetAttr,
    }
}
table! {
    /// `ncclNetPlugin_v12`.
    NetV12 {
        init: InitV11, devices: Devices, get_properties: GetProperties<PropsV12>, listen: ListenV11,
        connect: ConnectV11, accept: AcceptV7, reg_mr: RegMrV8, reg_mr_dma_buf: RegMrDmaBuf, dereg_mr: DeregMr,
        isend: IsendV10, irecv: IrecvV10, iflush: Iflush, test: Test, close_send: Close, close_recv: Close,
        close_listen: Close, get_device_mr: GetDeviceMr, irecv_consumed: IrecvConsumed,
        make_vdevice: MakeVDevice<VDevice8>, finalize: Close, set_net_attr: SetNetAttr,
    }
}
