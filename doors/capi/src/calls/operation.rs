//! Started operations.

use super::objects::{OPS, id};
use crate::op::Started;
use crate::raw::Out;
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

/// Ends an operation. One that is under way is cancelled: afterwards nothing of it reads or writes local memory any more.
///
/// Threads: one that another thread waits for goes on for that thread.
#[unsafe(no_mangle)]
pub extern "C" fn linkspan_op_free(op: *mut linkspan_op) -> i32 {
    border(|| OPS.remove(id(op)).map(Started::free))
}
