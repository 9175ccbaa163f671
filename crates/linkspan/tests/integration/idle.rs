//! What idle transports cost: in a process of their own, so that nothing else is measured.

use std::process::Command;
use std::time::Duration;

use crate::common::{LONG, PATHS, pair};
use linkspan::{Access, Memory};

const ALONE: &str = "LINKSPAN_TEST_ALONE";

fn spent() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

#[test]
fn idle_transports_use_no_time() {
    if std::env::var_os(ALONE).is_none() {
        let mut alone = Command::new(std::env::current_exe().unwrap());
        alone.args(["--exact", "idle::idle_transports_use_no_time", "--nocapture"]).env(ALONE, "1");
        let out = alone.output().unwrap();
        let said = String::from_utf8_lossy(&out.stdout);
        let passed = out.status.success() && said.contains("1 passed");
        assert!(passed, "{said}\n{}", String::from_utf8_lossy(&out.stderr));
        return;
    }
    let pairs: Vec<_> = PATHS.iter().map(|p| pair(p.1)).collect();
    for (a, b) in &pairs {
        let remote = b.expose(&Memory::host(8).view(), Access::Write).unwrap().remote();
        a.write_blocking(&Memory::host(8).view(), &remote, None, Some(LONG)).unwrap();
    }
    // The engine threads take over from the blocking calls after a while. One that never sleeps takes all of each 200 ms.
    let least = (0..20).map(|_| {
        let before = spent();
        std::thread::sleep(Duration::from_millis(200));
        spent() - before
    });
    let mut least = least.inspect(|spent| eprintln!("{spent:?} of 200 ms"));
    assert!(least.any(|spent| spent < Duration::from_millis(4)), "six idle transports are never quiet");
}
