//! The NCCL plugin as a file: where it is and what it exports. Loading it takes NCCL, or `tests/plugin-host`.

use std::fs;
use std::path::{Path, PathBuf};

use super::{Line, Verdict};

/// Both names of the one file.
const NAMES: [&str; 2] = ["libnccl-net-linkspan.so", "librccl-net-linkspan.so"];

/// Table versions that it must have.
const VERSIONS: std::ops::RangeInclusive<u32> = 6..=12;

/// One line per name.
pub(super) fn lines() -> Vec<Line> {
    NAMES.iter().map(|name| line(name, &places())).collect()
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
    let Some(file) = places.iter().map(|dir| dir.join(name)).find(|file| file.is_file()) else {
        let text = format!(
            "cannot be tested here: no {name} in LD_LIBRARY_PATH or the usual folders; `cargo xtask dist` makes it"
        );
        return Line::new(part, Verdict::Skip, text);
    };
    let bytes = match fs::read(&file) {
        Ok(bytes) => bytes,
        Err(error) => return Line::new(part, Verdict::Fail, format!("{}: {error}", file.display())),
    };
    let missing: Vec<String> =
        VERSIONS.map(|version| format!("ncclNetPlugin_v{version}")).filter(|symbol| !has(&bytes, symbol)).collect();
    if !bytes.starts_with(b"\x7fELF") || !missing.is_empty() {
        return Line::new(part, Verdict::Fail, format!("{} lacks {}", file.display(), missing.join(", ")));
    }
    Line::new(part, Verdict::Pass, format!("{}: tables v6 to v12, host memory pointers", file.display()))
}

/// Whether a string table in the file holds the name.
fn has(bytes: &[u8], symbol: &str) -> bool {
    let wanted: Vec<u8> = [b"\0", symbol.as_bytes(), b"\0"].concat();
    bytes.windows(wanted.len()).any(|window| window == wanted)
}

#[cfg(test)]
mod tests;
