//! Started operations.

use std::ffi::c_void;

use super::objects::{OPS, id};
use crate::op::Started;
use crate::raw::{self, Out};
use crate::status::border;
use crate::types::*;

/// Asks without waiting: `done` becomes 0 or 1. Once it is 1 the status is that of the operation and `value` what its blocking
/// twin gives (0 after an error), however often it is asked. `value` may be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn linkspan_op_test(op: *mut linkspan_op, done: *mut u32, value: *mut u64) -> i32 {
    let mut report = None;
    let status = border(|| {
        // SAFETY: the caller's promise, see the module.
        let (done, value) = unsafe { (Out::new(done, "done")?, Out::maybe(value, "value")?) };
        report = OPS.get(id(op))?.test();
        done.set(report.is_some().into());
        value.into_iter().for_each(|value| value.set(known(&report)));
        Ok(())
    });
    told(status, report)
}

/// Waits for the report; this thread drives meanwhile. `value` may be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn linkspan_op_wait(op: *mut linkspan_op, value: *mut u64) -> i32 {
    let mut report = None;
    let status = border(|| {
        // SAFETY: the caller's promise, see the module.
        let value = unsafe { Out::maybe(value, "value")? };
        report = Some(OPS.get(id(op))?.wait());
        value.into_iter().for_each(|value| value.set(known(&report)));
        Ok(())
    });
    told(status, report)
}

type Report = Option<Result<u64, crate::status::Report>>;

fn known(report: &Report) -> u64 {
    report.as_ref().and_then(|r| r.as_ref().ok()).copied().unwrap_or(0)
}

fn told(status: i32, report: Report) -> i32 {
    match report {
        Some(Err(report)) if status == LINKSPAN_OK => report.tell(),
        _ => status,
    }
}

/// Calls `call` once, with status and value of the operation, when it has reported: at once where it has, else from the thread
/// that finds out, which may be the engine's. linkspan_last_error of that thread has the words. It is called with
/// LINKSPAN_ABORTED where the operation is freed before. LINKSPAN_OP_TAKEN where another thread waits for the operation or it
/// has a call already.
///
/// Threads: the call must not throw nor wait; it may use linkspan, but nothing that waits or closes. A linkspan_wait_for_write with timeout 0
/// does not wait.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn linkspan_op_then(op: *mut linkspan_op, call: linkspan_done, arg: *mut c_void) -> i32 {
    border(|| {
        // SAFETY: the caller's promise, see the module.
        let call = unsafe { raw::done(call, arg)? };
        OPS.get(id(op))?.then(Box::new(move |report| match report {
            Ok(value) => call(LINKSPAN_OK, value),
            Err(report) => call(report.tell(), 0),
        }))
    })
}

/// Ends an operation. One that is under way is cancelled: afterwards nothing of it reads or writes local memory any more.
///
/// Threads: one that another thread waits for goes on for that thread. Other calls that have begun find it LINKSPAN_ABORTED.
#[unsafe(no_mangle)]
pub extern "C" fn linkspan_op_free(op: *mut linkspan_op) -> i32 {
    border(|| OPS.remove(id(op)).map(Started::free))
}
