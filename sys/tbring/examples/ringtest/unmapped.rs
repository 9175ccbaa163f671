//! Memory that its owner unmaps after it was registered: the driver keeps the pages, and whatever is mapped there next is another's.

use linkspan_tbring::Access;
use linkspan_transport::{Buf, MemSlice};

use crate::how::{How, next};
use crate::{Done, bytes_of, closed, expect, open, text};

const CHUNK: u64 = 256 << 10;

/// A mapping at an address of the kernel's choice, or at this one in place of what is there.
fn map(bytes: u64, at: Option<MemSlice>) -> Result<MemSlice, String> {
    let (address, fixed) = at.map_or((std::ptr::null_mut(), 0), |at| (at.as_ptr().cast(), libc::MAP_FIXED));
    let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | fixed);
    // SAFETY: a fresh mapping, or one in place of a mapping of ours that only the driver uses.
    let base = unsafe { libc::mmap(address, bytes as usize, protection, flags, -1, 0) };
    expect(base != libc::MAP_FAILED, || std::io::Error::last_os_error().to_string())?;
    // SAFETY: mapped for as long as this process lives, or replaced by a mapping of the same size.
    Ok(unsafe { MemSlice::new(base.cast(), bytes as usize) })
}

/// Gone for a moment, then something else is there.
fn replace(memory: MemSlice, seed: u64) -> Done {
    let bytes = memory.len() as u64;
    // SAFETY: our own mapping, of which nothing in this program is used any more.
    let done = unsafe { libc::munmap(memory.as_ptr().cast(), memory.len()) };
    expect(done == 0, || std::io::Error::last_os_error().to_string())?;
    let again = map(bytes, Some(memory))?;
    expect(again.fill(0, &bytes_of(seed, bytes)), || "too small".into())
}

/// Sends what was there when it was registered.
pub(crate) fn send(device: &str, channel: u32, bytes: u64) -> Done {
    let mut ring = open(device)?;
    let memory = map(bytes, None)?;
    expect(memory.fill(0, &bytes_of(1, bytes)), || "too small".into())?;
    let region = ring.register(memory, Access::Send).map_err(text)?;
    ring.open_channel(channel).map_err(text)?;
    replace(memory, 2)?;
    for at in (0..bytes).step_by(CHUNK as usize) {
        expect(ring.send(channel, &region, at, CHUNK.min(bytes - at), at).map_err(text)?, || "no space".into())?;
    }
    for _ in (0..bytes).step_by(CHUNK as usize) {
        next(&mut ring, How::Sleep)?;
    }
    expect(memory.to_vec() == bytes_of(2, bytes), || "what was mapped there later has changed".into())?;
    println!("{bytes} bytes sent that are mapped nowhere any more");
    let word = map(4096, None)?;
    let reply = ring.register(word, Access::Receive).map_err(text)?;
    ring.receive(channel, &reply, 0, 8, 1).map_err(text)?;
    next(&mut ring, How::Sleep)?;
    Ok(())
}

/// Receives into pages that are not mapped any more, after a first part that is still looked at.
pub(crate) fn receive(device: &str, channel: u32, bytes: u64) -> Done {
    let mut ring = open(device)?;
    let (memory, seen) = (map(bytes, None)?, map(bytes, None)?);
    let (hidden, shown) =
        (ring.register(memory, Access::Receive).map_err(text)?, ring.register(seen, Access::Both).map_err(text)?);
    ring.open_channel(channel).map_err(text)?;
    replace(memory, 3)?;
    // Every other part goes to either.
    for (n, at) in (0..bytes).step_by(CHUNK as usize).enumerate() {
        let region = if n % 2 == 0 { &hidden } else { &shown };
        expect(ring.receive(channel, region, at, CHUNK.min(bytes - at), at).map_err(text)?, || "no space".into())?;
    }
    for _ in (0..bytes).step_by(CHUNK as usize) {
        next(&mut ring, How::Sleep)?;
    }
    expect(memory.to_vec() == bytes_of(3, bytes), || "what was mapped there later has changed".into())?;
    let (found, sent) = (seen.to_vec(), bytes_of(1, bytes));
    for at in (CHUNK as usize..bytes as usize).step_by(2 * CHUNK as usize) {
        let part = at..(at + CHUNK as usize).min(bytes as usize);
        expect(found[part.clone()] == sent[part], || format!("wrong bytes at {at}"))?;
    }
    println!("{bytes} bytes received, half of them where nothing is mapped any more");
    ring.send(channel, &shown, 0, 8, 1).map_err(text)?;
    next(&mut ring, How::Sleep)?;
    closed(&mut ring, channel, &shown)
}
