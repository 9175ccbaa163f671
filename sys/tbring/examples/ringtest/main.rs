//! What the lab runs in its guests against linkspan.ko: one task for each word. Ends with 0 and a line that says what held.

mod dmabuf;
mod how;
mod lifetime;
mod plain;
mod rewrite;
mod scarce;
mod swap;
mod unmapped;

use std::fs::File;
use std::io::{Error as IoError, Read};
use std::os::fd::{AsFd, AsRawFd, FromRawFd};
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use linkspan_tbring::udmabuf::Udmabuf;
use linkspan_tbring::{Access, Error, Ring, RingMr, abi, info, pairs};
use linkspan_transport::{Buf, StaticBuf};

use how::{How, any, next};

type Done = Result<(), String>;

/// Longest that anything here may take: the guests are emulated. Ten times that where a program waits for the end of a whole test.
const LONG: Duration = Duration::from_secs(60);

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    let done = match words.as_slice() {
        ["info", device] => tell(device),
        ["send", device, channel, bytes, chunk, shift, seed, more @ ..] => {
            send(device, n(channel) as u32, n(bytes), n(chunk), n(shift), n(seed), more)
        }
        ["receive", device, channel, bytes, chunk, shift, seed, more @ ..] => {
            receive(device, n(channel) as u32, n(bytes), n(chunk), n(shift), n(seed), more)
        }
        ["echo", device, channel] => echo(device, n(channel) as u32),
        ["ping", device, channel, count, size, more @ ..] => {
            ping(device, n(channel) as u32, n(count), n(size), How::of(more))
        }
        ["hold", device, channel, more @ ..] => hold(device, n(channel) as u32, How::of(more)),
        ["endure", device, channel] => endure(device, n(channel) as u32),
        ["foreign", device, channel] => foreign(device, n(channel) as u32),
        ["slow", device, late, quick, count] => slow(device, n(late) as u32, n(quick) as u32, n(count)),
        ["pour", device, slow, quick, count] => pour(device, n(slow) as u32, n(quick) as u32, n(count)),
        ["bad", device] => bad(device),
        ["reopen", device, count] => lifetime::reopen(device, n(count)),
        ["hole-send", device, channel, word] => lifetime::hole_send(device, n(channel) as u32, n(word) as u32),
        ["hole-receive", device, channel, word] => lifetime::hole_receive(device, n(channel) as u32, n(word) as u32),
        ["inherit", device, channel] => lifetime::inherit(device, n(channel) as u32),
        ["limit", device] => limit(device),
        ["open-close", device, count] => open_close(device, n(count)),
        ["churn", device, count] => churn(device, n(count)),
        ["leave", device, channel, count] => leave(device, n(channel) as u32, n(count)),
        ["stay", device, channel, count] => stay(device, n(channel) as u32, n(count)),
        ["write", place, bytes, chunk, seed] => plain::write(place, n(bytes), n(chunk), n(seed)),
        ["read", place, bytes, chunk, seed] => plain::read(place, n(bytes), n(chunk), n(seed)),
        ["swap-send", device, channel, count, capacity] => swap::send(device, n(channel) as u32, n(count), n(capacity)),
        ["swap-receive", device, channel, count, capacity] => {
            swap::receive(device, n(channel) as u32, n(count), n(capacity))
        }
        ["dmabuf-bad", device] => dmabuf::bad(device),
        ["dmabuf-bounced", device] => dmabuf::bounced(device),
        ["dmabuf-send", device, channel] => dmabuf::send(device, n(channel) as u32),
        ["dmabuf-receive", device, channel] => dmabuf::receive(device, n(channel) as u32),
        ["dmabuf-gone-send", device, channel, bytes] => dmabuf::gone_send(device, n(channel) as u32, n(bytes)),
        ["dmabuf-gone-receive", device, channel, bytes] => dmabuf::gone_receive(device, n(channel) as u32, n(bytes)),
        ["unmapped-send", device, channel, bytes] => unmapped::send(device, n(channel) as u32, n(bytes)),
        ["unmapped-receive", device, channel, bytes] => unmapped::receive(device, n(channel) as u32, n(bytes)),
        ["rewrite-send", device, channel] => rewrite::send(device, n(channel) as u32),
        ["rewrite-receive", device, channel] => rewrite::receive(device, n(channel) as u32),
        ["squeeze", left] => scarce::squeeze(n(left)),
        ["event", device, channel] => event(device, n(channel) as u32),
        _ => Err("usage: ringtest TASK DEVICE ...".to_owned()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("ringtest {}: {why}", words.join(" "));
            ExitCode::FAILURE
        }
    }
}

fn n(word: &str) -> u64 {
    word.parse().expect("a number")
}

fn text(error: Error) -> String {
    error.to_string()
}

fn open(device: &str) -> Result<Ring, String> {
    How::Sleep.open(device)
}

