use linkspan_netdev::PoolCounts;

use super::*;

#[test]
fn pools_are_told_by_binding_with_their_numbers() {
    let pool =
        |id, pages, dmabuf, counts| PagePool { id, pages, bytes: pages * 4096, dmabuf, counts, ..PagePool::default() };
    let counts = |empty| Some(PoolCounts { fast: 10, slow: 5, empty });
    let all = [
        pool(1, 256, None, None),
        pool(2, 100, Some(9), counts(3)),
        pool(3, 28, Some(9), counts(4)),
        pool(4, 0, None, None),
    ];
    let said: Vec<String> = by_binding(&all).iter().map(ToString::to_string).collect();
    assert_eq!(
        said,
        [
            "host memory: 256 pages in use (1.0 MiB) of 2 pools",
            "binding 9 of GPU memory: 128 pages in use (0.5 MiB) of 2 pools; taken 30 times, 7 of them with nothing given back",
        ]
    );
}
