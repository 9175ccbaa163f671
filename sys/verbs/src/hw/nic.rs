//! Devices.

use std::ffi::CStr;
use std::io;
use std::mem::{MaybeUninit, zeroed};
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::sync::Arc;

use linkspan_transport::{Buf, MemSlice};

use super::library::{RegDmabufMr, library};
use super::reaper::Reaper;
use super::{Context, HwCq, HwMr, HwQp, ProtectionDomain};
use crate::{Access, AsyncEvent, Error, Gid, GidEntry, GidKind, Limits, LinkLayer, Mtu, Nic, Port, QpCaps, abi};

/// A device of this machine.
#[derive(Clone)]
pub struct HwNic {
    context: Arc<Context>,
    pd: Arc<ProtectionDomain>,
    reaper: Arc<Reaper>,
}

/// Names of the devices of this machine that libibverbs can drive.
///
/// # Errors
/// [`Error::NoLibrary`] and [`Error::NoFunction`] where libibverbs is missing or too old, [`Error::System`] where the
/// kernel does not answer. No devices at all is an empty list.
pub fn devices() -> Result<Vec<String>, Error> {
    with_list(|list| list.iter().map(|d| d.0.clone()).collect())
}

/// Runs `f` over the device list, which is freed after it.
fn with_list<T>(f: impl FnOnce(&[(String, *mut abi::IbvDevice)]) -> T) -> Result<T, Error> {
    let library = library()?;
    let mut n = 0;
    // SAFETY: `n` lives through the call.
    let list = unsafe { (library.get_device_list)(&mut n) };
    if list.is_null() {
        let why = io::Error::last_os_error();
        // ENOSYS: no kernel support is no device (ibv_get_device_list(3)).
        return match why.raw_os_error() {
            Some(libc::ENOSYS) => Ok(f(&[])),
            _ => Err(Error::system("ibv_get_device_list", "this machine", why)),
        };
    }
    let devices: Vec<(String, *mut abi::IbvDevice)> = (0..usize::try_from(n).unwrap_or(0))
        .map(|i| {
            // SAFETY: the list has `n` devices, each with a zero-terminated name.
            unsafe {
                let device = *list.add(i);
                (CStr::from_ptr((*device).name.as_ptr()).to_string_lossy().into_owned(), device)
            }
        })
        .collect();
    let answer = f(&devices);
    // SAFETY: made by the call above, freed once.
    unsafe { (library.free_device_list)(list) };
    Ok(answer)
}

impl HwNic {
    /// Opens the device of this name.
    ///
    /// # Errors
    /// [`Error::NoLibrary`], [`Error::NoFunction`], [`Error::NoDevice`]; [`Error::System`] where `/dev/infiniband`
    /// cannot be opened.
    pub fn open(name: &str) -> Result<HwNic, Error> {
        let library = library()?;
        let raw = with_list(|list| match list.iter().find(|d| d.0 == name) {
            Some((_, device)) => {
                // SAFETY: a device of the list, which is not freed yet; an opened device outlives the list.
                let raw = unsafe { (library.open_device)(*device) };
                if raw.is_null() {
                    Err(Error::system("ibv_open_device", name, io::Error::last_os_error()))
                } else {
                    Ok(raw)
                }
            }
            None => {
                let have: Vec<&str> = list.iter().map(|d| d.0.as_str()).collect();
                let have = if have.is_empty() { "none".to_owned() } else { have.join(", ") };
                Err(Error::NoDevice { name: name.to_owned(), have })
            }
        })??;
        let context = Arc::new(Context { library, raw, name: name.to_owned() });
        let nic = HwNic { pd: ProtectionDomain::new(context.clone())?, context, reaper: Arc::new(Reaper::new()) };
        // The event descriptor must not block; `event` is asked at any time.
        let fd = nic.event_fd();
        // SAFETY: an open descriptor of ours.
        let flags = unsafe { libc::fcntl(fd, libc::F_GETFL) };
        // SAFETY: as above.
        if flags < 0 || unsafe { libc::fcntl(fd, libc::F_SETFL, flags | libc::O_NONBLOCK) } < 0 {
            return Err(nic.context.failed("fcntl"));
        }
        Ok(nic)
    }

