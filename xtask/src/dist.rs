//! `cargo xtask dist`: the release files, and proof that they load where they should.

pub(crate) mod elf;

use std::fs;
use std::path::{Path, PathBuf};

use crate::capi::abi;
use crate::capi::install::{Installed, MAP, install_for, replace};
use crate::machine::Machine;
use crate::run::{self, Outcome};
use elf::Elf;

/// Name under which NCCL looks for the plugin with `NCCL_NET_PLUGIN=linkspan`.
const NCCL_NAME: &str = "libnccl-net-linkspan.so";

/// The name that RCCL looks for with the same variable.
const RCCL_NAME: &str = "librccl-net-linkspan.so";

/// Newest C library version a release may need: that of Ubuntu 22.04, RHEL 9 and everything younger.
const GLIBC_MAX: (u32, u32) = (2, 34);

/// Libraries that every glibc system has.
const LIBRARIES: [&str; 7] = [
    "libc.so.6",
    "libm.so.6",
    "libgcc_s.so.1",
    "libpthread.so.0",
    "libdl.so.2",
    "ld-linux-x86-64.so.2",
    "ld-linux-aarch64.so.1",
];

/// Symbols the plugin exports, each at least once: the network tables of NCCL's plugin versions.
const NET_VERSIONS: std::ops::RangeInclusive<u32> = 6..=12;

/// Where it is built into, unless a folder is said: nobody finds there what was built without optimisation.
pub(crate) fn place(root: &Path) -> PathBuf {
    if run::is_dev() { run::target_dir(root).join("dist-dev") } else { root.join("dist") }
}

/// Builds into `dir`, then checks what was built.
pub(crate) fn run(root: &Path, dir: &Path) -> Outcome {
    match build(root, &Machine::Native, dir, "", "", "lib") {
        Err(why) => Outcome::Failed(why),
        Ok(built) => {
            let problems = problems(root, &built, true);
            for problem in &problems {
                eprintln!("dist: {problem}");
            }
            Outcome::from_problems(&problems)
        }
    }
}

/// Compiles plugin, programs and C library: in one call, for another set of packages has other features of the crates below them, and
/// these would be compiled twice.
pub(crate) fn compile(root: &Path, machine: &Machine) -> Result<(), String> {
    if matches!(machine, Machine::Native) && run::is_dev() {
        return crate::stages::programs(root).map(drop);
    }
    let packages = ["-p", "linkspan-nccl", "-p", "lspan", "-p", "linkspand", "-p", "linkspan-capi"];
    run::must(machine.released(root).args(["build", "--release"]).args(packages))
}

/// What was built, where it lies.
pub(crate) struct Built {
    /// The plugin; its second name is a link beside it.
    pub(crate) plugin: PathBuf,
    /// The program.
    pub(crate) lspan: PathBuf,
    /// The C library.
    pub(crate) library: Installed,
}

/// Builds for a machine: the program into `bin` and all libraries into `libdir`, both below `prefix`.
pub(crate) fn build(
    root: &Path,
    machine: &Machine,
    prefix: &Path,
    bin: &str,
    plugins: &str,
    libdir: &str,
) -> Result<Built, String> {
    compile(root, machine)?;
    let built = machine.built(root);
    let (bin, plugins) = (prefix.join(bin), prefix.join(plugins));
    for dir in [&bin, &plugins] {
        fs::create_dir_all(dir).map_err(|e| format!("{}: {e}", dir.display()))?;
    }
    let (lspan, plugin, link) = (bin.join("lspan"), plugins.join(NCCL_NAME), plugins.join(RCCL_NAME));
    replace(&built.join("lspan"), &lspan)?;
    replace(&built.join("liblinkspan_nccl.so"), &plugin)?;
    let _ = fs::remove_file(&link);
    std::os::unix::fs::symlink(NCCL_NAME, &link).map_err(|e| format!("{}: {e}", link.display()))?;
    Ok(Built { plugin, lspan, library: install_for(root, machine, prefix, libdir)? })
}

