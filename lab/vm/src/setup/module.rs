//! Kernel modules that Debian leaves off, and modules of other people: built in the root against Debian's headers.

use std::fs;
use std::path::{Path, PathBuf};

use crate::cache::{Cache, Kernel, Known};
use crate::error::{At, Error, Result};
use crate::proc;
use crate::root;
use crate::setup::{BUILD, apt};

/// Kconfig symbols of drivers/thunderbolt that Debian's kernels may leave off, and their modules.
pub(crate) const LEFT_OFF: [(&str, &str); 2] =
    [("USB4_STREAM", "thunderbolt_stream"), ("USB4_DMA_TEST", "thunderbolt_dma_test")];

/// What is taken out of a kernel's sources beside its modules: checkpatch and its lists.
pub(crate) const SCRIPTS: [&str; 3] = ["checkpatch.pl", "spelling.txt", "const_structs.checkpatch"];

/// Folder of [`SCRIPTS`] in the root.
pub(crate) fn scripts(kernel: &str) -> String {
    format!("build/checkpatch-{kernel}")
}

/// Builds those of [`LEFT_OFF`] that this kernel's sources have and its packages lack, from the very same version, and keeps
/// that version's [`SCRIPTS`].
pub(crate) fn left_off(cache: &Cache, title: &str, known: Known) -> Result<()> {
    let (root, kernel) = (cache.root(), cache.kernel(known.name)?);
    headers(&root, title, &kernel.release)?;
    let folder = format!("build/source-{}", known.name);
    let from = SCRIPTS.map(|name| format!("scripts/{name}"));
    let wanted: Vec<&str> = ["drivers/thunderbolt"].into_iter().chain(from.iter().map(String::as_str)).collect();
    source(cache, title, &kernel, &folder, &wanted)?;
    let keep = scripts(known.name);
    let unpack = format!(
        "cd /{folder}\nmkdir -p /{keep}\nmv {} /{keep}/\nrm -rf thunderbolt\nmv drivers/thunderbolt .",
        from.join(" ")
    );
    proc::watched(title, &mut root::script(&root, &unpack))?;
    let config = fs::read_to_string(kernel.dir.join("config")).at("config")?;
    let makefile = root.join(&folder).join("thunderbolt/Makefile");
    let makefile = fs::read_to_string(&makefile).at(makefile.display())?;
    let mut switches = String::new();
    let mut wanted = Vec::new();
    for (symbol, module) in LEFT_OFF {
        let symbol = format!("CONFIG_{symbol}");
        if makefile.contains(&symbol) && !config.contains(&format!("{symbol}=")) {
            switches.push_str(&format!(" {symbol}=m"));
            wanted.push(module);
        }
    }
    let extra = extra(&kernel);
    fs::create_dir_all(&extra).at(extra.display())?;
    if wanted.is_empty() {
        return Ok(());
    }
    // Symbols that Debian's configuration has are told to the compiler by its own autoconf.h; those left off are not
    // asked about in the sources, only in the Makefile.
    let build = format!(
        "make -s -j\"$(nproc)\" -C /usr/src/linux-headers-{} M=/{folder}/thunderbolt{switches} modules",
        kernel.release
    );
    proc::watched(title, &mut root::script(&root, &build))?;
    for module in wanted {
        let built = root.join(&folder).join("thunderbolt").join(format!("{module}.ko"));
        fs::copy(&built, extra.join(format!("{module}.ko"))).at(built.display())?;
    }
    fs::remove_dir_all(root.join(&folder)).at(folder)
}

