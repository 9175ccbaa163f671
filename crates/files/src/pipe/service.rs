//! The serving end of a pipe: services that the owner allowed by name, and one of them joined to a peer.

use std::ffi::{OsStr, OsString};
use std::io::{BufRead, BufReader, Read};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use linkspan::Transport;

use super::ends::{end, put};
use super::flow::{Flow, Frame, Sender};
use super::{Ends, Stopped, other_version, pump};
use crate::Error;
use crate::engine::Violation;
use crate::link::{self, Line, first_message};
use crate::wire::{Answer, Fault, FaultKind, Message, VERSION};

/// How long a service of this host may take to accept.
const REACH: Duration = Duration::from_secs(5);

/// Lines of a program's standard error that are passed on for each connection, and bytes of one.
const ERROR_LINES: u32 = 20;
const ERROR_LINE: u64 = 500;

/// Tells the owner one line.
pub(crate) type Say = Arc<dyn Fn(&str) + Send + Sync>;

/// Where distributions keep OpenSSH's server for files.
const SFTP_SERVERS: [&str; 4] = [
    "/usr/lib/openssh/sftp-server",
    "/usr/libexec/openssh/sftp-server",
    "/usr/lib/ssh/sftp-server",
    "/usr/libexec/sftp-server",
];

const NO_SFTP: &str = "needs OpenSSH's sftp-server, which is not installed";
const NO_RSYNC: &str = "needs rsync, and a file rsyncd.conf with its modules: ~/rsyncd.conf, for root /etc/rsyncd.conf";

fn sftp_server() -> Option<PathBuf> {
    SFTP_SERVERS.into_iter().map(PathBuf::from).find(|path| path.exists())
}

/// Where rsync(1) looks for it.
fn rsyncd_conf() -> PathBuf {
    if rustix::process::geteuid().is_root() {
        return "/etc/rsyncd.conf".into();
    }
    PathBuf::from(std::env::var_os("HOME").unwrap_or_default()).join("rsyncd.conf")
}

/// A service of this host that peers may be joined to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Service {
    name: String,
    what: What,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum What {
    /// A port of this host's loopback.
    Port(u16),
    /// A program with arguments; nothing of them comes from a peer.
    Program(PathBuf, Vec<OsString>),
}

/// A text that names no service.
#[derive(Debug, thiserror::Error)]
#[error(
    "LS1816 service {text:?} {why}; write ssh, rsync, sftp, sftp:ro, tcp:PORT; ssh=PORT and rsync=FILE where the port or rsyncd.conf is another"
)]
pub struct BadService {
    text: String,
    why: &'static str,
}

impl Service {
    /// A service as its owner allows it: `ssh`, `rsync`, `sftp`, `sftp:ro`, `tcp:PORT`, `ssh=PORT`, `rsync=FILE`.
    ///
    /// # Errors
    /// [`BadService`].
    pub fn parse(text: &str) -> Result<Service, BadService> {
        let bad = |why| BadService { text: text.to_owned(), why };
        let port = |digits: &str| digits.parse().ok().filter(|&port| port != 0).ok_or_else(|| bad("has no such port"));
        let named = |name: &str, what| Ok(Service { name: name.to_owned(), what });
        let program = |name: &str, program: PathBuf, args: &[&OsStr]| {
            named(name, What::Program(program, args.iter().map(|&arg| arg.to_owned()).collect()))
        };
        match text.split_once(['=', ':']) {
            // services(5).
            None if text == "ssh" => named("ssh", What::Port(22)),
            Some(("ssh", digits)) if text.contains('=') => named("ssh", What::Port(port(digits)?)),
            Some(("tcp", digits)) if text.contains(':') => {
                let port = port(digits)?;
                named(&format!("tcp:{port}"), What::Port(port))
            }
            None if text == "sftp" => program("sftp", sftp_server().ok_or_else(|| bad(NO_SFTP))?, &[]),
            Some(("sftp", "ro")) => program("sftp", sftp_server().ok_or_else(|| bad(NO_SFTP))?, &["-R".as_ref()]),
            None if text == "rsync" => Service::rsync(&rsyncd_conf()).ok_or_else(|| bad(NO_RSYNC)),
            Some(("rsync", conf)) if text.contains('=') => Service::rsync(Path::new(conf)).ok_or_else(|| bad(NO_RSYNC)),
            _ => Err(bad("is none")),
        }
    }