fn expect(holds: bool, what: impl FnOnce() -> String) -> Done {
    if holds { Ok(()) } else { Err(what()) }
}

fn fill(buffer: &StaticBuf, offset: u64, bytes: &[u8]) -> Done {
    expect(buffer.slice().fill(offset, bytes), || "a buffer too small".into())
}

/// The bytes that belong to a seed: xorshift64.
fn bytes_of(seed: u64, count: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut all = Vec::with_capacity(count as usize + 8);
    while (all.len() as u64) < count {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        all.extend_from_slice(&state.to_le_bytes());
    }
    all.truncate(count as usize);
    all
}

/// Memory that is registered, and how it is looked at.
enum Memory {
    Host(StaticBuf, u64),
    Dmabuf(Udmabuf),
}

impl Memory {
    fn new(words: &[&str], bytes: u64, shift: u64) -> Result<Memory, String> {
        if !words.contains(&"dmabuf") {
            return Ok(Memory::Host(StaticBuf::new((bytes + shift) as usize), shift));
        }
        Udmabuf::new((bytes + shift) as usize).map(Memory::Dmabuf).map_err(|e| format!("udmabuf: {e}"))
    }

    fn register(&self, ring: &Ring, bytes: u64, access: Access) -> Result<RingMr, String> {
        match self {
            Memory::Host(buffer, shift) => {
                let slice = buffer.slice().sub(*shift, bytes).ok_or("a buffer too small")?;
                ring.register(slice, access).map_err(text)
            }
            Memory::Dmabuf(memory) => {
                let fd = memory.dmabuf().ok_or("closed")?;
                ring.register_dmabuf(fd, 0, bytes.next_multiple_of(4096), access).map_err(text)
            }
        }
    }

    fn write(&self, bytes: &[u8]) -> Done {
        match self {
            Memory::Host(buffer, shift) => fill(buffer, *shift, bytes),
            Memory::Dmabuf(memory) => expect(memory.slice().fill(0, bytes), || "a dma-buf too small".into()),
        }
    }

    fn read(&self, count: u64) -> Result<Vec<u8>, String> {
        let mut out = vec![0; count as usize];
        match self {
            Memory::Host(buffer, shift) => {
                expect(buffer.slice().read(*shift, &mut out), || "a buffer too small".into())?
            }
            Memory::Dmabuf(memory) => expect(memory.slice().read(0, &mut out), || "a dma-buf too small".into())?,
        }
        Ok(out)
    }
}

fn tell(device: &str) -> Done {
    let info = info(Path::new(device)).map_err(text)?;
    let raw = info.raw;
    println!("state={} epoch={} ring_size={} pairs={}", info.state.name(), raw.epoch, raw.ring_size, raw.ring_pairs);
    println!("in={:?} out={:?} speed={} width={}", raw.in_hopid, raw.out_hopid, raw.link_speed, raw.link_width);
    println!(
        "tx_frames={} rx_frames={} copied={} control={} doorbells={} restarts={}",
        raw.tx_frames, raw.rx_frames, raw.copied_bytes, raw.control_frames, raw.doorbells, raw.restarts
    );
    for (i, pair) in pairs(Path::new(device)).map_err(text)?.iter().enumerate() {
        let raw = pair.raw;
        println!(
            "pair {i} in {} out {} sent {} received {}: {}",
            raw.in_hopid, raw.out_hopid, raw.tx_frames, raw.rx_frames, pair.state
        );
    }
    Ok(())
}

/// Sends the bytes of a seed in messages of `chunk` bytes, as many at once as the queue takes.
fn send(device: &str, channel: u32, bytes: u64, chunk: u64, shift: u64, seed: u64, more: &[&str]) -> Done {
    let mut ring = How::of(more).open(device)?;
    let memory = Memory::new(more, bytes, shift)?;
    memory.write(&bytes_of(seed, bytes))?;
    let region = memory.register(&ring, bytes, Access::Send)?;
    ring.open_channel(channel).map_err(text)?;
    let before = ring.info().map_err(text)?.raw;
    println!("sending");
    let (mut at, mut under_way) = (0, 0);
    while at < bytes || under_way > 0 {
        while at < bytes && under_way < 64 {
            let length = chunk.min(bytes - at);
            if !ring.send(channel, &region, at, length, at).map_err(text)? {
                break;
            }
            at += length;
            under_way += 1;
        }
        next(&mut ring, How::of(more))?;
        under_way -= 1;
    }
    let after = ring.info().map_err(text)?.raw;
    println!(
        "sent {bytes} bytes, copied {}, doorbells {}",
        after.copied_bytes - before.copied_bytes,
        after.doorbells - before.doorbells
    );
    // The channel is closed with the ring: the receiver says that it has all of it.
    let reply = StaticBuf::new(8);
    let region = ring.register(reply.slice(), Access::Receive).map_err(text)?;
    ring.receive(channel, &region, 0, 8, 1).map_err(text)?;
    next(&mut ring, How::Sleep)?;
    expect(reply.slice().to_vec() == bytes.to_le_bytes(), || "the receiver has something else".into())
}

