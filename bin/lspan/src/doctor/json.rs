//! The report as JSON: schema linkspan.doctor/1.

use linkspan_doctor::{Asked, End, Finding, Report, Severity, Snapshot, Step};
use serde::Serialize;

use crate::exit::Exit;

#[derive(Serialize)]
pub(super) struct Document<'a> {
    schema: &'static str,
    release: &'a str,
    ok: bool,
    exit_code: u8,
    hosts: Vec<&'a str>,
    findings: Vec<Entry<'a>>,
    facts: &'a [String],
    notes: &'a [String],
    asked: Option<&'a Asked>,
    /// What `lspan doctor --merge` reads.
    end: Option<End>,
}

#[derive(Serialize)]
struct Entry<'a> {
    code: &'a str,
    name: &'a str,
    severity: Severity,
    can_be_mended: bool,
    host: &'a str,
    subject: &'a str,
    title: &'a str,
    what: &'a str,
    cost: &'a str,
    mend: &'a [Step],
}

fn entry(finding: &Finding) -> Entry<'_> {
    let rule = finding.rule;
    Entry {
        code: rule.code(),
        name: rule.slug(),
        severity: rule.severity,
        can_be_mended: rule.severity != Severity::Never,
        host: &finding.host,
        subject: &finding.subject,
        title: rule.title,
        what: &finding.what,
        cost: rule.cost,
        mend: &finding.mend,
    }
}

fn document<'a>(hosts: Vec<&'a str>, report: &'a Report, exit: Exit, release: &'a str) -> Document<'a> {
    Document {
        schema: "linkspan.doctor/1",
        release,
        ok: exit == Exit::Ok,
        exit_code: exit as u8,
        hosts,
        findings: report.findings.iter().map(entry).collect(),
        facts: &report.facts,
        notes: &[],
        asked: None,
        end: None,
    }
}

pub(super) fn host<'a>(
    snapshot: &'a Snapshot,
    report: &'a Report,
    notes: &'a [String],
    asked: Option<&'a Asked>,
    exit: Exit,
    release: &'a str,
) -> Document<'a> {
    let end = Some(End::of(snapshot, release));
    Document { notes, asked, end, ..document(vec![snapshot.host()], report, exit, release) }
}

pub(super) fn merged<'a>(hosts: &[&'a str], report: &'a Report, exit: Exit, release: &'a str) -> Document<'a> {
    document(hosts.to_vec(), report, exit, release)
}
