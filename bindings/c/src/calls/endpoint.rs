//! Endpoints: any number of peers by their names, memory that is exposed once for all of them, one queue of events.

use std::ffi::{c_char, c_int};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::time::Instant;

use linkspan::{Error, Event};

use super::objects::{
    ENDPOINTS, EndpointObject, Peer, Rights, access, context, found, gpu_named, handle, host_named, id, left, limit,
    remote, started, timeout, view,
};
use super::transport::url as url_of;
use crate::raw::{self, Out, OutList, OutText};
use crate::status::{CallResult, border};
use crate::text::fixed;
use crate::types::*;

fn endpoint(endpoint: *mut linkspan_endpoint) -> CallResult<Arc<EndpointObject>> {
    ENDPOINTS.get(id(endpoint))
}

/// # Safety
/// As `raw::text`.
unsafe fn name(text: *const c_char, argument: &'static str) -> CallResult<String> {
    // SAFETY: by the caller's promise.
    unsafe { raw::text(text, LINKSPAN_PEER_NAME_SIZE, argument) }
}

/// An endpoint on device number `device` (0: the first), which accepts peers from now on. `from` null: the context of the
/// process. `own`: its name, 1 to 64 visible characters of ASCII, another one for each endpoint of a job.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn linkspan_endpoint_open(
    from: *mut linkspan_context,
    device: u32,
    own: *const c_char,
    out: *mut *mut linkspan_endpoint,
) -> i32 {
    border(|| {
        // SAFETY: the caller's promise, see the module.
        let (out, own) = unsafe { (Out::new(out, "out")?, name(own, "own")?) };
        let endpoint = context(from)?.endpoint_on(device as usize, &own)?;
        out.set(handle(ENDPOINTS.insert(Arc::new(EndpointObject { endpoint, rights: Rights::default() }))?));
        Ok(())
    })
}

/// As linkspan_transport_attach, for the transports of all its peers, those to come included.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn linkspan_endpoint_attach(at: *mut linkspan_endpoint, gpu: *const c_char) -> i32 {
    border(|| {
        let object = endpoint(at)?;
        // SAFETY: the caller's promise, see the module.
        Ok(object.endpoint.attach(&unsafe { gpu_named(gpu)? })?)
    })
}

/// Closes all connections of an endpoint, takes back what it exposed and turns new peers away. What is pending reports
/// LINKSPAN_ABORTED. Handles of its peers' transports stay valid until they are closed; each call on them is LINKSPAN_BROKEN.
///
/// Threads: a linkspan_endpoint_next of another thread ends with LINKSPAN_ENDPOINT_CLOSED, and so does a linkspan_endpoint_connect_host
/// that looks for its host, within a second for each address of that.
#[unsafe(no_mangle)]
pub extern "C" fn linkspan_endpoint_close(at: *mut linkspan_endpoint) -> i32 {
    border(|| {
        ENDPOINTS.remove(id(at))?.endpoint.close();
        Ok(())
    })
}

/// Writes the URL for its peers, any number of them, as linkspan_transport_bind.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn linkspan_endpoint_url(at: *mut linkspan_endpoint, url: *mut c_char, capacity: usize) -> i32 {
    border(|| {
        // SAFETY: the caller's promise, see the module.
        let out = unsafe { OutText::new(url, capacity, "url")? };
        out.set(&endpoint(at)?.endpoint.url().to_string())
    })
}

/// Connects to the endpoint called `peer` at `url`; a transport's or listener's, which has no name, is called `peer` here. Where
/// it is connected already, or comes here meanwhile, that is the one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn linkspan_endpoint_connect(
    at: *mut linkspan_endpoint,
    peer: *const c_char,
    url: *const c_char,
    timeout_ms: i64,
) -> i32 {
    border(|| {
        // SAFETY: the caller's promise, see the module.
        let (peer, url) = unsafe { (name(peer, "peer")?, url_of(url)?) };
        endpoint(at)?.endpoint.connect_blocking(&peer, &url, limit(timeout_ms)?)?;
        Ok(())
    })
}

