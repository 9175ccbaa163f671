//! The one place that follows pointers from C.
//!
//! Every function here checks what can be checked of a pointer (null, alignment, length); the rest is the promise of
//! the code that calls from C: it points to as many live elements of its type as it says, which no other code changes
//! during the call.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::sync::Arc;

use linkspan::{Gpu, Log, MemSlice, Memory};
use linkspan_fabric::Level;

use crate::status::{CallResult, Refusal};
use crate::types::linkspan_done;

fn checked<T>(p: *const T, name: &'static str) -> CallResult<NonNull<T>> {
    let p = NonNull::new(p.cast_mut()).ok_or(Refusal::Null(name))?;
    if !p.is_aligned() {
        return Err(Refusal::Misaligned { name, address: p.as_ptr() as usize, align: align_of::<T>() });
    }
    Ok(p)
}

/// Has this called in the child of every fork(2) from here on; not in what vfork(2) and posix_spawn(3) make, which only call exec.
pub(crate) fn in_children_call(call: extern "C" fn()) {
    type Handler = Option<extern "C" fn()>;
    unsafe extern "C" {
        fn pthread_atfork(prepare: Handler, parent: Handler, child: Handler) -> c_int;
    }
    // SAFETY: a function of this library, which libc forgets when the library is unloaded. It fails only where there is no memory.
    let _ = unsafe { pthread_atfork(None, None, Some(call)) };
}

/// A place for one result. Checked before the call does anything.
pub(crate) struct Out<T>(NonNull<T>);

impl<T> Out<T> {
    /// # Safety
    /// `p` is null, or may be written as a `T` during this call.
    pub(crate) unsafe fn new(p: *mut T, name: &'static str) -> CallResult<Out<T>> {
        checked(p, name).map(Out)
    }

    /// One that may be absent.
    ///
    /// # Safety
    /// As [`Out::new`].
    pub(crate) unsafe fn maybe(p: *mut T, name: &'static str) -> CallResult<Option<Out<T>>> {
        if p.is_null() {
            return Ok(None);
        }
        // SAFETY: by the caller's promise.
        unsafe { Out::new(p, name) }.map(Some)
    }

    pub(crate) fn set(self, value: T) {
        // SAFETY: by the promise of `new`; the place outlives the call, and this value does not leave it.
        unsafe { self.0.write(value) }
    }
}

/// A place for a list: as many elements as fit.
pub(crate) struct OutList<T> {
    at: NonNull<T>,
    capacity: usize,
    count: Out<usize>,
    name: &'static str,
}

impl<T: Copy> OutList<T> {
    /// # Safety
    /// `count` is null or may be read and written; `list` is null or has space for as many elements as `*count` says.
    pub(crate) unsafe fn new(list: *mut T, count: *mut usize, name: &'static str) -> CallResult<OutList<T>> {
        let place = checked(count, "count")?;
        // SAFETY: not null and aligned; readable by the caller's promise.
        let capacity = if list.is_null() { 0 } else { unsafe { place.read() } };
        let at = if list.is_null() { NonNull::dangling() } else { checked(list, name)? };
        Ok(OutList { at, capacity, count: Out(place), name })
    }

    /// Writes what fits and the true count; says so where it does not fit.
    pub(crate) fn set(self, items: &[T]) -> CallResult {
        for (n, item) in items.iter().take(self.capacity).enumerate() {
            // SAFETY: `n` is below the space that the promise of `new` gives.
            unsafe { self.at.add(n).write(*item) };
        }
        self.count.set(items.len());
        let asked = self.capacity == 0;
        if items.len() > self.capacity && !asked {
            return Err(Refusal::TooSmall { name: self.name, have: self.capacity, need: items.len() });
        }
        Ok(())
    }
}

/// A place for a list that is filled one by one, `capacity` elements at most.
pub(crate) struct Rows<T> {
    at: NonNull<T>,
    capacity: usize,
}

impl<T: Copy> Rows<T> {
    /// # Safety
    /// `list` is null or has space for `capacity` elements.
    pub(crate) unsafe fn new(list: *mut T, capacity: usize, name: &'static str) -> CallResult<Rows<T>> {
        Ok(Rows { at: checked(list, name)?, capacity })
    }

