//! What a finding is.

use serde::Serialize;

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// It works, slower than this machine and its cables could.
    Slower,
    /// A path that should work does not.
    Broken,
    /// This machine can never have the path: no fault, and nothing to mend.
    Never,
}

/// An entry of the list: a kind of finding. Its code is never given to another one.
#[derive(Debug)]
pub struct Rule {
    name: &'static str,
    /// How bad it is.
    pub severity: Severity,
    /// What is wrong, in general.
    pub title: &'static str,
    /// What it costs.
    pub cost: &'static str,
    /// What mends it, in general; a finding has the commands for its machine.
    pub mend: &'static str,
    /// Root causes: where one of them is found of the same thing, this is not told.
    pub after: &'static [&'static Rule],
}

impl Rule {
    pub(crate) const fn new(
        name: &'static str,
        severity: Severity,
        texts: [&'static str; 3],
        after: &'static [&'static Rule],
    ) -> Rule {
        let [title, cost, mend] = texts;
        Rule { name, severity, title, cost, mend, after }
    }

    /// The code: `LS` and four digits.
    pub fn code(&self) -> &'static str {
        &self.name[..6]
    }

    /// The name behind the code, as in `tb-one-lane`.
    pub fn slug(&self) -> &'static str {
        self.name[6..].trim_start()
    }
}

impl PartialEq for Rule {
    fn eq(&self, other: &Rule) -> bool {
        self.code() == other.code()
    }
}

/// One step of a mend.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Step {
    /// A command line for a shell.
    Run(String),
    /// What no command does.
    Do(String),
}

/// Something that is wrong with a machine.
#[derive(Clone, Debug, PartialEq)]
pub struct Finding {
    /// Its kind.
    pub rule: &'static Rule,
    /// The host where it is mended.
    pub host: String,
    /// The thing that it is about: an interface, a cable, a variable; empty where it is the whole machine.
    pub subject: String,
    /// What is wrong, with the values at hand.
    pub what: String,
    /// How it is mended there, in this order.
    pub mend: Vec<Step>,
}

/// How bad all of them together are, as the exit code of `lspan doctor`: 1 where a path is broken, 3 where one is slower, else 0.
pub fn exit_code(findings: &[Finding]) -> u8 {
    match findings.iter().map(|finding| finding.rule.severity).filter(|s| *s != Severity::Never).max() {
        None | Some(Severity::Never) => 0,
        Some(Severity::Slower) => 3,
        Some(Severity::Broken) => 1,
    }
}

/// Leaves out what only follows from another finding.
pub(crate) fn root_causes(mut findings: Vec<Finding>) -> Vec<Finding> {
    let follows = |one: &Finding, all: &[Finding]| {
        all.iter().any(|cause| {
            one.rule.after.contains(&cause.rule)
                && one.host == cause.host
                && (one.subject == cause.subject || one.subject.is_empty() || cause.subject.is_empty())
        })
    };
    let hidden: Vec<bool> = findings.iter().map(|one| follows(one, &findings)).collect();
    let mut hidden = hidden.into_iter();
    findings.retain(|_| !hidden.next().unwrap_or(false));
    findings.sort_by(|a, b| {
        let order = |f: &Finding| (f.rule.severity == Severity::Never, std::cmp::Reverse(f.rule.severity));
        order(a).cmp(&order(b)).then_with(|| (a.rule.code(), &a.subject).cmp(&(b.rule.code(), &b.subject)))
    });
    findings.dedup();
    findings
}

#[cfg(test)]
mod tests;
