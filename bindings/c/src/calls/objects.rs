//! The tables behind the handles, and arguments that many calls take.

use std::collections::HashMap;
use std::ffi::c_char;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use linkspan::{
    Access, Context, Endpoint, Error, Exposed, Gpu, Listener, MutableView, Notify, Op, RemoteBuffer, Transport, Url,
    View,
};

use crate::callback::defer_wakeups;
use crate::lease::Registered;
use crate::op::Started;
use crate::raw::{self, Out};
use crate::status::{CallResult, Refusal};
use crate::table::Table;
use crate::types as t;

pub(super) struct Peer {
    pub(super) transport: Arc<Transport>,
    pub(super) rights: Rights,
    /// The connection outlives the handle.
    pub(super) of_endpoint: bool,
}

pub(super) struct EndpointObject {
    pub(super) endpoint: Endpoint,
    pub(super) rights: Rights,
}

/// The regions that were exposed through one handle by their keys, each with how often; `None` once it is closed.
pub(super) struct Rights(Mutex<Option<HashMap<u32, (Exposed, u32)>>>);

pub(super) static CONTEXTS: Table<Context> = Table::new(0xA1, "context");
pub(super) static TRANSPORTS: Table<Peer> = Table::new(0xA2, "transport");
pub(super) static LISTENERS: Table<Listener> = Table::new(0xA3, "listener");
pub(super) static MEMORIES: Table<Registered> = Table::new(0xA4, "memory");
pub(super) static OPS: Table<Started> = Table::new(0xA5, "operation");
pub(super) static ENDPOINTS: Table<EndpointObject> = Table::new(0xA8, "endpoint");

/// The number in a handle.
pub(super) fn id<T>(handle: *mut T) -> u64 {
    handle.addr() as u64
}

/// A handle for C. It is never dereferenced.
pub(super) fn handle<T>(id: u64) -> *mut T {
    std::ptr::without_provenance_mut(id as usize)
}

impl Peer {
    pub(super) fn open(transport: Arc<Transport>, of_endpoint: bool) -> CallResult<*mut t::linkspan_transport> {
        TRANSPORTS.insert(Arc::new(Peer { transport, rights: Rights::default(), of_endpoint })).map(handle)
    }
}

impl Default for Rights {
    fn default() -> Rights {
        Rights(Mutex::new(Some(HashMap::new())))
    }
}

impl Rights {
    fn lock(&self) -> MutexGuard<'_, Option<HashMap<u32, (Exposed, u32)>>> {
        self.0.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// Exposes a region and tells what C is told of it.
    pub(super) fn give(
        &self,
        out: Out<t::linkspan_remote>,
        reused: Option<Out<u32>>,
        expose: impl FnOnce() -> Result<Exposed, Error>,
    ) -> CallResult {
        let (_later, mut given) = (defer_wakeups(), self.lock());
        let given = given.as_mut().ok_or(Refusal::Handle { word: "transport", handle: 0 })?;
        let region = expose()?;
        given.entry(region.remote().key()).or_insert((region, 0)).1 += 1;
        out.set(t::linkspan_remote { bytes: region.remote().encode() });
        reused.into_iter().for_each(|reused| reused.set(region.reused_registration().into()));
        Ok(())
    }

    /// The region that C was told of so, which has been given out once less from here on. Another handle's may have the same key.
    pub(super) fn take(&self, told: RemoteBuffer) -> CallResult<Exposed> {
        let (key, mut given) = (told.key(), self.lock());
        let given = given.as_mut().ok_or(Error::NotExposed(key))?;
        let entry = given.get_mut(&key).filter(|entry| entry.0.remote() == told).ok_or(Error::NotExposed(key))?;
        entry.1 -= 1;
        let (region, left) = *entry;
        if left == 0 {
            given.remove(&key);
        }
        Ok(region)
    }

    /// All that were given out and not taken back, each as often as it was. No more are given out from here on.
    pub(super) fn take_all(&self) -> Vec<Exposed> {
        let given = self.lock().take().unwrap_or_default();
        given.into_values().flat_map(|(region, times)| (0..times).map(move |_| region)).collect()
    }
}

pub(super) fn peer(transport: *mut t::linkspan_transport) -> CallResult<Arc<Peer>> {
    TRANSPORTS.get(id(transport))
}

/// Null: the context of the process.
pub(super) fn context(context: *mut t::linkspan_context) -> CallResult<Context> {
    if context.is_null() {
        return Ok(Context::shared()?);
    }
    Ok(CONTEXTS.get(id(context))?.as_ref().clone())
}

