//! Completions as bytes of the kernel's header say, odd ones, and a model of its page counts.
#![allow(clippy::unwrap_used)]

use super::*;

const MARK: u64 = 7;
const AREA: u64 = 16 * PAGE;
const TOKEN: u64 = 3 << 48;

fn arrivals() -> Arrivals {
    let mut arrivals = Arrivals::new(MARK, AREA, TOKEN, 9);
    arrivals.armed(1 << 20);
    arrivals
}

fn payload(off: u64, res: i32) -> Completion {
    Completion { user_data: MARK, res, flags: MORE, off: TOKEN | off }
}

fn last(res: i32) -> Completion {
    Completion { user_data: MARK, res, flags: 0, off: 0 }
}

#[test]
fn payload_becomes_the_fragment_that_a_control_message_would_tell() {
    let mut arrivals = arrivals();
    let found = arrivals.take(payload(5 * PAGE + 100, 1448)).unwrap();
    assert_eq!(found, Some(Fragment::Device { offset: 5 * 4096 + 100, len: 1448, token: 5, dmabuf: 9 }));
    assert_eq!(arrivals.state(), RequestState::Armed);
    let skipped = Completion { flags: SKIP | MORE, ..payload(0, 5) };
    assert_eq!(arrivals.take(skipped).unwrap(), None);
}

#[test]
fn each_end_of_the_request_has_its_meaning() {
    for (res, state) in [
        (0, RequestState::End),
        (-12, RequestState::Dry),
        (-14, RequestState::OnHost),
        (-28, RequestState::Idle),
        (-105, RequestState::Idle),
        (-4, RequestState::Idle),
        (-11, RequestState::Idle),
        (-104, RequestState::Failed(104)),
        (-125, RequestState::Failed(125)),
        (i32::MIN, RequestState::Failed(i32::MAX)),
    ] {
        let mut arrivals = arrivals();
        assert_eq!(arrivals.take(last(res)).unwrap(), None);
        assert_eq!(arrivals.state(), state, "{res}");
        assert!(arrivals.take(last(res)).is_err(), "a second end");
    }
    let mut arrivals = Arrivals::new(MARK, AREA, TOKEN, 9);
    arrivals.armed(100);
    arrivals.take(payload(0, 100)).unwrap();
    arrivals.take(last(0)).unwrap();
    assert_eq!(arrivals.state(), RequestState::Idle, "the window was used up, which is no end of the stream");
    arrivals.armed(100);
    arrivals.take(payload(0, 99)).unwrap();
    arrivals.take(last(-12)).unwrap();
    arrivals.resumed();
    assert_eq!(arrivals.state(), RequestState::Idle);
    arrivals.armed(10);
    arrivals.take(last(0)).unwrap();
    arrivals.resumed();
    assert_eq!(arrivals.state(), RequestState::End, "an end is not taken back");
}

#[test]
fn what_no_kernel_posts_is_refused_and_changes_nothing() {
    for (what, bad) in [
        ("never made", Completion { user_data: 8, ..payload(0, 1) }),
        ("another area", Completion { off: 2 << 48, ..payload(0, 1) }),
        ("another area", Completion { off: u64::MAX, ..payload(0, 1) }),
        ("outside", payload(AREA, 1)),
        ("outside", payload((1 << 48) - 1, 1)),
        ("outside of a page", payload(4000, 97)),
        ("outside of a page", payload(0, i32::MAX)),
    ] {
        let mut arrivals = arrivals();
        let refused = arrivals.take(bad).unwrap_err();
        assert!(refused.to_string().contains("LS1323") && refused.what.contains(what), "{refused}");
        assert_eq!(arrivals.state(), RequestState::Armed);
        assert!(arrivals.take(payload(0, 4096)).unwrap().is_some());
    }
    let mut arrivals = Arrivals::new(MARK, AREA, TOKEN, 9);
    assert!(arrivals.take(payload(0, 1)).is_err(), "nothing was asked for");
    arrivals.armed(10);
    assert!(arrivals.take(payload(0, 11)).unwrap_err().what.contains("more bytes"));
    assert_eq!(arrivals.take(payload(PAGE - 1, 1)).unwrap().unwrap().len(), 1);
}

/// The kernel's side: how often user space has each page, and who is free.
#[test]
fn pages_are_free_when_every_part_of_every_completion_came_back() {
    let (pages, entries) = (4u32, 4);
    let mut refill = Refill::new(entries, pages as usize);
    let (mut uses, mut parts) = (vec![0u32; pages as usize], vec![0u32; pages as usize]);
    let (mut ring, mut head) = (vec![u32::MAX; entries as usize], 0u32);
    let mut rng = 1u64;
    let mut below = |n: u64| {
        rng = rng.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (rng >> 33) % n
    };
    let mut most = 0;
    for _ in 0..20_000 {
        let page = below(u64::from(pages)) as usize;
        match below(3) {
            0 if uses[page] < 3 => {
                uses[page] += 1;
                parts[page] += 1;
                for _ in 0..below(3) {
                    refill.parted(page as u32);
                    parts[page] += 1;
                }
            }
            1 if parts[page] > 0 && refill.space() > 0 => {
                parts[page] -= 1;
                if let Some(slot) = refill.back(page as u32).unwrap() {
                    ring[slot as usize] = page as u32;
                }
            }
            _ => {
                // The kernel takes some.
                for _ in 0..below(6) {
                    if head == refill.tail() {
                        break;
                    }
                    let page = ring[head as usize % entries as usize] as usize;
                    head = head.wrapping_add(1);
                    uses[page] = uses[page].checked_sub(1).expect("more entries than uses");
                    assert!(uses[page] > 0 || parts[page] == 0, "a page is free while a part of it is out");
                }
                refill.kernel_at(head).unwrap();
            }
        }
        most = most.max(entries - refill.space());
    }
    assert_eq!(most, entries, "the ring was never full");
}

#[test]
fn a_head_that_cannot_be_and_a_page_that_is_none() {
    let mut refill = Refill::new(4, 2);
    refill.back(0).unwrap();
    assert_eq!(refill.kernel_at(2), Err(BadRefill::Head { taken: 2, given: 1 }));
    assert_eq!(refill.kernel_at(u32::MAX), Err(BadRefill::Head { taken: u32::MAX, given: 1 }));
    assert_eq!(refill.space(), 3);
    refill.kernel_at(1).unwrap();
    assert_eq!(refill.space(), 4);
    assert_eq!(refill.back(2), Err(BadRefill::Page { page: 2, pages: 2 }));
    refill.parted(77);
    assert_eq!(refills(9), 64);
    assert_eq!(refills(100), 256);
    assert_eq!(refills(u64::MAX), MOST_REFILLS);
}

#[test]
fn a_fragment_written_as_a_control_message_reads_back() {
    let fragments = [
        Fragment::Device { offset: 5 << 12, len: 77, token: 5, dmabuf: 9 },
        Fragment::Linear { len: 13 },
        Fragment::Device { offset: u64::MAX >> 1, len: 1, token: u32::MAX - 1, dmabuf: 1 },
    ];
    let mut control = [0u64; 15];
    let mut used = 0;
    for fragment in fragments {
        assert!(crate::devmem::tell(fragment, &mut control, &mut used));
    }
    assert!(!crate::devmem::tell(fragments[0], &mut control, &mut used), "a full buffer");
    let bytes: Vec<u8> = control.iter().flat_map(|w| w.to_le_bytes()).collect();
    let read: Result<Vec<_>, _> = crate::devmem::fragments(91, &bytes[..used * 8]).collect();
    assert_eq!(read.unwrap(), fragments);
}
