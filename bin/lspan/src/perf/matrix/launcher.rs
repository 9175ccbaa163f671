//! Which rank of how many this process is, as the launcher that started it says.

use crate::exit::{Exit, Failure};

/// A rank of a launcher's job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Launched {
    pub(super) by: &'static str,
    pub(super) rank: usize,
    pub(super) size: usize,
    /// Tells this job from others as far as the launcher does: a name of a folder.
    pub(super) job: String,
}

/// A launcher, and the variables with which it tells its ranks what they are.
struct Launcher {
    by: &'static str,
    /// Set by this launcher alone.
    mark: &'static str,
    rank: &'static str,
    size: &'static str,
    /// What is the same in all ranks of a job and, as far as there is such a thing, differs from job to job.
    job: &'static [&'static str],
}

/// The innermost launcher first: ranks of `mpirun` within `sbatch` inherit Slurm's variables, those of torchrun within `srun` too.
const LAUNCHERS: [Launcher; 5] = [
    Launcher {
        by: "torchrun",
        mark: "TORCHELASTIC_RUN_ID",
        rank: "RANK",
        size: "WORLD_SIZE",
        job: &["TORCHELASTIC_RUN_ID", "MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RESTART_COUNT"],
    },
    Launcher {
        by: "mpirun of Open MPI",
        mark: "OMPI_COMM_WORLD_RANK",
        rank: "OMPI_COMM_WORLD_RANK",
        size: "OMPI_COMM_WORLD_SIZE",
        job: &["PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"],
    },
    Launcher {
        by: "srun",
        mark: "SLURM_STEP_ID",
        rank: "SLURM_PROCID",
        size: "SLURM_STEP_NUM_TASKS",
        job: &["SLURM_JOB_ID", "SLURM_STEP_ID"],
    },
    Launcher {
        by: "mpirun of MPICH or Intel MPI",
        mark: "PMI_RANK",
        rank: "PMI_RANK",
        size: "PMI_SIZE",
        job: &["SLURM_JOB_ID"],
    },
    // What PyTorchJob and scripts set for torch's env:// rendezvous.
    Launcher {
        by: "RANK and WORLD_SIZE",
        mark: "RANK",
        rank: "RANK",
        size: "WORLD_SIZE",
        job: &["MASTER_ADDR", "MASTER_PORT"],
    },
];

/// Longest part of a folder's name that a launcher's names make.
const NAME_MAX: usize = 120;

/// The rank that this process is, by the environment; none where no launcher has started it.
pub(super) fn launched(get: &dyn Fn(&str) -> Option<String>) -> Result<Option<Launched>, Failure> {
    let get = |name: &str| get(name).filter(|value| !value.is_empty());
    let Some(launcher) = LAUNCHERS.iter().find(|one| get(one.mark).is_some()) else { return Ok(None) };
    let number = |name: &str| {
        let value = get(name);
        let bad = || {
            let value = value.as_deref().map_or_else(|| "is not set".to_owned(), |value| format!("is {value:?}"));
            let why = format!("LS0745 {name} {value}, although {} is set: it has to be a number", launcher.mark);
            Failure::new(Exit::Usage, why)
        };
        value.as_deref().and_then(|text| text.parse::<usize>().ok()).ok_or_else(bad)
    };
    let (rank, size) = (number(launcher.rank)?, number(launcher.size)?);
    if rank >= size {
        let why = format!("LS0746 {}={rank} and {}={size}: ranks count from 0", launcher.rank, launcher.size);
        return Err(Failure::new(Exit::Usage, why));
    }
    let words: Vec<String> = launcher.job.iter().filter_map(|name| get(name)).collect();
    let plain = |c: char| if c.is_ascii_alphanumeric() || "._-".contains(c) { c } else { '-' };
    let job: String = words.join("-").chars().map(plain).take(NAME_MAX).collect();
    Ok(Some(Launched { by: launcher.by, rank, size, job: if job.is_empty() { "job".into() } else { job } }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(set: &[(&str, &str)]) -> Result<Option<Launched>, String> {
        let get = |name: &str| set.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned());
        launched(&get).map_err(|failure| failure.message)
    }

    fn is(set: &[(&str, &str)]) -> (&'static str, usize, usize, String) {
        let found = of(set).unwrap().unwrap();
        (found.by, found.rank, found.size, found.job)
    }

    #[test]
    fn each_launcher_is_known_by_its_names_and_the_innermost_counts() {
        assert_eq!(of(&[("RANK", "")]), Ok(None));
        let slurm = [
            ("SLURM_JOB_ID", "7"),
            ("SLURM_STEP_ID", "2"),
            ("SLURM_PROCID", "1"),
            ("SLURM_STEP_NUM_TASKS", "4"),
            ("PMI_RANK", "3"),
        ];
        assert_eq!(is(&slurm), ("srun", 1, 4, "7-2".into()));
        let mut both = slurm.to_vec();
        both.extend([
            ("OMPI_COMM_WORLD_RANK", "0"),
            ("OMPI_COMM_WORLD_SIZE", "2"),
            ("PMIX_NAMESPACE", "prterun-a/1@1"),
        ]);
        assert_eq!(is(&both), ("mpirun of Open MPI", 0, 2, "prterun-a-1-1".into()));
        both.extend([("TORCHELASTIC_RUN_ID", "none"), ("RANK", "1"), ("WORLD_SIZE", "2"), ("MASTER_PORT", "29500")]);
        assert_eq!(is(&both), ("torchrun", 1, 2, "none-29500".into()));
        assert_eq!(is(&[("PMI_RANK", "1"), ("PMI_SIZE", "2")]), ("mpirun of MPICH or Intel MPI", 1, 2, "job".into()));
        // The script of a batch job is no step of it.
        assert_eq!(of(&[("SLURM_JOB_ID", "7"), ("SLURM_PROCID", "0"), ("SLURM_NTASKS", "4")]), Ok(None));
    }

    #[test]
    fn names_that_are_half_set_or_no_numbers_are_told() {
        for (set, wanted) in [
            (&[("RANK", "1")][..], "WORLD_SIZE is not set"),
            (&[("RANK", "one"), ("WORLD_SIZE", "2")], "RANK is \"one\""),
            (&[("RANK", "-1"), ("WORLD_SIZE", "2")], "RANK is \"-1\""),
            (&[("RANK", "2"), ("WORLD_SIZE", "2")], "RANK=2 and WORLD_SIZE=2"),
        ] {
            let why = of(set).unwrap_err();
            assert!(why.contains(wanted), "{why}");
        }
    }
}
