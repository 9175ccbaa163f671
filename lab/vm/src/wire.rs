//! Frames between the runner and the agent in a guest, over a virtio serial port.
//!
//! A frame is its length (4 bytes, little-endian, of what follows), a kind (1 byte), a number (4 bytes, little-endian) and
//! a body. The number is the job it belongs to. Either side may be anything: lengths are bounded before they are used.

use std::io::{self, Read, Write};

/// Longest body, bytes.
pub(crate) const MOST: usize = 64 << 10;

/// Name of the port inside the guest.
pub(crate) const PORT: &str = "lab";

/// What a frame says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Agent: it is there.
    Hello,
    /// Runner: run this shell script as a job.
    Run,
    /// Runner: kill the job with everything it started.
    Kill,
    /// Agent: standard output of the job.
    Out,
    /// Agent: standard error of the job.
    Err,
    /// Agent: the job is over; the body is its code (4 bytes, little-endian, signed).
    Exit,
}

const KINDS: [Kind; 6] = [Kind::Hello, Kind::Run, Kind::Kill, Kind::Out, Kind::Err, Kind::Exit];

/// One frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Frame {
    /// What it says.
    pub(crate) kind: Kind,
    /// The job.
    pub(crate) job: u32,
    /// The rest.
    pub(crate) body: Vec<u8>,
}

/// Why no frame was read.
#[derive(Debug)]
pub(crate) enum Broken {
    /// The other side is gone.
    Io(io::Error),
    /// It sent something else: length and kind.
    Wrong(u32, u8),
}

impl From<io::Error> for Broken {
    fn from(error: io::Error) -> Broken {
        Broken::Io(error)
    }
}

/// Writes one frame.
pub(crate) fn write(to: &mut impl Write, kind: Kind, job: u32, body: &[u8]) -> io::Result<()> {
    let body = &body[..body.len().min(MOST)];
    let mut bytes = Vec::with_capacity(9 + body.len());
    bytes.extend_from_slice(&(body.len() as u32 + 5).to_le_bytes());
    bytes.push(KINDS.iter().position(|k| *k == kind).unwrap_or(0) as u8);
    bytes.extend_from_slice(&job.to_le_bytes());
    bytes.extend_from_slice(body);
    to.write_all(&bytes)?;
    to.flush()
}

/// Reads one frame.
pub(crate) fn read(from: &mut impl Read) -> Result<Frame, Broken> {
    let mut head = [0; 9];
    from.read_exact(&mut head)?;
    let [l0, l1, l2, l3, kind, j0, j1, j2, j3] = head;
    let len = u32::from_le_bytes([l0, l1, l2, l3]);
    let known = KINDS.get(kind as usize).copied();
    let (Some(known), true) = (known, (5..=MOST as u32 + 5).contains(&len)) else {
        return Err(Broken::Wrong(len, kind));
    };
    let mut body = vec![0; len as usize - 5];
    from.read_exact(&mut body)?;
    Ok(Frame { kind: known, job: u32::from_le_bytes([j0, j1, j2, j3]), body })
}

#[cfg(test)]
mod tests;
