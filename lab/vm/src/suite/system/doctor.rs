//! `lspan` in a whole system: what its doctor finds, and the path that a measurement takes.

use std::collections::BTreeSet;
use std::fs;
use std::time::Duration;

use serde_json::Value;

use crate::error::{At, Error, Result, check};
use crate::guest::{Guest, Job, Output};
use crate::lab::Lab;
use crate::suite::tb::SOON;

/// Who asks, and how.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asker<'a> {
    /// Where.
    pub(super) guest: &'a Guest,
    /// What stands before each command: another user, a container; `sh -c` of it gets one word.
    pub(super) under: &'a str,
    /// What is typed before each command, in the same shell.
    pub(super) first: &'a str,
}

/// A finding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Finding {
    pub(super) code: String,
    /// Where it is mended.
    pub(super) host: String,
    /// What is to be typed there.
    pub(super) commands: Vec<String>,
    /// What no command does.
    pub(super) by_hand: Vec<String>,
}

/// The findings of a report.
pub(super) fn findings(report: &Value) -> Vec<Finding> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let steps = |one: &Value, kind: &str| -> Vec<String> {
        let all = one["mend"].as_array().into_iter().flatten();
        all.filter_map(|step| Some(step.get(kind)?.as_str()?.to_owned())).collect()
    };
    let all = report["findings"].as_array().into_iter().flatten();
    all.map(|one| Finding {
        code: text(&one["code"]),
        host: text(&one["host"]),
        commands: steps(one, "run"),
        by_hand: steps(one, "do"),
    })
    .collect()
}

/// These codes and no other, each once or more.
pub(super) fn exactly(found: &[Finding], codes: &BTreeSet<&str>) -> Result<()> {
    let have: BTreeSet<&str> = found.iter().map(|one| one.code.as_str()).collect();
    check(have == *codes, || format!("{have:?} in place of {codes:?}: {found:?}"))
}

impl<'a> Asker<'a> {
    /// Root, as the runner's agent is.
    pub(super) fn root(guest: &'a Guest) -> Asker<'a> {
        Asker { guest, under: "sh -c", first: "" }
    }

    /// A command line as this one types it.
    pub(super) fn line(self, command: &str) -> String {
        format!("{} '{}'", self.under, format!("{}{command}", self.first).replace('\'', r"'\''"))
    }

    /// What `lspan doctor --json` says with these words.
    pub(super) fn report(self, words: &str) -> Result<Value> {
        let said = self.guest.run(SOON, &self.line(&format!("lspan doctor --json {words}")))?;
        said.out.find('{').and_then(|at| serde_json::from_str(said.out[at..].trim()).ok()).ok_or_else(|| {
            Error::Check(format!("{}: no JSON of lspan doctor: {}{}", self.guest.name(), said.out, said.err))
        })
    }

    /// Types a command that was printed, which succeeds.
    pub(super) fn types(self, limit: Duration, command: &str) -> Result<()> {
        let said = self.guest.run(limit, &self.line(command))?;
        check(said.code == 0, || format!("`{command}` ended with {}: {}{}", said.code, said.out, said.err))
    }

    /// What it finds with these words: this alone.
    pub(super) fn finds(self, words: &str, code: &str) -> Result<Finding> {
        let found = findings(&self.report(words)?);
        exactly(&found, &BTreeSet::from([code]))?;
        Ok(found[0].clone())
    }

    /// The codes of what it finds.
    pub(super) fn doctor(self, words: &str) -> Result<Vec<String>> {
        Ok(findings(&self.report(words)?).into_iter().map(|one| one.code).collect())
    }

    /// No finding.
    pub(super) fn silent(self, words: &str) -> Result<()> {
        let found = self.doctor(words)?;
        if found.is_empty() { Ok(()) } else { Err(self.wrong(words, "silence", &found)) }
    }

    /// Keeps what `lspan bugreport` says of the machine beside the logs, as `NAME.tree`: healthy machines for the tests of the doctor.
    pub(super) fn kept(self, lab: &Lab, name: &str) -> Result<()> {
        self.silent("")?;
        let line = "rm -f /tmp/report-$USER.tar && lspan bugreport --output /tmp/report-$USER.tar >/dev/null && \
                    tar -xOf /tmp/report-$USER.tar --wildcards \"*/machine.tree\"";
        let tree = self.guest.sh(&self.line(line))?;
        let file = lab.logs().join(format!("{name}.tree"));
        fs::write(&file, tree).at(file.display())
    }

    fn wrong(self, words: &str, wanted: &str, codes: &[String]) -> Error {
        let text = self.guest.sh(&format!("lspan doctor {words} 2>&1; ip -br addr; true")).unwrap_or_default();
        Error::Check(format!("{}: lspan doctor {words}: {codes:?} in place of {wanted}\n{text}", self.guest.name()))
    }
}

/// `lspan perf serve` that lets everybody in.
pub(super) fn serves(on: Asker<'_>) -> Result<Job> {
    let mut job = on.guest.spawn(&on.line("exec lspan perf serve --open"))?;
    job.expect("lspan: waiting on", SOON)?;
    Ok(job)
}

/// Ends it.
pub(super) fn ends(guest: &Guest, server: &Job) -> Result<()> {
    server.kill();
    guest.until("the server to go", SOON, "! pidof lspan >/dev/null").map(drop)
}

/// Whether `lspan perf bw PEER` goes such a way to a server, which is ended after it; the path.
pub(super) fn way(to: Asker<'_>, from: Asker<'_>, peer: &str, over: &[&str], there: bool) -> Result<String> {
    let _server = serves(to)?;
    let path = match there {
        true => carries(from, peer, over)?,
        false => misses(from, peer, over).map(|()| String::new())?,
    };
    // A user's shell, and a container, are not of the job's process group.
    to.guest.sh("kill -INT $(pidof lspan)")?;
    to.guest.until("the server to go", SOON, "! pidof lspan >/dev/null")?;
    Ok(path)
}

/// `lspan perf bw PEER` with messages of 64 KiB, or as its words say, over a path whose text has all of these.
pub(super) fn carries(from: Asker<'_>, peer: &str, over: &[&str]) -> Result<String> {
    let (path, said) = measured(from, peer)?;
    check(matches!(said.code, 0 | 3) && over.iter().all(|part| path.contains(part)), || {
        format!(
            "{}: lspan perf bw {peer} ended with {}, over {path:?}: {}{}",
            from.guest.name(),
            said.code,
            said.out,
            said.err
        )
    })?;
    Ok(path)
}

/// `lspan perf bw PEER` does not: it ends without a measurement, or takes another path.
fn misses(from: Asker<'_>, peer: &str, over: &[&str]) -> Result<()> {
    let (path, said) = measured(from, peer)?;
    check(!matches!(said.code, 0 | 3) || !over.iter().all(|part| path.contains(part)), || {
        format!("{}: lspan perf bw {peer} already goes over {path}", from.guest.name())
    })
}

/// The path that `lspan perf bw PEER` took, and all that it said.
fn measured(from: Asker<'_>, peer: &str) -> Result<(String, Output)> {
    let size = if peer.contains("--size") { "" } else { "--size 64K" };
    let line = from.line(&format!("lspan perf bw {peer} {size} --iters 20 --warmup 2 --json"));
    let said = from.guest.run(SOON, &line)?;
    let value: Value = serde_json::from_str(&said.out).unwrap_or_default();
    let row = &value["results"][0];
    let text = |name: &str| row[name].as_str().unwrap_or("?");
    let path = format!("{} {} ({})", text("transport"), text("path"), text("reason"));
    Ok((path, said))
}
