//! Ctrl-C.

use std::sync::OnceLock;

use linkspan_perf::Interrupt;
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

/// Ctrl-C at a terminal reaches every process of a command. The other side of a test ends when its parent does.
pub(crate) fn leave_ctrl_c_to_the_parent() -> Result<(), Failure> {
    flag::register(SIGINT, Interrupt::new().flag())
        .map(drop)
        .map_err(|error| Failure::system("a handler for Ctrl-C", &error))
}
