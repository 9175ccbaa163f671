//! What the tests of encrypted rails share.

use std::net::TcpStream;

pub(crate) use super::ciphers::ciphers;
use linkspan_proto::login::{Opener, RECORD_HEAD, RECORD_TAG, Sealer};
use linkspan_stream::{Options, Stream};
use linkspan_tcp::{RailConfig, SealedRail};
use linkspan_transport::{Down, Poll, Rail, Sink};

use super::{streams, until, with_raw};

pub(crate) fn sealed_rails(at: &str, options: &Options) -> (SealedRail, SealedRail) {
    seal_over(streams(at, options))
}

pub(crate) fn seal_over((a, b): (Stream, Stream)) -> (SealedRail, SealedRail) {
    let (left, right) = ciphers();
    (SealedRail::new(a, RailConfig::default(), left), SealedRail::new(b, RailConfig::default(), right))
}

/// The peer's end of a stream, with ciphers to do anything with.
pub(crate) struct Raw {
    pub(crate) stream: TcpStream,
    pub(crate) sealer: Sealer,
    pub(crate) opener: Opener,
}

pub(crate) fn sealed_with_raw() -> (SealedRail, Raw) {
    let (ours, raw) = with_raw();
    let (left, (sealer, opener)) = ciphers();
    (SealedRail::new(ours, RailConfig::default(), left), Raw { stream: raw, sealer, opener })
}

/// A record as it travels.
pub(crate) fn record(sealer: &mut Sealer, text: &[u8]) -> Vec<u8> {
    let mut body = text.to_vec();
    let (head, tag) = sealer.seal(&mut body).unwrap();
    [&head[..], &body, &tag].concat()
}

/// Opens the records in `bytes`, and says what is left of one that is not whole.
pub(crate) fn open_all<'a>(opener: &mut Opener, mut bytes: &'a [u8]) -> (Vec<Vec<u8>>, &'a [u8]) {
    let mut texts = Vec::new();
    while let Some((head, rest)) = bytes.split_first_chunk::<RECORD_HEAD>() {
        let len = Opener::text_len(*head).unwrap();
        let Some(body) = rest.get(..len + RECORD_TAG) else { break };
        let mut text = body[..len].to_vec();
        opener.open(&mut text, body[len..].try_into().unwrap()).unwrap();
        texts.push(text);
        bytes = &rest[len + RECORD_TAG..];
    }
    (texts, bytes)
}

/// Polls until the rail is down; what came before is in `sink`.
pub(crate) fn to_end(rail: &mut impl Rail, sink: &mut impl Sink) -> Down {
    until("the end of the rail", || rail.poll(sink).err())
}

/// Polls until nothing has come for a while.
pub(crate) fn to_silence(rail: &mut impl Rail, sink: &mut impl Sink) {
    let mut idle = 0;
    while idle < 20 {
        match rail.poll(sink).unwrap() {
            Poll::Active => idle = 0,
            Poll::Idle => idle += 1,
        }
    }
}

pub(crate) fn gone(down: &Down) -> &str {
    match down {
        Down::PeerGone { why, .. } => why,
        other => panic!("expected a peer that is gone, got {other:?}"),
    }
}

pub(crate) fn protocol(down: &Down) -> &str {
    match down {
        Down::Protocol { why, .. } => why,
        other => panic!("expected a broken protocol, got {other:?}"),
    }
}
