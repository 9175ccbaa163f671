//! What the border costs: nanoseconds per call through the v12 table into a plugin that does nothing.
#![allow(clippy::unwrap_used, missing_docs, reason = "a measurement, not a library")]

use std::ffi::{CStr, c_int, c_void};
use std::hint::black_box;
use std::ptr::null_mut;
use std::time::Instant;

use linkspan_plugin::{
    Connecting, Fail, HANDLE_LEN, Init, ListenComm, Logger, NetPlugin, Opened, OpenedRecv, OpenedSend, Part, Props,
    RecvComm, RecvHints, RegisterRange, SendComm,
};

struct Nothing;
struct Tx(bool);
struct Rx;

// SAFETY: what a test's implementation keeps of memory stays allocated until the process ends.
unsafe impl NetPlugin for Nothing {
    const NAME: &'static CStr = c"nothing";
    type Ctx = ();
    type Listen = Rx;
    type Connecting = Tx;
    type Send = Tx;
    type Recv = Rx;
    type Domain = ();
    type Mr = ();
    fn load(_: Logger) -> Result<Self, Fail> {
        Ok(Nothing)
    }
    fn devices(&self) -> usize {
        1
    }
    fn properties(&self, _: usize) -> Result<Props, Fail> {
        Ok(Props::default())
    }
    fn open(&self, _: Init) -> Result<(), Fail> {
        Ok(())
    }
    fn listen(&self, (): &(), _: usize, _: &mut [u8; HANDLE_LEN]) -> Result<Rx, Fail> {
        Ok(Rx)
    }
    fn connect(&self, (): &(), _: usize, _: Option<u8>, _: &[u8; HANDLE_LEN]) -> Result<Tx, Fail> {
        Ok(Tx(false))
    }
    fn register((): &(), _: RegisterRange<'_>) -> Result<(), Fail> {
        Ok(())
    }
}

impl ListenComm<Nothing> for Rx {
    fn accept(&mut self) -> Result<Option<OpenedRecv<Nothing>>, Fail> {
        Ok(Some(Opened { path: Rx, domain: () }))
    }
}

impl Connecting<Nothing> for Tx {
    fn poll(&mut self) -> Result<Option<OpenedSend<Nothing>>, Fail> {
        Ok(Some(Opened { path: Tx(false), domain: () }))
    }
}

// SAFETY: what a test's implementation keeps of memory stays allocated until the process ends.
unsafe impl SendComm for Tx {
    type Mr = ();
    fn isend(&mut self, _: Part<'_, ()>) -> Result<Option<u64>, Fail> {
        Ok(Some(7))
    }
    fn test(&mut self, _: u64) -> Result<Option<usize>, Fail> {
        self.0 = !self.0;
        Ok(self.0.then_some(8))
    }
    fn revoke(&mut self, (): &()) {}
}

// SAFETY: what a test's implementation keeps of memory stays allocated until the process ends.
unsafe impl RecvComm for Rx {
    type Mr = ();
    fn irecv(&mut self, _: &[Part<'_, ()>], _: RecvHints) -> Result<Option<u64>, Fail> {
        Ok(Some(7))
    }
    fn test(&mut self, _: u64, _: &mut [usize]) -> Result<bool, Fail> {
        Ok(false)
    }
    fn revoke(&mut self, (): &()) {}
}

linkspan_plugin::export_net_plugin!(Nothing);

fn main() {
    let t = &ncclNetPlugin_v12;
    let (mut ctx, mut listen, mut send, mut recv, mut mr, mut request): (
        *mut c_void,
        *mut c_void,
        *mut c_void,
        *mut c_void,
        *mut c_void,
        *mut c_void,
    ) = (null_mut(), null_mut(), null_mut(), null_mut(), null_mut(), null_mut());
    let mut handle = [0u8; 128];
    let mut data = [0u8; 8];
    let at: *mut c_void = data.as_mut_ptr().cast();
    let rounds = 20_000_000u32;
    // SAFETY: what the interface asks for.
    unsafe {
        t.init.unwrap()(&raw mut ctx, 1, std::ptr::null(), None, None);
        t.listen.unwrap()(ctx, 0, handle.as_mut_ptr().cast(), &raw mut listen);
        t.connect.unwrap()(ctx, 0, handle.as_mut_ptr().cast(), &raw mut send, null_mut());
        t.accept.unwrap()(listen, &raw mut recv, null_mut());
        t.reg_mr.unwrap()(recv, at, 8, 1, &raw mut mr);
        let (mut d, mut size, mut tag, mut done, mut got): (_, usize, c_int, c_int, c_int) = (at, 8, 0, 0, 0);
        t.irecv.unwrap()(recv, 1, &raw mut d, &raw mut size, &raw mut tag, &raw mut mr, null_mut(), &raw mut request);
        for _ in 0..3 {
            let start = Instant::now();
            for _ in 0..rounds {
                black_box(black_box(t).test.unwrap()(request, &raw mut done, &raw mut got));
            }
            let idle = start.elapsed();
            let start = Instant::now();
            for _ in 0..rounds {
                let t = black_box(t);
                let mut request = null_mut();
                black_box(t.isend.unwrap()(send, at, 8, 0, null_mut(), null_mut(), &raw mut request));
                black_box(t.test.unwrap()(request, &raw mut done, &raw mut got));
                black_box(t.test.unwrap()(request, &raw mut done, &raw mut got));
            }
            let whole = start.elapsed();
            println!(
                "idle test {:.1} ns; isend with two tests {:.1} ns",
                idle.as_nanos() as f64 / f64::from(rounds),
                whole.as_nanos() as f64 / f64::from(rounds)
            );
        }
        t.finalize.unwrap()(ctx);
    }
}
