//! The GPU unpack kernel without a GPU: run on the host, thread by thread, under sanitizers against a plain loop, and
//! compiled by every GPU compiler that is on this machine. What is missing is named; only NVIDIA's is fetched, if asked for,
//! from the Python index that pip is configured for, into an environment below `target/`.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::python;
use crate::run::{self, Outcome};

const KERNEL: &str = "crates/gpu/src/unpack/kernel.c";
const PTX: &str = "crates/gpu/src/unpack/kernel.ptx";

/// Random pieces on the host: some ten seconds.
const PIECES: &str = "2000000";

/// NVIDIA: A100, H100, B200, GB10.
const NVIDIA: [&str; 4] = ["sm_80", "sm_90", "sm_100", "sm_121"];

/// AMD: MI200, MI300, RX 7900, Strix Halo.
const AMD: [&str; 4] = ["gfx90a", "gfx942", "gfx1100", "gfx1151"];

/// AMD as the oldest supported run-time compiler knows them (ROCm 5.2, Debian 12).
const AMD_OLD: [&str; 2] = ["gfx90a", "gfx1030"];

/// The version whose PTX drivers since 520 take.
const PTX_MAKER: &str = "libnvrtc.so.11.2";

/// Runs everything that can run here; `fetch`: with NVRTC, if it can be had.
pub(crate) fn run(root: &Path, fetch: bool) -> Outcome {
    if run::which("cc").is_none() {
        return Outcome::Skipped("no C compiler (Debian: gcc libc6-dev)".to_owned());
    }
    let (host, rtc) = match (build(root, "host", true), build(root, "rtc", false)) {
        (Ok(host), Ok(rtc)) => (host, rtc),
        (Err(why), _) | (_, Err(why)) => return Outcome::Failed(why),
    };
    if fetch && let Err(why) = python::environment(&environment(root), &["nvidia-cuda-nvrtc"]) {
        println!("unpack: NVRTC could not be fetched: {why}");
    }
    let mut failed = Vec::new();
    failed.extend(run::must(Command::new(host).args([PIECES, "1"])).err());
    let nvrtc = nvrtc_files(root).into_iter().max_by_key(|f| version(f)).unwrap_or_else(|| "libnvrtc.so.13".into());
    failed.extend(compile(root, &rtc, "nvrtc", &nvrtc, &NVIDIA, "cargo xtask unpack --fetch, or NVRTC=FILE").err());
    failed.extend(clang(root).err());
    let hiprtc = ["libhiprtc.so.7", "libhiprtc.so.6", "libamdhip64.so.5"];
    let there = hiprtc.into_iter().find(|name| loads(&rtc, name)).unwrap_or(hiprtc[2]);
    failed.extend(compile(root, &rtc, "hiprtc", Path::new(there), &AMD_OLD, "Debian: libamdhip64-5").err());
    if failed.is_empty() { Outcome::Done } else { Outcome::Failed(failed.join("; ")) }
}

/// Makes the checked-in PTX anew.
pub(crate) fn ptx(root: &Path) -> Outcome {
    let Some(nvrtc) = nvrtc_files(root).into_iter().find(|f| f.ends_with(PTX_MAKER)) else {
        return Outcome::Skipped(format!("no {PTX_MAKER} (pip install nvidia-cuda-nvrtc-cu11, or NVRTC=FILE)"));
    };
    let made = build(root, "rtc", false).and_then(|rtc| {
        let mut command = Command::new(rtc);
        command
            .current_dir(root)
            .arg("nvrtc")
            .arg(&nvrtc)
            .args([KERNEL, "compute_75"])
            .env("LD_LIBRARY_PATH", beside(&nvrtc));
        let text = run::output(&mut command)?;
        let kernel = std::fs::read(root.join(KERNEL)).map_err(|e| format!("{KERNEL}: {e}"))?;
        let head = format!(
            "// Made from kernel.c (FNV-1a {:#018x}) by `cargo xtask unpack --ptx` with NVRTC 11.8.\n",
            fnv(&kernel)
        );
        std::fs::write(root.join(PTX), head + &text).map_err(|e| format!("{PTX}: {e}"))
    });
    made.map_or_else(Outcome::Failed, |()| Outcome::Done)
}

/// 64-bit FNV-1a (Fowler, Noll, Vo).
fn fnv(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, &b| (hash ^ u64::from(b)).wrapping_mul(0x100_0000_01b3))
}