    fn port_attr(&self, port: u8) -> Result<abi::IbvPortAttr, Error> {
        // SAFETY: all fields are numbers; older libraries leave the last ones alone.
        let mut attr: abi::IbvPortAttr = unsafe { zeroed() };
        // SAFETY: an open context and a structure of the library's layout.
        let code = unsafe { (self.context.library.query_port)(self.context.raw, port, &mut attr) };
        self.context.code("ibv_query_port", code)?;
        Ok(attr)
    }

    /// The whole table in one call; `None` where the library or the kernel has no such call.
    fn gid_table(&self, port: u8) -> Option<Vec<GidEntry>> {
        let query = self.context.library.query_gid_table?;
        // SAFETY: all fields are numbers.
        let mut table: Vec<abi::IbvGidEntry> = (0..TABLE_MAX).map(|_| unsafe { zeroed() }).collect();
        // SAFETY: an open context; space for as many entries of the size given.
        let n = unsafe { query(self.context.raw, table.as_mut_ptr(), table.len(), 0, size_of::<abi::IbvGidEntry>()) };
        let entries = table.get(..usize::try_from(n).ok()?)?;
        let of_port = entries.iter().filter(|e| e.port_num == u32::from(port));
        Some(of_port.filter_map(|e| Some(entry(u8::try_from(e.gid_index).ok()?, e))).collect())
    }

    fn gid(&self, port: u8, index: u8, link: LinkLayer) -> Option<GidEntry> {
        let library = self.context.library;
        if let Some(query) = library.query_gid_ex {
            let mut found = MaybeUninit::<abi::IbvGidEntry>::zeroed();
            // SAFETY: an open context and a structure of the size given.
            let code = unsafe {
                query(self.context.raw, port.into(), index.into(), found.as_mut_ptr(), 0, size_of::<abi::IbvGidEntry>())
            };
            if code == 0 {
                // SAFETY: all fields are numbers.
                return Some(entry(index, &unsafe { found.assume_init() }));
            }
            if code != libc::EOPNOTSUPP && code.abs() != libc::EOPNOTSUPP {
                return None; // ENODATA: an empty entry
            }
        }
        let mut gid = abi::IbvGid { raw: [0; 16] };
        // SAFETY: an open context and a structure of the library's layout.
        let code = unsafe { (library.query_gid)(self.context.raw, port, index.into(), &mut gid) };
        let gid = Gid(gid.raw);
        (code == 0 && !gid.is_zero()).then(|| {
            let (kind, ifindex) = from_sysfs(&self.context.name, port, index, link);
            GidEntry { index, gid, kind, ifindex }
        })
    }
}

/// Most entries taken of the tables of all ports together: those in use, of which a port has one for each address.
const TABLE_MAX: usize = 1024;

fn entry(index: u8, entry: &abi::IbvGidEntry) -> GidEntry {
    let kind = match entry.gid_type {
        abi::GID_TYPE_IB => GidKind::Ib,
        abi::GID_TYPE_ROCE_V1 => GidKind::RoceV1,
        _ => GidKind::RoceV2,
    };
    GidEntry { index, gid: Gid(entry.gid.raw), kind, ifindex: entry.ndev_ifindex }
}

/// What the library is too old to say: `gid_attrs` of the port in sysfs.
fn from_sysfs(device: &str, port: u8, index: u8, link: LinkLayer) -> (GidKind, u32) {
    let base = format!("/sys/class/infiniband/{device}/ports/{port}/gid_attrs");
    let read = |what: &str| std::fs::read_to_string(format!("{base}/{what}/{index}")).unwrap_or_default();
    let kind = match (link, read("types").trim()) {
        (LinkLayer::InfiniBand, _) => GidKind::Ib,
        (_, "RoCE v2") => GidKind::RoceV2,
        _ => GidKind::RoceV1,
    };
    let netdev = read("ndevs");
    let index = std::fs::read_to_string(format!("/sys/class/net/{}/ifindex", netdev.trim())).unwrap_or_default();
    (kind, index.trim().parse().unwrap_or(0))
}

/// Bytes per second of a port: lanes (`active_width`, specification 14.2.5.6) times the rate of a lane after encoding
/// (`active_speed`; Mb/s, as rdma-core prints them).
fn speed(width: u8, speed: u8) -> u64 {
    let lanes = match width {
        1 => 1,
        2 => 4,
        4 => 8,
        8 => 12,
        16 => 2,
        _ => 0,
    };
    let mbits = match speed {
        1 => 2_000,
        2 => 4_000,
        4 => 8_000,
        8 => 10_000,
        16 => 14_062,
        32 => 25_000,
        64 => 50_000,
        128 => 100_000,
        _ => 0,
    };
    lanes * mbits * 1_000_000 / 8
}

