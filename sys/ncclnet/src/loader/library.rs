//! The dynamic linker.

use std::ffi::{CString, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr::NonNull;

use super::{LoadError, lossy};

/// A loaded library; never unloaded.
pub(super) struct Library(NonNull<c_void>);

impl Library {
    pub(super) fn open(file: &Path) -> Result<Library, LoadError> {
        let failed = |why: String| LoadError::Load { file: file.display().to_string(), why };
        let path = CString::new(file.as_os_str().as_bytes()).map_err(|error| failed(error.to_string()))?;
        // SAFETY: a zero-terminated path. The library's own constructors run: that is what the caller asks for.
        let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        NonNull::new(handle).map(Library).ok_or_else(|| failed(told()))
    }

    pub(super) fn symbol(&self, name: &str) -> Option<*const c_void> {
        let name = CString::new(name).ok()?;
        // SAFETY: a handle of dlopen that is never closed, and a zero-terminated name.
        let at = unsafe { libc::dlsym(self.0.as_ptr(), name.as_ptr()) };
        (!at.is_null()).then_some(at.cast_const())
    }
}

/// What the dynamic linker says went wrong in the call before, on this thread.
fn told() -> String {
    // SAFETY: dlerror returns null or a text that lives until the next call on this thread.
    unsafe {
        let text = libc::dlerror();
        if text.is_null() { "no reason given".to_owned() } else { lossy(text) }
    }
}
