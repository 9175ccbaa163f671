//! The functions behind the tables: from C's shapes to [`crate::NetPlugin`] and back.
//!
//! Each is `unsafe extern "C"` with the promise of NCCL's net interface: pointers are valid for what the interface
//! says about them, objects are those this plugin returned, nothing is closed while another thread uses it, and a
//! data path has one thread at a time. What can be checked cheaply is checked all the same.
#![allow(clippy::missing_safety_doc, reason = "the promise is the same for all of them and stands above")]

mod border;
mod data;
mod export;
mod memory;
mod properties;
mod setup;
mod tables;

pub use export::{Unload, unload};
pub use tables::{v6, v7, v8, v9, v10, v11, v12};
