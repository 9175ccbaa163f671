use super::*;

#[test]
fn older_names_in_the_environment() {
    let set = [
        "NCCL_MESH_GID_INDEX",
        "PATH",
        "RCCL_NET_PLUGIN",
        "NCCL_DEBUG",
        "ODL_TB5_X",
        "UCCL_TCPX_UNPACK_IMPL",
        "NCCL_MESH_DEBUG",
        "NCCL_NET_PLUGIN=mesh",
    ];
    let found = names(set.into_iter());
    let only: Vec<&str> = found.iter().map(|(name, _)| *name).collect();
    assert_eq!(
        only,
        [
            "NCCL_MESH_DEBUG",
            "NCCL_MESH_GID_INDEX",
            "NCCL_NET_PLUGIN=mesh",
            "ODL_TB5_X",
            "RCCL_NET_PLUGIN",
            "UCCL_TCPX_UNPACK_IMPL"
        ]
    );
    assert!(found[0].1.contains("LINKSPAN_LOG"), "the exact name goes before the pattern");
    assert!(found[1].1.contains("LINKSPAN_GID_INDEX"), "the exact name goes before the pattern");
    assert!(found[4].1.contains("NCCL_NET_PLUGIN=linkspan"));
    assert!(found[5].1.contains("LINKSPAN_UNPACK"));
}
