//! Control messages of a device-memory socket, whatever they hold: nothing is placed outside of the dma-buf or the message,
//! nothing twice, and what is placed is as long as what was received.
#![no_main]

use libfuzzer_sys::fuzz_target;
use linkspan_gpu::devmem::{Assembly, Fragment, Placed, fragments};
use linkspan_gpu::unpack::Batch;

const POOL: u64 = 1 << 20;

fuzz_target!(|bytes: &[u8]| {
    let Some((received, control)) = bytes.split_first_chunk::<4>() else { return };
    let received = u32::from_le_bytes(*received) as usize;
    let (mut all, mut failed) = (Vec::new(), false);
    for fragment in fragments(received, control) {
        match fragment {
            Ok(fragment) => all.push(fragment),
            Err(_) => failed = true,
        }
    }
    let sum: u64 = all.iter().map(|f| u64::from(f.len())).sum();
    assert!(sum <= received as u64 && (failed || sum == received as u64), "{sum} of {received} bytes");
    let target = received as u64 + 1;
    let (mut batch, mut assembly, mut host) = (Batch::new(POOL, target), Assembly::new(1, target), 0);
    assembly.call();
    let mut device = 0;
    for fragment in all {
        match assembly.place(fragment, Some(&mut batch)) {
            Ok(Placed::Host { from, to, len }) => {
                assert_eq!(from as u64, host);
                assert_eq!(to + u64::from(len), assembly.placed());
                host += u64::from(len);
            }
            Ok(Placed::Device { token }) => {
                assert!(matches!(fragment, Fragment::Device { token: t, dmabuf: 1, .. } if t == token));
                device += u64::from(fragment.len());
            }
            Err(_) => break,
        }
    }
    assert_eq!(batch.bytes(), device);
    let mut end = 0;
    for piece in batch.pieces() {
        assert!(u64::from(piece.src) + u64::from(piece.len) <= POOL, "{piece:?} outside of the pool");
        assert!(piece.dst >= end && piece.len > 0, "{piece:?} before {end}");
        end = piece.dst + u64::from(piece.len);
    }
    assert!(end <= target);
});
