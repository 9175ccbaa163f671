//! Both devices in software: a cable inside of one process, with the faults of real ones.

mod ring;
mod stream;

use std::io::{Read, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::UnixStream;

pub use ring::{SoftRegion, SoftRegistrar, SoftRing, SoftRingLink};
pub use stream::{SoftStream, SoftStreamLink};

/// Something to wait on that is readable while there is news.
#[derive(Debug)]
struct Bell {
    rings: UnixStream,
    hears: UnixStream,
    rung: bool,
}

impl Bell {
    fn new() -> std::io::Result<Bell> {
        let (rings, hears) = UnixStream::pair()?;
        hears.set_nonblocking(true)?;
        Ok(Bell { rings, hears, rung: false })
    }

    fn ring(&mut self) {
        if !self.rung {
            self.rung = self.rings.write(&[1]).is_ok();
        }
    }

    fn quiet(&mut self) {
        if self.rung {
            let _ = self.hears.read(&mut [0; 8]);
            self.rung = false;
        }
    }

    fn fd(&self) -> RawFd {
        self.hears.as_raw_fd()
    }
}
