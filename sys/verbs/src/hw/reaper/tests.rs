//! Things that take long to drop.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};

use super::*;

/// Dropped when it is let.
struct Slow {
    let_go: Receiver<()>,
    dropped: Arc<AtomicUsize>,
}

impl Drop for Slow {
    fn drop(&mut self) {
        self.let_go.recv().unwrap();
        self.dropped.fetch_add(1, Ordering::SeqCst);
    }
}

fn slow(dropped: &Arc<AtomicUsize>) -> (Sender<()>, Slow) {
    let (sender, let_go) = channel();
    (sender, Slow { let_go, dropped: dropped.clone() })
}

#[test]
fn who_gives_something_away_does_not_wait_for_its_end_and_the_last_holder_does() {
    let (reaper, dropped) = (Reaper::new(), Arc::default());
    let (first, one) = slow(&dropped);
    let (second, two) = slow(&dropped);
    // Would wait forever if it were dropped here.
    reaper.take(one);
    reaper.take(two);
    assert_eq!(dropped.load(Ordering::SeqCst), 0);
    first.send(()).unwrap();
    second.send(()).unwrap();
    drop(reaper);
    assert_eq!(dropped.load(Ordering::SeqCst), 2);
}

#[test]
fn a_reaper_without_work_has_no_thread() {
    let reaper = Reaper::<Remains>::new();
    assert!(reaper.0.lock().unwrap().is_none());
}
