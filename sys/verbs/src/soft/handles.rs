//! What callers hold.

use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::sync::Arc;

use linkspan_transport::{Buf, MemSlice};

use super::net::{STEP, flushed};
use super::pair::{Pair, Posted};
use super::wire::PSN_MASK;
use super::{Notifier, SoftNet};
use crate::{
    Access, Address, AsyncEvent, Completion, Cq, Error, GidEntry, InitAttr, Keys, Limits, MAX_SGE, Mr, Nic, Port,
    PostError, Qp, QpCaps, QpState, RecvWr, RtrAttr, RtsAttr, SendOp, SendWr, What,
};

/// A software NIC.
#[derive(Clone)]
pub struct SoftNic {
    net: SoftNet,
    index: usize,
    name: Arc<str>,
    notifier: Notifier,
    pd: u32,
}

impl SoftNic {
    pub(super) fn new(net: SoftNet, index: usize, name: String, notifier: Notifier) -> SoftNic {
        SoftNic { net, index, name: name.into(), notifier, pd: 0 }
    }

    pub(super) fn index(&self) -> usize {
        self.index
    }

    /// The net it is on.
    pub fn net(&self) -> &SoftNet {
        &self.net
    }

    /// What peers may write at the moment, given the keys: all regions of the device, of whatever protection domain.
    pub fn targets(&self) -> Vec<Keys> {
        self.net.lock().nics[self.index].targets()
    }

    pub(super) fn forge(&self, number: u32, wr: SendWr) -> Result<(), PostError> {
        let caps = self.net.lock().nics[self.index].pairs.get(&number).map(|pair| pair.caps);
        let caps = caps.ok_or(PostError { taken: 0, errno: libc::ENODEV })?;
        SoftQp { nic: self.clone(), number, caps, own: false }.post_send(&[wr])
    }

    fn errno(&self, call: &'static str, code: i32) -> Error {
        Error::errno(call, &self.name, code)
    }

    fn limit(&self, what: &'static str, asked: u64, max: u64) -> Result<(), Error> {
        let device = self.name.to_string();
        if asked > max { Err(Error::Limit { what, asked, max, device }) } else { Ok(()) }
    }

    fn here(&self, call: &'static str) -> Result<(), Error> {
        if self.net.lock().nics[self.index].gone { Err(self.errno(call, libc::ENODEV)) } else { Ok(()) }
    }
}

impl SoftNic {
    fn no_dmabuf(&self) -> Error {
        let device = self.name.to_string();
        Error::Unsupported { what: "dma-buf registration", device, why: "this NIC in software was made without it" }
    }
}

#[allow(unsafe_code)]
// SAFETY: a region reaches its memory no longer than it lives.
unsafe impl Nic for SoftNic {
    type Mr = SoftMr;
    type Cq = SoftCq;
    type Qp = SoftQp;

    fn name(&self) -> &str {
        &self.name
    }

    fn isolated(&self) -> Result<SoftNic, Error> {
        self.here("ibv_alloc_pd")?;
        let mut net = self.net.lock();
        let pds = &mut net.nics[self.index].pds;
        *pds += 1;
        Ok(SoftNic { pd: *pds, ..self.clone() })
    }

    fn limits(&self) -> Result<Limits, Error> {
        self.here("ibv_query_device")?;
        Ok(self.net.lock().nics[self.index].config.limits)
    }

    fn port(&self, port: u8) -> Result<Port, Error> {
        self.here("ibv_query_port")?;
        if port != 1 {
            return Err(self.errno("ibv_query_port", libc::EINVAL));
        }
        let net = self.net.lock();
        let nic = &net.nics[self.index];
        Ok(Port {
            active: nic.active,
            link: nic.config.link,
            mtu: nic.config.mtu,
            lid: nic.config.lid,
            max_message: 1 << 31,
            speed: 0,
        })
    }

    fn gids(&self, port: u8) -> Result<Vec<GidEntry>, Error> {
        self.port(port)?;
        Ok(self.net.lock().nics[self.index].config.gids.clone())
    }

    fn pkey(&self, port: u8, index: u16) -> Result<u16, Error> {
        self.port(port)?;
        let net = self.net.lock();
        let key = net.nics[self.index].config.pkeys.get(usize::from(index)).copied();
        key.ok_or_else(|| self.errno("ibv_query_pkey", libc::EINVAL))
    }

