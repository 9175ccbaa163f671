//! One suite for every transport.
//!
//! # How a transport plugs in
//!
//! 1. In its `Cargo.toml`: `[dev-dependencies] linkspan-transport = { workspace = true, features = ["conformance"] }`.
//! 2. In its tests implement [`Testbed`] for a small struct: both ends of a new rail, in this process, and the means to
//!    stall and to kill a rail from below.
//! 3. `linkspan_transport::conformance_suite!(tcp, Tcp::new());` makes a module `tcp` with one `#[test]` per behaviour. A
//!    transport whose rails are not `Send` writes `conformance_suite!(single_threaded tcp, ...)`.
//! 4. `cargo test -p linkspan-tcp --release` runs the quick level; `LINKSPAN_CONFORMANCE=full` the full one (1 GiB,
//!    thousands of connects). Guests and tools call [`behaviours`] with a testbed instead.
//! 5. A transport that moves device memory calls [`take_memory_from`] when it makes a rail.
//!
//! Every behaviour is required. One that a testbed cannot bring about stands in its invocation with the reason, as in
//! `conformance_suite!(shm, Shm::new(), ignored { revocation: "..." })`, and cargo lists it as ignored.
//!
//! Both ends run in the calling thread. A behaviour panics with what it saw. A transport that crosses processes implements
//! [`Joint`] too: `processes_suite!` has the behaviours for which one process is not enough.

mod bench;
mod boxed;
mod close;
mod errors;
mod load;
mod memory;
mod onesided;
mod order;
mod processes;
mod proxy;
mod rails;
mod soak;

use std::time::Duration;

pub use bench::{Duo, Side, check_bytes, fill_bytes, pattern};
pub use boxed::Boxed;
pub use load::threads;
pub use memory::{Buffer, SuiteMemory, take_memory_from};
pub use processes::{Joint, PeerPipe, two_processes};
pub use proxy::{Direction, Proxies, Proxy};
pub use soak::Rng;

use crate::{Conn, Rail};

/// What a connection is to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Want {
    /// Rails that carry it together, at least 1 and at most [`Testbed::rails`].
    pub rails: usize,
    /// Operations report when acknowledged; see [`Conn::new`].
    pub acked: bool,
    /// The suite is going to call [`Testbed::stall`] or [`Testbed::kill`].
    pub faults: bool,
}

impl Want {
    /// One rail, done when taken.
    pub const PLAIN: Want = Want { rails: 1, acked: false, faults: false };
    /// One rail, done when acknowledged; carries one-sided operations.
    pub const ACKED: Want = Want { rails: 1, acked: true, faults: false };
}

/// How long the suite waits for something that must happen.
#[derive(Clone, Copy, Debug)]
pub enum Patience {
    /// Time on the wall; transports on real media.
    Wall(Duration),
    /// Rounds of progress on both sides; transports with a clock of their own.
    Rounds(u64),
}

/// A transport under test: makes rails whose both ends live in this process.
pub trait Testbed {
    /// Its rail.
    type R: Rail;

    /// Both ends of a new rail: number `n` of a connection like `want`. 0 begins a connection, whose other rails follow,
    /// those that are added later included.
    fn rail(&mut self, want: Want, n: usize) -> (Self::R, Self::R);

    /// Most rails that one connection can have here, at least 2.
    fn rails(&self) -> usize;

    /// Stops delivery to this side on rail `n` of the last connection, which was made with [`Want::faults`]: below the
    /// rail, and in the middle of a chunk if one is on its way.
    fn stall(&mut self, side: Side, n: usize);

    /// Ends every stall: what was held back arrives now.
    fn release(&mut self);

    /// What lies below the rails of this side of the last connection ends as it does when the kernel ends a process that
    /// was killed: without a GOAWAY, and without what the process had not handed over. The connection is dropped then.
    fn kill(&mut self, side: Side);

    /// A new connection.
    fn pair(&mut self, want: Want) -> (Conn<Self::R>, Conn<Self::R>) {
        let (a, b): (Vec<_>, Vec<_>) = (0..want.rails).map(|n| self.rail(want, n)).unzip();
        (Conn::new(a, want.acked), Conn::new(b, want.acked))
    }

    /// Lets time pass after a round in which neither side had anything to do.
    fn pass(&mut self) {
        std::thread::yield_now();
    }

    /// Lets about this much time pass, in which neither side makes progress; on a real medium a short part of it.
    fn sleep(&mut self, time: Duration) {
        std::thread::sleep(time.min(Duration::from_millis(20)));
    }

    /// When to give up.
    fn patience(&self) -> Patience {
        Patience::Wall(Duration::from_secs(60))
    }
}

/// How thorough.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// At most 16 MiB a message and once 64 MiB, 200 connects and 60 s in a slow guest.
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

/// One named behaviour; panics where it does not hold.
pub type Behaviour<R> = fn(&mut dyn Testbed<R = R>, Level);

// `$d` is a dollar sign, for the macro that this one makes.
macro_rules! behaviours {
    ($d:tt $($module:ident :: $name:ident),* $(,)?) => {
        /// Every behaviour with its name, in the order in which they run.
        pub fn behaviours<R: Rail>() -> Vec<(&'static str, Behaviour<R>)> {
            vec![$((stringify!($name), $module::$name::<R> as Behaviour<R>)),*]
        }

        /// One test per behaviour; see [`crate::conformance`].
        #[macro_export]
        macro_rules! conformance_suite {
            (single_threaded $suite:ident, $testbed:expr $d(, ignored { $d($ignored:ident: $why:literal),+ $d(,)? })?) => {
                mod $suite {
                    #[allow(unused_imports)]
                    use super::*;
                    macro_rules! behaviour {
                        $d($d(($ignored $run:block) => {
                            #[test]
                            #[ignore = $why]
                            fn $ignored() $run
                        };)+)?
                        ($behaviour:ident $run:block) => {
                            #[test]
                            fn $behaviour() $run
                        };
                    }
                    $(behaviour!($name { $crate::conformance::one(stringify!($name), &mut $testbed) });)*
                }
            };
            ($suite:ident, $testbed:expr $d(, ignored { $d($ignored:ident: $why:literal),+ $d(,)? })?) => {
                $crate::conformance_suite!(single_threaded $suite, $testbed $d(, ignored { $d($ignored: $why),+ })?);
                #[test]
                fn threads_on_different_connections() {
                    $crate::conformance::threads(&mut $testbed, $crate::conformance::Level::from_env());
                }
            };
        }
    };
}

behaviours!($
    order::ordering_per_tag,
    order::tags_with_others_in_between,
    order::grouped_receives,
    order::groups_with_unmatched_tags_in_between,
    order::zero_length,
    order::posted_larger_than_sent,
    order::early_sends,
    order::sends_before_receives,
    order::waiting_sends_keep_their_order,
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
    close::close_with_sends_that_wait,
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
pub fn one<R: Rail>(name: &str, bed: &mut dyn Testbed<R = R>) {
    let Some((_, behaviour)) = behaviours::<R>().into_iter().find(|b| b.0 == name) else {
        panic!("no behaviour is called {name}");
    };
    behaviour(bed, Level::from_env());
}
