//! Parts of a batch on their way to the connection.

use super::*;
use crate::Memory;

/// Takes every write and notes it.
#[derive(Default)]
struct Noted(Vec<(usize, RemoteSlice, Option<u64>)>);

impl Path for Noted {
    fn post_write(&mut self, src: MemSlice, to: RemoteSlice, notify: Option<u64>) -> Posted {
        self.0.push((src.len(), to, notify));
        Ok(Some(Ticket::from_u64(self.0.len() as u64)))
    }

    fn post_read(&mut self, dst: MemSlice, from: RemoteSlice) -> Posted {
        self.post_write(dst, from, None)
    }

    fn post_send(&mut self, _: u32, _: MemSlice) -> Posted {
        Ok(None)
    }

    fn post_recv(&mut self, _: u32, _: MemSlice) -> Posted {
        Ok(None)
    }

    fn test(&mut self, _: Ticket) -> Result<Option<u64>, ChannelError> {
        Ok(None)
    }

    fn late_error(&mut self) -> Option<OpError> {
        None
    }
}

/// What a batch of `(memory, offset, length, key, remote offset)` is posted as: lengths, keys and remote offsets.
fn posted(parts: &[(&Memory, usize, usize, u32, u64)], kind: Kind) -> Vec<(usize, u32, u64)> {
    let (mut ops, mut path) = (Ops::default(), Noted::default());
    let id = ops.start(kind, None, None);
    ops.parts(
        id,
        parts.iter().map(|&(memory, at, len, key, offset)| {
            let view = memory.slice(at, len).unwrap();
            (Part { local: view.raw(), remote: RemoteSlice { key, offset } }, view.hold())
        }),
    );
    ops.submit(id);
    ops.pump(&mut path);
    path.0.iter().map(|&(len, to, _)| (len, to.key, to.offset)).collect()
}

#[test]
fn neighbours_on_both_sides_become_one_and_others_do_not() {
    let (a, b) = (Memory::host(100), Memory::host(100));
    for kind in [Kind::Write, Kind::Read] {
        let run = [(&a, 0, 10, 1, 50), (&a, 10, 20, 1, 60), (&a, 30, 0, 1, 80), (&a, 30, 5, 1, 80)];
        assert_eq!(posted(&run, kind), [(35, 1, 50)]);
        // A gap here, a gap there, another region, another memory, the wrong order.
        assert_eq!(posted(&[(&a, 0, 10, 1, 0), (&a, 11, 10, 1, 10)], kind).len(), 2);
        assert_eq!(posted(&[(&a, 0, 10, 1, 0), (&a, 10, 10, 1, 11)], kind).len(), 2);
        assert_eq!(posted(&[(&a, 0, 10, 1, 0), (&a, 10, 10, 2, 10)], kind).len(), 2);
        assert_eq!(posted(&[(&a, 0, 10, 1, 0), (&b, 10, 10, 1, 10)], kind).len(), 2);
        assert_eq!(posted(&[(&a, 10, 10, 1, 10), (&a, 0, 10, 1, 0)], kind).len(), 2);
        // Nothing follows the end of the address space.
        assert_eq!(posted(&[(&a, 0, 10, 1, u64::MAX - 5), (&a, 10, 10, 1, 4)], kind).len(), 2);
    }
}
