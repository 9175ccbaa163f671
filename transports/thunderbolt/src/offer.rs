//! Cables as rails beside a stream.

use std::sync::Arc;
use std::time::Instant;

use linkspan_transport::{BoxRail, Offer, Role, chain};

use crate::rail::NAME;
use crate::{Config, Error, Ports, Setup};

/// The cables of this host, of which some may lead to the peer.
pub(crate) struct CableOffers {
    ports: Arc<Ports>,
    config: Config,
}

impl CableOffers {
    /// All of them.
    pub(crate) fn new(ports: Arc<Ports>, config: Config) -> CableOffers {
        CableOffers { ports, config }
    }
}

impl Offer for CableOffers {
    fn name(&self) -> &'static str {
        NAME
    }

    fn wanted(&self) -> usize {
        self.ports.links().len()
    }

    fn make(&self, n: usize, role: Role) -> Result<Vec<Box<dyn linkspan_transport::Setup>>, String> {
        let links = self.ports.links();
        let one = |k: usize| {
            // The side that answers takes what it is asked for.
            let link = links.get(k).filter(|_| n > 1 && role == Role::Caller).cloned();
            let config = Config { link, one_of_many: n > 1, ..self.config.clone() };
            let setup = Setup::new(self.ports.clone(), role, config).map_err(text)?;
            Ok(Box::new(setup) as Box<dyn linkspan_transport::Setup>)
        };
        (0..n).map(one).collect()
    }
}

/// A cable that leads to another host is nothing to tell.
fn text(error: Error) -> String {
    if matches!(error, Error::Elsewhere) { String::new() } else { chain(&error) }
}

impl linkspan_transport::Setup for Setup {
    fn output(&mut self) -> Vec<u8> {
        self.output()
    }

    fn input(&mut self, bytes: &[u8]) -> Result<usize, String> {
        self.input(bytes).map_err(text)
    }

    fn poll(&mut self, now: Instant) -> Result<(), String> {
        self.poll().and_then(|()| self.check(now)).map(drop).map_err(text)
    }

    fn is_done(&self) -> bool {
        self.is_done()
    }

    fn finish(self: Box<Self>) -> Result<BoxRail, String> {
        let why = self.why_not();
        match (*self).finish() {
            Ok(Some(rail)) => Ok(rail),
            Ok(None) => Err(why),
            Err(_) => Err("a cable is not up".into()),
        }
    }
}
