//! `lspan env --nccl`: what a job on this machine needs, for a shell, a container, a pod or a batch script.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use linkspan_doctor::{Setting, Snapshot, plugin_below};
use linkspan_topology::Roots;
use serde_json::json;

use super::Job;
use crate::cli::{EnvArgs, Target};
use crate::exit::{Exit, Failure};
use crate::out::Out;

/// Schema of `--json`: `docs/schema/nccl-1.json`.
const SCHEMA: &str = "linkspan.nccl/1";

/// Where the plugin is put inside a container that does not have it.
const INSIDE: &str = "/opt/linkspan";

/// Engines replace what an image sets; images with GPUs' libraries often need theirs.
const REPLACES: &str = "replaces the image's own: where that sets one, put it behind, as /opt/linkspan:THAT";

/// Settings that name a file.
const FILES: [&str; 2] = ["LINKSPAN_PSK_FILE", "LINKSPAN_MESH_FILE"];

/// Prints it. Ends with 1 where a job would not start.
pub(crate) fn run(args: &EnvArgs) -> Result<Exit, Failure> {
    let job = Job::here();
    let refusals = job.refusals();
    let exit = if refusals.is_empty() { Exit::Ok } else { Exit::Failed };
    let mut out = Out::default();
    if args.json {
        let settings: Vec<_> =
            job.settings.iter().map(|one| json!({ "name": one.name, "value": one.value, "why": one.why })).collect();
        out.json(
            &json!({ "schema": SCHEMA, "settings": settings, "plugin": job.snapshot.plugin(), "refusals": refusals }),
            true,
        )?;
        return Ok(exit);
    }
    let text = match args.target {
        None => shell(&job.settings),
        Some(target) => {
            let here = Here::look(&job.snapshot, &job.settings, &Roots::default());
            match target {
                Target::Toolbox => toolbox(&here),
                Target::Podman => container(&here, true),
                Target::Docker => container(&here, false),
                Target::K8s => k8s(&here),
                Target::Sbatch => sbatch(&here),
            }
        }
    };
    out.text(&text)?;
    for why in refusals {
        eprintln!("lspan: a job cannot work here: {why}");
    }
    Ok(exit)
}

/// What this host has that a job needs, whatever it runs in.
struct Here {
    settings: Vec<Setting>,
    /// What is set with these, since whatever it is started in does not have this shell's environment.
    env: Vec<(String, String)>,
    /// Files that the environment names.
    files: Vec<String>,
    plugin: Option<PathBuf>,
    /// Device files, folders of them too.
    devices: Vec<String>,
    nvidia: bool,
    amd: bool,
    rdma: bool,
    /// Groups of the devices that not everybody may open.
    groups: Vec<u32>,
    /// The folder with the sockets of `lspan devmem up`.
    broker: bool,
    root: bool,
}

impl Here {
    fn look(snapshot: &Snapshot, settings: &[Setting], roots: &Roots) -> Here {
        let has = |path: &str| roots.at(path).exists();
        let mut devices: Vec<String> = ["/dev/infiniband", "/dev/kfd", "/dev/dri", "/dev/linkspan"]
            .iter()
            .filter(|path| has(path))
            .filter(|path| **path != "/dev/dri" || has("/dev/kfd"))
            .map(|path| (*path).to_owned())
            .collect();
        devices.extend(
            names(roots, "/dev").into_iter().filter(|name| name.starts_with("tbstream")).map(|n| format!("/dev/{n}")),
        );
        let mut groups: Vec<u32> = devices.iter().flat_map(|path| groups_of(roots, path)).collect();
        groups.sort_unstable();
        groups.dedup();
        let mut env = snapshot.carried();
        let mut files = Vec::new();
        for (_, value) in env.iter_mut().filter(|(name, value)| FILES.contains(&&**name) && !value.is_empty()) {
            if let Ok(path) = std::path::absolute(&*value) {
                *value = path.display().to_string();
            }
            files.push(value.clone());
        }
        Here {
            env,
            files,
            plugin: snapshot.plugin().map(PathBuf::from),
            settings: settings.to_vec(),
            nvidia: has("/dev/nvidiactl"),
            amd: has("/dev/kfd"),
            rdma: has("/dev/infiniband"),
            broker: sockets(roots, "/run/linkspan"),
            groups,
            devices,
            root: rustix::process::geteuid().is_root(),
        }
    }

