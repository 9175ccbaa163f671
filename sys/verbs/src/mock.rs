//! Any NIC with scripted faults in front of it.

use std::os::fd::{BorrowedFd, RawFd};
use std::sync::{Arc, Mutex, MutexGuard};

use linkspan_transport::MemSlice;

use crate::{
    Access, AsyncEvent, Completion, Cq, Error, GidEntry, InitAttr, Limits, Nic, Port, PostError, Qp, QpCaps, QpState,
    RecvWr, RtrAttr, RtsAttr, SendWr, Status,
};

/// What is to go wrong, and what was counted. Each counter of a fault goes down as it strikes.
#[derive(Debug, Default)]
pub struct Script {
    /// Registrations that fail, and with which error number.
    pub register: Option<(u32, i32)>,
    /// Lists of sends of which only so many are taken, the next times: `(lists, taken, errno)`.
    pub partial: Option<(u32, usize, i32)>,
    /// Lists of receives that fail, and with which error number.
    pub post_recv: Option<(u32, i32)>,
    /// Changes of a queue pair's state that fail, and with which error number.
    pub modify: Option<(u32, i32)>,
    /// Completions that come twice.
    pub twice: u32,
    /// The next completions that end so instead of well.
    pub spoil: Option<(u32, Status)>,
    /// Completions are held back while this is set, and come when it is not.
    pub hold: bool,
    /// Events to tell.
    pub events: Vec<AsyncEvent>,
    /// Queue pairs say that this is their number, as two NICs may.
    pub number: Option<u32>,
    /// What was done so far.
    pub counts: Counts,
}

/// Calls and requests, for tests of cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Lists of sends: doorbells.
    pub doorbells: u64,
    /// Send requests.
    pub sends: u64,
    /// ... of which signalled.
    pub signalled: u64,
    /// ... of which inline.
    pub inline: u64,
    /// Lists of receives.
    pub recv_lists: u64,
    /// Receive requests.
    pub recvs: u64,
    /// Completions taken.
    pub completions: u64,
    /// Regions registered.
    pub registrations: u64,
}

type Shared = Arc<Mutex<Script>>;

fn lock(script: &Shared) -> MutexGuard<'_, Script> {
    script.lock().unwrap_or_else(|e| e.into_inner())
}

fn strike(fault: &mut Option<(u32, i32)>) -> Option<i32> {
    let (left, errno) = fault.as_mut()?;
    let errno = *errno;
    *left = left.saturating_sub(1);
    if *left == 0 {
        *fault = None;
    }
    Some(errno)
}

/// A NIC with a script.
#[derive(Clone)]
pub struct MockNic<N> {
    inner: N,
    script: Shared,
}

impl<N: Nic> MockNic<N> {
    /// Puts a script in front of `inner`, without faults yet.
    pub fn new(inner: N) -> MockNic<N> {
        MockNic { inner, script: Shared::default() }
    }

    /// The script, to change it or to read its counts.
    pub fn script(&self) -> MutexGuard<'_, Script> {
        lock(&self.script)
    }

    /// The NIC behind.
    pub fn inner(&self) -> &N {
        &self.inner
    }

    fn registered(&self) -> Result<(), Error> {
        let mut script = self.script();
        match strike(&mut script.register) {
            Some(errno) => Err(Error::errno("ibv_reg_mr", self.inner.name(), errno)),
            None => {
                script.counts.registrations += 1;
                Ok(())
            }
        }
    }
}

#[allow(unsafe_code)]
// SAFETY: a region reaches its memory no longer than it lives.
unsafe impl<N: Nic> Nic for MockNic<N> {
    type Mr = N::Mr;
    type Cq = MockCq<N::Cq>;
    type Qp = MockQp<N::Qp>;

    fn name(&self) -> &str {
        self.inner.name()
    }

    fn isolated(&self) -> Result<MockNic<N>, Error> {
        Ok(MockNic { inner: self.inner.isolated()?, script: self.script.clone() })
    }

    fn limits(&self) -> Result<Limits, Error> {
        self.inner.limits()
    }

    fn port(&self, port: u8) -> Result<Port, Error> {
        self.inner.port(port)
    }

    fn gids(&self, port: u8) -> Result<Vec<GidEntry>, Error> {
        self.inner.gids(port)
    }

    fn pkey(&self, port: u8, index: u16) -> Result<u16, Error> {
        self.inner.pkey(port, index)
    }

    fn register(&self, mem: MemSlice, access: Access) -> Result<N::Mr, Error> {
        self.registered()?;
        self.inner.register(mem, access)
    }

    fn register_dmabuf(
        &self,
        dmabuf: BorrowedFd<'_>,
        offset: u64,
        len: u64,
        iova: u64,
        access: Access,
    ) -> Result<N::Mr, Error> {
        self.registered()?;
        self.inner.register_dmabuf(dmabuf, offset, len, iova, access)
    }

