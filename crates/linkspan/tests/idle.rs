//! What idle transports cost; alone in its process, so that nothing else is measured.
#![allow(clippy::unwrap_used)]

mod common;

use std::time::Duration;

use common::{LONG, PATHS, pair};
use linkspan::{Access, Memory};

fn spent() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

#[test]
fn idle_transports_use_no_time() {
    let pairs: Vec<_> = PATHS.iter().map(|p| pair(p.1)).collect();
    for (a, b) in &pairs {
        let remote = b.expose(&Memory::host(8).view(), Access::Write).unwrap().remote();
        a.write_blocking(&Memory::host(8).view(), &remote, None, Some(LONG)).unwrap();
    }
    // The engine threads take over from the blocking calls.
    std::thread::sleep(Duration::from_millis(100));
    let least = (0..10).map(|_| {
        let before = spent();
        std::thread::sleep(Duration::from_millis(200));
        spent() - before
    });
    let least = least.min().unwrap();
    assert!(least < Duration::from_millis(4), "six idle transports used {least:?} of 200 ms");
}
