//! `lspan perf serve` as a child, here or on another host.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use linkspan_fabric::stats::plain;

use crate::perf::once::said;

/// How long a server may take to start.
const START: Duration = Duration::from_secs(20);

/// How long it may take to end.
const FAREWELL: Duration = Duration::from_secs(5);

/// How its first line begins; the addresses follow.
const READY: &str = "lspan: waiting on ";

/// A server that follows its standard input; ended when this is dropped.
pub(super) struct Server(Child);

impl Server {
    /// Starts it, and returns what it said when it was ready behind "waiting on".
    pub(super) fn start(mut command: Command) -> Result<(Server, String), String> {
        let mut child = command
            // The end of it ends what stands between, and with it the server.
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| format!("{}: {error}", command.get_program().to_string_lossy()))?;
        let (to, from) = channel();
        if let Some(stderr) = child.stderr.take() {
            let read = move || {
                let mut last = String::new();
                // What it says later is read and dropped, so that it never waits for us.
                for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                    if let Some(rest) = line.strip_prefix(READY) {
                        let _ = to.send(Ok(plain(rest)));
                    }
                    last = line;
                }
                let _ =
                    to.send(Err(if last.is_empty() { "it ended without any output".to_owned() } else { said(&last) }));
            };
            let _ = thread::Builder::new().name("server".into()).spawn(read);
        }
        let server = Server(child);
        match from.recv_timeout(START) {
            Ok(Ok(line)) => Ok((server, line)),
            Ok(Err(why)) => Err(why),
            Err(_) => Err(format!("it did not start within {} s", START.as_secs())),
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // The server follows its standard input. Whatever stands between may not.
        drop(self.0.stdin.take());
        let until = Instant::now() + FAREWELL;
        while Instant::now() < until && self.0.try_wait().is_ok_and(|status| status.is_none()) {
            thread::sleep(Duration::from_millis(10));
        }
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
