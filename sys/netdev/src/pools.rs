//! Pages of a card's receive queues, and packets for which there was none: the family `netdev`.

use crate::message::Attrs;
use crate::socket::{Error, Socket, dump};

const FAMILY: &str = "netdev";

/// `NETDEV_CMD_PAGE_POOL_GET`, `NETDEV_CMD_PAGE_POOL_STATS_GET`, `NETDEV_CMD_QSTATS_GET`.
const POOL_GET: u8 = 5;
const STATS_GET: u8 = 9;
const QSTATS_GET: u8 = 12;

/// `NETDEV_A_PAGE_POOL_*`.
const POOL_ID: u16 = 1;
const POOL_IFINDEX: u16 = 2;
const POOL_NAPI: u16 = 3;
const POOL_INFLIGHT: u16 = 4;
const POOL_BYTES: u16 = 5;
const POOL_DETACHED: u16 = 6;
const POOL_DMABUF: u16 = 7;

/// `NETDEV_A_PAGE_POOL_STATS_*`.
const STATS_INFO: u16 = 1;
const STATS_FAST: u16 = 8;
const STATS_SLOW: u16 = 9;
const STATS_EMPTY: u16 = 11;

/// `NETDEV_A_QSTATS_*`, and the scope of one queue.
const QSTATS_IFINDEX: u16 = 1;
const QSTATS_TYPE: u16 = 2;
const QSTATS_QUEUE: u16 = 3;
const QSTATS_SCOPE: u16 = 4;
const QSTATS_NO_PAGE: u16 = 12;
const SCOPE_QUEUE: u32 = 1;

/// What receive queues of an interface take their pages from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PagePool {
    /// The kernel's number for it.
    pub id: u64,
    /// The polling instance that takes from it.
    pub napi: Option<u64>,
    /// Pages in use: by packets, sockets, processes.
    pub pages: u64,
    /// Their bytes; kernels that do not say: 0.
    pub bytes: u64,
    /// The binding of device memory that it is made of.
    pub dmabuf: Option<u32>,
    /// Its queue is gone; it waits for its pages.
    pub detached: bool,
    /// How often pages were taken from it, where the kernel counts that (CONFIG_PAGE_POOL_STATS).
    pub counts: Option<PoolCounts>,
}

/// How pages were taken from a pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolCounts {
    /// From its cache.
    pub fast: u64,
    /// From behind it: the page allocator, or the device memory that was bound.
    pub slow: u64,
    /// Of those, because nothing had come back.
    pub empty: u64,
}

/// The pools of an interface (Linux 6.8).
///
/// # Errors
/// [`Error::Refused`], [`Error::System`], [`Error::NoFamily`], [`Error::Message`].
pub fn page_pools(socket: &mut Socket, interface: u32) -> Result<Vec<PagePool>, Error> {
    let family = socket.family(FAMILY)?;
    let mut pools = Vec::new();
    socket.ask("the page pools", dump(family, POOL_GET), |attrs| {
        pools.extend(pool(attrs, interface)?);
        Ok(())
    })?;
    let counted = socket.ask("the page pools' statistics", dump(family, STATS_GET), |attrs| {
        let info = Attrs(attrs.get(STATS_INFO)?.unwrap_or_default());
        let id = info.uint(POOL_ID)?;
        if let Some(pool) = pools.iter_mut().find(|pool: &&mut PagePool| Some(pool.id) == id) {
            let count = |kind| attrs.uint(kind).map(Option::unwrap_or_default);
            pool.counts =
                Some(PoolCounts { fast: count(STATS_FAST)?, slow: count(STATS_SLOW)?, empty: count(STATS_EMPTY)? });
        }
        Ok(())
    });
    match counted {
        // A kernel that does not count.
        Err(Error::Refused { .. }) | Ok(()) => Ok(pools),
        Err(error) => Err(error),
    }
}

fn pool(attrs: Attrs<'_>, interface: u32) -> Result<Option<PagePool>, Error> {
    if attrs.u32(POOL_IFINDEX)? != Some(interface) {
        return Ok(None);
    }
    let or_none = |kind| attrs.uint(kind).map(Option::unwrap_or_default);
    Ok(Some(PagePool {
        id: or_none(POOL_ID)?,
        napi: attrs.uint(POOL_NAPI)?,
        pages: or_none(POOL_INFLIGHT)?,
        bytes: or_none(POOL_BYTES)?,
        // A number since 6.12; a later kernel may nest it.
        dmabuf: attrs.u32(POOL_DMABUF).unwrap_or(None),
        detached: attrs.get(POOL_DETACHED)?.is_some(),
        counts: None,
    }))
}

/// Of each receive queue that the driver counts for, by its number: how often it had no page for a packet (Linux 6.10). A driver
/// that counts nothing: none.
///
/// # Errors
/// [`Error::Refused`], with `ENODEV` for no such interface; [`Error::System`], [`Error::NoFamily`], [`Error::Message`].
pub fn starved(socket: &mut Socket, interface: u32) -> Result<Vec<(u32, u64)>, Error> {
    let family = socket.family(FAMILY)?;
    let mut queues = Vec::new();
    let ask = dump(family, QSTATS_GET).u32(QSTATS_IFINDEX, interface).u32(QSTATS_SCOPE, SCOPE_QUEUE);
    let asked = socket.ask("the statistics of queues", ask, |attrs| {
        let (queue, receive) = (attrs.u32(QSTATS_QUEUE)?, attrs.u32(QSTATS_TYPE)? == Some(0));
        if let (Some(queue), true, Some(count)) = (queue, receive, attrs.uint(QSTATS_NO_PAGE)?) {
            queues.push((queue, count));
        }
        Ok(())
    });
    match asked {
        Err(error) if error.errno() == Some(libc::EOPNOTSUPP) => Ok(Vec::new()),
        other => other.map(|()| queues),
    }
}

#[cfg(test)]
mod tests;
