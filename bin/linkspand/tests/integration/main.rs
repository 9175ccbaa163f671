//! The service as it runs: the program, on a bus of our own, on a machine of our own making.
#![allow(clippy::unwrap_used, reason = "helpers of tests are not tests to the lint")]

#[path = "../../../../crates/bus/tests/integration/bus.rs"]
mod bus;
mod config;
mod polkit;
mod service;
mod user;

use std::io::Read;
use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use linkspan_bus::ManagerProxyBlocking;
use linkspan_bus::zbus::blocking::Connection;
use linkspan_bus::zbus::blocking::connection::Builder;
use linkspan_topology::fixture::{Fixture, STRIX_HALO};

use bus::Bus;

/// UUID of the host at the fixture's cable.
const PEER: &str = "d2040000-0080-7518-b3c8-e1ac3a6b0201";

/// How long what must come may take on a slow machine.
const PATIENCE: Duration = Duration::from_secs(60);

fn program() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_linkspand"));
    command.env_remove("NOTIFY_SOCKET").env_remove("WATCHDOG_USEC").env_remove("STATE_DIRECTORY");
    command
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Until this is so.
fn until(what: &str, is: impl Fn() -> bool) {
    let begun = Instant::now();
    while !is() {
        assert!(begun.elapsed() < PATIENCE, "{what}: not within {PATIENCE:?}");
        std::thread::yield_now();
    }
}

/// A machine, a bus, and the service on both.
struct Running {
    fix: Fixture,
    bus: Bus,
    /// What the service tells its manager.
    notified: Receiver<String>,
    process: Child,
}

impl Running {
    /// `None`, with a line: there is no dbus-daemon here.
    fn start() -> Option<Running> {
        let (fix, bus) = (Fixture::tree(STRIX_HALO), Bus::start()?);
        let socket = UnixDatagram::bind(fix.root.join("notify")).unwrap();
        let (tell, notified) = channel();
        // The kernel keeps ten for a socket that nobody reads; who tells the next one waits.
        std::thread::spawn(move || {
            let mut bytes = [0; 512];
            while let Ok(n) = socket.recv(&mut bytes) {
                if tell.send(String::from_utf8_lossy(&bytes[..n]).into_owned()).is_err() {
                    break;
                }
            }
        });
        let process = spawn(&fix, &bus.address());
        let running = Running { fix, bus, notified, process };
        running.hear("READY=1");
        Some(running)
    }

    fn restart(&mut self) {
        self.process = spawn(&self.fix, &self.bus.address());
        self.hear("READY=1");
    }

    /// Until the service has told this to its manager.
    fn hear(&self, state: &str) {
        while !self.notified.recv_timeout(PATIENCE).unwrap().contains(state) {}
    }

    fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_child(&self.process);
        rustix::process::kill_process(pid, signal).unwrap();
    }

    fn client(&self) -> Connection {
        Builder::address(&*self.bus.address()).unwrap().build().unwrap()
    }

    fn manager(&self) -> ManagerProxyBlocking<'static> {
        ManagerProxyBlocking::new(&self.client()).unwrap()
    }

    fn cable(&self) -> (PathBuf, PathBuf) {
        (self.fix.root.join("sys/bus/thunderbolt/devices/0-1"), self.fix.root.join("away"))
    }

    /// Pulls the cable while nobody looks.
    fn plug_away(&self) {
        let (cable, away) = self.cable();
        std::fs::rename(cable, away).unwrap();
    }

    /// Plugs it in again, likewise.
    fn plug_back(&self) {
        let (cable, away) = self.cable();
        std::fs::rename(away, cable).unwrap();
    }

    /// Pulls the cable, or plugs it in again, and has the service look.
    fn plug(&self, there: bool) {
        if there {
            self.plug_back()
        } else {
            self.plug_away()
        }
        self.signal(rustix::process::Signal::HUP);
    }

    /// The lines that it has written.
    fn log(&self) -> String {
        std::fs::read_to_string(self.fix.root.join("log")).unwrap()
    }

    fn config(&self) -> PathBuf {
        self.fix.root.join("etc")
    }
}

fn spawn(fix: &Fixture, address: &str) -> Child {
    let at = |name: &str| fix.root.join(name);
    std::fs::create_dir_all(at("etc")).unwrap();
    let config = at("etc/linkspand.toml");
    if !config.exists() {
        std::fs::write(config, format!("statistics = {:?}\n", at("stats"))).unwrap();
    }
    let mut command = program();
    command.arg("-f").arg("--root").arg(&fix.root).arg("--config").arg(at("etc"));
    command.arg("--state").arg(at("state")).arg("--runtime").arg(at("run"));
    command.env("DBUS_SYSTEM_BUS_ADDRESS", address).env("NOTIFY_SOCKET", at("notify"));
    command.env("WATCHDOG_USEC", "1000000");
    let log = std::fs::File::options().create(true).append(true).open(at("log")).unwrap();
    command.stdin(Stdio::null()).stderr(log).spawn().unwrap()
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        // Shown where the test has failed.
        eprint!("{}", self.log());
    }
}

/// Until a process has come to a bus that accepts and answers nothing.
fn come(bus: &UnixListener) -> UnixStream {
    let (mut client, _) = bus.accept().unwrap();
    client.read_exact(&mut [0]).unwrap();
    client
}
