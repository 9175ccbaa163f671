use super::*;

/// Memory as the driver maps it, with the test in the driver's place.
struct Stage {
    memory: Vec<u64>,
    hello: abi::Hello,
}

impl Stage {
    fn new(sq: u32, cq: u32) -> Stage {
        let hello =
            abi::Hello { sq_entries: sq, cq_entries: cq, sq_offset: 4096, cq_offset: 8192, ..Default::default() };
        Stage { memory: vec![0; 12288 / 8], hello }
    }

    fn base(&mut self) -> NonNull<u8> {
        NonNull::new(self.memory.as_mut_ptr().cast()).unwrap()
    }

    fn queues(&mut self) -> Result<Queues> {
        let hello = self.hello;
        // SAFETY: the memory outlives the queues in each test; a Vec of u64 is aligned well enough for words and entries.
        unsafe { Queues::new(self.base(), 12288, &hello) }
    }

    fn word(&mut self, offset: usize) -> &AtomicU32 {
        // SAFETY: inside of the memory.
        unsafe { self.base().add(offset).cast::<AtomicU32>().as_ref() }
    }

    fn complete(&mut self, at: u32, cookie: u64) {
        let cqe = Cqe { cookie, result: 0, ..Cqe::default() };
        let entries = self.hello.cq_entries;
        // SAFETY: inside of the memory.
        unsafe { self.base().add(8192).cast::<Cqe>().add((at & (entries - 1)) as usize).write(cqe) };
        self.word(abi::queue::CQ_TAIL).store(at.wrapping_add(1), Ordering::Release);
    }
}

#[test]
fn a_full_queue_says_so_and_goes_on_where_the_driver_took() {
    let mut stage = Stage::new(8, 8);
    let mut queues = stage.queues().unwrap();
    for cookie in 0..8 {
        assert!(queues.push(Sqe { cookie, ..Sqe::default() }).unwrap());
    }
    assert!(!queues.push(Sqe::default()).unwrap());
    assert_eq!(queues.waiting(), 8);
    stage.word(abi::queue::SQ_HEAD).store(3, Ordering::Release);
    assert_eq!(queues.waiting(), 5);
    assert!(queues.push(Sqe { cookie: 99, ..Sqe::default() }).unwrap());
    // SAFETY: inside of the memory.
    let wrapped = unsafe { stage.base().add(4096).cast::<Sqe>().read() };
    assert_eq!(wrapped.cookie, 99, "the ninth entry lies where the first was");
}

#[test]
fn completions_come_in_order_over_many_rounds() {
    let mut stage = Stage::new(8, 8);
    let mut queues = stage.queues().unwrap();
    assert_eq!(queues.pop().unwrap(), None);
    for at in 0..100 {
        stage.complete(at, u64::from(at) + 7);
        assert_eq!(queues.pop().unwrap().map(|cqe| cqe.cookie), Some(u64::from(at) + 7));
        assert_eq!(queues.pop().unwrap(), None);
    }
    assert_eq!(stage.word(abi::queue::CQ_HEAD).load(Ordering::Acquire), 100);
}

#[test]
fn indices_that_make_no_sense_are_errors() {
    let mut stage = Stage::new(8, 8);
    let mut queues = stage.queues().unwrap();
    stage.word(abi::queue::CQ_TAIL).store(9, Ordering::Release);
    assert!(matches!(queues.pop(), Err(Error::Queues { .. })));
    stage.word(abi::queue::SQ_HEAD).store(1, Ordering::Release);
    assert!(matches!(queues.push(Sqe::default()), Err(Error::Queues { .. })));
}

#[test]
fn a_map_too_small_for_its_entries_is_refused() {
    for change in [
        |hello: &mut abi::Hello| hello.sq_entries = 7,
        |hello: &mut abi::Hello| hello.cq_entries = 256,
        |hello: &mut abi::Hello| hello.cq_offset = u64::MAX - 63,
        |hello: &mut abi::Hello| hello.sq_offset = 0,
        |hello: &mut abi::Hello| hello.sq_offset = 4097,
    ] {
        let mut stage = Stage::new(8, 8);
        change(&mut stage.hello);
        assert!(matches!(stage.queues(), Err(Error::Queues { .. })), "{:?}", stage.hello);
    }
}

#[test]
fn the_driver_says_when_the_link_is_lost() {
    let mut stage = Stage::new(8, 8);
    let queues = stage.queues().unwrap();
    assert!(!queues.dead());
    stage.word(abi::queue::DEAD).store(1, Ordering::Release);
    assert!(queues.dead());
}