fn build(root: &Path, name: &str, sanitize: bool) -> Result<PathBuf, String> {
    let dir = run::target_dir(root).join("unpack");
    std::fs::create_dir_all(&dir).map_err(|e| format!("{}: {e}", dir.display()))?;
    let out = dir.join(name);
    let mut cc = Command::new("cc");
    cc.current_dir(root).args(["-std=gnu11", "-O1", "-g", "-Wall", "-Wextra", "-Werror"]);
    if sanitize {
        cc.args(["-fsanitize=address,undefined", "-fno-sanitize-recover=all"]);
    }
    cc.arg(format!("tests/unpack/{name}.c")).arg("-ldl").arg("-o").arg(&out);
    run::must(&mut cc).map(|()| out)
}

/// Where NVRTC is fetched to.
fn environment(root: &Path) -> PathBuf {
    run::target_dir(root).join("unpack/python")
}

/// Where NVRTC may be: what `NVRTC` says, and what packages of Python brought, here or to [`environment`].
fn nvrtc_files(root: &Path) -> Vec<PathBuf> {
    const LOOK: &str = "import nvidia, glob\n\
        for p in nvidia.__path__:\n for f in glob.glob(p + '/*/lib/libnvrtc.so.*'): print(f)";
    let named = std::env::var_os("NVRTC").map(PathBuf::from);
    let pythons = [PathBuf::from("python3"), environment(root).join("bin/python")];
    let found = pythons.iter().filter_map(|python| run::output(Command::new(python).args(["-c", LOOK])).ok());
    let found: Vec<PathBuf> = found.flat_map(|text| text.lines().map(PathBuf::from).collect::<Vec<_>>()).collect();
    named.into_iter().chain(found).collect()
}

/// The number behind `.so.`, as far as it is one.
fn version(file: &Path) -> u32 {
    let name = file.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
    name.rsplit_once(".so.").and_then(|(_, v)| v.split('.').next()?.parse().ok()).unwrap_or(0)
}

/// The folder of a library, which holds what it loads itself.
fn beside(file: &Path) -> PathBuf {
    file.parent().map(Path::to_owned).unwrap_or_default()
}

/// Whether the dynamic linker finds a library: asked for no architecture, the program says 2 before it looks.
fn loads(rtc: &Path, library: &str) -> bool {
    let status =
        Command::new(rtc).args(["hiprtc", library, "/dev/null", "none"]).stderr(std::process::Stdio::null()).status();
    status.is_ok_and(|s| s.code() != Some(i32::from(run::SKIP)))
}

fn compile(root: &Path, rtc: &Path, kind: &str, library: &Path, archs: &[&str], way: &str) -> Result<(), String> {
    let mut command = Command::new(rtc);
    command.current_dir(root).arg(kind).arg(library).arg(KERNEL).args(archs);
    if library.is_absolute() {
        command.env("LD_LIBRARY_PATH", beside(library));
    }
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) if status.code() == Some(i32::from(run::SKIP)) => {
            println!("skipped: unpack with {kind}: no {} ({way})", library.display());
            Ok(())
        }
        Ok(status) => Err(format!("{kind} ended with {status}")),
        Err(e) => Err(format!("{kind} did not start: {e}")),
    }
}

/// Compiles for AMD with clang and looks for loads and stores of 16 bytes.
fn clang(root: &Path) -> Result<(), String> {
    // Support for gfx1151 came with clang 18.
    let Some(clang) = ["clang-21", "clang-20", "clang-19", "clang-18"].into_iter().find_map(run::which) else {
        println!("skipped: unpack with clang: none of version 18 to 21 (Debian: clang-19)");
        return Ok(());
    };
    for arch in AMD {
        let mut command = Command::new(&clang);
        command.current_dir(root).args([
            "-x",
            "hip",
            "--cuda-device-only",
            "-nogpuinc",
            "-nogpulib",
            "-DLINKSPAN_BARE",
        ]);
        command.args(["-O2", "-Wall", "-Werror", "-S", "-o", "-"]).arg(format!("--offload-arch={arch}")).arg(KERNEL);
        let text = run::output(&mut command)?;
        let wide = |what: &str| {
            text.lines().filter(|l| l.contains(what) && (l.contains("b128") || l.contains("dwordx4"))).count()
        };
        let (loads, stores) = (wide("load"), wide("store"));
        println!("{arch}: {loads} loads and {stores} stores of 16 bytes");
        if loads == 0 || stores == 0 {
            return Err(format!("{arch}: no accesses of 16 bytes in the code of {}", clang.display()));
        }
    }
    Ok(())
}
