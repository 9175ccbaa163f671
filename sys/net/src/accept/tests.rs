use std::io;
use std::time::{Duration, Instant};

use super::{AcceptPause, PAUSE, is_shortage};

#[test]
fn a_failed_accept_is_a_pause_and_one_warning_a_minute() {
    let (mut pause, start) = (AcceptPause::new(), Instant::now());
    assert!(pause.is_over(start));
    let mut warnings = 0;
    let mut now = start;
    while now < start + Duration::from_secs(120) {
        warnings += u32::from(pause.begin(now));
        assert!(!pause.is_over(now) && !pause.is_over(now + PAUSE - Duration::from_nanos(1)));
        now += PAUSE;
        assert!(pause.is_over(now));
    }
    assert_eq!(warnings, 2);
}

#[test]
fn what_passes_is_told_from_what_does_not() {
    for errno in [libc::EMFILE, libc::ENFILE, libc::ENOBUFS, libc::ENOMEM] {
        assert!(is_shortage(&io::Error::from_raw_os_error(errno)));
    }
    assert!(!is_shortage(&io::Error::from_raw_os_error(libc::EBADF)));
}
