use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::{ended, of_pid, of_socket};
use crate::page::tests::spawn;

fn until(what: &str, mut check: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(20);
    while !check() {
        assert!(Instant::now() < end, "never: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_pidfd_tells_the_end() {
    let mut child = spawn(Command::new("sleep").arg("60").stdin(Stdio::null()));
    let fd = of_pid(child.id() as i32).unwrap();
    assert!(!ended(&fd));
    child.kill().unwrap();
    until("the end shows", || ended(&fd));
    child.wait().unwrap();
    assert!(ended(&fd), "also after it was reaped");
}

#[test]
fn the_socket_knows_its_peer() {
    let (a, _b) = std::os::unix::net::UnixStream::pair().unwrap();
    assert_eq!(super::credentials(&a).unwrap().0, std::process::id() as i32);
    match of_socket(&a) {
        Ok(fd) => assert!(!ended(&fd), "the peer is this process"),
        Err(e) => assert_eq!(e.raw_os_error(), Some(libc::ENOPROTOOPT), "only an old kernel may refuse"),
    }
}
