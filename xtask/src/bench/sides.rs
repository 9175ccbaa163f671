//! The two commits, each built in a worktree of its own below `target/bench-pair/`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use super::figures::Program;
use crate::run;

/// One commit with the programs built from it.
#[derive(Debug)]
pub(crate) struct Side {
    /// The whole hash.
    pub(crate) commit: String,
    /// Its worktree.
    pub(crate) root: PathBuf,
    /// The examples that were built, by name.
    examples: BTreeMap<&'static str, PathBuf>,
    /// The plugin's shared library.
    plugin: Option<PathBuf>,
}

/// The commit that `word` means: `core-base` is the hash in `bench/core-base`, everything else is git's.
pub(crate) fn commit(root: &Path, word: &str) -> Result<String, String> {
    let file = root.join("bench/core-base");
    let named = match word {
        "core-base" => std::fs::read_to_string(&file).map_err(|e| format!("{}: {e}", file.display()))?,
        other => other.to_owned(),
    };
    let name = format!("{}^{{commit}}", named.trim());
    Ok(run::output(git(root).args(["rev-parse", "--verify", "--quiet", &name]))
        .map_err(|_| format!("'{}' is not a commit here", named.trim()))?
        .trim()
        .to_owned())
}

impl Side {
    /// Checks `commit` out, in the worktree that an earlier call left where there is one, and builds what `programs` need.
    pub(crate) fn ready(root: &Path, commit: &str, programs: &[Program]) -> Result<Side, String> {
        let dir = run::target_dir(root).join("bench-pair").join(commit);
        if !dir.join("Cargo.toml").is_file() {
            run::must(git(root).args(["worktree", "prune"]))?;
            run::must(git(root).args(["worktree", "add", "--quiet", "--detach", "--force"]).arg(&dir).arg(commit))?;
        }
        // What somebody changed there by hand would be measured under the commit's name.
        let changed = run::output(git(&dir).args(["status", "--porcelain", "--untracked-files=no"]))?;
        let at = run::output(git(&dir).args(["rev-parse", "HEAD"]))?;
        if !changed.trim().is_empty() || at.trim() != commit {
            return Err(format!("{} is not commit {commit} as it was committed: remove it", dir.display()));
        }
        let mut side = Side { commit: commit.to_owned(), root: dir, examples: BTreeMap::new(), plugin: None };
        let targets = side.targets()?;
        for &program in programs {
            match program {
                Program::PluginHost => {
                    let plugin = targets.iter().find(|t| t.kind == "cdylib" && t.name == "linkspan_nccl");
                    if let Some(target) = plugin {
                        side.plugin = Some(side.build(target, "--lib")?);
                    }
                }
                Program::Example(name) => {
                    if let Some(target) = targets.iter().find(|t| t.kind == "example" && t.name == name) {
                        let file = side.build(target, "--example")?;
                        side.examples.insert(name, file);
                    }
                }
            }
        }
        Ok(side)
    }

    /// The file of an example; `None` where this commit has none of the name.
    pub(crate) fn example(&self, name: &str) -> Option<&Path> {
        self.examples.get(name).map(PathBuf::as_path)
    }

    /// The file of the plugin.
    pub(crate) fn plugin(&self) -> Option<&Path> {
        self.plugin.as_deref()
    }

    /// A cargo command that builds into this worktree, whatever the environment says of others.
    fn cargo(&self) -> Command {
        let mut cargo = run::cargo(&self.root);
        cargo.env_remove("CARGO_TARGET_DIR").env_remove("CARGO_MANIFEST_DIR");
        cargo
    }

    /// What the workspace can build: packages are looked up, for they may differ between the commits.
    fn targets(&self) -> Result<Vec<Target>, String> {
        let text = run::output(self.cargo().args(["metadata", "--no-deps", "--locked", "--format-version", "1"]))?;
        let all: Value = serde_json::from_str(&text).map_err(|e| format!("cargo metadata: {e}"))?;
        let mut found = Vec::new();
        for package in list(&all["packages"]) {
            for target in list(&package["targets"]) {
                for kind in list(&target["kind"]) {
                    let (package, name) = (text_of(&package["name"]), text_of(&target["name"]));
                    let (kind, package, name) = (text_of(kind).to_owned(), package.to_owned(), name.to_owned());
                    found.push(Target { kind, package, name });
                }
            }
        }
        Ok(found)
    }

    /// Builds one target; where it lies is what cargo says of it.
    fn build(&self, target: &Target, what: &str) -> Result<PathBuf, String> {
        eprintln!("building {} at {}", target.name, &self.commit[..12]);
        let mut cargo = self.cargo();
        cargo.args(["build", "--release", "--locked", "--message-format", "json-render-diagnostics", "-p"]);
        cargo.args([&target.package, what]);
        if what == "--example" {
            cargo.arg(&target.name);
        }
        let text = run::output(&mut cargo)?;
        let built = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let files = built
            .filter(|m| m["reason"] == "compiler-artifact" && text_of(&m["target"]["name"]) == target.name)
            .filter(|m| list(&m["target"]["kind"]).iter().any(|kind| text_of(kind) == target.kind))
            .flat_map(|m| list(&m["filenames"]).iter().map(|f| PathBuf::from(text_of(f))).collect::<Vec<_>>());
        let is_it = |file: &PathBuf| target.kind != "cdylib" || file.extension().is_some_and(|e| e == "so");
        files.into_iter().find(is_it).ok_or_else(|| format!("cargo did not say where it put {}", target.name))
    }
}

#[derive(Debug)]
struct Target {
    kind: String,
    package: String,
    name: String,
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn text_of(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn git(dir: &Path) -> Command {
    let mut git = Command::new("git");
    git.arg("-C").arg(dir);
    git
}
