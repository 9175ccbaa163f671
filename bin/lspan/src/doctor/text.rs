//! The report for people.

use anstyle::{AnsiColor, Style};
use linkspan_doctor::{Finding, Report, Severity, Snapshot, Step};

/// The report of one host. `named`: another one was to be asked, too.
pub(super) fn host(snapshot: &Snapshot, report: &Report, notes: &[String], named: bool) -> String {
    let used = super::usable(snapshot);
    let used = if used.is_empty() { "no interface".to_owned() } else { used.join(", ") };
    let mut text = summary(snapshot.host(), &report.findings);
    text.push_str(&format!("connections to other hosts use {used}\n"));
    findings(&mut text, &report.findings, false);
    let dim = Style::new().dimmed();
    for (head, lines) in [("good to know", &report.facts[..]), ("not checked", notes)] {
        if !lines.is_empty() {
            text.push_str(&format!("\n{dim}{head}:{dim:#}\n"));
            lines.iter().for_each(|line| text.push_str(&format!("  {line}\n")));
        }
    }
    if !named {
        text.push_str(
            "\nonly this host was checked; next: `lspan doctor` on the other host, or `lspan doctor HOST`, which tests the path to it; `lspan doctor --json` \
             on each and `lspan doctor --merge FILE...` check both ends together\n",
        );
    }
    text
}

pub(super) fn merged(hosts: &[&str], report: &Report) -> String {
    let mut text = summary(&hosts.join(", "), &report.findings);
    findings(&mut text, &report.findings, true);
    report.facts.iter().for_each(|fact| text.push_str(&format!("\n{fact}\n")));
    text
}

fn summary(name: &str, found: &[Finding]) -> String {
    let count = |severity| found.iter().filter(|finding| finding.rule.severity == severity).count();
    let (broken, slower) = (count(Severity::Broken), count(Severity::Slower));
    let bold = Style::new().bold();
    let what = match (broken, slower) {
        (0, 0) => "found nothing wrong".to_owned(),
        (0, slower) => {
            format!("{slower} thing{} slower than it could be", if slower == 1 { " is" } else { "s are each" })
        }
        (broken, 0) => format!("{broken} thing{} broken", if broken == 1 { " is" } else { "s are" }),
        (broken, slower) => format!("{broken} broken, {slower} slower than it could be"),
    };
    format!("{bold}{name}{bold:#}: {what}\n")
}

fn findings(text: &mut String, found: &[Finding], hosts: bool) {
    let mut never = false;
    for finding in found {
        let rule = finding.rule;
        if rule.severity == Severity::Never && !never {
            never = true;
            text.push_str("\nwhat this machine can never have:\n");
        }
        let (style, word) = match rule.severity {
            Severity::Broken => (AnsiColor::Red.on_default().bold(), "broken"),
            Severity::Slower => (AnsiColor::Yellow.on_default().bold(), "slower"),
            Severity::Never => (Style::new().dimmed(), "never"),
        };
        text.push_str(&format!("\n{style}{word}{style:#}  {}  ({} {})\n", finding.what, rule.code(), rule.slug()));
        text.push_str(&format!("  costs  {}\n", rule.cost));
        let on = if hosts { format!(" on {}", finding.host) } else { String::new() };
        for step in &finding.mend {
            match step {
                Step::Run(command) => text.push_str(&format!("  type{on}   {command}\n")),
                Step::Do(what) => text.push_str(&format!("  do{on}     {what}\n")),
            }
        }
    }
}
