//! Queue pairs as rails beside a stream.

use std::time::Instant;

use linkspan_transport::{BoxRail, Offer, Role, chain};
use linkspan_verbs_sys::Nic;

use crate::endpoint::NAME;
use crate::{Config, Domain, Error, RELAY_CHUNK, Setup};

/// A port on which queue pairs can be made.
#[derive(Clone)]
pub struct Pairs<N: Nic> {
    domain: Domain<N>,
    config: Config,
    count: usize,
}

impl<N: Nic> Pairs<N> {
    /// So many, as the settings say.
    pub fn new(domain: Domain<N>, config: Config, count: usize) -> Pairs<N> {
        Pairs { domain, config, count }
    }

    /// The settings.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The same for a queue pair that ends at a neighbour who passes on what goes over it. A relay has memory for one.
    #[must_use]
    pub fn relayed(self, reason: String) -> Pairs<N> {
        Pairs { config: Config { reason, chunk: RELAY_CHUNK, ..self.config }, count: 1, ..self }
    }

    /// The same in a protection domain of its own: what is registered elsewhere is out of reach of its queue pairs.
    ///
    /// # Errors
    /// [`Error::Nic`]: the device refuses.
    pub fn isolated(&self) -> Result<Pairs<N>, Error> {
        Ok(Pairs { domain: self.domain.isolated()?, ..self.clone() })
    }
}

impl<N: Nic> Offer for Pairs<N> {
    fn name(&self) -> &'static str {
        NAME
    }

    fn wanted(&self) -> usize {
        self.count
    }

    fn make(&self, n: usize, _role: Role) -> Result<Vec<Box<dyn linkspan_transport::Setup>>, String> {
        let one = |_| match Setup::new(self.domain.clone(), self.config.clone()) {
            Ok(setup) => Ok(Box::new(setup) as Box<dyn linkspan_transport::Setup>),
            Err(why) => Err(chain(&why)),
        };
        (0..n).map(one).collect()
    }
}

impl<N: Nic> linkspan_transport::Setup for Setup<N> {
    fn output(&mut self) -> Vec<u8> {
        self.output()
    }

    fn input(&mut self, bytes: &[u8]) -> Result<usize, String> {
        self.input(bytes).map_err(|e| chain(&e))
    }

    fn poll(&mut self, now: Instant) -> Result<(), String> {
        self.poll().and_then(|()| self.check(now)).map(drop).map_err(|e| chain(&e))
    }

    fn is_done(&self) -> bool {
        self.is_done()
    }

    fn finish(self: Box<Self>) -> Result<BoxRail, String> {
        match (*self).finish() {
            Ok(rail) => Ok(Box::new(rail)),
            Err(undone) => Err(format!("{} is not up", undone.path())),
        }
    }
}
