//! Programs of the system, which may hang: a network file system in PATH, a lock of netlink, a host behind ssh that is gone.

use std::io::{self, Read};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, kill_process};

/// How long a program that is told to end (SIGTERM) may take, before it is killed.
const FAREWELL: Duration = Duration::from_secs(1);

/// How often it is looked whether it has ended while something it started keeps its output open.
const TICK: Duration = Duration::from_millis(50);

/// Runs a program without standard input; its exit status and the first `most` bytes of its standard output. `None`: it did not end within
/// `limit`, and was ended.
///
/// # Errors
/// Of starting it, and of reading what it says.
pub fn bounded(command: &mut Command, limit: Duration, most: usize) -> io::Result<Option<(ExitStatus, Vec<u8>)>> {
    let until = Instant::now() + limit;
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
    let said = said(&mut child, until, most);
    let mut status = child.try_wait()?;
    while status.is_none() && said.is_ok() && Instant::now() < until {
        sleep(Duration::from_millis(1));
        status = child.try_wait()?;
    }
    match status {
        Some(status) => Ok(Some((status, said?))),
        None => {
            end(&mut child)?;
            said.map(|_| None)
        }
    }
}

/// Its output, whose pipe is closed in the end: a full one would keep it.
fn said(child: &mut Child, until: Instant, most: usize) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    let Some(mut out) = child.stdout.take() else { return Ok(text) };
    let mut part = [0; 16 << 10];
    let mut ended = false;
    while text.len() < most {
        let left = until.saturating_duration_since(Instant::now());
        let wait = Timespec { tv_sec: 0, tv_nsec: left.min(TICK).subsec_nanos().into() };
        let mut fds = [PollFd::new(&out, PollFlags::IN)];
        match poll(&mut fds, Some(&wait)) {
            Ok(0) if left.is_zero() || ended => break,
            // What it said just before is looked for once more.
            Ok(0) => ended = child.try_wait()?.is_some(),
            Err(rustix::io::Errno::INTR) => {}
            Ok(_) => match out.read(&mut part)? {
                0 => break,
                n => text.extend_from_slice(&part[..n.min(most - text.len())]),
            },
            Err(error) => return Err(error.into()),
        }
    }
    Ok(text)
}

fn end(child: &mut Child) -> io::Result<()> {
    let _ = kill_process(Pid::from_child(child), Signal::TERM);
    let until = Instant::now() + FAREWELL;
    while Instant::now() < until && child.try_wait()?.is_none() {
        sleep(Duration::from_millis(5));
    }
    if child.try_wait()?.is_none() {
        child.kill()?;
        child.wait()?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
