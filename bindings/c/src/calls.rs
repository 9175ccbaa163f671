//! The exported functions.
//!
//! Common to all: the result is LINKSPAN_OK or the number of an LS code, whose text is linkspan_last_error of the same thread.
//! Pointers are null or valid for the call, as `raw` says; whatever can be checked of them is. All functions may be called from
//! any thread; where more is to be said, "Threads:" says it. Timeouts are milliseconds, LINKSPAN_FOREVER for none.
#![allow(clippy::missing_safety_doc, reason = "the promise is the same for all and stands above")]

mod data;
mod endpoint;
mod library;
mod memory;
mod objects;
mod operation;
mod ring;
mod swap;
mod transport;

pub use data::*;
pub use endpoint::*;
pub use library::*;
pub use memory::*;
pub use operation::*;
pub use ring::*;
pub use swap::*;
pub use transport::*;
