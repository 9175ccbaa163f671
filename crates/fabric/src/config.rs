//! The settings of a fabric, read once.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::net::SocketAddr;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use linkspan_proto::login::{Admit, Guard, PSK_FILE_MAX, PublicKey, check_mode, parse_psk};
use linkspan_topology::IfFilter;
use linkspan_transport::{Provider, Site};
use zeroize::Zeroizing;

use crate::Error;
use crate::devmem::DevmemConfig;
use crate::helpers::Wish;
use crate::keys::Keyring;
use crate::params;
use crate::zerocopy::ZeroCopy;

/// Transports that the fabric itself sets up: signalling runs over the streams of the first, the second takes their place on one host,
/// the third two of them. With what people call a path of each.
pub(crate) const OWN: [(&str, &str); 3] = [("tcp", "TCP"), ("shm", "shared memory"), ("devmem", "device-memory TCP")];

/// Which paths may be taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PathChoice {
    /// The best one there is.
    Auto,
    /// One of this transport or nothing, on one host too.
    Only(String),
}

impl PathChoice {
    /// That of this name; `auto` is no transport.
    pub fn named(name: &str) -> PathChoice {
        if name == "auto" { PathChoice::Auto } else { PathChoice::Only(name.to_owned()) }
    }

    /// The transport that is taken or nothing.
    pub fn forced(&self) -> Option<&str> {
        match self {
            PathChoice::Auto => None,
            PathChoice::Only(name) => Some(name),
        }
    }

    /// Whether this transport is taken or nothing.
    pub fn is(&self, transport: &str) -> bool {
        self.forced() == Some(transport)
    }

    /// Whether this transport may be taken.
    pub(crate) fn allows(&self, transport: &str) -> bool {
        self.forced().is_none_or(|forced| forced == transport)
    }
}

/// GPU memory where nobody named a GPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GpuWish {
    /// Where the path itself reaches it; under NCCL never.
    #[default]
    Auto,
    /// On every path, staged where need be.
    Staged,
    /// Never.
    Off,
}

/// Settings of a fabric.
#[derive(Clone, Debug)]
pub struct Config {
    /// Downgrades are errors.
    pub strict: bool,
    /// Forced path.
    pub path: PathChoice,
    /// Chosen interfaces.
    pub interfaces: Option<IfFilter>,
    /// One device per interface.
    pub split: bool,
    /// Cross-memory attach may be used.
    pub cma: bool,
    /// TCP streams per pair of interfaces; 0: by speed.
    pub streams: usize,
    /// Helper threads.
    pub helpers: Wish,
    /// Payload that the kernel sends from where it lies.
    pub zerocopy: ZeroCopy,
    /// Congestion control by name.
    pub congestion: Option<String>,
    /// IP traffic class.
    pub traffic_class: Option<u8>,
    /// Every parameter that is set, by its name: what transports are configured by.
    pub(crate) settings: BTreeMap<&'static str, String>,
    /// Time a connection may take to come up.
    pub connect_timeout: Duration,
    /// Patience with a live but silent peer.
    pub stall: Option<Duration>,
    /// Time that a peer is given to confirm that a path is revoked.
    pub revoke: Duration,
    /// What guards connections beside the token in the handle.
    pub guard: Guard,
    /// Names the peers of logins by key pairs; set by [`Config::use_keys`].
    pub keyring: Option<Arc<Keyring>>,
    /// GPU memory where nobody named a GPU.
    pub gpu: GpuWish,
    /// Whether connections may be given device memory that their path does not reach.
    pub stage: bool,
    /// Most pinned memory for that, bytes.
    pub stage_memory: usize,
    /// How received pieces are put in place on a GPU; `None`: by measured size.
    pub unpack: Option<linkspan_gpu::unpack::CopyMode>,
    /// Device-memory TCP.
    pub devmem: DevmemConfig,
    /// TCP and UDP port on which the nodes of a mesh meet; 0: no mesh.
    pub mesh_port: u16,
    /// File that declares the mesh, in place of what neighbours tell.
    pub mesh_file: Option<PathBuf>,
    /// Connections that a key guards go over encrypted streams only. Without a key no [`crate::Fabric`] is made.
    pub encrypt: bool,
    /// Where statistics pages go; `None`: nowhere.
    pub stats_dir: Option<PathBuf>,
    /// Job that this process belongs to: the number of the Slurm job, else the name of the pod, else empty.
    pub job: String,
    /// Wishes that could not be met; each becomes one WARN line.
    pub warnings: Vec<String>,
}

