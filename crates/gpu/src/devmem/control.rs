//! Control messages of a device-memory socket.

/// `SOL_SOCKET`.
const SOL_SOCKET: i32 = 1;
/// `SCM_DEVMEM_LINEAR`: bytes that the kernel copied to the buffer of the call.
const LINEAR: i32 = 78;
/// `SCM_DEVMEM_DMABUF`: bytes in the bound dma-buf.
const DMABUF: i32 = 79;

/// `struct cmsghdr` on 64-bit machines: length (with this header), level, type. What follows begins and ends at multiples
/// of 8.
const HEADER: usize = 16;

/// `struct dmabuf_cmsg`: offset u64, size, token, dma-buf id, flags u32.
const BODY: usize = 24;

/// A part of what one call has received, in the order of the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fragment {
    /// In the dma-buf, until its token is given back.
    Device {
        /// Offset in the dma-buf.
        offset: u64,
        /// Bytes.
        len: u32,
        /// What gives the page back.
        token: u32,
        /// Which binding.
        dmabuf: u32,
    },
    /// The next bytes of the call's own buffer.
    Linear {
        /// Bytes.
        len: u32,
    },
}

impl Fragment {
    /// Bytes of the stream that this message describes.
    pub fn len(&self) -> u32 {
        match *self {
            Fragment::Device { len, .. } | Fragment::Linear { len } => len,
        }
    }

    /// Its first `at` bytes, and the rest: none where there are not more. Both have the token, which goes back once.
    pub fn split(self, at: u32) -> (Fragment, Option<Fragment>) {
        let rest = self.len().saturating_sub(at);
        let at = self.len() - rest;
        let (first, then) = match self {
            Fragment::Linear { .. } => (Fragment::Linear { len: at }, Fragment::Linear { len: rest }),
            Fragment::Device { offset, token, dmabuf, .. } => (
                Fragment::Device { offset, len: at, token, dmabuf },
                Fragment::Device { offset: offset.saturating_add(at.into()), len: rest, token, dmabuf },
            ),
        };
        (first, (rest > 0).then_some(then))
    }

    /// Whether it holds none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Control data that no kernel writes; the socket cannot be trusted any more.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadControl {
    /// A message longer than what is there, or shorter than its header.
    #[error(
        "LS1320 a control message of {len} bytes where {left} are left; the kernel's layout is not the one we know"
    )]
    Length {
        /// What it says.
        len: u64,
        /// What there is.
        left: usize,
    },
    /// A device-memory message of another size.
    #[error(
        "LS1321 a device-memory control message with {len} bytes in place of 24; this kernel is newer than we know"
    )]
    Body {
        /// Its bytes.
        len: usize,
    },
    /// The parts are not as long as what the call received.
    #[error("LS1322 fragments of {fragments} bytes for {received} bytes received")]
    Sum {
        /// Their bytes.
        fragments: u64,
        /// What recvmsg returned.
        received: usize,
    },
}

/// The fragments of one call.
#[derive(Clone, Debug)]
pub struct Fragments<'a> {
    control: &'a [u8],
    received: usize,
    seen: u64,
    any: bool,
    over: bool,
}

/// The fragments of a call that returned `received` with this control data.
///
/// A call brings either device fragments (with linear ones between them) or ordinary host data without any such message,
/// as when a packet was not steered to a bound queue: that comes out as one linear fragment. Messages of other kinds
/// (timestamps) are skipped. The kernel never cuts a list short with data lost: where the control buffer is full it returns
/// what fits, and the rest with the next call.
pub fn fragments(received: usize, control: &[u8]) -> Fragments<'_> {
    Fragments { control, received, seen: 0, any: false, over: false }
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn long(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// Level, type and body.
type Message<'a> = (i32, i32, &'a [u8]);

impl Fragments<'_> {
    /// The next message's level, type and body; `None` at the end.
    fn message(&mut self) -> Result<Option<Message<'_>>, BadControl> {
        let left = self.control.len();
        let header = (long(self.control, 0), word(self.control, 8), word(self.control, 12));
        let (Some(len), Some(level), Some(kind)) = header else {
            // Fewer bytes than a header: padding.
            return Ok(None);
        };
        let all = usize::try_from(len).ok().filter(|&n| n >= HEADER && n <= left);
        let all = all.ok_or(BadControl::Length { len, left })?;
        let (message, _) = self.control.split_at(all);
        self.control = &self.control[all.next_multiple_of(8).min(left)..];
        Ok(Some((level as i32, kind as i32, &message[HEADER..])))
    }

    fn step(&mut self) -> Result<Option<Fragment>, BadControl> {
        while let Some((level, kind, body)) = self.message()? {
            if level != SOL_SOCKET || (kind != LINEAR && kind != DMABUF) {
                continue;
            }
            let fields = (long(body, 0), word(body, 8), word(body, 12), word(body, 16));
            let (BODY, (Some(offset), Some(len), Some(token), Some(dmabuf))) = (body.len(), fields) else {
                return Err(BadControl::Body { len: body.len() });
            };
            self.any = true;
            self.seen += u64::from(len);
            if self.seen > self.received as u64 {
                return Err(BadControl::Sum { fragments: self.seen, received: self.received });
            }
            let device = Fragment::Device { offset, len, token, dmabuf };
            return Ok(Some(if kind == DMABUF { device } else { Fragment::Linear { len } }));
        }
        if self.any && self.seen != self.received as u64 {
            return Err(BadControl::Sum { fragments: self.seen, received: self.received });
        }
        self.over = true;
        match u32::try_from(self.received) {
            Ok(len) if len > 0 && !self.any => Ok(Some(Fragment::Linear { len })),
            Ok(_) => Ok(None),
            Err(_) if self.any => Ok(None),
            Err(_) => Err(BadControl::Sum { fragments: 0, received: self.received }),
        }
    }
}

impl Iterator for Fragments<'_> {
    type Item = Result<Fragment, BadControl>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.over {
            return None;
        }
        let next = self.step();
        self.over |= next.is_err();
        next.transpose()
    }
}
