//! Transports and listeners: from opening to closing.

use std::ffi::{c_char, c_int};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use linkspan::{Error, Url};

use super::objects::{
    LISTENERS, LONGEST, Peer, TRANSPORTS, access, context, found, gpu_named, handle, host_named, id, left, limit, peer,
    remote, started, view,
};
use crate::raw::{self, Out, OutText};
use crate::status::{CallResult, border};
use crate::text::fixed;
use crate::types::*;

/// How long a peer that is using a region may go on once its handle is closed; then its path is revoked.
const REVOKE_AFTER: Duration = Duration::from_secs(1);

/// A transport through device number `device` (0: the first). `from` null: the context of the process.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn linkspan_transport_open(
    from: *mut linkspan_context,
    device: u32,
    out: *mut *mut linkspan_transport,
) -> i32 {
    border(|| {
        // SAFETY: the caller's promise, see the module.
        let out = unsafe { Out::new(out, "out")? };
        out.set(Peer::open(Arc::new(context(from)?.transport_on(device as usize)?), false)?);
        Ok(())
    })
}

/// Carries memory of this GPU (cuda:0, hip:1) from now on, over every path: one GPU for each transport, at best before it is
/// connected. The transport's context must let device memory be staged: linkspan_context_for_gpus does, and any with
/// LINKSPAN_GPU=staged.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn linkspan_transport_attach(transport: *mut linkspan_transport, gpu: *const c_char) -> i32 {
    border(|| {
        let peer = peer(transport)?;
        // SAFETY: the caller's promise, see the module.
        Ok(peer.transport.attach(&unsafe { gpu_named(gpu)? })?)
    })
}

/// Ends a transport: what is pending reports LINKSPAN_ABORTED, the peer is told. That of an endpoint's peer stays connected, and what is
/// pending there goes on (linkspan_endpoint_remove ends both); what was exposed through this handle is taken back.
///
/// Threads: calls of other threads on it end first; it waits for them. Those on a handle of an endpoint's peer go on, and are not waited for.
#[unsafe(no_mangle)]
pub extern "C" fn linkspan_transport_close(transport: *mut linkspan_transport) -> i32 {
    border(|| {
        let peer = TRANSPORTS.remove(id(transport))?;
        if peer.of_endpoint {
            for region in peer.rights.take_all() {
                // One that has ended has taken them back.
                let _ = peer.transport.unexpose(&region, REVOKE_AFTER);
            }
            return Ok(());
        }
        // It is in no table any more; calls that hold it already return with an error.
        while Arc::strong_count(&peer) > 1 {
            peer.transport.close();
            std::thread::sleep(Duration::from_micros(200));
        }
        Ok(())
    })
}

/// Lets a peer connect: writes the URL for it, which carries a secret. LINKSPAN_URL_SIZE bytes suffice.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn linkspan_transport_bind(
    transport: *mut linkspan_transport,
    url: *mut c_char,
    capacity: usize,
) -> i32 {
    border(|| {
        // SAFETY: the caller's promise, see the module.
        let out = unsafe { OutText::new(url, capacity, "url")? };
        out.set(&peer(transport)?.transport.bind()?.to_string())
    })
}

/// # Safety
/// As `raw::text`.
pub(super) unsafe fn url(text: *const c_char) -> CallResult<Url> {
    // SAFETY: by the caller's promise.
    let text = unsafe { raw::text(text, LINKSPAN_URL_SIZE, "url")? };
    Ok(text.parse().map_err(Error::Url)?)
}

/// Connects to the endpoint or listener that a paired host serves: `host` as for linkspan_endpoint_connect_host. The transport is one of
/// linkspan_context_paired.
///
/// Threads: linkspan_transport_abort and linkspan_transport_close end it; while the host is looked for, within a second for each of its
/// addresses.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn linkspan_transport_connect_host(
    transport: *mut linkspan_transport,
    host: *const c_char,
    timeout_ms: i64,
) -> i32 {
    border(|| {
        // SAFETY: the caller's promise, see the module.
        let host = unsafe { host_named(host)? };
        let (peer, until) = (peer(transport)?, Instant::now() + limit(timeout_ms)?);
        // Abort and close end it.
        let mut waits = peer.transport.wait_connected(LONGEST);
        let url = found(&peer.transport.context(), &host, until, || match waits.test() {
            None => Ok(()),
            Some(ended) => ended.and(Err(Error::HasPeer)),
        })?;
        drop(waits);
        Ok(peer.transport.connect_blocking(&url, left(until))?)
    })
}

