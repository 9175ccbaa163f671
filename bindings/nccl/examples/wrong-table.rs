//! A library with the right symbols and nothing behind them, for the tests of the loader: the name leads to a text,
//! every function to that text too.
#![allow(missing_docs, non_upper_case_globals, reason = "the names are NCCL's")]

#[repr(transparent)]
pub struct Words([Option<&'static [u8; 6]>; 22]);

#[unsafe(no_mangle)]
pub static ncclNetPlugin_v12: Words = Words([Some(b"Wrong\0"); 22]);