    fn register(&self, mem: MemSlice, access: Access) -> Result<SoftMr, Error> {
        self.here("ibv_reg_mr")?;
        let mut net = self.net.lock();
        let nic = &mut net.nics[self.index];
        self.limit("memory region", mem.len() as u64, nic.config.limits.mr_size)?;
        let locked = || nic.regions.values().map(|region| region.keys.len()).sum::<u64>() + mem.len() as u64;
        let all_locked = nic.config.locked < u64::MAX && locked() > nic.config.locked;
        if nic.regions.len() >= nic.config.limits.mr as usize || all_locked {
            return Err(self.errno("ibv_reg_mr", libc::ENOMEM));
        }
        if !mem.is_host() && !nic.config.peer_memory {
            return Err(self.errno("ibv_reg_mr", libc::EFAULT));
        }
        Ok(SoftMr { nic: self.clone(), keys: nic.register(self.pd, mem, mem.as_ptr() as u64, access) })
    }

    fn register_dmabuf(
        &self,
        dmabuf: BorrowedFd<'_>,
        offset: u64,
        len: u64,
        iova: u64,
        access: Access,
    ) -> Result<SoftMr, Error> {
        self.here("ibv_reg_dmabuf_mr")?;
        let mut net = self.net.lock();
        if !net.nics[self.index].config.dmabuf {
            return Err(self.no_dmabuf());
        }
        let call = "ibv_reg_dmabuf_mr";
        let id = file(dmabuf).map_err(|e| self.errno(call, e.raw_os_error().unwrap_or(0)))?;
        let whole = net.dmabufs.get(&id).copied().ok_or_else(|| self.errno(call, libc::EINVAL))?;
        let mem = whole.sub(offset, len).ok_or_else(|| self.errno(call, libc::EINVAL))?;
        let nic = &mut net.nics[self.index];
        if nic.regions.len() >= nic.config.limits.mr as usize {
            return Err(self.errno(call, libc::ENOMEM));
        }
        Ok(SoftMr { nic: self.clone(), keys: nic.register(self.pd, mem, iova, access) })
    }

    fn takes_dmabuf(&self) -> Result<(), Error> {
        if self.net.lock().nics[self.index].config.dmabuf { Ok(()) } else { Err(self.no_dmabuf()) }
    }

    fn cq(&self, depth: u32) -> Result<SoftCq, Error> {
        self.here("ibv_create_cq")?;
        let mut net = self.net.lock();
        let limits = net.nics[self.index].config.limits;
        self.limit("completion queue", depth.into(), limits.cqe.into())?;
        self.limit("completion queue number", net.nics[self.index].queues.len() as u64 + 1, limits.cq.into())?;
        let (id, notifier) = net.queue(self.index, depth as usize);
        Ok(SoftCq { nic: self.clone(), id, notifier })
    }

    fn qp(&self, cq: &SoftCq, caps: QpCaps) -> Result<SoftQp, Error> {
        self.here("ibv_create_qp")?;
        let mut net = self.net.lock();
        let nic = &mut net.nics[self.index];
        let limits = nic.config.limits;
        self.limit("queue pair number", nic.pairs.len() as u64 + 1, limits.qp.into())?;
        self.limit("send queue", caps.send.into(), limits.qp_wr.into())?;
        self.limit("receive queue", caps.recv.into(), limits.qp_wr.into())?;
        self.limit("scatter list", caps.sge.into(), limits.sge.min(MAX_SGE as u32).into())?;
        let caps = QpCaps { inline: nic.config.inline.min(caps.inline.max(nic.config.inline)), ..caps };
        while nic.pairs.contains_key(&nic.next_qpn) || nic.next_qpn < 2 {
            nic.next_qpn = (nic.next_qpn + 1) & PSN_MASK;
        }
        let number = nic.next_qpn;
        nic.next_qpn = (nic.next_qpn + 1) & PSN_MASK;
        nic.pairs.insert(number, Pair::new(number, cq.id, self.pd, caps));
        Ok(SoftQp { nic: self.clone(), number, caps, own: true })
    }

    fn event(&self) -> Result<Option<AsyncEvent>, Error> {
        let mut net = self.net.lock();
        let event = net.nics[self.index].events.pop_front();
        if net.nics[self.index].events.is_empty() {
            self.notifier.calm();
        }
        Ok(event)
    }

    fn event_fd(&self) -> RawFd {
        self.notifier.0.as_raw_fd()
    }
}

