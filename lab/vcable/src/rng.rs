//! The one source of chance: a small seeded generator, so that a run comes again from its seed.

/// SplitMix64 (Steele, Lea, Flood, 2014): enough for choosing which packet to lose.
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    /// A generator that always gives the same numbers for the same seed.
    pub fn new(seed: u64) -> Rng {
        Rng(seed)
    }

    /// The next 64 bits.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `bound`; 0 when `bound` is 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        if bound == 0 { 0 } else { self.next_u64() % bound }
    }

    /// True with a probability of `p` (0 to 1).
    pub fn chance(&mut self, p: f64) -> bool {
        // 53 bits: what a double holds exactly.
        ((self.next_u64() >> 11) as f64) < p * (1u64 << 53) as f64
    }
}
