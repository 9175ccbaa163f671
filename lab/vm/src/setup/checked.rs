//! `checked-kernel`: a kernel of the newest line with checkers that driver work wants, built in the root.

use std::fs;

use crate::cache::{self, CHECKED, Cache, KERNELS};
use crate::error::{At, Error, Result};
use crate::proc;
use crate::root;
use crate::setup::{self, BUILD, apt};

/// All that is switched on in each of [`CHECKED`]. KASAN and KCSAN exclude each other.
const CONFIGS: [&str; 2] = [
    concat!(include_str!("../../built.config"), include_str!("../../debug.config")),
    concat!(include_str!("../../built.config"), include_str!("../../kcsan.config")),
];

/// What a kernel's build needs beyond a module's.
const PACKAGES: [&str; 7] = ["gcc-14", "flex", "bison", "bc", "libelf-dev", "libssl-dev", "perl"];

/// Builds one of [`CHECKED`] unless it is there; takes about half an hour of two cores.
pub(crate) fn run(cache: &Cache, name: &str) -> Result<()> {
    let Some(config) = CHECKED.iter().zip(CONFIGS).find_map(|(known, config)| (*known == name).then_some(config))
    else {
        return Err(Error::Unknown { kind: "kernel with checkers", name: name.to_owned(), known: CHECKED.join(", ") });
    };
    let newest = KERNELS[0].name;
    let (words, step) = (format!("{newest}\n{config}"), format!("kernel-{name}"));
    if cache.done(&step, &words) {
        eprintln!("kernel {name}: there already");
        return Ok(());
    }
    let _lock = setup::lock(cache)?;
    let (root, title, folder) = (cache.root(), format!("kernel {name}"), format!("build/{name}"));
    let title = title.as_str();
    apt::update(&root, title)?;
    apt::install(&root, title, &[&BUILD[..], &PACKAGES[..]].concat(), "trixie")?;
    let source = format!("linux-source-{newest}");
    if !root.join(format!("{folder}/linux/Makefile")).exists() {
        eprintln!("{title}: sources of {source}");
        apt::download(&root, title, std::slice::from_ref(&source), &folder)?;
        let unpack = format!(
            "cd /{folder}\nrm -rf linux part\nmkdir part\ndpkg-deb --fsys-tarfile {source}_*.deb |\n\
             tar -x -O --wildcards '*/{source}.tar.xz' | xz -dc -T0 | tar -x -C part --strip-components=1\n\
             rm -f *.deb\nmv part linux"
        );
        proc::watched(title, &mut root::script(&root, &unpack))?;
    }
    let fragment = root.join(format!("{folder}/lab.config"));
    fs::write(&fragment, config).at(fragment.display())?;
    eprintln!("{title}: building (make continues where it was interrupted)");
    let build = format!(
        "cd /{folder}/linux\nexport CC=gcc-14 HOSTCC=gcc-14 KCONFIG_CONFIG=.config\n\
                 command -v gcc >/dev/null || ln -s gcc-14 /usr/bin/gcc\n\
                 make -s KCONFIG_ALLCONFIG=../lab.config allnoconfig\n\
                 grep '^CONFIG_' ../lab.config | grep -vxFf .config >../refused || true\n\
                 [ ! -s ../refused ] || {{ echo 'this source does not take:'; cat ../refused; exit 1; }}\n\
                 make -j\"$(nproc)\" LOCALVERSION=-lab bzImage modules\n\
                 rm -rf ../out\nmkdir -p ../out/modules\n\
                 make -s LOCALVERSION=-lab INSTALL_MOD_PATH=../out/modules INSTALL_MOD_STRIP=1 modules_install\n\
                 cp arch/x86/boot/bzImage ../out/vmlinuz\ncp .config ../out/config\n\
                 make -s LOCALVERSION=-lab kernelrelease >../out/release\nmkdir -p ../out/extra"
    );
    proc::watched(title, &mut root::script(&root, &build))?;
    fs::create_dir_all(cache.path("kernels")).at("kernels")?;
    cache::put(&root.join(format!("{folder}/out")), &cache.kernel_dir(name))?;
    cache.note(&step, &words)?;
    eprintln!("{title}: `cargo xtask lab run NAME --kernel {name}`");
    Ok(())
}
