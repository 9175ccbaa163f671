//! The exported names of the C library: sources, version script and file must agree.

use std::collections::BTreeSet;

use super::install::MAP;
use crate::dist::elf::Elf;
use crate::tree::Source;

/// Version and name of every line of a version script.
pub(crate) fn promised(map: &str) -> Vec<(String, String)> {
    let (mut found, mut version) = (Vec::new(), String::new());
    for line in map.lines().map(str::trim).filter(|l| !l.starts_with('#')) {
        if let Some(name) = line.strip_suffix(" {") {
            version = name.to_owned();
        } else if let Some(name) = line.strip_suffix(';')
            && !name.contains(['*', '}'])
        {
            found.push((name.to_owned(), version.clone()));
        }
    }
    found
}

/// Functions of the sources that the version script lacks, and the reverse.
pub(crate) fn problems(sources: &[Source]) -> Vec<String> {
    let Some(map) = sources.iter().find(|s| s.path == MAP) else { return vec![format!("{MAP} is not in the tree")] };
    let lines = sources.iter().filter(|s| s.path.starts_with("bindings/c/src/calls/")).flat_map(|s| s.text.lines());
    let defined: BTreeSet<String> = lines
        .filter_map(|l| l.split_once("extern \"C\" fn ")?.1.split_once('('))
        .map(|(name, _)| name.to_owned())
        .collect();
    let listed: BTreeSet<String> = promised(&map.text).into_iter().map(|(name, _)| name).collect();
    let mut problems: Vec<String> =
        defined.difference(&listed).map(|n| format!("{MAP}: {n} is missing: the library would hide it")).collect();
    problems.extend(listed.difference(&defined).map(|n| format!("{MAP}: {n} is in no source: exported names stay")));
    problems
}

/// What is wrong with the shared library's names, against the version script.
pub(crate) fn inspect(elf: &Elf, map: &str, soname: &str) -> Vec<String> {
    let (have, want) = (&elf.exports, BTreeSet::from_iter(promised(map)));
    let shown = |(name, version): &(String, String)| format!("{name}@@{version}");
    let mut problems: Vec<String> =
        want.difference(have).map(|one| format!("does not export {}", shown(one))).collect();
    problems.extend(have.difference(&want).map(|one| format!("exports {}, which {MAP} does not have", shown(one))));
    if elf.soname.as_deref() != Some(soname) {
        problems.push(format!("its soname is {:?}, not {soname}", elf.soname));
    }
    for (has, what) in [(elf.now, "-z now"), (elf.nodelete, "-z nodelete"), (elf.relro, "-z relro")] {
        if !has {
            problems.push(format!("was linked without {what}"));
        }
    }
    problems
}

#[cfg(test)]
mod tests;
