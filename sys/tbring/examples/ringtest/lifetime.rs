//! How long things last: a file, with its process, whoever inherits it, and with its link; messages, with the channel that they came by.

use std::io::{Error as IoError, Read};
use std::os::fd::{AsFd, AsRawFd};
use std::time::{Duration, Instant};

use linkspan_tbring::{Access, Error};
use linkspan_transport::StaticBuf;

use super::how::{How, any, next};
use super::{Done, LONG, expect, open, text};

/// Bytes of a message that travels at once, and of one that is announced.
const SHORT: u64 = 100;
const ANNOUNCED: u64 = 1 << 20;

/// Opens anew as soon as a file is dead, so often: the call waits for the link to come back, which it still goes down from.
pub(crate) fn reopen(device: &str, count: u64) -> Done {
    let mut ring = open(device)?;
    for round in 0..count {
        println!("open {round}");
        let mut poll = libc::pollfd { fd: ring.as_fd().as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one structure, as said.
        let woken = unsafe { libc::poll(&raw mut poll, 1, LONG.as_millis() as i32) };
        expect(woken == 1 && poll.revents & libc::POLLHUP != 0, || "the link is not lost".into())?;
        // The dead one is closed after this: that would wait until the link is down.
        ring = open(device).map_err(|why| format!("after {} links: {why}", round + 1))?;
    }
    println!("opened {} times", count + 1);
    Ok(())
}

/// A child of fork() has the device, too: it cannot use it, and the parent closes it all the same.
pub(crate) fn inherit(device: &str, channel: u32) -> Done {
    let memory = StaticBuf::new(4096);
    let mut ring = open(device)?;
    let region = ring.register(memory.slice(), Access::Both).map_err(text)?;
    ring.open_channel(channel).map_err(text)?;
    ring.receive(channel, &region, 0, 4096, 7).map_err(text)?;
    ring.doorbell(0, Duration::ZERO, false).map_err(text)?;
    let (mut end, child_end) = std::io::pipe().map_err(|e| e.to_string())?;
    let mut waits = libc::pollfd { fd: ring.as_fd().as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: this process has one thread; the child makes system calls only, and ends without running anything of ours.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let tell = |held: bool| {
            // SAFETY: a descriptor of ours and a byte.
            unsafe { libc::write(child_end.as_raw_fd(), std::ptr::from_ref(&u8::from(held)).cast(), 1) };
        };
        // SAFETY: a mapping that is refused, or of one page that nobody uses.
        let map = unsafe {
            libc::mmap(std::ptr::null_mut(), 1, libc::PROT_READ, libc::MAP_SHARED, ring.as_fd().as_raw_fd(), 0)
        };
        let no_map = map == libc::MAP_FAILED && IoError::last_os_error().raw_os_error() == Some(libc::ENODEV);
        tell(no_map && matches!(ring.close_channel(channel), Err(Error::Gone)));
        // SAFETY: one descriptor.
        tell(unsafe { libc::poll(&raw mut waits, 1, -1) } == 1 && waits.revents & libc::POLLHUP != 0);
        // Some of them where the parent has its queues.
        let pages = [(); 256].map(|()| {
            let (prot, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
            // SAFETY: new memory, which replaces none.
            unsafe { libc::mmap(std::ptr::null_mut(), 4096, prot, flags, -1, 0) }
        });
        drop(ring);
        for page in pages {
            // SAFETY: the page of before, or none, which ends the child.
            unsafe { page.cast::<u8>().write_volatile(1) };
        }
        tell(true);
        loop {
            // SAFETY: it waits to be killed.
            unsafe { libc::pause() };
        }
    }
    let mut refused = [0];
    end.read_exact(&mut refused).map_err(|e| e.to_string())?;
    expect(refused == [1], || "the child closed a channel of its parent, or mapped its queues".into())?;
    asleep(child)?;
    drop(ring);
    let mut told = [0];
    end.read_exact(&mut told).map_err(|e| e.to_string())?;
    expect(told == [1], || "the child was not told of the end by poll()".into())?;
    end.read_exact(&mut told).map_err(|e| format!("the child's drop took its own memory away: {e}"))?;
    let again = open(device)?;
    let opened = again.open_channel(channel).map_err(text);
    // SAFETY: a child of ours.
    unsafe {
        libc::kill(child, libc::SIGKILL);
        libc::waitpid(child, std::ptr::null_mut(), 0);
    }
    opened.map_err(|e| format!("the channel is not free while a child has the file: {e}"))?;
    drop(region);
    println!("closed, though a child has it and waits for it");
    Ok(())
}

/// Waits until a process sleeps.
fn asleep(process: libc::pid_t) -> Done {
    let began = Instant::now();
    loop {
        let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).map_err(|e| e.to_string())?;
        // The state stands behind the name, which is in brackets.
        if stat.rsplit(") ").next().is_some_and(|rest| rest.starts_with('S')) {
            return Ok(());
        }
        expect(began.elapsed() < LONG, || format!("process {process} does not sleep: {stat}"))?;
        std::thread::yield_now();
    }
}

/// Sends a short message, one that is announced and a short one, closes the channel, and says so on another one.
pub(crate) fn hole_send(device: &str, channel: u32, word: u32) -> Done {
    let mut ring = open(device)?;
    let memory = StaticBuf::new(ANNOUNCED as usize);
    let region = ring.register(memory.slice(), Access::Send).map_err(text)?;
    ring.open_channel(channel).map_err(text)?;
    ring.open_channel(word).map_err(text)?;
    for (cookie, len) in [(1, SHORT), (2, ANNOUNCED), (3, SHORT)] {
        ring.send(channel, &region, 0, len, cookie).map_err(text)?;
    }
    let sent = [next(&mut ring, How::Sleep)?.cookie, next(&mut ring, How::Sleep)?.cookie];
    expect(sent == [1, 3], || format!("messages {sent:?} were sent"))?;
    ring.close_channel(channel).map_err(text)?;
    let announced = any(&mut ring, How::Sleep, LONG)?.ok_or("the announced message does not end")?;
    expect(announced.cookie == 2 && announced.result.is_err(), || format!("{announced:?}"))?;
    ring.send(word, &region, 0, SHORT, 4).map_err(text)?;
    next(&mut ring, How::Sleep)?;
    // The other side ends it.
    let place = ring.register(memory.slice(), Access::Receive).map_err(text)?;
    ring.receive(word, &place, 0, 1, 5).map_err(text)?;
    let over = any(&mut ring, How::Sleep, LONG)?.ok_or("the other side does not end")?;
    expect(over.result == Err(libc::EPIPE), || format!("{over:?}"))?;
    println!("closed behind two messages that were sent and one that was not");
    Ok(())
}

/// The other end of [`hole_send`]: what came behind a message that never will is not taken for the next one.
pub(crate) fn hole_receive(device: &str, channel: u32, word: u32) -> Done {
    let mut ring = open(device)?;
    let memory = StaticBuf::new(ANNOUNCED as usize);
    let region = ring.register(memory.slice(), Access::Receive).map_err(text)?;
    ring.open_channel(channel).map_err(text)?;
    ring.open_channel(word).map_err(text)?;
    ring.receive(word, &region, 0, ANNOUNCED, 9).map_err(text)?;
    next(&mut ring, How::Sleep)?;
    for cookie in 1..=3 {
        ring.receive(channel, &region, 0, ANNOUNCED, cookie).map_err(text)?;
    }
    for cookie in 1..=3 {
        let done = any(&mut ring, How::Sleep, LONG)?.ok_or("nothing happens")?;
        let wanted = if cookie == 1 { Ok(()) } else { Err(libc::EPIPE) };
        expect((done.cookie, done.result) == (cookie, wanted), || format!("{done:?}, expected {wanted:?}"))?;
    }
    println!("one message, then the end");
    Ok(())
}
