//! Jobs over NCCL and RCCL: what has to be set for them (`lspan env --nccl`), and running one with it (`lspan run`).

pub(crate) mod env;
mod peers;
pub(crate) mod run;
mod used;

use std::path::PathBuf;

use linkspan_doctor::{Finding, Report, Setting, Snapshot, Sources, Step, fatal, judge, settings, takes_linkspan};
use linkspan_fabric::chain;

/// This machine, what a job on it needs, and how it stands with that set.
pub(crate) struct Job {
    pub(crate) snapshot: Snapshot,
    pub(crate) settings: Vec<Setting>,
    pub(crate) report: Report,
    /// What could not be asked, a sentence each.
    pub(crate) late: Vec<String>,
}

impl Job {
    pub(crate) fn here() -> Job {
        let refused = crate::fabric::settings().err().map(|error| chain(&error));
        let sources = Sources::here(refused);
        let late = sources.notes.clone();
        let list = settings(&Snapshot::read(sources.clone()), &beside());
        let mut env = sources.env.clone();
        env.extend(list.iter().map(|one| (one.name.to_owned(), one.value.clone())));
        let snapshot = Snapshot::read(Sources { env, ..sources });
        let report = judge(&snapshot, None);
        Job { snapshot, settings: list, report, late }
    }

    /// Why a job would not start, each with what mends it.
    pub(crate) fn refusals(&self) -> Vec<String> {
        let mut list: Vec<String> = fatal(&self.report).into_iter().map(line).collect();
        let plugin = self.snapshot.nccl("NCCL_NET_PLUGIN");
        if let Some(other) = foreign(plugin.as_deref()) {
            let steps = steps(&self.snapshot.nccl_unset("NCCL_NET_PLUGIN"));
            list.push(format!("NCCL_NET_PLUGIN={other} asks for another plugin than linkspan; {steps}"));
        }
        list
    }
}

/// A finding in one line.
pub(crate) fn line(finding: &Finding) -> String {
    format!("{} {}: {}; {}", finding.rule.code(), finding.rule.slug(), finding.what, steps(&finding.mend))
}

fn steps(mend: &[Step]) -> String {
    let steps = mend.iter().map(|step| match step {
        Step::Run(command) => format!("type   {command}"),
        Step::Do(what) => what.clone(),
    });
    steps.collect::<Vec<String>>().join("; ")
}

/// A choice of plugins that leaves linkspan out.
fn foreign(value: Option<&str>) -> Option<&str> {
    value.filter(|list| !takes_linkspan(list))
}

/// Folders beside this program that may have the plugin: as the archive and Debian install it, and `dist/`.
fn beside() -> Vec<PathBuf> {
    let Some(own) = std::env::current_exe().ok().and_then(|exe| exe.canonicalize().ok()) else { return Vec::new() };
    let Some(bin) = own.parent() else { return Vec::new() };
    let mut list = vec![bin.to_owned()];
    if let Some(prefix) = bin.parent() {
        let triplet = format!("lib/{}-linux-gnu", std::env::consts::ARCH);
        list.splice(0..0, ["lib", "lib64", &*triplet].map(|dir| prefix.join(dir)));
    }
    list
}

#[cfg(test)]
mod tests;
