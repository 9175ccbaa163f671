//! NCCL's part, over any version's table: one safe-looking shape for the tests.

use std::ffi::{c_char, c_int, c_ulong, c_void};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use linkspan_plugin::abi::{Config, DeviceHandle, PropsV12};

use super::mock::*;

pub type Ptr = *mut c_void;

/// What a variable holds before a call writes it.
pub const GARBAGE: Ptr = std::ptr::without_provenance_mut(0xdead_beef_0000_0003);

pub static WARNINGS: AtomicUsize = AtomicUsize::new(0);
pub static LOGS: AtomicUsize = AtomicUsize::new(0);

/// A fixed-arity function under a variadic type: on the System V and AAPCS64 conventions the named arguments of a
/// variadic call travel as those of a plain one.
unsafe extern "C" fn log(
    level: c_int,
    flags: c_ulong,
    file: *const c_char,
    line: c_int,
    fmt: *const c_char,
    text: *const c_char,
) {
    // SAFETY: the logger passes C strings.
    let (file, fmt, text) =
        unsafe { (std::ffi::CStr::from_ptr(file), std::ffi::CStr::from_ptr(fmt), std::ffi::CStr::from_ptr(text)) };
    assert_eq!(fmt, c"%s");
    assert!(file.to_str().unwrap().ends_with(".rs") && line > 0 && flags != 0);
    assert!(!text.is_empty());
    LOGS.fetch_add(1, Relaxed);
    if level == 2 {
        WARNINGS.fetch_add(1, Relaxed);
        assert!(text.to_str().unwrap().contains(": LS08"), "{text:?}");
    }
}

pub fn logger() -> Option<linkspan_plugin::abi::LogFn> {
    let plain: unsafe extern "C" fn(c_int, c_ulong, *const c_char, c_int, *const c_char, *const c_char) = log;
    // SAFETY: see `log`; the crate always passes exactly one argument after the format.
    Some(unsafe { std::mem::transmute::<*const (), linkspan_plugin::abi::LogFn>(plain as *const ()) })
}

/// One version's calls in the newest shape. Every function returns NCCL's result code.
pub struct Host {
    pub version: u32,
    pub ctx: Ptr,
}

// SAFETY: the context's address is only passed on, as NCCL's threads do.
unsafe impl Sync for Host {}

/// Calls a field that all versions have alike.
macro_rules! any {
    ($host:expr, $t:ident => $body:expr) => {
        any!(@match $host.version, $t => $body, 6 ncclNetPlugin_v6, 7 ncclNetPlugin_v7, 8 ncclNetPlugin_v8,
            9 ncclNetPlugin_v9, 10 ncclNetPlugin_v10, 11 ncclNetPlugin_v11, 12 ncclNetPlugin_v12)
    };
    (@match $version:expr, $t:ident => $body:expr, $($v:literal $table:ident),*) => {
        match $version {
            $($v => { let $t = &$table; $body })*
            other => panic!("no version {other} here"),
        }
    };
}

impl Host {
    pub fn new(version: u32) -> Host {
        let mut host = Host { version, ctx: null_mut() };
        assert_eq!(host.init(), 0);
        host
    }

    pub fn init(&mut self) -> c_int {
        let config = Config { traffic_class: 5 };
        // SAFETY: what the interface asks for.
        unsafe {
            match self.version {
                6 => ncclNetPlugin_v6.init.unwrap()(logger()),
                7 => ncclNetPlugin_v7.init.unwrap()(logger()),
                8 => ncclNetPlugin_v8.init.unwrap()(logger()),
                9 => ncclNetPlugin_v9.init.unwrap()(logger()),
                10 => ncclNetPlugin_v10.init.unwrap()(logger(), None),
                11 => ncclNetPlugin_v11.init.unwrap()(&raw mut self.ctx, 42, &raw const config, logger(), None),
                _ => ncclNetPlugin_v12.init.unwrap()(&raw mut self.ctx, 42, &raw const config, logger(), None),
            }
        }
    }

    pub fn finalize(&mut self) -> c_int {
        let ctx = std::mem::replace(&mut self.ctx, null_mut());
        // SAFETY: what the interface asks for.
        unsafe {
            match self.version {
                11 => ncclNetPlugin_v11.finalize.unwrap()(ctx),
                12 => ncclNetPlugin_v12.finalize.unwrap()(ctx),
                _ => 0,
            }
        }
    }