impl Config {
    /// Reads the settings from the process environment.
    ///
    /// # Errors
    /// [`Error::Param`] for a value that its parameter does not take, [`Error::Filter`] for a list of interfaces that
    /// cannot be read, [`Error::PskRead`] and [`Error::Psk`] for a key file that cannot be used.
    pub fn from_env() -> Result<Config, Error> {
        let names: Vec<String> = std::env::vars_os().filter_map(|(k, _)| k.into_string().ok()).collect();
        // A value that is not UTF-8 is not taken for one that is not set.
        let mut config = Config::read(&|name| Some(std::env::var_os(name)?.to_string_lossy().into_owned()))?;
        for name in params::unknown(names.iter().map(String::as_str)) {
            config.warnings.push(format!("{name} is set, but no such parameter exists: see `lspan env` for the list"));
        }
        Ok(config)
    }

    /// Reads the settings from any source of names and values.
    ///
    /// # Errors
    /// As [`Config::from_env`].
    pub fn read(get: &dyn Fn(&str) -> Option<String>) -> Result<Config, Error> {
        let path = params::PATH.read(get)?.map_or(PathChoice::Auto, |name| PathChoice::named(&name));
        let class = params::TRAFFIC_CLASS.read(get)?.and_then(|v| v.parse().ok());
        let stall = params::STALL_MS.number(get)?.filter(|&ms| ms > 0).map(Duration::from_millis);
        let revoke = Duration::from_millis(params::REVOKE_MS.number(get)?.unwrap_or(1000));
        let timeout = params::CONNECT_TIMEOUT_MS.number(get)?.unwrap_or(20_000);
        let mode = params::PSK_MODE.read(get)?;
        let encrypt = mode.as_deref() == Some("encrypt");
        let guard = guard(get, encrypt)?;
        let mut warnings = Vec::new();
        if let (Guard::Token, Some(mode), false) = (&guard, mode, encrypt) {
            let (name, file) = (params::PSK_MODE.name, params::PSK_FILE.name);
            warnings.push(format!("{name}={mode} does nothing without a cluster key: set {file} or unset {name}"));
        }
        let gpu = match params::GPU.read(get)?.as_deref() {
            Some("staged") => GpuWish::Staged,
            Some("off") => GpuWish::Off,
            _ => GpuWish::Auto,
        };
        let stage_memory = params::STAGE_MEMORY.number(get)?.unwrap_or(1024);
        let mesh_port = params::MESH_PORT.number(get)?.unwrap_or(0) as u16;
        let mesh_file = params::MESH_FILE.read(get)?.map(PathBuf::from);
        let split = params::DEVICES.read(get)?.as_deref() == Some("split");
        let (port, file) = (params::MESH_PORT.name, params::MESH_FILE.name);
        match (mesh_port, &guard) {
            (0, _) if mesh_file.is_some() => warnings.push(format!("{file} does nothing without {port}: set that too")),
            (1.., Guard::Token) => warnings.push(format!(
                "LS1402 {port}={mesh_port} does nothing without a cluster key: hosts relay only for hosts that have it; set {}",
                params::PSK_FILE.name
            )),
            (1.., Guard::Psk { .. }) if split => {
                warnings.push(format!("{}=split does nothing in a mesh ({port}): one device has every cable", params::DEVICES.name));
            }
            _ => {}
        }
        Ok(Config {
            gpu,
            stage: gpu == GpuWish::Staged,
            stage_memory: usize::try_from(stage_memory << 20).unwrap_or(usize::MAX),
            unpack: params::UNPACK.read(get)?.as_deref().and_then(linkspan_gpu::unpack::CopyMode::named),
            devmem: devmem(get)?,
            mesh_port,
            mesh_file,
            strict: params::STRICT.switch(get)?,
            path,
            interfaces: IfFilter::from_env(get)?,
            split,
            cma: params::CMA.switch(get)?,
            streams: params::STREAMS.number(get)?.unwrap_or(0) as usize,
            helpers: Wish::read(get)?,
            zerocopy: ZeroCopy::read(get)?,
            congestion: params::CONGESTION.read(get)?,
            traffic_class: class,
            settings: settings(get)?,
            connect_timeout: Duration::from_millis(timeout),
            stall,
            revoke,
            guard,
            keyring: None,
            encrypt,
            stats_dir: stats_dir(params::STATS_DIR.read(get)?, get),
            job: job(get),
            warnings,
        })
    }

    /// Log in by the user's key pair, in place of what else guards connections: listeners let in every trusted peer, those too
    /// that become one later; connections go to `peer` alone where it is given.
    pub fn use_keys(&mut self, ring: Arc<Keyring>, peer: Option<&PublicKey>) {
        self.guard = match peer {
            Some(peer) => ring.guard_to(peer, self.encrypt),
            None => ring.guard(self.encrypt),
        };
        self.keyring = Some(ring);
    }

    /// Whether rails of this transport may come up beside a stream: not beside an encrypted one, for their bytes would travel in clear.
    pub(crate) fn allows_beside(&self, transport: &str) -> bool {
        !self.encrypts() && self.path.allows(transport)
    }

