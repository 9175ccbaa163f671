//! `lspan pipe` and `lspan forward`.

use std::fs::File;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread;

use linkspan::{Context, Url};
use linkspan_files::Error;
use linkspan_files::pipe::{Ended, Ends, Pipe};
use linkspan_files::serve::PER_PEER_MAX;

use super::{reach, usage};
use crate::cli::files::{ForwardArgs, PipeArgs};
use crate::exit::{Exit, Failure};
use crate::peer_lines;

/// What `rsync -e` adds where it wants its daemon, which is what the service is.
const DAEMON: [&str; 3] = ["--server", "--daemon", "."];

pub(crate) fn pipe(args: &PipeArgs) -> Result<Exit, Failure> {
    if !args.words.is_empty() && (args.service != "rsync" || args.words != DAEMON) {
        let why = "no command line goes to a peer: a service is named, and nothing else; for rsync write PEER::MODULE with two \
                   colons, or rsync -e \"ssh -o ProxyCommand='lspan pipe %h ssh'\"";
        return Err(usage(why));
    }
    let ends = standard().map_err(|error| Failure::system("standard input and output", &error))?;
    let (context, find) = reach(&args.to, &args.peer)?;
    match Pipe::open(&context, &find()?, &args.service)?.join(ends)? {
        Ended::Both | Ended::Program(0) => Ok(Exit::Ok),
        Ended::Program(code) => Err(ended(&args.service, code)),
    }
}

fn ended(service: &str, code: u8) -> Failure {
    Failure::new(Exit::Failed, format!("LS1822 the program of service {service} has ended with exit code {code} there"))
}

/// Standard input and output. From here on our standard output is /dev/null: its reader sees the end when the pipe's has come.
fn standard() -> io::Result<Ends> {
    let (input, output) = (io::stdin().as_fd().try_clone_to_owned()?, io::stdout().as_fd().try_clone_to_owned()?);
    rustix::stdio::dup2_stdout(File::options().write(true).open("/dev/null")?)?;
    Ok(Ends::of(input, output))
}

/// Connections under way. The peer takes no more of one host.
#[derive(Default)]
struct Busy {
    count: Mutex<u64>,
    one_less: Condvar,
}

impl Busy {
    fn lock(&self) -> MutexGuard<'_, u64> {
        self.count.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// Waits until there may be one more.
    fn enter(&self) {
        let mut count = self.lock();
        while *count >= PER_PEER_MAX {
            count = self.one_less.wait(count).unwrap_or_else(|e| e.into_inner());
        }
        *count += 1;
    }

    fn leave(&self) {
        *self.lock() -= 1;
        self.one_less.notify_one();
    }
}

pub(crate) fn forward(args: &ForwardArgs) -> Result<Exit, Failure> {
    let local = local(&args.local)?;
    let (peer, service) = target(&args.to)?;
    let (context, find) = reach(&peer, &args.peer)?;
    let failed = |error: io::Error| Failure::system(&format!("LS1823 cannot wait on {local}"), &error);
    let listener = TcpListener::bind(local).map_err(failed)?;
    let at = listener.local_addr().map_err(failed)?;
    eprintln!("lspan: connections to {at} go to {service} of {peer}");
    let find: Arc<dyn Fn() -> Result<Url, Error> + Send + Sync> = Arc::new(find);
    let busy = Arc::new(Busy::default());
    loop {
        busy.enter();
        let socket = match listener.accept() {
            Ok((socket, _)) => socket,
            Err(error) => {
                busy.leave();
                if linkspan_net::is_shortage(&error) {
                    peer_lines::say(&format!("lspan: no connection can be taken at the moment: {error}"));
                    thread::sleep(std::time::Duration::from_secs(1));
                }
                continue;
            }
        };
        let (context, find, service, own) = (context.clone(), find.clone(), service.clone(), busy.clone());
        let body = move || {
            if let Err(failure) = carry(&context, &*find, &service, socket) {
                peer_lines::say(&format!("lspan: {}", failure.message));
            }
            own.leave();
        };
        if let Err(error) = thread::Builder::new().name("forward".into()).spawn(body) {
            busy.leave();
            peer_lines::say(&format!("lspan: a connection was cut: {error}"));
        }
    }
}

fn carry(
    context: &Context,
    find: &dyn Fn() -> Result<Url, Error>,
    service: &str,
    socket: TcpStream,
) -> Result<(), Failure> {
    let ends = Ends::of_socket(socket).map_err(|error| Failure::system("a connection", &error))?;
    let url = find().map_err(|error| match error {
        // Of no transfer: nothing has come that could be kept.
        Error::Lost(why) => Failure::new(Exit::NoPeer, why),
        other => other.into(),
    })?;
    match Pipe::open(context, &url, service)?.join(ends)? {
        Ended::Both | Ended::Program(0) => Ok(()),
        Ended::Program(code) => Err(ended(service, code)),
    }
}

fn local(text: &str) -> Result<SocketAddr, Failure> {
    let port = text.parse().map(|port| SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port));
    port.or_else(|_| text.parse()).map_err(|_| usage(&format!("LOCAL {text:?} is neither PORT nor ADDRESS:PORT")))
}

/// `PEER:SERVICE`, where SERVICE may have a colon, and so may a PEER in brackets.
fn target(text: &str) -> Result<(String, String), Failure> {
    let cut = match text.strip_prefix('[') {
        Some(rest) => rest.split_once("]:"),
        None => text.split_once(':'),
    };
    let cut = cut.filter(|(peer, service)| !peer.is_empty() && !service.is_empty());
    let (peer, service) = cut.ok_or_else(|| usage(&format!("{text:?} is not PEER:SERVICE, as in spark:tcp:8080")))?;
    Ok((peer.to_owned(), service.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cause_is_told_once() {
        let failed = Error::System { what: "writing".into(), source: io::Error::other("no reader") };
        assert_eq!(Failure::from(failed).message.matches("no reader").count(), 1);
    }

    #[test]
    fn places_are_read_with_colons_in_them() {
        let of = |text| target(text).ok();
        let pair = |a: &str, b: &str| Some((a.to_owned(), b.to_owned()));
        assert_eq!(of("spark:tcp:80"), pair("spark", "tcp:80"));
        assert_eq!(of("[fe80::1%eth0]:ssh"), pair("fe80::1%eth0", "ssh"));
        assert!([":ssh", "spark:", "spark", "[::1]"].iter().all(|text| of(text).is_none()));
        assert_eq!(local("80").unwrap(), "127.0.0.1:80".parse().unwrap());
        assert_eq!(local("[::1]:80").unwrap(), "[::1]:80".parse().unwrap());
        assert!(local("x").is_err() && local("70000").is_err());
    }
}
