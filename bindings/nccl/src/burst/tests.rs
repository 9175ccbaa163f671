use super::*;

/// A comm in the hands of a caller: which of its sends have left.
struct Comm {
    burst: Burst,
    waiting: u32,
    left: u32,
}

impl Comm {
    fn new() -> Comm {
        Comm { burst: Burst::new(), waiting: 0, left: 0 }
    }

    fn post(&mut self, len: usize, bursts: &Bursts) {
        self.post_beside(len, false, bursts);
    }

    fn post_beside(&mut self, len: usize, alone: bool, bursts: &Bursts) {
        let left = match self.burst.posts(len, alone, 1, bursts) {
            Leave::Now => self.waiting + 1,
            Leave::Soon => self.waiting,
            Leave::Together => 0,
        };
        self.left += left;
        self.waiting = self.waiting + 1 - left;
    }

    fn leave(&mut self) {
        self.burst.left();
        self.left += std::mem::take(&mut self.waiting);
    }

    fn test(&mut self, bursts: &Bursts) {
        let mut due = false;
        bursts.tested(|comm| due = comm == 1);
        if due {
            self.leave();
        }
        if !self.burst.tests() {
            self.left += std::mem::take(&mut self.waiting);
        }
    }
}

/// A test of a request of another comm.
fn other(comm: &mut Comm, bursts: &Bursts) {
    let mut due = false;
    bursts.tested(|found| due = found == 1);
    if due {
        comm.leave();
    }
}

#[test]
fn a_send_leaves_at_once_after_a_round_trip_of_few_tests_where_all_before_it_have_reported() {
    let (bursts, mut burst) = (Bursts::new(), Burst::new());
    for _ in 0..100 {
        assert_eq!(burst.posts(8, true, 1, &bursts), Leave::Now);
        for _ in 0..=NEXT {
            bursts.tested(|_| {});
        }
        assert!(!burst.tests());
    }
    assert_eq!(burst.posts(8, true, 1, &bursts), Leave::Now);
    bursts.tested(|_| {});
    assert_eq!(burst.posts(8, true, 1, &bursts), Leave::Together, "back to back");
}

#[test]
fn a_send_by_itself_leaves_at_once_also_after_many_round_trips() {
    let (bursts, mut comm) = (Bursts::new(), Comm::new());
    for n in 1..100 {
        comm.post(8, &bursts);
        assert_eq!((comm.waiting, comm.left), (0, n));
        for _ in 0..=NEAR {
            other(&mut comm, &bursts);
        }
    }
}

#[test]
fn sends_that_are_posted_one_in_a_pass_leave_a_window_at_a_time() {
    let (bursts, mut comm) = (Bursts::new(), Comm::new());
    let (mut posted, mut departures) = (0, 0);
    for window in [8, 32] {
        for _ in 0..1000 {
            let before = comm.left;
            if posted < comm.left + window {
                comm.post(8, &bursts);
                posted += 1;
            }
            comm.test(&bursts);
            if comm.left != before {
                departures += 1;
            }
        }
    }
    assert!(posted > 1700, "{posted} posted");
    assert!(departures * 6 < posted, "{departures} departures of {posted} sends");
}

/// A caller that fills its window, and posts the next one when all of it has been tested.
#[test]
fn a_window_that_is_posted_at_once_leaves_at_once_with_its_first() {
    let (bursts, mut comm) = (Bursts::new(), Comm::new());
    for window in 0..100 {
        let before = comm.left;
        for n in 0..8 {
            comm.post_beside(8, n == 0, &bursts);
            let left = comm.left - before;
            assert_eq!(left, u32::from(window == 0), "the very first knows of no others");
        }
        // All but the first two find theirs done.
        (0..9).for_each(|_| comm.test(&bursts));
        assert_eq!((comm.waiting, comm.left), (0, before + 8));
    }
}

#[test]
fn a_send_by_itself_after_a_window_leaves_by_tests_of_other_requests() {
    let (bursts, mut comm) = (Bursts::new(), Comm::new());
    comm.post_beside(8, true, &bursts);
    comm.post_beside(8, false, &bursts);
    (0..PATIENCE).for_each(|_| other(&mut comm, &bursts));
    assert_eq!((comm.waiting, comm.left), (0, 2));
    comm.post_beside(8, true, &bursts);
    assert_eq!(comm.waiting, 1);
    (0..PATIENCE).for_each(|_| other(&mut comm, &bursts));
    assert_eq!((comm.waiting, comm.left), (0, 3));
    comm.post_beside(8, true, &bursts);
    assert_eq!((comm.waiting, comm.left), (0, 4), "and the next ones at once");
}

#[test]
fn a_send_that_is_never_tested_leaves_by_tests_of_other_requests() {
    let (bursts, mut comm) = (Bursts::new(), Comm::new());
    for n in 1..50 {
        comm.post(8, &bursts);
        comm.post(8, &bursts);
        (0..PATIENCE).for_each(|_| other(&mut comm, &bursts));
        assert_eq!((comm.waiting, comm.left), (0, 2 * n));
    }
}

#[test]
fn no_more_than_a_few_kib_wait() {
    let (bursts, mut comm) = (Bursts::new(), Comm::new());
    for _ in 0..1000 {
        comm.post(1 << 10, &bursts);
        assert!(comm.waiting as usize <= TOGETHER >> 10);
    }
    comm.post(TOGETHER + 1, &bursts);
    assert_eq!(comm.waiting, 1, "what waits leaves before a large one");
    comm.test(&bursts);
    assert_eq!(comm.waiting, 0, "which leaves with its first test");
    comm.post(TOGETHER + 1, &bursts);
    (0..PATIENCE).for_each(|_| other(&mut comm, &bursts));
    assert_eq!(comm.waiting, 0, "or by those of others");
}

#[test]
fn sends_of_more_comms_than_there_are_places_for_leave_at_once() {
    let bursts = Bursts::new();
    let mut comms: Vec<Burst> = (0..=COMMS).map(|_| Burst::new()).collect();
    for (n, comm) in comms.iter_mut().enumerate() {
        comm.posts(8, false, n + 1, &bursts);
        assert_eq!(comm.posts(8, false, n + 1, &bursts) == Leave::Together, n < COMMS);
    }
    bursts.remove(1);
    let posted = comms[COMMS].posts(8, false, COMMS + 1, &bursts);
    assert_eq!(posted, Leave::Together, "a comm that was closed has given its place back");
}

#[test]
fn a_comm_that_was_removed_is_not_asked_to_leave() {
    let (bursts, mut comm) = (Bursts::new(), Comm::new());
    comm.post(8, &bursts);
    comm.post(8, &bursts);
    bursts.remove(1);
    (0..2 * PATIENCE).for_each(|_| bursts.tested(|comm| panic!("{comm} was removed")));
}