    /// Where rails beside a stream from this address are to come up.
    pub(crate) fn site(&self, local: SocketAddr) -> Site<'static> {
        let (forced, class) = (self.path.forced().is_some(), self.traffic_class.unwrap_or(0));
        let limit = (self.connect_timeout / 2).min(Duration::from_secs(20));
        Site { local, plug: None, relayed: None, forced, class, limit }
    }

    /// The guard of a stream that is accepted now.
    pub(crate) fn listening_guard(&self) -> Guard {
        match (&self.guard, &self.keyring) {
            (Guard::Keys { encrypt, .. }, Some(ring)) => ring.guard(*encrypt),
            (guard, _) => guard.clone(),
        }
    }

    /// The guard of another stream to the peer of a connection.
    pub(crate) fn guard_to(&self, peer: Option<&PublicKey>) -> Guard {
        match (&self.guard, peer) {
            (Guard::Keys { own, encrypt, .. }, Some(peer)) => {
                Guard::Keys { own: own.clone(), admit: Admit::Only([*peer].into()), encrypt: *encrypt }
            }
            (guard, _) => guard.clone(),
        }
    }

    /// What the peer with this key is called: by its name where it has one here, else by its fingerprint.
    pub fn name_of(&self, key: &PublicKey) -> String {
        self.keyring.as_ref().and_then(|ring| ring.name_of(key)).unwrap_or_else(|| key.fingerprint())
    }

    /// Whether this process takes part in a mesh: it has a mesh port and the cluster key, without which no host relays.
    pub fn meshes(&self) -> bool {
        self.mesh_port != 0 && self.has_key()
    }

    /// Whether peers need the cluster key.
    pub fn has_key(&self) -> bool {
        matches!(self.guard, Guard::Psk { .. })
    }

    /// That `LINKSPAN_PATH` names a transport that there is: `listed`, best first, or one that the fabric itself sets up.
    ///
    /// # Errors
    /// [`Error::Param`]: it names no such transport.
    pub fn check_path(&self, listed: &[Box<dyn Provider>]) -> Result<(), Error> {
        let Some(path) = self.path.forced() else { return Ok(()) };
        let names: Vec<&str> = paths(listed).into_iter().map(|path| path.0).collect();
        if names.contains(&path) {
            return Ok(());
        }
        let want = format!("it takes one of {}", names.join(", "));
        Err(params::BadParam { name: params::PATH.name.to_owned(), value: path.to_owned(), want }.into())
    }

    /// That the kernel lets this process take the congestion control that `LINKSPAN_TCP_CONGESTION` names.
    ///
    /// # Errors
    /// [`Error::Param`]: it does not.
    pub fn check_congestion(&self) -> Result<(), Error> {
        let Some(name) = &self.congestion else { return Ok(()) };
        let socket = |domain| socket2::Socket::new(domain, socket2::Type::STREAM, None);
        let socket = socket(socket2::Domain::IPV4).or_else(|_| socket(socket2::Domain::IPV6));
        // That there are no sockets is told where one is needed.
        let refused = socket.map_or(None, |socket| socket.set_tcp_congestion(name.as_bytes()).err());
        refused.map_or(Ok(()), |why| {
            let want = format!(
                "the kernel refuses it ({why}): net.ipv4.tcp_available_congestion_control lists what it has, and without \
                 CAP_NET_ADMIN only net.ipv4.tcp_allowed_congestion_control may be chosen"
            );
            Err(params::BadParam { name: params::CONGESTION.name.to_owned(), value: name.clone(), want }.into())
        })
    }

    /// That encryption is asked for only where there is a key to encrypt with.
    pub(crate) fn check(&self) -> Result<(), Error> {
        match self.guard {
            Guard::Token if self.encrypt => Err(Error::Param(params::BadParam {
                name: params::PSK_MODE.name.to_owned(),
                value: "encrypt".to_owned(),
                want: format!(
                    "it needs a key, and {} is not set: set that, or name a peer that `lspan pair` made known",
                    params::PSK_FILE.name
                ),
            })),
            _ => Ok(()),
        }
    }

    /// Whether bytes may leave this host only encrypted.
    pub fn encrypts(&self) -> bool {
        matches!(self.guard, Guard::Psk { encrypt: true, .. } | Guard::Keys { encrypt: true, .. })
    }
}

/// What `LINKSPAN_PATH` and `--path` take where these transports are listed, best first: names, and what people call a path of each.
pub fn paths(listed: &[Box<dyn Provider>]) -> Vec<(&'static str, &'static str)> {
    let [tcp, shm, devmem] = OWN;
    let listed = listed.iter().map(|transport| (transport.name(), transport.title()));
    [("auto", "the best available path"), tcp, shm].into_iter().chain(listed).chain([devmem]).collect()
}

