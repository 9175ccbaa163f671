//! What processes of one host need of each other. It matters where several ranks run on one host: with several GPUs.

use super::{Case, by_hand, run};
use crate::list::*;

/// Container engines give 64 MiB where nobody asks for more.
const SMALL_SHM: u64 = 64 << 20;

pub(super) fn judge(case: &mut Case<'_>) {
    let snap = case.snap;
    let several = snap.gpus().count() >= 2;
    let scope = snap.text("/proc/sys/kernel/yama/ptrace_scope").and_then(|text| text.parse::<u32>().ok()).unwrap_or(0);
    // CAP_SYS_PTRACE, bit 19 of linux/capability.h, overrules it up to 2.
    let caps =
        snap.field("/proc/self/status", "CapEff").and_then(|hex| u64::from_str_radix(&hex, 16).ok()).unwrap_or(0);
    let allowed = scope == 0 || scope < 3 && caps & 1 << 19 != 0;
    if !allowed && several {
        let what =
            format!("kernel.yama.ptrace_scope is {scope}: processes of this host cannot copy from each other's memory");
        let steps = match scope {
            3 => by_hand(
                "3 cannot be changed before the next boot: set kernel.yama.ptrace_scope = 0 in /etc/sysctl.d and reboot",
            ),
            _ => run(
                "sudo sysctl -w kernel.yama.ptrace_scope=0 && echo 'kernel.yama.ptrace_scope = 0' | sudo tee /etc/sysctl.d/90-ptrace.conf",
            ),
        };
        case.add(&HOST_PTRACE, "", what, steps);
    } else if !allowed {
        case.fact(format!(
            "kernel.yama.ptrace_scope is {scope}: large messages between two processes of this host are copied twice"
        ));
    }
    // "1 1": the value and the one that is pending.
    let denied = snap.text("/sys/fs/selinux/booleans/deny_ptrace").is_some_and(|text| text.starts_with('1'));
    let enforcing = snap.text("/sys/fs/selinux/enforce").as_deref() == Some("1");
    if denied && enforcing && several {
        case.add(&HOST_SELINUX, "", "SELinux's boolean deny_ptrace is on", run("sudo setsebool -P deny_ptrace off"));
    }
    if let Some(bytes) = shm(case).filter(|&bytes| bytes <= SMALL_SHM && several) {
        let what = format!("/dev/shm holds {} MiB, and {} GPUs are here", bytes >> 20, snap.gpus().count());
        let steps = match snap.container() {
            Some("kubernetes") => by_hand("mount an emptyDir with medium: Memory at /dev/shm"),
            Some(_) => by_hand("start the container with --ipc=host, or with --shm-size=16g"),
            None => run("sudo mount -o remount,size=50% /dev/shm"),
        };
        case.add(&HOST_SHM, "/dev/shm", what, steps);
    }
}

/// Size of /dev/shm where it was mounted with one; without it is half of the memory (tmpfs(5)).
fn shm(case: &Case<'_>) -> Option<u64> {
    let mounts = case.snap.text("/proc/self/mounts")?;
    let line = mounts.lines().rfind(|line| line.split(' ').nth(1) == Some("/dev/shm"))?;
    let size = line.split(' ').nth(3)?.split(',').find_map(|option| option.strip_prefix("size="))?;
    size.strip_suffix('k').map_or_else(|| size.parse().ok(), |kib| kib.parse::<u64>().ok()?.checked_mul(1024))
}
