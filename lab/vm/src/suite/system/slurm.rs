//! Slurm as Debian installs it, one node, and `lspan run` behind its `srun`.

use super::host::{self, LAN};
use crate::error::{Result, check};
use crate::guest::{Guest, Output};
use crate::lab::Lab;
use crate::suite::tb::SOON;

/// The scripts that slurm.conf names, as they are shipped.
const SCRIPTS: [(&str, &str); 3] = [
    ("prolog", include_str!("../../../../../packaging/slurm/prolog")),
    ("epilog", include_str!("../../../../../packaging/slurm/epilog")),
    ("task-prolog", include_str!("../../../../../packaging/slurm/task-prolog")),
];

/// The rest of it is Debian's. The node is asked for two processors, whatever it has.
const CONF: &str = "ClusterName=one
SlurmctldHost=a
SlurmUser=slurm
SlurmctldPidFile=/run/slurmctld/slurmctld.pid
StateSaveLocation=/var/lib/slurm/slurmctld
SlurmdSpoolDir=/var/lib/slurm/slurmd
ReturnToService=2
SlurmdParameters=config_overrides
Prolog=/etc/slurm/linkspan-prolog
PrologFlags=Alloc
TaskProlog=/etc/slurm/linkspan-task-prolog
Epilog=/etc/slurm/linkspan-epilog
NodeName=a CPUs=2 State=UNKNOWN
PartitionName=main Nodes=a Default=YES State=UP
";

const PLUGIN: &str = "/usr/lib/libnccl-net-linkspan.so";

/// What the user `friend` types. Without a session of systemd, whose processes would be the user's too when the epilog looks.
fn types(guest: &Guest, line: &str) -> Result<Output> {
    let user = "setpriv --reuid friend --regid friend --init-groups env HOME=/home/friend timeout 60";
    guest.run(SOON, &format!("cd /tmp && {user} {line}"))
}

fn wrong(guest: &Guest, what: &str, said: &Output) -> String {
    let logs = "journalctl -b -u munge -u slurmctld -u slurmd --no-pager | tail -n 30; tail -n 20 /var/log/slurm/*.log; \
                sinfo --Node --long; cat /run/linkspan/prolog";
    let logs = guest.sh(&format!("{{ {logs}; }} 2>&1; true")).unwrap_or_default();
    format!("{what}: ended with {}: {}{}\n{logs}", said.code, said.out, said.err)
}

pub(super) fn one_node(lab: &mut Lab) -> Result<()> {
    let (mut one, mut two) = (lab.guest("a"), lab.guest("b"));
    one.ethernet(&mut two);
    let [guest] = lab.boot([&one])?;
    host::settled(&guest)?;
    host::lan(&guest, LAN[0])?;
    for (name, text) in SCRIPTS {
        let file = format!("/etc/slurm/linkspan-{name}");
        guest.sh(&format!("mkdir -p /etc/slurm && cat >{file} <<'END'\n{text}\nEND\nchmod 755 {file}"))?;
    }
    let rank = format!(
        "exec plugin-host --plugin {PLUGIN} --version 12 --test allreduce --quick --join {}:7000 --rank $SLURM_PROCID --ranks 2",
        LAN[0]
    );
    guest.sh(&format!(
        "cat >/etc/slurm/slurm.conf <<'END'\n{CONF}END\necho '{} a' >>/etc/hosts; echo '{rank}' >/usr/bin/rank; \
         echo 'exit 9' >/usr/bin/nine",
        LAN[0]
    ))?;
    let begun = guest.run(SOON, "systemctl start munge slurmctld slurmd")?;
    check(begun.code == 0, || wrong(&guest, "the daemons do not start", &begun))?;
    let state = "sinfo --noheader --Node --format=%T";
    let idle = guest.until("the node idle", SOON, &format!("{state} | grep -qx idle"));
    check(idle.is_ok(), || wrong(&guest, "the node does not come up", &begun))?;
    let version = guest.sh("sinfo --version")?;
    lab.say(&format!("{}: munged, slurmctld and slurmd as systemd starts them, one node, idle", version.trim()));

    for line in ["srun -n 2 lspan run -- sh /usr/bin/rank", "lspan run -- srun -n 2 sh /usr/bin/rank"] {
        let said = types(&guest, line)?;
        let text = format!("{}{}", said.out, said.err);
        let path = text.lines().find(|one| one.contains("lspan: shm "));
        check(said.code == 0 && path.is_some(), || wrong(&guest, line, &said))?;
        lab.say(&format!("{line}: {}", path.unwrap_or_default()));
    }
    let said = types(&guest, "srun -n 2 sh -c \"env | grep ^NCCL_NET\"")?;
    let every = |name: &str| said.out.lines().filter(|line| *line == name).count() == 2;
    check(every("NCCL_NET=linkspan") && every("NCCL_NET_PLUGIN=linkspan"), || wrong(&guest, "the task prolog", &said))?;
    let said = types(&guest, "srun lspan run -- sh /usr/bin/nine")?;
    check(said.code == 9, || wrong(&guest, "an exit code of 9", &said))?;
    lab.say("ranks without lspan run have the settings; the exit code of a rank is srun's");
    // Nothing waits for a batch job as the user.
    let said = types(&guest, "sbatch --output /dev/null --wrap \"lspan run -- sleep 1\"")?;
    check(said.code == 0, || wrong(&guest, "sbatch", &said))?;
    let gone = "test -d /run/linkspan/stats && test ! -e /run/linkspan/stats/$(id -u friend)";
    let cleared = guest.until("no statistics of the user", SOON, gone);
    check(cleared.is_ok(), || wrong(&guest, "the epilog clears nothing away", &said))?;

    guest.sh(&format!("rm {PLUGIN} && ldconfig"))?;
    let said = types(&guest, "srun echo ran")?;
    check(!said.out.contains("ran"), || wrong(&guest, "a job on a node without the plugin", &said))?;
    guest.until("the node drained", SOON, &format!("{state} | grep -q drain"))?;
    let why = guest.sh("grep -o -m 1 'LS2802 [a-z-]*' /run/linkspan/prolog")?;
    lab.say(&format!("a node without the plugin is drained, and no job runs: {}", why.trim()));
    guest.sh("systemctl stop slurmd slurmctld munge")?;
    lab.finish([guest])
}
