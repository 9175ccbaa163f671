//! `lspan bugreport`: what somebody who mends linkspan asks for, in one archive, without secrets.

mod scrub;
mod tar;
mod tree;

use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use linkspan_doctor::bounded;
use linkspan_perf::format::table;
use linkspan_service::host_name;
use linkspan_topology::Roots;
use rustix::fs::{MemfdFlags, memfd_create};

use crate::cli::BugreportArgs;
use crate::exit::{Exit, Failure};
use crate::out::Out;
use scrub::Scrub;

/// Our own commands whose output goes into the report: the file, the arguments, what it is.
const OURS: [(&str, &[&str], &str); 5] = [
    ("status.json", &["status", "--json"], "cables, interfaces, RDMA devices, GPUs"),
    ("doctor.json", &["doctor", "--json", "--no-probe"], "what is wrong here"),
    ("stats.json", &["stats", "--json"], "what running processes have moved"),
    ("settings.json", &["env", "--json"], "LINKSPAN_ names and their values"),
    ("nccl.json", &["env", "--nccl", "--json"], "what NCCL needs here"),
];

/// Names of the environment that tell something of a job, or their beginnings; no other is read.
const NAMES: [&str; 16] = [
    "NCCL_",
    "RCCL_",
    "LINKSPAN_",
    "LD_LIBRARY_PATH",
    "CUDA_VISIBLE_DEVICES",
    "HIP_VISIBLE_DEVICES",
    "ROCR_VISIBLE_DEVICES",
    "RANK",
    "LOCAL_RANK",
    "WORLD_SIZE",
    "SLURM_JOB_NUM_NODES",
    "SLURM_NTASKS",
    "SLURM_PROCID",
    "SLURM_LOCALID",
    "OMPI_COMM_WORLD_RANK",
    "OMPI_COMM_WORLD_SIZE",
];

/// Longest output of a command that is kept, bytes.
const OUTPUT_MAX: usize = 1 << 20;

/// How long one of our own commands may take: the driver of a GPU or a file system may hang.
const OURS_TIME: Duration = Duration::from_secs(60);

/// How long the kernel's log may take, and its largest size, bytes: its buffer has some MiB.
const LOG_TIME: Duration = Duration::from_secs(10);
const LOG_MAX: usize = 64 << 20;

/// A file of the report.
struct Part {
    name: String,
    what: String,
    text: String,
}

pub(crate) fn run(args: &BugreportArgs) -> Result<Exit, Failure> {
    let parts = parts(&Scrub::of_this_user());
    let host = plain(&host_name());
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
    let mut out = Out::default();
    let rows = parts.iter().map(|part| vec![part.name.clone(), part.text.len().to_string(), part.what.clone()]);
    let head = ["file", "bytes", "what it is"].map(String::from).to_vec();
    out.text(&table(&std::iter::once(head).chain(rows).collect::<Vec<_>>()))?;
    out.text(
        "\nIP and MAC addresses, host names and names of interfaces are in it. Keys, passwords, tokens, other variables of the environment and \
         command lines of processes are not; values that look like one are replaced by [removed].\n",
    )?;
    if args.list {
        return Ok(Exit::Ok);
    }
    let file = args.output.clone().unwrap_or_else(|| PathBuf::from(format!("lspan-bugreport-{host}-{now}.tar")));
    let failed = |error: std::io::Error| Failure::system(&file.display().to_string(), &error);
    let folder = format!("lspan-bugreport-{host}-{now}");
    let bytes = archive(&folder, &parts, now);
    let mut at = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&file).map_err(failed)?;
    at.write_all(&bytes).and_then(|()| at.sync_all()).map_err(failed)?;
    out.text(&format!(
        "\nwritten to {}; nothing is sent anywhere: look into it (tar -xf), then attach it\n",
        file.display()
    ))?;
    Ok(Exit::Ok)
}

/// A host's name as a part of a file's: the kernel lets it have any 64 bytes.
fn plain(host: &str) -> String {
    let name = |c: char| if c.is_alphanumeric() || matches!(c, '.' | '-' | '_') { c } else { '_' };
    host.chars().take(64).map(name).collect()
}

fn archive(folder: &str, parts: &[Part], now: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    for part in parts {
        tar::add(&mut bytes, folder, &part.name, part.text.as_bytes(), now);
    }
    tar::end(&mut bytes);
    bytes
}

