//! What the handshake says.

use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{NONCE_LEN, TOLD};
use crate::error::Error;
use crate::tier::{Cable, Tier};

const MAGIC: [u8; 4] = *b"LSTo";
const VERSION: u8 = 1;

/// One cable as it travels, little-endian.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct WireCable {
    /// 0: none here.
    tier: u8,
    zero: u8,
    ring: U16,
    in_hop: U16,
    out_hop: U16,
    local: [u8; 16],
    peer: [u8; 16],
}

/// The front of an offer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Front {
    magic: [u8; 4],
    version: u8,
    count: u8,
    zero: U16,
    nonce: [u8; NONCE_LEN],
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Whole {
    front: Front,
    told: [WireCable; TOLD],
}

/// Bytes of an offer.
pub const OFFER_LEN: usize = size_of::<Whole>();

/// What one side has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CableOffer {
    pub(crate) nonce: [u8; NONCE_LEN],
    told: Vec<WireCable>,
}

impl CableOffer {
    pub(crate) fn new(cables: &[Cable], nonce: [u8; NONCE_LEN]) -> CableOffer {
        let told = |cable: &Cable| WireCable {
            tier: cable.tier as u8,
            zero: 0,
            ring: U16::new(cable.ring),
            in_hop: U16::new(cable.hops.0),
            out_hop: U16::new(cable.hops.1),
            local: cable.local,
            peer: cable.peer,
        };
        CableOffer { nonce, told: cables.iter().take(TOLD).map(told).collect() }
    }

    pub(crate) fn encode(&self) -> [u8; OFFER_LEN] {
        let mut told = [WireCable::default(); TOLD];
        told[..self.told.len()].copy_from_slice(&self.told);
        let count = self.told.len() as u8;
        let front = Front { magic: MAGIC, version: VERSION, count, zero: U16::new(0), nonce: self.nonce };
        zerocopy::transmute!(Whole { front, told })
    }

    /// Total over arbitrary bytes.
    pub(crate) fn decode(bytes: &[u8]) -> Result<CableOffer, Error> {
        let bad = |what: &str| Error::BadOffer(what.to_owned());
        let bytes: [u8; OFFER_LEN] = bytes.try_into().map_err(|_| bad("its length"))?;
        let Whole { front, told } = zerocopy::transmute!(bytes);
        let count = usize::from(front.count);
        if front.magic != MAGIC || front.version != VERSION || front.zero.get() != 0 {
            return Err(bad("it is of another kind or version"));
        }
        if count == 0 || count > TOLD || told[count..].iter().any(|t| *t != WireCable::default()) {
            return Err(bad("the number of its cables"));
        }
        let good = |t: &WireCable| t.zero == 0 && Tier::from_u8(t.tier).is_some_and(|tier| tier != Tier::Net);
        if !told[..count].iter().all(good) {
            return Err(bad("a tier"));
        }
        Ok(CableOffer { nonce: front.nonce, told: told[..count].to_vec() })
    }

    /// Pairs of ours and theirs that join the two hosts, best first.
    pub(crate) fn joins(&self, theirs: &CableOffer) -> Vec<(usize, usize)> {
        let mut joins = Vec::new();
        for (i, a) in self.told.iter().enumerate() {
            for (j, b) in theirs.told.iter().enumerate() {
                let hosts = a.local == b.peer && a.peer == b.local && a.tier == b.tier;
                let hops = a.in_hop == b.out_hop && a.out_hop == b.in_hop;
                if hosts && hops {
                    joins.push((i, j));
                }
            }
        }
        // Cables between the same host interfaces look alike: they are likely to be in the same order on both hosts. One that was lost is
        // offered alone, and the order says nothing: what looks alike is tried one after the other, before the next stream.
        let place = |told: &[WireCable], n: usize| {
            let alike = |t: &&WireCable| {
                (t.tier, t.local, t.peer, t.in_hop) == (told[n].tier, told[n].local, told[n].peer, told[n].in_hop)
            };
            told[..n].iter().filter(alike).count()
        };
        joins.sort_by_key(|(i, j)| {
            let apart = place(&self.told, *i).abs_diff(place(&theirs.told, *j));
            (self.told[*i].tier, self.stream(*i), apart)
        });
        joins
    }

    /// Which stream of its cable: the same number on both hosts.
    pub(crate) fn stream(&self, at: usize) -> u16 {
        self.told.get(at).map_or(0, |t| t.in_hop.get().min(t.out_hop.get()))
    }

    pub(crate) fn ring(&self, at: usize) -> u32 {
        self.told.get(at).map_or(0, |t| t.ring.get().into())
    }

    pub(crate) fn has(&self, tier: Tier) -> bool {
        self.told.iter().any(|t| t.tier == tier as u8)
    }
}

/// What is said after the offers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Word {
    /// The caller has opened its cable `own`, the peer's `their`, and these channels.
    Try { own: usize, their: usize, channels: (u32, u32) },
    /// The answerer has too. `of`: the how manieth try, from 1.
    Yes { of: u16 },
    /// It cannot, or what came over it is not the peer's.
    No { of: u16 },
    /// There is nothing left to try.
    None,
    /// What the cable brought is what the peer told.
    Passes { of: u16 },
}

/// Bytes of a word.
pub(crate) const WORD_LEN: usize = 16;

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Raw {
    tag: [u8; 4],
    own: U16,
    their: U16,
    channels: [U32; 2],
}

impl Word {
    pub(crate) fn encode(self) -> [u8; WORD_LEN] {
        let (tag, own, their, channels) = match self {
            Word::Try { own, their, channels } => (*b"LSTt", own, their, channels),
            Word::Yes { of } => (*b"LSTy", usize::from(of), 0, (0, 0)),
            Word::No { of } => (*b"LSTn", usize::from(of), 0, (0, 0)),
            Word::None => (*b"LST0", 0, 0, (0, 0)),
            Word::Passes { of } => (*b"LSTp", usize::from(of), 0, (0, 0)),
        };
        let channels = [U32::new(channels.0), U32::new(channels.1)];
        zerocopy::transmute!(Raw { tag, own: U16::new(own as u16), their: U16::new(their as u16), channels })
    }

    /// Total over arbitrary bytes.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Word, Error> {
        let bytes: [u8; WORD_LEN] =
            bytes.try_into().map_err(|_| Error::BadOffer("a message of another length".into()))?;
        let raw: Raw = zerocopy::transmute!(bytes);
        let word = match &raw.tag {
            b"LSTt" => Word::Try {
                own: raw.own.get().into(),
                their: raw.their.get().into(),
                channels: (raw.channels[0].get(), raw.channels[1].get()),
            },
            b"LSTy" => Word::Yes { of: raw.own.get() },
            b"LSTn" => Word::No { of: raw.own.get() },
            b"LST0" => Word::None,
            b"LSTp" => Word::Passes { of: raw.own.get() },
            tag => return Err(Error::BadOffer(format!("{tag:02x?} where a message was expected"))),
        };
        if word.encode() != bytes {
            return Err(Error::BadOffer("a message longer than its header says".into()));
        }
        Ok(word)
    }
}

/// Decodes any bytes as an offer or a word; for the fuzz target. Whether they are one.
#[doc(hidden)]
pub fn is_handshake(bytes: &[u8]) -> bool {
    let offer = CableOffer::decode(bytes).inspect(|offer| {
        assert_eq!(&offer.encode()[..], bytes, "one offer, two forms");
    });
    let word = Word::decode(bytes).inspect(|word| {
        assert_eq!(&word.encode()[..], bytes, "one word, two forms");
    });
    offer.is_ok() || word.is_ok()
}
