//! Queue pairs.

use std::mem::{MaybeUninit, zeroed};
use std::ptr::null_mut;
use std::sync::Arc;

use super::cq::RawCq;
use super::reaper::{Reaper, Remains};
use super::{Context, HwCq, ProtectionDomain};
use crate::{
    Address, Error, InitAttr, PostError, Qp, QpCaps, QpState, RecvWr, RtrAttr, RtsAttr, SendOp, SendWr, Sge, abi,
};

/// Requests handed to the device in one list; longer ones are cut.
const LIST: usize = 64;

/// A queue pair of a real device.
pub struct HwQp {
    context: Arc<Context>,
    /// Kept alive, as the queue: it is made in it.
    pd: Arc<ProtectionDomain>,
    /// Kept alive: the device completes on it.
    cq: Arc<RawCq>,
    reaper: Arc<Reaper>,
    raw: *mut abi::IbvQp,
    caps: QpCaps,
    number: u32,
    port: u8,
    sends: Box<[abi::IbvSendWr; LIST]>,
    recvs: Box<[abi::IbvRecvWr; LIST]>,
    ranges: Box<[Sge; LIST]>,
}

// SAFETY: see `Context`; the arrays are filled before each use and point into this value only.
unsafe impl Send for HwQp {}

impl HwQp {
    pub(super) fn new(pd: Arc<ProtectionDomain>, reaper: Arc<Reaper>, cq: &HwCq, caps: QpCaps) -> Result<HwQp, Error> {
        let context = pd.context.clone();
        let cap = abi::IbvQpCap {
            max_send_wr: caps.send,
            max_recv_wr: caps.recv,
            max_send_sge: caps.sge,
            max_recv_sge: 1,
            max_inline_data: caps.inline,
        };
        let mut attr = abi::IbvQpInitAttr {
            qp_context: null_mut(),
            send_cq: cq.shared.raw,
            recv_cq: cq.shared.raw,
            srq: null_mut(),
            cap,
            qp_type: abi::QPT_RC,
            sq_sig_all: 0,
        };
        // SAFETY: an open protection domain and a live queue on the same context.
        let mut raw = unsafe { (context.library.create_qp)(pd.raw, &mut attr) };
        if raw.is_null() && caps.inline > 0 {
            // Some devices take no inline data at all, or less, and refuse rather than lower it.
            attr.cap = abi::IbvQpCap { max_inline_data: 0, ..cap };
            // SAFETY: as above.
            raw = unsafe { (context.library.create_qp)(pd.raw, &mut attr) };
        }
        if raw.is_null() {
            return Err(context.failed("ibv_create_qp"));
        }
        let caps = QpCaps {
            send: attr.cap.max_send_wr,
            recv: attr.cap.max_recv_wr,
            sge: attr.cap.max_send_sge,
            inline: attr.cap.max_inline_data,
        };
        // SAFETY: a queue pair that was just made; all fields of requests are numbers or pointers that may be null.
        let (number, sends, recvs) = unsafe { ((*raw).qp_num, Box::new(zeroed()), Box::new(zeroed())) };
        let ranges = Box::new([Sge::default(); LIST]);
        Ok(HwQp { context, pd, cq: cq.shared.clone(), reaper, raw, caps, number, port: 1, sends, recvs, ranges })
    }

    fn modify(&mut self, attr: &mut abi::IbvQpAttr, mask: i32) -> Result<(), Error> {
        // SAFETY: a live queue pair and a structure of the library's layout.
        let code = unsafe { (self.context.library.modify_qp)(self.raw, attr, mask) };
        self.context.code("ibv_modify_qp", code)
    }

    fn to(&mut self, state: u32) -> Result<(), Error> {
        let mut attr = blank();
        attr.qp_state = state;
        self.modify(&mut attr, abi::QP_STATE)
    }
}

fn blank() -> abi::IbvQpAttr {
    // SAFETY: all fields are numbers.
    unsafe { zeroed() }
}