    fn takes_dmabuf(&self) -> Result<(), Error> {
        self.inner.takes_dmabuf()
    }

    fn cq(&self, depth: u32) -> Result<Self::Cq, Error> {
        Ok(MockCq { inner: self.inner.cq(depth)?, script: self.script.clone(), again: Vec::new() })
    }

    fn qp(&self, cq: &Self::Cq, caps: QpCaps) -> Result<Self::Qp, Error> {
        let inner = self.inner.qp(&cq.inner, caps)?;
        Ok(MockQp { name: self.inner.name().to_owned(), inner, script: self.script.clone() })
    }

    fn event(&self) -> Result<Option<AsyncEvent>, Error> {
        match self.script().events.pop() {
            Some(event) => Ok(Some(event)),
            None => self.inner.event(),
        }
    }

    fn event_fd(&self) -> RawFd {
        self.inner.event_fd()
    }
}

/// A completion queue with a script.
pub struct MockCq<C> {
    inner: C,
    script: Shared,
    again: Vec<Completion>,
}

impl<C: Cq> Cq for MockCq<C> {
    fn poll(&mut self, out: &mut [Completion]) -> Result<usize, Error> {
        let mut script = lock(&self.script);
        if script.hold {
            drop(script);
            // The device goes on meanwhile.
            self.inner.poll(&mut [])?;
            return Ok(0);
        }
        if !self.again.is_empty() {
            let n = self.again.len().min(out.len());
            out[..n].copy_from_slice(&self.again[..n]);
            self.again.drain(..n);
            return Ok(n);
        }
        let n = self.inner.poll(out)?;
        script.counts.completions += n as u64;
        for completion in &mut out[..n] {
            if completion.status == Status::Success
                && let Some((left, status)) = &mut script.spoil
            {
                completion.status = *status;
                *left = left.saturating_sub(1);
                if *left == 0 {
                    script.spoil = None;
                }
            }
            if script.twice > 0 {
                script.twice -= 1;
                self.again.push(*completion);
            }
        }
        Ok(n)
    }

    fn arm(&mut self) -> Result<(), Error> {
        self.inner.arm()
    }

    fn fd(&self) -> RawFd {
        self.inner.fd()
    }

    fn calm(&mut self) {
        self.inner.calm();
    }
}

/// A queue pair with a script.
pub struct MockQp<Q> {
    name: String,
    inner: Q,
    script: Shared,
}

impl<Q> MockQp<Q> {
    fn modified(&self) -> Result<(), Error> {
        match strike(&mut lock(&self.script).modify) {
            Some(errno) => Err(Error::errno("ibv_modify_qp", &self.name, errno)),
            None => Ok(()),
        }
    }
}

impl<Q: Qp> Qp for MockQp<Q> {
    fn number(&self) -> u32 {
        lock(&self.script).number.unwrap_or(self.inner.number())
    }

    fn caps(&self) -> QpCaps {
        self.inner.caps()
    }

    fn state(&self) -> Result<QpState, Error> {
        self.inner.state()
    }

    fn init(&mut self, attr: &InitAttr) -> Result<(), Error> {
        self.modified()?;
        self.inner.init(attr)
    }

    fn ready_to_receive(&mut self, attr: &RtrAttr) -> Result<(), Error> {
        self.modified()?;
        self.inner.ready_to_receive(attr)
    }

    fn ready_to_send(&mut self, attr: &RtsAttr) -> Result<(), Error> {
        self.modified()?;
        self.inner.ready_to_send(attr)
    }

    fn fail(&mut self) -> Result<(), Error> {
        self.inner.fail()
    }

    fn reset(&mut self) -> Result<(), Error> {
        self.inner.reset()
    }

    fn post_recv(&mut self, list: &[RecvWr]) -> Result<(), PostError> {
        let mut script = lock(&self.script);
        if let Some(errno) = strike(&mut script.post_recv) {
            return Err(PostError { taken: 0, errno });
        }
        script.counts.recv_lists += 1;
        script.counts.recvs += list.len() as u64;
        drop(script);
        self.inner.post_recv(list)
    }

    fn post_send(&mut self, list: &[SendWr]) -> Result<(), PostError> {
        let mut script = lock(&self.script);
        let mut n = list.len();
        let mut fault = None;
        if let Some((left, taken, errno)) = &mut script.partial
            && *taken < n
        {
            n = *taken;
            fault = Some(PostError { taken: n, errno: *errno });
            *left = left.saturating_sub(1);
            if *left == 0 {
                script.partial = None;
            }
        }
        let counts = &mut script.counts;
        counts.doorbells += 1;
        counts.sends += n as u64;
        counts.signalled += list[..n].iter().filter(|wr| wr.signalled).count() as u64;
        counts.inline += list[..n].iter().filter(|wr| wr.inline).count() as u64;
        drop(script);
        self.inner.post_send(&list[..n])?;
        fault.map_or(Ok(()), Err)
    }
}