    /// rsync's daemon for one connection, as it is over a remote shell (rsync(1)).
    fn rsync(conf: &Path) -> Option<Service> {
        let conf = conf.canonicalize().ok().filter(|conf| conf.is_file())?;
        let folders = std::env::var_os("PATH")?;
        let rsync = std::env::split_paths(&folders).map(|dir| dir.join("rsync")).find(|path| path.is_file())?;
        let mut config = OsString::from("--config=");
        config.push(conf);
        let args = ["--server".into(), "--daemon".into(), config, ".".into()];
        Some(Service { name: "rsync".to_owned(), what: What::Program(rsync, args.into()) })
    }

    /// What peers call it.
    pub fn name(&self) -> &str {
        &self.name
    }

    fn open(&self, say: &Say) -> Result<(Ends, Option<Program>), Fault> {
        let failed = |what: String| move |error: std::io::Error| Fault::io(&format!("LS1818 {what}"), &error);
        match &self.what {
            What::Port(port) => {
                let reach = |ip| TcpStream::connect_timeout(&SocketAddr::new(ip, *port), REACH);
                let socket = reach(Ipv4Addr::LOCALHOST.into())
                    .or_else(|error| reach(Ipv6Addr::LOCALHOST.into()).map_err(|_| error))
                    .map_err(failed(format!("service {} (port {port} of that host's loopback)", self.name)))?;
                Ok((Ends::of_socket(socket).map_err(failed(self.name.clone()))?, None))
            }
            What::Program(program, args) => {
                let kept = ["HOME", "LANG", "LOGNAME", "PATH", "TZ", "USER"];
                let kept = kept.into_iter().filter_map(|name| Some((name, std::env::var_os(name)?)));
                let started = failed(format!("service {}", self.name));
                let mut command = Command::new(program);
                command.args(args).env_clear().envs(kept);
                if let Some(home) = std::env::var_os("HOME").filter(|home| Path::new(home).is_dir()) {
                    command.current_dir(home);
                }
                command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
                let mut child = command.spawn().map_err(&started)?;
                if let Some(errors) = child.stderr.take() {
                    let (name, say) = (self.name.clone(), say.clone());
                    let body = move || tell(&name, errors, &*say);
                    // Without the thread the program sees that nobody reads.
                    let _ = thread::Builder::new().name("service errors".into()).spawn(body);
                }
                let mut program = Program(child);
                Ends::of_program(&mut program.0).map(|ends| (ends, Some(program))).map_err(started)
            }
        }
    }
}

/// A program that runs for a peer. One that nobody waited for is ended, and its number given back.
struct Program(Child);

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.0.kill().and_then(|()| self.0.wait());
    }
}

/// Passes on what a program says on its standard error, up to a bound: a peer can make it say much.
fn tell(name: &str, errors: impl Read, say: &(dyn Fn(&str) + Send + Sync)) {
    let mut errors = BufReader::new(errors);
    let (mut line, mut told) = (Vec::new(), 0);
    while errors.by_ref().take(ERROR_LINE).read_until(b'\n', &mut line).is_ok_and(|len| len > 0) {
        if told < ERROR_LINES {
            say(&format!("service {name}: {}", crate::name::escape(line.trim_ascii_end())));
        } else if told == ERROR_LINES {
            say(&format!("service {name}: it says more, which is left out"));
        }
        told = told.saturating_add(1);
        line.clear();
    }
}

/// Joins a peer to the service that it asks for, until the peer leaves.
pub(crate) fn serve(
    services: &[Service],
    transport: Transport,
    version: u16,
    name: &str,
    say: &Say,
) -> Result<(), Error> {
    let opened = match services.iter().find(|service| service.name == name) {
        _ if version != VERSION => Err(other_version(version)),
        Some(service) => service.open(say),
        None => {
            let port = |digits: &str| digits.parse().is_ok_and(|port: u16| port != 0);
            let way = match matches!(name, "ssh" | "rsync" | "sftp") || name.strip_prefix("tcp:").is_some_and(port) {
                true => format!("its owner allows it with `lspan files serve --allow {name}`"),
                false => "there is none of this name; there are ssh, rsync, sftp and tcp:PORT".to_owned(),
            };
            let text = format!("LS1817 service {} is not allowed there: {way}", crate::name::escape(name.as_bytes()));
            Err(Fault::new(FaultKind::Denied, text))
        }
    };
    let (ends, child) = match opened {
        Ok(opened) => opened,
        Err(fault) => {
            link::say(&transport, &Message::Answer { number: 0, result: Err(fault) })?;
            // What was said is lost with the connection until it is received; the peer leaves then.
            let _ = first_message(&transport, REACH);
            return Ok(());
        }
    };
    let line = Line::new(transport);
    Flow::new(&line).and_then(|(flow, sender)| {
        link::say(line.transport(), &Message::Answer { number: 0, result: Ok(Answer::Done) })?;
        join(&line, ends, child, flow, sender)
    })
}