/// As linkspan_endpoint_connect, without waiting. The value is 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn linkspan_endpoint_connect_start(
    at: *mut linkspan_endpoint,
    peer: *const c_char,
    url: *const c_char,
    timeout_ms: i64,
    out: *mut *mut linkspan_op,
) -> i32 {
    border(|| {
        // SAFETY: the caller's promise, see the module.
        let (out, peer, url) = unsafe { (Out::new(out, "out")?, name(peer, "peer")?, url_of(url)?) };
        out.set(started(endpoint(at)?.endpoint.connect(&peer, &url, limit(timeout_ms)?)?)?);
        Ok(())
    })
}

/// Connects to the endpoint called `peer` that a paired host serves (linkspan_endpoint_serve_at): `host` is the name that it was paired
/// under, with `:PORT` behind it where the port is not LINKSPAN_PORT, and that key has to be proven. It may also be an address, or another
/// name of a host; then the key of any paired peer will do. A host that does not serve yet is asked again until it does. The endpoint is
/// one of linkspan_context_paired.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn linkspan_endpoint_connect_host(
    at: *mut linkspan_endpoint,
    peer: *const c_char,
    host: *const c_char,
    timeout_ms: i64,
) -> i32 {
    border(|| {
        // SAFETY: the caller's promise, see the module.
        let (peer, host) = unsafe { (name(peer, "peer")?, host_named(host)?) };
        let (object, until) = (endpoint(at)?, Instant::now() + limit(timeout_ms)?);
        let url = found(object.endpoint.context(), &host, until, || match object.endpoint.peer(&peer) {
            Err(error @ Error::EndpointClosed(_)) => Err(error),
            _ => Ok(()),
        })?;
        object.endpoint.connect_blocking(&peer, &url, left(until))?;
        Ok(())
    })
}

/// Gives the URL to whoever asks for it at this TCP port of the host until the endpoint is closed: paired hosts connect by name then. Only
/// those whose keys are trusted get in. 0: a port that is free. `served` may be null: the port. The endpoint is one of linkspan_context_paired.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn linkspan_endpoint_serve_at(at: *mut linkspan_endpoint, port: u16, served: *mut u16) -> i32 {
    border(|| {
        // SAFETY: the caller's promise, see the module.
        let served = unsafe { Out::maybe(served, "served")? };
        let addrs = endpoint(at)?.endpoint.serve_at(port)?;
        served.into_iter().zip(addrs).for_each(|(served, addr)| served.set(addr.port()));
        Ok(())
    })
}

/// The transport of the peer called `peer`, for all that goes to it or comes from it: a handle of its own for each call, to be
/// closed by linkspan_transport_close, which leaves the peer connected. LINKSPAN_UNKNOWN_PEER where it has not connected or its
/// end was told.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn linkspan_endpoint_peer(
    at: *mut linkspan_endpoint,
    peer: *const c_char,
    out: *mut *mut linkspan_transport,
) -> i32 {
    border(|| {
        // SAFETY: the caller's promise, see the module.
        let (out, peer) = unsafe { (Out::new(out, "out")?, name(peer, "peer")?) };
        out.set(Peer::open(endpoint(at)?.endpoint.peer(&peer)?, true)?);
        Ok(())
    })
}

/// Names of the peers that are connected, or whose path is made again, in order. `count` as for linkspan_supported.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn linkspan_endpoint_peers(
    at: *mut linkspan_endpoint,
    list: *mut linkspan_peer_name,
    count: *mut usize,
) -> i32 {
    border(|| {
        // SAFETY: the caller's promise, see the module.
        let out = unsafe { OutList::new(list, count, "list")? };
        let names = endpoint(at)?.endpoint.peers();
        let all: Vec<_> = names.iter().map(|name| linkspan_peer_name { name: fixed(name) }).collect();
        out.set(&all)
    })
}

