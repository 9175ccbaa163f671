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
