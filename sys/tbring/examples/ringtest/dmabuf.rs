//! dma-bufs: parts of them, wrong ones, and exporters that go.

use std::fs::File;
use std::os::fd::AsFd;
use std::time::Duration;

use linkspan_tbring::udmabuf::{PAGE, Udmabuf};
use linkspan_tbring::{Access, Error, Ring, RingMr};
use linkspan_transport::{Buf, StaticBuf};

use crate::how::{How, any, next};
use crate::{Done, bytes_of, expect, fill, open, text};

const P: u64 = PAGE as u64;

/// Pages of the dma-buf of which parts are used.
const PAGES: usize = 24;

/// Where in it the region begins, in pages, and how long it is: to the middle of a page.
const FIRST: u64 = 3;
const LENGTH: u64 = 17 * P + 1000;

/// Messages, by their place in the region: whole pages, parts of one, borders, the end.
const PARTS: [(u64, u64); 9] = [
    (0, P),
    (P + 1, 2 * P - 2),
    (4 * P - 1, 2),
    (5 * P - 7, 5000),
    (7 * P, 3 * P),
    (10 * P + 100, 1),
    (11 * P + 8, 3 * P),
    (15 * P + 4000, 100),
    (LENGTH - 6000, 6000),
];

fn udmabuf(bytes: usize) -> Result<Udmabuf, String> {
    Udmabuf::new(bytes).map_err(|e| format!("udmabuf: {e}"))
}

/// Sends parts of a dma-buf.
pub(crate) fn send(device: &str, channel: u32) -> Done {
    let mut ring = open(device)?;
    let memory = udmabuf(PAGES * PAGE)?;
    expect(memory.slice().fill(0, &bytes_of(1, PAGES as u64 * P)), || "too small".into())?;
    let fd = memory.dmabuf().ok_or("closed")?;
    let region = ring.register_dmabuf(fd, FIRST * P, LENGTH, Access::Send).map_err(text)?;
    ring.open_channel(channel).map_err(text)?;
    for (n, (at, length)) in (0u64..).zip(PARTS) {
        expect(ring.send(channel, &region, at, length, n).map_err(text)?, || "no space".into())?;
    }
    for _ in PARTS {
        next(&mut ring, How::Sleep)?;
    }
    println!("{} parts of a dma-buf sent", PARTS.len());
    answer(&mut ring, channel)
}

/// The other end of [`send`]: into a dma-buf that lies otherwise, of which nothing else changes.
pub(crate) fn receive(device: &str, channel: u32) -> Done {
    let mut ring = open(device)?;
    let memory = udmabuf(PAGES * PAGE)?;
    let mut right = bytes_of(2, PAGES as u64 * P);
    expect(memory.slice().fill(0, &right), || "too small".into())?;
    let fd = memory.dmabuf().ok_or("closed")?;
    let region = ring.register_dmabuf(fd, FIRST * P, LENGTH, Access::Receive).map_err(text)?;
    ring.open_channel(channel).map_err(text)?;
    // Each into the place from which another one was sent, as far as it fits: sources and targets lie differently in pages.
    let sent = bytes_of(1, PAGES as u64 * P);
    for (n, (at, length)) in (0u64..).zip(PARTS) {
        let to = target(n, at);
        expect(ring.receive(channel, &region, to, length, n).map_err(text)?, || "no space".into())?;
        let (from, to) = ((FIRST * P + at) as usize, (FIRST * P + to) as usize);
        right[to..to + length as usize].copy_from_slice(&sent[from..from + length as usize]);
    }
    // Each meets its message in order; a short one is there before a long one that came first has moved.
    for _ in PARTS {
        let done = next(&mut ring, How::Sleep)?;
        let right = PARTS.get(done.cookie as usize).map(|(_, length)| *length);
        expect(right == Some(done.length), || format!("{done:?}, expected {right:?} bytes"))?;
    }
    let found = memory.slice().to_vec();
    if let Some(wrong) = found.iter().zip(&right).position(|(a, b)| a != b) {
        return Err(format!("byte {wrong} of the dma-buf is {:#x}, not {:#x}", found[wrong], right[wrong]));
    }
    println!("{} parts received into a dma-buf, and nothing beside them", PARTS.len());
    tell(&mut ring, channel)
}

