use super::*;
use crate::judge::judge;
use crate::tests::{Built, build, machines};

fn machine(name: &str, more: &[&str]) -> Built {
    let mut lines = machines().get(name).unwrap().clone();
    lines.extend(more.iter().map(|line| (*line).to_owned()));
    build(&lines)
}

fn names(built: &Built, beside: &[&str]) -> Vec<(&'static str, String)> {
    let beside: Vec<PathBuf> = beside.iter().map(PathBuf::from).collect();
    settings(&built.snapshot, &beside).into_iter().map(|one| (one.name, one.value)).collect()
}

const HERE: &str = "opt/linkspan/lib/libnccl-net-linkspan.so\tlinkspan-plugin-version=0.2.0;";

#[test]
fn what_is_not_set_yet_is_set_and_the_users_own_word_stays() {
    let built = machine("laptop", &[HERE]);
    let found = names(&built, &["/nowhere", "/opt/linkspan/lib"]);
    let two = [("NCCL_NET_PLUGIN", "linkspan".to_owned()), ("NCCL_NET", "linkspan".to_owned())];
    assert_eq!(found[0], ("LD_LIBRARY_PATH", "/opt/linkspan/lib".to_owned()));
    assert_eq!(found[1..3], two);
    let built =
        machine("laptop", &[HERE, "env LD_LIBRARY_PATH=/a", "env NCCL_NET=IB", "env NCCL_NET_PLUGIN=x,linkspan"]);
    assert_eq!(names(&built, &["/opt/linkspan/lib"]), [("LD_LIBRARY_PATH", "/opt/linkspan/lib:/a".to_owned())]);
}

#[test]
fn what_nccls_own_files_set_stays_too_and_goes_into_a_container() {
    let route = "proc/net/route\tIface Destination Gateway Flags RefCnt Use Metric Mask\\nenp193s0 00000000 0101A8C0 0003 0 0 100 00000000";
    let conf = "etc/nccl.conf\tNCCL_SOCKET_IFNAME=thunderbolt0\\nNCCL_NET=IB\\nNCCL_NET_PLUGIN=/opt/linkspan/lib/libnccl-net-linkspan.so";
    let built = machine("strix-halo", &[HERE, route, conf]);
    assert_eq!(names(&built, &[]), []);
    let fatal: Vec<_> = fatal(&judge(&built.snapshot, None)).iter().map(|one| one.rule.code()).collect();
    assert_eq!(fatal, ["LS2804"], "the file's network is judged, not replaced");
    let built = machine("strix-halo", &[HERE, route, "etc/nccl.conf\tLINKSPAN_IFNAME=thunderbolt0"]);
    assert!(names(&built, &[]).iter().all(|(name, _)| !name.ends_with("IFNAME")));
    let own = [
        "env HOME=/home/u",
        "home/u/.nccl.conf\tNCCL_NET=linkspan",
        "etc/nccl.conf\tNCCL_NET=IB\\nNCCL_DEBUG=WARN\\nPATH=x",
    ];
    let built = machine("laptop", &[&own[..], &["env NCCL_DEBUG=INFO"]].concat());
    let pairs =
        [("NCCL_DEBUG", "INFO"), ("NCCL_NET", "linkspan")].map(|(name, value)| (name.to_owned(), value.to_owned()));
    assert_eq!(built.snapshot.carried(), pairs);
}

#[test]
fn a_plugin_that_the_loader_finds_stays_unless_it_is_older() {
    for (release, folder) in [("0.2.0", None), ("0.3.0", None), ("0.1.0", Some("/opt/linkspan/lib"))] {
        let other = format!("usr/lib/libnccl-net-linkspan.so\tlinkspan-plugin-version={release};");
        let built = machine("laptop", &[HERE, &other]);
        let found = names(&built, &["/opt/linkspan/lib"]);
        let set = found.iter().find(|(name, _)| *name == "LD_LIBRARY_PATH").map(|(_, value)| value.as_str());
        assert_eq!(set, folder, "{release}");
    }
}

#[test]
fn bootstrap_goes_over_the_default_route_and_payload_does_not() {
    let route = "proc/net/route\tIface Destination Gateway Flags RefCnt Use Metric Mask\\nenp193s0 00000000 0101A8C0 0003 0 0 100 00000000";
    let built = machine("strix-halo", &[route]);
    let set = names(&built, &[]);
    let value = |name| set.iter().find(|(have, _)| *have == name).map(|(_, value)| value.as_str());
    assert_eq!(value("NCCL_SOCKET_IFNAME"), Some("=enp193s0"), "{set:?}");
    assert_eq!(value("LINKSPAN_IFNAME"), Some("^=lo"));
    // Whoever chose something keeps it; where there is one interface there is nothing to choose.
    for more in ["env NCCL_SOCKET_IFNAME=thunderbolt", "env LINKSPAN_IFNAME=thunderbolt"] {
        let set = names(&machine("strix-halo", &[route, more]), &[]);
        assert!(set.iter().all(|(name, _)| !name.ends_with("IFNAME")), "{more}: {set:?}");
    }
    let set = names(&machine("pod", &[]), &[]);
    assert!(
        set.iter().all(|(name, _)| !name.ends_with("IFNAME")),
        "a last resort that is named is no downgrade any more: {set:?}"
    );
}

#[test]
fn what_cannot_work_is_fatal_and_the_rest_is_not() {
    let codes = |built: &Built| {
        let report = judge(&built.snapshot, None);
        let codes = |list: Vec<&Finding>| list.iter().map(|one| one.rule.code()).collect::<Vec<_>>();
        (codes(fatal(&report)), codes(costs(&report)))
    };
    let built = machine("strix-halo", &["env NCCL_NET_PLUGIN=linkspan", "env NCCL_MESH_DEBUG=1"]);
    assert_eq!(codes(&built), (vec!["LS2802"], vec!["LS2801"]));
    let built = machine(
        "strix-halo",
        &[HERE, "env NCCL_NET_PLUGIN=linkspan", "env LD_LIBRARY_PATH=/opt/linkspan/lib", "env NCCL_NET=Socket"],
    );
    assert_eq!(codes(&built), (vec!["LS2804"], vec![]));
    let built = machine("strix-halo", &["settings LS0501 LINKSPAN_STRICT=x"]);
    assert_eq!(codes(&built), (vec!["LS2301"], vec![]));
}

#[test]
fn the_hosts_plugin_is_found_below_another_root() {
    let file = format!("run/host/usr/lib/{}-linux-gnu/libnccl-net-linkspan.so", std::env::consts::ARCH);
    let built = machine("strix-halo-toolbox", &[&format!("{file}\tlinkspan-plugin-version=0.2.0;")]);
    assert_eq!(plugin_below(&built.snapshot, "/run/host"), Some(PathBuf::from(format!("/{file}"))));
    assert_eq!(plugin_below(&built.snapshot, "/"), None);
}

#[test]
fn a_port_of_rdma_that_is_not_ready_carries_nothing_over_its_interface() {
    let built = machine("h100-roce", &[]);
    assert_eq!(built.snapshot.rdma_of("enp25s0np0"), Some("mlx5_0"));
    let mut lines = machines()["h100-roce"].clone();
    let port = "sys/devices/pci0000:15/0000:15:02.0/0000:19:00.0/infiniband/mlx5_0/ports/1";
    crate::tests::change(&mut lines, &format!("{port}/gid_attrs/types/0\tIB/RoCE v1"));
    assert_eq!(build(&lines).snapshot.rdma_of("enp25s0np0"), None);
}
