//! The C library as it is installed: shared and static, headers, pkg-config files and CMake package, below one prefix that may
//! be moved as a whole.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::dist;
use crate::machine::Machine;
use crate::run;

/// Version script of the shared library.
pub(crate) const MAP: &str = "bindings/c/linkspan.map";

/// What the static library needs of the system: `rustc --print native-static-libs` for this target.
const STATIC_LIBS: &str = "-lgcc_s -lpthread -lm -ldl -lc";

/// How the shared library is linked. It stays loaded once it is (`nodelete`: its engine thread runs its code), binds at once
/// and leaves nothing of its tables writable.
const LINK: [&str; 4] = ["-Wl,--gc-sections", "-Wl,-z,nodelete,-z,now,-z,relro,-z,defs", "-Wl,--as-needed", "-Wl,-O1"];

/// What was installed.
pub(crate) struct Installed {
    /// Where.
    pub(crate) prefix: PathBuf,
    /// The file behind the names of the shared library.
    pub(crate) shared: PathBuf,
    /// The static library.
    pub(crate) archive: PathBuf,
    /// The name that programs ask their loader for.
    pub(crate) soname: String,
}

/// Builds and installs below `prefix`.
pub(crate) fn install(root: &Path, prefix: &Path) -> Result<Installed, String> {
    install_for(root, &Machine::Native, prefix, "lib")
}

/// The same for a machine, with the libraries in `libdir` below `prefix` (`lib`, or Debian's `lib/x86_64-linux-gnu`).
pub(crate) fn install_for(root: &Path, machine: &Machine, prefix: &Path, libdir: &str) -> Result<Installed, String> {
    dist::compile(root, machine)?;
    let version = version(root)?;
    let numbers: Vec<&str> = version.split('.').collect();
    let [major, minor, ..] = numbers[..] else { return Err(format!("{version} is not a version")) };
    let soname = format!("liblinkspan.so.{major}");
    let (lib, include) = (prefix.join(libdir), prefix.join("include"));
    for dir in [&lib.join("pkgconfig"), &lib.join("cmake/linkspan"), &include] {
        fs::create_dir_all(dir).map_err(|e| format!("{}: {e}", dir.display()))?;
    }
    let archive = lib.join("liblinkspan.a");
    replace(&machine.built(root).join("liblinkspan_capi.a"), &archive)?;
    let shared = lib.join(format!("liblinkspan.so.{version}"));
    let _ = fs::remove_file(&shared);
    run::must(&mut link(root, machine, &archive, &soname, &shared))?;
    // What a debugger wants of the archive is in the shared library too; here it would be most of the file.
    // Nor is there any use for the bitcode of the standard library, which is three quarters of the rest.
    let without = ["--strip-debug", "--remove-section=.llvmbc", "--remove-section=.llvmcmd"];
    run::must(machine.tool("objcopy").args(without).arg(&archive))?;
    for (name, target) in
        [(soname.clone(), format!("liblinkspan.so.{version}")), ("liblinkspan.so".into(), soname.clone())]
    {
        let name = lib.join(name);
        let _ = fs::remove_file(&name);
        symlink(target, &name).map_err(|e| format!("{}: {e}", name.display()))?;
    }
    let capi = root.join("bindings/c");
    for header in ["linkspan.h", "linkspan.hpp"] {
        replace(&capi.join("include").join(header), &include.join(header))?;
    }
    // From the folder of a pkg-config file, and from that of the CMake package, to the prefix and to the libraries.
    let up = "/..".repeat(1 + libdir.split('/').count());
    let words = [
        ("@UP@", up.as_str()),
        ("@LIBDIR@", libdir),
        ("@VERSION@", version.as_str()),
        ("@MAJOR@", major),
        ("@MINOR@", minor),
        ("@SONAME@", soname.as_str()),
        ("@STATIC_LIBS@", STATIC_LIBS),
    ];
    let files = [
        ("linkspan.pc", "pkgconfig"),
        ("linkspan-static.pc", "pkgconfig"),
        ("linkspan-config.cmake", "cmake/linkspan"),
        ("linkspan-config-version.cmake", "cmake/linkspan"),
    ];
    for (name, to) in files {
        let from = capi.join(format!("package/{name}.in"));
        let text = fs::read_to_string(&from).map_err(|e| format!("{}: {e}", from.display()))?;
        let to = lib.join(to).join(name);
        fs::write(&to, filled(&text, &words)).map_err(|e| format!("{}: {e}", to.display()))?;
    }
    Ok(Installed { prefix: prefix.to_owned(), shared, archive, soname })
}

/// The command that makes the shared library: rustc's own would keep symbols without a version.
fn link(root: &Path, machine: &Machine, archive: &Path, soname: &str, out: &Path) -> Command {
    let mut cc = machine.tool("cc");
    cc.args(["-shared", "-o"]).arg(out).arg(format!("-Wl,-soname,{soname}"));
    cc.arg(format!("-Wl,--version-script={}", root.join(MAP).display()));
    cc.arg("-Wl,--whole-archive").arg(archive).arg("-Wl,--no-whole-archive");
    cc.args(LINK).args(STATIC_LIBS.split(' '));
    cc
}

/// A file that is in use must not change under its user: the name is replaced, not the bytes.
pub(crate) fn replace(from: &Path, to: &Path) -> Result<(), String> {
    let _ = fs::remove_file(to);
    fs::copy(from, to).map(drop).map_err(|e| format!("{} to {}: {e}", from.display(), to.display()))
}

fn filled(text: &str, words: &[(&str, &str)]) -> String {
    words.iter().fold(text.to_owned(), |text, (word, value)| text.replace(word, value))
}

/// The version of the workspace.
pub(crate) fn version(root: &Path) -> Result<String, String> {
    let file = root.join("Cargo.toml");
    let text = fs::read_to_string(&file).map_err(|e| format!("{}: {e}", file.display()))?;
    let line = text.lines().skip_while(|l| *l != "[workspace.package]").find_map(|l| l.strip_prefix("version = \""));
    line.and_then(|l| l.strip_suffix('"')).map(str::to_owned).ok_or_else(|| "Cargo.toml names no version".to_owned())
}
