//! The one state of an exported plugin: its instance, its objects and its strings.

use std::collections::BTreeSet;
use std::ffi::{CStr, CString, c_char, c_void};
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard};

use crate::abi::LogFn;
use crate::arena::{Arena, Kind};
use crate::burst::Bursts;
use crate::comm::{CommBody, CtxBody, ListenBody, MrBody, Pending};
use crate::fail::Refused;
use crate::requests::RequestSlots;
use crate::{Init, Logger, Misuse, NetPlugin};

/// A plugin that [`crate::export_net_plugin!`] has given a home. Implemented by that macro only.
pub trait Exported: NetPlugin {
    /// Its state.
    fn global() -> &'static Global<Self>;
}

/// State of one exported plugin. Every access is safe from every thread.
pub struct Global<P: NetPlugin> {
    log: AtomicPtr<c_void>,
    /// Read by calls that make or end something.
    here: RwLock<()>,
    state: Mutex<State<P>>,
    serial: AtomicU64,
    strings: Mutex<BTreeSet<CString>>,
    /// Devices that NCCL has merged, in order: it does so once, and knows their numbers beyond the last finalize.
    merges: Mutex<Vec<Vec<usize>>>,
    pub(crate) ctxs: Arena<CtxBody<P>>,
    pub(crate) listens: Arena<ListenBody<P>>,
    pub(crate) sends: Arena<CommBody<P, P::Send>, RequestSlots>,
    pub(crate) recvs: Arena<CommBody<P, P::Recv>, RequestSlots>,
    pub(crate) mrs: Arena<MrBody<P>>,
    pub(crate) bursts: Bursts,
}

struct State<P> {
    plugin: Option<Arc<P>>,
    /// Contexts that keep the plugin alive.
    users: usize,
    /// Address of the context of tables below v11.
    shared: usize,
    /// The process that made it.
    process: u32,
}

impl<P: NetPlugin> Default for Global<P> {
    fn default() -> Self {
        Global::new()
    }
}