/// The other end of [`send`].
fn receive(device: &str, channel: u32, bytes: u64, chunk: u64, shift: u64, seed: u64, more: &[&str]) -> Done {
    let mut ring = How::of(more).open(device)?;
    let memory = Memory::new(more, bytes, shift)?;
    let region = memory.register(&ring, bytes, Access::Receive)?;
    ring.open_channel(channel).map_err(text)?;
    let before = ring.info().map_err(text)?.raw;
    println!("receiving");
    let (mut at, mut got, mut under_way) = (0, 0, 0);
    while got < bytes {
        while at < bytes && under_way < 64 {
            let length = chunk.min(bytes - at);
            if !ring.receive(channel, &region, at, length, at).map_err(text)? {
                break;
            }
            at += length;
            under_way += 1;
        }
        let done = next(&mut ring, How::of(more))?;
        expect(done.cookie == got, || format!("{done:?}: expected the one at {got}"))?;
        got += done.length;
        under_way -= 1;
    }
    let after = ring.info().map_err(text)?.raw;
    let (found, right) = (memory.read(bytes)?, bytes_of(seed, bytes));
    if let Some(wrong) = found.iter().zip(&right).position(|(a, b)| a != b) {
        return Err(format!("byte {wrong} of {bytes} is {:#x}, sent was {:#x}", found[wrong], right[wrong]));
    }
    println!("received {bytes} bytes, all right, copied {}", after.copied_bytes - before.copied_bytes);
    let reply = StaticBuf::new(8);
    fill(&reply, 0, &bytes.to_le_bytes())?;
    let region = ring.register(reply.slice(), Access::Both).map_err(text)?;
    ring.send(channel, &region, 0, 8, 1).map_err(text)?;
    next(&mut ring, How::Sleep)?;
    closed(&mut ring, channel, &region)
}

/// Waits until the other side has closed.
fn closed(ring: &mut Ring, channel: u32, region: &RingMr) -> Done {
    ring.receive(channel, region, 0, 8, 2).map_err(text)?;
    let last = any(ring, How::Sleep, LONG)?.ok_or("the other side does not close")?;
    expect(last.result == Err(libc::EPIPE), || format!("{last:?}, expected EPIPE"))
}

/// Returns each message until the other side closes.
fn echo(device: &str, channel: u32) -> Done {
    const MOST: u64 = 1 << 20;
    let mut ring = open(device)?;
    let memory = StaticBuf::new(MOST as usize);
    let region = ring.register(memory.slice(), Access::Both).map_err(text)?;
    ring.open_channel(channel).map_err(text)?;
    println!("echoing");
    for count in 0.. {
        ring.receive(channel, &region, 0, MOST, 0).map_err(text)?;
        let got = any(&mut ring, How::Sleep, LONG)?.ok_or("no message comes")?;
        if got.result == Err(libc::EPIPE) {
            println!("echoed {count} messages");
            break;
        }
        expect(got.result.is_ok(), || format!("{got:?}"))?;
        ring.send(channel, &region, 0, got.length, 1).map_err(text)?;
        next(&mut ring, How::Sleep)?;
    }
    Ok(())
}

/// Messages of all sizes up to `size` to [`echo`] and back, compared.
fn ping(device: &str, channel: u32, count: u64, size: u64, how: How) -> Done {
    let mut ring = how.open(device)?;
    let (out, back) = (StaticBuf::new(size as usize), StaticBuf::new(size as usize));
    let out_region = ring.register(out.slice(), Access::Send).map_err(text)?;
    let back_region = ring.register(back.slice(), Access::Receive).map_err(text)?;
    ring.open_channel(channel).map_err(text)?;
    for i in 0..count {
        // The first ones at every border, then odd ones.
        let borders = [0, 1, 4063, 4064, 4065, 4096, 4097, 8192, 12288, size];
        let length = borders.get(i as usize).copied().unwrap_or(i * 7919 % (size + 1)).min(size);
        let offset = if length < size { i * 13 % (size - length + 1) } else { 0 };
        let bytes = bytes_of(i + 1, length);
        fill(&out, offset, &bytes)?;
        ring.receive(channel, &back_region, 0, size, 0).map_err(text)?;
        ring.send(channel, &out_region, offset, length, 1).map_err(text)?;
        for _ in 0..2 {
            let done = next(&mut ring, how)?;
            expect(done.length == length, || format!("{done:?}: expected {length} bytes"))?;
        }
        let found = back.slice().sub(0, length).ok_or("a buffer too small")?.to_vec();
        expect(found == bytes, || format!("message {i} of {length} bytes came back changed"))?;
    }
    println!("{count} messages came back, all right");
    Ok(())
}

