//! The tuner tables.

use std::ffi::c_int;
use std::ptr::null_mut;

use super::mock::{ncclTunerPlugin_v3, ncclTunerPlugin_v4, ncclTunerPlugin_v5, ncclTunerPlugin_v6};

/// 7 algorithms with 3 protocols, as NCCL has them; -1 where NCCL itself forbids.
fn costs() -> [f32; 21] {
    let mut costs = std::array::from_fn(|i| i as f32 + 1.0);
    costs[3 * 6 + 1] = -1.0;
    costs
}

fn check(costs: [f32; 21], forbidden: bool) {
    for (i, (&now, then)) in costs.iter().zip(self::costs()).enumerate() {
        let expected = if forbidden && i % 3 == 1 { -1.0 } else { then };
        assert_eq!(now, expected, "entry {i}");
    }
}

#[test]
fn ll128_is_forbidden_across_nodes_only() {
    for (nodes, forbidden) in [(1, false), (2, true), (64, true)] {
        let mut ctx = null_mut();
        let mut channels: c_int = 5;
        // SAFETY: what the interface asks for.
        unsafe {
            let mut table = costs();
            assert_eq!(ncclTunerPlugin_v3.init.unwrap()(64, nodes, None, &raw mut ctx), 0);
            let t = &raw mut table;
            assert_eq!(
                ncclTunerPlugin_v3.get_coll_info.unwrap()(ctx, 4, 1 << 20, 1, t.cast(), 7, 3, &raw mut channels),
                0
            );
            check(table, forbidden);
            assert_eq!(ncclTunerPlugin_v3.destroy.unwrap()(ctx), 0);

            assert_eq!(ncclTunerPlugin_v4.init.unwrap()(64, nodes, None, &raw mut ctx), 0);
            for table_v4 in
                [ncclTunerPlugin_v4.get_coll_info, ncclTunerPlugin_v5.get_coll_info, ncclTunerPlugin_v6.get_coll_info]
            {
                let mut table = costs();
                let t = &raw mut table;
                assert_eq!(table_v4.unwrap()(ctx, 4, 1 << 20, 1, t.cast(), 7, 3, 0, &raw mut channels), 0);
                check(table, forbidden);
            }
            assert_eq!(ncclTunerPlugin_v4.destroy.unwrap()(ctx), 0);
            let init = ncclTunerPlugin_v6.init.unwrap();
            assert_eq!(init(&raw mut ctx, 1, 64, nodes, None, null_mut(), null_mut()), 0);
            assert_eq!(ncclTunerPlugin_v5.finalize.unwrap()(ctx), 0);
            assert_eq!(init(null_mut(), 1, 64, nodes, None, null_mut(), null_mut()), 4);
        }
        assert_eq!(channels, 5, "channels are NCCL's business");
    }
    assert!(ncclTunerPlugin_v6.get_chunk_size.is_none());
}

#[test]
fn ll128_stays_where_nothing_else_is_left() {
    let mut only = [-1.0, 3.0, -1.0, -1.0, 2.0, -1.0];
    assert!(!linkspan_plugin::tuner::forbid_ll128(&mut only, 3));
    assert_eq!(only, [-1.0, 3.0, -1.0, -1.0, 2.0, -1.0]);
    let mut one_protocol = [1.0, 2.0];
    assert!(!linkspan_plugin::tuner::forbid_ll128(&mut one_protocol, 1));
    assert!(!linkspan_plugin::tuner::forbid_ll128(&mut [], 3));
}

#[test]
fn absurd_tables_are_refused() {
    let cost = ncclTunerPlugin_v4.get_coll_info.unwrap();
    let mut ctx = null_mut();
    let mut costs = costs();
    let t = (&raw mut costs).cast();
    // SAFETY: refused before the table is read.
    unsafe {
        assert_eq!(ncclTunerPlugin_v4.init.unwrap()(8, 2, None, &raw mut ctx), 0);
        assert_eq!(cost(ctx, 4, 1, 1, t, -1, 3, 0, null_mut()), 4);
        assert_eq!(cost(ctx, 4, 1, 1, t, 7, 1000, 0, null_mut()), 4);
        assert_eq!(cost(ctx, 4, 1, 1, null_mut(), 7, 3, 0, null_mut()), 4);
    }
}