/// Connects to the transport or listener at `url`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn linkspan_transport_connect(
    transport: *mut linkspan_transport,
    to: *const c_char,
    timeout_ms: i64,
) -> i32 {
    border(|| {
        // SAFETY: the caller's promise, see the module.
        let to = unsafe { url(to)? };
        Ok(peer(transport)?.transport.connect_blocking(&to, limit(timeout_ms)?)?)
    })
}

/// As linkspan_transport_connect, without waiting. The value is 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn linkspan_transport_connect_start(
    transport: *mut linkspan_transport,
    to: *const c_char,
    timeout_ms: i64,
    out: *mut *mut linkspan_op,
) -> i32 {
    border(|| {
        // SAFETY: the caller's promise, see the module.
        let (out, to) = unsafe { (Out::new(out, "out")?, url(to)?) };
        out.set(started(peer(transport)?.transport.connect(&to, limit(timeout_ms)?))?);
        Ok(())
    })
}

/// Waits until the peer that has our URL is connected.
#[unsafe(no_mangle)]
pub extern "C" fn linkspan_transport_wait_connected(transport: *mut linkspan_transport, timeout_ms: i64) -> i32 {
    border(|| Ok(peer(transport)?.transport.wait_connected_blocking(limit(timeout_ms)?)?))
}

/// What the transport knows of its peer and path.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn linkspan_transport_get(
    transport: *mut linkspan_transport,
    out: *mut linkspan_peer_info,
) -> i32 {
    border(|| {
        // SAFETY: the caller's promise, see the module.
        let out = unsafe { Out::new(out, "out")? };
        let peer = peer(transport)?;
        let (path, connected) = (peer.transport.path().unwrap_or_default(), peer.transport.connected().into());
        out.set(linkspan_peer_info { path: fixed(&path), connected, epoch: peer.transport.epoch() });
        Ok(())
    })
}

/// What the peer is called here, where it has proven its key: the name that it was paired under, or else its key's fingerprint. Empty
/// without a login by key pairs, and while there is no path.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn linkspan_transport_peer_name(
    transport: *mut linkspan_transport,
    out: *mut linkspan_peer_name,
) -> i32 {
    border(|| {
        // SAFETY: the caller's promise, see the module.
        let out = unsafe { Out::new(out, "out")? };
        let name = peer(transport)?.transport.peer_name().unwrap_or_default();
        out.set(linkspan_peer_name { name: fixed(&name) });
        Ok(())
    })
}

/// Gives the peer access to memory until linkspan_transport_unexpose or the end of the transport. `reused` may be null: 1 where
/// the same range was exposed with the same rights already. Over RDMA, what the peer may write is registered with the network
/// card here, whose key opens these bytes and no others, to every peer that this process has through that card.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn linkspan_transport_expose(
    transport: *mut linkspan_transport,
    range: linkspan_view,
    rights: u32,
    out: *mut linkspan_remote,
    reused: *mut u32,
) -> i32 {
    border(|| {
        // SAFETY: the caller's promise, see the module.
        let (out, reused) = unsafe { (Out::new(out, "out")?, Out::maybe(reused, "reused")?) };
        let (peer, range, rights) = (peer(transport)?, view(range)?, access(rights)?);
        peer.rights.give(out, reused, || peer.transport.expose(&range, rights))
    })
}

/// Takes access back: `region` is what linkspan_transport_expose of this handle gave, anything else is LINKSPAN_NOT_EXPOSED. Afterwards
/// nothing of the peer lands in the region any more; where that takes longer than the timeout the path is revoked and made again. Over
/// RDMA the network card refuses the key of the region from then on. Bytes that another transport of this process still exposes for
/// writing stay open to its key until that takes them back.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn linkspan_transport_unexpose(
    transport: *mut linkspan_transport,
    region: *const linkspan_remote,
    timeout_ms: i64,
) -> i32 {
    border(|| {
        // SAFETY: the caller's promise, see the module.
        let told = remote(&unsafe { raw::value(region, "region")? })?;
        let (peer, limit) = (peer(transport)?, limit(timeout_ms)?);
        let region = peer.rights.take(told)?;
        Ok(peer.transport.unexpose(&region, limit)?)
    })
}

