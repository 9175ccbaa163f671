//! A process's view of its machine, and the engine thread of its transports.

use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock, Weak};
use std::time::Duration;

use linkspan_fabric::keys::Keyring;
use linkspan_fabric::{Config, Fabric, GpuWish, Level, Log, Provider};

use crate::engine::{Engine, Serve};
use crate::{Endpoint, Error, Listener, Transport, Url, paired};

/// One way by which bytes may travel, and whether this machine and these settings have it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Support {
    /// What `LINKSPAN_PATH` takes, such as `tcp`; and `cma` (within `shm`, large messages without a copy in between).
    pub path: &'static str,
    /// Whether it may be taken.
    pub usable: bool,
    /// Over what, or why not.
    pub why: String,
}

impl Support {
    fn new(path: &'static str, found: Result<String, String>) -> Support {
        let usable = found.is_ok();
        Support { path, usable, why: found.unwrap_or_else(|why| why) }
    }
}

struct Inner {
    fabric: Fabric,
    engine: Arc<Engine>,
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.engine.stop();
    }
}

/// What transports are made from: settings, interfaces, one engine thread. Cloning is cheap; may be used from any thread. The
/// thread ends with the last transport, listener and clone.
#[derive(Clone)]
pub struct Context(Arc<Inner>);

impl std::fmt::Debug for Context {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Context")
    }
}

static SHARED: OnceLock<Mutex<Weak<Inner>>> = OnceLock::new();
static SHARED_FOR_GPUS: OnceLock<Mutex<Weak<Inner>>> = OnceLock::new();
static PAIRED: OnceLock<Mutex<Weak<Inner>>> = OnceLock::new();
static PAIRED_FOR_GPUS: OnceLock<Mutex<Weak<Inner>>> = OnceLock::new();

/// Where lines of the shared contexts go in place of standard error.
static SHARED_LOG: RwLock<Option<Log>> = RwLock::new(None);

impl Context {
    /// The context that is shared by the whole process, with the settings of the environment (`LINKSPAN_*`).
    ///
    /// # Errors
    /// [`Error::Fabric`]: a setting cannot be read, or the machine has no interface at all. [`Error::System`]: the OS
    /// refuses a descriptor or the engine thread.
    pub fn shared() -> Result<Context, Error> {
        Context::kept(&SHARED, Config::from_env()?)
    }

    /// As [`Context::shared`], for transports that carry memory of GPUs: where a path reaches host memory only, it is staged,
    /// unless `LINKSPAN_GPU=off`. Another context than that one, so that other users of the library do not pay for it.
    ///
    /// # Errors
    /// As [`Context::shared`].
    pub fn shared_for_gpus() -> Result<Context, Error> {
        Context::kept(&SHARED_FOR_GPUS, staged(Config::from_env()?))
    }

    /// As [`Context::shared`], for peers that are paired (`lspan pair`): both sides of every connection prove their keys, only peers that this user
    /// trusts are let in, and hosts are found by name ([`Context::find_host`]). A cluster key (`LINKSPAN_PSK_FILE`) goes before:
    /// then everybody who has it is let in.
    ///
    /// # Errors
    /// [`Error::Keys`]: this user has no key, or it cannot be used. As [`Context::shared`].
    pub fn paired() -> Result<Context, Error> {
        Context::kept(&PAIRED, by_keys(Config::from_env()?)?)
    }

    /// As [`Context::paired`], for transports that carry memory of GPUs.
    ///
    /// # Errors
    /// As [`Context::paired`].
    pub fn paired_for_gpus() -> Result<Context, Error> {
        Context::kept(&PAIRED_FOR_GPUS, staged(by_keys(Config::from_env()?)?))
    }

    /// The URL that a paired host serves ([`Endpoint::serve_at`], [`Listener::serve_at`]). A host that does not serve yet is asked again until it
    /// does. `host` is the name that it was paired under, with `:PORT` behind it where the port is not 24682: then only the one who has that
    /// key can be connected to at this URL, of which the text does not say so. It may also be an address, or another name of a host;
    /// then the key of any paired peer will do. Blocks; the context is one of [`Context::paired`].
    ///
    /// # Errors
    /// [`Error::NotPaired`]: the context logs in without keys. [`Error::Rendezvous`]: no peer has this name, or nobody served there in time.
    /// That another key was proven is an [`Error::Connect`] of the connection.
    pub fn find_host(&self, host: &str, timeout: Duration) -> Result<Url, Error> {
        paired::find(self, host, timeout)
    }

    /// Whether peers prove who they are.
    pub(crate) fn check_paired(&self) -> Result<(), Error> {
        let config = self.fabric().config();
        if config.has_key() || config.keyring.is_some() { Ok(()) } else { Err(Error::NotPaired) }
    }

    /// Where lines of all shared contexts go from now on, those that are there included: all levels to `log`, or, with `None`, to standard
    /// error at the level of `LINKSPAN_LOG`. It is called on whichever thread has something to say, the engine thread included, and
    /// must not wait for a call of this library.
    pub fn log_shared_to(log: Option<Log>) {
        *SHARED_LOG.write().unwrap_or_else(PoisonError::into_inner) = log;
    }

