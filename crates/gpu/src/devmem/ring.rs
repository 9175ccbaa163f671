//! Zero-copy receive by io_uring, without I/O: from completions to the same fragments that control messages tell of, and
//! pages back into the refill ring.
//!
//! Sources of the numbers: Linux 6.15 and later, `include/uapi/linux/io_uring.h` (`IORING_CQE_F_*`) and
//! `include/uapi/linux/io_uring/zcrx.h` (`io_uring_zcrx_cqe`, `io_uring_zcrx_rqe`, `IORING_ZCRX_AREA_SHIFT`).

use super::Fragment;

/// Bytes of a buffer of the area, unless another size was asked for.
pub const PAGE: u64 = 4096;

/// Most entries of a refill ring (`IO_RQ_MAX_ENTRIES`).
pub const MOST_REFILLS: u32 = 32 << 10;

/// The bit from which an offset names its area.
const AREA_SHIFT: u32 = 48;

/// `IORING_CQE_F_MORE`, `IORING_CQE_F_SKIP`.
const MORE: u32 = 2;
const SKIP: u32 = 32;

/// linux: asm-generic/errno-base.h, errno.h.
const EINTR: i32 = 4;
const EAGAIN: i32 = 11;
const ENOMEM: i32 = 12;
const EFAULT: i32 = 14;
const ENOSPC: i32 = 28;
const ENOBUFS: i32 = 105;

/// `struct io_uring_cqe` of 32 bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Completion {
    /// What the request carried.
    pub user_data: u64,
    /// Bytes, or an error's number below 0.
    pub res: i32,
    /// `IORING_CQE_F_*`.
    pub flags: u32,
    /// Area and offset in it (`io_uring_zcrx_cqe`).
    pub off: u64,
}

/// What has become of the request that receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestState {
    /// The kernel has none: make one.
    Idle,
    /// It works.
    Armed,
    /// It ended because the area has no free page: give some back, then make another.
    Dry,
    /// It ended at bytes that lie in host memory, which it cannot put into the area: receive those by recv(2).
    OnHost,
    /// The peer has closed the stream.
    End,
    /// The stream failed with this error.
    Failed(i32),
}

/// A completion that no kernel posts; the ring cannot be trusted any more.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("LS1323 an impossible completion ({what}): {completion:?}; the kernel's layout is not the one we know")]
pub struct BadCompletion {
    /// What is wrong with it.
    pub what: &'static str,
    /// It.
    pub completion: Completion,
}

/// Follows the one request that receives. It takes a window of bytes and ends, so that a peer fills no more than that of the
/// area before it is read.
#[derive(Debug)]
pub struct Arrivals {
    user_data: u64,
    /// Bytes of the area.
    area: u64,
    /// The kernel's number for the area, in its place in offsets.
    token: u64,
    /// What fragments are told to belong to.
    id: u32,
    left: u64,
    state: RequestState,
}

impl Arrivals {
    /// For requests with this mark, and an area of `area` bytes that the kernel gave this token.
    pub fn new(user_data: u64, area: u64, token: u64, id: u32) -> Arrivals {
        Arrivals { user_data, area, token: token >> AREA_SHIFT << AREA_SHIFT, id, left: 0, state: RequestState::Idle }
    }

    /// The state of the receive request.
    pub fn state(&self) -> RequestState {
        self.state
    }

    /// To be called when a receive request for `window` bytes was submitted.
    pub fn armed(&mut self, window: u64) {
        (self.state, self.left) = (RequestState::Armed, window);
    }

    /// To be called when what stopped the request has ended (pages were given back): the next request may be submitted.
    pub fn resumed(&mut self) {
        if matches!(self.state, RequestState::Dry | RequestState::OnHost) {
            self.state = RequestState::Idle;
        }
    }

    /// To be called when recv(2) returned the end of the stream.
    pub fn ended(&mut self) {
        self.state = RequestState::End;
    }