fn way(to: Address, port: u8) -> abi::IbvAhAttr {
    let grh = abi::IbvGlobalRoute {
        dgid: abi::IbvGid { raw: [0; 16] },
        flow_label: 0,
        sgid_index: 0,
        hop_limit: 0,
        traffic_class: 0,
    };
    let mut ah = abi::IbvAhAttr { grh, dlid: 0, sl: 0, src_path_bits: 0, static_rate: 0, is_global: 0, port_num: port };
    match to {
        Address::Lid { lid, sl } => {
            ah.dlid = lid;
            ah.sl = sl;
        }
        Address::Gid { gid, index, hops, class, lid } => {
            ah.dlid = lid;
            ah.is_global = 1;
            ah.grh.dgid.raw = gid.0;
            ah.grh.sgid_index = index;
            ah.grh.hop_limit = hops;
            ah.grh.traffic_class = class;
        }
    }
    ah
}

fn fill(wr: &SendWr, to: &mut abi::IbvSendWr) {
    to.wr_id = wr.id;
    to.next = null_mut();
    to.sg_list = wr.sges.as_ptr().cast_mut();
    to.num_sge = wr.ranges().len() as i32;
    to.send_flags =
        [(wr.signalled, abi::SEND_SIGNALED), (wr.solicited, abi::SEND_SOLICITED), (wr.inline, abi::SEND_INLINE)]
            .iter()
            .filter(|f| f.0)
            .fold(0, |all, f| all | f.1);
    let (opcode, addr, rkey, imm) = match wr.op {
        SendOp::Send => (abi::WR_SEND, 0, 0, 0),
        SendOp::SendImm(imm) => (abi::WR_SEND_WITH_IMM, 0, 0, imm),
        SendOp::Write { addr, rkey } => (abi::WR_RDMA_WRITE, addr, rkey, 0),
        SendOp::WriteImm { addr, rkey, imm } => (abi::WR_RDMA_WRITE_WITH_IMM, addr, rkey, imm),
        SendOp::Read { addr, rkey } => (abi::WR_RDMA_READ, addr, rkey, 0),
    };
    to.opcode = opcode;
    to.wr.remote_addr = addr;
    to.wr.rkey = rkey;
    to.imm_data = imm.to_be();
}

impl Qp for HwQp {
    fn number(&self) -> u32 {
        self.number
    }

    fn caps(&self) -> QpCaps {
        self.caps
    }

    fn state(&self) -> Result<QpState, Error> {
        let (mut attr, mut init) = (blank(), MaybeUninit::<abi::IbvQpInitAttr>::zeroed());
        // SAFETY: a live queue pair and structures of the library's layout.
        let code = unsafe { (self.context.library.query_qp)(self.raw, &mut attr, abi::QP_STATE, init.as_mut_ptr()) };
        self.context.code("ibv_query_qp", code)?;
        Ok(match attr.qp_state {
            abi::QPS_RESET => QpState::Reset,
            abi::QPS_INIT => QpState::Init,
            abi::QPS_RTR => QpState::Rtr,
            abi::QPS_RTS => QpState::Rts,
            _ => QpState::Error,
        })
    }

    fn init(&mut self, init: &InitAttr) -> Result<(), Error> {
        let mut attr = blank();
        attr.qp_state = abi::QPS_INIT;
        attr.pkey_index = init.pkey_index;
        attr.port_num = init.port;
        attr.qp_access_flags = init.access.0 & !crate::Access::RELAXED.0;
        self.port = init.port;
        self.modify(&mut attr, abi::QP_STATE | abi::QP_PKEY_INDEX | abi::QP_PORT | abi::QP_ACCESS_FLAGS)
    }

    fn ready_to_receive(&mut self, rtr: &RtrAttr) -> Result<(), Error> {
        let mut attr = blank();
        attr.qp_state = abi::QPS_RTR;
        attr.path_mtu = rtr.mtu as u32;
        attr.dest_qp_num = rtr.qpn;
        attr.rq_psn = rtr.psn;
        attr.max_dest_rd_atomic = rtr.rd_atomic;
        attr.min_rnr_timer = rtr.min_rnr;
        attr.ah_attr = way(rtr.to, rtr.port);
        let mask = abi::QP_STATE
            | abi::QP_AV
            | abi::QP_PATH_MTU
            | abi::QP_DEST_QPN
            | abi::QP_RQ_PSN
            | abi::QP_MAX_DEST_RD_ATOMIC
            | abi::QP_MIN_RNR_TIMER;
        self.modify(&mut attr, mask)
    }