fn parts(scrub: &Scrub) -> Vec<Part> {
    let roots = Roots::default();
    let mut parts = vec![
        ("about.txt".to_owned(), "release, kernel, system".to_owned(), about(&roots)),
        ("environment.txt".to_owned(), "names that NCCL, launchers and linkspan read".to_owned(), environment()),
        ("kernel-log.txt".to_owned(), "the kernel's lines of Thunderbolt, RDMA and linkspan".to_owned(), kernel_log()),
        ("modules.txt".to_owned(), "kernel modules that are loaded".to_owned(), modules(&roots)),
        (
            "machine.tree".to_owned(),
            "files of /sys and /proc that lspan doctor judges".to_owned(),
            tree::capture(&roots),
        ),
    ];
    for (name, args, what) in OURS {
        parts.push((name.to_owned(), format!("{what} (lspan {})", args.join(" ")), ours(args)));
    }
    parts.into_iter().map(|(name, what, text)| Part { name, what, text: scrub.text(&text) }).collect()
}

/// One of our own commands, in a process of its own: one that fails or hangs does not take the report with it.
fn ours(args: &[&str]) -> String {
    let run = || {
        let mut wrong = File::from(memfd_create("stderr", MemfdFlags::CLOEXEC)?);
        let mut command = Command::new(std::env::current_exe()?);
        let ended = bounded(command.args(args).stderr(wrong.try_clone()?), OURS_TIME, OUTPUT_MAX)?;
        wrong.rewind()?;
        let mut said = Vec::new();
        wrong.take(OUTPUT_MAX as u64).read_to_end(&mut said)?;
        Ok::<_, std::io::Error>((ended, String::from_utf8_lossy(&said).into_owned()))
    };
    match run() {
        Ok((ended, said)) => {
            let said = if said.is_empty() { said } else { format!("\nstandard error:\n{said}") };
            let Some((status, output)) = ended else {
                return format!("lspan {} did not end within {} s\n{said}", args.join(" "), OURS_TIME.as_secs());
            };
            let code = status.code().filter(|code| *code != 0);
            let ended = code.map(|code| format!("\nexit code {code}\n")).unwrap_or_default();
            format!("{}{said}{ended}", String::from_utf8_lossy(&output))
        }
        Err(error) => format!("lspan {}: {error}\n", args.join(" ")),
    }
}

fn about(roots: &Roots) -> String {
    let host = linkspan_topology::Host::read(roots);
    let system = roots.text("/etc/os-release").unwrap_or_default();
    let pretty = system.lines().find_map(|line| line.strip_prefix("PRETTY_NAME=")).unwrap_or("?").trim_matches('"');
    let root = if rustix::process::geteuid().is_root() { "root" } else { "a user" };
    format!(
        "lspan {}\nkernel {} ({})\nsystem {pretty}\nprocessor {} x {}\nmemory {} bytes\nrun by {root}\n",
        env!("CARGO_PKG_VERSION"),
        host.kernel,
        host.arch,
        host.cpus,
        host.cpu_model.as_deref().unwrap_or("?"),
        host.memory_bytes
    )
}

fn environment() -> String {
    let read = |name: &str| {
        NAMES.iter().any(|known| if known.ends_with('_') { name.starts_with(known) } else { name == *known })
    };
    let mut lines: Vec<String> = std::env::vars_os()
        .map(|(name, value)| (name.to_string_lossy().into_owned(), value.to_string_lossy().into_owned()))
        .filter(|(name, _)| read(name))
        .map(|(name, value)| format!("{name}={value}\n"))
        .collect();
    lines.sort();
    lines.concat()
}

fn modules(roots: &Roots) -> String {
    let text = roots.text("/proc/modules").unwrap_or_default();
    let mut names: Vec<&str> = text.lines().filter_map(|line| line.split_whitespace().next()).collect();
    names.sort_unstable();
    names.join("\n") + "\n"
}

/// Lines that are about what linkspan uses; nothing where this user may not read the log.
fn kernel_log() -> String {
    let (status, text) = match bounded(Command::new("dmesg").stderr(Stdio::null()), LOG_TIME, LOG_MAX) {
        Ok(Some(said)) => said,
        Ok(None) => return format!("dmesg did not end within {} s\n", LOG_TIME.as_secs()),
        Err(_) => return "dmesg is not there\n".into(),
    };
    let text = String::from_utf8_lossy(&text).into_owned();
    let words =
        ["thunderbolt", "usb4", "linkspan", "mlx5", "infiniband", "rdma", "rxe", "dmar", "amd-vi", "iommu", "tbstream"];
    let ours = |line: &&str| {
        let line = line.to_ascii_lowercase();
        words.iter().any(|word| line.contains(word)) && !line.contains("command line")
    };
    let lines: Vec<&str> = text.lines().filter(ours).collect();
    match lines.is_empty() && !status.success() {
        true => "this user may not read the kernel's log\n".into(),
        false => lines[lines.len().saturating_sub(2000)..].join("\n") + "\n",
    }
}

#[cfg(test)]
mod tests;
