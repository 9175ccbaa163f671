//! What another user's process has made is closed in a thread of that user's.

use std::any::Any;
use std::collections::{BTreeMap, VecDeque};
use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Users with a thread of their own; all others share one.
const USERS: usize = 64;

/// So many may wait behind what takes long, a descriptor each: a quarter of the 1,024 that a process usually may have.
const WAIT_MAX: usize = 256;

/// What waits to be dropped, by user.
static WAITING: Mutex<BTreeMap<Option<u32>, Queue>> = Mutex::new(BTreeMap::new());

#[derive(Default)]
struct Queue {
    things: VecDeque<Box<dyn Any + Send>>,
    has_thread: bool,
}

fn waiting() -> MutexGuard<'static, BTreeMap<Option<u32>, Queue>> {
    WAITING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Drops this in a thread of the user who had a part in it. Never blocks; where no thread can be had, it waits for the user's next one.
///
/// The last close(2) of a TCP socket with SO_LINGER, or of a file on FUSE, takes as long as whoever made it wants, and so does that of a
/// Unix socket in whose queue one lies that nobody has received. So one user's hold up that user's only.
pub fn drop_aside(user: u32, thing: impl Send + 'static) {
    let mut all = waiting();
    let user = (all.len() < USERS || all.contains_key(&Some(user))).then_some(user);
    let queue = all.entry(user).or_default();
    queue.things.push_back(Box::new(thing));
    if !queue.has_thread {
        queue.has_thread =
            std::thread::Builder::new().name("linkspan close".into()).spawn(move || drop_all(user)).is_ok();
    }
}

/// Where 256 wait to be dropped, the user of most of them ([`u32::MAX`]: those that share a thread). Who takes connections or
/// descriptors from others takes no more then: they would use up this process's own.
#[must_use]
pub fn aside_full() -> Option<u32> {
    let all = waiting();
    let most = all.iter().max_by_key(|(_, queue)| queue.things.len());
    let full = all.values().map(|queue| queue.things.len()).sum::<usize>() >= WAIT_MAX;
    most.filter(|_| full).map(|(user, _)| user.unwrap_or(u32::MAX))
}

thread_local! {
    /// A library with a destructor of a thread to run stays loaded (glibc counts them): who unloads it waits for no such thread.
    static LOADED: Box<()> = Box::new(());
}

/// Until nothing of this user waits.
fn drop_all(user: Option<u32>) {
    LOADED.with(|_| ());
    crate::block_signals();
    loop {
        let mut all = waiting();
        let Some(thing) = all.get_mut(&user).and_then(|queue| queue.things.pop_front()) else {
            all.remove(&user);
            return;
        };
        drop(all);
        drop(thing);
    }
}

/// Something that [`drop_aside`] drops.
#[derive(Debug)]
pub struct Aside<T: Send + 'static> {
    user: u32,
    thing: ManuallyDrop<T>,
}

impl<T: Send + 'static> Aside<T> {
    /// This user had a part in it.
    pub fn new(user: u32, thing: T) -> Aside<T> {
        Aside { user, thing: ManuallyDrop::new(thing) }
    }
}

impl<T: Send + 'static> Deref for Aside<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.thing
    }
}

impl<T: Send + 'static> Drop for Aside<T> {
    fn drop(&mut self) {
        // SAFETY: it is taken nowhere else, and not used after this.
        drop_aside(self.user, unsafe { ManuallyDrop::take(&mut self.thing) });
    }
}

#[cfg(test)]
mod tests;
