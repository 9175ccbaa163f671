//! `cargo xtask dist`: the release files, and proof that they load where they should.

pub(crate) mod elf;

use std::fs;
use std::path::{Path, PathBuf};

use crate::capi::abi;
use crate::capi::install::{Installed, MAP, install};
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

/// Builds into `dir`, then checks what was built.
pub(crate) fn run(root: &Path, dir: &Path) -> Outcome {
    match build(root, dir) {
        Err(why) => Outcome::Failed(why),
        Ok((files, library)) => {
            let mut problems = inspect_library(root, &library);
            for (file, is_plugin) in files {
                problems.extend(inspect(&file, is_plugin));
            }
            for problem in &problems {
                eprintln!("dist: {problem}");
            }
            Outcome::from_problems(&problems)
        }
    }
}

/// Compiles plugin and program.
pub(crate) fn compile(root: &Path) -> Result<(), String> {
    run::must(run::cargo(root).args(["build", "--release", "-p", "linkspan-nccl", "-p", "lspan"]))
}

/// Plugin and program, and the C library below the same folder.
fn build(root: &Path, dir: &Path) -> Result<([(PathBuf, bool); 2], Installed), String> {
    compile(root)?;
    let built = run::target_dir(root).join("release");
    let failed = |path: &Path, e: std::io::Error| format!("{}: {e}", path.display());
    fs::create_dir_all(dir).map_err(|e| failed(dir, e))?;
    let copy = |from: &str, to: &str| {
        let (from, to) = (built.join(from), dir.join(to));
        // A plugin that is being used must not change under its user: replace the name, not the bytes.
        let _ = fs::remove_file(&to);
        fs::copy(&from, &to).map(|_| to).map_err(|e| failed(&from, e))
    };
    let plugin = copy("liblinkspan_nccl.so", NCCL_NAME)?;
    let lspan = copy("lspan", "lspan")?;
    let link = dir.join(RCCL_NAME);
    let _ = fs::remove_file(&link);
    std::os::unix::fs::symlink(NCCL_NAME, &link).map_err(|e| failed(&link, e))?;
    Ok(([(plugin, true), (lspan, false)], install(root, dir)?))
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
        println!("{name}: exports {}", elf.exports.join(" "));
        problems.extend(exports(&elf.exports).into_iter().map(|why| format!("{name}: {why}")));
    }
    problems
}

/// Name, size and contents of a file.
fn read(file: &Path) -> Result<(String, usize, Elf), String> {
    let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let bytes = fs::read(file).map_err(|e| format!("{name}: {e}"))?;
    let elf = Elf::read(&bytes).ok_or_else(|| format!("{name}: not a 64-bit little-endian ELF file"))?;
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
    let mut problems = Vec::new();
    if newest > Some(GLIBC_MAX) {
        let culprits = elf.versions.iter().filter(|v| elf::version(v, "GLIBC_") > Some(GLIBC_MAX));
        let list: Vec<&str> = culprits.map(String::as_str).collect();
        problems.push(format!(
            "{name}: needs {}, the ceiling is GLIBC_{}.{}",
            list.join(", "),
            GLIBC_MAX.0,
            GLIBC_MAX.1
        ));
    }
    let foreign = elf.needed.iter().filter(|lib| !LIBRARIES.contains(&lib.as_str()));
    problems
        .extend(foreign.map(|lib| format!("{name}: needs {lib}, which not every machine has: open it at run time")));
    problems
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
