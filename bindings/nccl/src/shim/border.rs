//! What every shim does on its way out.

use std::any::Any;
use std::ffi::{c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::fail::Refused;
use crate::{Exported, Fail, Misuse, abi};

/// Runs a call: success, a refusal, or a panic as an internal error. Costs nothing while nothing goes wrong.
#[inline]
pub(super) fn call<P: Exported>(name: &'static str, f: impl FnOnce() -> Result<(), Refused>) -> c_int {
    // The code alone leaves the closure: the whole of a result would go through memory.
    let code = catch_unwind(AssertUnwindSafe(|| match f() {
        Ok(()) => abi::SUCCESS,
        Err(Refused::Plugin(fail)) => fail.code(),
        Err(Refused::Misuse(misuse)) => tell::<P>(name, &misuse),
    }));
    code.unwrap_or_else(|payload| tell::<P>(name, &Misuse::Panic(words(payload))))
}

/// As [`call`], of a call that makes or ends something: not while the library takes leave.
pub(super) fn set_up<P: Exported>(name: &'static str, f: impl FnOnce() -> Result<(), Refused>) -> c_int {
    call::<P>(name, || {
        let _here = P::global().here();
        f()
    })
}

#[cold]
fn tell<P: Exported>(name: &'static str, misuse: &Misuse) -> c_int {
    let code = misuse.fail().code();
    // The logger is NCCL's, but building the text could panic: not across the border.
    let told = catch_unwind(AssertUnwindSafe(|| {
        P::global().logger().warn(&format!("{}: {name}: {misuse}", P::NAME.to_string_lossy()));
    }));
    if let Err(payload) = told {
        std::mem::forget(payload);
        return Fail::Internal.code();
    }
    code
}

#[cold]
fn words(payload: Box<dyn Any + Send>) -> String {
    let text = payload.downcast_ref::<&str>().map(|s| (*s).to_owned());
    let text = text.or_else(|| payload.downcast_ref::<String>().cloned());
    // Dropping a foreign payload may panic again.
    std::mem::forget(payload);
    text.unwrap_or_else(|| "without words".to_owned())
}

/// An out pointer that must be there.
///
/// # Safety
/// `p` is null or valid for a write of a `T`, and no other code uses it during the call.
#[inline]
pub(super) unsafe fn out<T>(p: *mut T, name: &'static str, value: T) -> Result<(), Misuse> {
    if p.is_null() {
        return Err(Misuse::Null(name));
    }
    // SAFETY: by the caller's promise.
    unsafe { p.write(value) };
    Ok(())
}

/// Refuses a null pointer.
#[inline]
pub(super) fn given<T>(p: *const T, name: &'static str) -> Result<(), Misuse> {
    if p.is_null() { Err(Misuse::Null(name)) } else { Ok(()) }
}

/// A size of v6 to v8.
#[inline]
pub(super) fn size(n: c_int) -> Result<usize, Misuse> {
    usize::try_from(n).map_err(|_| Misuse::Size(n))
}

/// A device number.
pub(super) fn device(dev: c_int, count: usize) -> Result<usize, Misuse> {
    usize::try_from(dev).ok().filter(|&d| d < count).ok_or(Misuse::Device(dev, count))
}

/// Number of parts of a receive.
#[inline]
pub(super) fn parts(n: c_int) -> Result<usize, Misuse> {
    usize::try_from(n).ok().filter(|n| (1..=crate::MAX_RECVS).contains(n)).ok_or(Misuse::Count(n))
}

/// One element of an array that may be absent.
///
/// # Safety
/// `array` is null or has more than `i` elements.
#[inline]
pub(super) unsafe fn at(array: *mut *mut c_void, i: usize) -> *mut c_void {
    if array.is_null() {
        return std::ptr::null_mut();
    }
    // SAFETY: by the caller's promise.
    unsafe { array.add(i).read() }
}
