use super::*;

fn shell(script: &str, limit: Duration) -> Option<(Option<i32>, usize)> {
    let mut command = Command::new("sh");
    let ended = bounded(command.args(["-c", script]).stderr(Stdio::null()), limit, 1000).unwrap();
    ended.map(|(status, said)| (status.code(), said.len()))
}

/// Far more than any of these takes on a busy machine, and far less than what the programs wait for.
const LONG: Duration = Duration::from_secs(120);
const SHORT: Duration = Duration::from_millis(200);

#[test]
fn a_program_that_hangs_is_ended() {
    let since = Instant::now();
    assert_eq!(shell("exec sleep 600", SHORT), None);
    assert_eq!(shell("trap '' TERM; while :; do sleep 1; done", SHORT), None, "one that heeds no signal");
    assert_eq!(shell("exec >&-; exec sleep 600", SHORT), None, "one that says nothing more");
    assert_eq!(shell("echo x; exec sleep 600", SHORT), None);
    assert!(since.elapsed() < LONG, "{:?}", since.elapsed());
}

#[test]
fn what_a_program_says_is_read_up_to_a_limit() {
    assert_eq!(shell("echo abc; exit 3", LONG), Some((Some(3), 4)));
    assert_eq!(shell("exit 0", LONG), Some((Some(0), 0)));
    assert_eq!(shell("head -c 999 /dev/zero", LONG), Some((Some(0), 999)));
    // It goes on saying, and nobody listens: SIGPIPE ends it.
    assert_eq!(shell("exec cat /dev/zero", LONG), Some((None, 1000)));
    assert!(bounded(&mut Command::new("/no/such/program"), LONG, 1).is_err());
}

#[test]
fn what_a_program_leaves_behind_is_not_waited_for() {
    let since = Instant::now();
    assert_eq!(shell("sleep 300 & echo $!", LONG).map(|(code, _)| code), Some(Some(0)));
    assert!(since.elapsed() < LONG, "{:?}", since.elapsed());
}
