//! Rails that are missed: which of those that come up were there before.

use std::net::SocketAddr;

use linkspan_transport::{MAX_RAILS, RailInfo};

/// Most places that one connection remembers; the oldest is forgotten.
const MOST: usize = 2 * MAX_RAILS;

/// The places of rails that were lost and are not reconnected.
#[derive(Debug, Default)]
pub(crate) struct MissingRails(Vec<String>);

impl MissingRails {
    /// A rail is lost.
    pub(crate) fn note(&mut self, rail: &RailInfo) {
        if self.0.len() >= MOST {
            self.0.remove(0);
        }
        self.0.push(place(rail));
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether the rail that has come up stands where one was lost, which is missed no longer then.
    pub(crate) fn is_back(&mut self, rail: &RailInfo) -> bool {
        let place = place(rail);
        let found = self.0.iter().position(|lost| *lost == place);
        found.map(|at| self.0.remove(at)).is_some()
    }
}

/// A rail's transport and ends, without what is another each time: ports, queue pairs.
fn place(rail: &RailInfo) -> String {
    let ends = rail.path.split(" (").next().unwrap_or_default();
    let words = ends.split(' ').map(|word| word.parse::<SocketAddr>().map_or(word.to_owned(), |a| a.ip().to_string()));
    words.fold(rail.transport.to_owned(), |place, word| place + " " + &word)
}

#[cfg(test)]
mod tests;
