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
    let way = |name: &str| Way { name: name.into(), path: "tcp", over: String::new(), env: Vec::new() };
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
    assert_eq!(crate::schema::problems("compare-1.json", &document(&args, &found)), Vec::<String>::new());
    assert!(text.contains("50 %") && text.contains("# not rdma: no device"), "{text}");
}
