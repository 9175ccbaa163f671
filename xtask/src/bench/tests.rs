use super::*;

#[test]
fn quick_set_is_part_of_the_full_one_and_a_named_figure_goes_alone() {
    let count = |words: &[&str]| {
        let options = Options::read(words).expect("options");
        RUNS.iter().flat_map(|run| run.figures).filter(|f| options.wants(f)).count()
    };
    let all = count(&["core-base", "HEAD"]);
    assert_eq!(count(&["core-base", "HEAD", "--quick"]), 5);
    assert!(all > 15, "{all}");
    assert_eq!(count(&["core-base", "HEAD", "--figure", "connect-64"]), 1);
}

#[test]
fn wrong_words_are_refused_with_what_would_be_right() {
    let refused = |words: &[&str]| Options::read(words).err().expect("refused");
    assert!(refused(&["core-base"]).contains("BASE HEAD"));
    assert!(refused(&["a", "b", "--pairs", "3"]).contains("from 6"));
    assert!(refused(&["a", "b", "--pairs"]).contains("needs a value"));
    assert!(refused(&["a", "b", "--figure", "x"]).contains("tcp-8B"));
    assert!(refused(&["a", "b", "--fast"]).contains("not an option"));
}

#[test]
fn a_program_that_fails_is_an_error_with_its_words() {
    let failed = limited(Command::new("sh").args(["-c", "echo no plugin >&2; exit 3"])).expect_err("it failed");
    assert!(failed.contains("no plugin"), "{failed}");
    assert_eq!(limited(Command::new("echo").arg("4.2 us")).as_deref(), Ok("4.2 us\n"));
}

#[test]
fn a_row_shows_speed_and_verdict() {
    let figure = &RUNS[0].figures[0];
    let mut column = Column { figure, base: vec![5.0; 30], head: vec![10.0; 30], missing: None };
    assert_eq!(column.row(), "| tcp-8B | 5.000 us | 10.000 us | 0.500 | 0.500..0.500 | 30 | LOST |");
    column.head = vec![5.0; 30];
    assert!(column.row().ends_with("| 1.000 | 1.000..1.000 | 30 | kept |"));
    column.missing = Some("x has no plugin".to_owned());
    assert!(column.row().ends_with("not shown: x has no plugin |"));
}
