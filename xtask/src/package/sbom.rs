//! What a release is made of, for machines: CycloneDX 1.6, of which it is the subset that says names, versions, licences, sums and origins.
//! The format is that of <https://cyclonedx.org/docs/1.6/json/>.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use serde_json::{Value, json};
use toml::Table;

use super::licences::{self, Crate, Part, chosen};

/// What is shipped and no crate of a registry: name, kind in the words of CycloneDX, licence.
const OURS: [(&str, &str, &str); 8] = [
    ("lspan", "application", "MIT OR Apache-2.0"),
    ("linkspand", "application", "MIT OR Apache-2.0"),
    ("linkspan-tray", "application", "MIT OR Apache-2.0"),
    ("linkspan-desktop", "application", "MIT OR Apache-2.0"),
    ("libnccl-net-linkspan.so", "library", "MIT OR Apache-2.0"),
    ("liblinkspan", "library", "MIT OR Apache-2.0"),
    ("linkspan (Python)", "library", "MIT OR Apache-2.0"),
    ("linkspan.ko", "device-driver", "GPL-2.0-only"),
];

/// The text of the bill for a release of this version, made at this time (seconds since 1970).
pub(super) fn text(version: &str, epoch: &str, parts: &[Part<'_>]) -> Result<String, String> {
    let crates = licences::crates(parts)?;
    let mut sums = BTreeMap::new();
    for part in parts {
        sums.extend(checksums(part.workspace)?);
    }
    let bill = bill(version, &stamp(epoch)?, &crates, &sums)?;
    serde_json::to_string_pretty(&bill).map(|text| text + "\n").map_err(|e| format!("the bill of materials: {e}"))
}

/// The sums of `Cargo.lock`, by name and version.
fn checksums(workspace: &Path) -> Result<BTreeMap<(String, String), String>, String> {
    let file = workspace.join("Cargo.lock");
    let failed = |e: String| format!("{}: {e}", file.display());
    let text = fs::read_to_string(&file).map_err(|e| failed(e.to_string()))?;
    let table: Table = text.parse().map_err(|e: toml::de::Error| failed(e.to_string()))?;
    let packages = table.get("package").and_then(|list| list.as_array()).ok_or_else(|| failed("no packages".into()))?;
    let word = |one: &toml::Value, key: &str| one.get(key).and_then(|v| v.as_str()).map(str::to_owned);
    Ok(packages
        .iter()
        .filter_map(|one| Some(((word(one, "name")?, word(one, "version")?), word(one, "checksum")?)))
        .collect())
}

/// The time as CycloneDX has it, by date(1).
pub(super) fn stamp(epoch: &str) -> Result<String, String> {
    let mut date = std::process::Command::new("date");
    Ok(crate::run::output(date.args(["-u", "+%Y-%m-%dT%H:%M:%SZ", "-d"]).arg(format!("@{epoch}")))?.trim().to_owned())
}

fn bill(
    version: &str,
    stamp: &str,
    crates: &BTreeSet<Crate>,
    sums: &BTreeMap<(String, String), String>,
) -> Result<Value, String> {
    let whole = format!("linkspan@{version}");
    let mut components: Vec<Value> = OURS
        .iter()
        .map(|(name, kind, licence)| {
            json!({ "type": kind, "bom-ref": format!("{name}@{version}"), "name": name, "version": version,
                "licenses": [{ "expression": licence }] })
        })
        .collect();
    let mut linked = Vec::new();
    for one in crates {
        let Crate { name, version, expression, .. } = one;
        let reference = format!("pkg:cargo/{name}@{version}");
        let sum = sums.get(&(name.clone(), version.clone()));
        let sum = sum.ok_or_else(|| format!("Cargo.lock has no sum of {name} {version}"))?;
        // What is taken of several, and so one that a tool can judge.
        let licence = chosen(expression).map_err(|why| format!("{name} {version}: {why}"))?.join(" AND ");
        components.push(
            json!({ "type": "library", "bom-ref": reference, "name": name, "version": version, "purl": reference,
            "hashes": [{ "alg": "SHA-256", "content": sum }], "licenses": [{ "expression": licence }],
            "properties": [{ "name": "linkspan:licence-offered", "value": expression }] }),
        );
        linked.push(reference);
    }
    let mut dependencies = vec![json!({ "ref": whole, "dependsOn":
        OURS.iter().map(|(name, ..)| format!("{name}@{version}")).collect::<Vec<_>>() })];
    // The module is C of its own and the kernel's.
    let rust = OURS.iter().filter(|(name, ..)| *name != "linkspan.ko");
    dependencies.extend(rust.map(|(name, ..)| json!({ "ref": format!("{name}@{version}"), "dependsOn": linked })));
    Ok(json!({
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "timestamp": stamp,
            "component": { "type": "application", "bom-ref": whole, "name": "linkspan", "version": version,
                "licenses": [{ "expression": "MIT OR Apache-2.0" }] },
        },
        "components": components,
        "dependencies": dependencies,
    }))
}

#[cfg(test)]
mod tests {
    use super::{BTreeMap, BTreeSet, Crate, bill, checksums, stamp};

    fn one(name: &str, expression: &str) -> Crate {
        Crate { name: name.into(), version: "1.2.3".into(), expression: expression.into(), folder: "/".into() }
    }

    #[test]
    fn each_crate_has_a_sum_an_origin_and_a_licence_and_every_reference_is_there() {
        let crates = BTreeSet::from([one("a", "Apache-2.0 OR MIT"), one("b", "Zlib")]);
        let sums = crates.iter().map(|one| ((one.name.clone(), one.version.clone()), "ab".repeat(32))).collect();
        let bill = bill("0.1.0", "2026-01-02T03:04:05Z", &crates, &sums).unwrap();
        let components = bill["components"].as_array().unwrap();
        let a = components.iter().find(|one| one["name"] == "a").unwrap();
        assert_eq!(a["purl"], "pkg:cargo/a@1.2.3");
        assert_eq!(a["licenses"][0]["expression"], "MIT");
        assert_eq!(a["hashes"][0]["content"], "ab".repeat(32));
        let known: BTreeSet<&str> = components.iter().map(|one| one["bom-ref"].as_str().unwrap()).collect();
        assert_eq!(known.len(), components.len(), "references are unique");
        for one in bill["dependencies"].as_array().unwrap() {
            for on in one["dependsOn"].as_array().unwrap() {
                assert!(known.contains(on.as_str().unwrap()), "{on}");
            }
        }
    }

    #[test]
    fn a_crate_without_sum_or_with_a_licence_that_is_not_ours_to_take_ends_it() {
        let crates = BTreeSet::from([one("a", "MIT")]);
        assert!(bill("0.1.0", "", &crates, &BTreeMap::new()).unwrap_err().contains("no sum of a 1.2.3"));
        let crates = BTreeSet::from([one("a", "AGPL-3.0-only")]);
        let sums = BTreeMap::from([(("a".to_owned(), "1.2.3".to_owned()), "00".to_owned())]);
        assert!(bill("0.1.0", "", &crates, &sums).unwrap_err().contains("AGPL"));
    }

    #[test]
    fn the_lock_file_of_this_tree_has_sums() {
        let sums = checksums(&crate::tree::root()).unwrap();
        assert!(sums.keys().any(|(name, _)| name == "serde_json") && sums.values().all(|sum| sum.len() == 64));
        assert_eq!(stamp("0").unwrap(), "1970-01-01T00:00:00Z");
    }
}
