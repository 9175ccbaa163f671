//! What the examples share: the other side is this program once more.
#![allow(dead_code)]

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use linkspan::{RemoteBuffer, Url};

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
