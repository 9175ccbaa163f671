//! Memory that is not Rust's alone: copies of bytes that other threads, processes or devices may change meanwhile, and pages
//! that go back to the system.

mod ascending;
mod copy;
pub mod gone;
mod pages;
mod past;

pub use ascending::copy_ascending;
pub use copy::{copy, copy_in, copy_out};
pub use pages::{Pages, page_size};
pub use past::copy_past_caches;