/// A GPU by its name.
///
/// # Safety
/// As `raw::text`.
pub(super) unsafe fn gpu_named(name: *const c_char) -> CallResult<Arc<dyn Gpu>> {
    // SAFETY: by the caller's promise.
    Ok(linkspan::gpu(&unsafe { raw::text(name, t::LINKSPAN_GPU_NAME_SIZE, "gpu")? })?)
}

/// A host as it is named, with a port or without.
///
/// # Safety
/// As `raw::text`.
pub(super) unsafe fn host_named(text: *const c_char) -> CallResult<String> {
    // SAFETY: by the caller's promise; a host name has 253 bytes at most (RFC 1035, 2.3.4), and a port six more.
    unsafe { raw::text(text, 260, "host") }
}

/// The path of a device.
///
/// # Safety
/// As `raw::text`.
pub(super) unsafe fn device(path: *const c_char) -> CallResult<PathBuf> {
    // SAFETY: by the caller's promise; the longest path is PATH_MAX (linux/limits.h).
    Ok(unsafe { raw::text(path, 4096, "path")? }.into())
}

pub(super) fn started(op: Op<'static>) -> CallResult<*mut t::linkspan_op> {
    OPS.insert(Started::new(op)).map(handle)
}

/// A timeout that may be none.
pub(super) fn timeout(ms: i64) -> CallResult<Option<Duration>> {
    let takes = "milliseconds, or -1 for no limit while the peer is alive";
    match u64::try_from(ms) {
        Ok(ms) => Ok(Some(Duration::from_millis(ms))),
        Err(_) if ms == t::LINKSPAN_FOREVER => Ok(None),
        Err(_) => Err(Refusal::Value { name: "timeout_ms", value: ms.into(), takes }),
    }
}

/// What is left of a time.
pub(super) fn left(until: Instant) -> Duration {
    until.saturating_duration_since(Instant::now())
}

/// How long a host is asked between two looks at whether the answer is wanted still.
const ASK: Duration = Duration::from_millis(200);

/// Longest wait where one must end: ten years.
pub(super) const LONGEST: Duration = Duration::from_secs(10 * 365 * 86_400);

/// The URL that a paired host serves; `goes_on` is asked now and then whether the object that is to connect still wants it.
pub(super) fn found(
    context: &Context,
    host: &str,
    until: Instant,
    mut goes_on: impl FnMut() -> Result<(), Error>,
) -> CallResult<Url> {
    loop {
        match context.find_host(host, left(until).min(ASK)) {
            // Nobody answers there yet.
            Err(error) if error.code() == "LS0732" && !left(until).is_zero() => goes_on()?,
            found => return Ok(found?),
        }
    }
}

/// A timeout that ends some day.
pub(super) fn limit(ms: i64) -> CallResult<Duration> {
    Ok(timeout(ms)?.unwrap_or(LONGEST).min(LONGEST))
}

pub(super) fn view(view: t::linkspan_view) -> CallResult<View<'static>> {
    let memory = MEMORIES.get(id(view.memory))?;
    Ok(memory.memory.slice(view.offset as usize, view.length as usize)?.shared())
}

pub(super) fn view_mut(view: t::linkspan_view) -> CallResult<MutableView<'static>> {
    let memory = MEMORIES.get(id(view.memory))?;
    Ok(memory.memory.slice_mut(view.offset as usize, view.length as usize)?.shared())
}

pub(super) fn remote(remote: &t::linkspan_remote) -> CallResult<RemoteBuffer> {
    Ok(RemoteBuffer::decode(&remote.bytes)?)
}

pub(super) fn notify(notify: Option<t::linkspan_notify>) -> CallResult<Option<Notify>> {
    let Some(notify) = notify else { return Ok(None) };
    let value = Notify::value(notify.value);
    match notify.flags {
        0 => Ok(Some(value)),
        t::LINKSPAN_FENCE => Ok(Some(value.fenced())),
        other => Err(Refusal::Value { name: "notify.flags", value: other.into(), takes: "0 or LINKSPAN_FENCE" }),
    }
}

pub(super) fn access(access: u32) -> CallResult<Access> {
    match access {
        t::LINKSPAN_ACCESS_READ => Ok(Access::Read),
        t::LINKSPAN_ACCESS_WRITE => Ok(Access::Write),
        3 => Ok(Access::ReadWrite),
        _ => {
            Err(Refusal::Value { name: "access", value: access.into(), takes: "LINKSPAN_ACCESS_READ, _WRITE or both" })
        }
    }
}

#[cfg(test)]
mod tests;
