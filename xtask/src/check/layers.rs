//! A crate depends only on lower layers, and transports do not know each other.

use std::path::Path;

use crate::tree::Source;

/// Layer of each crate by its folder, times ten; layer 4 has an order of its own inside. A crate may depend on those
/// with a smaller number only. Tests (`[dev-dependencies]`) may look anywhere.
const LAYERS: [(&str, u32); 30] = [
    ("crates/proto", 0),
    ("crates/transport", 10),
    ("crates/gpu", 15),
    ("sys/dl", 15),
    ("sys/thread", 15),
    ("sys/mem", 5),
    ("sys/", 20),
    ("crates/stream", 25),
    ("transports/all", 32),
    ("transports/", 30),
    ("crates/topology", 27),
    ("crates/setup", 33),
    ("crates/mesh", 35),
    ("crates/fabric", 42),
    ("crates/service", 43),
    ("crates/linkspan", 44),
    ("crates/doctor", 45),
    ("crates/perf", 45),
    ("crates/files", 45),
    ("crates/mount", 46),
    ("crates/user", 47),
    ("crates/bus", 48),
    ("crates/view", 49),
    ("bindings/nccl", 48),
    ("bindings/", 50),
    ("bin/", 50),
    ("lab/", 60),
    ("tests/hostile", 55),
    ("tests/", 60),
    ("xtask", 60),
];

/// Crates that are a workspace of their own, because they need more than Rust and a linker to build, or stand for somebody else's.
const ALONE: [&str; 3] = ["bin/linkspan-desktop", "bindings/python", "tests/foreign"];

/// Features for tests alone (doubles, planted bugs, the suite of all transports), and where a dependency may ask for them.
const FOR_TESTS: [&str; 4] = ["conformance", "fixture", "planted", "sim"];
const TEST_CRATES: [&str; 3] = ["tests/", "lab/", "xtask"];

/// One crate of the workspace.
struct Crate<'a> {
    folder: &'a str,
    name: String,
    needs: Vec<String>,
    /// Dependencies, tests' aside, that ask for one of [`FOR_TESTS`]; and those that are on by default.
    doubles: Vec<&'a str>,
}

/// Dependencies that go up or sideways, members without a layer, manifests that no workspace lists.
pub(crate) fn problems(root: &Path, sources: &[Source]) -> Vec<String> {
    let mut problems = Vec::new();
    let manifests = sources.iter().filter(|s| s.path.ends_with("/Cargo.toml") && !s.path.starts_with("fuzz/"));
    let crates: Vec<Crate<'_>> = manifests.filter_map(read).collect();
    let members = std::fs::read_to_string(root.join("Cargo.toml")).unwrap_or_default();
    for krate in &crates {
        if !members.contains(&format!("\"{}\"", krate.folder)) && !ALONE.contains(&krate.folder) {
            problems.push(format!("{}/Cargo.toml: not a member of the workspace", krate.folder));
        }
        let Some(own) = layer(krate.folder) else {
            problems.push(format!("{}: has no layer in xtask/src/check/layers.rs", krate.folder));
            continue;
        };
        if !TEST_CRATES.iter().any(|tests| krate.folder.starts_with(tests)) {
            let lines = krate.doubles.iter();
            problems.extend(
                lines.map(|line| {
                    format!("{}/Cargo.toml: what users load has a feature for tests: {line}", krate.folder)
                }),
            );
        }
        for need in &krate.needs {
            let Some(other) = crates.iter().find(|c| c.name == *need) else {
                continue;
            };
            if layer(other.folder).is_some_and(|theirs| theirs >= own) {
                problems.push(format!(
                    "{}/Cargo.toml: depends on {}, which is not on a lower layer",
                    krate.folder, other.folder
                ));
            }
        }
    }
    problems
}

fn layer(folder: &str) -> Option<u32> {
    let found =
        LAYERS.iter().find(|(path, _)| if path.ends_with('/') { folder.starts_with(path) } else { folder == *path });
    found.map(|(_, layer)| *layer)
}

/// Name and needs from a manifest: section headers and keys are all that is looked at.
fn read(source: &Source) -> Option<Crate<'_>> {
    let folder = source.path.strip_suffix("/Cargo.toml")?;
    let (mut section, mut name, mut needs, mut doubles) = (String::new(), None, Vec::new(), Vec::new());
    for line in source.text.lines().map(str::trim) {
        if let Some(header) = line.strip_prefix('[') {
            section = header.trim_end_matches(']').to_owned();
            let table = ["dependencies.", "build-dependencies."].into_iter().find_map(|p| section.strip_prefix(p));
            needs.extend(table.map(str::to_owned));
            continue;
        }
        let Some((key, value)) = line.split_once('=') else {
            continue;
        };
        let key = key.trim();
        if section == "package" && key == "name" {
            name = Some(value.trim().trim_matches('"').to_owned());
        }
        let last = section.rsplit('.').next().unwrap_or_default();
        if matches!(last, "dependencies" | "build-dependencies") {
            needs.push(key.split('.').next().unwrap_or(key).to_owned());
        }
        let shipped =
            matches!(last, "dependencies" | "build-dependencies") || section == "features" && key == "default";
        if shipped && FOR_TESTS.iter().any(|name| value.contains(&format!("\"{name}\""))) {
            doubles.push(line);
        }
    }
    Some(Crate { folder, name: name?, needs, doubles })
}
