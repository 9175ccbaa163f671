//! The seven tables of a plugin.

use super::data::{iflush, irecv_consumed, irecv_v6, irecv_v9, irecv_v10, isend_v6, isend_v9, isend_v10, test};
use super::memory::{dereg_mr, get_device_mr, reg_mr_dma_buf, reg_mr_v6, reg_mr_v8};
use super::properties::get;
use super::setup::{
    accept_v6, accept_v7, close_listen, close_recv, close_send, connect_v6, connect_v7, connect_v10, connect_v11,
    devices, finalize, init_v6, init_v10, init_v11, listen_v6, listen_v11, make_vdevice4, make_vdevice8, set_net_attr,
};
use crate::Exported;
use crate::abi::{MakeVDevice, NetV6, NetV7, NetV8, NetV9, NetV10, NetV11, NetV12, VDevice4, VDevice8};

macro_rules! table {
    ($(#[$doc:meta])* $fn:ident -> $table:ident { $($field:ident: $value:expr,)* }) => {
        $(#[$doc])*
        pub const fn $fn<P: Exported>() -> $table {
            $table {
                name: P::NAME.as_ptr(),
                devices: Some(devices::<P>),
                get_properties: Some(get::<P, _>),
                reg_mr_dma_buf: Some(reg_mr_dma_buf::<P>),
                dereg_mr: Some(dereg_mr::<P>),
                iflush: Some(iflush::<P>),
                test: Some(test::<P>),
                close_send: Some(close_send::<P>),
                close_recv: Some(close_recv::<P>),
                close_listen: Some(close_listen::<P>),
                $($field: $value,)*
            }
        }
    };
}

const fn merge4<P: Exported>() -> Option<MakeVDevice<VDevice4>> {
    if P::MERGES { Some(make_vdevice4::<P>) } else { None }
}

const fn merge8<P: Exported>() -> Option<MakeVDevice<VDevice8>> {
    if P::MERGES { Some(make_vdevice8::<P>) } else { None }
}

table! {
    /// `ncclNetPlugin_v6`.
    v6 -> NetV6 {
        init: Some(init_v6::<P, 6>), listen: Some(listen_v6::<P>), connect: Some(connect_v6::<P>),
        accept: Some(accept_v6::<P>), reg_mr: Some(reg_mr_v6::<P>), isend: Some(isend_v6::<P>),
        irecv: Some(irecv_v6::<P>),
    }
}
table! {
    /// `ncclNetPlugin_v7`.
    v7 -> NetV7 {
        init: Some(init_v6::<P, 7>), listen: Some(listen_v6::<P>), connect: Some(connect_v7::<P>),
        accept: Some(accept_v7::<P>), reg_mr: Some(reg_mr_v6::<P>), isend: Some(isend_v6::<P>),
        irecv: Some(irecv_v6::<P>), get_device_mr: Some(get_device_mr::<P>), irecv_consumed: Some(irecv_consumed::<P>),
    }
}
table! {
    /// `ncclNetPlugin_v8`.
    v8 -> NetV8 {
        init: Some(init_v6::<P, 8>), listen: Some(listen_v6::<P>), connect: Some(connect_v7::<P>),
        accept: Some(accept_v7::<P>), reg_mr: Some(reg_mr_v8::<P>), isend: Some(isend_v6::<P>),
        irecv: Some(irecv_v6::<P>), get_device_mr: Some(get_device_mr::<P>), irecv_consumed: Some(irecv_consumed::<P>),
    }
}
table! {
    /// `ncclNetPlugin_v9`.
    v9 -> NetV9 {
        init: Some(init_v6::<P, 9>), listen: Some(listen_v6::<P>), connect: Some(connect_v7::<P>),
        accept: Some(accept_v7::<P>), reg_mr: Some(reg_mr_v8::<P>), isend: Some(isend_v9::<P>),
        irecv: Some(irecv_v9::<P>), get_device_mr: Some(get_device_mr::<P>), irecv_consumed: Some(irecv_consumed::<P>), make_vdevice: merge4::<P>(),
    }
}
table! {
    /// `ncclNetPlugin_v10`.
    v10 -> NetV10 {
        init: Some(init_v10::<P>), listen: Some(listen_v6::<P>), connect: Some(connect_v10::<P>),
        accept: Some(accept_v7::<P>), reg_mr: Some(reg_mr_v8::<P>), isend: Some(isend_v10::<P>),
        irecv: Some(irecv_v10::<P>), get_device_mr: Some(get_device_mr::<P>), irecv_consumed: Some(irecv_consumed::<P>), make_vdevice: merge4::<P>(),
    }
}
table! {
    /// `ncclNetPlugin_v11`.
    v11 -> NetV11 {
        init: Some(init_v11::<P, 11>), listen: Some(listen_v11::<P>), connect: Some(connect_v11::<P>),
        accept: Some(accept_v7::<P>), reg_mr: Some(reg_mr_v8::<P>), isend: Some(isend_v10::<P>),
        irecv: Some(irecv_v10::<P>), get_device_mr: Some(get_device_mr::<P>), irecv_consumed: Some(irecv_consumed::<P>), make_vdevice: merge4::<P>(),
        finalize: Some(finalize::<P>), set_net_attr: Some(set_net_attr::<P>),
    }
}
table! {
    /// `ncclNetPlugin_v12`.
    v12 -> NetV12 {
        init: Some(init_v11::<P, 12>), listen: Some(listen_v11::<P>), connect: Some(connect_v11::<P>),
        accept: Some(accept_v7::<P>), reg_mr: Some(reg_mr_v8::<P>), isend: Some(isend_v10::<P>),
        irecv: Some(irecv_v10::<P>), get_device_mr: Some(get_device_mr::<P>), irecv_consumed: Some(irecv_consumed::<P>), make_vdevice: merge8::<P>(),
        finalize: Some(finalize::<P>), set_net_attr: Some(set_net_attr::<P>),
    }
}
