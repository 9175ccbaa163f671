//! Completions of io_uring's zero-copy receive, whatever they hold: nothing outside of a page of the area, never more than was asked
//! for, nothing after the end; and what is told as control messages reads back.
#![no_main]

use libfuzzer_sys::fuzz_target;
use linkspan_gpu::devmem::{Arrivals, Completion, Fragment, Refill, RequestState, fragments, tell};

const AREA: u64 = 16 << 12;

fuzz_target!(|bytes: &[u8]| {
    let mut arrivals = Arrivals::new(1, AREA, 5 << 48, 9);
    let mut refill = Refill::new(8, 16);
    let mut left = 0u64;
    for step in bytes.chunks_exact(16) {
        let number = |at: usize| u64::from_le_bytes(*step[at..].first_chunk().unwrap_or(&[0; 8]));
        if step[15] & 0x80 != 0 {
            arrivals.resumed();
            if arrivals.state() == RequestState::Idle {
                left = number(0) & 0xffff;
                arrivals.armed(left);
            }
            let _ = refill.kernel_at(number(0) as u32);
            assert!(refill.space() <= 8);
            continue;
        }
        // Most are of our request and our area, or next to nothing would be looked into.
        let (user_data, token) = (u64::from(step[14] != 7), if step[13] == 7 { 0 } else { 5u64 << 48 });
        let completion = Completion {
            user_data,
            res: number(0) as i32,
            flags: u32::from(step[12]),
            off: token | (number(4) >> 32 & 0xffff_ffff),
        };
        let before = arrivals.state();
        match arrivals.take(completion) {
            Err(_) => assert_eq!(arrivals.state(), before),
            Ok(None) => {}
            Ok(Some(fragment)) => {
                let Fragment::Device { offset, len, token, dmabuf: 9 } = fragment else { panic!("{fragment:?}") };
                assert!(before == RequestState::Armed && len > 0 && u64::from(len) <= left, "{fragment:?} of {left}");
                assert!(offset + u64::from(len) <= AREA && offset >> 12 == u64::from(token));
                assert_eq!((offset + u64::from(len) - 1) >> 12, offset >> 12, "over the end of its page");
                left -= u64::from(len);
                let (mut control, mut used) = ([0; 5], 0);
                assert!(tell(fragment, &mut control, &mut used));
                let told: Vec<u8> = control.iter().flat_map(|word| word.to_ne_bytes()).collect();
                assert_eq!(fragments(len as usize, &told).next(), Some(Ok(fragment)));
                if refill.space() > 0 {
                    assert!(refill.back(token).is_ok_and(|slot| slot.is_some_and(|slot| slot < 8)));
                }
            }
        }
    }
});
