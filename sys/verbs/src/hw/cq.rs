//! Completion queues.

use std::os::fd::RawFd;
use std::ptr::null_mut;
use std::sync::Arc;

use super::Context;
use crate::{Completion, Cq, Error, Status, What, abi};

/// Completions taken per call of the device.
const BATCH: usize = 16;

/// What queue pairs keep alive.
pub(super) struct RawCq {
    pub(super) context: Arc<Context>,
    channel: *mut abi::IbvCompChannel,
    pub(super) raw: *mut abi::IbvCq,
}

// SAFETY: see `Context`.
unsafe impl Send for RawCq {}
// SAFETY: as above.
unsafe impl Sync for RawCq {}

/// A completion queue of a real device.
pub struct HwCq {
    pub(super) shared: Arc<RawCq>,
    /// Events taken and not acknowledged; acknowledging takes a lock, so it is done by the hundred.
    unacked: u32,
    wcs: Box<[abi::IbvWc; BATCH]>,
}

impl HwCq {
    pub(super) fn new(context: Arc<Context>, depth: u32) -> Result<HwCq, Error> {
        let library = context.library;
        // SAFETY: an open context.
        let channel = unsafe { (library.create_comp_channel)(context.raw) };
        if channel.is_null() {
            return Err(context.failed("ibv_create_comp_channel"));
        }
        let depth = i32::try_from(depth).unwrap_or(i32::MAX);
        // SAFETY: an open context and a channel on it.
        let raw = unsafe { (library.create_cq)(context.raw, depth, null_mut(), channel, 0) };
        if raw.is_null() {
            let error = context.failed("ibv_create_cq");
            // SAFETY: made above, not in use.
            unsafe { (library.destroy_comp_channel)(channel) };
            return Err(error);
        }
        let shared = Arc::new(RawCq { context, channel, raw });
        // SAFETY: an open channel; all fields of a completion are numbers.
        let (fd, wcs) = unsafe { ((*channel).fd, Box::new(std::mem::zeroed())) };
        // SAFETY: an open descriptor of ours.
        let flags = unsafe { libc::fcntl(fd, libc::F_GETFL) };
        // SAFETY: as above.
        if flags < 0 || unsafe { libc::fcntl(fd, libc::F_SETFL, flags | libc::O_NONBLOCK) } < 0 {
            return Err(shared.context.failed("fcntl"));
        }
        Ok(HwCq { shared, unacked: 0, wcs })
    }

    fn ack(&mut self) {
        // SAFETY: so many events of this queue were taken.
        unsafe { (self.shared.context.library.ack_cq_events)(self.shared.raw, self.unacked) };
        self.unacked = 0;
    }
}

pub(super) fn status(n: u32) -> Status {
    match n {
        0 => Status::Success,
        1 => Status::LocalLength,
        4 | 8 => Status::LocalProtection,
        5 => Status::Flushed,
        9 => Status::RemoteInvalid,
        10 => Status::RemoteAccess,
        11 => Status::RemoteOperation,
        12 => Status::RetryExceeded,
        13 => Status::RnrExceeded,
        other => Status::Other(other),
    }
}

fn completion(wc: &abi::IbvWc) -> Completion {
    let what = match wc.opcode {
        abi::WC_RDMA_READ => What::Read,
        abi::WC_RECV => What::Received,
        abi::WC_RECV_RDMA_WITH_IMM => What::Written,
        _ => What::Sent,
    };
    let imm = (wc.wc_flags & abi::WC_WITH_IMM != 0).then(|| u32::from_be(wc.imm_data));
    Completion { id: wc.wr_id, status: status(wc.status), what, bytes: wc.byte_len, imm, qpn: wc.qp_num }
}

impl Cq for HwCq {
    fn poll(&mut self, out: &mut [Completion]) -> Result<usize, Error> {
        let mut done = 0;
        while done < out.len() {
            let want = (out.len() - done).min(BATCH);
            // SAFETY: a live queue; its provider's function, as `ibv_poll_cq` of the header calls it; space for `want`.
            let n = unsafe {
                match (*self.shared.context.raw).ops.poll_cq {
                    Some(poll) => poll(self.shared.raw, want as i32, self.wcs.as_mut_ptr()),
                    None => -libc::EOPNOTSUPP,
                }
            };
            let Ok(n) = usize::try_from(n) else {
                return Err(Error::errno("ibv_poll_cq", &self.shared.context.name, libc::EIO));
            };
            for (to, wc) in std::iter::zip(&mut out[done..], &self.wcs[..n.min(want)]) {
                *to = completion(wc);
            }
            done += n.min(want);
            if n < want {
                break;
            }
        }
        Ok(done)
    }

    fn arm(&mut self) -> Result<(), Error> {
        // SAFETY: a live queue; its provider's function, as `ibv_req_notify_cq` of the header calls it.
        let code = unsafe {
            match (*self.shared.context.raw).ops.req_notify_cq {
                Some(arm) => arm(self.shared.raw, 0),
                None => libc::EOPNOTSUPP,
            }
        };
        self.shared.context.code("ibv_req_notify_cq", code)
    }

    fn fd(&self) -> RawFd {
        // SAFETY: an open channel.
        unsafe { (*self.shared.channel).fd }
    }

    fn calm(&mut self) {
        let (mut cq, mut user) = (null_mut(), null_mut());
        // SAFETY: an open channel that does not block; both pointers live through the call.
        while unsafe { (self.shared.context.library.get_cq_event)(self.shared.channel, &mut cq, &mut user) } == 0 {
            self.unacked += 1;
        }
        if self.unacked >= 128 {
            self.ack();
        }
    }
}

impl Drop for HwCq {
    fn drop(&mut self) {
        // Destroying waits for events that were taken and not acknowledged.
        self.ack();
    }
}

impl Drop for RawCq {
    fn drop(&mut self) {
        // SAFETY: made by this library, freed once; no queue pair uses them, each holds this.
        unsafe {
            (self.context.library.destroy_cq)(self.raw);
            (self.context.library.destroy_comp_channel)(self.channel);
        }
    }
}