/// Holds memory, a channel and a receive until the link is lost: then everything says so.
fn hold(device: &str, channel: u32, how: How) -> Done {
    let mut ring = how.open(device)?;
    let memory = StaticBuf::new(1 << 20);
    let region = ring.register(memory.slice(), Access::Both).map_err(text)?;
    ring.open_channel(channel).map_err(text)?;
    ring.receive(channel, &region, 0, 1 << 20, 7).map_err(text)?;
    ring.doorbell(0, Duration::ZERO, false).map_err(text)?;
    println!("holding");
    let mut poll = libc::pollfd { fd: ring.as_fd().as_raw_fd(), events: libc::POLLIN, revents: 0 };
    let begun = Instant::now();
    while poll.revents & libc::POLLHUP == 0 {
        expect(begun.elapsed() < 10 * LONG, || "the link is not lost".into())?;
        // SAFETY: one structure, as said.
        unsafe { libc::poll(&mut poll, 1, 1000) };
    }
    let done = ring.pop().map_err(text)?.ok_or("the receive did not end")?;
    expect(done.cookie == 7 && done.result == Err(libc::ENODEV), || format!("{done:?}"))?;
    let gone = |what: &str, result: Result<(), Error>| {
        expect(matches!(result, Err(Error::Gone)), || format!("{what}: {result:?}, expected ENODEV"))
    };
    gone("pop", ring.pop().map(|_| ()))?;
    gone("doorbell", ring.doorbell(0, Duration::ZERO, false).map(|_| ()))?;
    gone("register", ring.register(memory.slice(), Access::Both).map(|_| ()))?;
    gone("open", ring.open_channel(channel))?;
    gone("close", ring.close_channel(channel))?;
    drop(region);
    println!("revoked");
    Ok(())
}

/// Holds a channel without a receive and with a message that waits to be sent, until the link is lost.
fn endure(device: &str, channel: u32) -> Done {
    let mut ring = open(device)?;
    let memory = StaticBuf::new(1 << 20);
    let region = ring.register(memory.slice(), Access::Both).map_err(text)?;
    ring.open_channel(channel).map_err(text)?;
    ring.send(channel, &region, 0, 1 << 20, 7).map_err(text)?;
    ring.doorbell(0, Duration::ZERO, false).map_err(text)?;
    println!("enduring");
    let begun = Instant::now();
    loop {
        expect(begun.elapsed() < LONG, || "the link is not lost".into())?;
        match ring.pop() {
            Ok(None) => ring.doorbell(1, Duration::from_secs(1), false).map(drop).or_else(|e| match e {
                Error::Gone => Ok(()),
                other => Err(text(other)),
            })?,
            // Sent, where the peer granted it; or lost with the link.
            Ok(Some(_)) => {}
            Err(Error::Gone) => break,
            Err(error) => return Err(text(error)),
        }
    }
    println!("lost");
    Ok(())
}

/// Another process has the channel: it cannot be opened, closed, written or read here.
fn foreign(device: &str, channel: u32) -> Done {
    let mut ring = open(device)?;
    let memory = StaticBuf::new(4096);
    let region = ring.register(memory.slice(), Access::Both).map_err(text)?;
    let refused = |what: &str, result: Result<(), Error>, errno: i32| {
        let found = result.as_ref().err().and_then(Error::errno);
        expect(found == Some(errno), || format!("{what}: {result:?}, expected error {errno}"))
    };
    refused("open", ring.open_channel(channel), libc::EBUSY)?;
    refused("close", ring.close_channel(channel), libc::EBADF)?;
    for receive in [false, true] {
        let put =
            if receive { ring.receive(channel, &region, 0, 4096, 3) } else { ring.send(channel, &region, 0, 4096, 3) };
        put.map_err(text)?;
        let done = any(&mut ring, How::Sleep, LONG)?.ok_or("nothing happens")?;
        expect(done.result == Err(libc::EBADF), || format!("{done:?}, expected EBADF"))?;
    }
    println!("kept out");
    Ok(())
}

/// Messages of the slow and of the quick channel: one after the other of both sizes.
fn size_of_message(i: u64) -> u64 {
    if i.is_multiple_of(2) { 1000 } else { 20_000 }
}