    pub fn devices(&self) -> c_int {
        let mut n = -7;
        // SAFETY: as above.
        let rc = any!(self, t => unsafe { t.devices.unwrap()(&raw mut n) });
        assert_eq!(rc, 0);
        n
    }

    /// Name, guid, pointer support, speed, maxComms, maxRecvs.
    pub fn properties(&self, dev: c_int) -> Result<(String, u64, c_int, c_int, c_int, c_int), c_int> {
        any!(self, t => {
            let mut props = std::mem::MaybeUninit::zeroed();
            // SAFETY: as above.
            let rc = unsafe { t.get_properties.unwrap()(dev, props.as_mut_ptr()) };
            if rc != 0 { return Err(rc); }
            // SAFETY: written, and zero is a value of every field.
            let p = unsafe { props.assume_init() };
            // SAFETY: a C string of the plugin.
            let name = unsafe { std::ffi::CStr::from_ptr(p.name) }.to_str().unwrap().to_owned();
            Ok((name, p.guid, p.ptr_support, p.speed, p.max_comms, p.max_recvs))
        })
    }

    pub fn properties_v12(&self, dev: c_int) -> PropsV12 {
        let mut props = std::mem::MaybeUninit::<PropsV12>::zeroed();
        // SAFETY: as above.
        let rc = unsafe { ncclNetPlugin_v12.get_properties.unwrap()(dev, props.as_mut_ptr()) };
        assert_eq!(rc, 0);
        // SAFETY: as above.
        unsafe { props.assume_init() }
    }

    /// Device type and version, since version 7.
    pub fn device_type(&self, dev: c_int) -> (c_int, c_int) {
        macro_rules! told {
            ($table:ident) => {{
                let mut props = std::mem::MaybeUninit::zeroed();
                // SAFETY: as above.
                assert_eq!(unsafe { $table.get_properties.unwrap()(dev, props.as_mut_ptr()) }, 0);
                // SAFETY: written, and zero is a value of every field.
                let p = unsafe { props.assume_init() };
                (p.device_type, p.device_version)
            }};
        }
        match self.version {
            7 => told!(ncclNetPlugin_v7),
            8 => told!(ncclNetPlugin_v8),
            9 => told!(ncclNetPlugin_v9),
            10 => told!(ncclNetPlugin_v10),
            11 => told!(ncclNetPlugin_v11),
            _ => told!(ncclNetPlugin_v12),
        }
    }

    pub fn listen(&self, dev: c_int, handle: &mut [u8; 128]) -> Result<Ptr, c_int> {
        let (handle, mut comm) = (handle.as_mut_ptr().cast(), GARBAGE);
        let out = &raw mut comm;
        // SAFETY: as above.
        let rc = unsafe {
            match self.version {
                6 => ncclNetPlugin_v6.listen.unwrap()(dev, handle, out),
                7 => ncclNetPlugin_v7.listen.unwrap()(dev, handle, out),
                8 => ncclNetPlugin_v8.listen.unwrap()(dev, handle, out),
                9 => ncclNetPlugin_v9.listen.unwrap()(dev, handle, out),
                10 => ncclNetPlugin_v10.listen.unwrap()(dev, handle, out),
                11 => ncclNetPlugin_v11.listen.unwrap()(self.ctx, dev, handle, out),
                _ => ncclNetPlugin_v12.listen.unwrap()(self.ctx, dev, handle, out),
            }
        };
        if rc == 0 { Ok(comm) } else { Err(rc) }
    }

    pub fn connect(&self, dev: c_int, handle: &mut [u8; 128]) -> Result<Ptr, c_int> {
        let (handle, mut comm): (Ptr, Ptr) = (handle.as_mut_ptr().cast(), GARBAGE);
        let mut device: *mut DeviceHandle = std::ptr::without_provenance_mut(8);
        let (out, dh) = (&raw mut comm, &raw mut device);
        let config = Config { traffic_class: 6 };
        // SAFETY: as above.
        let rc = unsafe {
            match self.version {
                6 => ncclNetPlugin_v6.connect.unwrap()(dev, handle, out),
                7 => ncclNetPlugin_v7.connect.unwrap()(dev, handle, out, dh),
                8 => ncclNetPlugin_v8.connect.unwrap()(dev, handle, out, dh),
                9 => ncclNetPlugin_v9.connect.unwrap()(dev, handle, out, null_mut()),
                10 => ncclNetPlugin_v10.connect.unwrap()(dev, &raw const config, handle, out, dh),
                11 => ncclNetPlugin_v11.connect.unwrap()(self.ctx, dev, handle, out, null_mut()),
                _ => ncclNetPlugin_v12.connect.unwrap()(self.ctx, dev, handle, out, dh),
            }
        };
        if matches!(self.version, 7 | 8 | 10 | 12) {
            assert!(device.is_null());
        }
        if rc == 0 { Ok(comm) } else { Err(rc) }
    }