fn join(line: &Line, ends: Ends, child: Option<Program>, mut flow: Flow, sender: Sender) -> Result<(), Error> {
    let Ends { mut reader, mut writer, tail } = ends;
    // The descriptors are ours alone. A service that takes nothing must not keep what is left of a peer that has gone.
    if let Some(writer) = &writer {
        let nonblocking = rustix::io::ioctl_fionbio(writer, true);
        nonblocking.map_err(|error| Error::system("ioctl FIONBIO", error.into()))?;
    }
    // The service has said all that it had to say.
    let over: Arc<AtomicBool> = Arc::default();
    let (out, told) = (sender.clone(), over.clone());
    let out = thread::Builder::new().name("pipe out".into()).spawn(move || {
        let pumped = pump(&mut reader, &out);
        let code = child.map(|mut program| program.0.wait());
        // Before it is said: the peer may leave as soon as it has heard.
        told.store(pumped.is_ok(), Ordering::Release);
        // A connection that is lost is told by the side that receives.
        let _ = match (pumped, code) {
            (Err(Stopped::Lost(error)), _) => Err(error),
            (Err(Stopped::Source(error)), _) | (Ok(()), Some(Err(error))) => out.failed(&broken(&error)),
            (Ok(()), None) => out.end(),
            (Ok(()), Some(Ok(status))) => {
                out.exit(status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0)) as u8)
            }
        };
    });
    let out = match out {
        Ok(out) => out,
        Err(error) => {
            tail.cut();
            return Err(Error::system("a thread", error));
        }
    };
    let (mut taken, mut deaf) = (false, false);
    let result = loop {
        match flow.next() {
            Ok(Frame::Data(_)) if deaf => {}
            Ok(Frame::Data(bytes)) => {
                match writer.as_mut().map(|writer| put(writer, bytes, Some(&|| line.is_over()))) {
                    Some(Ok(())) => {}
                    Some(Err(error)) => {
                        deaf = true;
                        // A program that reads no further has its reasons, and its exit code tells.
                        if tail.is_socket() {
                            let _ = sender.failed(&broken(&error));
                        }
                    }
                    None => break Err(Violation("it sends after its end").into()),
                }
            }
            Ok(Frame::End) => {
                end(writer.take());
                taken = !deaf;
                if taken && let Err(error) = sender.taken() {
                    break Err(error);
                }
            }
            Ok(Frame::Failed(_)) => break Ok(()),
            Ok(_) => break Err(Violation("it speaks as if it served").into()),
            Err(error) => break Err(error),
        }
    };
    // A peer leaves when it has all: after the exit code of a program, or after both ends of a connection.
    let whole = over.load(Ordering::Acquire) && (taken || !tail.is_socket());
    line.close();
    if whole {
        tail.finish()
    } else {
        tail.cut()
    }
    drop(writer);
    let _ = out.join();
    match result {
        Err(Error::Cut(_)) => Ok(()),
        other => other,
    }
}

/// The service's end of a connection is no proper one.
fn broken(error: &std::io::Error) -> Fault {
    Fault::io("LS1819 the service has cut the connection", error)
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    #[test]
    fn a_program_that_nobody_waited_for_leaves_no_process_behind() {
        let program = Program(Command::new("sleep").arg("600").spawn().unwrap());
        let folder = format!("/proc/{}", program.0.id());
        assert!(Path::new(&folder).exists());
        drop(program);
        assert!(!Path::new(&folder).exists());
    }

    #[test]
    fn what_a_program_says_is_passed_on_up_to_a_bound() {
        let said = Arc::new(Mutex::new(Vec::new()));
        let own = said.clone();
        let say: Say = Arc::new(move |line: &str| own.lock().unwrap().push(line.to_owned()));
        let mut errors = b"no such module\x1b[31m\n".to_vec();
        errors.extend(vec![b'x'; 1 << 20]);
        tell("rsync", &errors[..], &*say);
        let said = said.lock().unwrap();
        assert_eq!(said[0], "service rsync: no such module\\x1b[31m");
        assert_eq!(said.len(), 21);
        assert!(said.iter().all(|line| line.len() < 600) && said[20].contains("left out"), "{:?}", said[20]);
    }
}
