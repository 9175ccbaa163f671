use std::time::Duration;

use crate::{Access, Config, Context, Log, Memory, Notify};

const LONG: Duration = Duration::from_secs(60);

fn context() -> Context {
    let settings = [("LINKSPAN_IFNAME", "=lo"), ("LINKSPAN_PATH", "tcp"), ("LINKSPAN_STATS_DIR", "off")];
    let get = |name: &str| settings.iter().find(|p| p.0 == name).map(|p| p.1.to_owned());
    Context::new(Config::read(&get).expect("settings"), Log::off()).expect("a context")
}

/// Without precedence both sides often take the path that the other one makes, and abandon their own, which is in use there.
#[test]
fn sides_that_dial_at_once_and_take_each_others_path_stay_connected() {
    let (ours, theirs) = (context(), context());
    for _ in 0..50 {
        let (a, b) = (ours.transport().expect("a transport"), theirs.transport().expect("a transport"));
        let (to_a, to_b) = (a.bind().expect("a URL"), b.bind().expect("a URL"));
        std::thread::scope(|s| {
            s.spawn(|| a.connect_blocking(&to_b, LONG).expect("a connects"));
            s.spawn(|| b.connect_blocking(&to_a, LONG).expect("b connects"));
        });
        let (inbox, source) = (Memory::host(100), Memory::copy_of(&[7; 100]));
        let remote = b.expose(&inbox.view(), Access::Write).expect("exposed").remote();
        a.write_blocking(&source.view(), &remote, Some(Notify::COUNT), Some(LONG)).expect("written");
        b.wait_for_write_blocking(Some(LONG)).expect("notified");
        let mut got = [0; 100];
        inbox.read(0, &mut got).expect("read");
        assert_eq!(got, [7; 100]);
    }
}
