//! A tuner that forbids LL128 and leaves everything else to NCCL.
//!
//! LL128 trusts that a 128-byte line becomes visible in order; a plugin that cannot promise it says so here. The
//! answer may depend on nothing but the arguments: all ranks of a communicator must come to the same table.

use std::ffi::{CStr, c_float, c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::abi::{
    COST_IGNORE, INTERNAL_ERROR, INVALID_ARGUMENT, LogFn, PROTO_LL128, SUCCESS, TunerV3, TunerV4, TunerV5, TunerV6,
};

/// What decides. Exported by [`crate::export_tuner!`].
pub trait Tuner: 'static {
    /// Name that NCCL logs.
    const NAME: &'static CStr;

    /// Whether LL128 must not be used in a communicator of this many ranks on this many nodes.
    fn forbids_ll128(ranks: usize, nodes: usize) -> bool;
}

/// A context is one of these two, so nothing has to be freed.
const KEEP: *mut c_void = std::ptr::without_provenance_mut(1);
const FORBID: *mut c_void = std::ptr::without_provenance_mut(2);

/// Forbids LL128 in a cost table of `protos` costs per algorithm, unless nothing else is left: where the user asked
/// for LL128 by name, NCCL would have no protocol at all. Returns whether the table was changed.
pub fn forbid_ll128(costs: &mut [c_float], protos: usize) -> bool {
    if protos <= PROTO_LL128 {
        return false;
    }
    let other = costs.iter().enumerate().any(|(i, &cost)| i % protos != PROTO_LL128 && cost >= 0.0);
    if !other {
        return false;
    }
    let ll128 = costs.iter_mut().skip(PROTO_LL128).step_by(protos).filter(|cost| **cost >= 0.0);
    ll128.map(|cost| *cost = COST_IGNORE).count() > 0
}

fn context<T: Tuner>(ranks: usize, nodes: usize, ctx: *mut *mut c_void) -> c_int {
    if ctx.is_null() {
        return INVALID_ARGUMENT;
    }
    let Ok(forbids) = catch_unwind(AssertUnwindSafe(|| T::forbids_ll128(ranks, nodes))) else {
        return INTERNAL_ERROR;
    };
    // SAFETY: not null, and NCCL's variable.
    unsafe { ctx.write(if forbids { FORBID } else { KEEP }) };
    SUCCESS
}

unsafe extern "C" fn init_v3<T: Tuner>(
    ranks: usize,
    nodes: usize,
    _log: Option<LogFn>,
    ctx: *mut *mut c_void,
) -> c_int {
    context::<T>(ranks, nodes, ctx)
}

unsafe extern "C" fn init_v5<T: Tuner>(
    ctx: *mut *mut c_void,
    _comm_id: u64,
    ranks: usize,
    nodes: usize,
    _log: Option<LogFn>,
    _nvl: *mut c_void,
    _constants: *mut c_void,
) -> c_int {
    context::<T>(ranks, nodes, ctx)
}

/// More algorithms or protocols than this in a cost table are not believed (NCCL has 7 and 3).
const BELIEVED: c_int = 64;

unsafe extern "C" fn cost_v4(
    ctx: *mut c_void,
    _coll: c_int,
    _bytes: usize,
    _pipe_ops: c_int,
    costs: *mut *mut c_float,
    algos: c_int,
    protos: c_int,
    _registered: c_int,
    _channels: *mut c_int,
) -> c_int {
    if ctx != FORBID {
        return SUCCESS;
    }
    if costs.is_null() || !(1..=BELIEVED).contains(&algos) || !(1..=BELIEVED).contains(&protos) {
        return INVALID_ARGUMENT;
    }
    let (algos, protos) = (algos as usize, protos as usize);
    // SAFETY: NCCL passes its table of `algos` rows with `protos` costs, in one piece, and waits for the answer.
    let costs = unsafe { std::slice::from_raw_parts_mut(costs.cast::<c_float>(), algos * protos) };
    forbid_ll128(costs, protos);
    SUCCESS
}

unsafe extern "C" fn cost_v3(
    ctx: *mut c_void,
    coll: c_int,
    bytes: usize,
    pipe_ops: c_int,
    costs: *mut *mut c_float,
    algos: c_int,
    protos: c_int,
    channels: *mut c_int,
) -> c_int {
    // SAFETY: NCCL's promise is the same.
    unsafe { cost_v4(ctx, coll, bytes, pipe_ops, costs, algos, protos, 0, channels) }
}

unsafe extern "C" fn end(_ctx: *mut c_void) -> c_int {
    SUCCESS
}

/// `ncclTunerPlugin_v3`.
pub const fn v3<T: Tuner>() -> TunerV3 {
    TunerV3 { name: T::NAME.as_ptr(), init: Some(init_v3::<T>), get_coll_info: Some(cost_v3), destroy: Some(end) }
}

/// `ncclTunerPlugin_v4`.
pub const fn v4<T: Tuner>() -> TunerV4 {
    TunerV4 { name: T::NAME.as_ptr(), init: Some(init_v3::<T>), get_coll_info: Some(cost_v4), destroy: Some(end) }
}

/// `ncclTunerPlugin_v5`.
pub const fn v5<T: Tuner>() -> TunerV5 {
    TunerV5 { name: T::NAME.as_ptr(), init: Some(init_v5::<T>), get_coll_info: Some(cost_v4), finalize: Some(end) }
}

/// `ncclTunerPlugin_v6`.
pub const fn v6<T: Tuner>() -> TunerV6 {
    TunerV6 {
        name: T::NAME.as_ptr(),
        init: Some(init_v5::<T>),
        get_coll_info: Some(cost_v4),
        finalize: Some(end),
        get_chunk_size: None,
    }
}

/// Exports `ncclTunerPlugin_v3` to `ncclTunerPlugin_v6` for a type that implements [`Tuner`]. Once per library.
/// NCCL looks for a tuner in the net plugin's library when it finds none elsewhere.
#[macro_export]
macro_rules! export_tuner {
    ($tuner:ty) => {
        $crate::export_tuner!(@table $tuner, ncclTunerPlugin_v3, TunerV3, v3);
        $crate::export_tuner!(@table $tuner, ncclTunerPlugin_v4, TunerV4, v4);
        $crate::export_tuner!(@table $tuner, ncclTunerPlugin_v5, TunerV5, v5);
        $crate::export_tuner!(@table $tuner, ncclTunerPlugin_v6, TunerV6, v6);
    };
    (@table $tuner:ty, $symbol:ident, $table:ident, $make:ident) => {
        #[doc = concat!("The table `", stringify!($symbol), "` that NCCL and RCCL look up.")]
        #[allow(non_upper_case_globals, reason = "the name is NCCL's")]
        #[unsafe(no_mangle)]
        pub static $symbol: $crate::abi::$table = $crate::tuner::$make::<$tuner>();
    };
}