    pub fn accept(&self, listen: Ptr) -> Result<Ptr, c_int> {
        let mut comm = GARBAGE;
        let out = &raw mut comm;
        // SAFETY: as above.
        let rc = unsafe {
            match self.version {
                6 => ncclNetPlugin_v6.accept.unwrap()(listen, out),
                7 => ncclNetPlugin_v7.accept.unwrap()(listen, out, null_mut()),
                8 => ncclNetPlugin_v8.accept.unwrap()(listen, out, null_mut()),
                9 => ncclNetPlugin_v9.accept.unwrap()(listen, out, null_mut()),
                10 => ncclNetPlugin_v10.accept.unwrap()(listen, out, null_mut()),
                11 => ncclNetPlugin_v11.accept.unwrap()(listen, out, null_mut()),
                _ => ncclNetPlugin_v12.accept.unwrap()(listen, out, null_mut()),
            }
        };
        if rc == 0 { Ok(comm) } else { Err(rc) }
    }

    pub fn reg(&self, comm: Ptr, data: Ptr, size: i64, kind: c_int) -> Result<Ptr, c_int> {
        let mut mr = GARBAGE;
        let out = &raw mut mr;
        // SAFETY: as above.
        let rc = unsafe {
            match self.version {
                6 => ncclNetPlugin_v6.reg_mr.unwrap()(comm, data, size as c_int, kind, out),
                7 => ncclNetPlugin_v7.reg_mr.unwrap()(comm, data, size as c_int, kind, out),
                8 => ncclNetPlugin_v8.reg_mr.unwrap()(comm, data, size as usize, kind, out),
                9 => ncclNetPlugin_v9.reg_mr.unwrap()(comm, data, size as usize, kind, out),
                10 => ncclNetPlugin_v10.reg_mr.unwrap()(comm, data, size as usize, kind, out),
                11 => ncclNetPlugin_v11.reg_mr.unwrap()(comm, data, size as usize, kind, out),
                _ => ncclNetPlugin_v12.reg_mr.unwrap()(comm, data, size as usize, kind, out),
            }
        };
        if rc == 0 { Ok(mr) } else { Err(rc) }
    }

    pub fn reg_dma_buf(&self, comm: Ptr, data: Ptr, fd: c_int) -> Result<Ptr, c_int> {
        let mut mr = GARBAGE;
        // SAFETY: as above.
        let rc = any!(self, t => unsafe { t.reg_mr_dma_buf.unwrap()(comm, data, 64, 2, 0, fd, &raw mut mr) });
        if rc == 0 { Ok(mr) } else { Err(rc) }
    }

    pub fn dereg(&self, comm: Ptr, mr: Ptr) -> c_int {
        // SAFETY: as above.
        any!(self, t => unsafe { t.dereg_mr.unwrap()(comm, mr) })
    }

    pub fn isend(&self, comm: Ptr, data: &mut [u8], tag: c_int, mr: Ptr) -> Result<Ptr, c_int> {
        let len = data.len() as i64;
        self.isend_raw(comm, data.as_mut_ptr().cast(), len, tag, mr)
    }

