//! Golden bytes written by hand from the kernel's headers (little-endian machines).
#![cfg(target_endian = "little")]
#![allow(clippy::unwrap_used)]

use super::*;
use crate::message::{NetlinkReply, answers};

/// What the kernel sends of one pool: number 7 on interface 3, NAPI 513, 20 pages of 81920 bytes, binding 9. Unsigned integers of
/// a free width come as four bytes where that is enough.
#[rustfmt::skip]
const POOL: [u8; 76] = [
    76, 0, 0, 0, 20, 0, 2, 0, 5, 0, 0, 0, 0, 0, 0, 0,
    5, 1, 0, 0,
    8, 0, 1, 0, 7, 0, 0, 0,
    8, 0, 2, 0, 3, 0, 0, 0,
    8, 0, 3, 0, 1, 2, 0, 0,
    8, 0, 4, 0, 20, 0, 0, 0,
    12, 0, 5, 0, 0, 64, 1, 0, 1, 0, 0, 0,
    8, 0, 7, 0, 9, 0, 0, 0,
    4, 0, 6, 0,
];

#[test]
fn a_pool_is_taken_apart() {
    let answers = answers(&POOL, 5).unwrap();
    let [NetlinkReply::Object(attrs)] = answers[..] else { panic!("{answers:?}") };
    let want = PagePool {
        id: 7,
        napi: Some(513),
        pages: 20,
        bytes: 0x1_0001_4000,
        dmabuf: Some(9),
        detached: true,
        counts: None,
    };
    assert_eq!(pool(attrs, 3).unwrap(), Some(want));
    assert_eq!(pool(attrs, 4).unwrap(), None, "another interface's");
}

#[test]
fn what_is_asked_is_what_the_kernel_reads() {
    // NETDEV_CMD_PAGE_POOL_GET and NETDEV_CMD_PAGE_POOL_STATS_GET: dumps without attributes.
    assert_eq!(dump(20, POOL_GET).finish(3), [20, 0, 0, 0, 20, 0, 1, 3, 3, 0, 0, 0, 0, 0, 0, 0, 5, 1, 0, 0]);
    assert_eq!(dump(20, STATS_GET).finish(4), [20, 0, 0, 0, 20, 0, 1, 3, 4, 0, 0, 0, 0, 0, 0, 0, 9, 1, 0, 0]);
    // NETDEV_CMD_QSTATS_GET of interface 2, each queue by itself.
    #[rustfmt::skip]
    let golden = [
        36, 0, 0, 0, 20, 0, 1, 3, 5, 0, 0, 0, 0, 0, 0, 0,
        12, 1, 0, 0,
        8, 0, 1, 0, 2, 0, 0, 0,
        8, 0, 4, 0, 1, 0, 0, 0,
    ];
    assert_eq!(dump(20, QSTATS_GET).u32(QSTATS_IFINDEX, 2).u32(QSTATS_SCOPE, SCOPE_QUEUE).finish(5), golden);
}
