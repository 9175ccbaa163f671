//! Plain byte streams, to compare with: the kernel's stream device, TCP.

use std::fs::File;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::time::Duration;

use crate::{Done, bytes_of, expect, n};

/// Either end of a plain byte stream, to compare with: a device, or TCP to `HOST:PORT` or from any host by `:PORT`.
fn stream(place: &str) -> Result<File, String> {
    let opened = match place.split_once(':') {
        None => File::options().read(true).write(true).open(place),
        Some(("", port)) => TcpListener::bind(("0.0.0.0", n(port) as u16))
            .and_then(|listener| {
                println!("listening");
                listener.accept()
            })
            .map(|(stream, _)| File::from(OwnedFd::from(stream))),
        Some(_) => TcpStream::connect(place).map(|stream| File::from(OwnedFd::from(stream))),
    };
    opened.map_err(|e| format!("{place}: {e}"))
}

/// The bytes of a seed into a stream, `chunk` in each call, and an answer when the other end has all of them.
pub(crate) fn write(place: &str, bytes: u64, chunk: u64, seed: u64) -> Done {
    let data = bytes_of(seed, bytes);
    let mut stream = stream(place)?;
    println!("writing");
    for part in data.chunks(chunk as usize) {
        stream.write_all(part).map_err(|e| format!("{place}: {e}"))?;
    }
    let mut end = [0];
    stream.read_exact(&mut end).map_err(|e| format!("{place}: {e}"))?;
    println!("written {bytes} bytes");
    Ok(())
}

/// The other end of [`write`].
pub(crate) fn read(place: &str, bytes: u64, chunk: u64, seed: u64) -> Done {
    let mut data = vec![0; bytes as usize];
    let mut stream = stream(place)?;
    println!("reading");
    for part in data.chunks_mut(chunk as usize) {
        stream.read_exact(part).map_err(|e| format!("{place}: {e}"))?;
    }
    stream.write_all(&[1]).map_err(|e| format!("{place}: {e}"))?;
    expect(data == bytes_of(seed, bytes), || "what came is not what was sent".into())?;
    // The stream device loses what it has not sent when it is closed.
    std::thread::sleep(Duration::from_secs(1));
    println!("read {bytes} bytes, all right");
    Ok(())
}