    pub fn isend_raw(&self, comm: Ptr, data: Ptr, len: i64, tag: c_int, mr: Ptr) -> Result<Ptr, c_int> {
        let mut request = GARBAGE;
        let out = &raw mut request;
        // SAFETY: as above.
        let rc = unsafe {
            match self.version {
                6 => ncclNetPlugin_v6.isend.unwrap()(comm, data, len as c_int, tag, mr, out),
                7 => ncclNetPlugin_v7.isend.unwrap()(comm, data, len as c_int, tag, mr, out),
                8 => ncclNetPlugin_v8.isend.unwrap()(comm, data, len as c_int, tag, mr, out),
                9 => ncclNetPlugin_v9.isend.unwrap()(comm, data, len as usize, tag, mr, out),
                10 => ncclNetPlugin_v10.isend.unwrap()(comm, data, len as usize, tag, mr, GARBAGE, out),
                11 => ncclNetPlugin_v11.isend.unwrap()(comm, data, len as usize, tag, mr, GARBAGE, out),
                _ => ncclNetPlugin_v12.isend.unwrap()(comm, data, len as usize, tag, mr, GARBAGE, out),
            }
        };
        if rc == 0 { Ok(request) } else { Err(rc) }
    }

    /// `before` is what stands in `*request`; `n` may lie.
    pub fn irecv(&self, comm: Ptr, n: c_int, parts: &mut [(&mut [u8], c_int, Ptr)], before: Ptr) -> Result<Ptr, c_int> {
        let mut data: Vec<Ptr> = parts.iter_mut().map(|p| p.0.as_mut_ptr().cast()).collect();
        let mut sizes: Vec<usize> = parts.iter().map(|p| p.0.len()).collect();
        let mut ints: Vec<c_int> = sizes.iter().map(|&s| s as c_int).collect();
        let mut tags: Vec<c_int> = parts.iter().map(|p| p.1).collect();
        let mut mrs: Vec<Ptr> = parts.iter().map(|p| p.2).collect();
        let (d, s, i, t, m) =
            (data.as_mut_ptr(), sizes.as_mut_ptr(), ints.as_mut_ptr(), tags.as_mut_ptr(), mrs.as_mut_ptr());
        let mut request = before;
        let out = &raw mut request;
        // SAFETY: as above.
        let rc = unsafe {
            match self.version {
                6 => ncclNetPlugin_v6.irecv.unwrap()(comm, n, d, i, t, m, out),
                7 => ncclNetPlugin_v7.irecv.unwrap()(comm, n, d, i, t, m, out),
                8 => ncclNetPlugin_v8.irecv.unwrap()(comm, n, d, i, t, m, out),
                9 => ncclNetPlugin_v9.irecv.unwrap()(comm, n, d, s, t, m, out),
                10 => ncclNetPlugin_v10.irecv.unwrap()(comm, n, d, s, t, m, null_mut(), out),
                11 => ncclNetPlugin_v11.irecv.unwrap()(comm, n, d, s, t, m, null_mut(), out),
                _ => ncclNetPlugin_v12.irecv.unwrap()(comm, n, d, s, t, m, null_mut(), out),
            }
        };
        if rc == 0 { Ok(request) } else { Err(rc) }
    }

    pub fn iflush(&self, comm: Ptr, data: &mut [u8]) -> Result<Ptr, c_int> {
        let (mut d, mut s): (Ptr, c_int) = (data.as_mut_ptr().cast(), data.len() as c_int);
        let (d, s) = (&raw mut d, &raw mut s);
        let mut request = GARBAGE;
        let out = &raw mut request;
        // SAFETY: as above.
        let rc = any!(self, t => unsafe { t.iflush.unwrap()(comm, 1, d, s, null_mut(), out) });
        if rc == 0 { Ok(request) } else { Err(rc) }
    }

    /// Done, and the first `n` sizes.
    pub fn test(&self, request: Ptr, n: usize) -> Result<Option<Vec<c_int>>, c_int> {
        let (mut done, mut sizes) = (-1, [-1; 9]);
        let (d, s) = (&raw mut done, sizes.as_mut_ptr());
        // SAFETY: as above.
        let rc = any!(self, t => unsafe { t.test.unwrap()(request, d, s) });
        if rc != 0 {
            return Err(rc);
        }
        assert!(done == 0 || done == 1);
        assert!(sizes[n..].iter().all(|&s| s == -1), "wrote more sizes than parts");
        Ok((done == 1).then(|| sizes[..n].to_vec()))
    }

