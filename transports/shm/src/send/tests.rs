use super::*;

const PAGE_TIME: Duration = Duration::from_nanos(1500);

fn timed(pace: &mut DirectCopyHeuristic, chunks: u32, time: Duration) -> u32 {
    (0..chunks).filter(|_| pace.clock().map(|_| pace.took(COMPARED, time)).is_some()).count() as u32
}

#[test]
fn a_near_ring_is_kept_whatever_happens_now_and_then() {
    let mut pace = DirectCopyHeuristic::default();
    for _ in 0..1000 {
        assert_eq!(timed(&mut pace, 2 * TIMED, PAGE_TIME), 2);
        // A thread that was not on its processor for a while.
        assert_eq!(timed(&mut pace, TIMED, 100 * PAGE_TIME), 1);
        assert!(!pace.goes_directly());
    }
}

#[test]
fn a_far_ring_is_left_and_tried_again() {
    let mut pace = DirectCopyHeuristic::default();
    assert_eq!(timed(&mut pace, SLOW * TIMED, 5 * PAGE_TIME), SLOW);
    assert!(pace.goes_directly());
    pace.direct = 0;
    // Still far: fewer chunks show it.
    assert_eq!(timed(&mut pace, STILL * TIMED, 5 * PAGE_TIME), STILL);
    assert!(pace.goes_directly());
    pace.direct = 0;
    assert_eq!(timed(&mut pace, SLOW * TIMED, PAGE_TIME), SLOW);
    assert!(!pace.goes_directly());
}
