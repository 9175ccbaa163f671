//! What `lspan doctor` has found.

use std::process::Command;

use serde::Deserialize;

use crate::row::{Action, Button, Group, Mood, Row};
use crate::text::{cut, fill, shown, tr};

/// Most findings, and steps of each, that are shown.
const MOST: usize = 64;

/// Most characters of a command.
const COMMAND: usize = 2048;

/// Most bytes of its output that are read.
const OUTPUT: usize = 4 << 20;

#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Report {
    schema: String,
    findings: Vec<Finding>,
}

#[derive(Clone, Debug, Deserialize)]
struct Finding {
    code: String,
    severity: String,
    title: String,
    #[serde(default)]
    what: String,
    #[serde(default)]
    cost: String,
    #[serde(default)]
    mend: Vec<serde_json::Map<String, serde_json::Value>>,
}

/// Runs `lspan doctor` on this machine; it changes nothing and sends nothing. Blocks.
///
/// # Errors
/// A sentence to show: there is no `lspan`, or it has not answered as it should.
pub fn doctor() -> Result<String, String> {
    let output = Command::new("lspan").args(["doctor", "--json", "--no-probe"]).output();
    let output = output.map_err(|error| format!("lspan: {error}"))?;
    // 3 and 1: something was found.
    match output.status.code() {
        Some(0 | 1 | 3) if output.stdout.len() <= OUTPUT => {
            String::from_utf8(output.stdout).map_err(|error| format!("lspan doctor: {error}"))
        }
        _ => Err(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
    }
}

pub(crate) fn read(json: &str) -> Result<Report, String> {
    let report: Report = serde_json::from_str(json).map_err(|error| error.to_string())?;
    match report.schema.as_str() {
        "linkspan.doctor/1" => Ok(report),
        other => Err(shown(other)),
    }
}

impl Report {
    pub(crate) fn is_empty(&self) -> bool {
        self.findings.is_empty()
    }

    pub(crate) fn groups(&self) -> Vec<Group> {
        self.findings.iter().take(MOST).map(group).collect()
    }
}

fn group(finding: &Finding) -> Group {
    let mood = match finding.severity.as_str() {
        "slower" => Mood::Slow,
        "broken" => Mood::Trouble,
        _ => Mood::Plain,
    };
    let mut rows = vec![Row {
        id: finding.code.clone(),
        title: cut(&finding.what, COMMAND),
        subtitle: cut(&finding.cost, COMMAND),
        end: shown(&finding.code),
        mood,
        ..Row::default()
    }];
    let steps = finding.mend.iter().take(MOST).enumerate();
    rows.extend(steps.flat_map(|(n, step)| step.iter().map(move |(kind, text)| mend(n, kind, text))));
    Group { title: shown(&finding.title), text: String::new(), rows }
}

fn mend(n: usize, kind: &str, text: &serde_json::Value) -> Row {
    let text = text.as_str().unwrap_or_default();
    let row = Row { id: format!("mend {n}"), title: cut(text, COMMAND), ..Row::default() };
    // What is copied is what is read: a command that is not shown as it is has no button.
    if kind != "run" || row.title != text {
        return row;
    }
    let name = fill(&tr("Copy the command {command}"), &[("command", text)]);
    let button = Button { label: tr("Copy"), name, action: Action::Copy(text.to_owned()), works: true };
    Row { subtitle: tr("Type this in a terminal"), button: Some(button), ..row }
}
