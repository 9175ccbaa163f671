//! Decisions off the front of an input. An exhausted input gives zeros, so that every input is a whole story.

/// The rest of an input.
#[derive(Clone, Copy, Debug)]
pub struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    pub fn new(bytes: &'a [u8]) -> Input<'a> {
        Input(bytes)
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// At most `n` bytes.
    pub fn bytes(&mut self, n: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(n.min(self.0.len()));
        self.0 = rest;
        taken
    }

    fn array<const N: usize>(&mut self) -> [u8; N] {
        let mut out = [0; N];
        let taken = self.bytes(N);
        out[..taken.len()].copy_from_slice(taken);
        out
    }

    pub fn u8(&mut self) -> u8 {
        u8::from_le_bytes(self.array())
    }

    pub fn u16(&mut self) -> u16 {
        u16::from_le_bytes(self.array())
    }

    pub fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.array())
    }

    /// A number below `n`, which is 1 to 256.
    pub fn below(&mut self, n: usize) -> usize {
        usize::from(self.u8()) % n.max(1)
    }

    /// One of them.
    pub fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())]
    }

    /// Mostly what an honest peer would say, else its neighbours, small numbers, or anything.
    pub fn near(&mut self, likely: u64) -> u64 {
        match self.u8() {
            0..=199 => likely,
            200..=209 => likely.wrapping_add(1),
            210..=219 => likely.wrapping_sub(1),
            220..=239 => u64::from(self.u16()),
            240..=247 => u64::MAX - u64::from(self.u8()),
            248..=255 => self.u64(),
        }
    }
}
