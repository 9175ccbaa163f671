//! Modules of a kernel: what depends on what, and their plain (not compressed) contents.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use crate::cache::{Cache, Kernel};
use crate::cpio::Archive;
use crate::error::{At, Error, Result};
use crate::proc;
use crate::root;
use crate::setup::module;

/// What can be in a guest: each with all that it needs.
#[derive(Debug, Default)]
pub(crate) struct Modules {
    all: BTreeMap<String, Module>,
    built_in: BTreeSet<String>,
}

#[derive(Debug)]
struct Module {
    file: PathBuf,
    needs: Vec<String>,
}

impl Modules {
    /// Those of the kernel, those built for it, and these files of the user; a later one of the same name wins.
    pub(crate) fn of(kernel: &Kernel, more: &[PathBuf]) -> Result<Modules> {
        let dir = kernel.modules();
        let read = |name: &str| fs::read_to_string(dir.join(name)).at(dir.join(name).display());
        let mut modules = Modules { all: depends(&dir, &read("modules.dep")?), built_in: BTreeSet::new() };
        modules.built_in = read("modules.builtin")?.lines().map(|line| name_of(Path::new(line))).collect();
        let mut files: Vec<PathBuf> =
            fs::read_dir(module::extra(kernel)).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
        files.extend_from_slice(more);
        for file in files {
            let content = fs::read(&file).at(file.display())?;
            let needs = needs(&content).into_iter().map(|name| name.replace('-', "_")).collect();
            modules.all.insert(name_of(&file), Module { file, needs });
        }
        Ok(modules)
    }

    /// Whether the kernel has it, built in or as a module.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.all.contains_key(name) || self.built_in.contains(name)
    }

    /// Puts these and all they need into an archive, with a `modules.dep` for modprobe. Names the kernel does not have
    /// are left out: tests ask [`Modules::has`].
    pub(crate) fn pack(&self, cache: &Cache, kernel: &Kernel, names: &[&str], into: &mut Archive) -> Result<()> {
        let mut chosen = BTreeSet::new();
        for name in names {
            self.gather(name, &mut chosen);
        }
        let place = |name: &str| format!("extra/{name}.ko");
        let mut dep = String::new();
        for name in &chosen {
            let module = &self.all[name];
            let content = plain(cache, kernel, name, &module.file)?;
            into.file(&format!("/lib/modules/{}/{}", kernel.release, place(name)), 0o644, &content);
            // modprobe wants everything below a module, the nearest first.
            let mut below = BTreeSet::new();
            self.gather(name, &mut below);
            below.remove(name);
            let mut ordered: Vec<&String> = below.iter().collect();
            ordered.sort_by_key(|n| std::cmp::Reverse(self.depth(n)));
            let ordered: String = ordered.iter().map(|n| format!(" {}", place(n))).collect();
            dep.push_str(&format!("{}:{ordered}\n", place(name)));
        }
        into.file(&format!("/lib/modules/{}/modules.dep", kernel.release), 0o644, dep.as_bytes());
        Ok(())
    }

    fn gather(&self, name: &str, into: &mut BTreeSet<String>) {
        if let Some(module) = self.all.get(name)
            && into.insert(name.to_owned())
        {
            for need in &module.needs {
                self.gather(need, into);
            }
        }
    }

    /// Length of the longest chain below a module. Kernels have no circles of modules.
    fn depth(&self, name: &str) -> usize {
        let needs = self.all.get(name).map_or(&[][..], |module| &module.needs);
        needs.iter().map(|need| 1 + self.depth(need)).max().unwrap_or(0)
    }
}

/// `modules.dep`: `path: path path`.
fn depends(dir: &Path, text: &str) -> BTreeMap<String, Module> {
    let line = |line: &str| {
        let (path, needs) = line.split_once(':')?;
        let needs = needs.split_whitespace().map(|need| name_of(Path::new(need))).collect();
        Some((name_of(Path::new(path)), Module { file: dir.join(path), needs }))
    };
    text.lines().filter_map(line).collect()
}

/// A module's name: the file's up to the first dot, with `_` for `-`.
pub(crate) fn name_of(file: &Path) -> String {
    let name = file.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
    name.split('.').next().unwrap_or_default().replace('-', "_")
}

/// What a module says it needs: `depends=a,b` in its section `.modinfo`, strings that end in a zero byte.
fn needs(content: &[u8]) -> Vec<String> {
    const KEY: &[u8] = b"\0depends=";
    let Some(at) = content.windows(KEY.len()).position(|window| window == KEY) else { return Vec::new() };
    let rest = &content[at + KEY.len()..];
    let end = rest.iter().position(|byte| *byte == 0).unwrap_or(0);
    let list = String::from_utf8_lossy(&rest[..end]).into_owned();
    list.split(',').filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

/// A module without its compression; kept in the cache.
fn plain(cache: &Cache, kernel: &Kernel, name: &str, file: &Path) -> Result<Vec<u8>> {
    let program = match file.extension().and_then(|end| end.to_str()) {
        Some("xz") => "usr/bin/xz",
        Some("zst") => "usr/bin/zstd",
        _ => return fs::read(file).at(file.display()),
    };
    let folder = kernel.dir.join("plain");
    let kept = folder.join(format!("{name}.ko"));
    if let Ok(content) = fs::read(&kept) {
        return Ok(content);
    }
    let mut command = root::program(&cache.root(), program);
    let out = command.arg("-dc").arg(file).output().at(program)?;
    if !out.status.success() {
        let said = String::from_utf8_lossy(&out.stderr);
        let (command, status) = (proc::shown(&command), out.status.to_string());
        return Err(Error::Command { command, status, said: proc::tail(&said, 3) });
    }
    // The cache may be read-only for this user: then it is unpacked each time. A rename is whole or not there.
    let _ = fs::create_dir_all(&folder);
    let part = folder.join(format!("{name}.{}", std::process::id()));
    if fs::write(&part, &out.stdout).is_ok() {
        let _ = fs::rename(&part, &kept);
    }
    Ok(out.stdout)
}

#[cfg(test)]
mod tests;
