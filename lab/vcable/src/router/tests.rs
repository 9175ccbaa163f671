use super::*;

fn router() -> Router {
    Router::new(Shape { id: 0, ports: 2, hops: 12, version_2: false, generation: 3, lanes: 2 })
}

/// Capability numbers of an adapter by walking its list.
fn capabilities(router: &Router, adapter: usize) -> Vec<u32> {
    let word = |o: usize| router.read(adapter, Space::Adapter, o, 1).unwrap()[0];
    let (mut all, mut at) = (Vec::new(), word(1) as usize & 0xff);
    while at != 0 && all.len() < 10 {
        all.push(word(at) >> 8 & 0xff);
        at = word(at) as usize & 0xff;
    }
    all
}

#[test]
fn adapters_have_the_capabilities_that_drivers_look_for() {
    let router = router();
    assert_eq!(router.nhi_adapter(), 5);
    for (adapter, expected) in [(1, vec![1, 3, 6]), (2, vec![1, 3]), (3, vec![1, 3, 6]), (4, vec![1, 3]), (5, vec![])] {
        assert_eq!(capabilities(&router, adapter), expected, "adapter {adapter}");
        let header = router.read(adapter, Space::Adapter, 0, 8).unwrap();
        assert_eq!(header[3] >> 20, adapter as u32);
    }
    let header = router.read(0, Space::Router, 0, 5).unwrap();
    assert_eq!((header[1] >> 8 & 0x3f, header[1] >> 14 & 0x3f, header[4] >> 24), (5, 5, 0x20));
}

#[test]
fn what_the_driver_may_not_write_stays() {
    let mut router = router();
    let before: Vec<u32> = [0, 7, 8].map(|o| router.read(0, Space::Router, o, 1).unwrap()[0]).to_vec();
    let mut effects = Vec::new();
    for offset in 0..SPACE_WORDS {
        router.write(0, Space::Router, offset, &[!0], &mut effects).unwrap();
        router.write(1, Space::Adapter, offset, &[!0], &mut effects).unwrap();
    }
    let after: Vec<u32> = [0, 7, 8].map(|o| router.read(0, Space::Router, o, 1).unwrap()[0]).to_vec();
    assert_eq!(after, before);
    assert_eq!(router.buffers(1), BUFFERS);
    assert_eq!(capabilities(&router, 1), [1, 3, 6]);
    // Lane state and rates belong to the link.
    assert_eq!(router.read(1, Space::Adapter, CAP_PHY + 1, 1).unwrap()[0] >> 16, LANE_UNPLUGGED << 10 | 1 << 4 | 4);
}

#[test]
fn paths_are_told_apart_by_their_enable_bit() {
    let mut router = router();
    let path = Path { next_hop: 9, out_adapter: 1, credits: 14, weight: 1, priority: 5, ingress_fc: true };
    let mut effects = Vec::new();
    router.write(5, Space::Path, 2, &path.encode(), &mut effects).unwrap();
    assert_eq!(effects, [Effect::Path { adapter: 5, hop: 1 }]);
    assert_eq!(router.path(5, 1), Some(path));
    assert_eq!((router.path(5, 2), router.path(5, 12), router.path(99, 0)), (None, None, None));
    assert_eq!(router.paths(1).count(), 1, "the control path");
    router.write(5, Space::Path, 2, &[path.encode()[0] & !(1 << 31)], &mut effects).unwrap();
    assert_eq!(router.path(5, 1), None);
    assert_eq!(router.write(5, Space::Path, 24, &[1], &mut effects), Err(ConfigError::InvalidSpace));
}

#[test]
fn hosts_have_different_uids() {
    let other = Router::new(Shape { id: 1, ..router().shape });
    assert_ne!(router().uuid(), other.uuid());
    assert!(router().uuid().to_string().ends_with("-ffff-ffffffffffff"));
}
