use super::*;

fn means(line: &str) -> Option<Perf> {
    let args: Vec<OsString> = std::iter::once("lspan").chain(line.split_whitespace()).map(Into::into).collect();
    match spelling(&args) {
        Some(Command::Perf { perf }) => Some(perf),
        _ => None,
    }
}

#[test]
fn the_older_spelling_means_the_new_commands() {
    assert!(
        matches!(means("--server --device 0"), Some(Perf::Serve(args)) if args.port == linkspan_service::rendezvous::PERF.port)
    );
    assert!(matches!(means("perf --server"), Some(Perf::Serve(_))));
    assert!(
        matches!(means("--client h --test bandwidth"), Some(Perf::Bw(args)) if args.measure.peer.as_deref() == Some("h"))
    );
    assert!(
        matches!(means("perf --client --device 2 --test latency"), Some(Perf::Lat(args)) if args.peer.is_none() && args.device == 2)
    );
    assert!(matches!(means("--client --test jitter"), Some(Perf::Jitter(_))));
    assert!(matches!(means("--client --test=latency-load"), Some(Perf::Load(_))));
    assert!(matches!(means("--test mimo --client"), Some(Perf::Multi(args)) if args.streams == 4));
}

#[test]
fn the_new_spelling_is_left_alone() {
    for line in ["", "perf", "perf bw --size 8", "status", "--help", "perf serve", "perf bw --server"] {
        assert!(means(line).is_none(), "{line}");
    }
}

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