/// Which file a descriptor is of.
pub(super) fn file(fd: BorrowedFd<'_>) -> std::io::Result<(u64, u64)> {
    let about = rustix::fs::fstat(fd)?;
    Ok((about.st_dev, about.st_ino))
}

/// A region of a software NIC.
pub struct SoftMr {
    nic: SoftNic,
    keys: Keys,
}

impl Mr for SoftMr {
    fn keys(&self) -> Keys {
        self.keys
    }
}

impl Drop for SoftMr {
    fn drop(&mut self) {
        self.nic.net.lock().nics[self.nic.index].regions.remove(&self.keys.lkey);
    }
}

/// A completion queue of a software NIC.
pub struct SoftCq {
    nic: SoftNic,
    id: u32,
    notifier: Notifier,
}

#[cfg(test)]
impl SoftCq {
    pub(super) fn notifier(&self) -> &std::os::fd::OwnedFd {
        &self.notifier.0
    }
}

impl Cq for SoftCq {
    fn poll(&mut self, out: &mut [Completion]) -> Result<usize, Error> {
        let mut net = self.nic.net.lock();
        net.run(STEP);
        let queue = net.nics[self.nic.index].queues.get_mut(&self.id);
        let Some(queue) = queue.filter(|q| !q.broken) else {
            return Err(self.nic.errno("ibv_poll_cq", libc::EIO));
        };
        let n = queue.entries.len().min(out.len());
        for (to, completion) in std::iter::zip(out, queue.entries.drain(..n)) {
            *to = completion;
        }
        Ok(n)
    }

    fn arm(&mut self) -> Result<(), Error> {
        let mut net = self.nic.net.lock();
        match net.nics[self.nic.index].queues.get_mut(&self.id) {
            Some(queue) if !queue.broken => queue.armed = true,
            _ => return Err(self.nic.errno("ibv_req_notify_cq", libc::EIO)),
        }
        Ok(())
    }

    fn fd(&self) -> RawFd {
        self.notifier.0.as_raw_fd()
    }

    fn calm(&mut self) {
        self.notifier.calm();
    }
}

impl Drop for SoftCq {
    fn drop(&mut self) {
        self.nic.net.lock().nics[self.nic.index].queues.remove(&self.id);
    }
}

/// A queue pair of a software NIC.
pub struct SoftQp {
    nic: SoftNic,
    number: u32,
    caps: QpCaps,
    /// Whether it ends with this value.
    own: bool,
}

impl SoftQp {
    /// Runs `change` on the queue pair if it is in state `from`.
    fn modify(&mut self, from: QpState, change: impl FnOnce(&mut Pair) -> bool) -> Result<(), Error> {
        let mut net = self.nic.net.lock();
        let device = &mut net.nics[self.nic.index];
        let pair = device.pairs.get_mut(&self.number).filter(|p| p.state == from && !device.gone);
        if pair.is_some_and(change) { Ok(()) } else { Err(self.nic.errno("ibv_modify_qp", libc::EINVAL)) }
    }
}

impl Qp for SoftQp {
    fn number(&self) -> u32 {
        self.number
    }

    fn caps(&self) -> QpCaps {
        self.caps
    }

    fn state(&self) -> Result<QpState, Error> {
        let net = self.nic.net.lock();
        let pair = net.nics[self.nic.index].pairs.get(&self.number);
        pair.map(|p| p.state).ok_or_else(|| self.nic.errno("ibv_query_qp", libc::EINVAL))
    }

    fn init(&mut self, attr: &InitAttr) -> Result<(), Error> {
        let pkey = self.nic.pkey(attr.port, attr.pkey_index)?;
        self.modify(QpState::Reset, |pair| {
            pair.state = QpState::Init;
            pair.pkey = pkey;
            pair.access = attr.access;
            true
        })
    }

    fn ready_to_receive(&mut self, attr: &RtrAttr) -> Result<(), Error> {
        let port = self.nic.port(attr.port)?;
        let own = match attr.to {
            // Own entry to send from must exist, and InfiniBand within a subnet needs no GID.
            Address::Gid { index, .. } => self.nic.gids(attr.port)?.iter().any(|e| e.index == index),
            Address::Lid { .. } => port.link == crate::LinkLayer::InfiniBand,
        };
        let limits = self.nic.limits()?;
        let fits = attr.mtu <= port.mtu && attr.rd_atomic <= limits.rd_atomic && attr.psn <= PSN_MASK;
        self.modify(QpState::Init, |pair| {
            if !own || !fits {
                return false;
            }
            pair.state = QpState::Rtr;
            pair.to = Some(attr.to);
            pair.peer_qpn = attr.qpn;
            pair.peer_psn = attr.psn;
            pair.mtu = attr.mtu;
            pair.min_rnr = attr.min_rnr;
            true
        })
    }

