//! What the examples share: the other side is this program once more.
#![allow(dead_code)]

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use linkspan::{Access, Config, Context, Log, Memory, RemoteBuffer, Transport, Url};

pub(crate) mod bare;

pub(crate) type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// A peer process: lines go in and out.
pub(crate) struct Peer {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Peer {
    /// Starts this program again with these arguments.
    pub(crate) fn start(args: &[&str]) -> Result<Peer> {
        let mut command = Command::new(std::env::current_exe()?);
        let mut child = command.args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let (input, output) = (child.stdin.take(), child.stdout.take().ok_or("no output")?);
        Ok(Peer { child, input, output: BufReader::new(output) })
    }

    pub(crate) fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        if self.output.read_line(&mut line)? == 0 {
            return Err("the peer process has ended".into());
        }
        Ok(line.trim_end().to_owned())
    }

    pub(crate) fn tell(&mut self, line: &str) -> Result<()> {
        let input = self.input.as_mut().ok_or("no input")?;
        Ok(writeln!(input, "{line}")?)
    }

    /// Waits for its end.
    pub(crate) fn finish(mut self) -> Result<()> {
        drop(self.input.take());
        let status = self.child.wait()?;
        if status.success() { Ok(()) } else { Err(format!("the peer process ended with {status}").into()) }
    }
}

/// One line of text for a URL and a remote buffer.
pub(crate) fn ticket(url: &Url, remote: &RemoteBuffer) -> String {
    let hex: String = remote.encode().iter().map(|b| format!("{b:02x}")).collect();
    format!("{url} {hex}")
}

/// The reverse.
pub(crate) fn read_ticket(line: &str) -> Result<(Url, RemoteBuffer)> {
    let (url, hex) = line.split_once(' ').ok_or("not a ticket")?;
    let digits = |n: usize| hex.get(2 * n..2 * n + 2).ok_or("cut");
    let bytes: std::result::Result<Vec<u8>, Box<dyn std::error::Error>> =
        (0..hex.len() / 2).map(|n| Ok(u8::from_str_radix(digits(n)?, 16)?)).collect();
    Ok((url.parse()?, RemoteBuffer::decode(&bytes?)?))
}

/// The value behind `--name` among the arguments.
pub(crate) fn option(name: &str, otherwise: u64) -> Result<u64> {
    let mut args = std::env::args().skip_while(|a| a != name);
    match (args.next(), args.next()) {
        (None, _) => Ok(otherwise),
        (_, Some(value)) => Ok(value.parse()?),
        _ => Err(format!("{name} wants a number").into()),
    }
}

/// Longest that anything in an example takes.
pub(crate) const LIMIT: Option<Duration> = Some(Duration::from_secs(60));

/// Two connected transports in contexts of their own, as two processes have them, over the path named.
pub(crate) fn joined(path: &str) -> Result<(Transport, Transport)> {
    let get = |key: &str| match key {
        "LINKSPAN_PATH" => Some(path.to_owned()),
        other => std::env::var(other).ok(),
    };
    let own = Context::new(Config::read(&get)?, Log::stderr())?.transport()?;
    let peer = Context::new(Config::read(&get)?, Log::stderr())?.transport()?;
    own.connect_blocking(&peer.bind()?, Duration::from_secs(20))?;
    peer.wait_connected_blocking(Duration::from_secs(20))?;
    Ok((own, peer))
}

/// Memory of `len` bytes that `of` shows to its peer.
pub(crate) fn shown(of: &Transport, len: usize) -> Result<(Memory, RemoteBuffer)> {
    let memory = Memory::host(len);
    let remote = of.expose(&memory.view(), Access::ReadWrite)?.remote();
    Ok((memory, remote))
}

/// Median, least and most.
pub(crate) fn spread(values: &mut [f64]) -> (f64, f64, f64) {
    values.sort_by(f64::total_cmp);
    (values[values.len() / 2], values[0], values[values.len() - 1])
}
