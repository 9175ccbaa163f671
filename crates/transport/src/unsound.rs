//! What safe code must not be able to write, as examples that do not compile, each beside one that does.
//!
//! A rail that keeps what it is lent, and looks at it when the connection is gone, is a broken promise and not a safe program:
//!
//! ```compile_fail,E0200
//! #![forbid(unsafe_code)]
//! # use std::sync::{Arc, Mutex};
//! # use linkspan_transport::*;
//! struct Keeper { info: RailInfo, kept: Arc<Mutex<Vec<MemSlice>>>, n: u64 }
//! impl Rail for Keeper {
//!     fn info(&self) -> &RailInfo { &self.info }
//!     fn ctrl(&mut self, _: &Head, body: MemSlice) -> Result<u64, Busy> {
//!         self.kept.lock().unwrap().push(body);
//!         self.n += 1;
//!         Ok(self.n)
//!     }
//!     fn data(&mut self, _: &Head, _: MemSlice) -> Result<u64, Busy> { Err(Busy) }
//!     fn taken(&self) -> u64 { self.n }
//!     fn flush(&mut self) -> Result<Poll, Down> { Ok(Poll::Idle) }
//!     fn poll(&mut self, _: &mut dyn Sink) -> Result<Poll, Down> { Ok(Poll::Idle) }
//!     fn arm(&mut self) -> Option<WaitFd> { None }
//! }
//! ```
//!
//! The same with `unsafe`, so that nothing else is wrong with it:
//!
//! ```
//! # use std::sync::{Arc, Mutex};
//! # use linkspan_transport::*;
//! struct Keeper { info: RailInfo, kept: Arc<Mutex<Vec<MemSlice>>>, n: u64 }
//! // SAFETY: none.
//! unsafe impl Rail for Keeper {
//!     fn info(&self) -> &RailInfo { &self.info }
//!     fn ctrl(&mut self, _: &Head, body: MemSlice) -> Result<u64, Busy> {
//!         self.kept.lock().unwrap().push(body);
//!         self.n += 1;
//!         Ok(self.n)
//!     }
//!     fn data(&mut self, _: &Head, _: MemSlice) -> Result<u64, Busy> { Err(Busy) }
//!     fn taken(&self) -> u64 { self.n }
//!     fn flush(&mut self) -> Result<Poll, Down> { Ok(Poll::Idle) }
//!     fn poll(&mut self, _: &mut dyn Sink) -> Result<Poll, Down> { Ok(Poll::Idle) }
//!     fn arm(&mut self) -> Option<WaitFd> { None }
//! }
//! ```
//!
//! Nor do other traits that are given handles let safe code keep them:
//!
//! ```compile_fail,E0200
//! # use linkspan_transport::*;
//! struct Device(std::sync::Mutex<Vec<MemSlice>>);
//! impl DeviceMemory for Device {
//!     fn write(&self, to: MemSlice, _: &[u8]) -> bool { self.0.lock().unwrap().push(to); true }
//!     fn read(&self, _: MemSlice, _: &mut [u8]) -> bool { true }
//! }
//! ```
//! ```
//! # use linkspan_transport::*;
//! struct Device(std::sync::Mutex<Vec<MemSlice>>);
//! // SAFETY: none.
//! unsafe impl DeviceMemory for Device {
//!     fn write(&self, to: MemSlice, _: &[u8]) -> bool { self.0.lock().unwrap().push(to); true }
//!     fn read(&self, _: MemSlice, _: &mut [u8]) -> bool { true }
//! }
//! ```
//! ```compile_fail,E0200
//! # use linkspan_transport::*;
//! struct Reach(Vec<MemSlice>);
//! impl DeviceReach for Reach {
//!     fn reaches(&mut self, mem: MemSlice, _: bool) -> bool { self.0.push(mem); true }
//! }
//! ```
//! ```
//! # use linkspan_transport::*;
//! struct Reach(Vec<MemSlice>);
//! // SAFETY: none.
//! unsafe impl DeviceReach for Reach {
//!     fn reaches(&mut self, mem: MemSlice, _: bool) -> bool { self.0.push(mem); true }
//! }
//! ```
//!
//! A buffer gives no handle to post, whether or not it is dropped too early, without a promise:
//!
//! ```compile_fail,E0133
//! # use linkspan_transport::*;
//! fn post<R: Rail>(conn: &mut Conn<R>) {
//!     let buf = HostBuf::new(8);
//!     let _ = conn.post_send(1, buf.slice());
//! }
//! ```
//! ```
//! # use linkspan_transport::*;
//! fn post<R: Rail>(conn: &mut Conn<R>) {
//!     let buf = HostBuf::new(8);
//!     // SAFETY: none.
//!     let _ = conn.post_send(1, unsafe { buf.slice() });
//! }
//! ```