    /// The settings for a place where the plugin is in this folder.
    fn with_plugin(&self, folder: Option<&str>) -> Vec<(String, String)> {
        let mut list = self.env.clone();
        if let Some(folder) = folder {
            list.insert(0, ("LD_LIBRARY_PATH".into(), folder.into()));
        }
        list
    }
}

/// Whether somebody waits in this folder; processes of root write their statistics there too.
fn sockets(roots: &Roots, dir: &str) -> bool {
    let socket = |name: &String| {
        let file = std::fs::metadata(roots.at(&format!("{dir}/{name}")));
        file.is_ok_and(|meta| std::os::unix::fs::FileTypeExt::is_socket(&meta.file_type()))
    };
    names(roots, dir).iter().any(socket)
}

fn names(roots: &Roots, dir: &str) -> Vec<String> {
    let entries = std::fs::read_dir(roots.at(dir)).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

/// The groups of a device file, or of those in a folder, where others may not write to it.
fn groups_of(roots: &Roots, path: &str) -> Vec<u32> {
    let at = roots.at(path);
    let one = |file: &Path| {
        let meta = std::fs::metadata(file).ok()?;
        (!meta.is_dir() && meta.mode() & 0o002 == 0 && meta.gid() != 0).then(|| meta.gid())
    };
    match std::fs::read_dir(&at) {
        Ok(entries) => entries.flatten().filter_map(|entry| one(&entry.path())).collect(),
        Err(_) => one(&at).into_iter().collect(),
    }
}

/// A word of a shell's line.
fn quoted(text: &str) -> String {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"_-./:=,@%+^".contains(&b);
    match !text.is_empty() && text.bytes().all(plain) {
        true => text.to_owned(),
        false => format!("'{}'", text.replace('\'', "'\\''")),
    }
}

fn shell(settings: &[Setting]) -> String {
    settings.iter().map(|one| format!("# {}\nexport {}={}\n", one.why, one.name, quoted(&one.value))).collect()
}

/// A toolbox shares home, devices, groups and network with its host. Only the plugin is missing, and the host's folder of libraries is
/// none to put into LD_LIBRARY_PATH: its C library would come with it.
fn toolbox(here: &Here) -> String {
    let inside = Path::new("/run/.toolboxenv").exists();
    let file = match (&here.plugin, inside) {
        (Some(file), true) if !file.starts_with("/run/host") => None,
        (Some(file), false) => Some(Path::new("/run/host").join(file.strip_prefix("/").unwrap_or(file))),
        _ => Some(PathBuf::from("/run/host/usr/lib64/libnccl-net-linkspan.so")),
    };
    let snapshot_file = || plugin_below(&Snapshot::read(linkspan_doctor::Sources::here(None)), "/run/host");
    let file = file.map(|guess| if inside { snapshot_file().unwrap_or(guess) } else { guess });
    let mut text = String::from("# in the toolbox:\n");
    let folder = file.map(|file| {
        text.push_str(&format!(
            "# the host's plugin in a folder of its own: the whole folder of the host's libraries would bring the host's C library too\n\
             mkdir -p ~/.local/lib/linkspan\n\
             ln -sf {0} ~/.local/lib/linkspan/libnccl-net-linkspan.so\n\
             ln -sf {0} ~/.local/lib/linkspan/librccl-net-linkspan.so\n",
            quoted(&file.display().to_string())
        ));
        "$HOME/.local/lib/linkspan${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
    });
    let home = std::env::var("HOME").unwrap_or_else(|_| "/home".into());
    for (name, mut value) in here.with_plugin(folder) {
        if !inside && here.files.contains(&value) && !Path::new(&value).starts_with(&home) {
            value.insert_str(0, "/run/host");
        }
        let value = if name == "LD_LIBRARY_PATH" { format!("\"{value}\"") } else { quoted(&value) };
        text.push_str(&format!("export {name}={value}\n"));
    }
    text.push_str("# devices, groups, network and limits are the host's\n");
    text
}

/// The arguments of `podman run` or `docker run`, and a CDI specification with the same for whoever prefers one.
fn container(here: &Here, podman: bool) -> String {
    let program = if podman { "podman" } else { "docker" };
    let mut args: Vec<(String, &str)> = vec![
        ("--network host".into(), "the host's cables and cards; without it every packet goes through a veth interface"),
        ("--ipc host".into(), "shared memory between containers, and a /dev/shm large enough for NCCL"),
    ];
    if here.nvidia {
        let gpus = if podman { "--device nvidia.com/gpu=all" } else { "--gpus all" };
        args.push((gpus.into(), "NVIDIA's GPUs, by the NVIDIA Container Toolkit"));
    }
    if here.rdma {
        let limit = if podman && !here.root { "--ulimit host" } else { "--ulimit memlock=-1:-1" };
        args.push((limit.into(), "RDMA locks the memory that it registers"));
    }
    if podman && !here.root && !here.groups.is_empty() {
        args.push(("--group-add keep-groups".into(), "your groups, which own the devices"));
    } else {
        args.extend(here.groups.iter().map(|gid| (format!("--group-add {gid}"), "the group of the devices")));
    }
    // What a specification cannot have stands in both lines.
    let own: String = args.iter().map(|(arg, _)| format!(" {arg}")).collect();
    for device in &here.devices {
        let why = match &**device {
            "/dev/infiniband" => "RDMA",
            "/dev/kfd" | "/dev/dri" => "AMD's GPUs",
            _ => "Thunderbolt and USB4 cables",
        };
        args.push((format!("--device {device}"), why));
    }
    if here.broker {
        args.push(("-v /run/linkspan:/run/linkspan".into(), "the socket of `lspan devmem up`"));
    }
    let mounts = mounts(here);
    args.extend(mounts.iter().map(|(from, to)| (format!("-v {}:{to}:ro", quoted(from)), "the plugin")));
    args.extend(here.files.iter().map(|file| (format!("-v {0}:{0}:ro", quoted(file)), "a file that is set here")));
    let env = here.with_plugin((!mounts.is_empty()).then_some(INSIDE));
    let why = |name: &str| if name == "LD_LIBRARY_PATH" { REPLACES } else { "" };
    args.extend(env.iter().map(|(name, value)| (format!("-e {}", quoted(&format!("{name}={value}"))), why(name))));
    let mut text: String =
        args.iter().filter(|(_, why)| !why.is_empty()).map(|(arg, why)| format!("# {arg}   {why}\n")).collect();
    text.push_str(&format!("{program} run --rm -it"));
    args.iter().for_each(|(arg, _)| text.push_str(&format!(" \\\n  {arg}")));
    text.push_str(" \\\n  IMAGE CMD\n");
    text.push_str(&cdi(here, &mounts, &env, &format!("{program} run{own}")));
    text
}

/// The plugin's file by both names, from the host to the container.
fn mounts(here: &Here) -> Vec<(String, String)> {
    let Some(file) = &here.plugin else { return Vec::new() };
    let from = file.canonicalize().unwrap_or_else(|_| file.clone()).display().to_string();
    ["libnccl-net-linkspan.so", "librccl-net-linkspan.so"]
        .map(|name| (from.clone(), format!("{INSIDE}/{name}")))
        .to_vec()
}

/// The same as a specification of the Container Device Interface of the CNCF, for engines that read /etc/cdi. Its version is the oldest that
/// has these fields: podman 4.3 refuses 0.6.0. A device without edits of its own is refused too, so all of them are the device's.
fn cdi(here: &Here, mounts: &[(String, String)], env: &[(String, String)], run: &str) -> String {
    let nodes: Vec<_> = here.devices.iter().flat_map(|path| files(path)).map(|path| json!({ "path": path })).collect();
    let env: Vec<String> = env.iter().map(|(name, value)| format!("{name}={value}")).collect();
    let mut mounts: Vec<_> = mounts
        .iter()
        .map(
            |(from, to)| json!({ "hostPath": from, "containerPath": to, "options": ["ro", "nosuid", "nodev", "bind"] }),
        )
        .collect();
    mounts.extend(
        here.files.iter().map(
            |file| json!({ "hostPath": file, "containerPath": file, "options": ["ro", "nosuid", "nodev", "bind"] }),
        ),
    );
    if here.broker {
        mounts.push(json!({ "hostPath": "/run/linkspan", "containerPath": "/run/linkspan", "options": ["rbind"] }));
    }
    let spec = json!({
        "cdiVersion": "0.3.0",
        "kind": "linkspan/host",
        "devices": [{ "name": "all", "containerEdits": { "env": env, "mounts": mounts, "deviceNodes": nodes } }],
    });
    let Ok(spec) = serde_json::to_string_pretty(&spec) else { return String::new() };
    format!(
        "\n# or once, as a CDI specification, and then: {run} --device linkspan/host=all IMAGE CMD\n\
         sudo mkdir -p /etc/cdi && sudo tee /etc/cdi/linkspan.json >/dev/null <<'EOF'\n{spec}\nEOF\n"
    )
}

/// The device files of a folder; engines take folders, CDI does not.
fn files(path: &str) -> Vec<String> {
    match std::fs::read_dir(path) {
        Ok(entries) => {
            let mut list: Vec<String> =
                entries.flatten().map(|e| e.path()).filter(|p| !p.is_dir()).map(|p| p.display().to_string()).collect();
            list.sort();
            list
        }
        Err(_) => vec![path.to_owned()],
    }
}

fn k8s(here: &Here) -> String {
    let mounts = mounts(here);
    let mut text = String::from(
        "# parts of a pod's spec; NAME and numbers are yours\nspec:\n  hostNetwork: true   # the host's cables and cards\n  dnsPolicy: ClusterFirstWithHostNet\n  \
         containers:\n  - name: NAME\n    image: IMAGE\n    env:\n",
    );
    for (name, value) in here.with_plugin((!mounts.is_empty()).then_some(INSIDE)) {
        let why = if name == "LD_LIBRARY_PATH" { format!("   # {REPLACES}") } else { String::new() };
        text.push_str(&format!("    - {{ name: {name}, value: {} }}{why}\n", json!(value)));
    }
    if here.nvidia || here.amd || here.rdma {
        text.push_str("    resources:\n      limits:\n");
        for (has, line) in [
            (here.nvidia, "nvidia.com/gpu: 1   # of NVIDIA's device plugin"),
            (here.amd, "amd.com/gpu: 1   # of AMD's device plugin"),
            (
                here.rdma,
                "rdma/hca_shared_devices_a: 1   # /dev/infiniband: the name that your RDMA device plugin gives it",
            ),
        ] {
            if has {
                text.push_str(&format!("        {line}\n"));
            }
        }
    }
    if here.rdma {
        text.push_str("    securityContext:\n      capabilities: { add: [IPC_LOCK] }   # RDMA locks the memory that it registers\n");
    }
    text.push_str("    volumeMounts:\n    - { name: shm, mountPath: /dev/shm }\n");
    let own: Vec<&String> =
        here.devices.iter().filter(|path| path.contains("linkspan") || path.contains("tbstream")).collect();
    let files = here.files.iter().map(|file| (file.clone(), file.clone()));
    let volumes: Vec<(String, String)> = mounts.into_iter().chain(files).collect();
    for (at, (_, to)) in volumes.iter().enumerate() {
        text.push_str(&format!("    - {{ name: linkspan-{at}, mountPath: {}, readOnly: true }}\n", json!(to)));
    }
    text.push_str("  volumes:\n  - name: shm\n    emptyDir: { medium: Memory }   # NCCL's own shared memory\n");
    for (at, (from, _)) in volumes.iter().enumerate() {
        let instead = if here.files.contains(from) { "a Secret or ConfigMap" } else { "put it into the image" };
        text.push_str(&format!(
            "  - name: linkspan-{at}\n    hostPath: {{ path: {}, type: File }}   # on every node, or {instead}\n",
            json!(from)
        ));
    }
    if !own.is_empty() {
        let own: Vec<&str> = own.iter().map(|path| path.as_str()).collect();
        text.push_str(&format!(
            "# {}: for cables; a pod gets such files by a device plugin, or privileged with a hostPath of /dev\n",
            own.join(", ")
        ));
    }
    text
}

fn sbatch(here: &Here) -> String {
    let mut text = String::from(
        "#!/bin/bash\n#SBATCH --nodes=2\n#SBATCH --ntasks-per-node=1   # one rank for each GPU\n# the limit of the compute node counts, not that of the login node\n\
         #SBATCH --propagate=NONE\n",
    );
    if here.rdma {
        text.push_str("# RDMA locks the memory that it registers; where this fails slurmd needs LimitMEMLOCK=infinity\nulimit -l unlimited\n");
    }
    let folder = here.settings.iter().find(|one| one.name == "LD_LIBRARY_PATH");
    if let Some(one) = folder {
        text.push_str(&format!("# {}\nexport LD_LIBRARY_PATH={}\n", one.why, quoted(&one.value)));
    }
    text.push_str(
        "# every rank sets what its node needs, and says at its end what it used\nsrun lspan run -- python train.py\n\
         # with --strict a slower path than the node could give ends the job with an error\n",
    );
    text
}

#[cfg(test)]
mod tests;
