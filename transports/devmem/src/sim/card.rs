//! The card's pages and the kernel's tokens.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use linkspan_gpu::{Gpu, GpuBuf, GpuError};
use linkspan_transport::{Buf, MemSlice};

/// Numbers of bindings: never 0, never used again in the life of the process.
static NEXT: AtomicU32 = AtomicU32::new(1);

#[derive(Debug)]
pub(super) struct Card {
    pub(super) pool: MemSlice,
    pub(super) id: u32,
    pub(super) memory: Arc<GpuBuf>,
    /// Fragments in each page.
    held: Vec<u32>,
    free: usize,
    /// The page that the last segment ended in, and where; the next may go on there.
    last: Option<(u32, u32)>,
}

impl Card {
    pub(super) fn new(gpu: &Arc<dyn Gpu>, pages: u32) -> Result<Card, GpuError> {
        let memory = GpuBuf::new(gpu, pages as usize * 4096)?;
        #[allow(unsafe_code)]
        // SAFETY: the card keeps the memory beside the handle.
        let pool = unsafe { memory.slice() };
        // So that a byte that was not written can be recognised.
        let filled = pool.fill(0, &vec![0xBE; pool.len()]);
        debug_assert!(filled);
        Ok(Card {
            pool,
            id: NEXT.fetch_add(1, Ordering::Relaxed),
            memory: Arc::new(memory),
            held: vec![0; pages as usize],
            free: pages as usize,
            last: None,
        })
    }

    /// Pages with nothing in them.
    pub(super) fn free(&self) -> usize {
        self.free
    }

    /// A place for bytes: page, offset, space there. Holds the page once more. There is a free one.
    pub(super) fn place(&mut self, draw: u64, share: bool) -> (u32, u32, u32) {
        if let (true, Some((page, at))) = (share, self.last)
            && self.held[page as usize] > 0
            && at < 4096
        {
            self.held[page as usize] += 1;
            return (page, at, 4096 - at);
        }
        let n = self.held.len();
        let first = draw as usize % n;
        let page = (0..n).map(|i| (first + i) % n).find(|&p| self.held[p] == 0).unwrap_or(0);
        self.held[page] += 1;
        self.free -= 1;
        // Most drivers put payload at the page's begin, some behind a headroom.
        let at = if draw.is_multiple_of(3) { (draw >> 32) as u32 % 257 } else { 0 };
        (page as u32, at, 4096 - at)
    }

    /// The page is used up to there.
    pub(super) fn filled(&mut self, page: u32, end: u32) {
        self.last = Some((page, end));
    }

    /// One more fragment in a page.
    pub(super) fn hold(&mut self, page: u32) {
        self.held[page as usize] += 1;
    }

    /// One fragment less. Whether it was the last.
    pub(super) fn release(&mut self, page: u32) -> bool {
        let held = &mut self.held[page as usize];
        *held -= 1;
        let last = *held == 0;
        // Not `usize::from(last)`: rustc 1.95 optimizes that away (rust-lang/rust#158206).
        if last {
            self.free += 1;
        }
        last
    }
}

/// The kernel's numbers for fragments that user space has: the lowest free one each.
#[derive(Debug, Default)]
pub(super) struct Tokens(BTreeMap<u32, u32>);

impl Tokens {
    /// The lowest number that is not in use.
    pub(super) fn next(&self) -> u32 {
        let gap = self.0.keys().zip(0..).find(|(token, n)| **token != *n);
        gap.map_or(self.0.len() as u32, |(_, n)| n)
    }

    pub(super) fn give(&mut self, token: u32, page: u32) {
        self.0.insert(token, page);
    }

    /// Takes one back: its page. `None`: it is not in use.
    pub(super) fn take(&mut self, token: u32) -> Option<u32> {
        self.0.remove(&token)
    }
}
