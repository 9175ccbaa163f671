//! The servers that are measured, and how commands reach them.

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::run;

/// How long a server may take until it listens.
const LIMIT: Duration = Duration::from_secs(30);

/// A process that ends with the benchmark.
pub(super) struct Started(Child);

impl Started {
    pub(super) fn id(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Everything that is started once.
pub(super) struct Peers {
    /// In memory (tmpfs): `src`, `dst`, `mnt`.
    pub(super) dir: PathBuf,
    /// On a disk.
    pub(super) disk: PathBuf,
    release: PathBuf,
    pub(super) files: Started,
    pub(super) perf: Started,
    pub(super) rsync: Option<Started>,
    pub(super) ssh: Option<Started>,
    /// One that takes all that comes, and one that sends `src/f`; where socat is there.
    pub(super) services: Option<[Service; 2]>,
    ports: [u16; 4],
}

/// A service at a port of a host's loopback, and what passes connections from other hosts on to it.
pub(super) struct Service {
    pub(super) end: Started,
    pub(super) port: u16,
    pub(super) forwarder: Started,
    pub(super) forwarder_port: u16,
}

/// With blocks that make it fast (without, they are of 8 KiB), and with time for what comes after the end of its input.
pub(super) const SOCAT: &str = "socat -b 262144 -t 60";

impl Drop for Peers {
    fn drop(&mut self) {
        let _ = Command::new("umount").args(["-l", "-q"]).arg(self.dir.join("mnt")).status();
        let _ = fs::remove_dir_all(&self.dir);
        let _ = fs::remove_dir_all(&self.disk);
    }
}

fn failed(what: &str) -> impl Fn(std::io::Error) -> String {
    let what = what.to_owned();
    move |error| format!("{what}: {error}")
}

impl Peers {
    pub(super) fn start(release: &Path, disk: &Path) -> Result<Peers, String> {
        let dir = PathBuf::from(format!("/dev/shm/linkspan-bench-{}", std::process::id()));
        for sub in [&dir.join("src"), &dir.join("dst"), &dir.join("mnt"), &dir.join("state"), &disk.to_owned()] {
            fs::create_dir_all(sub).map_err(failed(&sub.display().to_string()))?;
        }
        let write = |name: &str, text: &str| fs::write(dir.join(name), text).map_err(failed(name));
        write("key", &"0123456789abcdef".repeat(4))?;
        fs::set_permissions(dir.join("key"), fs::Permissions::from_mode(0o600)).map_err(failed("key"))?;
        let [a, b, c, d, service_ports @ ..] = ports()?;
        let ports = [a, b, c, d];
        let at = dir.display();
        write(
            "rsyncd.conf",
            &format!(
                "use chroot = no\nuid = root\ngid = root\n[dst]\npath = {at}/dst\nread only = no\n[disk]\npath = {}\nread only = no\n",
                disk.display()
            ),
        )?;
        let base = |program: PathBuf, words: &[&str]| {
            let mut command = Command::new(program);
            command.args(words).current_dir(&dir).env("PATH", path(release));
            settings(&mut command, &dir);
            command
        };
        let [files, perf, rsync, ssh] = ports.map(|port| port.to_string());
        let (share, on_disk) = (format!("dst={at}/dst:rw"), format!("disk={}:rw", disk.display()));
        let source = format!("src={at}/src");
        let allowed = [0, 1].map(|at| format!("--allow=tcp:{}", service_ports[at]));
        let shares = [share.as_str(), &on_disk, &source, &allowed[0], &allowed[1]];
        let serve = [&["files", "serve", "--as-root", "--port", &files][..], &shares].concat();
        let files = begin(&mut base(release.join("lspan"), &serve), ports[0])?;
        let perf = begin(&mut base(release.join("lspan"), &["perf", "serve", "--port", &perf]), ports[1])?;
        let rsync = run::which("rsync").map(|program| {
            let config = format!("--config={at}/rsyncd.conf");
            let port = format!("--port={rsync}");
            begin(&mut base(program, &["--daemon", "--no-detach", &port, "--address=127.0.0.1", &config]), ports[2])
        });
        let ssh = match run::which("sshd").filter(|_| run::is_root()) {
            Some(_) => Some(sshd(&dir, &ssh, ports[3])?),
            None => None,
        };
        let services = match run::which("socat") {
            Some(_) => {
                let socat = |port: u16, words: &str| {
                    let listen = format!("TCP-LISTEN:{port},bind=127.0.0.1,fork,reuseaddr");
                    let line = format!("exec {SOCAT} {}", words.replace("LISTEN", &listen));
                    begin(&mut base("sh".into(), &["-ec", &line]), port)
                };
                let service = |port: u16, forwarder_port: u16, words: &str| {
                    let end = socat(port, words)?;
                    let forwarder = socat(forwarder_port, &format!("LISTEN TCP:127.0.0.1:{port}"))?;
                    Ok::<_, String>(Service { end, port, forwarder, forwarder_port })
                };
                let [sink, source, to_sink, to_source] = service_ports;
                let takes = service(sink, to_sink, "-u LISTEN OPEN:/dev/null,wronly")?;
                Some([takes, service(source, to_source, "-U LISTEN OPEN:src/f,rdonly")?])
            }
            None => None,
        };
        let (rsync, release, disk) = (rsync.transpose()?, release.to_owned(), disk.to_owned());
        Ok(Peers { dir: dir.clone(), disk, release, files, perf, rsync, ssh, services, ports })
    }

    /// `--port` and the number, for `lspan` with files.
    pub(super) fn port(&self) -> String {
        format!("--port {}", self.ports[0])
    }

    pub(super) fn perf_place(&self) -> String {
        format!("127.0.0.1:{}", self.ports[1])
    }

    pub(super) fn rsync_place(&self) -> String {
        format!("rsync://127.0.0.1:{}", self.ports[2])
    }

    /// Runs a line of shell in the folder; its output.
    pub(super) fn shell(&self, line: &str) -> Result<String, String> {
        let mut command = Command::new("sh");
        command.args(["-ec", line]).current_dir(&self.dir).env("PATH", path(&self.release)).stdin(Stdio::null());
        settings(&mut command, &self.dir);
        run::output(&mut command)
    }

    /// Starts what mounts something at `mnt`, and waits until it is.
    pub(super) fn mount(&self, line: &str) -> Result<Started, String> {
        let mut command = Command::new("sh");
        command.args(["-ec", &format!("exec {line}")]).current_dir(&self.dir).env("PATH", path(&self.release));
        settings(&mut command, &self.dir);
        let child = command.stdin(Stdio::null()).stderr(Stdio::null()).spawn().map_err(failed(line))?;
        let (mut started, end) = (Started(child), Instant::now() + LIMIT);
        let at = format!(" {} ", self.dir.join("mnt").display());
        while !fs::read_to_string("/proc/mounts").unwrap_or_default().contains(&at) {
            let ended = started.0.try_wait().map_err(failed(line))?;
            if ended.is_some() || Instant::now() > end {
                return Err(format!("{line} does not mount"));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(started)
    }

    pub(super) fn unmount(&self, mut mount: Started) -> Result<(), String> {
        run::must(Command::new("umount").arg(self.dir.join("mnt")))?;
        mount.0.wait().map(drop).map_err(failed("the mount"))
    }
}

/// Our programs first.
fn path(release: &Path) -> String {
    let rest = std::env::var("PATH").unwrap_or_default();
    format!("{}:{}/examples:{rest}:/usr/sbin", release.display(), release.display())
}

fn settings(command: &mut Command, dir: &Path) {
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("LINKSPAN_")) {
        command.env_remove(name);
    }
    command.env("LINKSPAN_PSK_FILE", dir.join("key")).env("LINKSPAN_PATH", "tcp").env("LINKSPAN_IFNAME", "=lo");
    command.env("LINKSPAN_STATS_DIR", "off").env("XDG_STATE_HOME", dir.join("state")).env("LC_ALL", "C");
}

fn ports() -> Result<[u16; 8], String> {
    // All are held until all are known, so that no two are the same.
    let bind = |_| TcpListener::bind("127.0.0.1:0").map_err(failed("a port"));
    let held = (0..8).map(bind).collect::<Result<Vec<_>, _>>()?;
    let mut ports = [0; 8];
    for (port, listener) in ports.iter_mut().zip(&held) {
        *port = listener.local_addr().map_err(failed("a port"))?.port();
    }
    Ok(ports)
}

/// Started, and listening. What it says is kept for whoever asks why not.
fn begin(command: &mut Command, port: u16) -> Result<Started, String> {
    let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn();
    let mut child = child.map_err(failed(&format!("{command:?}")))?;
    if let Some(errors) = child.stderr.take() {
        std::thread::spawn(move || {
            for line in BufReader::new(errors).lines().map_while(Result::ok).filter(|line| line.contains("rror")) {
                eprintln!("{line}");
            }
        });
    }
    let (mut started, end) = (Started(child), Instant::now() + LIMIT);
    while TcpStream::connect(("127.0.0.1", port)).is_err() {
        let ended = started.0.try_wait().map_err(failed("a server"))?;
        if ended.is_some() || Instant::now() > end {
            return Err(format!("{command:?} does not listen"));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(started)
}

/// sshd with keys of its own, and `conf` for `ssh -F conf spark`.
fn sshd(dir: &Path, port: &str, number: u16) -> Result<Started, String> {
    let at = dir.display();
    let keys = "ssh-keygen -qt ed25519 -N '' -f host; ssh-keygen -qt ed25519 -N '' -f user; cp user.pub allowed";
    run::must(Command::new("sh").args(["-ec", keys]).current_dir(dir))?;
    let server = format!(
        "ListenAddress 127.0.0.1\nPort {port}\nHostKey {at}/host\nAuthorizedKeysFile {at}/allowed\nPidFile none\nStrictModes no\nUsePAM no\nPermitRootLogin yes\nSubsystem sftp internal-sftp\n"
    );
    let client = format!(
        "Host spark\nUser root\nHostname 127.0.0.1\nPort {port}\nIdentityFile {at}/user\nIdentitiesOnly yes\nUserKnownHostsFile {at}/known\nStrictHostKeyChecking accept-new\nLogLevel ERROR\n"
    );
    fs::write(dir.join("sshd"), server).map_err(failed("sshd"))?;
    fs::write(dir.join("conf"), client).map_err(failed("conf"))?;
    // It wants a directory that is made at boot where it is installed as a service.
    let script = "mount -t tmpfs none /run; mkdir /run/sshd; exec \"$@\"";
    let mut command = Command::new("unshare");
    command.args(["-m", "sh", "-ec", script, "sh", "/usr/sbin/sshd", "-D", "-e", "-f", &format!("{at}/sshd")]);
    begin(&mut command, number)
}