/// Ends everything pending, on every thread, with LINKSPAN_ABORTED. The transport stays usable.
#[unsafe(no_mangle)]
pub extern "C" fn linkspan_transport_abort(transport: *mut linkspan_transport) -> i32 {
    border(|| {
        peer(transport)?.transport.abort();
        Ok(())
    })
}

/// A descriptor for epoll, poll or select that can be read when an operation has reported: then linkspan_transport_poll and
/// linkspan_op_test. It belongs to the transport and is closed with it. That of an endpoint's peer is the one of
/// linkspan_endpoint_event_fd, and silenced by linkspan_endpoint_poll alone.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn linkspan_transport_event_fd(transport: *mut linkspan_transport, out: *mut c_int) -> i32 {
    border(|| {
        // SAFETY: the caller's promise, see the module.
        let out = unsafe { Out::new(out, "out")? };
        out.set(peer(transport)?.transport.event_fd()?.as_raw_fd());
        Ok(())
    })
}

/// Silences the event descriptor, unless it is an endpoint's, and moves what can move, without waiting.
/// `moved` may be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn linkspan_transport_poll(transport: *mut linkspan_transport, moved: *mut u32) -> i32 {
    border(|| {
        // SAFETY: the caller's promise, see the module.
        let moved = unsafe { Out::maybe(moved, "moved")? };
        let any = peer(transport)?.transport.poll();
        moved.into_iter().for_each(|moved| moved.set(any.into()));
        Ok(())
    })
}

/// A listener on device number `device`. `from` null: the context of the process.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn linkspan_listener_open(
    from: *mut linkspan_context,
    device: u32,
    out: *mut *mut linkspan_listener,
) -> i32 {
    border(|| {
        // SAFETY: the caller's promise, see the module.
        let out = unsafe { Out::new(out, "out")? };
        out.set(handle(LISTENERS.insert(Arc::new(context(from)?.listen_on(device as usize)?))?));
        Ok(())
    })
}

/// As linkspan_transport_attach, for the transports of all peers that connect from now on.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn linkspan_listener_attach(listener: *mut linkspan_listener, gpu: *const c_char) -> i32 {
    border(|| {
        let listener = LISTENERS.get(id(listener))?;
        // SAFETY: the caller's promise, see the module.
        listener.attach(&unsafe { gpu_named(gpu)? });
        Ok(())
    })
}

/// Writes the URL for the peers, as linkspan_transport_bind.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn linkspan_listener_url(
    listener: *mut linkspan_listener,
    url: *mut c_char,
    capacity: usize,
) -> i32 {
    border(|| {
        // SAFETY: the caller's promise, see the module.
        let out = unsafe { OutText::new(url, capacity, "url")? };
        out.set(&LISTENERS.get(id(listener))?.url().to_string())
    })
}

/// Gives the URL to whoever asks for it at this TCP port of the host, as linkspan_endpoint_serve_at. The listener is one of
/// linkspan_context_paired.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn linkspan_listener_serve_at(
    listener: *mut linkspan_listener,
    port: u16,
    served: *mut u16,
) -> i32 {
    border(|| {
        // SAFETY: the caller's promise, see the module.
        let served = unsafe { Out::maybe(served, "served")? };
        let addrs = LISTENERS.get(id(listener))?.serve_at(port)?;
        served.into_iter().zip(addrs).for_each(|(served, addr)| served.set(addr.port()));
        Ok(())
    })
}

/// Waits for the next peer and gives it a transport of its own. Timeout 0 asks without waiting.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn linkspan_listener_accept(
    listener: *mut linkspan_listener,
    timeout_ms: i64,
    out: *mut *mut linkspan_transport,
) -> i32 {
    border(|| {
        // SAFETY: the caller's promise, see the module.
        let out = unsafe { Out::new(out, "out")? };
        let transport = LISTENERS.get(id(listener))?.accept_blocking(limit(timeout_ms)?)?;
        out.set(Peer::open(Arc::new(transport), false)?);
        Ok(())
    })
}

/// Turns new peers away. Transports that were accepted live on.
///
/// Threads: an accept of another thread ends with LINKSPAN_ABORTED.
#[unsafe(no_mangle)]
pub extern "C" fn linkspan_listener_close(listener: *mut linkspan_listener) -> i32 {
    border(|| {
        LISTENERS.remove(id(listener))?.close();
        Ok(())
    })
}
