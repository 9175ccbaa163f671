//! Pieces of a message as they were received.

/// Most pieces in a batch: what NCCL takes for one receive (`NET_UNPACK_MAX_SLICE_PAGES`).
pub const PIECES: usize = 2048;

/// Bytes of a descriptor.
pub const PIECE_LEN: usize = 16;

/// A descriptor, laid out as NCCL's `loadMeta`: source offset, length, target offset; little-endian.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Piece {
    /// Offset in the pool.
    pub src: u32,
    /// Bytes.
    pub len: u32,
    /// Offset in the message.
    pub dst: u64,
}

const _: () = assert!(size_of::<Piece>() == PIECE_LEN);

impl Piece {
    /// The descriptor as the kernel reads it.
    pub fn to_bytes(self) -> [u8; PIECE_LEN] {
        let mut out = [0; PIECE_LEN];
        out[..4].copy_from_slice(&self.src.to_le_bytes());
        out[4..8].copy_from_slice(&self.len.to_le_bytes());
        out[8..].copy_from_slice(&self.dst.to_le_bytes());
        out
    }

    /// The descriptor of these bytes; those that are missing count as zero. For GPUs in software.
    #[cfg(feature = "sim")]
    pub fn from_bytes(bytes: &[u8]) -> Piece {
        let mut all = [0; PIECE_LEN];
        let n = bytes.len().min(PIECE_LEN);
        all[..n].copy_from_slice(&bytes[..n]);
        let [a, b, c, d, e, f, g, h, dst @ ..] = all;
        Piece {
            src: u32::from_le_bytes([a, b, c, d]),
            len: u32::from_le_bytes([e, f, g, h]),
            dst: u64::from_le_bytes(dst),
        }
    }
}

/// Why a piece was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Misfit {
    /// The batch is full: put it in place, then go on.
    Full,
    /// It is not inside of the pool.
    Source,
    /// It is not inside of the message.
    Target,
}

/// Pieces of one message, neighbours merged. Allocates when it is made and not again.
#[derive(Debug)]
pub struct Batch {
    pieces: Vec<Piece>,
    bytes: u64,
    pool: u64,
    target: u64,
}

impl Batch {
    /// For pieces of a pool of `pool` bytes (of which descriptors reach the first 4 GiB) and a message of `target`.
    pub fn new(pool: u64, target: u64) -> Batch {
        Batch { pieces: Vec::with_capacity(PIECES), bytes: 0, pool, target }
    }

    /// Takes a piece. One that goes on where the last one ended, in the pool and in the message, makes that one longer.
    ///
    /// # Errors
    /// [`Misfit::Full`], [`Misfit::Source`], [`Misfit::Target`]; the batch is unchanged then.
    pub fn push(&mut self, src: u64, len: u32, dst: u64) -> Result<(), Misfit> {
        let inside = |at: u64, limit: u64| at.checked_add(len.into()).is_some_and(|end| end <= limit);
        if !inside(src, self.pool.min(1 << 32)) {
            return Err(Misfit::Source);
        }
        if !inside(dst, self.target) {
            return Err(Misfit::Target);
        }
        if len == 0 {
            return Ok(());
        }
        // Below 4 GiB, as just checked.
        let src = src as u32;
        if let Some(last) = self.pieces.last_mut()
            && let Some(longer) = last.len.checked_add(len)
            && last.dst + u64::from(last.len) == dst
            && last.src.checked_add(last.len) == Some(src)
        {
            last.len = longer;
        } else if self.pieces.len() == PIECES {
            return Err(Misfit::Full);
        } else {
            self.pieces.push(Piece { src, len, dst });
        }
        self.bytes += u64::from(len);
        Ok(())
    }

    /// The descriptors.
    pub fn pieces(&self) -> &[Piece] {
        &self.pieces
    }

    /// Bytes in all.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Bytes of the longest piece.
    pub fn longest(&self) -> u32 {
        self.pieces.iter().map(|p| p.len).max().unwrap_or(0)
    }

    /// Bytes of the pool it was made for.
    pub fn pool(&self) -> u64 {
        self.pool
    }

    /// Bytes of the message it was made for.
    pub fn target(&self) -> u64 {
        self.target
    }

    /// Forgets the pieces, for the next message of `target` bytes.
    pub fn clear(&mut self, target: u64) {
        self.pieces.clear();
        self.bytes = 0;
        self.target = target;
    }
}
