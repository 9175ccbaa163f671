use super::*;

fn of(uid: Option<u32>, n: u64) -> Event {
    Event { uid, count: Some(n), ..Event::new(Kind::RailLost, format!("event {n}")) }
}

#[test]
fn moments_are_written_as_the_calendar_has_them() {
    for (seconds, text) in [
        (0, "1970-01-01T00:00:00Z"),
        (951_782_400, "2000-02-29T00:00:00Z"),
        (951_868_800, "2000-03-01T00:00:00Z"),
        (1_709_251_199, "2024-02-29T23:59:59Z"),
        (4_107_542_400, "2100-03-01T00:00:00Z"),
        (1_795_478_400, "2026-11-24T00:00:00Z"),
    ] {
        assert_eq!(utc(seconds * 1_000_000), text);
    }
}

#[test]
fn times_grow_even_when_the_clock_does_not() {
    let mut log = EventLog::new(8);
    let times: Vec<u64> = [50, 50, 10, 60].map(|now| log.push(of(None, now), now).time_us).to_vec();
    assert_eq!(times, [50, 51, 52, 60]);
    assert_eq!(log.after(51, None).len(), 2);
    assert_eq!(log.last_us(), 60);
}

#[test]
fn who_has_most_loses_its_own_oldest() {
    let mut log = EventLog::new(10);
    log.push(of(None, 1), 1);
    log.push(of(Some(1), 2), 2);
    for n in 0..10_000 {
        log.push(of(Some(2), n), 10 + n);
        assert!(log.kept.len() <= 10);
    }
    let kept = log.after(0, None);
    assert_eq!(kept.iter().map(|event| event.uid).collect::<Vec<_>>()[..2], [None, Some(1)]);
    assert_eq!(kept.last().and_then(|event| event.count), Some(9_999));
    log.keep(2);
    assert_eq!(log.after(0, None).len(), 2);
}

#[test]
fn many_are_forgotten_at_once_as_they_would_be_one_by_one() {
    let log = |most| {
        let mut log = EventLog::new(most);
        for n in 0..500_u64 {
            let uid = [None, Some(1), Some(2), Some(3)][(n * n % 7 % 4) as usize];
            log.push(of(uid, n), n);
        }
        log
    };
    let (mut at_once, mut one_by_one) = (log(500), log(500));
    at_once.keep(123);
    (123..500).rev().for_each(|most| one_by_one.keep(most));
    let kept = at_once.after(0, None);
    assert_eq!((kept.len(), &kept), (123, &one_by_one.after(0, None)));
    let counts = kept.iter().fold(BTreeMap::new(), |mut counts, event| {
        *counts.entry(event.uid).or_insert(0) += 1;
        counts
    });
    assert_eq!(at_once.counts, counts);
    assert!(counts.values().max().unwrap() - counts.values().min().unwrap() <= 1, "{counts:?}");
}

#[test]
fn one_answer_has_a_bounded_number_and_the_rest_comes_after_its_last() {
    let mut log = EventLog::new(2 * EVENTS_EACH);
    for n in 1..=EVENTS_EACH as u64 + 10 {
        log.push(of(None, n), n);
    }
    let first = log.after(0, None);
    assert_eq!((first.len(), first[0].time_us), (EVENTS_EACH, 1));
    let rest = log.after(first[first.len() - 1].time_us, None);
    assert_eq!((rest.len(), rest[0].time_us), (10, EVENTS_EACH as u64 + 1));
}

#[test]
fn a_user_sees_cables_and_its_own_jobs() {
    let mut log = EventLog::new(10);
    for uid in [None, Some(1), Some(2)] {
        log.push(of(uid, 0), 1);
    }
    let seen = |uid| log.after(0, uid).into_iter().map(|event| event.uid).collect::<Vec<_>>();
    assert_eq!(seen(Some(1)), [None, Some(1)]);
    assert_eq!(seen(None).len(), 3);
}

#[test]
fn an_event_is_the_same_after_json() {
    let event = Event { time_us: 7, cable: Some("0-1".into()), ..Event::new(Kind::SpeedChanged, "a sentence".into()) };
    let text = serde_json::to_string(&event).unwrap();
    assert_eq!(text, r#"{"time_us":7,"kind":"speed_changed","cable":"0-1","text":"a sentence"}"#);
    assert_eq!(serde_json::from_str::<Event>(&text).unwrap(), event);
    assert_eq!(event.line(), "1970-01-01T00:00:00Z speed_changed     a sentence");
}
