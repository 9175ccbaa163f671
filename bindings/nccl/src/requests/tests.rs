use super::*;

fn row() -> (RequestSlots, Requests) {
    let slots = RequestSlots::new();
    slots.hang(0x1000, Kind::Send);
    let requests = Requests::new(&slots);
    (slots, requests)
}

#[test]
fn all_places_are_distinct_and_lead_home() {
    let (_request_slots, mut requests) = row();
    let mut seen = std::collections::BTreeSet::new();
    for i in 0..REQUESTS as u64 {
        assert!(requests.has_space());
        assert!(seen.insert(requests.start(i, [7].into_iter()) as usize));
    }
    assert!(!requests.has_space());
    assert!(requests.start(0, [0].into_iter()).is_null());
    for &r in &seen {
        // SAFETY: made above.
        let through = unsafe { through(r as *mut c_void) }.unwrap();
        assert_eq!(through.cell as usize, 0x1000);
        assert!(through.is_send);
        assert!(requests.get(&through).is_ok());
    }
}

#[test]
fn done_requests_are_dead_and_their_places_used_again() {
    let (_request_slots, mut requests) = row();
    let mut old = std::collections::BTreeSet::new();
    for ticket in 0..40 {
        let r = requests.start(ticket, [0].into_iter());
        assert!(old.insert(r as usize), "a stale address equals a new one");
        // SAFETY: made above.
        let through = unsafe { through(r) }.unwrap();
        assert_eq!(requests.get(&through).unwrap().ticket, ticket);
        requests.finish(&through);
        assert_eq!(requests.get(&through).err(), Some(Misuse::Request(r as usize)));
        requests.finish(&through);
    }
    assert_eq!(requests.free.len(), REQUESTS);
}

#[test]
fn knows_what_memory_is_in_use() {
    let (_request_slots, mut requests) = row();
    let r = requests.start(1, [10, 20, 30].into_iter());
    assert!(requests.uses(10) && requests.uses(30));
    assert!(!requests.uses(40) && !requests.uses(0));
    // SAFETY: made above.
    let through = unsafe { through(r) }.unwrap();
    assert_eq!(requests.get(&through).unwrap().parts, 3);
    requests.finish(&through);
    assert!(!requests.uses(10));
}

#[test]
fn small_numbers_are_no_requests() {
    for n in 0..64usize {
        // SAFETY: below 64.
        assert!(unsafe { through(n as *mut c_void) }.is_err());
    }
}

#[test]
fn new_comms_behind_the_same_slots_refuse_the_requests_of_those_before() {
    let (slots, mut requests) = row();
    let mut old: Vec<*mut c_void> = Vec::new();
    // As many requests in each as comms were before, the last of which stays.
    for comm in 0..8 {
        for last in (0..=comm).rev() {
            let r = requests.start(1, [0].into_iter());
            assert!(!old.contains(&r), "comm {comm}");
            for &r in &old {
                // SAFETY: made here.
                let through = unsafe { through(r) }.unwrap();
                assert!(requests.get(&through).is_err(), "comm {comm}");
            }
            old.push(r);
            if last > 0 {
                // SAFETY: made above.
                requests.finish(&unsafe { through(r) }.unwrap());
            }
        }
        requests = Requests::new(&slots);
    }
}
