//! The kernel's own drivers of the cable with the patches of `lab/upstream`, built against Debian's headers.

use std::fs;
use std::path::{Path, PathBuf};

use crate::cache::Cache;
use crate::error::{At, Error, Result};
use crate::proc;
use crate::root;
use crate::setup::{self, RELEASE, apt, module};

/// The patches, below the repository's root.
const PATCHES: &str = "lab/upstream";

/// Folders of the kernel's sources that they are about, in the order in which one needs the other's symbols, and the module of each.
const DRIVERS: [(&str, &str); 2] =
    [("drivers/thunderbolt", "thunderbolt"), ("drivers/net/thunderbolt", "thunderbolt_net")];

/// The header that both include, which is patched too.
const HEADER: &str = "include/linux/thunderbolt.h";

/// Applies one patch. Its hunks have no lines around them, so each file must be the one that it was made from: a patch names it as git does.
const APPLY: &str = r#"
awk '/^index / { blob = $2; sub(/\.\..*/, "", blob) } /^--- a\// { print blob, substr($2, 3) }' "$1" >bases
while read -r blob file; do
    is=$({ printf 'blob %s\0' "$(stat -c %s "$file")"; cat "$file"; } | sha1sum | cut -c 1-40)
    [ "$is" = "$blob" ] || { echo "$file is not what $1 was made from: make the patch anew"; exit 1; }
done <bases
patch -s -p1 <"$1"
"#;

/// Builds the drivers of a kernel with all patches, unless these are there already; the files.
pub(crate) fn modules(cache: &Cache, kernel: &str) -> Result<Vec<PathBuf>> {
    let kernel = cache.kernel(kernel)?;
    let mut patches: Vec<PathBuf> =
        fs::read_dir(PATCHES).at(PATCHES)?.flatten().map(|entry| entry.path()).filter(|path| is_patch(path)).collect();
    patches.sort();
    let mut words = fs::read_to_string(kernel.dir.join("version")).at("version")?;
    for patch in &patches {
        words.push_str(&fs::read_to_string(patch).at(patch.display())?);
    }
    let (step, folder) = (format!("patched-{}", kernel.name), format!("build/patched-{}", kernel.name));
    let (root, built) = (cache.root(), cache.root().join(&folder));
    let files = DRIVERS.map(|(folder, name)| built.join(folder).join(format!("{name}.ko"))).to_vec();
    let _lock = setup::lock(cache)?;
    if cache.done(&step, &words) && files.iter().all(|file| file.exists()) {
        return Ok(files);
    }
    if built.exists() {
        fs::remove_dir_all(&built).at(built.display())?;
    }
    apt::install(&root, &step, &["patch"], RELEASE)?;
    let wanted = [DRIVERS[0].0, DRIVERS[1].0, HEADER];
    module::source(cache, &step, &kernel, &folder, &wanted)?;
    let mut script = format!("cd /{folder}\napply() {{{APPLY}}}\n");
    for patch in &patches {
        let name = patch.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        fs::copy(patch, built.join(&name)).at(patch.display())?;
        script.push_str(&format!("apply {name}\n"));
    }
    // The patched header comes before that of the kernel's headers.
    let first = format!("NOSTDINC_FLAGS='-nostdinc -I/{folder}/include'");
    let mut symbols = String::new();
    for (driver, name) in DRIVERS {
        let make = format!("make -s -j\"$(nproc)\" -C {} M=/{folder}/{driver}", module::tree(&kernel));
        script.push_str(&format!("{make} {first} KBUILD_EXTRA_SYMBOLS='{symbols}' modules\n"));
        script.push_str(&format!("strip -g {driver}/{name}.ko\n"));
        symbols = format!("/{folder}/{driver}/Module.symvers");
    }
    proc::watched(&step, &mut root::script(&root, &script))?;
    if let Some(file) = files.iter().find(|file| !file.exists()) {
        return Err(Error::Check(format!("{}: not built", file.display())));
    }
    cache.note(&step, &words)?;
    Ok(files)
}

fn is_patch(path: &Path) -> bool {
    path.extension().is_some_and(|end| end == "patch")
}
