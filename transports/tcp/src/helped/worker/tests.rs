use super::*;

#[test]
fn lists_as_the_kernel_writes_them() {
    for (cpus, text) in [(&[][..], ""), (&[3], "3"), (&[0, 1, 2, 3], "0-3"), (&[0, 2, 3, 8], "0,2-3,8")] {
        assert_eq!(list(cpus), text);
    }
}

#[test]
fn numbers_are_given_out_once_and_come_back() {
    let mut all: Vec<Number> = std::iter::from_fn(Number::take).collect();
    assert_eq!(all.iter().map(|n| n.0).collect::<Vec<_>>(), (0..HELPERS_MAX as u32).collect::<Vec<_>>());
    drop(all.remove(3));
    assert_eq!(Number::take().map(|n| n.0), Some(3));
}

#[test]
fn only_processors_that_the_process_may_use() {
    let ours = allowed(&(0..4096).collect::<Vec<_>>());
    assert!(!ours.is_empty());
    assert_eq!(allowed(&[1_000_000, ours[0]]), [ours[0]]);
}
