//! Places that clients take: so many in all, and so many of one user, who so cannot take those of the others.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Places. Root's are beside those of the others, as many as all of them have.
#[derive(Clone, Debug)]
pub(crate) struct Places(Arc<Taken>);

#[derive(Debug)]
struct Taken {
    all: usize,
    each: usize,
    /// Users that have any.
    users: Mutex<HashMap<u32, usize>>,
}

impl Taken {
    fn users(&self) -> MutexGuard<'_, HashMap<u32, usize>> {
        self.users.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Places {
    /// So many for all users together, and for each.
    pub(crate) fn new(all: usize, each: usize) -> Places {
        Places(Arc::new(Taken { all, each, users: Mutex::default() }))
    }

    /// One for this user. `None`: it has as many as it may, or all are taken.
    pub(crate) fn take(&self, uid: u32) -> Option<Place> {
        let mut users = self.0.users();
        let own = users.get(&uid).copied().unwrap_or(0);
        let free = match uid {
            0 => own < self.0.all,
            _ => {
                own < self.0.each
                    && users.iter().filter(|(uid, _)| **uid != 0).map(|(_, n)| n).sum::<usize>() < self.0.all
            }
        };
        if !free {
            return None;
        }
        users.insert(uid, own + 1);
        Some(Place { taken: self.0.clone(), uid })
    }
}

/// A place. Dropping it gives it back.
#[derive(Debug)]
#[must_use]
pub(crate) struct Place {
    taken: Arc<Taken>,
    uid: u32,
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut users = self.taken.users();
        if let Some(own) = users.get_mut(&self.uid) {
            *own -= 1;
            if *own == 0 {
                users.remove(&self.uid);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_user_takes_the_places_of_the_others_and_root_has_its_own() {
        let places = Places::new(64, 16);
        let mut taken: Vec<Place> = (0..100).filter_map(|_| places.take(1000)).collect();
        assert_eq!(taken.len(), 16);
        assert!(places.take(1001).is_some(), "given back at once");
        for uid in 1001..1100 {
            taken.extend((0..20).filter_map(|_| places.take(uid)));
        }
        assert_eq!(taken.len(), 64);
        let root: Vec<Place> = (0..100).filter_map(|_| places.take(0)).collect();
        assert_eq!(root.len(), 64);
        drop(taken.remove(0));
        assert!(places.take(1500).is_some());
        drop((taken, root));
        assert!(places.0.users().is_empty());
    }
}
