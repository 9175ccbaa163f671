//! One suite for every room.
//!
//! # How a room plugs in
//!
//! 1. In the room's `Cargo.toml`: `[dev-dependencies] linkspan-transport = { workspace = true, features =
//!    ["conformance"] }`.
//! 2. In its `tests/conformance.rs` implement [`Room`] for a small struct: [`Room::pair`] makes two connected
//!    [`Conn`]s in this process (loopback, one memory); override [`Room::rails`] if it can join several rails,
//!    [`Room::kill`] if dropping the rails is not what a dead process looks like, [`Room::pass`] to let time pass,
//!    and [`Room::stall`] / [`Room::release`] / [`Room::extra_rails`] where the room has a way to do so.
//! 3. `linkspan_transport::conformance_suite!(tcp, TcpRoom::new());` makes a module `tcp` with one `#[test]` per
//!    behaviour. A room whose rails are not `Send` writes `conformance_suite!(single_threaded tcp, ...)`.
//! 4. `cargo test -p linkspan-tcp --release` runs the quick level; `LINKSPAN_CONFORMANCE=full` the full one (1 GiB,
//!    thousands of connects). Guests and tools call [`quick`] or [`full`] with a room instead.
//!
//! 5. A room that moves device memory calls [`take_memory_from`] when it makes a pair.
//!
//! Both ends run in the calling thread. A behaviour panics with what it saw; behaviours a room has no means for say
//! so on stderr and count as [`Verdict::Skipped`].

mod bench;
mod close;
mod errors;
mod load;
mod memory;
mod onesided;
mod order;
mod rails;
mod soak;

use std::time::Duration;

pub use bench::{Duo, Side, check_bytes, fill_bytes, pattern};
pub use load::threads;
pub use memory::{Buffer, Memory, take_memory_from};
pub use soak::Rng;

use crate::{Conn, Down, Rail};

/// What a connection is to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Want {
    /// Rails that carry it together, at least 1 and at most [`Room::rails`].
    pub rails: usize,
    /// Operations report when acknowledged; see [`Conn::new`].
    pub acked: bool,
}

impl Want {
    /// One rail, done when taken.
    pub const PLAIN: Want = Want { rails: 1, acked: false };
    /// One rail, done when acknowledged; carries one-sided operations.
    pub const ACKED: Want = Want { rails: 1, acked: true };
}

/// How long the suite waits for something that must happen.
#[derive(Clone, Copy, Debug)]
pub enum Patience {
    /// Time on the wall; rooms on real media.
    Wall(Duration),
    /// Rounds of progress on both sides; rooms with a clock of their own.
    Rounds(u64),
}

/// A room under test: makes connections whose both ends live in this process.
pub trait Room {
    /// Its rail.
    type R: Rail;

    /// A new connection.
    fn pair(&mut self, want: Want) -> (Conn<Self::R>, Conn<Self::R>);

    /// Most rails one connection can have here.
    fn rails(&self) -> usize {
        1
    }

    /// Lets time pass after a round in which neither side had anything to do.
    fn pass(&mut self) {
        std::thread::yield_now();
    }

    /// Lets about this much time pass, in which neither side makes progress; a room on a real medium waits a token of it.
    fn sleep(&mut self, time: Duration) {
        std::thread::sleep(time.min(Duration::from_millis(20)));
    }

    /// Ends one side as a process that is killed ends: without a goodbye.
    fn kill(&mut self, mut conn: Conn<Self::R>) {
        conn.fail(Down::PeerGone { path: "this side".into(), why: "killed by the suite".into() });
    }

    /// Stops delivery to `conn` on the rail in `slot`, in the middle of a chunk if one is on its way. False: this
    /// room has no means to.
    fn stall(&mut self, conn: &Conn<Self::R>, slot: usize) -> bool {
        let _ = (conn, slot);
        false
    }

    /// Ends every stall: what was held back arrives now.
    fn release(&mut self) {}

    /// One more rail for a connection that is up: its two ends. `None`: this room has no means to.
    fn extra_rail(&mut self) -> Option<(Self::R, Self::R)> {
        None
    }

    /// When to give up.
    fn patience(&self) -> Patience {
        Patience::Wall(Duration::from_secs(60))
    }
}