    /// irecvConsumed, since version 7.
    pub fn consumed(&self, comm: Ptr, request: Ptr) -> c_int {
        // SAFETY: as above.
        unsafe {
            match self.version {
                7 => ncclNetPlugin_v7.irecv_consumed.unwrap()(comm, 1, request),
                8 => ncclNetPlugin_v8.irecv_consumed.unwrap()(comm, 1, request),
                9 => ncclNetPlugin_v9.irecv_consumed.unwrap()(comm, 1, request),
                10 => ncclNetPlugin_v10.irecv_consumed.unwrap()(comm, 1, request),
                11 => ncclNetPlugin_v11.irecv_consumed.unwrap()(comm, 1, request),
                _ => ncclNetPlugin_v12.irecv_consumed.unwrap()(comm, 1, request),
            }
        }
    }

    /// getDeviceMr, of version 12.
    pub fn device_mr(&self, comm: Ptr, mr: Ptr) -> (c_int, Ptr) {
        let mut out = GARBAGE;
        // SAFETY: as above.
        (unsafe { ncclNetPlugin_v12.get_device_mr.unwrap()(comm, mr, &raw mut out) }, out)
    }

    /// accept as NCCL calls it on a device of which its kernels unpack: with a structure of its own that says so.
    pub fn accept_unpack(&self, listen: Ptr, asked: (c_int, c_int)) -> (Ptr, DeviceHandle) {
        let (device_type, version) = asked;
        let mut told = DeviceHandle { device_type, version, handle: GARBAGE, size: 77, needs_proxy_progress: -1 };
        let (mut comm, mut at) = (GARBAGE, &raw mut told);
        let (comm_at, device) = (&raw mut comm, &raw mut at);
        // SAFETY: as above.
        let rc = unsafe {
            match self.version {
                7 => ncclNetPlugin_v7.accept.unwrap()(listen, comm_at, device),
                8 => ncclNetPlugin_v8.accept.unwrap()(listen, comm_at, device),
                9 => ncclNetPlugin_v9.accept.unwrap()(listen, comm_at, device),
                10 => ncclNetPlugin_v10.accept.unwrap()(listen, comm_at, device),
                11 => ncclNetPlugin_v11.accept.unwrap()(listen, comm_at, device),
                _ => ncclNetPlugin_v12.accept.unwrap()(listen, comm_at, device),
            }
        };
        assert_eq!(rc, 0);
        (comm, told)
    }

    /// As [`Host::pair`] with such an accept.
    pub fn pair_unpack(&self) -> ((Ptr, Ptr, Ptr), DeviceHandle) {
        let mut handle = [0xAA; 128];
        let listen = self.listen(1, &mut handle).unwrap();
        let (none, untouched) = self.accept_unpack(listen, (1, 7));
        assert_eq!(
            (none, untouched.size, untouched.needs_proxy_progress),
            (null_mut(), 77, -1),
            "before there is a comm"
        );
        let send = loop {
            let comm = self.connect(0, &mut handle).unwrap();
            if !comm.is_null() {
                break comm;
            }
        };
        let (recv, told) = self.accept_unpack(listen, (1, 7));
        assert!(!recv.is_null());
        ((send, recv, listen), told)
    }

    pub fn close_send(&self, comm: Ptr) -> c_int {
        // SAFETY: as above.
        any!(self, t => unsafe { t.close_send.unwrap()(comm) })
    }

    pub fn close_recv(&self, comm: Ptr) -> c_int {
        // SAFETY: as above.
        any!(self, t => unsafe { t.close_recv.unwrap()(comm) })
    }

    pub fn close_listen(&self, comm: Ptr) -> c_int {
        // SAFETY: as above.
        any!(self, t => unsafe { t.close_listen.unwrap()(comm) })
    }

    /// A connected pair: (send, recv, listen).
    pub fn pair(&self) -> (Ptr, Ptr, Ptr) {
        let mut handle = [0xAA; 128];
        let listen = self.listen(1, &mut handle).unwrap();
        assert_eq!(self.accept(listen), Ok(null_mut()));
        let mut polls = 0;
        let send = loop {
            polls += 1;
            let comm = self.connect(0, &mut handle).unwrap();
            if !comm.is_null() {
                break comm;
            }
        };
        assert_eq!(polls, 5, "connect began anew instead of going on");
        let recv = self.accept(listen).unwrap();
        assert!(!recv.is_null());
        (send, recv, listen)
    }

    pub fn close(&self, (send, recv, listen): (Ptr, Ptr, Ptr)) {
        assert_eq!((self.close_send(send), self.close_recv(recv), self.close_listen(listen)), (0, 0, 0));
    }
}
