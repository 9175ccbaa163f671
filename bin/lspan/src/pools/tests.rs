#![allow(clippy::unwrap_used)]

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

#[test]
fn a_line_for_each_pool_and_one_for_what_found_no_page() {
    let pool =
        |pages, dmabuf| PagePool { id: 1, pages, bytes: pages * 4096, dmabuf, counts: None, ..PagePool::default() };
    let card = |interface: &str, all: &[PagePool], packets_without_page| CardPools {
        interface: interface.to_owned(),
        pools: by_binding(all),
        packets_without_page,
    };
    let cards = [card("eth0", &[pool(256, Some(4)), pool(8, None)], Some(3)), card("eth1", &[pool(0, None)], None)];
    assert_eq!(
        lines(&cards),
        "eth0: host memory: 8 pages in use (0.0 MiB) of 1 pools\n\
         eth0: binding 4 of GPU memory: 256 pages in use (1.0 MiB) of 1 pools\n\
         eth0: 3 packets found no page\n\
         eth1: host memory: 0 pages in use (0.0 MiB) of 1 pools\n"
    );
    let json = serde_json::json!({ "schema": "linkspan.stats/1", "processes": [], "cards": cards });
    assert_eq!(json["cards"][0]["pools"][1]["binding"], 4);
    let schema: serde_json::Value = serde_json::from_str(include_str!("../../../../docs/schema/stats-1.json")).unwrap();
    let known =
        schema["properties"]["cards"]["items"]["properties"]["pools"]["items"]["properties"].as_object().unwrap();
    let told = json["cards"][0]["pools"][0].as_object().unwrap();
    assert!(told.keys().eq(known.keys()), "{told:?} is not what the schema says");
}
