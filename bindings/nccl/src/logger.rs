//! NCCL's logger behind a safe face.

use std::ffi::{CString, c_int, c_ulong};
use std::panic::Location;

use crate::abi::{LOG_INFO, LOG_TRACE, LOG_WARN, LogFn, SUBSYS_ALL, SUBSYS_INIT, SUBSYS_NET};

/// Where messages go. Copies are free; every thread may log at once. Without a function every call does nothing.
///
/// Logging allocates: never on the data path of an operation that succeeds.
#[derive(Clone, Copy, Debug, Default)]
pub struct Logger(Option<LogFn>);

impl Logger {
    /// A logger that says nothing.
    pub const SILENT: Logger = Logger(None);

    /// Wraps the function that NCCL passed to init.
    ///
    /// # Safety
    /// `log` is callable from every thread with a printf format and arguments, as long as this plugin is loaded.
    pub const unsafe fn new(log: Option<LogFn>) -> Logger {
        Logger(log)
    }

    pub(crate) fn raw(self) -> Option<LogFn> {
        self.0
    }

    /// Shown with `NCCL_DEBUG=INFO`; subsystems INIT and NET.
    #[track_caller]
    pub fn info(self, text: &str) {
        self.log(LOG_INFO, SUBSYS_INIT | SUBSYS_NET, text, Location::caller());
    }

    /// Shown with `NCCL_DEBUG=WARN`.
    #[track_caller]
    pub fn warn(self, text: &str) {
        self.log(LOG_WARN, SUBSYS_ALL, text, Location::caller());
    }

    /// Shown with `NCCL_DEBUG=TRACE`.
    #[track_caller]
    pub fn trace(self, text: &str) {
        self.log(LOG_TRACE, SUBSYS_NET, text, Location::caller());
    }

    fn log(self, level: c_int, flags: c_ulong, text: &str, at: &Location<'_>) {
        let file = at.file();
        let file = file.rsplit_once('/').map_or(file, |(_, name)| name);
        self.log_at(level, flags, text, file, at.line());
    }

    /// One message with everything said: level and subsystem numbers of [`crate::abi`], file name and line.
    pub fn log_at(self, level: c_int, flags: c_ulong, text: &str, file: &str, line: u32) {
        let Some(log) = self.0 else { return };
        let (text, file) = (c_string(text), c_string(file));
        // SAFETY: `new` promises a callable function; the format takes exactly one C string, which outlives the call.
        unsafe { log(level, flags, file.as_ptr(), line as c_int, c"%s".as_ptr(), text.as_ptr()) };
    }
}

fn c_string(text: &str) -> CString {
    CString::new(text.replace('\0', "\u{fffd}")).unwrap_or_default()
}
