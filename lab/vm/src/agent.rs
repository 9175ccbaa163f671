//! The part that runs inside a guest: takes scripts over the virtio port, runs them, sends back what they say.
//!
//! It is our own program again, started by the init script of the initramfs with the word `agent`.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read};
use std::net::{Ipv6Addr, Shutdown, TcpListener, TcpStream};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, ExitCode, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::wire::{self, Broken, Kind};

/// Process groups of running jobs.
type Jobs = Arc<Mutex<BTreeMap<u32, u32>>>;

/// The port, shared by the threads that send.
type Port = Arc<Mutex<File>>;

/// `agent`: serves until it is killed. `agent listen PORT`: one connection to standard output. `agent connect
/// ADDRESS:PORT`: standard input to it. (busybox's nc ends at the first end of file on either side.)
pub(crate) fn run(args: &[String]) -> ExitCode {
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    let result = match words.as_slice() {
        [] => serve(),
        ["listen", port] => listen(port),
        ["connect", address] => connect(address),
        _ => Err(io::Error::other("words that it does not know")),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("agent: {error}");
            ExitCode::FAILURE
        }
    }
}

fn serve() -> io::Result<()> {
    let path = port()?;
    let from = File::options().read(true).write(true).open(path)?;
    let to: Port = Arc::new(Mutex::new(from.try_clone()?));
    let mut from = Patient(from);
    let jobs = Jobs::default();
    send(&to, Kind::Hello, 0, b"")?;
    loop {
        match wire::read(&mut from) {
            Ok(frame) if frame.kind == Kind::Run => {
                let (to, jobs) = (Arc::clone(&to), Arc::clone(&jobs));
                let script = String::from_utf8_lossy(&frame.body).into_owned();
                std::thread::spawn(move || {
                    let code = run_job(&to, &jobs, frame.job, &script).unwrap_or_else(|error| {
                        let _ = send(&to, Kind::Err, frame.job, error.to_string().as_bytes());
                        127
                    });
                    let _ = send(&to, Kind::Exit, frame.job, &code.to_le_bytes());
                });
            }
            Ok(frame) if frame.kind == Kind::Kill => {
                let group = lock(&jobs).get(&frame.job).copied();
                if let Some(group) = group.and_then(|g| rustix::process::Pid::from_raw(g as i32)) {
                    let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
                }
            }
            Ok(_) => {}
            Err(Broken::Io(error)) => return Err(error),
            Err(Broken::Wrong(len, kind)) => {
                return Err(io::Error::other(format!("frame of {len} bytes, kind {kind}")));
            }
        }
    }
}

/// The port reads as ended while the runner is not connected, which it is not for a moment after each resume.
struct Patient(File);

impl Read for Patient {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.0.read(into)? {
                0 => std::thread::sleep(Duration::from_millis(20)),
                n => return Ok(n),
            }
        }
    }
}

fn listen(port: &str) -> io::Result<()> {
    let port = port.parse().map_err(io::Error::other)?;
    let (mut from, _) = TcpListener::bind((Ipv6Addr::UNSPECIFIED, port))?.accept()?;
    io::copy(&mut from, &mut io::stdout()).map(drop)
}

fn connect(address: &str) -> io::Result<()> {
    let mut to = TcpStream::connect(address)?;
    io::copy(&mut io::stdin(), &mut to)?;
    to.shutdown(Shutdown::Write)?;
    // Closed by the other side when it has everything.
    io::copy(&mut to, &mut io::sink()).map(drop)
}

/// The device node of the port; udev would make a link of its name, here sysfs is asked.
fn port() -> io::Result<String> {
    for _ in 0..200 {
        for entry in fs::read_dir("/sys/class/virtio-ports").into_iter().flatten().flatten() {
            if fs::read_to_string(entry.path().join("name")).is_ok_and(|name| name.trim() == wire::PORT) {
                return Ok(format!("/dev/{}", entry.file_name().to_string_lossy()));
            }
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Err(io::Error::other("no virtio port of that name"))
}

fn run_job(to: &Port, jobs: &Jobs, job: u32, script: &str) -> io::Result<i32> {
    let mut command = Command::new("/bin/sh");
    // A group of its own, so that killing takes all that the script started.
    command.args(["-c", script]).process_group(0).stdin(Stdio::null());
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    lock(jobs).insert(job, child.id());
    let errors = child.stderr.take().map(|from| {
        let to = Arc::clone(to);
        std::thread::spawn(move || pump(from, &to, Kind::Err, job))
    });
    if let Some(from) = child.stdout.take() {
        pump(from, to, Kind::Out, job);
    }
    if let Some(thread) = errors {
        let _ = thread.join();
    }
    let status = child.wait()?;
    lock(jobs).remove(&job);
    Ok(status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0)))
}

fn pump(mut from: impl Read, to: &Port, kind: Kind, job: u32) {
    let mut buffer = vec![0; 16 << 10];
    while let Ok(n) = from.read(&mut buffer) {
        if n == 0 || send(to, kind, job, &buffer[..n]).is_err() {
            break;
        }
    }
}

fn send(to: &Port, kind: Kind, job: u32, body: &[u8]) -> io::Result<()> {
    wire::write(&mut *lock(to), kind, job, body)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
