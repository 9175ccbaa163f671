//! `package crates`: every crate as cargo publishes it, in the order in which they need each other, built from what would be uploaded.

use std::fs;
use std::path::{Path, PathBuf};

use super::{place, source};
use crate::run::{self, Outcome};

/// A crate that its own tests need is often one that needs it: what only tests depend on is left off, as it is of no use to whoever builds
/// with the crate.
const LEFT_OFF: &str = "dev-dependencies";

/// Lays the tree out without what only tests need, and has cargo do all that it does but the upload.
pub(super) fn run(root: &Path) -> Outcome {
    let tree = place(root).join("crates");
    match laid_out(root, &tree).and_then(|()| publish(root, &tree)) {
        Ok(()) => Outcome::Done,
        Err(why) => Outcome::Failed(why),
    }
}

fn laid_out(root: &Path, tree: &Path) -> Result<(), String> {
    let _ = fs::remove_dir_all(tree);
    source::tracked(root, tree)?;
    for manifest in manifests(tree)? {
        let failed = |e: std::io::Error| format!("{}: {e}", manifest.display());
        let text = fs::read_to_string(&manifest).map_err(failed)?;
        fs::write(&manifest, stripped(&text).map_err(|e| format!("{}: {e}", manifest.display()))?).map_err(failed)?;
    }
    Ok(())
}

fn publish(root: &Path, tree: &Path) -> Result<(), String> {
    let mut cargo = run::cargo(root);
    cargo.args(["publish", "--workspace", "--dry-run"]).current_dir(tree);
    run::must(cargo.env("CARGO_TARGET_DIR", place(root).join("crates-build")))?;
    println!("to upload them: cargo publish --workspace, in {}", tree.display());
    Ok(())
}

/// Those of all packages of the workspace.
fn manifests(tree: &Path) -> Result<Vec<PathBuf>, String> {
    let file = tree.join("Cargo.toml");
    let text = fs::read_to_string(&file).map_err(|e| format!("{}: {e}", file.display()))?;
    let table: toml::Table = text.parse().map_err(|e| format!("{}: {e}", file.display()))?;
    let members = table["workspace"]["members"].as_array().into_iter().flatten().filter_map(toml::Value::as_str);
    Ok(members.map(|member| tree.join(member).join("Cargo.toml")).collect())
}

/// A manifest without [`LEFT_OFF`], and without features of what only that names.
fn stripped(text: &str) -> Result<String, toml::de::Error> {
    let mut table: toml::Table = text.parse()?;
    let mut left_off = table.remove(LEFT_OFF).and_then(|gone| gone.as_table().cloned()).unwrap_or_default();
    let targets = table.get_mut("target").and_then(toml::Value::as_table_mut);
    for (_, target) in targets.into_iter().flat_map(|all| all.iter_mut()) {
        let gone = target.as_table_mut().and_then(|target| target.remove(LEFT_OFF));
        left_off.extend(gone.and_then(|gone| gone.as_table().cloned()).unwrap_or_default());
    }
    let kept = |name: &str| table.get("dependencies").is_some_and(|all| all.get(name).is_some());
    left_off.retain(|name, _| !kept(name));
    let features = table.get_mut("features").and_then(toml::Value::as_table_mut);
    for (_, names) in features.into_iter().flat_map(|all| all.iter_mut()) {
        if let Some(names) = names.as_array_mut() {
            names.retain(|name| {
                name.as_str().and_then(|name| name.split_once('/')).is_none_or(|(of, _)| !left_off.contains_key(of))
            });
        }
    }
    Ok(table.to_string())
}

#[cfg(test)]
mod tests {
    use super::stripped;

    #[test]
    fn what_only_tests_need_is_left_off_and_nothing_else() {
        let text = "[package]\nname = \"a\"\n[dependencies]\nb = \"1\"\n[dev-dependencies]\nb = \"1\"\nc = \"1\"\n\
                    [features]\nf = [\"b/x\", \"c/x\", \"g\"]\ng = []\n\
                    [target.'cfg(unix)'.dependencies]\nd = \"1\"\n[target.'cfg(unix)'.dev-dependencies]\ne = \"1\"\n";
        let left: toml::Table = stripped(text).unwrap().parse().unwrap();
        assert_eq!(left["dependencies"].to_string(), "{ b = \"1\" }");
        assert_eq!(left["target"]["cfg(unix)"].to_string(), "{ dependencies = { d = \"1\" } }");
        assert_eq!(left["features"]["f"].to_string(), "[\"b/x\", \"g\"]");
        assert!(!left.contains_key("dev-dependencies") && left.contains_key("package"));
        assert!(stripped("[package").is_err());
    }
}