fn number(n: i32) -> u32 {
    u32::try_from(n).unwrap_or(0)
}

impl HwNic {
    fn no_dmabuf(&self, why: &'static str) -> Error {
        Error::Unsupported { what: "dma-buf registration", device: self.context.name.clone(), why }
    }

    fn dmabuf_call(&self) -> Result<RegDmabufMr, Error> {
        let call = self.context.library.reg_dmabuf_mr;
        call.ok_or_else(|| self.no_dmabuf("libibverbs is older than interface version 1.12 (rdma-core 34)"))
    }

    fn dmabuf_refusal(&self, error: io::Error) -> Error {
        match error.raw_os_error() {
            Some(libc::EOPNOTSUPP | libc::EPROTONOSUPPORT | libc::ENOTTY) => {
                self.no_dmabuf("its kernel driver does not take dma-bufs (Linux 5.12 or newer and a driver that does)")
            }
            _ => Error::system("ibv_reg_dmabuf_mr", &self.context.name, error),
        }
    }
}

// SAFETY: a region reaches its memory no longer than it lives.
unsafe impl Nic for HwNic {
    type Mr = HwMr;
    type Cq = HwCq;
    type Qp = HwQp;

    fn name(&self) -> &str {
        &self.context.name
    }

    fn isolated(&self) -> Result<HwNic, Error> {
        Ok(HwNic { pd: ProtectionDomain::new(self.context.clone())?, ..self.clone() })
    }

    fn limits(&self) -> Result<Limits, Error> {
        let mut attr = MaybeUninit::<abi::IbvDeviceAttr>::zeroed();
        // SAFETY: an open context and a structure of the library's layout.
        let code = unsafe { (self.context.library.query_device)(self.context.raw, attr.as_mut_ptr()) };
        self.context.code("ibv_query_device", code)?;
        // SAFETY: all fields are numbers.
        let attr = unsafe { attr.assume_init() };
        let byte = |n: i32| u8::try_from(n.clamp(0, 255)).unwrap_or(0);
        Ok(Limits {
            qp: number(attr.max_qp),
            qp_wr: number(attr.max_qp_wr),
            sge: number(attr.max_sge),
            cq: number(attr.max_cq),
            cqe: number(attr.max_cqe),
            mr: number(attr.max_mr),
            mr_size: attr.max_mr_size,
            rd_atomic: byte(attr.max_qp_rd_atom),
            init_rd_atomic: byte(attr.max_qp_init_rd_atom),
            ports: attr.phys_port_cnt,
        })
    }

    fn port(&self, port: u8) -> Result<Port, Error> {
        let attr = self.port_attr(port)?;
        let link =
            if attr.link_layer == abi::LINK_LAYER_ETHERNET { LinkLayer::Ethernet } else { LinkLayer::InfiniBand };
        Ok(Port {
            active: attr.state == abi::PORT_ACTIVE,
            link,
            mtu: u8::try_from(attr.active_mtu).ok().and_then(Mtu::from_u8).unwrap_or(Mtu::B1024),
            lid: attr.lid,
            max_message: attr.max_msg_sz,
            speed: speed(attr.active_width, attr.active_speed),
        })
    }

    fn gids(&self, port: u8) -> Result<Vec<GidEntry>, Error> {
        let attr = self.port_attr(port)?;
        if let Some(table) = self.gid_table(port) {
            return Ok(table.into_iter().filter(|e| !e.gid.is_zero()).collect());
        }
        let link = self.port(port)?.link;
        // The address handle has eight bits for the index.
        let n = u8::try_from(attr.gid_tbl_len.clamp(0, 255)).unwrap_or(0);
        Ok((0..n).filter_map(|i| self.gid(port, i, link)).filter(|e| !e.gid.is_zero()).collect())
    }

    fn pkey(&self, port: u8, index: u16) -> Result<u16, Error> {
        let mut key = 0;
        // SAFETY: an open context; `key` lives through the call.
        let code = unsafe { (self.context.library.query_pkey)(self.context.raw, port, index.into(), &mut key) };
        self.context.code("ibv_query_pkey", code)?;
        Ok(u16::from_be(key))
    }

