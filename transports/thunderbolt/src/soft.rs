//! Both devices in software: a cable inside of one process, with the faults of real ones.

mod ring;
mod stream;

use std::io::{Read, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::UnixStream;

pub use ring::{SoftRegion, SoftRing, SoftRingLink};
pub use stream::{SoftStream, SoftStreamLink};

/// Something to wait on that is readable while there is news.
#[derive(Debug)]
struct Notifier {
    tx: UnixStream,
    rx: UnixStream,
    signaled: bool,
}

impl Notifier {
    fn new() -> std::io::Result<Notifier> {
        let (tx, rx) = UnixStream::pair()?;
        rx.set_nonblocking(true)?;
        Ok(Notifier { tx, rx, signaled: false })
    }

    fn signal(&mut self) {
        if !self.signaled {
            self.signaled = self.tx.write(&[1]).is_ok();
        }
    }

    fn quiet(&mut self) {
        if self.signaled {
            let _ = self.rx.read(&mut [0; 8]);
            self.signaled = false;
        }
    }

    fn fd(&self) -> RawFd {
        self.rx.as_raw_fd()
    }
}
