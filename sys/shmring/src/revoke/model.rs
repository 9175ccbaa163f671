//! The end of a peer's copies under loom: flag, gate and border, with a kernel that copies only what passes the gate.

use loom::cell::UnsafeCell;
use loom::sync::{Arc, Mutex};
use loom::thread;

use super::{Kernel, Proof, enter, inside, leave, revoke};
use crate::region::{Entry, Region};
use crate::slot::{self, Words};
use crate::sync::AtomicU64;

/// The peer's thread in its flag.
const WHO: u64 = 7;

/// What the kernel knows. One lock stands for the lock of our address space, which mprotect(2) and a copy's look at the guard page take.
struct Os {
    gate: bool,
    /// The peer's thread is in process_vm_writev(2).
    copying: bool,
}

struct World {
    cursor: AtomicU64,
    other: AtomicU64,
    flag: AtomicU64,
    os: Mutex<Os>,
    /// Our memory: loom reports any access that is not ordered.
    memory: UnsafeCell<u32>,
}

impl Words for World {
    fn cursor(&self) -> &AtomicU64 {
        &self.cursor
    }
    fn dest(&self) -> &AtomicU64 {
        &self.other
    }
    fn sent(&self) -> &AtomicU64 {
        &self.other
    }
    fn unsent(&self) -> &AtomicU64 {
        &self.other
    }
    fn unread(&self) -> &AtomicU64 {
        &self.other
    }
}

/// A transfer that is open, and its sender's thread, which copies one slice of it into our memory.
fn world() -> (Arc<World>, thread::JoinHandle<()>) {
    let world = Arc::new(World {
        cursor: AtomicU64::new(0),
        other: AtomicU64::new(0),
        flag: AtomicU64::new(0),
        os: Mutex::new(Os { gate: true, copying: false }),
        memory: UnsafeCell::new(0),
    });
    slot::offer(&*world, 1);
    assert_eq!(slot::open(&*world, 1, 0, 0), Ok(true));
    let peer = world.clone();
    let peer = thread::spawn(move || {
        if enter(&peer.flag, WHO, || slot::runs(&*peer, 1)) {
            let passes = {
                let mut os = peer.os.lock().unwrap();
                os.copying = true;
                os.gate
            };
            if passes {
                // SAFETY: loom checks the access.
                peer.memory.with_mut(|m| unsafe { *m = 1 });
            }
            peer.os.lock().unwrap().copying = false;
        }
        leave(&peer.flag);
    });
    (world, peer)
}

/// The owner's side: what it does is what the system's does, or is wrong in one way.
struct Owner<'a> {
    world: &'a World,
    closes: bool,
    believes: bool,
}

impl Kernel for Owner<'_> {
    fn patient(&mut self) -> bool {
        false
    }
    fn close(&mut self) -> bool {
        self.world.os.lock().unwrap().gate &= !self.closes;
        true
    }
    fn ended(&mut self) -> bool {
        false
    }
    fn at_border(&mut self, who: u64) -> bool {
        assert_eq!(who, WHO);
        self.believes || !self.world.os.lock().unwrap().copying
    }
    fn pause(&mut self) {
        thread::yield_now();
    }
}

/// Stops the transfer, revokes the access, and uses the memory.
fn reuse(closes: bool, believes: bool) {
    loom::model(move || {
        let (world, peer) = world();
        slot::stop(&*world);
        let proof = revoke(&world.flag, &mut Owner { world: &world, closes, believes });
        assert_ne!(proof, Proof::Death);
        // SAFETY: the point of the test: loom reports any access of the peer not ordered before this one.
        world.memory.with_mut(|m| unsafe { *m = 9 });
        peer.join().unwrap();
        // SAFETY: as above.
        world.memory.with(|m| assert_eq!(unsafe { *m }, 9));
    });
}

#[test]
fn after_the_proof_the_memory_is_ours_alone() {
    reuse(true, false);
}

#[test]
fn the_flag_alone_is_enough_where_it_falls() {
    loom::model(|| {
        let (world, peer) = world();
        slot::stop(&*world);
        while inside(&world.flag) != 0 {
            thread::yield_now();
        }
        // SAFETY: as in `reuse`.
        world.memory.with_mut(|m| unsafe { *m = 9 });
        peer.join().unwrap();
    });
}

#[test]
fn a_region_that_was_withdrawn_is_ours_alone_once_the_flag_falls_and_its_entry_tells_nothing_of_the_next_one() {
    loom::model(|| {
        let words =
            Arc::new((std::array::from_fn::<_, 4, _>(|_| AtomicU64::new(0)), AtomicU64::new(0), UnsafeCell::new(0)));
        let (first, second) = (Region { address: 1, len: 1, rights: 1 }, Region { address: 2, len: 2, rights: 2 });
        Entry { words: words.0.each_ref() }.publish(1, first);
        let peer = words.clone();
        let peer = thread::spawn(move || {
            let (words, flag, memory) = &*peer;
            let mut found = None;
            if enter(flag, WHO, || {
                found = Entry { words: words.each_ref() }.find(1);
                found.is_some()
            }) {
                assert_eq!(found, Some(first));
                // SAFETY: loom checks the access.
                memory.with_mut(|m| unsafe { *m = 1 });
            }
            leave(flag);
        });
        let entry = Entry { words: words.0.each_ref() };
        entry.withdraw();
        entry.publish(2, second);
        while inside(&words.1) != 0 {
            thread::yield_now();
        }
        // SAFETY: as in `reuse`.
        words.2.with_mut(|m| unsafe { *m = 9 });
        peer.join().unwrap();
        // SAFETY: as above.
        words.2.with(|m| assert_eq!(unsafe { *m }, 9));
    });
}

#[test]
#[should_panic(expected = "Causality violation")]
fn without_the_gate_the_model_finds_a_late_copy() {
    reuse(false, false);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn without_the_border_the_model_finds_a_copy_under_way() {
    reuse(true, true);
}
