//! Libraries that are opened at run time, and tables of their functions.

use std::ffi::{CStr, CString, c_void};
use std::ptr::NonNull;

/// A loaded library. Never unloaded, for others in the process may use it too and its threads may run.
#[derive(Debug)]
pub struct Library {
    handle: NonNull<c_void>,
    name: String,
}

// SAFETY: a handle of dlopen, which dlsym takes from any thread.
unsafe impl Send for Library {}
// SAFETY: as above.
unsafe impl Sync for Library {}

impl Library {
    /// Opens a library by its name, which the dynamic linker looks up, or by its path. Its constructors run.
    ///
    /// # Errors
    /// The text of `dlerror(3)`.
    pub fn open(name: &str) -> Result<Library, String> {
        Library::open_with(name, libc::RTLD_NOW | libc::RTLD_LOCAL)
    }

    fn open_with(name: &str, flags: libc::c_int) -> Result<Library, String> {
        let path = CString::new(name).map_err(|e| e.to_string())?;
        // SAFETY: a zero-terminated path. The library's own constructors run: that is what the caller asks for.
        let handle = unsafe { libc::dlopen(path.as_ptr(), flags) };
        NonNull::new(handle).map(|handle| Library { handle, name: name.to_owned() }).ok_or_else(told)
    }

    /// Opens the first of several names that can be.
    ///
    /// # Errors
    /// The texts of `dlerror(3)`, one for each name.
    pub fn open_first(names: &[&str]) -> Result<Library, String> {
        let mut all = Vec::new();
        for name in names {
            match Library::open(name) {
                Ok(library) => return Ok(library),
                Err(why) => all.push(why),
            }
        }
        Err(all.join("; "))
    }

    /// The first of several names that the process has loaded already, else the first that can be opened. For a library of which a process should have
    /// one: it is found by the name that it was built with, wherever it was loaded from.
    ///
    /// # Errors
    /// As [`Library::open_first`].
    pub fn loaded_or_first(names: &[&str]) -> Result<Library, String> {
        let loaded = |name: &&str| Library::open_with(name, libc::RTLD_NOW | libc::RTLD_NOLOAD).ok();
        names.iter().find_map(loaded).map_or_else(|| Library::open_first(names), Ok)
    }

    /// The name it was opened by.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The address of a symbol.
    pub fn symbol(&self, name: &CStr) -> Option<NonNull<c_void>> {
        // SAFETY: a handle of dlopen that is never closed, and a zero-terminated name.
        NonNull::new(unsafe { libc::dlsym(self.handle.as_ptr(), name.as_ptr()) })
    }
}

/// What the dynamic linker says went wrong in the call before, on this thread.
fn told() -> String {
    // SAFETY: dlerror returns null or a text that lives until the next call on this thread.
    unsafe {
        let text = libc::dlerror();
        if text.is_null() { "no reason given".to_owned() } else { CStr::from_ptr(text).to_string_lossy().into_owned() }
    }
}

/// Defines a table of C functions: a struct with a function pointer for each, and `load`, which takes a [`Library`] and
/// answers with the table or the name of the first function that is missing. Those after `optional` may be missing.
///
/// The author of the table promises that each has the type that the library's header gives it.
#[macro_export]
macro_rules! api {
    (
        $(#[$meta:meta])* struct $table:ident;
        $(fn $name:ident($($arg:ty),* $(,)?) -> $ret:ty;)*
        optional;
        $(fn $opt:ident($($oarg:ty),* $(,)?) -> $oret:ty;)*
    ) => {
        $(#[$meta])*
        #[allow(non_snake_case)]
        #[derive(Debug)]
        pub(crate) struct $table {
            $(pub(crate) $name: unsafe extern "C" fn($($arg),*) -> $ret,)*
            $(pub(crate) $opt: Option<unsafe extern "C" fn($($oarg),*) -> $oret>,)*
        }

        impl $table {
            /// Finds every function, or names the first that is missing.
            pub(crate) fn load(library: &$crate::Library) -> Result<$table, &'static str> {
                /// The name as the dynamic linker takes it.
                fn c(name: &'static str) -> &'static std::ffi::CStr {
                    std::ffi::CStr::from_bytes_with_nul(name.as_bytes()).unwrap_or_default()
                }
                Ok($table {
                    $($name: {
                        let at = library.symbol(c(concat!(stringify!($name), "\0"))).ok_or(stringify!($name))?;
                        // SAFETY: the symbol of a library that is never unloaded, with the type of its header.
                        unsafe { std::mem::transmute::<*mut std::ffi::c_void, unsafe extern "C" fn($($arg),*) -> $ret>(at.as_ptr()) }
                    },)*
                    $($opt: library.symbol(c(concat!(stringify!($opt), "\0"))).map(|at| {
                        // SAFETY: as above.
                        unsafe { std::mem::transmute::<*mut std::ffi::c_void, unsafe extern "C" fn($($oarg),*) -> $oret>(at.as_ptr()) }
                    }),)*
                })
            }
        }
    };
}

#[cfg(test)]
mod tests;