    /// Writes from its beginning until there is no next, or no more space; how many. What fails after some comes again.
    #[inline]
    pub(crate) fn fill(&mut self, mut next: impl FnMut() -> CallResult<Option<T>>) -> CallResult<usize> {
        let mut count = 0;
        while count < self.capacity {
            match next() {
                // SAFETY: `count` is below the space that the promise of `new` gives.
                Ok(Some(item)) => unsafe { self.at.add(count).write(item) },
                Err(error) if count == 0 => return Err(error),
                Ok(None) | Err(_) => break,
            }
            count += 1;
        }
        Ok(count)
    }
}

/// A copy of one value.
///
/// # Safety
/// `p` is null or points to a `T`.
pub(crate) unsafe fn value<T: Copy>(p: *const T, name: &'static str) -> CallResult<T> {
    // SAFETY: not null and aligned; a `T` by the caller's promise.
    Ok(unsafe { checked(p, name)?.read() })
}

/// A copy of one value that may be absent.
///
/// # Safety
/// As [`value`].
pub(crate) unsafe fn maybe<T: Copy>(p: *const T, name: &'static str) -> CallResult<Option<T>> {
    if p.is_null() {
        return Ok(None);
    }
    // SAFETY: by the caller's promise.
    unsafe { value(p, name) }.map(Some)
}

/// A list that is used during the call.
///
/// # Safety
/// `p` is null or points to `n` elements, which live and stay as they are as long as the result is used.
pub(crate) unsafe fn list<'a, T: Copy>(p: *const T, n: usize, name: &'static str) -> CallResult<&'a [T]> {
    if n == 0 {
        return Ok(&[]);
    }
    let p = checked(p, name)?;
    if n.checked_mul(size_of::<T>()).is_none_or(|bytes| bytes > isize::MAX as usize) {
        return Err(Refusal::Value { name, value: n as i128, takes: "no more elements than memory holds" });
    }
    // SAFETY: not null, aligned, not longer than an object can be; live and unchanged by the caller's promise.
    Ok(unsafe { std::slice::from_raw_parts(p.as_ptr(), n) })
}

/// Text with a zero at its end, of less than `most` bytes.
///
/// # Safety
/// `p` is null or points to bytes of which the first zero, or `most`, are readable.
pub(crate) unsafe fn text(p: *const c_char, most: usize, name: &'static str) -> CallResult<String> {
    let p = checked(p.cast::<u8>(), name)?;
    // SAFETY: no byte behind the first zero is read, nor more than `most`.
    let len = (0..most).find(|n| unsafe { p.add(*n).read() } == 0).ok_or(Refusal::Text { name, most })?;
    // SAFETY: these bytes have just been read.
    let bytes = unsafe { std::slice::from_raw_parts(p.as_ptr(), len) };
    std::str::from_utf8(bytes).map(str::to_owned).map_err(|_| Refusal::Text { name, most })
}

/// Space for a text.
pub(crate) struct OutText {
    at: NonNull<u8>,
    capacity: usize,
    name: &'static str,
}

impl OutText {
    /// # Safety
    /// `p` is null or has space for `capacity` bytes.
    pub(crate) unsafe fn new(p: *mut c_char, capacity: usize, name: &'static str) -> CallResult<OutText> {
        Ok(OutText { at: checked(p.cast::<u8>(), name)?, capacity, name })
    }

    /// Writes bytes and a zero behind them, or nothing.
    pub(crate) fn set(self, text: &str) -> CallResult {
        if text.len() >= self.capacity {
            return Err(Refusal::TooSmall { name: self.name, have: self.capacity, need: text.len() + 1 });
        }
        // SAFETY: text and zero fit into the space that the promise of `new` gives; the text is ours.
        unsafe {
            self.at.copy_from_nonoverlapping(NonNull::from(text.as_bytes()).cast(), text.len());
            self.at.add(text.len()).write(0);
        }
        Ok(())
    }
}