/// Unpacks these files and folders of a kernel's sources, of the very same version, into a folder of the root.
pub(crate) fn source(cache: &Cache, title: &str, kernel: &Kernel, folder: &str, wanted: &[&str]) -> Result<()> {
    let root = cache.root();
    let version = fs::read_to_string(kernel.dir.join("version")).at("version")?;
    let source = format!("linux-source-{}", kernel.name);
    apt::download(&root, title, &[format!("{source}={}", version.trim())], folder)?;
    let wanted: String = wanted.iter().map(|path| format!(" '*/{path}'")).collect();
    let unpack = format!(
        "cd /{folder}\ndpkg-deb --fsys-tarfile {source}_*.deb | tar -x -O --wildcards '*/{source}.tar.xz' |\n\
         xz -dc -T0 | tar -x --strip-components=1 --wildcards{wanted}\nrm -f *.deb"
    );
    proc::watched(title, &mut root::script(&root, &unpack))
}

/// Folder of the modules that were built for a kernel.
pub(crate) fn extra(kernel: &Kernel) -> PathBuf {
    kernel.dir.join("extra")
}

fn headers(root: &Path, title: &str, release: &str) -> Result<()> {
    let mut packages = BUILD.to_vec();
    let headers = format!("linux-headers-{release}");
    packages.push(&headers);
    // 6.12's headers ask for its image by name, with all that an installed image wants; it is not installed here, so
    // they are unpacked with what they need to build and without what they need to boot.
    let kbuild = format!("linux-kbuild-{}", release.trim_end_matches("-amd64"));
    let common = format!("{}-common", headers.trim_end_matches("-amd64"));
    apt::install(root, title, &[&BUILD[..], &["gcc-14", &kbuild]].concat(), "trixie")?;
    let mut words = vec![headers.clone(), common];
    // Since 7.0 a package of its own holds the configuration.
    let base = format!("linux-base-{release}");
    if apt::names(root, &base)?.contains(&base) {
        words.push(base);
    }
    let folder = format!("var/tmp/headers-{release}");
    apt::download(root, title, &words, &folder)?;
    let text = format!("cd /{folder}\nfor deb in *.deb; do dpkg-deb -x $deb /; done\nrm -rf /{folder}");
    proc::watched(title, &mut root::script(root, &text))
}

/// A module's sources in the root.
#[derive(Debug)]
pub(crate) struct Copied {
    /// Where they lie for us.
    pub(crate) path: PathBuf,
    /// Where they lie for programs in the root.
    pub(crate) inside: String,
}

/// Copies the module in `folder` anew to where it is built, or looked through, for a kernel.
pub(crate) fn copied(cache: &Cache, kernel: &Kernel, folder: &Path, what_for: &str) -> Result<Copied> {
    let root = cache.root();
    let name = folder.canonicalize().at(folder.display())?;
    let name = name.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_else(|| "module".to_owned());
    let above = format!("{what_for}/{}", kernel.name);
    let place = format!("{above}/{name}");
    let path = root.join(&place);
    if path.exists() {
        fs::remove_dir_all(&path).at(path.display())?;
    }
    let above = root.join(above);
    fs::create_dir_all(&above).at(above.display())?;
    proc::output(proc::guarded("cp").arg("-r").arg(folder).arg(&path))?;
    Ok(Copied { path, inside: format!("/{place}") })
}

/// What modules of a kernel are built against, as programs in the root see it.
pub(crate) fn tree(kernel: &Kernel) -> String {
    if kernel.checked() {
        return format!("/build/{}/linux", kernel.name);
    }
    format!("/usr/src/linux-headers-{}", kernel.release)
}

/// Builds the module in `folder` (a Makefile with `obj-m`) for a kernel; the built files are named.
pub(crate) fn build(cache: &Cache, kernel: &Kernel, folder: &Path) -> Result<Vec<PathBuf>> {
    let copy = copied(cache, kernel, folder, "build")?;
    let text = format!("make -s -j\"$(nproc)\" -C {} M={} modules", tree(kernel), copy.inside);
    proc::watched(&copy.inside, &mut root::script(&cache.root(), &text))?;
    let mut built: Vec<PathBuf> = fs::read_dir(&copy.path)
        .at(copy.path.display())?
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|end| end == "ko"))
        .collect();
    built.sort();
    if built.is_empty() {
        return Err(Error::Check(format!("{}: its Makefile built no .ko file", folder.display())));
    }
    Ok(built)
}