    /// Takes the next completion: payload, or news for [`Arrivals::state`].
    ///
    /// # Errors
    /// [`BadCompletion`]: the kernel reported what it cannot have received; nothing has changed then.
    pub fn take(&mut self, completion: Completion) -> Result<Option<Fragment>, BadCompletion> {
        let bad = |what| Err(BadCompletion { what, completion });
        if completion.flags & SKIP != 0 {
            return Ok(None);
        }
        if completion.user_data != self.user_data {
            return bad("of a request that was never made");
        }
        if self.state != RequestState::Armed {
            return bad("of a request that has ended");
        }
        let last = completion.flags & MORE == 0;
        let Ok(len @ 1..) = u32::try_from(completion.res) else {
            if last {
                self.state = match completion.res.saturating_neg() {
                    0 if self.left == 0 => RequestState::Idle,
                    0 => RequestState::End,
                    EINTR | EAGAIN | ENOSPC | ENOBUFS => RequestState::Idle,
                    ENOMEM => RequestState::Dry,
                    EFAULT => RequestState::OnHost,
                    error => RequestState::Failed(error),
                };
            }
            return Ok(None);
        };
        if completion.off >> AREA_SHIFT << AREA_SHIFT != self.token {
            return bad("of another area");
        }
        let offset = completion.off - self.token;
        let within = offset % PAGE + u64::from(len) <= PAGE;
        let Ok(page) = u32::try_from(offset / PAGE) else { return bad("outside of the area") };
        if !within || offset + u64::from(len) > self.area {
            return bad("outside of a page of the area");
        }
        if u64::from(len) > self.left {
            return bad("more bytes than were asked for");
        }
        self.left -= u64::from(len);
        if last {
            self.state = RequestState::Idle;
        }
        Ok(Some(Fragment::Device { offset, len, token: page, dmabuf: self.id }))
    }
}

/// The kernel's place in the refill ring is beyond ours, or a page was given back twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadRefill {
    /// The kernel took what was never given.
    #[error("LS1324 the kernel has taken {taken} entries of a refill ring that holds {given}")]
    Head {
        /// Entries that it says it took since.
        taken: u32,
        /// Entries that were there.
        given: u32,
    },
    /// No such page.
    #[error("LS1325 page {page} is given back, of an area of {pages}")]
    Page {
        /// Its number.
        page: u32,
        /// Pages of the area.
        pages: usize,
    },
}

/// Keeps the place in the refill ring. The kernel counts one use of a page for each completion, and takes one entry for each;
/// a completion that was handed on in parts has one token for each part and still one entry.
#[derive(Debug)]
pub struct Refill {
    entries: u32,
    tail: u32,
    head: u32,
    /// For each page, tokens beyond the kernel's count.
    extra: Box<[u32]>,
}

/// Entries of a refill ring for so many pages: a power of two, space for two uses of each, within the kernel's limit.
pub fn refills(pages: u64) -> u32 {
    u32::try_from(pages.saturating_mul(2)).unwrap_or(u32::MAX).clamp(64, MOST_REFILLS).next_power_of_two()
}

impl Refill {
    /// For a ring of `entries`, a power of two, and an area of so many pages.
    pub fn new(entries: u32, pages: usize) -> Refill {
        Refill { entries: entries.max(1), tail: 0, head: 0, extra: vec![0; pages].into() }
    }

    /// To be called with the kernel's head index of the refill ring: entries before it were taken.
    ///
    /// # Errors
    /// [`BadRefill::Head`]: the kernel says that it took more entries than it was given.
    pub fn kernel_at(&mut self, head: u32) -> Result<(), BadRefill> {
        let (taken, given) = (head.wrapping_sub(self.head), self.tail.wrapping_sub(self.head));
        if taken > given {
            return Err(BadRefill::Head { taken, given });
        }
        self.head = head;
        Ok(())
    }

    /// Free entries of the refill ring.
    pub fn space(&self) -> u32 {
        self.entries - self.tail.wrapping_sub(self.head)
    }

    /// Counts one more user of a page whose fragment was split.
    pub fn parted(&mut self, page: u32) {
        if let Some(extra) = self.extra.get_mut(page as usize) {
            *extra += 1;
        }
    }

    /// A token of this page is returned: where in the ring its entry goes, with [`Refill::space`] for it. `None`: other parts
    /// of it are still out, and there is nothing to write.
    ///
    /// # Errors
    /// [`BadRefill::Page`]: the number is beyond the area.
    pub fn back(&mut self, page: u32) -> Result<Option<u32>, BadRefill> {
        let pages = self.extra.len();
        let extra = self.extra.get_mut(page as usize).ok_or(BadRefill::Page { page, pages })?;
        if *extra > 0 {
            *extra -= 1;
            return Ok(None);
        }
        let slot = self.tail & (self.entries - 1);
        self.tail = self.tail.wrapping_add(1);
        Ok(Some(slot))
    }

    /// The tail index for the kernel: entries written so far, modulo 2^32.
    pub fn tail(&self) -> u32 {
        self.tail
    }
}

#[cfg(test)]
mod tests;