/// Every other part lands a little further: what was in step with the pages is not any more. None meets another.
fn target(n: u64, at: u64) -> u64 {
    match n {
        4 => at + 3,
        6 => at - 8,
        _ => at,
    }
}

/// The receiver says that it has all of it: the channel is closed with the ring.
fn answer(ring: &mut Ring, channel: u32) -> Done {
    let word = StaticBuf::new(8);
    let region = ring.register(word.slice(), Access::Receive).map_err(text)?;
    ring.receive(channel, &region, 0, 8, 1).map_err(text)?;
    next(ring, How::Sleep)?;
    expect(word.slice().to_vec() == *b"all here", || "the receiver has something else".into())
}

fn tell(ring: &mut Ring, channel: u32) -> Done {
    let (_word, region) = say(ring, channel)?;
    crate::closed(ring, channel, &region)
}

/// The word that [`answer`] waits for, and takes one completion.
fn say(ring: &mut Ring, channel: u32) -> Result<(StaticBuf, RingMr), String> {
    let word = StaticBuf::new(8);
    fill(&word, 0, b"all here")?;
    let region = ring.register(word.slice(), Access::Both).map_err(text)?;
    ring.send(channel, &region, 0, 8, 1).map_err(text)?;
    next(ring, How::Sleep)?;
    Ok((word, region))
}

/// Where every DMA goes through a bounce buffer none is taken, because its bytes would not be copied out.
pub(crate) fn bounced(device: &str) -> Done {
    let ring = open(device)?;
    let memory = udmabuf(8 * PAGE)?;
    let fd = memory.dmabuf().ok_or("closed")?;
    for access in [Access::Send, Access::Receive, Access::Both] {
        let made = ring.register_dmabuf(fd, 0, 8 * P, access);
        let found = made.as_ref().err().and_then(Error::errno);
        expect(found == Some(libc::EOPNOTSUPP), || format!("{access:?}: {made:?}"))?;
    }
    println!("dma-bufs are refused behind bounce buffers");
    Ok(())
}

/// Sizes, offsets and descriptors that are wrong, each with its error, and right ones beside them.
pub(crate) fn bad(device: &str) -> Done {
    let mut ring = open(device)?;
    let memory = udmabuf(8 * PAGE)?;
    let fd = memory.dmabuf().ok_or("closed")?;
    let null = File::open("/dev/null").map_err(|e| e.to_string())?;
    let cases = [
        ("the whole", fd, 0, 8 * P, 0),
        ("its last page", fd, 7 * P, P, 0),
        ("one byte", fd, 0, 1, 0),
        ("an odd length", fd, 2 * P, P + 1, 0),
        ("a byte too long", fd, 0, 8 * P + 1, libc::ERANGE),
        ("a page too long", fd, P, 8 * P, libc::ERANGE),
        ("behind its end", fd, 8 * P, 1, libc::ERANGE),
        ("far behind its end", fd, 1 << 40, P, libc::ERANGE),
        ("no length", fd, 0, 0, libc::EINVAL),
        ("an offset in a page", fd, 100, P, libc::EINVAL),
        ("around the end of numbers", fd, u64::MAX - P + 1, 2 * P, libc::EINVAL),
        ("a file that is none", null.as_fd(), 0, P, libc::EINVAL),
    ];
    for access in [Access::Send, Access::Receive, Access::Both] {
        for (what, fd, offset, length, errno) in cases {
            let made = ring.register_dmabuf(fd, offset, length, access);
            let found = made.as_ref().err().map_or(0, |e| e.errno().unwrap_or(-1));
            expect(found == errno, || format!("{what}, {access:?}: {found}, expected {errno}: {made:?}"))?;
        }
    }
    let region = ring.register_dmabuf(fd, P, 5 * P, Access::Both).map_err(text)?;
    ring.open_channel(210).map_err(text)?;
    for (at, length) in [(5 * P, 1), (0, 5 * P + 1), (4 * P, P + 1), (u64::MAX, 1)] {
        let out = ring.send(210, &region, at, length, 0);
        let into = ring.receive(210, &region, at, length, 0);
        let both = matches!((&out, &into), (Err(Error::Range { .. }), Err(Error::Range { .. })));
        expect(both, || format!("{length} bytes at {at}: {out:?}, {into:?}"))?;
    }
    // A dma-buf that one may only read cannot be received into, and regions are let go.
    let held =
        |n: usize| (0..n).map(|_| ring.register_dmabuf(fd, 0, 8 * P, Access::Both)).collect::<Result<Vec<_>, _>>();
    for _ in 0..3 {
        drop(held(300).map_err(text)?);
    }
    println!("{} dma-bufs registered, right and wrong, and 900 of the same", 3 * cases.len());
    Ok(())
}

