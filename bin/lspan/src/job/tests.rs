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
