//! Objects for one thread at a time.
//!
//! What drives queues in shared memory is no one's to use twice at once, and a lock that another thread holds in a long wait would
//! be a wait as long: a second thread gets an error instead. Entering never sleeps; it is one compare-and-swap.
#![forbid(unsafe_code)]

use std::ops::{Deref, DerefMut};
use std::sync::{Mutex, MutexGuard, TryLockError};

use crate::status::{CallResult, Refusal};

/// An object until it is closed.
pub(crate) struct Single<T> {
    word: &'static str,
    object: Mutex<Option<T>>,
}

/// The one thread in it.
pub(crate) struct Inside<'a, T>(MutexGuard<'a, Option<T>>);

impl<T> Single<T> {
    pub(crate) fn new(word: &'static str, object: T) -> Single<T> {
        Single { word, object: Mutex::new(Some(object)) }
    }

    /// Of the object with this handle.
    #[inline]
    pub(crate) fn enter(&self, handle: u64) -> CallResult<Inside<'_, T>> {
        let guard = match self.object.try_lock() {
            Ok(guard) => guard,
            // A panic was reported as ours; what it left is checked at each use.
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return Err(Refusal::InCall(self.word)),
        };
        if guard.is_none() {
            return Err(Refusal::Handle { word: self.word, handle });
        }
        Ok(Inside(guard))
    }
}

impl<T> Inside<'_, T> {
    /// Takes it out permanently.
    pub(crate) fn close(mut self) -> Option<T> {
        self.0.take()
    }
}

impl<T> Deref for Inside<'_, T> {
    type Target = T;

    #[allow(clippy::expect_used, reason = "`enter` has seen to it")]
    fn deref(&self) -> &T {
        self.0.as_ref().expect("an open object")
    }
}

impl<T> DerefMut for Inside<'_, T> {
    #[allow(clippy::expect_used, reason = "`enter` has seen to it")]
    fn deref_mut(&mut self) -> &mut T {
        self.0.as_mut().expect("an open object")
    }
}

#[cfg(test)]
mod tests {
    use super::Single;
    use crate::status::Refusal;

    #[test]
    fn a_second_thread_is_sent_home_and_may_come_later() {
        let single = Single::new("thing", 1);
        let mut inside = single.enter(7).unwrap();
        std::thread::scope(|s| {
            let other = s.spawn(|| matches!(single.enter(7), Err(Refusal::InCall("thing"))));
            assert!(other.join().unwrap());
        });
        *inside = 2;
        drop(inside);
        std::thread::scope(|s| assert_eq!(s.spawn(|| *single.enter(7).unwrap()).join().unwrap(), 2));
    }

    #[test]
    fn what_was_closed_is_no_ones() {
        let single = Single::new("thing", 1);
        assert_eq!(single.enter(7).unwrap().close(), Some(1));
        assert!(matches!(single.enter(7), Err(Refusal::Handle { word: "thing", handle: 7 })));
    }

    #[test]
    fn a_panic_inside_leaves_it_open() {
        let single = Single::new("thing", 1);
        std::thread::scope(|s| {
            let other = s.spawn(|| {
                let _inside = single.enter(7).unwrap();
                std::panic::resume_unwind(Box::new(()));
            });
            assert!(other.join().is_err());
        });
        assert_eq!(*single.enter(7).unwrap(), 1);
    }
}