/// Reads `count` messages of a quick channel before it reads the first of a slow one.
fn slow(device: &str, slow: u32, quick: u32, count: u64) -> Done {
    let mut ring = open(device)?;
    let memory = StaticBuf::new(1 << 16);
    let region = ring.register(memory.slice(), Access::Receive).map_err(text)?;
    for channel in [slow, quick] {
        ring.open_channel(channel).map_err(text)?;
    }
    println!("reading");
    for channel in [quick, slow] {
        for i in 0..count {
            ring.receive(channel, &region, 0, 1 << 16, i).map_err(text)?;
            let done = next(&mut ring, How::Sleep)?;
            let bytes = bytes_of(u64::from(channel) << 32 | i, size_of_message(i));
            let found = memory.slice().sub(0, done.length).ok_or("too long")?.to_vec();
            expect(found == bytes, || format!("message {i} of channel {channel} is wrong"))?;
        }
        println!("channel {channel}: {count} messages, all right");
    }
    closed_by(&mut ring, slow, &memory)
}

fn closed_by(ring: &mut Ring, channel: u32, memory: &StaticBuf) -> Done {
    let region = ring.register(memory.slice(), Access::Receive).map_err(text)?;
    closed(ring, channel, &region)
}

/// Sends `count` messages on both channels, all those of the slow one first.
fn pour(device: &str, slow: u32, quick: u32, count: u64) -> Done {
    let mut ring = open(device)?;
    let slots: Vec<StaticBuf> = (0..2 * count).map(|_| StaticBuf::new(20_000)).collect();
    let mut regions = Vec::new();
    for channel in [slow, quick] {
        ring.open_channel(channel).map_err(text)?;
        for i in 0..count {
            let at = regions.len();
            fill(&slots[at], 0, &bytes_of(u64::from(channel) << 32 | i, size_of_message(i)))?;
            regions.push(ring.register(slots[at].slice(), Access::Send).map_err(text)?);
            ring.send(channel, &regions[at], 0, size_of_message(i), u64::from(channel)).map_err(text)?;
        }
    }
    let (mut of_slow, mut of_quick) = (0, 0);
    while of_quick < count {
        let done = next(&mut ring, How::Sleep)?;
        if done.cookie == u64::from(slow) { of_slow += 1 } else { of_quick += 1 }
    }
    println!("quick channel through after {of_slow} of {count} of the slow one");
    while of_slow < count {
        next(&mut ring, How::Sleep)?;
        of_slow += 1;
    }
    // Closed only when the reader has read all: what was taken short waits there.
    println!("all sent");
    Ok(())
}