/// What is wrong with what was built, for `everywhere` or for systems like this one, whose packages say which C library they need.
pub(crate) fn problems(root: &Path, built: &Built, everywhere: bool) -> Vec<String> {
    let mut problems = inspect_library(root, &built.library);
    problems.extend(inspect(&built.plugin, true));
    problems.extend(inspect(&built.lspan, false));
    if everywhere {
        problems
            .extend([&built.library.shared, &built.plugin, &built.lspan].into_iter().filter_map(|file| too_new(file)));
    }
    problems
}

/// What a file wants of a C library that is newer than that of the oldest systems.
fn too_new(file: &Path) -> Option<String> {
    let (name, _, elf) = read(file).ok()?;
    let culprits = elf.versions.iter().filter(|v| elf::version(v, "GLIBC_") > Some(GLIBC_MAX));
    let list: Vec<&str> = culprits.map(String::as_str).collect();
    let (major, minor) = GLIBC_MAX;
    (!list.is_empty()).then(|| format!("{name}: needs {}, the ceiling is GLIBC_{major}.{minor}", list.join(", ")))
}

/// What is wrong with the shared library of the C interface.
pub(crate) fn inspect_library(root: &Path, library: &Installed) -> Vec<String> {
    let map = match fs::read_to_string(root.join(MAP)) {
        Ok(map) => map,
        Err(e) => return vec![format!("{MAP}: {e}")],
    };
    match read(&library.shared) {
        Ok((name, bytes, elf)) => {
            let mut problems = loads(&name, bytes, &elf);
            println!("{name}: exports {} names, soname {}", elf.exports.len(), library.soname);
            let wrong = abi::inspect(&elf, &map, &library.soname);
            problems.extend(wrong.into_iter().map(|why| format!("{name}: {why}")));
            problems
        }
        Err(why) => vec![why],
    }
}

fn inspect(file: &Path, is_plugin: bool) -> Vec<String> {
    let (name, bytes, elf) = match read(file) {
        Ok(read) => read,
        Err(why) => return vec![why],
    };
    let mut problems = loads(&name, bytes, &elf);
    if is_plugin {
        let names: Vec<String> = elf.exports.into_iter().map(|(name, _)| name).collect();
        println!("{name}: exports {}", names.join(" "));
        problems.extend(exports(&names).into_iter().map(|why| format!("{name}: {why}")));
    }
    problems
}

/// Name, size and contents of a file.
fn read(file: &Path) -> Result<(String, usize, Elf), String> {
    let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let bytes = fs::read(file).map_err(|e| format!("{name}: {e}"))?;
    let elf = Elf::read(&bytes).map_err(|e| format!("{name}: not a 64-bit little-endian ELF file: {e}"))?;
    Ok((name, bytes.len(), elf))
}

/// What keeps a file from being loaded on some machine.
fn loads(name: &str, bytes: usize, elf: &Elf) -> Vec<String> {
    let newest = elf.newest("GLIBC_");
    println!(
        "{name}: {} KiB ({} KiB loaded), needs glibc {} and {}",
        bytes >> 10,
        elf.loaded >> 10,
        newest.map_or("of any version".to_owned(), |(a, b)| format!("{a}.{b}")),
        elf.needed.join(", "),
    );
    let foreign = elf.needed.iter().filter(|lib| !LIBRARIES.contains(&lib.as_str()));
    foreign.map(|lib| format!("{name}: needs {lib}, which not every machine has: open it at run time")).collect()
}

/// What is wrong with a plugin's list of exported names.
fn exports(names: &[String]) -> Vec<String> {
    let wanted: Vec<String> = NET_VERSIONS.map(|v| format!("ncclNetPlugin_v{v}")).collect();
    let missing = wanted.iter().filter(|w| !names.contains(w)).map(|w| format!("does not export {w}"));
    let is_tuner = |n: &str| n.strip_prefix("ncclTunerPlugin_v").is_some_and(|v| v.parse::<u32>().is_ok());
    let stray = names
        .iter()
        .filter(|n| !wanted.contains(n) && !is_tuner(n))
        .map(|n| format!("exports {n}, which NCCL does not ask for"));
    missing.chain(stray).collect()
}

#[cfg(test)]
mod tests;
