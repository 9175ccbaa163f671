//! The native half of the Python package `linkspan`: classes over the public Rust API, tensors lent to it, operations that an
//! asyncio loop hears of. The Python half (`python/linkspan`) has the exceptions, the asyncio glue and the type stubs.
//!
//! A thread that holds Python's lock may wait for a transport's lock, never the other way round: whatever waits for the peer
//! has released Python's lock first, and objects of Python that the engine thread lets go of are released later, by PyO3.
#![deny(unsafe_code)]

mod arguments;
mod endpoint;
mod error;
mod lend;
mod listener;
mod log;
mod memory;
mod notifier;
mod op;
mod pages;
mod process;
mod remote;
mod transport;

use pyo3::prelude::*;

/// What `linkspan/__init__.py` takes its classes from.
#[pymodule]
fn _linkspan(module: &Bound<'_, PyModule>) -> PyResult<()> {
    error::build(module.py())?;
    module.add_class::<notifier::Notifier>()?;
    module.add_class::<endpoint::Endpoint>()?;
    module.add_class::<endpoint::Event>()?;
    module.add_class::<listener::Listener>()?;
    module.add_class::<log::LogLines>()?;
    module.add_class::<memory::View>()?;
    module.add_class::<memory::Memory>()?;
    module.add_class::<op::Op>()?;
    module.add_class::<pages::Pages>()?;
    module.add_class::<pages::RemotePages>()?;
    module.add_class::<remote::Exposed>()?;
    module.add_class::<remote::RemoteBuffer>()?;
    module.add_class::<remote::Support>()?;
    module.add_class::<remote::Url>()?;
    module.add_class::<transport::Transport>()?;
    module.add_function(wrap_pyfunction!(arguments::find_host, module)?)?;
    module.add_function(wrap_pyfunction!(process::forked, module)?)?;
    module.add("__version__", env!("CARGO_PKG_VERSION"))
}
