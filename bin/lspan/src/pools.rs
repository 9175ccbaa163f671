//! The pages that network cards have given out, as the kernel counts them.

use linkspan_fabric::{Config, survey};
use linkspan_netdev::{PagePool, Socket, page_pools, starved};
use serde::Serialize;

/// Page pools of one kind: of host memory together, and each binding of device memory.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Pool {
    /// The binding; `null`: host memory.
    pub(crate) binding: Option<u32>,
    pools: u64,
    /// Pages that packets, sockets and processes have.
    pages: u64,
    bytes: u64,
    /// How often pages were taken, and of these how often nothing had come back; `null`: the kernel does not count.
    taken: Option<u64>,
    found_empty: Option<u64>,
}

/// The pools of an interface, and packets that found none with a page where its driver counts them. Empty where the kernel
/// knows of none.
pub(crate) fn of(socket: &mut Socket, interface: u32) -> (Vec<Pool>, Option<u64>) {
    let pools = page_pools(socket, interface).map(|all| by_binding(&all)).unwrap_or_default();
    let without = starved(socket, interface).unwrap_or_default();
    (pools, (!without.is_empty()).then(|| without.iter().map(|(_, n)| *n).sum()))
}

/// A card with its pools.
#[derive(Debug, Serialize)]
pub(crate) struct CardPools {
    pub(crate) interface: String,
    pools: Vec<Pool>,
    packets_without_page: Option<u64>,
}

/// The cards of this machine whose drivers keep pools that the kernel knows.
pub(crate) fn cards(config: &Config) -> Vec<CardPools> {
    let (Ok(mut socket), Ok(all)) = (Socket::open(), survey(config)) else { return Vec::new() };
    let look = |(interface, _): &(linkspan_topology::Interface, _)| {
        let (pools, packets_without_page) = of(&mut socket, interface.index);
        CardPools { interface: interface.name.clone(), pools, packets_without_page }
    };
    all.iter().map(look).filter(|card| !card.pools.is_empty()).collect()
}

/// A line for each pool, and one for packets without a page.
pub(crate) fn lines(cards: &[CardPools]) -> String {
    let mut text = String::new();
    for card in cards {
        for pool in &card.pools {
            text.push_str(&format!("{}: {pool}\n", card.interface));
        }
        if let Some(packets) = card.packets_without_page {
            text.push_str(&format!("{}: {packets} packets found no page\n", card.interface));
        }
    }
    text
}

/// Pools of host memory in one row, and a row for each binding.
pub(crate) fn by_binding(all: &[PagePool]) -> Vec<Pool> {
    let mut rows: Vec<Pool> = Vec::new();
    for pool in all {
        let at = rows.iter().position(|row| row.binding == pool.dmabuf).unwrap_or(rows.len());
        if at == rows.len() {
            rows.push(Pool { binding: pool.dmabuf, pools: 0, pages: 0, bytes: 0, taken: None, found_empty: None });
        }
        let row = &mut rows[at];
        (row.pools, row.pages, row.bytes) = (row.pools + 1, row.pages + pool.pages, row.bytes + pool.bytes);
        if let Some(counts) = pool.counts {
            *row.taken.get_or_insert(0) += counts.fast + counts.slow;
            *row.found_empty.get_or_insert(0) += counts.empty;
        }
    }
    rows.sort_by_key(|row| row.binding);
    rows
}

impl std::fmt::Display for Pool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.binding {
            Some(id) => write!(f, "binding {id} of GPU memory: ")?,
            None => write!(f, "host memory: ")?,
        }
        write!(f, "{} pages in use ({:.1} MiB) of {} pools", self.pages, self.bytes as f64 / 1048576.0, self.pools)?;
        match (self.taken, self.found_empty) {
            (Some(taken), Some(empty)) => write!(f, "; taken {taken} times, {empty} of them with nothing given back"),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests;
