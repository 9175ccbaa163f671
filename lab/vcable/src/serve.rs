//! The server: a [`World`] in real time, its host interfaces over vfio-user, commands over a socket.

mod backend;
mod control;
mod memory;

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use backend::{Backend, Lines};
pub use control::ask;

use crate::fault::Script;
use crate::nhi::regs::VECTORS;
use crate::time::Time;
use crate::topology::Topology;
use crate::trace::Switch;
use crate::world::{Action, Options, World};

/// Longest time between two looks at the world when nothing is due: traces are flushed then.
const IDLE: Duration = Duration::from_millis(200);

/// What goes wrong with the server.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// A socket cannot be made.
    #[error("LS0930 socket {path}: {what}; choose another folder with --dir, or remove what is there")]
    Socket {
        /// Path.
        path: PathBuf,
        /// Why.
        what: String,
    },
    /// A file cannot be read or written.
    #[error("LS0931 {path}: {what}")]
    File {
        /// Path.
        path: PathBuf,
        /// Why.
        what: std::io::Error,
    },
    /// The topology, the script or a command.
    #[error(transparent)]
    Text(#[from] crate::error::Error),
    /// The server answered with an error.
    #[error("LS0932 {0}")]
    Refused(String),
}

/// What to serve.
#[derive(Debug)]
pub struct Config {
    /// Hosts and cables.
    pub topology: Topology,
    /// Seed and wire time.
    pub options: Options,
    /// Commands with their times.
    pub script: Script,
    /// Folder of the sockets, one per guest: `NAME.sock`.
    pub dir: PathBuf,
    /// Socket for commands.
    pub control: Option<PathBuf>,
    /// pcap-ng file.
    pub trace: Option<PathBuf>,
    /// Most payload bytes of a frame that the trace keeps.
    pub snap: usize,
}

struct Inner {
    world: World,
    lines: Vec<Lines>,
    /// When the clock thread looks next, in virtual time.
    planned: Time,
    trace: Option<Switch>,
    quit: bool,
}

/// The world, shared between the threads of the server.
struct Shared {
    inner: Mutex<Inner>,
    wake: Condvar,
    start: Instant,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> Time {
        Time::try_from(self.start.elapsed().as_nanos()).unwrap_or(Time::MAX)
    }

    /// Does something to the world at the present time, and what follows from it.
    fn with<R>(&self, call: impl FnOnce(&mut Inner) -> R) -> R {
        let mut inner = self.lock();
        let now = self.now();
        inner.world.advance(now);
        let result = call(&mut inner);
        inner.dispatch();
        if inner.world.next_event().is_some_and(|next| next < inner.planned) {
            self.wake.notify_one();
        }
        result
    }

    /// Lets time pass until someone asks to quit.
    fn run_clock(&self) {
        let mut inner = self.lock();
        while !inner.quit {
            let now = self.now();
            inner.world.advance(now);
            inner.world.flush_sink();
            inner.dispatch();
            let wait = inner.world.next_event().map_or(IDLE, |next| Duration::from_nanos(next.saturating_sub(now)));
            let wait = wait.min(IDLE);
            inner.planned = now + wait.as_nanos() as Time;
            inner = self.wake.wait_timeout(inner, wait).map_or_else(|e| e.into_inner().0, |(guard, _)| guard);
        }
        inner.world.flush_sink();
    }
}

impl Inner {
    /// Carries out what the world asks for.
    fn dispatch(&mut self) {
        for action in self.world.take_actions() {
            if let Action::Interrupt { host, vector } = action {
                self.lines[host].signal(vector);
            }
        }
    }
}

/// A server whose sockets are there.
pub struct Server {
    shared: Arc<Shared>,
    sockets: Vec<(String, PathBuf)>,
}

impl Server {
    /// Makes the sockets and starts to serve; [`Server::run`] keeps the time.
    ///
    /// # Errors
    /// [`ServeError::Socket`], [`ServeError::File`]: a socket or file cannot be made. [`ServeError::Text`]: the
    /// topology or the script is wrong.
    pub fn start(config: Config) -> Result<Server, ServeError> {
        let mut world = World::new(&config.topology, config.options);
        for (host, spec) in config.topology.hosts.iter().enumerate().filter(|(_, s)| s.peer) {
            world.set_peer(host, crate::peer::standard(host, spec));
        }
        let trace = match &config.trace {
            None => None,
            Some(path) => {
                let file = File::create(path).map_err(|what| ServeError::File { path: path.clone(), what })?;
                let names: Vec<String> = config.topology.hosts.iter().map(|h| h.name.clone()).collect();
                let (sink, switch) = crate::trace::Pcap::new(file, &names, config.snap);
                world.set_sink(Some(Box::new(sink)));
                Some(switch)
            }
        };
        world.load(config.script);
        let lines = config.topology.hosts.iter().map(|spec| Lines::new(spec.msi)).collect();
        let inner = Inner { world, lines, planned: 0, trace, quit: false };
        let shared = Arc::new(Shared { inner: Mutex::new(inner), wake: Condvar::new(), start: Instant::now() });
        std::fs::create_dir_all(&config.dir).map_err(|what| ServeError::File { path: config.dir.clone(), what })?;
        let mut sockets = Vec::new();
        for (host, spec) in config.topology.hosts.iter().enumerate().filter(|(_, s)| !s.peer) {
            let path = config.dir.join(format!("{}.sock", spec.name));
            let server = listen(&path)?;
            sockets.push((spec.name.clone(), path.clone()));
            let backend = Backend::new(host, shared.clone());
            thread::spawn(move || serve_host(server, &path, backend));
        }
        if let Some(path) = &config.control {
            control::listen(path, shared.clone())?;
        }
        Ok(Server { shared, sockets })
    }

    /// Names of the guests with the paths of their sockets.
    pub fn sockets(&self) -> &[(String, PathBuf)] {
        &self.sockets
    }

    /// Keeps the time until the command `quit`. The number of failures on record comes back.
    pub fn run(&self) -> u64 {
        self.shared.run_clock();
        for (_, path) in &self.sockets {
            let _ = std::fs::remove_file(path);
        }
        self.shared.lock().world.report().failure_count
    }
}

fn listen(path: &Path) -> Result<vfio_user::Server, ServeError> {
    // What an earlier server left behind.
    let _ = std::fs::remove_file(path);
    vfio_user::Server::new(path, true, backend::irqs(), backend::regions())
        .map_err(|e| ServeError::Socket { path: path.to_owned(), what: e.to_string() })
}

/// Serves one guest after the other.
fn serve_host(mut server: vfio_user::Server, path: &Path, mut backend: Backend) {
    loop {
        let result = server.run(&mut backend);
        backend.gone();
        if let Err(error) = result {
            eprintln!("{}: {error}", path.display());
        }
        // The listener goes on to accept, except when its socket was removed.
        if !path.exists() {
            match listen(path) {
                Ok(again) => server = again,
                Err(error) => {
                    eprintln!("{error}");
                    return;
                }
            }
        }
    }
}

/// Writes one to an eventfd.
fn ring(mut line: &File) {
    let _ = line.write_all(&1u64.to_ne_bytes());
}

const _: () = assert!(VECTORS == 16, "the MSI-X capability and the vfio-user description say 16");