    fn ready_to_send(&mut self, attr: &RtsAttr) -> Result<(), Error> {
        self.modify(QpState::Rtr, |pair| {
            if attr.psn > PSN_MASK || attr.retry > 7 || attr.rnr_retry > 7 || attr.timeout > 31 {
                return false;
            }
            pair.state = QpState::Rts;
            pair.first_psn = attr.psn;
            pair.timeout = attr.timeout;
            (pair.retry, pair.retries) = (attr.retry, attr.retry);
            (pair.rnr_retry, pair.rnrs) = (attr.rnr_retry, attr.rnr_retry);
            pair.reads = attr.rd_atomic;
            true
        })
    }

    fn fail(&mut self) -> Result<(), Error> {
        self.nic.net.lock().fail(self.nic.index, self.number);
        Ok(())
    }

    fn reset(&mut self) -> Result<(), Error> {
        let mut net = self.nic.net.lock();
        if let Some(pair) = net.nics[self.nic.index].pairs.get_mut(&self.number) {
            pair.reset();
        }
        Ok(())
    }

    fn post_recv(&mut self, list: &[RecvWr]) -> Result<(), PostError> {
        let mut net = self.nic.net.lock();
        let device = &mut net.nics[self.nic.index];
        let Some(pair) = device.pairs.get_mut(&self.number).filter(|_| !device.gone) else {
            return Err(PostError { taken: 0, errno: libc::ENODEV });
        };
        if pair.state == QpState::Reset {
            return Err(PostError { taken: 0, errno: libc::EINVAL });
        }
        if pair.state == QpState::Error {
            for wr in list {
                net.complete(self.nic.index, self.number, flushed(wr.id, What::Received, self.number));
            }
            return Ok(());
        }
        let space = (self.caps.recv as usize).saturating_sub(pair.rq.len());
        pair.rq.extend(list.iter().take(space));
        if list.len() > space { Err(PostError { taken: space, errno: libc::ENOMEM }) } else { Ok(()) }
    }

    fn post_send(&mut self, list: &[SendWr]) -> Result<(), PostError> {
        let mut guard = self.nic.net.lock();
        let net = &mut *guard;
        for (taken, wr) in list.iter().enumerate() {
            let device = &mut net.nics[self.nic.index];
            let Some(pair) = device.pairs.get(&self.number).filter(|_| !device.gone) else {
                return Err(PostError { taken, errno: libc::ENODEV });
            };
            if pair.state == QpState::Error {
                net.complete(self.nic.index, self.number, flushed(wr.id, What::Sent, self.number));
                continue;
            }
            let wrong = wr.n as usize > (self.caps.sge as usize).min(MAX_SGE)
                || (wr.inline && (wr.len() > self.caps.inline.into() || matches!(wr.op, SendOp::Read { .. })))
                || wr.len() > 1 << 31;
            let errno = match pair.state {
                QpState::Rts if wrong => libc::EINVAL,
                QpState::Rts if pair.sq.len() >= self.caps.send as usize => libc::ENOMEM,
                QpState::Rts => 0,
                _ => libc::EINVAL,
            };
            let mut bytes = vec![0; if wr.inline { wr.len() as usize } else { 0 }];
            if errno != 0 || (wr.inline && device.gather(self.nic.pd, wr.ranges(), 0, &mut bytes).is_err()) {
                net.wake(self.nic.index, self.number);
                return Err(PostError { taken, errno: if errno == 0 { libc::EFAULT } else { errno } });
            }
            let Some(pair) = device.pairs.get_mut(&self.number) else { continue };
            let packets = wr.len().div_ceil(pair.mtu.bytes() as u64).max(1);
            let inline = wr.inline.then_some(bytes);
            pair.sq.push_back(Posted { wr: *wr, inline, seq: pair.next, packets });
            pair.next += packets;
        }
        net.wake(self.nic.index, self.number);
        Ok(())
    }
}

impl Drop for SoftQp {
    fn drop(&mut self) {
        if self.own {
            self.nic.net.lock().nics[self.nic.index].pairs.remove(&self.number);
        }
    }
}
