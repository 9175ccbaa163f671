use super::*;

#[test]
fn a_plugin_of_others_is_told_from_ours() {
    for (value, other) in [
        (None, None),
        (Some("linkspan"), None),
        (Some("x,linkspan"), None),
        (Some("/opt/lib/libnccl-net-linkspan.so"), None),
        (Some("aws-ofi"), Some("aws-ofi")),
        (Some("none"), Some("none")),
        (Some("linkspan2"), Some("linkspan2")),
    ] {
        assert_eq!(foreign(value), other, "{value:?}");
    }
}

#[test]
fn the_plugin_is_looked_for_as_it_is_installed() {
    let dirs = beside();
    let bin = std::env::current_exe().unwrap().canonicalize().unwrap().parent().unwrap().to_owned();
    assert_eq!(dirs[0], bin.parent().unwrap().join("lib"));
    assert!(dirs.contains(&bin));
}

#[test]
fn another_plugin_in_nccls_own_file_is_refused_with_the_command_for_that_file() {
    let fixture = linkspan_topology::fixture::Fixture::tree("etc/nccl.conf\tNCCL_NET_PLUGIN=aws-ofi\n");
    let sources = Sources { roots: fixture.roots(), ..Sources::default() };
    let snapshot = Snapshot::read(sources);
    let job = Job { snapshot, settings: Vec::new(), report: Report::default(), late: Vec::new() };
    let refusals = job.refusals();
    assert!(refusals[0].contains("NCCL_NET_PLUGIN=aws-ofi asks for another plugin"), "{refusals:?}");
    assert!(refusals[0].ends_with("type   sudo sed -i '/^NCCL_NET_PLUGIN=/d' /etc/nccl.conf"), "{refusals:?}");
}