/// How thorough.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// At most 16 MiB a message, 200 connects and 60 s in a slow guest.
    Quick,
    /// 1 GiB and thousands of connects.
    Full,
}

impl Level {
    /// `LINKSPAN_CONFORMANCE=full`, or quick.
    pub fn from_env() -> Level {
        match std::env::var("LINKSPAN_CONFORMANCE").as_deref() {
            Ok("full") => Level::Full,
            _ => Level::Quick,
        }
    }

    fn pick<T>(self, quick: T, full: T) -> T {
        match self {
            Level::Quick => quick,
            Level::Full => full,
        }
    }
}

/// How a behaviour ended; a failure panics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It holds.
    Passed,
    /// The room has no means to try it; the text says which.
    Skipped(&'static str),
}

/// One named behaviour.
pub type Behaviour<M> = fn(&mut M, Level) -> Verdict;

macro_rules! behaviours {
    ($($module:ident :: $name:ident),* $(,)?) => {
        /// Every behaviour with its name, in the order in which they run.
        pub fn behaviours<M: Room>() -> Vec<(&'static str, Behaviour<M>)> {
            vec![$((stringify!($name), $module::$name::<M> as Behaviour<M>)),*]
        }

        /// One test per behaviour; see [`crate::conformance`].
        #[macro_export]
        macro_rules! conformance_suite {
            (single_threaded $suite:ident, $room:expr) => {
                mod $suite {
                    #[allow(unused_imports)]
                    use super::*;
                    $(#[test]
                    fn $name() {
                        $crate::conformance::one(stringify!($name), &mut $room);
                    })*
                }
            };
            ($suite:ident, $room:expr) => {
                $crate::conformance_suite!(single_threaded $suite, $room);
                #[test]
                fn threads_on_different_connections() {
                    $crate::conformance::threads(&mut $room, $crate::conformance::Level::from_env());
                }
            };
        }
    };
}

behaviours!(
    order::ordering_per_tag,
    order::tags_with_others_in_between,
    order::grouped_receives,
    order::groups_with_unmatched_tags_in_between,
    order::zero_length,
    order::posted_larger_than_sent,
    order::early_sends,
    order::out_of_credit_then_recovers,
    order::tests_in_any_order,
    order::sizes,
    order::both_directions,
    errors::sent_larger_than_posted,
    errors::stale_tickets,
    errors::groups_of_a_wrong_size,
    errors::peer_that_never_posts,
    errors::peer_that_stops,
    close::last_message_then_close,
    close::close_with_operations_in_flight,
    close::nothing_is_written_after_drop,
    close::death_at_every_step,
    load::requests_32_by_8,
    load::many_connections,
    load::connects,
    soak::random_soak,
    onesided::write_and_read,
    onesided::notify_comes_after_its_bytes,
    onesided::bounds_and_rights,
    onesided::stale_keys,
    onesided::unexpose_during_traffic,
    onesided::zero_length_one_sided,
    onesided::one_sided_needs_acknowledgements,
    onesided::many_reads,
    rails::striping,
    rails::rail_lost_at_any_point,
    rails::rails_lost_one_after_another,
    rails::rail_added_later,
    rails::revocation,
);

/// Runs the behaviour of this name at the level of the environment.
///
/// # Panics
/// It does not hold, or there is none of this name.
pub fn one<M: Room>(name: &str, room: &mut M) -> Verdict {
    let Some((name, behaviour)) = behaviours::<M>().into_iter().find(|b| b.0 == name) else {
        panic!("no behaviour is called {name}");
    };
    let verdict = behaviour(room, Level::from_env());
    if let Verdict::Skipped(why) = verdict {
        eprintln!("{name}: cannot be tested here: {why}");
    }
    verdict
}

/// Runs everything at the quick level.
///
/// # Panics
/// A behaviour does not hold.
pub fn quick<M: Room>(room: &mut M) -> Vec<(&'static str, Verdict)> {
    all(room, Level::Quick)
}

/// Runs everything at the full level.
///
/// # Panics
/// A behaviour does not hold.
pub fn full<M: Room>(room: &mut M) -> Vec<(&'static str, Verdict)> {
    all(room, Level::Full)
}

fn all<M: Room>(room: &mut M, level: Level) -> Vec<(&'static str, Verdict)> {
    behaviours::<M>().into_iter().map(|(name, behaviour)| (name, behaviour(room, level))).collect()
}
