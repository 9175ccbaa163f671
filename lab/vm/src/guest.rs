//! One guest: a QEMU process, the agent in it, and what its kernel says.

pub(crate) mod job;
pub(crate) mod link;
pub(crate) mod spec;

use std::fs;
use std::path::PathBuf;
use std::process::Child;
use std::time::{Duration, Instant};

pub(crate) use job::{Job, Output};
pub(crate) use spec::Spec;

use crate::error::{At, Error, Result};
use crate::guest::link::AgentConn;
use crate::patience::Patience;
use crate::proc;
use crate::verdict;

/// How long a script may run where the test says nothing else. Emulated and on a busy machine, things take their time.
const SCRIPT: Duration = Duration::from_secs(90);

/// How long a guest may take from its start to its agent's first word.
const BOOT: Duration = Duration::from_secs(150);

/// How long it may take to turn off.
const OFF: Duration = Duration::from_secs(40);

/// A running guest; killed when dropped.
#[derive(Debug)]
pub(crate) struct Guest {
    name: String,
    qemu: Child,
    link: AgentConn,
    console: PathBuf,
    /// The end of all its time.
    until: Instant,
    slow: u32,
    allowed: Vec<&'static str>,
}

impl Guest {
    /// Starts QEMU. The agent is waited for by [`Guest::ready`], so that several can boot at once.
    pub(crate) fn start(spec: &Spec) -> Result<Guest> {
        let qemu = spec.start()?;
        Ok(Guest {
            name: spec.name.clone(),
            qemu,
            link: AgentConn::new(&spec.name, spec.channel()),
            console: spec.console(),
            until: Instant::now() + spec.deadline * spec.slow,
            slow: spec.slow,
            allowed: spec.allowed.clone(),
        })
    }

    /// Waits for the agent.
    pub(crate) fn ready(&mut self) -> Result<()> {
        let mut patience = Patience::new(BOOT * self.slow);
        while patience.look().is_some() {
            if self.link.open(Duration::from_millis(50))? {
                return Ok(());
            }
            self.alive()?;
        }
        Err(self.late("boot", BOOT * self.slow))
    }

    /// Its name.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Starts a shell script in it.
    pub(crate) fn spawn(&self, script: &str) -> Result<Job> {
        self.link.run(script, self.until, self.slow)
    }

    /// Runs a script that must succeed; its standard output.
    pub(crate) fn sh(&self, script: &str) -> Result<String> {
        self.sh_for(SCRIPT, script)
    }

    /// The same with a limit of its own.
    pub(crate) fn sh_for(&self, limit: Duration, script: &str) -> Result<String> {
        let output = self.run(limit, script)?;
        self.held(script, output)
    }

    /// What a script that ended well has written.
    fn held(&self, script: &str, output: Output) -> Result<String> {
        if output.code == 0 {
            return Ok(output.out);
        }
        Err(Error::Script {
            guest: self.name.clone(),
            script: script.lines().next().unwrap_or_default().to_owned(),
            code: output.code,
            said: proc::tail(&format!("{}{}", output.out, output.err), 15),
        })
    }

    /// Runs a script to its end, whatever that is.
    pub(crate) fn run(&self, limit: Duration, script: &str) -> Result<Output> {
        self.spawn(script)?.wait(limit).map_err(|error| self.explain(error))
    }

    /// Runs a condition again and again until it holds; the time that took. One that ends the shell fails.
    pub(crate) fn until(&self, what: &str, limit: Duration, condition: &str) -> Result<Duration> {
        let begun = Instant::now();
        let script = format!("until {condition}; do sleep 0.1; done");
        match self.run(limit, &script) {
            Ok(output) => self.held(condition, output).map(|_| begun.elapsed()),
            Err(Error::Deadline { .. }) => Err(self.late(what, limit)),
            Err(error) => Err(error),
        }
    }

    /// Runs a script that takes the guest to sleep and back, the last thing that is done with it: the virtio port of 7.3
    /// is dead after a resume, so the script's end and the kernel's log come over the console.
    pub(crate) fn sleeps(&self, limit: Duration, script: &str) -> Result<()> {
        self.dozes(script)?;
        self.woken(limit)
    }

