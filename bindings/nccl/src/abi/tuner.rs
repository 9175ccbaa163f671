//! The tuner tables, v3 to v6 (v2 has no cost table, so nothing can be forbidden through it).

use std::ffi::{c_char, c_float, c_int, c_void};

use super::LogFn;

/// Protocol number in cost tables: LL128.
pub const PROTO_LL128: usize = 1;
/// Cost of a combination that must not be used.
pub const COST_IGNORE: c_float = -1.0;

/// init, v3 and v4.
pub(crate) type TunerInitV3 =
    unsafe extern "C" fn(ranks: usize, nodes: usize, log: Option<LogFn>, ctx: *mut *mut c_void) -> c_int;
/// init, v5 and v6. `nvl` and `constants` are NCCL's, in and out; linkspan leaves them.
pub(crate) type TunerInitV5 = unsafe extern "C" fn(
    ctx: *mut *mut c_void,
    comm_id: u64,
    ranks: usize,
    nodes: usize,
    log: Option<LogFn>,
    nvl: *mut c_void,
    constants: *mut c_void,
) -> c_int;
/// getCollInfo, v3. `costs` is declared `float**` and is `float[algos][protos]` in one piece.
pub(crate) type TunerCostV3 = unsafe extern "C" fn(
    ctx: *mut c_void,
    coll: c_int,
    bytes: usize,
    pipe_ops: c_int,
    costs: *mut *mut c_float,
    algos: c_int,
    protos: c_int,
    channels: *mut c_int,
) -> c_int;
/// getCollInfo, since v4.
pub(crate) type TunerCostV4 = unsafe extern "C" fn(
    ctx: *mut c_void,
    coll: c_int,
    bytes: usize,
    pipe_ops: c_int,
    costs: *mut *mut c_float,
    algos: c_int,
    protos: c_int,
    registered: c_int,
    channels: *mut c_int,
) -> c_int;
/// destroy (v3, v4), finalize (since v5).
pub(crate) type TunerEnd = unsafe extern "C" fn(ctx: *mut c_void) -> c_int;
/// getChunkSize, since v6; may be null.
pub(crate) type TunerChunk = unsafe extern "C" fn(
    ctx: *mut c_void,
    coll: c_int,
    bytes: usize,
    algo: c_int,
    proto: c_int,
    channels: c_int,
    chunk: *mut usize,
) -> c_int;

macro_rules! tuner {
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

tuner! {
    /// `ncclTunerPlugin_v3`.
    TunerV3 { init: TunerInitV3, get_coll_info: TunerCostV3, destroy: TunerEnd, }
}
tuner! {
    /// `ncclTunerPlugin_v4`.
    TunerV4 { init: TunerInitV3, get_coll_info: TunerCostV4, destroy: TunerEnd, }
}
tuner! {
    /// `ncclTunerPlugin_v5`.
    TunerV5 { init: TunerInitV5, get_coll_info: TunerCostV4, finalize: TunerEnd, }
}
tuner! {
    /// `ncclTunerPlugin_v6`.
    TunerV6 { init: TunerInitV5, get_coll_info: TunerCostV4, finalize: TunerEnd, get_chunk_size: TunerChunk, }
}
