//! The handshake: bytes of an authenticated stream in and out, no I/O of its own.
//!
//! Each side makes its queue pair, posts its receives and sends an offer. With the peer's offer it goes to RTR and RTS
//! and says that it is ready. When the peer has said so too it writes nothing to the peer, and once that is acknowledged
//! it says that packets pass. The rail begins when both have said so: no message can meet a queue pair that is not ready
//! for it, and a path that looks right and carries nothing is found here. The receives are there before RTR.

use std::time::{Duration, Instant};

use linkspan_transport::{HostBuf, MemSlice};
use linkspan_verbs_sys::{
    Access, Address, Completion, Cq, Gid, GidEntry, InitAttr, LinkLayer, Mtu, Nic, Port, Qp, QpCaps, RtrAttr, RtsAttr,
    SendOp, SendWr, Status,
};
use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::frame::SLOT;
use crate::gid::{choose_gid, words};
use crate::{Config, Domain, Error, VerbsRail};

/// Bytes in an [`QpOffer`].
pub const OFFER_LEN: usize = 48;

/// Bytes of the words that a side is ready, and that packets pass: a magic number, and the peer's queue pair number as
/// it was understood.
pub const READY_LEN: usize = 8;

/// Bytes that each side sends in all.
const TOTAL_LEN: usize = OFFER_LEN + 2 * READY_LEN;

const MAGIC: [u8; 4] = *b"LSVo";
const READY: [u8; 4] = *b"LSVr";
const PASSES: [u8; 4] = *b"LSVp";
const VERSION: u8 = 1;

/// Receives posted, and so frames that may be under way each way; a side may have more or fewer than its peer.
pub(crate) const SLOTS: u16 = 64;

/// Fewest receives that a peer may offer: one for credits, and some to work with.
const FEWEST: u16 = 4;

/// Requests in the send queue: a frame for each slot, and a write for each of 64 chunks.
const SENDS: u32 = 256;

/// What one side tells the other of its queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct QpOffer {
    magic: [u8; 4],
    version: u8,
    /// 1 InfiniBand, 2 Ethernet.
    link: u8,
    mtu: u8,
    rd_atomic: u8,
    lid: U16,
    pkey: U16,
    qpn: U32,
    psn: U32,
    slots: U16,
    zero: U16,
    slot_len: U32,
    zero2: U32,
    gid: [u8; 16],
}

const _: () = assert!(size_of::<QpOffer>() == OFFER_LEN);

impl QpOffer {
    /// Reads and checks an offer. Total over arbitrary bytes.
    ///
    /// # Errors
    /// [`Error::BadOffer`]: these bytes are no offer.
    pub fn decode(bytes: &[u8; OFFER_LEN]) -> Result<QpOffer, Error> {
        let offer: QpOffer = zerocopy::transmute!(*bytes);
        let bad = |why: String| Err(Error::BadOffer(why));
        if offer.magic != MAGIC {
            return bad(format!("it begins with {:02x?}", offer.magic));
        }
        if offer.version != VERSION {
            return bad(format!("version {}, this side has {VERSION}", offer.version));
        }
        if !matches!(offer.link, 1 | 2) {
            return bad(format!("link layer {}", offer.link));
        }
        if Mtu::from_u8(offer.mtu).is_none() {
            return bad(format!("MTU code {}", offer.mtu));
        }
        if offer.qpn.get() > 0xff_ffff || offer.psn.get() > 0xff_ffff {
            return bad(format!(
                "queue pair {:#x}, sequence {:#x}: more than 24 bits",
                offer.qpn.get(),
                offer.psn.get()
            ));
        }
        if offer.slots.get() < FEWEST || (offer.slot_len.get() as usize) < SLOT {
            return bad(format!("{} receives of {} bytes", offer.slots.get(), offer.slot_len.get()));
        }
        if offer.link == 1 && offer.lid.get() == 0 {
            return bad("no LID on InfiniBand".into());
        }
        if offer.link == 2 && Gid(offer.gid).is_zero() {
            return bad("no GID on Ethernet".into());
        }
        Ok(offer)
    }

    /// The bytes as they travel.
    pub fn as_wire(&self) -> &[u8; OFFER_LEN] {
        zerocopy::transmute_ref!(self)
    }

    fn layer(&self) -> LinkLayer {
        if self.link == 1 { LinkLayer::InfiniBand } else { LinkLayer::Ethernet }
    }
}

