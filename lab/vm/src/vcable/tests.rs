use super::*;

#[test]
fn counters_are_found_by_host_and_name() {
    let stats = r#"{"hosts":[{"name":"a","frames_sent":3},{"name":"b","frames_sent":4}],"cables":[]}"#;
    assert_eq!(count(stats, "b", "frames_sent"), Some(4));
    assert_eq!(count(stats, "c", "frames_sent"), None);
    assert_eq!(count(stats, "a", "frames"), None);
    assert_eq!(count("no JSON", "a", "frames_sent"), None);
}