/// Memory of the caller: of the host, or of a GPU, which is asked whether it is its own.
///
/// # Safety
/// Unless it is refused, the range stays mapped, readable and (if `writable`) writable until `owner` was dropped.
pub(crate) unsafe fn lend(
    gpu: Option<&Arc<dyn Gpu>>,
    p: *mut c_void,
    len: usize,
    writable: bool,
    owner: crate::lease::Guard,
) -> CallResult<Memory> {
    if len > 0 {
        let p = checked(p.cast::<u8>(), "address")?;
        if len > LONGEST || (p.as_ptr() as usize).checked_add(len).is_none() {
            return Err(Refusal::Value { name: "length", value: len as i128, takes: "no more than there is memory" });
        }
        if let Some(gpu) = gpu {
            linkspan::check_on_gpu(gpu, p.as_ptr() as u64, len)?;
        }
    }
    // SAFETY: by the caller's promise.
    Ok(unsafe { lend_again(gpu, p, len, writable, owner) })
}

/// The same where that was asked before.
///
/// # Safety
/// As [`lend`], which has taken the range.
pub(crate) unsafe fn lend_again(
    gpu: Option<&Arc<dyn Gpu>>,
    p: *mut c_void,
    len: usize,
    writable: bool,
    owner: crate::lease::Guard,
) -> Memory {
    let slice = match gpu {
        _ if len == 0 => MemSlice::NONE,
        // SAFETY: by the caller's promise; `owner` lives as long as anything uses the memory.
        None => unsafe { MemSlice::new(p.cast(), len) },
        // SAFETY: as above.
        Some(gpu) => unsafe { MemSlice::on_device(gpu.place(), p as u64, len) },
    };
    match gpu {
        Some(gpu) => Memory::lend_gpu(gpu, slice, writable, owner),
        None => Memory::lend(slice, writable, owner),
    }
}

/// Memory of the caller that is used beyond the call.
///
/// # Safety
/// The range stays mapped and readable, and writable where it is to be written, until what it is given to has ended.
pub(crate) unsafe fn lasting(p: *mut c_void, len: usize) -> CallResult<MemSlice> {
    let p = checked(p.cast::<u8>(), "address")?;
    if len == 0 || len > LONGEST || (p.as_ptr() as usize).checked_add(len).is_none() {
        let takes = "one byte or more, and no more than there is memory";
        return Err(Refusal::Value { name: "length", value: len as i128, takes });
    }
    // SAFETY: by the caller's promise.
    Ok(unsafe { MemSlice::new(p.as_ptr(), len) })
}

/// Most bytes in one memory: what `MemSlice` holds, more than a machine has.
const LONGEST: usize = (1 << 48) - 1;

/// A descriptor for the length of a call.
///
/// # Safety
/// It stays open until the result is no longer used.
pub(crate) unsafe fn fd<'a>(fd: c_int, name: &'static str) -> CallResult<BorrowedFd<'a>> {
    if fd < 0 {
        return Err(Refusal::Value { name, value: fd.into(), takes: "an open descriptor" });
    }
    // SAFETY: not -1; open by the caller's promise. A number that is not open is refused by the system.
    Ok(unsafe { BorrowedFd::borrow_raw(fd) })
}

/// A log that calls into C.
///
/// # Safety
/// `call` may be called with `arg` from any thread, as long as the process lives.
pub(crate) unsafe fn log(call: unsafe extern "C" fn(u32, *const c_char, *mut c_void), arg: *mut c_void) -> Log {
    let arg = arg.expose_provenance();
    Log::to(move |level, line| {
        let Ok(line) = CString::new(line) else { return };
        let line: &CStr = &line;
        let level = match level {
            Level::Warn => 0,
            Level::Info => 1,
        };
        // SAFETY: by the caller's promise; the text lives during the call.
        unsafe { call(level, line.as_ptr(), std::ptr::with_exposed_provenance_mut(arg)) }
    })
}

/// What calls into C when an operation has reported.
///
/// # Safety
/// `call` is null, or may be called once with `arg` from any thread.
pub(crate) unsafe fn done(call: linkspan_done, arg: *mut c_void) -> CallResult<impl FnOnce(i32, u64) + Send + 'static> {
    let call = call.ok_or(Refusal::Null("call"))?;
    let arg = arg.expose_provenance();
    Ok(move |status: i32, value: u64| {
        // SAFETY: by the caller's promise; an `FnOnce` is called once.
        unsafe { call(status, value, std::ptr::with_exposed_provenance_mut(arg)) }
    })
}