/// Parts of a rail that is being made.
pub(crate) struct Parts<N: Nic> {
    pub(crate) qp: N::Qp,
    pub(crate) cq: N::Cq,
    pub(crate) mr: N::Mr,
    pub(crate) ring: (MemSlice, HostBuf),
}

/// One side of a handshake.
pub struct Setup<N: Nic> {
    domain: Domain<N>,
    config: Config,
    parts: Option<Parts<N>>,
    port: Port,
    entry: Option<GidEntry>,
    ours: QpOffer,
    theirs: Option<QpOffer>,
    out: Vec<u8>,
    input: Vec<u8>,
    since: Instant,
    path: String,
    proof: Proof,
}

/// How far the write of nothing is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Proof {
    /// The peer is not ready yet.
    Early,
    Posted,
    Done,
}

impl<N: Nic> Setup<N> {
    /// Makes a queue pair with its receives posted, and its offer.
    ///
    /// # Errors
    /// [`Error::PortDown`], [`Error::NoGid`], [`Error::BadGid`], [`Error::Random`]; [`Error::Nic`] where the device
    /// refuses.
    pub fn new(domain: Domain<N>, config: Config) -> Result<Setup<N>, Error> {
        let nic = domain.nic();
        let device = nic.name().to_owned();
        let port = nic.port(config.port)?;
        if !port.active {
            return Err(Error::PortDown { device, port: config.port });
        }
        let table = nic.gids(config.port)?;
        let entry = entry(&table, &config, port.link, &device)?;
        let limits = nic.limits()?;
        let rd_atomic = config.rd_atomic.min(limits.rd_atomic).max(1);
        let sends = SENDS.min(limits.qp_wr);
        let recvs = u32::from(SLOTS).min(limits.qp_wr);
        // As many as both queues hold: so it cannot overflow.
        let cq = nic.cq(sends + recvs)?;
        let caps = QpCaps { send: sends, recv: recvs, sge: 1, inline: 128 };
        let mut qp = nic.qp(&cq, caps)?;
        let access = Access::REMOTE_WRITE;
        qp.init(&InitAttr { port: config.port, pkey_index: config.pkey_index, access })?;
        let ring = HostBuf::new(SLOT * 2 * usize::from(SLOTS));
        #[allow(unsafe_code)]
        // SAFETY: the region is dropped before the buffer, see the order of the fields here and of `VerbsRail`.
        let mem = unsafe { ring.slice() };
        let mr = nic.register(mem, Access::LOCAL_WRITE)?;
        VerbsRail::<N>::post_ring(&mut qp, &mr, recvs as u16)
            .map_err(|e| linkspan_verbs_sys::Error::errno("ibv_post_recv", &device, e.errno))?;
        let mut random = [0; 4];
        getrandom::fill(&mut random).map_err(|e| Error::Random(e.to_string()))?;
        let ours = QpOffer {
            magic: MAGIC,
            version: VERSION,
            link: if port.link == LinkLayer::InfiniBand { 1 } else { 2 },
            mtu: port.mtu as u8,
            rd_atomic,
            lid: port.lid.into(),
            pkey: nic.pkey(config.port, config.pkey_index)?.into(),
            qpn: qp.number().into(),
            psn: (u32::from_le_bytes(random) & 0xff_ffff).into(),
            slots: (recvs as u16).into(),
            zero: U16::ZERO,
            slot_len: (SLOT as u32).into(),
            zero2: U32::ZERO,
            gid: entry.map_or([0; 16], |e| e.gid.0),
        };
        let path = format!("{device}/{}", config.port);
        Ok(Setup {
            parts: Some(Parts { qp, cq, mr, ring: (mem, ring) }),
            domain,
            config,
            port,
            entry,
            ours,
            theirs: None,
            out: ours.as_wire().to_vec(),
            input: Vec::new(),
            since: Instant::now(),
            path,
            proof: Proof::Early,
        })
    }