/// Closes the connection to a peer: what is under way there reports LINKSPAN_ABORTED, and no event of it comes any more. It may
/// connect again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn linkspan_endpoint_remove(at: *mut linkspan_endpoint, peer: *const c_char) -> i32 {
    border(|| {
        // SAFETY: the caller's promise, see the module.
        Ok(endpoint(at)?.endpoint.remove(&unsafe { name(peer, "peer")? })?)
    })
}

/// Gives all peers access to memory, those to come included: it is registered once, and `out` is good for every peer. Otherwise as
/// linkspan_transport_expose, which gives it to one peer alone.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn linkspan_endpoint_expose(
    at: *mut linkspan_endpoint,
    range: linkspan_view,
    rights: u32,
    out: *mut linkspan_remote,
    reused: *mut u32,
) -> i32 {
    border(|| {
        // SAFETY: the caller's promise, see the module.
        let (out, reused) = unsafe { (Out::new(out, "out")?, Out::maybe(reused, "reused")?) };
        let (object, range, rights) = (endpoint(at)?, view(range)?, access(rights)?);
        object.rights.give(out, reused, || object.endpoint.expose(&range, rights))
    })
}

/// Takes access back from all peers, as linkspan_transport_unexpose.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn linkspan_endpoint_unexpose(
    at: *mut linkspan_endpoint,
    region: *const linkspan_remote,
    timeout_ms: i64,
) -> i32 {
    border(|| {
        // SAFETY: the caller's promise, see the module.
        let told = remote(&unsafe { raw::value(region, "region")? })?;
        let (object, limit) = (endpoint(at)?, limit(timeout_ms)?);
        Ok(object.endpoint.unexpose(&object.rights.take(told)?, limit)?)
    })
}

/// Waits for the next event of any peer; timeout 0 asks without waiting. Those of one peer come in order, and peers take turns.
/// Each is taken once, whichever thread asks.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn linkspan_endpoint_next(
    at: *mut linkspan_endpoint,
    timeout_ms: i64,
    out: *mut linkspan_event,
) -> i32 {
    border(|| {
        // SAFETY: the caller's promise, see the module.
        let out = unsafe { Out::new(out, "out")? };
        let event = endpoint(at)?.endpoint.next_event_blocking(timeout(timeout_ms)?)?;
        let (kind, value, why) = match &event {
            Event::Notified { value, .. } => (LINKSPAN_PEER_NOTIFIED, *value, ""),
            Event::Lost { why, .. } => (LINKSPAN_PEER_LOST, 0, &**why),
            // Connected; a kind that comes later is added here too.
            _ => (LINKSPAN_PEER_CONNECTED, 0, ""),
        };
        out.set(linkspan_event { kind, reserved: 0, value, peer: fixed(event.peer()), why: fixed(why) });
        Ok(())
    })
}

/// A descriptor for epoll, poll or select that can be read when there is an event, or an operation with any peer has reported:
/// then linkspan_endpoint_poll, linkspan_endpoint_next with timeout 0 until LINKSPAN_TIMEOUT, and linkspan_op_test. It belongs to
/// the endpoint and is closed with it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn linkspan_endpoint_event_fd(at: *mut linkspan_endpoint, out: *mut c_int) -> i32 {
    border(|| {
        // SAFETY: the caller's promise, see the module.
        let out = unsafe { Out::new(out, "out")? };
        out.set(endpoint(at)?.endpoint.event_fd()?.as_raw_fd());
        Ok(())
    })
}

/// Silences the event descriptor. `news` may be null: 1 where peers may have events.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn linkspan_endpoint_poll(at: *mut linkspan_endpoint, news: *mut u32) -> i32 {
    border(|| {
        // SAFETY: the caller's promise, see the module.
        let news = unsafe { Out::maybe(news, "news")? };
        let any = endpoint(at)?.endpoint.poll();
        news.into_iter().for_each(|news| news.set(any.into()));
        Ok(())
    })
}
