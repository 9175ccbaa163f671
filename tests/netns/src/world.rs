//! Hosts, cables and the processes on them.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

static WORLDS: AtomicU32 = AtomicU32::new(0);

/// A handful of hosts; removed with everything on them when dropped.
pub(crate) struct World {
    prefix: String,
    hosts: Vec<String>,
}

pub(crate) type Outcome<T> = Result<T, String>;

/// Runs a command given as one line of words.
pub(crate) fn sh(line: &str) -> Outcome<()> {
    let mut words = line.split_whitespace();
    let program = words.next().unwrap_or_default();
    let output = Command::new(program).args(words).output().map_err(|e| format!("{line}: {e}"))?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!("{line}: {}", String::from_utf8_lossy(&output.stderr).trim()))
}

impl World {
    /// Hosts `a`, `b`, ...: a namespace each, with loopback up.
    pub(crate) fn new(hosts: &[&str]) -> Outcome<World> {
        let n = WORLDS.fetch_add(1, Ordering::Relaxed);
        let mut world = World { prefix: format!("lspan{}x{n}", std::process::id()), hosts: Vec::new() };
        for host in hosts {
            sh(&format!("ip netns add {}{host}", world.prefix))?;
            world.hosts.push((*host).to_owned());
            world.ip(host, "link set lo up")?;
        }
        Ok(world)
    }

    /// Name of a host's namespace.
    pub(crate) fn ns(&self, host: &str) -> String {
        format!("{}{host}", self.prefix)
    }

    /// `ip` on a host.
    pub(crate) fn ip(&self, host: &str, rest: &str) -> Outcome<()> {
        sh(&format!("ip -n {} {rest}", self.ns(host)))
    }

    /// Joins interface `name` of `a` to the one of `b`, with the given addresses.
    pub(crate) fn cable(&self, name: &str, a: (&str, &str), b: (&str, &str)) -> Outcome<()> {
        sh(&format!("ip link add {name} netns {} type veth peer name {name} netns {}", self.ns(a.0), self.ns(b.0)))?;
        for (host, addr) in [a, b] {
            let nodad = if addr.contains(':') { " nodad" } else { "" };
            self.ip(host, &format!("addr add {addr} dev {name}{nodad}"))?;
            self.ip(host, &format!("link set {name} up"))?;
        }
        Ok(())
    }

    /// Limits what a host sends on an interface.
    pub(crate) fn shape(&self, host: &str, name: &str, mbit: u32) -> Outcome<()> {
        let ns = self.ns(host);
        sh(&format!("ip netns exec {ns} tc qdisc add dev {name} root tbf rate {mbit}mbit burst 128kb latency 20ms"))
    }

    /// Starts a node on a host.
    pub(crate) fn node(&self, host: &str, env: &[(&str, &str)], args: &[&str]) -> Outcome<Node> {
        self.node_under(host, &[], env, args)
    }

    /// Starts a node on a host, under another command that changes what the process may do.
    pub(crate) fn node_under(&self, host: &str, under: &[&str], env: &[(&str, &str)], args: &[&str]) -> Outcome<Node> {
        let exe = std::env::current_exe().map_err(|e| e.to_string())?;
        let exe = exe.to_str().ok_or("the name of this program is no text")?;
        self.program(host, env, &[under, &[exe, "node"], args].concat())
    }

    /// Starts `lspan` on a host; what it says of errors and of itself comes with its results.
    pub(crate) fn lspan(&self, host: &str, env: &[(&str, &str)], line: &str) -> Outcome<Node> {
        self.lspan_under(host, &[], env, line)
    }

    /// The same under another command.
    pub(crate) fn lspan_under(&self, host: &str, under: &[&str], env: &[(&str, &str)], line: &str) -> Outcome<Node> {
        let lspan = self.lspan_path()?;
        let words: Vec<&str> = line.split_whitespace().collect();
        self.program(host, env, &[under, &["sh", "-c", "exec \"$0\" \"$@\" 2>&1", &lspan], words.as_slice()].concat())
    }

    /// The program that is tested.
    pub(crate) fn lspan_path(&self) -> Outcome<String> {
        let beside = || Some(std::env::current_exe().ok()?.with_file_name("lspan").to_string_lossy().into_owned());
        let lspan = std::env::var("LSPAN").ok().or_else(beside).unwrap_or_default();
        if !Path::new(&lspan).is_file() {
            return Err(format!("there is no lspan at {lspan:?}: name it in LSPAN, as `cargo xtask netns` does"));
        }
        Ok(lspan)
    }