fn settings(get: &dyn Fn(&str) -> Option<String>) -> Result<BTreeMap<&'static str, String>, Error> {
    let mut settings = BTreeMap::new();
    for param in params::ALL {
        settings.extend(param.read(get)?.map(|value| (param.name, value)));
    }
    Ok(settings)
}

fn devmem(get: &dyn Fn(&str) -> Option<String>) -> Result<DevmemConfig, Error> {
    let param = &params::DEVMEM_QUEUES;
    let bad = |value: String| {
        Error::Param(params::BadParam {
            name: param.name.to_owned(),
            value,
            want: "an interface with queues, as in eth0:12-15".to_owned(),
        })
    };
    let queues = match param.read(get)? {
        Some(text) => Some(DevmemConfig::queues(&text).ok_or_else(|| bad(text))?),
        None => None,
    };
    let pool = params::DEVMEM_POOL.number(get)?.unwrap_or(64);
    Ok(DevmemConfig { queues, pool: (pool as usize) << 20 })
}

fn guard(get: &dyn Fn(&str) -> Option<String>, encrypt: bool) -> Result<Guard, Error> {
    Ok(match params::PSK_FILE.read(get)? {
        Some(file) => Guard::Psk { psk: read_psk(&file)?, encrypt },
        None => Guard::Token,
    })
}

fn read_psk(path: &str) -> Result<linkspan_proto::login::Psk, Error> {
    let system = |source| Error::PskRead { path: path.to_owned(), source };
    let refused = |source| Error::Psk { path: path.to_owned(), source };
    // A fifo would have this wait for a writer.
    let nonblock = rustix::fs::OFlags::NONBLOCK.bits() as i32;
    let file = File::options().read(true).custom_flags(nonblock).open(path).map_err(system)?;
    let meta = file.metadata().map_err(system)?;
    check_mode(meta.mode(), meta.uid(), rustix::process::geteuid().as_raw()).map_err(refused)?;
    // As long as it can get: a vector that grows leaves its bytes behind.
    let mut content = Zeroizing::new(Vec::with_capacity(PSK_FILE_MAX + 1));
    file.take(PSK_FILE_MAX as u64 + 1).read_to_end(&mut content).map_err(system)?;
    parse_psk(&content).map_err(refused)
}

/// Folder of all users' statistics pages; tmpfiles.d makes it.
const STATS_SHARED: &str = "/run/linkspan/stats";

fn stats_dir(set: Option<String>, get: &dyn Fn(&str) -> Option<String>) -> Option<PathBuf> {
    let uid = rustix::process::geteuid().as_raw();
    match set.as_deref() {
        Some("off") => None,
        Some(dir) => Some(PathBuf::from(dir)),
        None if linkspan_setup::stats::shared(STATS_SHARED.as_ref()) => Some(PathBuf::from(STATS_SHARED)),
        None => match get("XDG_RUNTIME_DIR").filter(|d| d.starts_with('/')) {
            Some(dir) => Some(PathBuf::from(dir).join("linkspan")),
            None if uid == 0 => Some(PathBuf::from("/run/linkspan")),
            None => Some(PathBuf::from(format!("/tmp/linkspan-{uid}"))),
        },
    }
}

/// A pod's name by the variable that manifests commonly set from the downward API, else by its host name, which Kubernetes makes the same.
fn job(get: &dyn Fn(&str) -> Option<String>) -> String {
    let pod = || get("POD_NAME").or_else(|| get("KUBERNETES_SERVICE_HOST").and_then(|_| get("HOSTNAME")));
    get("SLURM_JOB_ID").or_else(pod).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fifo_as_key_file_is_refused_and_waits_for_no_writer() {
        let path = std::env::temp_dir().join(format!("linkspan-fifo-{}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        let mode = rustix::fs::Mode::from_raw_mode(0o600);
        rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, mode, 0).unwrap();
        let read = read_psk(path.to_str().unwrap());
        std::fs::remove_file(&path).unwrap();
        assert!(matches!(read, Err(Error::Psk { .. })));
    }

    #[test]
    fn a_job_is_named_by_slurm_else_by_its_pod_and_a_host_name_is_a_pod_s_only_under_kubernetes() {
        let named = |vars: &[(&str, &str)]| {
            job(&|name: &str| vars.iter().find(|(var, _)| *var == name).map(|(_, value)| (*value).to_owned()))
        };
        let (pod, host, cluster) =
            (("POD_NAME", "web-0"), ("HOSTNAME", "web-1"), ("KUBERNETES_SERVICE_HOST", "10.0.0.1"));
        assert_eq!(named(&[("SLURM_JOB_ID", "42"), pod, host, cluster]), "42");
        assert_eq!(named(&[pod, host, cluster]), "web-0");
        assert_eq!(named(&[host, cluster]), "web-1");
        assert_eq!(named(&[host]), "");
    }
}
