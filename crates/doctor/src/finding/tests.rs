use super::*;

static CAUSE: Rule = Rule::new("LSAAAA cause", Severity::Broken, ["t", "c", "m"], &[]);
static AFTER: Rule = Rule::new("LSBBBB after", Severity::Slower, ["t", "c", "m"], &[&CAUSE]);
static NEVER: Rule = Rule::new("LSCCCC never", Severity::Never, ["t", "c", "m"], &[]);

fn finding(rule: &'static Rule, host: &str, subject: &str) -> Finding {
    Finding { rule, host: host.into(), subject: subject.into(), what: String::new(), mend: Vec::new() }
}

#[test]
fn what_follows_from_a_cause_is_left_out_for_the_same_thing_only() {
    let all = vec![
        finding(&AFTER, "a", "x"),
        finding(&CAUSE, "a", "x"),
        finding(&AFTER, "a", "y"),
        finding(&AFTER, "b", "x"),
    ];
    let left = root_causes(all);
    let left: Vec<(&str, &str, &str)> = left.iter().map(|f| (f.rule.slug(), &*f.host, &*f.subject)).collect();
    assert_eq!(
        left,
        [("cause", "a", "x"), ("after", "b", "x"), ("after", "a", "y")].map(|x| x).into_iter().collect::<Vec<_>>()
    );
    // A cause of the whole machine hides what follows of each thing.
    assert_eq!(root_causes(vec![finding(&AFTER, "a", "x"), finding(&CAUSE, "a", "")]).len(), 1);
}

#[test]
fn exit_codes() {
    let code =
        |rules: &[&'static Rule]| exit_code(&rules.iter().map(|rule| finding(rule, "a", "")).collect::<Vec<_>>());
    assert_eq!([code(&[]), code(&[&NEVER]), code(&[&NEVER, &AFTER]), code(&[&AFTER, &CAUSE])], [0, 0, 3, 1]);
}