/// Calls and entries that make no sense; each has the error that it must have.
fn bad(device: &str) -> Done {
    let fresh = File::options().read(true).write(true).open(device).map_err(|e| e.to_string())?;
    let hello = |change: &dyn Fn(&mut abi::Hello)| {
        let mut hello = abi::Hello {
            version: abi::VERSION,
            sq_entries: 8,
            cq_entries: 8,
            timeout_ms: 10_000,
            ..Default::default()
        };
        change(&mut hello);
        hello
    };
    let mut count = 0;
    let mut must = |what: &str, found: i32, errno: i32| {
        count += 1;
        expect(found == errno, || format!("{what}: error {found}, expected {errno}"))
    };
    let ours = &fresh;
    must("an unknown call", raw(ours, 0x1234, &mut 0u64), libc::ENOTTY)?;
    must("a number that there is not", raw(ours, abi::IOC_HELLO + 40, &mut hello(&|_| ())), libc::ENODATA)?;
    must("no address", null(ours, abi::IOC_HELLO), libc::EFAULT)?;
    let mut poll = libc::pollfd { fd: ours.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: one structure, as said.
    unsafe { libc::poll(&mut poll, 1, 0) };
    must("what poll says before hello", i32::from(poll.revents), 0)?;
    must("doorbell before hello", raw(ours, abi::IOC_DOORBELL, &mut abi::Doorbell::default()), libc::ENODATA)?;
    must("register before hello", raw(ours, abi::IOC_REGISTER, &mut abi::Register::default()), libc::ENODATA)?;
    let mut old = hello(&|h| h.version = 99);
    must("another version", raw(ours, abi::IOC_HELLO, &mut old), libc::EPROTO)?;
    must("its version", old.version as i32, abi::VERSION as i32)?;
    for entries in [0, 1, 4, 9, 8192, u32::MAX, 1 << 31] {
        let what = format!("{entries} entries");
        must(&what, raw(ours, abi::IOC_HELLO, &mut hello(&|h| h.sq_entries = entries)), libc::EINVAL)?;
        must(&what, raw(ours, abi::IOC_HELLO, &mut hello(&|h| h.cq_entries = entries)), libc::EINVAL)?;
    }
    must("reserved", raw(ours, abi::IOC_HELLO, &mut hello(&|h| h.reserved = 1)), libc::EINVAL)?;
    must("unknown flags", raw(ours, abi::IOC_HELLO, &mut hello(&|h| h.flags = 2)), libc::EINVAL)?;
    must("too long idle", raw(ours, abi::IOC_HELLO, &mut hello(&|h| h.idle_us = 1_000_001)), libc::EINVAL)?;
    must("hello", raw(ours, abi::IOC_HELLO, &mut hello(&|_| ())), 0)?;
    must("hello again", raw(ours, abi::IOC_HELLO, &mut hello(&|_| ())), libc::EALREADY)?;
    must("a number that there is not", raw(ours, abi::IOC_HELLO + 40, &mut hello(&|_| ())), libc::ENOTTY)?;
    let page = StaticBuf::new(8192);
    let addr = page.slice().as_ptr() as u64;
    let good = abi::Register { addr, length: 4096, flags: 3, ..Default::default() };
    for (what, register, errno) in [
        ("no length", abi::Register { length: 0, ..good }, libc::EINVAL),
        ("too long", abi::Register { length: 1 << 37, ..good }, libc::EINVAL),
        ("around the end", abi::Register { addr: u64::MAX - 4095, length: 1 << 20, ..good }, libc::EINVAL),
        ("no flags", abi::Register { flags: 0, ..good }, libc::EINVAL),
        ("unknown flags", abi::Register { flags: 0x80 | 3, ..good }, libc::EINVAL),
        ("reserved", abi::Register { reserved: 1, ..good }, libc::EINVAL),
        ("a descriptor for nothing", abi::Register { fd: 3, ..good }, libc::EINVAL),
        ("an address that is not mapped", abi::Register { addr: 4096, ..good }, libc::EFAULT),
        ("kernel memory", abi::Register { addr: 0xffff_8880_0000_0000, ..good }, libc::EFAULT),
        ("no dma-buf", abi::Register { flags: 7, fd: fresh.as_raw_fd(), addr: 0, ..good }, libc::EINVAL),
        ("no descriptor", abi::Register { flags: 7, fd: 999, addr: 0, ..good }, libc::EBADF),
        ("unaligned dma-buf", abi::Register { flags: 7, fd: 999, addr: 1, ..good }, libc::EINVAL),
    ] {
        must(what, raw(ours, abi::IOC_REGISTER, &mut { register }), errno)?;
    }
    for (what, number, id, errno) in [
        ("unregister of nothing", abi::IOC_UNREGISTER, abi::Id { id: 5, reserved: 0 }, libc::ENOENT),
        ("unregister, reserved", abi::IOC_UNREGISTER, abi::Id { id: 5, reserved: 1 }, libc::EINVAL),
        ("channel 256", abi::IOC_OPEN, abi::Id { id: 256, reserved: 0 }, libc::EINVAL),
        ("channel, reserved", abi::IOC_OPEN, abi::Id { id: 0, reserved: 9 }, libc::EINVAL),
        ("close of a closed one", abi::IOC_CLOSE, abi::Id { id: 9, reserved: 0 }, libc::EBADF),
        ("close of 4294967295", abi::IOC_CLOSE, abi::Id { id: u32::MAX, reserved: 0 }, libc::EINVAL),
    ] {
        must(what, raw(ours, number, &mut { id }), errno)?;
    }
    for (what, fd, reserved, errno) in [
        ("a file for an eventfd", fresh.as_raw_fd(), 0, libc::EINVAL),
        ("-2", -2, 0, libc::EINVAL),
        ("x", -1, 1, libc::EINVAL),
    ] {
        must(what, raw(ours, abi::IOC_EVENTFD, &mut abi::Event { fd, reserved }), errno)?;
    }
    must(
        "doorbell flags",
        raw(ours, abi::IOC_DOORBELL, &mut abi::Doorbell { flags: 6, ..Default::default() }),
        libc::EINVAL,
    )?;
    for (what, offset, length, shared) in
        [("half a map", 0, 4096, true), ("another offset", 4096, 12288, true), ("a private map", 0, 12288, false)]
    {
        must(what, map(ours, offset, length, shared), libc::EINVAL)?;
    }
    drop(fresh);

    let mut ring = open(device)?;
    let region = ring.register(page.slice().sub(0, 4096).ok_or("page")?, Access::Send).map_err(text)?;
    ring.open_channel(200).map_err(text)?;
    let entry = abi::Sqe { opcode: abi::OP_SEND, channel: 200, cookie: 42, length: 16, ..Default::default() };
    for (what, sqe, errno) in [
        ("opcode 0", abi::Sqe { opcode: 0, ..entry }, libc::EINVAL),
        ("opcode 77", abi::Sqe { opcode: 77, ..entry }, libc::EINVAL),
        ("reserved", abi::Sqe { reserved0: 1, ..entry }, libc::EINVAL),
        ("reserved", abi::Sqe { reserved1: [0, 0, 1], ..entry }, libc::EINVAL),
        ("too long", abi::Sqe { length: u64::MAX, ..entry }, libc::EINVAL),
        ("channel 256", abi::Sqe { channel: 256, ..entry }, libc::EBADF),
        ("a closed channel", abi::Sqe { channel: 201, ..entry }, libc::EBADF),
        ("no such region", abi::Sqe { region: 77, ..entry }, libc::ENOENT),
        ("region 4294967295", abi::Sqe { region: u32::MAX, ..entry }, libc::ENOENT),
        ("receive into what is read", abi::Sqe { opcode: abi::OP_RECV, ..entry }, libc::EACCES),
        ("beyond the region", abi::Sqe { offset: 4090, ..entry }, libc::ERANGE),
        ("far beyond", abi::Sqe { offset: u64::MAX - 8, ..entry }, libc::ERANGE),
    ] {
        ring.put_raw(sqe).map_err(text)?;
        let done = any(&mut ring, How::Sleep, LONG)?.ok_or("nothing happens")?;
        let found = done.result.err().unwrap_or(0);
        must(what, found, errno)?;
        expect(done.cookie == 42, || format!("{what}: {done:?}"))?;
    }
    drop(region);
    println!("{count} wrong calls and entries, each with its error");
    Ok(())
}

/// The error number of a call; 0 for none.
fn raw<T>(file: &File, number: u32, argument: &mut T) -> i32 {
    // SAFETY: the driver touches no more than the size in the number, which for known numbers is that of the structure.
    let done = unsafe { libc::ioctl(file.as_raw_fd(), u64::from(number) as _, std::ptr::from_mut(argument)) };
    if done < 0 { IoError::last_os_error().raw_os_error().unwrap_or(-1) } else { 0 }
}

fn null(file: &File, number: u32) -> i32 {
    // SAFETY: an address that nothing is at: the driver must say so.
    let done = unsafe { libc::ioctl(file.as_raw_fd(), u64::from(number) as _, std::ptr::null_mut::<u8>()) };
    if done < 0 { IoError::last_os_error().raw_os_error().unwrap_or(-1) } else { 0 }
}

fn map(file: &File, offset: i64, length: usize, shared: bool) -> i32 {
    let flags = if shared { libc::MAP_SHARED } else { libc::MAP_PRIVATE };
    // SAFETY: a fresh mapping at an address of the kernel's choice; if it should come about it stays unused.
    let at = unsafe {
        libc::mmap(std::ptr::null_mut(), length, libc::PROT_READ | libc::PROT_WRITE, flags, file.as_raw_fd(), offset)
    };
    if at == libc::MAP_FAILED { IoError::last_os_error().raw_os_error().unwrap_or(-1) } else { 0 }
}

/// Without privilege, the limit of locked memory holds, and what was let go does not count.
fn limit(device: &str) -> Done {
    let ring = open(device)?;
    let memory = StaticBuf::new(4 << 20);
    let limit = libc::rlimit { rlim_cur: 1 << 20, rlim_max: 1 << 20 };
    // SAFETY: numbers and a structure of our own.
    let done = unsafe { libc::setrlimit(libc::RLIMIT_MEMLOCK, &limit) == 0 && libc::setuid(65534) == 0 };
    expect(done, || "privilege was not dropped".into())?;
    let whole = ring.register(memory.slice(), Access::Both);
    let found = whole.as_ref().err().and_then(Error::errno);
    expect(found == Some(libc::ENOMEM), || format!("4 MiB with a limit of 1 MiB: {whole:?}"))?;
    for _ in 0..20 {
        let part = memory.slice().sub(0, 900 << 10).ok_or("part")?;
        drop(ring.register(part, Access::Both).map_err(text)?);
    }
    println!("the limit holds");
    Ok(())
}

/// Opens, registers, opens a channel, puts operations, and goes without a word, many times.
fn churn(device: &str, count: u64) -> Done {
    let memory = StaticBuf::new(1 << 20);
    for i in 0..count {
        let mut ring = open(device)?;
        let region = ring.register(memory.slice(), Access::Both).map_err(text)?;
        let channel = 100 + (i % 20) as u32;
        ring.open_channel(channel).map_err(text)?;
        ring.receive(channel, &region, 0, 1 << 20, 0).map_err(text)?;
        ring.send(channel, &region, 0, 1 + i * 997 % (1 << 20), 1).map_err(text)?;
        ring.doorbell(0, Duration::ZERO, false).map_err(text)?;
    }
    println!("{count} times");
    Ok(())
}

/// Bytes of a message of [`leave`].
const LEFT: u64 = 2 << 20;

/// Closes the device in the midst of a message, again and again, and lives on: its memory is its own again when `close`
/// returns, and what was granted arrives as it was. The first message is never granted.
fn leave(device: &str, channel: u32, count: u64) -> Done {
    let memory = StaticBuf::new(LEFT as usize);
    let mut longest = Duration::ZERO;
    for round in 0..=count {
        fill(&memory, 0, &bytes_of(round + 1, LEFT))?;
        let mut ring = open(device)?;
        let region = ring.register(memory.slice(), Access::Send).map_err(text)?;
        let before = ring.info().map_err(text)?.raw.tx_frames;
        ring.open_channel(channel).map_err(text)?;
        ring.send(channel, &region, 0, LEFT, 0).map_err(text)?;
        ring.doorbell(0, Duration::ZERO, false).map_err(text)?;
        if round == 0 {
            println!("leaving");
            std::thread::sleep(Duration::from_secs(1));
        }
        let begun = Instant::now();
        while round > 0 && ring.info().map_err(text)?.raw.tx_frames == before {
            expect(begun.elapsed() < LONG, || format!("message {round} is not granted"))?;
        }
        let closing = Instant::now();
        drop(region);
        drop(ring);
        longest = longest.max(closing.elapsed());
        expect(longest < LONG / 2, || format!("close took {longest:?}"))?;
        fill(&memory, 0, &vec![0xff; LEFT as usize])?;
    }
    println!("left {} times, longest close {} ms", count + 1, longest.as_millis());
    Ok(())
}

/// The other end of [`leave`].
fn stay(device: &str, channel: u32, count: u64) -> Done {
    let memory = StaticBuf::new(LEFT as usize);
    for round in 0..=count {
        let mut ring = open(device)?;
        let region = ring.register(memory.slice(), Access::Receive).map_err(text)?;
        ring.open_channel(channel).map_err(text)?;
        if round == 0 {
            println!("staying");
            std::thread::sleep(Duration::from_secs(4));
        }
        ring.receive(channel, &region, 0, LEFT, round).map_err(text)?;
        let done = any(&mut ring, How::Sleep, LONG)?.ok_or("nothing happens")?;
        let wanted = if round == 0 { Err(libc::EPIPE) } else { Ok(()) };
        expect(done.result == wanted, || format!("message {round}: {done:?}, expected {wanted:?}"))?;
        if round > 0 {
            expect(memory.slice().to_vec() == bytes_of(round + 1, LEFT), || format!("message {round} is wrong"))?;
        }
    }
    println!("{count} messages of a program that had closed, all right");
    Ok(())
}

/// Opens and closes, with and without memory, channels and an eventfd, many times.
fn open_close(device: &str, count: u64) -> Done {
    let memory = StaticBuf::new(1 << 20);
    for i in 0..count {
        let mut ring = open(device)?;
        if i % 2 == 0 {
            continue;
        }
        // SAFETY: a call with numbers; the descriptor is fresh.
        let event = unsafe { File::from_raw_fd(libc::eventfd(0, libc::EFD_CLOEXEC)) };
        ring.set_eventfd(Some(event.as_fd())).map_err(text)?;
        let region = ring.register(memory.slice(), Access::Both).map_err(text)?;
        ring.open_channel(60).map_err(text)?;
        if i % 4 == 1 {
            ring.receive(60, &region, 0, 1 << 20, 0).map_err(text)?;
            ring.doorbell(0, Duration::ZERO, false).map_err(text)?;
        }
        if i % 3 == 0 {
            ring.close_channel(60).map_err(text)?;
        }
    }
    println!("{count} times");
    Ok(())
}

/// An eventfd is signalled and poll says readable when a message is there.
fn event(device: &str, channel: u32) -> Done {
    let mut ring = open(device)?;
    let memory = StaticBuf::new(4096);
    let region = ring.register(memory.slice(), Access::Both).map_err(text)?;
    // SAFETY: a call with numbers; the descriptor is fresh.
    let mut eventfd = unsafe { File::from_raw_fd(libc::eventfd(0, libc::EFD_CLOEXEC)) };
    ring.set_eventfd(Some(eventfd.as_fd())).map_err(text)?;
    ring.open_channel(channel).map_err(text)?;
    ring.receive(channel, &region, 0, 4096, 0).map_err(text)?;
    ring.send(channel, &region, 0, 100, 1).map_err(text)?;
    ring.doorbell(0, Duration::ZERO, false).map_err(text)?;
    let mut signals = 0;
    while signals < 2 {
        let mut word = [0; 8];
        eventfd.read_exact(&mut word).map_err(|e| e.to_string())?;
        signals += u64::from_le_bytes(word);
    }
    let mut poll = libc::pollfd { fd: ring.as_fd().as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: one structure, as said.
    unsafe { libc::poll(&mut poll, 1, 0) };
    expect(poll.revents == libc::POLLIN, || format!("poll says {:#x}", poll.revents))?;
    next(&mut ring, How::Sleep)?;
    next(&mut ring, How::Sleep)?;
    // SAFETY: as above.
    unsafe { libc::poll(&mut poll, 1, 0) };
    expect(poll.revents == 0, || format!("poll says {:#x} with nothing there", poll.revents))?;
    println!("signalled");
    Ok(())
}
