//! The virtual cable: the server of `lab/vcable` as a child process, commanded over its control socket.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::sync::mpsc::channel;
use std::time::Duration;

use crate::error::{At, Error, Result};
use crate::lab::Lab;
use crate::patience::Patience;
use crate::proc;

/// How long the server may take to come, to answer, to go.
const SOON: Duration = Duration::from_secs(60);

/// Milliseconds from host to host. Emulated guests are slow; with a cable that is infinitely faster than they, an answer comes
/// before its question is off the list, which 7.3 takes badly (lab/README.md, "What it has found").
const LATENCY: &str = "50";

/// A running server; killed when dropped.
#[derive(Debug)]
pub(crate) struct Cable {
    server: Child,
    folder: PathBuf,
}

impl Cable {
    /// Starts `vcable serve` with these words and waits until its sockets are there.
    pub(crate) fn start(lab: &Lab, words: &[&str]) -> Result<Cable> {
        let program = std::env::var_os("VCABLE").filter(|path| !path.is_empty()).ok_or_else(|| {
            Error::Check("VCABLE does not name the server: `cargo xtask lab` builds it and says where".to_owned())
        })?;
        let folder = lab.run().join("cable");
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).at(folder.display())?;
        let log = lab.logs().join("vcable.log");
        let log = std::fs::File::create(&log).at(log.display())?;
        let mut command = proc::guarded(program);
        command.arg("serve").arg("--dir").arg(&folder).arg("--control").arg(folder.join("control")).args(words);
        command.args(["--latency", LATENCY]);
        command.arg("--trace").arg(lab.logs().join("cable.pcapng"));
        let mut server = command.stdout(Stdio::piped()).stderr(log).spawn().at(proc::shown(&command))?;
        let (tell, ready) = channel();
        if let Some(out) = server.stdout.take() {
            std::thread::spawn(move || {
                let mut lines = BufReader::new(out).lines().map_while(std::result::Result::ok);
                if lines.any(|line| line == "ready") {
                    let _ = tell.send(());
                }
                lines.for_each(drop);
            });
        }
        let cable = Cable { server, folder };
        match ready.recv_timeout(SOON) {
            Ok(()) => Ok(cable),
            Err(_) => Err(Error::Check(format!("the virtual cable does not start; see {}", lab.logs().display()))),
        }
    }

    /// The same for hosts and cables described in the text form of topologies.
    pub(crate) fn shaped(lab: &Lab, topology: &str) -> Result<Cable> {
        let file = lab.logs().join("topology");
        std::fs::write(&file, topology).at(file.display())?;
        Cable::start(lab, &["--topology", &file.to_string_lossy()])
    }

    /// A counter of a host interface, as `stats` gives it.
    pub(crate) fn count(&self, host: &str, counter: &str) -> Result<u64> {
        let text = self.tell("stats")?;
        count(&text, host, counter)
            .ok_or_else(|| Error::Check(format!("the virtual cable counts no {counter} of {host}")))
    }

    /// Socket of a host interface.
    pub(crate) fn socket(&self, host: &str) -> PathBuf {
        self.folder.join(format!("{host}.sock"))
    }

    /// Gives a command, as `unplug ab`, and returns the answer.
    pub(crate) fn tell(&self, command: &str) -> Result<String> {
        let control = self.folder.join("control");
        let mut stream = UnixStream::connect(&control).at(control.display())?;
        stream.set_read_timeout(Some(SOON)).at(control.display())?;
        writeln!(stream, "{command}").at(control.display())?;
        let mut line = String::new();
        BufReader::new(stream).read_line(&mut line).at(control.display())?;
        let line = line.trim_end();
        match line.strip_prefix("ok") {
            Some(answer) => Ok(answer.trim_start().to_owned()),
            None => Err(Error::Check(format!("the virtual cable, told `{command}`: {line}"))),
        }
    }

    /// Fails where a driver did something that hardware would not forgive: DMA outside of what was mapped, say.
    pub(crate) fn check(&self) -> Result<()> {
        self.tell("check").map(drop)
    }

    /// Ends the server, which must have nothing against the drivers.
    pub(crate) fn finish(mut self) -> Result<()> {
        self.check()?;
        self.tell("quit")?;
        let mut patience = Patience::new(SOON);
        while patience.sleep(Duration::from_millis(10)) {
            if let Some(status) = self.server.try_wait().at("the virtual cable")? {
                let why = format!("the virtual cable ended with {status}");
                return if status.success() { Ok(()) } else { Err(Error::Check(why)) };
            }
        }
        Err(Error::Check("the virtual cable does not quit".to_owned()))
    }
}

impl Drop for Cable {
    fn drop(&mut self) {
        // After a failure: what its trace still holds back goes to the file before it is killed.
        if self.server.try_wait().is_ok_and(|status| status.is_none()) && self.tell("quit").is_ok() {
            let mut patience = Patience::new(SOON);
            while self.server.try_wait().is_ok_and(|status| status.is_none())
                && patience.sleep(Duration::from_millis(10))
            {}
        }
        proc::end(&mut self.server);
    }
}

/// A counter of a host in the statistics.
pub(crate) fn count(stats: &str, host: &str, counter: &str) -> Option<u64> {
    let stats: serde_json::Value = serde_json::from_str(stats).ok()?;
    stats["hosts"].as_array()?.iter().find(|entry| entry["name"] == host)?[counter].as_u64()
}

#[cfg(test)]
mod tests;
