//! The C interface: `liblinkspan.so` and `linkspan.h`.
//!
//! Three layers. [`calls`] holds the exported functions, each a few lines between a C signature and the Rust API. `raw` is the
//! only place that follows a pointer: what C hands in is checked there and becomes a reference, a slice or a place for one
//! result. Everything else (`table`, `single`, `lease`, `op`, `callback`, `status`) is safe code and forbids the rest.
//!
//! Objects are named by handles. They look like pointers, so that a C compiler tells a transport from a memory, but are numbers
//! that is never dereferenced: a table slot, a generation and a kind. A handle that is null, was closed, belongs to
//! another kind of object or was made up is an error. No call lets a panic out.
#![deny(unsafe_code)]

mod callback;
#[allow(unsafe_code, reason = "exported names, and pointers from C on their way to `raw`")]
pub mod calls;
mod lease;
mod numbers;
mod op;
#[allow(unsafe_code, reason = "the one place that follows pointers from C")]
mod raw;
mod single;
mod status;
mod table;
mod text;
pub mod types;
