use linkspan_topology::fixture::{self, Fixture};

use super::*;

fn names(tree: &str, local: bool) -> Vec<String> {
    let fixture = Fixture::tree(tree);
    ways(&Machine::read(&fixture.roots()), &fixture.survey(), local).into_iter().map(|way| way.name).collect()
}

#[test]
fn each_way_of_a_machine_is_tried() {
    // What is left out as slower is measured too.
    assert_eq!(
        names(fixture::STRIX_HALO, false),
        [
            "as chosen",
            "cable by linkspan.ko",
            "cable by USB4STREAM",
            "tcp over enp193s0",
            "tcp over wlp194s0",
            "tcp over thunderbolt0"
        ]
    );
    assert!(
        names(fixture::SPARK, false).iter().any(|name| name.starts_with("rdma by ")),
        "{:?}",
        names(fixture::SPARK, false)
    );
    assert_eq!(names(fixture::LAPTOP, true), ["as chosen", "shared memory", "tcp over loopback"]);
}

#[test]
fn the_table_has_what_is_chosen_first_and_says_why_others_are_not_there() {
    let once = |gbit_s| Once { gbit_s, latency_us: Some(10.0), path: "tcp x".into(), downgrades: Vec::new() };
    let way = |name: &str| ComparedPath {
        name: name.into(),
        path: "tcp",
        over: String::new(),
        mark: String::new(),
        env: Vec::new(),
    };
    let found = [
        (way("as chosen"), Ok(once(5.0))),
        (way("slow"), Ok(once(1.0))),
        (way("fast"), Ok(once(10.0))),
        (way("rdma"), Err("no device".into())),
    ];
    let args = CompareArgs { peer: "mini2".into(), duration: std::time::Duration::from_secs(1), json: true };
    let text = text(&found, 10.0);
    let first: Vec<&str> = text.lines().map(|line| line.split_whitespace().next().unwrap()).collect();
    assert_eq!(first[..4], ["way", "as", "fast", "slow"]);
    assert_eq!(crate::schema::problems("compare-1.json", &document(&args, &found, None)), Vec::<String>::new());
    assert!(text.contains("50 %") && text.contains("# not rdma: no device"), "{text}");
}

#[test]
fn what_is_chosen_is_known_as_the_way_that_it_is() {
    let fixture = Fixture::tree(fixture::STRIX_HALO);
    let ways = ways(&Machine::read(&fixture.roots()), &fixture.survey(), false);
    let once = |path: &str| Once { gbit_s: 1.0, latency_us: None, path: path.into(), downgrades: Vec::new() };
    let which = |path: &str| {
        let hits: Vec<&str> = ways[1..].iter().filter(|way| way.carried(&once(path))).map(|way| &*way.name).collect();
        hits.join("; ")
    };
    assert_eq!(which("tcp thunderbolt0 [fe80::1%5]:1 -> [fe80::2%5]:2"), "tcp over thunderbolt0");
    assert_eq!(which("tcp thunderbolt0 10.0.0.1:1 -> 10.0.0.2:2, enp193s0 10.1.0.1:1 -> 10.1.0.2:2"), "");
    assert_eq!(which("thunderbolt 0-1 aa -> bb (tier 1 (ring), 20 Gb/s)"), "cable by linkspan.ko");
    assert_eq!(which("verbs mlx5_0/1 10.0.0.1 -> 10.0.0.2 (GID 3, MTU 4096, queue pairs 0x1 -> 0x2)"), "");
    assert_eq!(which("?"), "");
    let spark = Fixture::tree(fixture::SPARK);
    let ways = super::ways(&Machine::read(&spark.roots()), &spark.survey(), false);
    let rdma = ways.iter().find(|way| way.path == "verbs").unwrap();
    let device = rdma.mark.trim_end_matches('/');
    let path = format!("verbs {device}/1 10.0.0.1 -> 10.0.0.2 (GID 3, MTU 4096, 200 Gb/s, queue pairs 0x1 -> 0x2)");
    assert!(rdma.carried(&once(&path)) && !rdma.carried(&once(&format!("{path}, other/1 a -> b"))));
}
