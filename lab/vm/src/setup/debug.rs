//! `debug-kernel`: a kernel of the newest line with the checkers that driver work wants, built in the root.

use std::fs;

use crate::cache::{self, Cache, DEBUG, KERNELS};
use crate::error::{At, Result};
use crate::proc;
use crate::root;
use crate::setup::{self, BUILD, apt};

/// All that is switched on.
const CONFIG: &str = include_str!("../../debug.config");

/// What a kernel's build needs beyond a module's.
const PACKAGES: [&str; 7] = ["gcc-14", "flex", "bison", "bc", "libelf-dev", "libssl-dev", "perl"];

/// Builds it unless it is there; takes about half an hour of two cores.
pub(crate) fn run(cache: &Cache) -> Result<()> {
    let newest = KERNELS[0].name;
    let words = format!("{newest}\n{CONFIG}");
    if cache.done("kernel-debug", &words) {
        eprintln!("debug kernel: there already");
        return Ok(());
    }
    let _lock = setup::lock(cache)?;
    let (root, title) = (cache.root(), "debug kernel");
    apt::update(&root, title)?;
    apt::install(&root, title, &[&BUILD[..], &PACKAGES[..]].concat(), "trixie")?;
    let source = format!("linux-source-{newest}");
    if !root.join("build/debug/linux/Makefile").exists() {
        eprintln!("{title}: sources of {source}");
        apt::download(&root, title, std::slice::from_ref(&source), "build/debug")?;
        let unpack = format!(
            "cd /build/debug\nrm -rf linux part\nmkdir part\ndpkg-deb --fsys-tarfile {source}_*.deb |\n\
             tar -x -O --wildcards '*/{source}.tar.xz' | xz -dc -T0 | tar -x -C part --strip-components=1\n\
             rm -f *.deb\nmv part linux"
        );
        proc::watched(title, &mut root::script(&root, &unpack))?;
    }
    let fragment = root.join("build/debug/lab.config");
    fs::write(&fragment, CONFIG).at(fragment.display())?;
    eprintln!("{title}: building (make continues where it was interrupted)");
    let build = "cd /build/debug/linux\nexport CC=gcc-14 HOSTCC=gcc-14 KCONFIG_CONFIG=.config\n\
                 command -v gcc >/dev/null || ln -s gcc-14 /usr/bin/gcc\n\
                 make -s KCONFIG_ALLCONFIG=../lab.config allnoconfig\n\
                 grep '^CONFIG_' ../lab.config | grep -vxFf .config >../refused || true\n\
                 [ ! -s ../refused ] || { echo 'this source does not take:'; cat ../refused; exit 1; }\n\
                 make -j\"$(nproc)\" LOCALVERSION=-lab bzImage modules\n\
                 rm -rf ../out\nmkdir -p ../out/modules\n\
                 make -s LOCALVERSION=-lab INSTALL_MOD_PATH=../out/modules INSTALL_MOD_STRIP=1 modules_install\n\
                 cp arch/x86/boot/bzImage ../out/vmlinuz\ncp .config ../out/config\n\
                 make -s LOCALVERSION=-lab kernelrelease >../out/release\nmkdir -p ../out/extra";
    proc::watched(title, &mut root::script(&root, build))?;
    fs::create_dir_all(cache.path("kernels")).at("kernels")?;
    cache::put(&root.join("build/debug/out"), &cache.kernel_dir(DEBUG))?;
    cache.note("kernel-debug", &words)?;
    eprintln!("debug kernel: `cargo xtask lab run NAME --kernel debug`");
    Ok(())
}
