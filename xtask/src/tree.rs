//! The files of the tree, as the checks see them.

use std::path::{Path, PathBuf};

/// Folders that hold built things, never sources; not below a `src`.
const BUILT: [&str; 6] = ["target", "dist", ".git", "artifacts", "coverage", "node_modules"];

/// The root of the workspace: the parent of this crate.
pub(crate) fn root() -> PathBuf {
    // Without cargo, the tree that this program was built in.
    let own = std::env::var_os("CARGO_MANIFEST_DIR").unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into());
    Path::new(&own).parent().map_or_else(|| PathBuf::from("."), Path::to_path_buf)
}

/// One text file.
#[derive(Debug)]
pub(crate) struct Source {
    /// Path from the root, with `/`.
    pub(crate) path: String,
    /// What is in it.
    pub(crate) text: String,
}

impl Source {
    /// Whether it is Rust.
    pub(crate) fn is_rust(&self) -> bool {
        self.path.ends_with(".rs")
    }

    /// Whether it is test code by its place: `tests.rs`, a file below a `tests/` folder, a fuzz target, a bench.
    pub(crate) fn is_test(&self) -> bool {
        let last = self.path.rsplit('/').next().unwrap_or_default();
        last == "tests.rs"
            || last.ends_with("_tests.rs")
            || self.path.split('/').any(|part| matches!(part, "tests" | "fuzz" | "benches"))
    }

    /// Whether it is the root of a library or a program.
    pub(crate) fn is_crate_root(&self) -> bool {
        self.path.ends_with("src/lib.rs") || self.path.ends_with("src/main.rs") || self.path.contains("/src/bin/")
    }
}

/// Every UTF-8 file below `root` except built ones, and pictures with no text; sorted by path.
pub(crate) fn sources(root: &Path) -> Vec<Source> {
    let mut found = Vec::new();
    walk(root, "", &mut found);
    found.sort_by(|a: &Source, b| a.path.cmp(&b.path));
    found
}

fn walk(dir: &Path, prefix: &str, found: &mut Vec<Source>) {
    let Ok(entries) = std::fs::read_dir(dir) else {
        return;
    };
    for entry in entries.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let path = if prefix.is_empty() { name.clone() } else { format!("{prefix}/{name}") };
        let Ok(kind) = entry.file_type() else {
            continue;
        };
        if kind.is_dir() {
            if !BUILT.contains(&name.as_str()) || path.split('/').any(|part| part == "src") {
                walk(&entry.path(), &path, found);
            }
        } else if kind.is_file() {
            // Of a picture only that it is there.
            let read = if path.ends_with(".png") { Ok(String::new()) } else { std::fs::read_to_string(entry.path()) };
            found.extend(read.ok().map(|text| Source { path, text }));
        }
    }
}