    fn kept(place: &OnceLock<Mutex<Weak<Inner>>>, config: Config) -> Result<Context, Error> {
        let mut shared = place.get_or_init(Mutex::default).lock().unwrap_or_else(|e| e.into_inner());
        if let Some(inner) = shared.upgrade() {
            return Ok(Context(inner));
        }
        let stderr = Log::stderr();
        let log = Log::to(move |level, line| {
            let elsewhere = SHARED_LOG.read().unwrap_or_else(PoisonError::into_inner).clone();
            let log = elsewhere.as_ref().unwrap_or(&stderr);
            match level {
                Level::Warn => log.warn(line),
                Level::Info => log.info(line),
            }
        });
        let context = Context::new(config, log)?;
        *shared = Arc::downgrade(&context.0);
        Ok(context)
    }

    /// A context of its own.
    ///
    /// # Errors
    /// [`Error::Fabric`]: the machine has no interface at all. [`Error::System`]: the OS refuses a descriptor or the
    /// engine thread.
    pub fn new(config: Config, log: Log) -> Result<Context, Error> {
        Context::with_transports(config, log, linkspan_transports::all())
    }

    /// The same with this list of transports, best first, in place of those that linkspan is released with. TCP, shared memory and
    /// device-memory TCP belong to every context.
    ///
    /// # Errors
    /// As [`Context::new`].
    pub fn with_transports(config: Config, log: Log, transports: Vec<Box<dyn Provider>>) -> Result<Context, Error> {
        Context::over(Fabric::new(config, log, true, transports)?)
    }

    pub(crate) fn over(fabric: Fabric) -> Result<Context, Error> {
        Ok(Context(Arc::new(Inner { fabric, engine: Engine::start()? })))
    }

    /// Which paths this machine and these settings have, and why not the others.
    pub fn supported(&self) -> Vec<Support> {
        let mut all = Vec::new();
        for (path, found) in self.fabric().supported() {
            let cma = (path == "shm").then(|| Support::new("cma", found.clone().and_then(|_| self.cma())));
            all.push(Support::new(path, found));
            all.extend(cma);
        }
        all
    }

    fn cma(&self) -> Result<String, String> {
        match self.fabric().config().cma {
            true => Ok("with processes of the same user; each connection tries it and says if not".to_owned()),
            false => Err("LINKSPAN_CMA=0 forbids it".to_owned()),
        }
    }

    /// A transport through the first device.
    ///
    /// # Errors
    /// [`Error::System`]: the OS refuses a descriptor or random numbers.
    pub fn transport(&self) -> Result<Transport, Error> {
        Transport::on(self, 0)
    }

    /// A transport through device number `device`, as `lspan status` lists them.
    ///
    /// # Errors
    /// [`Error::System`]: the OS refuses a descriptor or random numbers. A device that does not exist is an error of
    /// [`Transport::bind`] and [`Transport::connect`].
    pub fn transport_on(&self, device: usize) -> Result<Transport, Error> {
        Transport::on(self, device)
    }

    /// A listener on the first device, which accepts any number of peers.
    ///
    /// # Errors
    /// [`Error::Fabric`]: the OS refuses a listening socket. [`Error::System`]: it refuses a descriptor.
    pub fn listen(&self) -> Result<Listener, Error> {
        Listener::on(self, 0)
    }

    /// A listener on device number `device`.
    ///
    /// # Errors
    /// [`Error::Fabric`]: there is no such device, or the OS refuses a listening socket. [`Error::System`]: it refuses
    /// a descriptor.
    pub fn listen_on(&self, device: usize) -> Result<Listener, Error> {
        Listener::on(self, device)
    }

    /// An endpoint on the first device: any number of peers by their names. `name` is its own.
    ///
    /// # Errors
    /// [`Error::PeerName`]: the name cannot be one. Those of [`Context::listen`].
    pub fn endpoint(&self, name: &str) -> Result<Endpoint, Error> {
        Endpoint::on(self, 0, name)
    }

    /// An endpoint on device number `device`.
    ///
    /// # Errors
    /// As [`Context::endpoint`] and [`Context::listen_on`].
    pub fn endpoint_on(&self, device: usize, name: &str) -> Result<Endpoint, Error> {
        Endpoint::on(self, device, name)
    }

    pub(crate) fn fabric(&self) -> &Fabric {
        &self.0.fabric
    }

    pub(crate) fn serve(&self, served: Weak<dyn Serve>) {
        self.0.engine.add(served);
    }

    pub(crate) fn kick(&self) {
        self.0.engine.kick();
    }
}

/// These settings for memory of GPUs.
fn staged(mut config: Config) -> Config {
    config.stage = config.gpu != GpuWish::Off;
    config
}

/// These settings with a login by this user's keys.
fn by_keys(mut config: Config) -> Result<Config, Error> {
    if !config.has_key() {
        config.use_keys(Arc::new(Keyring::open()?), None);
    }
    Ok(config)
}

/// A random number that is not 0.
pub(crate) fn random() -> Result<u64, Error> {
    let mut bytes = [0; 8];
    getrandom::fill(&mut bytes)
        .map_err(|e| Error::System { call: "getrandom", source: std::io::Error::other(e.to_string()) })?;
    Ok(u64::from_le_bytes(bytes).max(1))
}