    /// Bytes for the peer that were not taken yet; they must reach it, in their order.
    pub fn output(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.out)
    }

    /// Takes bytes that came from the peer, as many as are its; how many that were.
    ///
    /// # Errors
    /// [`Error::BadOffer`], [`Error::OtherLink`]: the bytes do not fit the handshake. [`Error::Nic`]: the device
    /// refuses what they ask for.
    pub fn input(&mut self, bytes: &[u8]) -> Result<usize, Error> {
        let mut used = 0;
        loop {
            let had = self.input.len();
            let want = match had {
                ..OFFER_LEN => OFFER_LEN,
                _ if had < OFFER_LEN + READY_LEN => OFFER_LEN + READY_LEN,
                _ if had < TOTAL_LEN => TOTAL_LEN,
                _ => return Ok(used),
            };
            let n = (want - had).min(bytes.len() - used);
            self.input.extend_from_slice(&bytes[used..used + n]);
            used += n;
            if self.input.len() < want {
                return Ok(used);
            }
            let word = &self.input[want - READY_LEN..];
            match want {
                OFFER_LEN => {
                    let mut offer = [0; OFFER_LEN];
                    offer.copy_from_slice(&self.input);
                    self.offered(QpOffer::decode(&offer)?)?;
                }
                TOTAL_LEN if word == told(PASSES, self.ours.qpn.get()) => {}
                TOTAL_LEN => return Err(Error::BadOffer(format!("{word:02x?} where its last message was expected"))),
                _ if word == told(READY, self.ours.qpn.get()) => self.prove()?,
                _ => return Err(Error::BadOffer(format!("{word:02x?} where its ready message was expected"))),
            }
        }
    }

    /// The peer is ready: writes nothing to it.
    fn prove(&mut self) -> Result<(), Error> {
        let Some(parts) = &mut self.parts else { return Ok(()) };
        let wr = SendWr { signalled: true, ..SendWr::new(0, SendOp::Write { addr: 0, rkey: 0 }, None) };
        parts.qp.post_send(&[wr]).map_err(|e| self.unproven(&format!("ibv_post_send ended with {}", e.errno)))?;
        self.proof = Proof::Posted;
        Ok(())
    }

    fn unproven(&self, why: &str) -> Error {
        Error::NothingPasses { path: self.path.clone(), why: why.to_owned() }
    }

    /// Looks whether packets pass; to be called again and again until [`Setup::is_done`].
    ///
    /// # Errors
    /// [`Error::NothingPasses`]: no packet arrives. [`Error::Nic`]: the device failed.
    pub fn poll(&mut self) -> Result<(), Error> {
        let (Proof::Posted, Some(parts)) = (self.proof, &mut self.parts) else { return Ok(()) };
        let mut list = [Completion::NONE; 1];
        if parts.cq.poll(&mut list)? == 0 {
            return Ok(());
        }
        if list[0].status != Status::Success {
            return Err(self.unproven(&format!("the first request ended with {:?}", list[0].status)));
        }
        self.proof = Proof::Done;
        if let Some(offer) = &self.theirs {
            self.out.extend_from_slice(&told(PASSES, offer.qpn.get()));
        }
        Ok(())
    }

    fn offered(&mut self, offer: QpOffer) -> Result<(), Error> {
        if offer.layer() != self.port.link {
            return Err(Error::OtherLink { ours: self.port.link, theirs: offer.layer() });
        }
        let Some(parts) = &mut self.parts else { return Ok(()) };
        let gid = Gid(offer.gid);
        let to = match self.entry {
            Some(entry) if self.port.link == LinkLayer::Ethernet => Address::Gid {
                gid,
                index: entry.index,
                hops: self.config.hops,
                class: self.config.traffic_class,
                lid: 0,
            },
            _ => Address::Lid { lid: offer.lid.get(), sl: self.config.service_level },
        };
        let mtu = self.port.mtu.min(Mtu::from_u8(offer.mtu).unwrap_or(Mtu::B256));
        parts.qp.ready_to_receive(&RtrAttr {
            to,
            qpn: offer.qpn.get(),
            psn: offer.psn.get(),
            mtu,
            port: self.config.port,
            rd_atomic: self.ours.rd_atomic,
            min_rnr: self.config.min_rnr,
        })?;
        parts.qp.ready_to_send(&RtsAttr {
            psn: self.ours.psn.get(),
            timeout: self.config.timeout,
            retry: self.config.retry,
            rnr_retry: self.config.rnr_retry,
            rd_atomic: self.ours.rd_atomic.min(offer.rd_atomic.max(1)),
        })?;
        let end = |gid: Gid, lid: u16| {
            gid.to_v4().map_or(if lid > 0 { format!("lid {lid}") } else { gid.to_string() }, |ip| ip.to_string())
        };
        let index = self.entry.map_or_else(String::new, |e| format!("GID {}, ", e.index));
        let rate = match self.port.speed {
            0 => "rate unknown".to_owned(),
            speed => format!("{} Gb/s", speed as f64 / 125e6),
        };
        self.path = format!(
            "{}/{} {} -> {} ({index}MTU {}, {rate}, queue pairs {:#x} -> {:#x})",
            self.domain.nic().name(),
            self.config.port,
            end(Gid(self.ours.gid), self.ours.lid.get()),
            end(gid, offer.lid.get()),
            mtu.bytes(),
            self.ours.qpn.get(),
            offer.qpn.get(),
        );
        self.out.extend_from_slice(&told(READY, offer.qpn.get()));
        self.theirs = Some(offer);
        Ok(())
    }

    /// Whether both sides know that packets pass. There may be [`Setup::output`] nevertheless.
    pub fn is_done(&self) -> bool {
        self.input.len() == TOTAL_LEN && self.proof == Proof::Done
    }

    /// The path as far as it is known, for reasons.
    pub fn path(&self) -> &str {
        &self.path
    }

    #[cfg(test)]
    pub(crate) fn take_parts(&mut self) -> Option<Parts<N>> {
        self.parts.take()
    }

    /// Checks the deadline of the handshake; returns the time that is left at `now`.
    ///
    /// # Errors
    /// [`Error::Deadline`]: the handshake did not end in time.
    pub fn check(&self, now: Instant) -> Result<Duration, Error> {
        let spent = now.saturating_duration_since(self.since);
        match self.config.deadline.checked_sub(spent) {
            Some(left) if !left.is_zero() => Ok(left),
            _ => Err(Error::Deadline {
                path: self.path.clone(),
                ms: self.config.deadline.as_millis(),
                got: u8::from(self.theirs.is_some())
                    + u8::from(self.input.len() >= OFFER_LEN + READY_LEN)
                    + u8::from(self.input.len() >= TOTAL_LEN),
            }),
        }
    }

    /// The rail, once [`Setup::is_done`]; else the handshake back.
    ///
    /// # Errors
    /// The handshake itself, where it is not complete yet.
    pub fn finish(mut self) -> Result<VerbsRail<N>, Box<Setup<N>>> {
        let done = self.is_done();
        match (self.theirs, self.parts.take()) {
            (Some(theirs), Some(parts)) if done => {
                let Parts { qp, cq, mr, ring } = parts;
                let (own, peer) = (self.ours.slots.get(), theirs.slots.get());
                Ok(VerbsRail::new(
                    self.domain,
                    self.config,
                    (self.port, self.entry),
                    self.path,
                    (qp, cq, mr, ring),
                    own,
                    peer,
                ))
            }
            (_, parts) => {
                self.parts = parts;
                Err(Box::new(self))
            }
        }
    }
}

