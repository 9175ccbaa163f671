//! The NCCL plugin as a file: where it is, and what it says when it is loaded as NCCL would. That happens in a child
//! process, which a broken file may take down.

use std::io::Read;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use linkspan_plugin::abi::{PTR_CUDA, PTR_DMABUF, PTR_HOST};
use linkspan_plugin::loader::{Device, Table, VERSIONS, inspect};

use super::{Line, Verdict};
use crate::exit::{Exit, Failure};
use crate::out::Out;

/// Both names of the one file.
const NAMES: [&str; 2] = ["libnccl-net-linkspan.so", "librccl-net-linkspan.so"];

/// Longest that loading and asking may take.
const PATIENCE: Duration = Duration::from_secs(20);

/// Most that the child may say.
const SAID_MAX: u64 = 64 << 10;

/// One line per name, or one for the file that was named.
pub(super) fn lines(named: Option<&Path>) -> Vec<Line> {
    match named {
        Some(file) => vec![load("plugin", file)],
        None => NAMES.iter().map(|name| line(name, &places())).collect(),
    }
}

/// Where the loader looks, as far as we can tell without it: LD_LIBRARY_PATH, beside this program, the usual folders.
fn places() -> Vec<PathBuf> {
    let mut places: Vec<PathBuf> = std::env::var_os("LD_LIBRARY_PATH")
        .iter()
        .flat_map(std::env::split_paths)
        .filter(|dir| dir.is_absolute())
        .collect();
    if let Some(dir) = std::env::current_exe().ok().as_deref().and_then(Path::parent) {
        places.push(dir.to_owned());
        places.push(dir.join("../lib"));
    }
    let usual = ["/usr/local/lib", "/usr/lib", "/lib", "/usr/lib64"].map(PathBuf::from);
    let multiarch = Path::new("/usr/lib").join(format!("{}-linux-gnu", std::env::consts::ARCH));
    places.extend(usual.into_iter().chain([multiarch]));
    places
}

fn line(name: &str, places: &[PathBuf]) -> Line {
    let part = if name.starts_with("libnccl") { "NCCL plugin" } else { "RCCL plugin" };
    match places.iter().map(|dir| dir.join(name)).find(|file| file.is_file()) {
        Some(file) => load(part, &file),
        None => {
            let text = format!(
                "cannot be tested here: no {name} in LD_LIBRARY_PATH or the usual folders; the package linkspan-nccl has it, \
                 and --plugin FILE names one elsewhere"
            );
            Line::new(part, Verdict::Skip, text)
        }
    }
}

/// Lets a child load the file and says how that went.
fn load(part: &str, file: &Path) -> Line {
    match ask(file) {
        Ok(text) => Line::new(part, Verdict::Pass, format!("{}: {text}", file.display())),
        Err(text) => Line::new(part, Verdict::Fail, text),
    }
}

fn ask(file: &Path) -> Result<String, String> {
    let told = |what: &str, error: std::io::Error| format!("{}: {what}: {error}", file.display());
    let program = std::env::current_exe().map_err(|error| told("our own program file", error))?;
    let mut child = Command::new(program)
        .arg("selftest")
        .arg("--load")
        .arg(file)
        .env("LINKSPAN_STATS_DIR", "off")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|error| told("a child process to load it", error))?;
    let out = child.stdout.take();
    let reader = thread::spawn(move || {
        let mut text = String::new();
        let _ = out.map(|out| out.take(SAID_MAX).read_to_string(&mut text));
        text
    });
    let until = Instant::now() + PATIENCE;
    let status = loop {
        match child.try_wait().map_err(|error| told("the child process that loads it", error))? {
            Some(status) => break status,
            None if Instant::now() >= until => {
                let _ = child.kill();
                let _ = child.wait();
                return Err(format!("{} does not come back within {PATIENCE:?} from being loaded", file.display()));
            }
            None => thread::sleep(Duration::from_millis(2)),
        }
    };
    let text = reader.join().unwrap_or_default().trim().to_owned();
    match (status.code(), status.signal()) {
        (Some(0), _) if !text.is_empty() => Ok(text),
        (_, Some(signal)) => Err(format!("{} crashes the process that loads it: signal {signal}", file.display())),
        _ if text.is_empty() => Err(format!("{} ends the process that loads it: {status}", file.display())),
        _ => Err(text),
    }
}

/// The child's part: loads the file and prints what it is, or why it is none.
pub(super) fn child(file: &Path) -> Result<Exit, Failure> {
    let (text, exit) = match inspect(file).map_err(|error| linkspan_fabric::chain(&error)).and_then(|t| summary(&t)) {
        Ok(text) => (text, Exit::Ok),
        Err(text) => (text, Exit::Failed),
    };
    Out::default().text(&format!("{text}\n"))?;
    // A plugin that has threads or exit handlers has them here too: they are given no say.
    Ok(exit)
}

/// What the tables say, if they are complete and agree.
fn summary(tables: &[Table]) -> Result<String, String> {
    let missing: Vec<String> = VERSIONS
        .filter(|version| tables.iter().all(|table| table.version != *version))
        .map(|version| format!("ncclNetPlugin_v{version}"))
        .collect();
    if !missing.is_empty() {
        return Err(format!("it lacks {}: an older plugin, or another one", missing.join(", ")));
    }
    let Some(last) = tables.last() else { return Err("it has no table".into()) };
    if let Some(other) = tables.iter().find(|table| table.name != last.name || table.devices != last.devices) {
        return Err(format!("its tables disagree: {} and {}", one(other), one(last)));
    }
    Ok(format!("tables v{} to v{}, {}", VERSIONS.start(), VERSIONS.end(), one(last)))
}

fn one(table: &Table) -> String {
    let devices: Vec<String> = table.devices.iter().map(device).collect();
    let devices = if devices.is_empty() { "no device".to_owned() } else { devices.join("; ") };
    format!("v{} calls itself {}: {devices}", table.version, table.name)
}

fn device(device: &Device) -> String {
    let kinds = [(PTR_HOST, "host"), (PTR_CUDA, "device"), (PTR_DMABUF, "dma-buf")];
    let memory: Vec<&str> =
        kinds.iter().filter(|(bit, _)| device.ptr_support & bit != 0).map(|(_, name)| *name).collect();
    format!("{}, {} Mb/s, {} memory", device.name, device.speed, memory.join(" and "))
}

#[cfg(test)]
mod tests;
