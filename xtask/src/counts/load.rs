//! The crates of ours that users load.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde_json::Value;

use crate::run;

/// What users load: folders of the plugin, of the C library, and of `lspan`.
const ENTRY: [&str; 3] = ["bindings/libnccl-net", "bindings/c", "bin/lspan"];

/// The Python package, in a workspace of its own.
const ALONE: [&str; 1] = ["bindings/python"];

/// One crate of the tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Crate {
    /// Its folder, from the root.
    pub(crate) folder: String,
    /// Its name.
    pub(crate) name: String,
}

/// Every crate that an entry links or builds with, however deep, and the entries themselves.
pub(crate) fn crates(root: &Path) -> Result<Vec<Crate>, String> {
    let mut packages = BTreeMap::new();
    let mut open = Vec::new();
    for part in [""].into_iter().chain(ALONE).filter(|part| root.join(part).join("Cargo.toml").is_file()) {
        let mut cargo = run::cargo(&root.join(part));
        let text = run::output(cargo.args(["metadata", "--no-deps", "--offline", "--format-version", "1"]))?;
        let all: Value = serde_json::from_str(&text).map_err(|e| format!("cargo metadata: {e}"))?;
        for package in all["packages"].as_array().map_or(&[][..], Vec::as_slice) {
            let package = Package::read(root, package)?;
            if ENTRY.contains(&package.own.folder.as_str()) || ALONE.contains(&package.own.folder.as_str()) {
                open.push(package.own.folder.clone());
            }
            packages.insert(package.own.folder.clone(), package);
        }
    }
    Ok(reached(&packages, open))
}

#[derive(Debug)]
struct Package {
    own: Crate,
    /// Folders of the crates by path that it needs to be built or run.
    needs: Vec<String>,
}

impl Package {
    fn read(root: &Path, package: &Value) -> Result<Package, String> {
        let folder = |path: &str| {
            let inside = Path::new(path).strip_prefix(root).map_err(|_| format!("{path} is outside the tree"))?;
            Ok::<String, String>(inside.to_string_lossy().into_owned())
        };
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let manifest = text(&package["manifest_path"]);
        let own = Crate { folder: folder(manifest.trim_end_matches("/Cargo.toml"))?, name: text(&package["name"]) };
        let dependencies = package["dependencies"].as_array().map_or(&[][..], Vec::as_slice).iter();
        let ours = dependencies.filter(|d| d["kind"] != "dev").filter_map(|d| d["path"].as_str());
        Ok(Package { own, needs: ours.map(folder).collect::<Result<_, _>>()? })
    }
}

fn reached(packages: &BTreeMap<String, Package>, mut open: Vec<String>) -> Vec<Crate> {
    let mut seen = BTreeSet::new();
    while let Some(folder) = open.pop() {
        if seen.insert(folder.clone()) {
            open.extend(packages.get(&folder).into_iter().flat_map(|p| p.needs.iter().cloned()));
        }
    }
    packages.values().map(|p| &p.own).filter(|own| seen.contains(&own.folder)).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_do_not_load_what_only_they_need() {
        let package = |text: &str| {
            let value = serde_json::from_str(text).expect("JSON");
            let package = Package::read(Path::new("/t"), &value).expect("inside");
            (package.own.folder.clone(), package)
        };
        let packages = BTreeMap::from([
            package(
                r#"{"name": "entry", "manifest_path": "/t/bin/lspan/Cargo.toml", "dependencies": [
                    {"name": "mid", "kind": null, "path": "/t/crates/mid"}, {"name": "suite", "kind": "dev", "path": "/t/suite"},
                    {"name": "serde", "kind": null}]}"#,
            ),
            package(
                r#"{"name": "mid", "manifest_path": "/t/crates/mid/Cargo.toml", "dependencies": [
                    {"name": "gen", "kind": "build", "path": "/t/gen"}]}"#,
            ),
            package(r#"{"name": "gen", "manifest_path": "/t/gen/Cargo.toml", "dependencies": []}"#),
            package(r#"{"name": "suite", "manifest_path": "/t/suite/Cargo.toml", "dependencies": []}"#),
        ]);
        let found = reached(&packages, vec!["bin/lspan".to_owned()]);
        let names: Vec<&str> = found.iter().map(|c| c.name.as_str()).collect();
        assert_eq!(names, ["entry", "mid", "gen"]);
    }
}
