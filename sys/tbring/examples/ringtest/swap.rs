//! The plain mode: messages in buffers that change hands.

use std::path::Path;
use std::time::{Duration, Instant};

use linkspan_tbring::{Error, Swap};

use crate::{Done, LONG, bytes_of, expect, text};

/// Length of a message: short and long ones, at the borders of pages and between.
fn length(i: u64, size: u64) -> u64 {
    [0, 1, 4064, 4065, size][(i % 5) as usize].min(size).saturating_sub(i / 5 % 7)
}

/// `count` messages in buffers of `size` bytes.
pub(crate) fn send(device: &str, channel: u32, count: u64, size: u64) -> Done {
    let mut swap = Swap::open(Path::new(device), channel, size, LONG).map_err(text)?;
    let before = swap.peer().map_err(text)?.raw.copied_bytes;
    println!("sending");
    for i in 0..count {
        let bytes = bytes_of(i + 1, length(i, swap.capacity()));
        swap.front().map_err(text)?[..bytes.len()].copy_from_slice(&bytes);
        swap.send(bytes.len() as u64).map_err(text)?;
    }
    swap.flush().map_err(text)?;
    let long = swap.send(swap.capacity() + 1);
    expect(matches!(long, Err(Error::Range { .. })), || format!("a message longer than a buffer: {long:?}"))?;
    let said = swap.receive(LONG).map_err(text)?.map(<[u8]>::to_vec);
    expect(said.as_deref() == Some(&count.to_le_bytes()[..]), || format!("the receiver has something else: {said:?}"))?;
    println!("sent {count} messages, copied {}", swap.peer().map_err(text)?.raw.copied_bytes - before);
    Ok(())
}

/// The other end of [`send`].
pub(crate) fn receive(device: &str, channel: u32, count: u64, size: u64) -> Done {
    let mut swap = Swap::open(Path::new(device), channel + 1, size, LONG).map_err(text)?;
    expect(swap.receive(Duration::ZERO).map_err(text)?.is_none(), || "a message that was not sent".into())?;
    let mut swap = Swap::open(Path::new(device), channel, size, LONG).map_err(text)?;
    println!("receiving");
    let begun = Instant::now();
    for i in 0..count {
        let found = swap.receive(LONG).map_err(text)?.ok_or("no message comes")?;
        let right = found == bytes_of(i + 1, length(i, size.next_multiple_of(4096)));
        expect(right, || format!("message {i} of {} bytes is wrong", found.len()))?;
    }
    swap.front().map_err(text)?[..8].copy_from_slice(&count.to_le_bytes());
    swap.send(8).map_err(text)?;
    let last = swap.receive(LONG).map(|message| message.map(<[u8]>::len));
    expect(matches!(last, Err(Error::Ended { .. })), || format!("{last:?}, expected the end"))?;
    println!("{count} messages in {} ms, all right", begun.elapsed().as_millis());
    Ok(())
}
