//! The same bytes for a rail that copies them: what it seals must not change afterwards, and must be in one piece.

use linkspan_transport::Buf;

use super::{Tx, pieces};

impl Tx {
    /// Copies the next bytes into `out`, as many as there are and as fit, and counts them as gone. Returns how many.
    pub(crate) fn drain(&mut self, out: &mut [u8]) -> usize {
        self.close_row();
        let mut done = 0;
        while done < out.len() && self.pending() {
            let rest = &mut out[done..];
            let n = match self.payloads.front() {
                Some(p) if p.at <= self.sent => {
                    let from = self.sent - p.at;
                    let n = rest.len().min((p.mem.len() as u64 - from) as usize);
                    let inside = p.mem.read(from, &mut rest[..n]);
                    debug_assert!(inside);
                    n
                }
                payload => {
                    let run = payload.map_or(self.end, |p| p.at) - self.sent;
                    let n = rest.len().min(run as usize);
                    let (first, then) = pieces(&self.ring, self.ring_out, n);
                    rest[..first.len()].copy_from_slice(first);
                    rest[first.len()..n].copy_from_slice(then);
                    n
                }
            };
            self.advance(n as u64);
            done += n;
        }
        done
    }
}

#[cfg(test)]
mod tests;