    fn register(&self, mem: MemSlice, access: Access) -> Result<HwMr, Error> {
        let library = self.context.library;
        // SAFETY: the range is mapped by the promise of `MemSlice::new`; the kernel checks and pins its pages. Optional
        // flags are known to reg_mr_iova2 only.
        let raw = unsafe {
            match library.reg_mr_iova2 {
                Some(register) => register(self.pd.raw, mem.as_ptr().cast(), mem.len(), mem.as_ptr() as u64, access.0),
                None => {
                    let access = access.0 & !Access::RELAXED.0;
                    (library.reg_mr)(self.pd.raw, mem.as_ptr().cast(), mem.len(), access as i32)
                }
            }
        };
        if raw.is_null() {
            Err(self.context.failed("ibv_reg_mr"))
        } else {
            Ok(HwMr::new(self.pd.clone(), raw, mem.as_ptr() as u64))
        }
    }

    fn register_dmabuf(
        &self,
        dmabuf: BorrowedFd<'_>,
        offset: u64,
        len: u64,
        iova: u64,
        access: Access,
    ) -> Result<HwMr, Error> {
        let register = self.dmabuf_call()?;
        let refused = |why| self.no_dmabuf(why);
        let len = usize::try_from(len).map_err(|_| refused("the length does not fit"))?;
        let access = (access.0 & !Access::RELAXED.0) as i32;
        // SAFETY: an open protection domain and descriptor; the kernel checks offset and length against the buffer and
        // holds a reference to it.
        let raw = unsafe { register(self.pd.raw, offset, len, iova, dmabuf.as_raw_fd(), access) };
        if !raw.is_null() {
            return Ok(HwMr::new(self.pd.clone(), raw, iova));
        }
        Err(self.dmabuf_refusal(io::Error::last_os_error()))
    }

    fn takes_dmabuf(&self) -> Result<(), Error> {
        let register = self.dmabuf_call()?;
        // SAFETY: an open protection domain; descriptor -1 names no buffer, so nothing can be registered.
        let raw = unsafe { register(self.pd.raw, 0, 0, 0, -1, 0) };
        debug_assert!(raw.is_null());
        let error = io::Error::last_os_error();
        // Who does not take dma-bufs says so before looking at the descriptor.
        match self.dmabuf_refusal(error) {
            refused @ Error::Unsupported { .. } => Err(refused),
            _ => Ok(()),
        }
    }

    fn cq(&self, depth: u32) -> Result<HwCq, Error> {
        HwCq::new(self.context.clone(), depth)
    }

    fn qp(&self, cq: &HwCq, caps: QpCaps) -> Result<HwQp, Error> {
        HwQp::new(self.pd.clone(), self.reaper.clone(), cq, caps)
    }

    fn event(&self) -> Result<Option<AsyncEvent>, Error> {
        let mut event = MaybeUninit::<abi::IbvAsyncEvent>::zeroed();
        // SAFETY: an open context whose event descriptor does not block, and a structure of the library's layout.
        if unsafe { (self.context.library.get_async_event)(self.context.raw, event.as_mut_ptr()) } != 0 {
            let error = io::Error::last_os_error();
            let none = error.kind() == io::ErrorKind::WouldBlock;
            return if none { Ok(None) } else { Err(Error::system("ibv_get_async_event", &self.context.name, error)) };
        }
        // SAFETY: filled by the call.
        let mut event = unsafe { event.assume_init() };
        let port = event.element as usize as u8;
        let kind = event.event_type;
        let told = match kind {
            0 => AsyncEvent::CqError,
            // SAFETY: for these the element is a queue pair, which is not freed before the event is acknowledged
            // (ibv_get_async_event(3)).
            1..=3 => AsyncEvent::QpError(unsafe { (*event.element.cast::<abi::IbvQp>()).qp_num }),
            8 => AsyncEvent::DeviceGone,
            9 => AsyncEvent::PortUp(port),
            10 => AsyncEvent::PortDown(port),
            11..=13 | 17 | 18 => AsyncEvent::Addresses(port),
            other => AsyncEvent::Other(other as u32),
        };
        // SAFETY: an event of the call above, acknowledged once.
        unsafe { (self.context.library.ack_async_event)(&mut event) };
        Ok(Some(told))
    }

    fn event_fd(&self) -> RawFd {
        // SAFETY: an open context.
        unsafe { (*self.context.raw).async_fd }
    }
}
