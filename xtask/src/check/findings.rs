//! The findings of `lspan doctor`: one list in the sources, from which `docs/FINDINGS.md` is generated.

use crate::lex::{Kind, Token, tokens};
use crate::tree::Source;

/// Where the list is.
const LIST: &str = "crates/doctor/src/list.rs";

/// Every code that was given, with its name; a code that is in no list any more stays in it.
const GIVEN: &str = "crates/doctor/codes.txt";

/// What the names of the findings begin with in code, by area.
const AREAS: [(&str, &str); 9] = [
    ("LS14", "cables between hosts that are judged together"),
    ("LS21", "Thunderbolt and USB4"),
    ("LS22", "RDMA"),
    ("LS23", "networks"),
    ("LS24", "firewalls"),
    ("LS25", "processes of one host"),
    ("LS26", "GPUs"),
    ("LS27", "speed that was measured"),
    ("LS28", "NCCL and RCCL"),
];

/// One entry of the list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Finding {
    /// `LS` and four digits.
    pub(crate) code: String,
    /// The name behind it.
    pub(crate) slug: String,
    /// How bad it is.
    pub(crate) severity: String,
    /// What is wrong.
    pub(crate) title: String,
    /// What it costs.
    pub(crate) cost: String,
    /// What mends it.
    pub(crate) mend: String,
    /// It is one of a mesh, whose code is defined elsewhere.
    pub(crate) mesh: bool,
}

/// What an area is about.
pub(crate) fn area(code: &str) -> &'static str {
    AREAS.iter().find(|(begin, _)| *begin == code).map_or("?", |(_, what)| what)
}

/// The entries, in the order of the list.
pub(crate) fn table(sources: &[Source]) -> Vec<Finding> {
    let Some(source) = sources.iter().find(|s| s.path == LIST) else { return Vec::new() };
    let all = tokens(&source.text);
    (0..all.len()).filter_map(|at| own(&all[at..]).or_else(|| mesh(&all[at..]))).collect()
}

/// `= "LS2101 tb-xdomain-off", Broken, "title", "cost", "mend", [...]`.
fn own(tokens: &[Token]) -> Option<Finding> {
    let [equals, name, _, severity, _, title, _, cost, _, mend, ..] = tokens else { return None };
    if equals.kind != Kind::Mark('=') {
        return None;
    }
    let (code, slug) = text(name)?.split_once(' ')?;
    code.starts_with("LS").then_some(())?;
    Some(Finding {
        code: code.to_owned(),
        slug: slug.to_owned(),
        severity: word(severity)?.to_owned(),
        title: text(title)?.to_owned(),
        cost: text(cost)?.to_owned(),
        mend: text(mend)?.to_owned(),
        mesh: false,
    })
}

/// `"1410" "mesh-no-address" Broken "title", "cost"`.
fn mesh(tokens: &[Token]) -> Option<Finding> {
    let [number, slug, severity, title, _, cost, ..] = tokens else { return None };
    let number = text(number).filter(|n| n.len() == 4 && n.bytes().all(|b| b.is_ascii_digit()))?;
    Some(Finding {
        code: format!("LS{number}"),
        slug: text(slug)?.to_owned(),
        severity: word(severity)?.to_owned(),
        title: text(title)?.to_owned(),
        cost: text(cost)?.to_owned(),
        mend: "the command that is printed".to_owned(),
        mesh: true,
    })
}

fn text(token: &Token) -> Option<&str> {
    if let Kind::Text(text) = &token.kind { Some(text) } else { None }
}

fn word(token: &Token) -> Option<&str> {
    if let Kind::Word(word) = &token.kind { Some(word) } else { None }
}

/// Names used twice, findings out of order or out of an area, and mesh findings that nothing defines.
pub(crate) fn problems(sources: &[Source]) -> Vec<String> {
    let all = table(sources);
    let mut problems = Vec::new();
    if all.is_empty() && sources.iter().any(|s| s.path == LIST) {
        problems.push(format!("{LIST}: no entry was found"));
    }
    let given = sources.iter().find(|s| s.path == GIVEN).map_or("", |s| s.text.as_str());
    let given: Vec<(&str, &str)> =
        given.lines().filter(|line| !line.starts_with('#')).filter_map(|line| line.split_once(' ')).collect();
    if let Some(pair) = given.windows(2).find(|pair| pair[0].0 >= pair[1].0) {
        problems.push(format!(
            "{GIVEN}: {} stands before {}: one line for each code, in their order",
            pair[0].0, pair[1].0
        ));
    }
    let defined = super::codes::definitions(sources);
    for (at, one) in all.iter().enumerate() {
        if let Some(other) = all[..at].iter().find(|other| other.slug == one.slug || other.code == one.code) {
            problems.push(format!(
                "{LIST}: {} {} and {} {}: a name and a code are of one finding",
                one.code, one.slug, other.code, other.slug
            ));
        }
        match given.iter().find(|(code, _)| *code == one.code) {
            None => problems.push(format!("{GIVEN}: add the line `{} {}`", one.code, one.slug)),
            Some((_, slug)) if *slug != one.slug => {
                problems.push(format!(
                    "{LIST}: {} was given to {slug} and is {} now: take another code",
                    one.code, one.slug
                ));
            }
            Some(_) => {}
        }
        if area(&one.code[..4]) == "?" {
            problems.push(format!("{LIST}: {} is in no area", one.code));
        }
        if all[..at].iter().any(|other| other.mesh == one.mesh && other.code > one.code) {
            problems.push(format!("{LIST}: {} stands behind a larger code", one.code));
        }
        if one.mesh && !defined.contains_key(&one.code) {
            problems.push(format!("{LIST}: {} is defined nowhere", one.code));
        }
        if !["Broken", "Slower", "Never"].contains(&one.severity.as_str()) {
            problems.push(format!("{LIST}: {}: {} is no severity", one.code, one.severity));
        }
    }
    problems
}