/// Bytes of a message whose exporter goes.
const CHUNK: u64 = 256 << 10;

/// Sends from a dma-buf of which, once it is posted, only the driver has a reference: both descriptors are closed and
/// the memory is unmapped.
pub(crate) fn gone_send(device: &str, channel: u32, bytes: u64) -> Done {
    let mut ring = open(device)?;
    let mut memory = udmabuf(bytes as usize)?;
    expect(memory.slice().fill(0, &bytes_of(5, bytes)), || "too small".into())?;
    let region = {
        let fd = memory.dmabuf().ok_or("closed")?;
        ring.register_dmabuf(fd, 0, bytes, Access::Send).map_err(text)?
    };
    ring.open_channel(channel).map_err(text)?;
    ring.open_channel(channel + 1).map_err(text)?;
    for at in (0..bytes).step_by(CHUNK as usize) {
        expect(ring.send(channel, &region, at, CHUNK.min(bytes - at), at).map_err(text)?, || "no space".into())?;
    }
    ring.doorbell(0, Duration::ZERO, false).map_err(text)?;
    println!("sending");
    // The receiver asks for the first one, and for the others when it is told to.
    next(&mut ring, How::Sleep)?;
    memory.close();
    drop(memory);
    // What is mapped now may lie where the dma-buf's memory lay.
    let mut others: Vec<Udmabuf> = Vec::new();
    for _ in 0..4 {
        let other = udmabuf(bytes as usize)?;
        expect(other.slice().fill(0, &vec![0xEE; bytes as usize]), || "too small".into())?;
        others.push(other);
    }
    expect(any(&mut ring, How::Sleep, Duration::ZERO)?.is_none(), || "the others had left already".into())?;
    let _word = say(&mut ring, channel + 1)?;
    for _ in (CHUNK..bytes).step_by(CHUNK as usize) {
        next(&mut ring, How::Sleep)?;
    }
    expect(others.iter().all(|o| o.slice().to_vec().iter().all(|b| *b == 0xEE)), || "other memory changed".into())?;
    println!("{bytes} bytes sent, most of them after the exporter had gone");
    drop(region);
    answer(&mut ring, channel)
}

/// The other end of [`gone_send`], whose exporter goes too; its memory stays mapped, to be looked at.
pub(crate) fn gone_receive(device: &str, channel: u32, bytes: u64) -> Done {
    let mut ring = open(device)?;
    let mut memory = udmabuf(bytes as usize)?;
    let region = {
        let fd = memory.dmabuf().ok_or("closed")?;
        ring.register_dmabuf(fd, 0, bytes, Access::Receive).map_err(text)?
    };
    ring.open_channel(channel).map_err(text)?;
    ring.open_channel(channel + 1).map_err(text)?;
    let ask = |ring: &mut Ring, at: u64| -> Done {
        expect(ring.receive(channel, &region, at, CHUNK.min(bytes - at), at).map_err(text)?, || "no space".into())
    };
    ask(&mut ring, 0)?;
    println!("receiving");
    next(&mut ring, How::Sleep)?;
    answer(&mut ring, channel + 1)?;
    for at in (CHUNK..bytes).step_by(CHUNK as usize) {
        ask(&mut ring, at)?;
    }
    ring.doorbell(0, Duration::ZERO, false).map_err(text)?;
    memory.close();
    for _ in (CHUNK..bytes).step_by(CHUNK as usize) {
        next(&mut ring, How::Sleep)?;
    }
    expect(memory.slice().to_vec() == bytes_of(5, bytes), || "what came is not what was sent".into())?;
    println!("{bytes} bytes received into a dma-buf that was closed");
    drop(region);
    tell(&mut ring, channel)
}