    /// Starts such a script; lines that it writes to `/dev/ttyS0` are for [`Guest::hears`].
    pub(crate) fn dozes(&self, script: &str) -> Result<()> {
        self.sh(&format!(
            "cat >/run/sleep.sh <<'END'\nsleep 0.5\n( {script}\n) >/run/said 2>&1\ncode=$?\n\
             {{ dmesg; cat /run/said; echo \"WOKEN $code\"; }} >/dev/ttyS0\nEND\n\
             setsid sh /run/sleep.sh </dev/null >/dev/null 2>&1 &"
        ))
        .map(drop)
    }

    /// Waits for the end of that script.
    pub(crate) fn woken(&self, limit: Duration) -> Result<()> {
        let code = self.hears("WOKEN ", limit)?;
        let text = self.console_text();
        self.judge(&text)?;
        let (guest, said) = (self.name.clone(), proc::tail(&text, 8));
        match code.trim().parse().unwrap_or(-1) {
            0 => Ok(()),
            code => Err(Error::Script { guest, script: "a sleep".to_owned(), code, said }),
        }
    }

    /// Waits for a line of the console that begins so; the rest of it.
    pub(crate) fn hears(&self, start: &str, limit: Duration) -> Result<String> {
        let mut patience = Patience::new(limit * self.slow);
        loop {
            let text = self.console_text();
            // A line is whole when the next one has begun.
            let whole = text.rfind('\n').map_or("", |end| &text[..end]);
            if let Some(rest) = whole.lines().find_map(|line| line.strip_prefix(start)) {
                return Ok(rest.to_owned());
            }
            if !patience.sleep(Duration::from_millis(100)) {
                return Err(self.late(&format!("a line `{start}` on its console"), limit));
            }
        }
    }

    /// A file's content without its last line break.
    pub(crate) fn read(&self, path: &str) -> Result<String> {
        Ok(self.sh(&format!("cat {path}"))?.trim_end().to_owned())
    }

    /// What the kernel has said so far.
    pub(crate) fn dmesg(&self) -> Result<String> {
        self.sh("dmesg")
    }

    /// Fails where the kernel has complained.
    pub(crate) fn calm(&self) -> Result<()> {
        self.judge(&self.dmesg()?)
    }

    /// Ends QEMU as a power cut would. The console is judged all the same.
    pub(crate) fn cut(mut self) -> Result<()> {
        proc::end(&mut self.qemu);
        self.judge(&self.console_text())
    }

    /// Judges the kernel's log, turns the guest off, and sees that QEMU is gone.
    pub(crate) fn finish(self) -> Result<()> {
        self.ends_by("poweroff -f")
    }

    /// The same by this command. After a reboot QEMU ends too: a guest is started again with words of the test's choice.
    pub(crate) fn ends_by(mut self, command: &str) -> Result<()> {
        self.calm()?;
        let _ = self.spawn(command);
        let mut patience = Patience::new(OFF * self.slow);
        while self.qemu.try_wait().ok().flatten().is_none() {
            if !patience.sleep(Duration::from_millis(20)) {
                return Err(self.late(&format!("the end by `{command}`"), OFF));
            }
        }
        self.judge(&self.console_text())
    }

    /// A log with something wrong in it is kept whole, beside the console.
    fn judge(&self, log: &str) -> Result<()> {
        let Some(lines) = verdict::wrong(log, &self.allowed) else { return Ok(()) };
        let kept = self.console.with_extension("dmesg");
        fs::write(&kept, log).at(kept.display())?;
        Err(Error::Kernel { guest: self.name.clone(), lines, log: kept })
    }

    /// An error where QEMU has ended.
    fn alive(&mut self) -> Result<()> {
        let Ok(Some(status)) = self.qemu.try_wait() else { return Ok(()) };
        let why = format!("QEMU ended with {status}{}", proc::tail(&self.console_text(), 15));
        Err(Error::Gone { guest: self.name.clone(), why })
    }

    /// A broken connection or a missed deadline is often a panic: then that is what is told.
    fn explain(&self, error: Error) -> Error {
        match self.judge(&self.console_text()) {
            Err(kernel) => kernel,
            Ok(()) => error,
        }
    }

    fn late(&self, what: &str, limit: Duration) -> Error {
        let (guest, tail) = (self.name.clone(), proc::tail(&self.console_text(), 15));
        self.explain(Error::Deadline { guest, what: what.to_owned(), seconds: limit.as_secs(), tail })
    }

    fn console_text(&self) -> String {
        fs::read(&self.console).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default()
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        proc::end(&mut self.qemu);
    }
}
