//! Ctrl-C.

use std::os::fd::OwnedFd;
use std::sync::OnceLock;

use linkspan_perf::Interrupt;
use rustix::pipe::PipeFlags;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;

use crate::exit::Failure;

/// SIGINT and SIGTERM raise this from here on. The caller must check it: the signals do nothing else any more.
/// A second one does nothing either: timeout(1), among others, sends each twice.
pub(crate) fn interrupt() -> Result<Interrupt, Failure> {
    static RAISED: OnceLock<Interrupt> = OnceLock::new();
    if let Some(raised) = RAISED.get() {
        return Ok(raised.clone());
    }
    let raised = Interrupt::new();
    for signal in [SIGINT, SIGTERM] {
        flag::register(signal, raised.flag()).map_err(|error| Failure::system("a handler for Ctrl-C", &error))?;
    }
    Ok(RAISED.get_or_init(|| raised).clone())
}

/// Can be read when [`interrupt`] has been raised, for those who wait for nothing but descriptors.
pub(crate) fn descriptor() -> Result<OwnedFd, Failure> {
    let failed = |error| Failure::system("a descriptor for Ctrl-C", &error);
    let (read, write) =
        rustix::pipe::pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK).map_err(|e| failed(e.into()))?;
    for signal in [SIGINT, SIGTERM] {
        let write = write.try_clone().map_err(failed)?;
        signal_hook::low_level::pipe::register(signal, write).map_err(failed)?;
    }
    Ok(read)
}

/// Ctrl-C at a terminal reaches every process of a command. The other side of a test ends when its parent does.
pub(crate) fn leave_ctrl_c_to_the_parent() -> Result<(), Failure> {
    flag::register(SIGINT, Interrupt::new().flag())
        .map(drop)
        .map_err(|error| Failure::system("a handler for Ctrl-C", &error))
}
