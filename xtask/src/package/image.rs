//! `package image`: a base image for containers, in the form that podman, docker and containerd load.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::json;

use super::{deb, epoch, place, sbom, tar};
use crate::capi::install::version;
use crate::machine::Machine;
use crate::run::{self, Outcome};

/// What is in it beside an essential Debian with apt: RDMA's libraries, which `lspan` and the plugin load where they are.
const INCLUDE: &str = "libibverbs1,ibverbs-providers";

/// How it is tried.
const TRY: &str = "xtask/src/package/try-image.sh";

/// Makes the image, and has podman run it as `lspan env --nccl --for podman` says.
pub(super) fn run(root: &Path) -> Outcome {
    if run::which("mmdebstrap").is_none() {
        return Outcome::Skipped("no mmdebstrap (Debian: mmdebstrap)".to_owned());
    }
    if !run::is_root() {
        return Outcome::Skipped("the root of an image is made as root".to_owned());
    }
    if !super::is_made(root, "tar") {
        match super::run(root, &["tar"]) {
            Outcome::Done => {}
            other => return other,
        }
    }
    let made = tar::archives(root, &Machine::Native).and_then(|[archive, _]| image(root, &archive));
    let tried = made.and_then(|(file, name)| {
        println!("{}: {} KiB", file.display(), super::size(&file) >> 10);
        if run::which("podman").is_none() {
            println!("skipped: the image was made and not run: no podman (Debian: podman, netavark)");
            return Ok(());
        }
        let mut script = Command::new("unshare");
        script.args(["--net", "--mount", "--uts", "--cgroup", "bash"]).arg(root.join(TRY)).arg(&file).arg(name);
        script.env("STAGE", place(root).join("stage")).env("KUBERNETES", root.join("packaging/kubernetes"));
        script.env("PLUGIN_HOST", crate::stages::compile_plugin_host(root)?);
        run::must(&mut script)
    });
    tried.map_or_else(Outcome::Failed, |()| Outcome::Done)
}

/// The file, and the name that it has in an engine.
fn image(root: &Path, archive: &Path) -> Result<(std::path::PathBuf, String), String> {
    let version = version(root)?;
    let dir = place(root).join("image");
    let _ = fs::remove_dir_all(&dir);
    fs::create_dir_all(&dir).map_err(|e| format!("{}: {e}", dir.display()))?;
    let layer = dir.join("layer.tar");
    let mut mmdebstrap = Command::new("mmdebstrap");
    mmdebstrap.args(["--quiet", "--variant=apt", "--mode=root"]).arg(format!("--include={INCLUDE}"));
    for what in
        ["path-exclude=/usr/share/doc/*", "path-include=/usr/share/doc/*/copyright", "path-exclude=/usr/share/locale/*"]
    {
        mmdebstrap.arg(format!("--dpkgopt={what}"));
    }
    let install = format!(
        "mkdir \"$1/tmp/linkspan\" && tar -xf '{}' -C \"$1/tmp/linkspan\" --strip-components=1 && \
         chroot \"$1\" sh -c '/tmp/linkspan/install.sh --prefix /usr/local && ldconfig && rm -r /tmp/linkspan'",
        archive.display()
    );
    mmdebstrap.arg(format!("--customize-hook={install}")).arg(deb::RELEASES[0]).arg(&layer);
    let seconds = epoch(root)?;
    run::must(mmdebstrap.env("SOURCE_DATE_EPOCH", &seconds).env("TMPDIR", &dir))?;

    let sum = |name: &str| -> Result<String, String> {
        let line = run::output(Command::new("sha256sum").arg(name).current_dir(&dir))?;
        line.split(' ').next().map(str::to_owned).ok_or_else(|| format!("{name}: no sum"))
    };
    let name = format!("localhost/linkspan:{version}");
    let machine = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    // OCI Image Configuration 1.0, in an archive of `docker save`, which every engine loads.
    let config = json!({
        "created": sbom::stamp(&seconds)?, "architecture": machine, "os": "linux",
        "config": {
            "Cmd": ["lspan"],
            "Env": ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"],
            "Labels": {
                "org.opencontainers.image.title": "linkspan",
                "org.opencontainers.image.version": version,
                "org.opencontainers.image.licenses": "MIT OR Apache-2.0",
            },
        },
        "rootfs": { "type": "layers", "diff_ids": [format!("sha256:{}", sum("layer.tar")?)] },
    });
    // The layer is compressed and not the archive: podman 4.3 takes no archive that is.
    run::must(Command::new("gzip").args(["-n", "layer.tar"]).current_dir(&dir))?;
    let manifest = json!([{ "Config": "config.json", "RepoTags": [name], "Layers": ["layer.tar.gz"] }]);
    for (file, value) in [("config.json", config), ("manifest.json", manifest)] {
        fs::write(dir.join(file), value.to_string()).map_err(|e| format!("{file}: {e}"))?;
    }
    let file = place(root).join(format!("linkspan-{version}-{}.image.tar", std::env::consts::ARCH));
    let mut tar = Command::new("tar");
    tar.args(["--owner=0", "--group=0", "--numeric-owner", "--format=gnu"]);
    tar.arg(format!("--mtime=@{seconds}")).arg("-cf").arg(&file).arg("-C").arg(&dir);
    run::must(tar.args(["manifest.json", "config.json", "layer.tar.gz"]))?;
    fs::remove_dir_all(&dir).map_err(|e| format!("{}: {e}", dir.display()))?;
    Ok((file, name))
}
