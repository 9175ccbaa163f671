//! `lspan top` on a terminal, looking at other hosts by a remote shell: one that runs the command here, with the statistics of each host.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use linkspan_fabric::stats::{Counter, Stats, Tally};

#[test]
fn other_hosts_are_watched_by_the_remote_shell_that_is_named() {
    if Command::new("script").arg("--version").output().is_err() {
        eprintln!("skipped: there is no script(1), which makes a terminal");
        return;
    }
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("linkspan-top-{}", std::process::id()));
    let _ = fs::remove_dir_all(&dir);
    fs::create_dir_all(&dir).unwrap();
    // Of the third host there is an error alone.
    let shell = dir.join("shell");
    let text = "#!/bin/sh\nhost=$1; shift\n[ \"$host\" = three ] && { echo no route to three >&2; exit 255; }\n\
                echo $$ > \"$PAGES/$host.pid\"; LINKSPAN_STATS_DIR=$PAGES/$host exec \"$@\"\n";
    fs::write(&shell, text).unwrap();
    fs::set_permissions(&shell, PermissionsExt::from_mode(0o755)).unwrap();
    // Names without a letter in common: of what stands at a place already nothing is written again.
    let devices = ["qjxkz", "wvbyf"];
    let hosts = [("one", devices[0]), ("two", devices[1])].map(|(host, device)| {
        let stats = Stats::new(Some(&dir.join(host)), "").unwrap();
        let mut tally = Tally::default();
        tally.add(Counter::Open, 1);
        tally.add(Counter::TxBytes, 5);
        stats.report(stats.slot(device, "tcp", "").unwrap(), &mut tally);
        stats
    });
    let lspan = env!("CARGO_BIN_EXE_lspan");
    let top = format!(
        "stty cols 120 rows 30 && exec timeout --foreground 90 {lspan} top --ssh one,two,three --rsh {} --lspan {lspan} --every 100ms",
        shell.display()
    );
    let mut command = Command::new("script");
    command.args(["-q", "-e", "-c", &top, "/dev/null"]).env("PAGES", &dir).env("TERM", "xterm");
    let mut terminal = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let (begun, mut shown) = (Instant::now(), Vec::new());
    let mut screen = terminal.stdout.take().unwrap();
    // Blanks are not written either: words of what is shown.
    let wanted = [devices[0], devices[1], "route"];
    while !wanted.iter().all(|text| String::from_utf8_lossy(&shown).contains(text)) {
        let mut some = [0; 4096];
        let n = screen.read(&mut some).unwrap();
        shown.extend_from_slice(&some[..n]);
        let seen = String::from_utf8_lossy(&shown);
        assert!(n > 0 && begun.elapsed() < Duration::from_secs(60), "{seen}");
    }
    let pids = ["one", "two"].map(|host| fs::read_to_string(dir.join(format!("{host}.pid"))).unwrap());
    terminal.stdin.take().unwrap().write_all(b"q").unwrap();
    std::io::copy(&mut screen, &mut std::io::sink()).unwrap();
    assert!(terminal.wait().unwrap().success());
    // What it has started there has ended with it.
    for pid in pids {
        assert!(!Path::new("/proc").join(pid.trim()).exists(), "{pid}");
    }
    drop(hosts);
    fs::remove_dir_all(&dir).unwrap();
}
