//! Memory that its owner writes after it was registered: the driver sends what is there now, and takes nothing of it back.

use linkspan_tbring::{Access, Ring, RingMr};
use linkspan_transport::StaticBuf;

use crate::how::{How, next};
use crate::{Done, bytes_of, closed, expect, fill, open, text};

/// All of it; messages that are copied and that are not, aligned to nothing: where each lies and its bytes.
const ALL: u64 = 64 << 10;
const MESSAGES: [(u64, u64); 3] = [(100, 4000), (5000, 20_000), (32_768, 16_384)];

/// Registered with other bytes in it than it has then.
fn rewritten(ring: &Ring) -> Result<(StaticBuf, RingMr), String> {
    let memory = StaticBuf::new(ALL as usize);
    fill(&memory, 0, &bytes_of(1, ALL))?;
    let region = ring.register(memory.slice(), Access::Both).map_err(text)?;
    fill(&memory, 0, &bytes_of(2, ALL))?;
    Ok((memory, region))
}

fn same(memory: &StaticBuf, right: &[u8], when: &str) -> Done {
    let found = memory.slice().to_vec();
    let wrong = found.iter().zip(right).position(|(a, b)| a != b);
    expect(wrong.is_none(), || format!("{when}: byte {wrong:?} is not what it should be"))
}

/// Sends what is there now.
pub(crate) fn send(device: &str, channel: u32) -> Done {
    let mut ring = open(device)?;
    let (memory, region) = rewritten(&ring)?;
    let reply = StaticBuf::new(8);
    let reply_region = ring.register(reply.slice(), Access::Receive).map_err(text)?;
    ring.open_channel(channel).map_err(text)?;
    for (at, length) in MESSAGES {
        expect(ring.send(channel, &region, at, length, at).map_err(text)?, || "no space".into())?;
        next(&mut ring, How::Sleep)?;
    }
    same(&memory, &bytes_of(2, ALL), "sent")?;
    drop(region);
    same(&memory, &bytes_of(2, ALL), "let go")?;
    ring.receive(channel, &reply_region, 0, 8, 1).map_err(text)?;
    next(&mut ring, How::Sleep).map(drop)
}

/// Receives beside what is there now.
pub(crate) fn receive(device: &str, channel: u32) -> Done {
    let mut ring = open(device)?;
    let (memory, region) = rewritten(&ring)?;
    ring.open_channel(channel).map_err(text)?;
    let mut right = bytes_of(2, ALL);
    for (at, length) in MESSAGES {
        // As sent: the same places of the same bytes, which are others here until they come.
        fill(&memory, at, &bytes_of(3, length))?;
        expect(ring.receive(channel, &region, at, length, at).map_err(text)?, || "no space".into())?;
        next(&mut ring, How::Sleep)?;
        same(&memory, &right, "received")?;
    }
    // The owner's once more, and over what has come.
    fill(&memory, 4096, &bytes_of(4, 8192))?;
    right[4096..12_288].copy_from_slice(&bytes_of(4, 8192));
    drop(region);
    same(&memory, &right, "let go")?;
    println!("{} messages into memory that was written to before and after", MESSAGES.len());
    let word = ring.register(memory.slice(), Access::Both).map_err(text)?;
    ring.send(channel, &word, 0, 8, 1).map_err(text)?;
    next(&mut ring, How::Sleep)?;
    closed(&mut ring, channel, &word)
}