impl<P: NetPlugin> Global<P> {
    /// An empty one, for the static of the plugin macro.
    pub const fn new() -> Global<P> {
        Global {
            log: AtomicPtr::new(std::ptr::null_mut()),
            here: RwLock::new(()),
            state: Mutex::new(State { plugin: None, users: 0, shared: 0, process: 0 }),
            serial: AtomicU64::new(0),
            strings: Mutex::new(BTreeSet::new()),
            merges: Mutex::new(Vec::new()),
            ctxs: Arena::new(Kind::Ctx, || ()),
            listens: Arena::new(Kind::Listen, || ()),
            sends: Arena::new(Kind::Send, RequestSlots::new),
            recvs: Arena::new(Kind::Recv, RequestSlots::new),
            mrs: Arena::new(Kind::Mr, || ()),
            bursts: Bursts::new(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State<P>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Held by a call that makes or ends something: [`Global::unload`] spares everything meanwhile, and is waited for.
    pub(crate) fn here(&self) -> RwLockReadGuard<'_, ()> {
        self.here.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// NCCL's logger, as the last init passed it.
    pub fn logger(&self) -> Logger {
        let raw = self.log.load(Ordering::Relaxed);
        // SAFETY: only `set_logger` writes it: null or a `LogFn`, and `Option` of a function pointer is null or that.
        let log = unsafe { std::mem::transmute::<*mut c_void, Option<LogFn>>(raw) };
        // SAFETY: the caller of init promised it.
        unsafe { Logger::new(log) }
    }

    fn set_logger(&self, log: Logger) {
        if let Some(log) = log.raw() {
            self.log.store(log as *mut c_void, Ordering::Relaxed);
        }
    }

    /// The running plugin.
    pub(crate) fn plugin(&self, call: &'static str) -> Result<Arc<P>, Misuse> {
        self.state().plugin.clone().ok_or(Misuse::NotReady(call))
    }

    /// Address of the context that tables below v11 share.
    pub(crate) fn shared_ctx(&self, call: &'static str) -> Result<*mut c_void, Misuse> {
        match self.state().shared {
            0 => Err(Misuse::NotReady(call)),
            address => Ok(address as *mut c_void),
        }
    }

    /// Makes a context, and the plugin where it is the first.
    pub(crate) fn init(&self, log: Logger, init: Init) -> Result<*mut c_void, Refused> {
        self.set_logger(log);
        let mut state = self.state();
        let plugin = match &state.plugin {
            Some(plugin) => plugin.clone(),
            None => {
                let plugin = Arc::new(P::load(self.logger())?);
                for members in &*self.merges.lock().unwrap_or_else(PoisonError::into_inner) {
                    // What is not there, as the plugin has logged, is no reason for init to fail: NCCL would take another network silently. It
                    // knows more devices than there are now, and fails with their numbers.
                    if plugin.merge(members).is_err() {
                        let name = P::NAME.to_string_lossy();
                        self.logger()
                            .info(&format!("{name}: NCCL merged devices {members:?}, which cannot be merged again"));
                    }
                }
                plugin
            }
        };
        let body = CtxBody {
            pending: Pending::default(),
            ctx: plugin.open(init)?,
            plugin: plugin.clone(),
            serial: self.serial.fetch_add(1, Ordering::Relaxed) + 1,
            traffic_class: init.traffic_class,
        };
        state.plugin = Some(plugin);
        state.users += 1;
        Ok(self.ctxs.insert(|_| body))
    }

    /// The context of tables below v11: made at the first init, kept until the library is unloaded.
    pub(crate) fn init_shared(&self, log: Logger, version: u32) -> Result<(), Refused> {
        self.set_logger(log);
        if self.state().shared != 0 {
            return Ok(());
        }
        let address = self.init(log, Init { comm_id: None, traffic_class: None, version })? as usize;
        let mut state = self.state();
        if state.shared == 0 {
            (state.shared, state.process) = (address, std::process::id());
            return Ok(());
        }
        drop(state);
        self.finalize(address as *mut c_void)
    }

    /// Ends a context with everything that was left open in it.
    pub(crate) fn finalize(&self, ctx: *mut c_void) -> Result<(), Refused> {
        let mut ctx = self.ctxs.remove(ctx)?;
        let Some(body) = ctx.body.take() else {
            return Ok(());
        };
        for comm in self.sends.list(|b| b.ctx == body.serial) {
            self.close_send(comm)?;
        }
        for comm in self.recvs.list(|b| b.ctx == body.serial) {
            self.close_recv(comm)?;
        }
        for listen in self.listens.list(|b| b.ctx == body.serial) {
            drop(self.listens.remove(listen));
        }
        drop(body);
        let mut state = self.state();
        state.users -= 1;
        let last = if state.users == 0 { state.plugin.take() } else { None };
        drop(state);
        drop(last);
        Ok(())
    }

    /// Closes a send comm: the data path first, then the memory handles that were left, then the domain.
    pub(crate) fn close_send(&self, comm: *mut c_void) -> Result<(), Refused> {
        self.bursts.remove(comm as usize);
        let mut removed = self.sends.remove(comm)?;
        drop(removed.body.as_ref().and_then(|b| b.spin.close()));
        let result = removed.body.as_ref().map_or(Ok(()), |b| self.deregister_left(comm, &b.domain));
        drop(removed.body.take());
        result
    }

    /// As `close_send`.
    pub(crate) fn close_recv(&self, comm: *mut c_void) -> Result<(), Refused> {
        let mut removed = self.recvs.remove(comm)?;
        drop(removed.body.as_ref().and_then(|b| b.spin.close()));
        let result = removed.body.as_ref().map_or(Ok(()), |b| self.deregister_left(comm, &b.domain));
        drop(removed.body.take());
        result
    }

    fn deregister_left(&self, comm: *mut c_void, domain: &P::Domain) -> Result<(), Refused> {
        let mut result = Ok(());
        for mr in self.mrs.list(|b| b.comm == comm as usize) {
            let Some(body) = self.mrs.remove(mr)?.body.take() else {
                continue;
            };
            if let Err(fail) = P::deregister(domain, body.mr) {
                result = Err(fail.into());
            }
        }
        result
    }

    /// A C string that stays until the library is unloaded. NCCL keeps names without copying them.
    pub(crate) fn intern(&self, text: &str) -> *const c_char {
        let text = CString::new(text.replace('\0', "?")).unwrap_or_default();
        let mut strings = self.strings.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = strings.get::<CStr>(&text) {
            return known.as_ptr();
        }
        let address = text.as_ptr();
        strings.insert(text);
        address
    }

    /// Notes a merge for the plugin after this one.
    pub(crate) fn merged(&self, members: Vec<usize>) {
        let mut merges = self.merges.lock().unwrap_or_else(PoisonError::into_inner);
        if !merges.contains(&members) {
            merges.push(members);
        }
    }

    /// A random number, never 0.
    pub(crate) fn ticket() -> u64 {
        use std::hash::{BuildHasher, RandomState};
        static COUNT: AtomicU64 = AtomicU64::new(0);
        RandomState::new().hash_one(COUNT.fetch_add(1, Ordering::Relaxed)).max(1)
    }

    /// The library is being unloaded, or the process exits: below v11 there is no other word. With comms still open, or in a call,
    /// other threads may use what is here, as when a process exits in the middle of a job; then everything stays. It stays in a
    /// child of the process, too, whose copy of the sockets and the statistics is the parent's.
    pub fn unload(&self) {
        let Ok(_alone) = self.here.try_write() else { return };
        if !self.sends.is_empty() || !self.recvs.is_empty() {
            return;
        }
        let mut state = self.state();
        if state.shared != 0 && state.process != std::process::id() {
            return;
        }
        let shared = std::mem::take(&mut state.shared);
        drop(state);
        if shared != 0 {
            // There is no caller left to report to.
            let _ = self.finalize(shared as *mut c_void);
        }
        if self.ctxs.is_empty() {
            // SAFETY: no context is left, so NCCL is through with this library, and it is being unloaded.
            unsafe {
                self.sends.release();
                self.recvs.release();
                self.listens.release();
                self.mrs.release();
                self.ctxs.release();
            }
            self.strings.lock().unwrap_or_else(PoisonError::into_inner).clear();
        }
    }
}