    fn ready_to_send(&mut self, rts: &RtsAttr) -> Result<(), Error> {
        let mut attr = blank();
        attr.qp_state = abi::QPS_RTS;
        attr.sq_psn = rts.psn;
        attr.timeout = rts.timeout;
        attr.retry_cnt = rts.retry;
        attr.rnr_retry = rts.rnr_retry;
        attr.max_rd_atomic = rts.rd_atomic;
        let mask = abi::QP_STATE
            | abi::QP_SQ_PSN
            | abi::QP_TIMEOUT
            | abi::QP_RETRY_CNT
            | abi::QP_RNR_RETRY
            | abi::QP_MAX_QP_RD_ATOMIC;
        self.modify(&mut attr, mask)
    }

    fn fail(&mut self) -> Result<(), Error> {
        self.to(abi::QPS_ERR)
    }

    fn reset(&mut self) -> Result<(), Error> {
        self.to(abi::QPS_RESET)
    }

    fn post_recv(&mut self, list: &[RecvWr]) -> Result<(), PostError> {
        let mut taken = 0;
        for part in list.chunks(LIST) {
            let base = self.recvs.as_mut_ptr();
            for (i, wr) in part.iter().enumerate() {
                self.ranges[i] = wr.range.unwrap_or_default();
                self.recvs[i] = abi::IbvRecvWr {
                    wr_id: wr.id,
                    // SAFETY: inside the array: `i + 1` is below the length of this part.
                    next: if i + 1 < part.len() { unsafe { base.add(i + 1) } } else { null_mut() },
                    sg_list: &mut self.ranges[i],
                    num_sge: i32::from(wr.range.is_some()),
                };
            }
            let mut bad = null_mut();
            // SAFETY: a live queue pair; a list that ends with null and lives through the call; its ranges were made
            // from registered memory, which the device checks by their keys.
            let code = unsafe {
                match (*self.context.raw).ops.post_recv {
                    Some(post) => post(self.raw, base, &mut bad),
                    None => libc::EOPNOTSUPP,
                }
            };
            if code != 0 {
                let at = (0..part.len()).find(|&i| std::ptr::eq(&self.recvs[i], bad)).unwrap_or(0);
                return Err(PostError { taken: taken + at, errno: code.abs() });
            }
            taken += part.len();
        }
        Ok(())
    }

    fn post_send(&mut self, list: &[SendWr]) -> Result<(), PostError> {
        let mut taken = 0;
        for part in list.chunks(LIST) {
            let base = self.sends.as_mut_ptr();
            for (i, wr) in part.iter().enumerate() {
                fill(wr, &mut self.sends[i]);
                // SAFETY: inside the array: `i + 1` is below the length of this part.
                self.sends[i].next = if i + 1 < part.len() { unsafe { base.add(i + 1) } } else { null_mut() };
            }
            let mut bad = null_mut();
            // SAFETY: a live queue pair; a list that ends with null and lives through the call, as do the ranges in
            // `list`. What the device reads and writes it checks by keys; what it copies at once (inline) is mapped
            // by the promise of the `MemSlice` that was registered.
            let code = unsafe {
                match (*self.context.raw).ops.post_send {
                    Some(post) => post(self.raw, base, &mut bad),
                    None => libc::EOPNOTSUPP,
                }
            };
            if code != 0 {
                let at = (0..part.len()).find(|&i| std::ptr::eq(&self.sends[i], bad)).unwrap_or(0);
                return Err(PostError { taken: taken + at, errno: code.abs() });
            }
            taken += part.len();
        }
        Ok(())
    }
}

impl Drop for HwQp {
    fn drop(&mut self) {
        let remains = Remains::new(self.pd.clone(), self.cq.clone(), self.raw);
        // From RESET on the device accesses nothing on its behalf, as after ibv_destroy_qp(3); what refuses it is destroyed
        // before memory may be unmapped.
        match self.reset() {
            Ok(()) => self.reaper.take(remains),
            Err(_) => drop(remains),
        }
    }
}