fn told(word: [u8; 4], qpn: u32) -> [u8; READY_LEN] {
    let mut out = [0; READY_LEN];
    out[..4].copy_from_slice(&word);
    out[4..].copy_from_slice(&qpn.to_le_bytes());
    out
}

fn entry(table: &[GidEntry], config: &Config, link: LinkLayer, device: &str) -> Result<Option<GidEntry>, Error> {
    if link == LinkLayer::InfiniBand {
        return Ok(None); // goes by LID
    }
    let (device, port, seen) = (device.to_owned(), config.port, words(table));
    match config.gid_index {
        Some(index) => match table.iter().find(|e| e.index == index && !e.gid.is_link_local()) {
            Some(entry) => Ok(Some(*entry)),
            None => Err(Error::BadGid { device, port, index, seen }),
        },
        None => match choose_gid(table, config.ifindex, config.address) {
            Some(entry) => Ok(Some(entry)),
            None => Err(Error::NoGid { device, port, seen }),
        },
    }
}

/// Joins two sides in one process; for tests and tools.
///
/// # Errors
/// [`Error::BadOffer`], [`Error::OtherLink`], [`Error::NothingPasses`], [`Error::Deadline`], [`Error::Nic`].
pub fn join<A: Nic, B: Nic>(mut a: Setup<A>, mut b: Setup<B>) -> Result<(VerbsRail<A>, VerbsRail<B>), Error> {
    let since = Instant::now();
    loop {
        b.input(&a.output())?;
        a.input(&b.output())?;
        a.poll()?;
        b.poll()?;
        if a.is_done() && b.is_done() {
            match (a.finish(), b.finish()) {
                (Ok(a), Ok(b)) => return Ok((a, b)),
                _ => return Err(Error::BadOffer("both sides were done".into())),
            }
        }
        a.check(since.max(Instant::now()))?;
    }
}

#[cfg(test)]
mod tests;
