//! GPUs, by their platform.

use super::{Case, by_hand, load, run};
use crate::finding::Step;
use crate::list::*;
use crate::module;
use crate::shell::word;
use crate::snapshot::Closed;

pub(super) fn judge(case: &mut Case<'_>) {
    let snap = case.snap;
    for gpu in snap.gpus().filter(|gpu| gpu.driver.is_none()) {
        let address = gpu.pci.address();
        let vendor = gpu.vendor().unwrap_or("?");
        let what = format!("the {vendor} GPU {address} has no driver");
        // The card of a server that draws its console is no fault.
        if !asked(case, vendor) {
            case.fact(format!("{what}, and nothing here asks for one"));
            continue;
        }
        let steps = match vendor {
            "AMD" => load(snap, "sudo modprobe amdgpu"),
            _ => load(snap, "sudo modprobe nvidia"),
        };
        case.add(&GPU_NO_DRIVER, address, what, steps);
    }
    let has = |driver: &str| snap.gpus().any(|gpu| gpu.driver.as_deref() == Some(driver));
    nodes(case, has("amdgpu"), has("nvidia"));
    direct(case, has("nvidia"));
}

fn nodes(case: &mut Case<'_>, amd: bool, nvidia: bool) {
    let snap = case.snap;
    let roots = &snap.sources.roots;
    let inside = snap.container();
    // kfd is built into kernels that have it (CONFIG_HSA_AMD); a desktop without it draws all the same.
    let kfd = roots.has("/sys/class/kfd");
    let missing = [(amd && kfd, "AMD", "/dev/kfd"), (nvidia, "NVIDIA", "/dev/nvidiactl")];
    if inside.is_some() && !wanted(case) {
        for (_, vendor, file) in missing.iter().filter(|(here, _, file)| *here && !roots.has(file)) {
            case.fact(format!(
                "this host has an {vendor} GPU, and this container was not given it ({file}); nothing here asks for one"
            ));
        }
    } else {
        missing_nodes(case, amd && kfd, nvidia);
    }
    for Closed { file, group } in &snap.sources.closed {
        let what = match group {
            Some(group) => format!("this user may not open {file}, which the group {group} may"),
            None => format!("this user may not open {file}"),
        };
        let steps = match (inside, group) {
            (Some("kubernetes"), _) => {
                by_hand("give the pod's securityContext the group of the device file (supplementalGroups)")
            }
            (Some(_), _) => by_hand(
                "start the container with --group-add keep-groups (docker: --group-add with the number of the file's group)",
            ),
            (None, Some(group)) => {
                let group = word(group);
                run(format!("sudo usermod -aG {group} $USER && newgrp {group}"))
            }
            (None, None) => by_hand(format!(
                "{file} is root's alone: the driver's package has the udev rule that gives it to a group; install that anew, then `sudo udevadm trigger`"
            )),
        };
        case.add(&GPU_NO_ACCESS, file, what, steps);
    }
}

/// Whether something asks for GPUs of this vendor: its software is installed, or its names are in the environment; or NCCL is to use
/// linkspan, and no GPU has a driver.
fn asked(case: &Case<'_>, vendor: &str) -> bool {
    let snap = case.snap;
    let (files, names) = match vendor {
        "AMD" => (["/opt/rocm", "/usr/bin/rocminfo"], ["HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "ROCM_PATH"]),
        _ => (
            ["/usr/bin/nvidia-smi", "/usr/local/cuda"],
            ["NVIDIA_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES", "CUDA_HOME"],
        ),
    };
    let none = snap.gpus().all(|gpu| gpu.driver.is_none());
    files.iter().any(|file| snap.sources.roots.has(file))
        || names.iter().any(|name| snap.env(name).is_some_and(some))
        || none && snap.env("NCCL_NET_PLUGIN").is_some()
}

/// A list of GPUs that is not empty.
fn some(value: &str) -> bool {
    !matches!(value, "" | "void" | "none" | "-1")
}

/// Whether something in the environment says that a container is meant to have GPUs: images for them and the runtimes of their
/// vendors set these.
fn wanted(case: &Case<'_>) -> bool {
    let names = ["NVIDIA_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"];
    names.iter().any(|name| case.snap.env(name).is_some_and(some))
        || ["NCCL_NET_PLUGIN", "ROCM_PATH", "CUDA_HOME"].iter().any(|name| case.snap.env(name).is_some())
}

fn missing_nodes(case: &mut Case<'_>, amd: bool, nvidia: bool) {
    let snap = case.snap;
    let roots = &snap.sources.roots;
    let inside = snap.container();
    if amd && !roots.has("/dev/kfd") {
        let steps = match inside {
            Some("kubernetes") => by_hand("give the pod the resource amd.com/gpu of AMD's device plugin"),
            Some(_) => by_hand(
                "start the container with --device /dev/kfd --device /dev/dri --group-add keep-groups (docker: --group-add video --group-add render)",
            ),
            None => run("sudo modprobe -r amdgpu && sudo modprobe amdgpu"),
        };
        case.add(&GPU_NO_NODE, "/dev/kfd", "an AMD GPU is here, and /dev/kfd is missing", steps);
    }
    if nvidia && !roots.has("/dev/nvidiactl") {
        let steps = match inside {
            Some("kubernetes") => by_hand("give the pod the resource nvidia.com/gpu of NVIDIA's device plugin"),
            Some(_) => by_hand("start the container with --gpus all (podman: --device nvidia.com/gpu=all)"),
            None => run("sudo nvidia-modprobe -u -c=0"),
        };
        case.add(&GPU_NO_NODE, "/dev/nvidiactl", "an NVIDIA GPU is here, and /dev/nvidiactl is missing", steps);
    }
}

/// Whether RDMA reaches their memory. On DGX Spark it does not by design: NVIDIA offers neither peer memory nor dma-bufs there.
fn direct(case: &mut Case<'_>, nvidia: bool) {
    let snap = case.snap;
    if snap.gb10() {
        case.fact(
            "NVIDIA GB10 (DGX Spark): GPUDirect RDMA, nvidia_peermem and dma-bufs are not offered by design; payload goes through pinned host memory",
        );
        return;
    }
    let mellanox = snap.machine.rdma.iter().any(|device| device.driver.as_deref() == Some("mlx5_core"));
    if !nvidia || !mellanox || snap.container().is_some() {
        return;
    }
    let open = snap.text("/proc/driver/nvidia/version").is_some_and(|text| text.contains("Open Kernel Module"));
    let peer = ["nvidia_peermem", "nv_peer_mem"].iter().any(|name| module::loaded(&snap.sources.roots, name));
    if !open && !peer && snap.text("/proc/driver/nvidia/version").is_some() {
        let what =
            "NVIDIA's closed kernel modules are loaded without nvidia_peermem: RDMA cannot reach the GPUs' memory";
        let keep = "echo nvidia_peermem | sudo tee /etc/modules-load.d/nvidia_peermem.conf";
        let mut steps = run(format!("sudo modprobe nvidia_peermem && {keep}"));
        // It needs ib_register_peer_memory_client, which the kernel's own ib_core does not have.
        steps.push(Step::Do(
            "where that says `Invalid argument` or `Unknown symbol`, the RDMA drivers are the kernel's own: install NVIDIA's open kernel modules (dma-buf), which \
             need no nvidia_peermem, or the drivers of DOCA-OFED"
                .into(),
        ));
        case.add(&GPU_NO_DIRECT, "", what, steps);
    }
}
