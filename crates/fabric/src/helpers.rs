//! Which TCP rails get a helper thread (`LINKSPAN_HELPERS`), and where it runs.

use linkspan_tcp::{HELPERS_MAX, TcpRail};
use linkspan_topology::{Interface, Roots, Verdict};
use linkspan_transport::{BoxRail, Rail, RailInfo};

use crate::params::{BadParam, HELPERS};

/// Links up to this speed are left to the caller's own core, Mb/s: one stream, which is one core's work, fills them; see
/// `LINKSPAN_TCP_STREAMS`, which has the same limit.
const CALLER_MBPS: u32 = 25_000;

/// What `LINKSPAN_HELPERS` asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wish {
    /// Threads for each network card; 0: none at all.
    pub per_card: usize,
    /// For links of any speed.
    pub force: bool,
}

impl Wish {
    pub(crate) fn read(get: &dyn Fn(&str) -> Option<String>) -> Result<Wish, BadParam> {
        let value = HELPERS.read(get)?.unwrap_or_else(|| HELPERS.default.to_owned());
        let (number, force) = match value.strip_prefix("force:") {
            Some(number) => (number, true),
            None => (value.as_str(), false),
        };
        match number.parse() {
            Ok(per_card) if per_card <= HELPERS_MAX => Ok(Wish { per_card, force }),
            _ => {
                let want = format!("it takes a whole number from 0 to {HELPERS_MAX}, or force: and such a number");
                Err(BadParam { name: HELPERS.name.to_owned(), value, want })
            }
        }
    }

    /// The interface called `name`, if its rails are to have a thread, or why not.
    fn applies<'a>(self, survey: &'a [(Interface, Verdict)], name: &str) -> Result<Option<&'a Interface>, String> {
        let interface = survey.iter().map(|(i, _)| i).find(|i| i.name == name);
        match interface.and_then(|i| i.speed_mbps) {
            _ if self.force => Ok(interface),
            Some(mbps) if mbps > CALLER_MBPS => Ok(interface),
            Some(mbps) => Err(format!("{name} has {} Gb/s, which the calling thread can fill", f64::from(mbps) / 1e3)),
            None => Err(format!("{name} does not report its speed")),
        }
    }
}

/// The threads of a fabric and what they are for.
#[derive(Debug)]
pub(crate) struct Helpers {
    wish: Wish,
    roots: Roots,
    threads: linkspan_tcp::Helpers,
}

impl Helpers {
    /// None where none are wanted.
    pub(crate) fn new(wish: Wish, roots: Roots) -> Option<Helpers> {
        let threads = linkspan_tcp::Helpers::new(wish.per_card);
        (wish.per_card > 0).then_some(Helpers { wish, roots, threads })
    }

    /// Gives the rail a thread, or says in its reason why it has none.
    pub(crate) fn help(&self, rail: TcpRail, survey: &[(Interface, Verdict)]) -> BoxRail {
        let name = rail.stream().interface();
        let (rail, why) = match self.wish.applies(survey, &name) {
            Ok(interface) => {
                let cpus = interface.map(|i| i.cpus_near(&self.roots)).unwrap_or_default();
                match self.threads.take(rail, &name, &cpus) {
                    Ok(helped) => return Box::new(helped),
                    Err((rail, why)) => (*rail, why),
                }
            }
            Err(why) => (rail, format!("{why} (LINKSPAN_HELPERS=force:{} gives it one anyway)", self.wish.per_card)),
        };
        let info = rail.info();
        let info = RailInfo { reason: format!("{}; no helper thread: {why}", info.reason), ..info.clone() };
        Box::new(rail.with_info(info))
    }
}

#[cfg(test)]
mod tests;
