//! Ctrl-C, and what else ends a command.

use std::os::fd::OwnedFd;
use std::sync::OnceLock;

use linkspan_perf::Interrupt;
use rustix::pipe::PipeFlags;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;

use crate::exit::Failure;

/// What ends a command: SIGHUP, too, by which a terminal that closes does, unless it is ignored, as nohup(1) has it.
fn ending() -> impl Iterator<Item = i32> {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| u64::from_str_radix(line.strip_prefix("SigIgn:")?.trim(), 16).ok());
    let ignores_hangup = mask.is_some_and(|mask| mask & 1 << (SIGHUP - 1) != 0);
    [SIGINT, SIGTERM].into_iter().chain((!ignores_hangup).then_some(SIGHUP))
}

/// SIGINT, SIGTERM and SIGHUP raise this from here on. The caller must check it: the signals do nothing else any more.
/// A second one does nothing either: timeout(1), among others, sends each twice.
pub(crate) fn interrupt() -> Result<Interrupt, Failure> {
    static RAISED: OnceLock<Interrupt> = OnceLock::new();
    if let Some(raised) = RAISED.get() {
        return Ok(raised.clone());
    }
    let raised = Interrupt::new();
    for signal in ending() {
        flag::register(signal, raised.flag()).map_err(|error| Failure::system("a handler for Ctrl-C", &error))?;
    }
    Ok(RAISED.get_or_init(|| raised).clone())
}

/// Can be read when [`interrupt`] has been raised, for those who wait for nothing but descriptors.
pub(crate) fn descriptor() -> Result<OwnedFd, Failure> {
    let failed = |error| Failure::system("a descriptor for Ctrl-C", &error);
    let (read, write) =
        rustix::pipe::pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK).map_err(|e| failed(e.into()))?;
    for signal in ending() {
        let write = write.try_clone().map_err(failed)?;
        signal_hook::low_level::pipe::register(signal, write).map_err(failed)?;
    }
    Ok(read)
}

/// Ctrl-C at a terminal, and its end, reach every process of a command. The other side of a test ends when its parent does.
pub(crate) fn leave_ctrl_c_to_the_parent() -> Result<(), Failure> {
    [SIGINT, SIGHUP].into_iter().try_for_each(|signal| {
        let registered = flag::register(signal, Interrupt::new().flag());
        registered.map(drop).map_err(|error| Failure::system("a handler for Ctrl-C", &error))
    })
}