    /// Starts a program on a host.
    pub(crate) fn program(&self, host: &str, env: &[(&str, &str)], line: &[&str]) -> Outcome<Node> {
        let mut command = Command::new("ip");
        // Settings of whoever runs the tests are not those of the hosts.
        let ours = std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("LINKSPAN_"));
        ours.for_each(|(name, _)| {
            command.env_remove(name);
        });
        let mut child = command
            .args(["netns", "exec", &self.ns(host)])
            .args(line)
            .env("LINKSPAN_STATS_DIR", "off")
            // Nor are its keys.
            .env("XDG_CONFIG_HOME", "/nonexistent")
            .envs(env.iter().copied())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|e| format!("ip netns exec: {e}"))?;
        let (to, lines) = channel();
        if let Some(out) = child.stdout.take() {
            std::thread::spawn(move || {
                for line in BufReader::new(out).lines().map_while(Result::ok) {
                    if to.send(line).is_err() {
                        break;
                    }
                }
            });
        }
        Ok(Node { child, lines, said: Vec::new(), name: host.to_owned() })
    }
}

impl Drop for World {
    fn drop(&mut self) {
        for host in &self.hosts {
            let _ = sh(&format!("ip netns del {}{host}", self.prefix));
        }
    }
}

/// A process on a host; killed when dropped.
pub(crate) struct Node {
    child: Child,
    lines: Receiver<String>,
    said: Vec<String>,
    name: String,
}

impl Node {
    /// Waits for a line that begins with `word`; returns the rest of it.
    pub(crate) fn expect(&mut self, word: &str, within: Duration) -> Outcome<String> {
        let until = Instant::now() + within;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            match self.lines.recv_timeout(left) {
                Ok(line) => {
                    let found = line.strip_prefix(word).map(|rest| rest.trim().to_owned());
                    self.said.push(line);
                    if let Some(rest) = found {
                        return Ok(rest);
                    }
                }
                Err(why) => {
                    let why = if why == RecvTimeoutError::Timeout { "said nothing of" } else { "ended without" };
                    let tail = self.said.iter().rev().take(6).rev().cloned().collect::<Vec<_>>();
                    return Err(format!("{} {why} `{word}` within {within:?}; its last lines: {tail:?}", self.name));
                }
            }
        }
    }

    /// The rest of the next line that begins with `word`, which has not been said yet.
    pub(crate) fn next(&mut self, word: &str) -> Outcome<String> {
        self.said.extend(self.lines.try_iter());
        self.expect(word, Duration::from_secs(30))
    }

    /// Number of the process.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Number of the process that it has started, where it has started one.
    pub(crate) fn rank(&self) -> Outcome<u32> {
        let file = format!("/proc/{0}/task/{0}/children", self.id());
        let text = std::fs::read_to_string(&file).map_err(|e| format!("{file}: {e}"))?;
        text.split_whitespace().next().and_then(|n| n.parse().ok()).ok_or_else(|| format!("{file} is empty"))
    }

    /// Lines so far that contain `text`.
    pub(crate) fn heard(&mut self, text: &str) -> usize {
        self.said.extend(self.lines.try_iter());
        self.said.iter().filter(|l| l.contains(text)).count()
    }

    /// Lines so far that contain none of these.
    pub(crate) fn heard_without(&mut self, words: &[&str]) -> usize {
        self.said.extend(self.lines.try_iter());
        self.said.iter().filter(|line| !words.iter().any(|word| line.contains(word))).count()
    }

    /// Waits for a line with these words in it.
    pub(crate) fn expect_part(&mut self, words: &str, within: Duration) -> Outcome<()> {
        let until = Instant::now() + within;
        while self.heard(words) == 0 {
            let left = until.saturating_duration_since(Instant::now());
            match self.lines.recv_timeout(left) {
                Ok(line) => self.said.push(line),
                Err(_) => {
                    let tail = self.said.iter().rev().take(6).rev().cloned().collect::<Vec<_>>();
                    return Err(format!(
                        "{} does not say `{words}` within {within:?}; its last lines: {tail:?}",
                        self.name
                    ));
                }
            }
        }
        Ok(())
    }

    /// Whether the process has ended.
    pub(crate) fn has_ended(&mut self) -> Outcome<bool> {
        self.child.try_wait().map(|status| status.is_some()).map_err(|e| e.to_string())
    }

    /// Waits for the end of the process; its exit code, and every line it said.
    pub(crate) fn end(&mut self, within: Duration) -> Outcome<(Option<i32>, String)> {
        let until = Instant::now() + within;
        loop {
            if let Some(status) = self.child.try_wait().map_err(|e| e.to_string())? {
                while let Ok(line) = self.lines.recv_timeout(Duration::from_secs(1)) {
                    self.said.push(line);
                }
                return Ok((status.code(), self.said.join("\n")));
            }
            if Instant::now() >= until {
                return Err(format!("{} does not end within {within:?}", self.name));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Processor time that it has used so far, in ticks of 10 ms.
    pub(crate) fn cpu_ticks(&self) -> Outcome<u64> {
        crate::node::cpu_ticks(&self.child.id().to_string())
    }

    /// Sends a signal by name.
    pub(crate) fn signal(&self, signal: &str) -> Outcome<()> {
        sh(&format!("kill -{signal} {}", self.child.id()))
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.signal("CONT");
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
