//! Reading commands and scripts.

use super::{Command, Damage, PacketClass, Rule, Script, When};
use crate::error::Error;
use crate::link::Width;
use crate::time::{self, MS, Time};

/// How long a packet is held back to be overtaken where the command does not say.
const REORDER_WINDOW: Time = 20 * MS;

/// Names that commands use.
pub trait Names {
    /// Index of a host.
    fn host(&self, name: &str) -> Option<usize>;
    /// Index of a cable.
    fn cable(&self, name: &str) -> Option<usize>;
}

impl Names for crate::topology::Topology {
    fn host(&self, name: &str) -> Option<usize> {
        self.host_index(name)
    }
    fn cable(&self, name: &str) -> Option<usize> {
        self.cable_index(name)
    }
}

impl Names for crate::world::World {
    fn host(&self, name: &str) -> Option<usize> {
        self.host(name)
    }
    fn cable(&self, name: &str) -> Option<usize> {
        self.cable(name)
    }
}

impl Script {
    /// Reads a script: one command per line, `#` begins a comment.
    ///
    /// # Errors
    /// [`Error::Command`]: the first line that is wrong.
    pub fn parse(text: &str, names: &dyn Names) -> Result<Script, Error> {
        let lines = text.lines().map(|l| l.split('#').next().unwrap_or("").trim()).filter(|l| !l.is_empty());
        lines.map(|line| timed(line, names)).collect::<Result<_, _>>().map(Script)
    }
}

impl Command {
    /// Reads one command.
    ///
    /// # Errors
    /// [`Error::Command`]: what is wrong and what is wanted.
    pub fn parse(line: &str, names: &dyn Names) -> Result<Command, Error> {
        let words: Vec<&str> = line.split_whitespace().collect();
        command(&words, names).map_err(|what| Error::Command { command: line.to_owned(), what })
    }
}

/// Reads a command with or without its time before it.
pub(crate) fn timed(line: &str, names: &dyn Names) -> Result<(When, Command), Error> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let parsed = match words.as_slice() {
        ["at", at, rest @ ..] => time::parse(at)
            .ok_or_else(|| format!("'{at}': a time such as 200ms wanted"))
            .and_then(|at| Ok((When::At(at), command(rest, names)?))),
        ["frame", name, count, rest @ ..] => cable(name, names).and_then(|cable| {
            let count = number(count)?;
            Ok((When::Frame { cable, count }, command(rest, names)?))
        }),
        rest => command(rest, names).map(|c| (When::At(0), c)),
    };
    parsed.map_err(|what| Error::Command { command: line.to_owned(), what })
}

fn command(words: &[&str], names: &dyn Names) -> Result<Command, String> {
    Ok(match words {
        ["unplug", c] => Command::Plug { cable: cable(c, names)?, plugged: false },
        ["replug", c] => Command::Plug { cable: cable(c, names)?, plugged: true },
        ["retrain", c, rest @ ..] => retrain(c, rest, names)?,
        ["width", c, w] => Command::Width {
            cable: cable(c, names)?,
            width: Width::parse(w).ok_or_else(|| format!("'{w}': single, dual, asym-tx or asym-rx wanted"))?,
        },
        ["speed", c, g @ ("2" | "3" | "4")] => Command::Speed { cable: cable(c, names)?, generation: number(g)? as u8 },
        [name @ ("drop" | "corrupt" | "duplicate" | "reorder" | "delay"), class, rest @ ..] => {
            Command::Rule(rule(name, class, rest, names)?)
        }
        ["lose-irq", h, rest @ ..] => {
            let keys = Keys::read(rest, &["vector", "nth", "count"])?;
            Command::LoseInterrupt {
                host: host(h, names)?,
                vector: keys.number("vector")?.map(|v| v as u8),
                skip: keys.number("nth")?.map_or(0, |n| n.saturating_sub(1)),
                left: keys.number("count")?.unwrap_or(1),
            }
        }
        [name @ ("stall" | "resume"), h, rest @ ..] => {
            let keys = Keys::read(rest, &["ring", "hop", "for"])?;
            let at = keys.number("ring")?.or(keys.number("hop")?).ok_or("ring=N (for a software peer hop=N) wanted")?;
            if at >= 64 {
                return Err(format!("{at}: a ring or HopID below 64 wanted"));
            }
            Command::Stall { host: host(h, names)?, at: at as u16, on: *name == "stall", time: keys.time("for")? }
        }
        ["silent", h] => Command::Silent { host: host(h, names)?, on: true },
        ["talk", h] => Command::Silent { host: host(h, names)?, on: false },
        ["refuse", h, rest @ ..] => {
            let hop =
                Keys::read(rest, &["hop"])?.number("hop")?.filter(|hop| *hop < 64).ok_or("hop=N below 64 wanted")?;
            Command::Refuse { host: host(h, names)?, hop: hop as u16 }
        }
        ["ignore-credits", "on"] => Command::IgnoreCredits(true),
        ["ignore-credits", "off"] => Command::IgnoreCredits(false),
        ["clear"] => Command::Clear,
        ["peer", h, rest @ ..] => {
            Command::Peer { host: host(h, names)?, words: rest.iter().map(|w| (*w).to_owned()).collect() }
        }
        _ => {
            return Err("unplug, replug, retrain, width, speed, drop, corrupt, duplicate, reorder, delay, lose-irq, \
                        stall, resume, silent, talk, refuse, ignore-credits, clear or peer wanted, with their arguments"
                .to_owned());
        }
    })
}

fn retrain(name: &str, rest: &[&str], names: &dyn Names) -> Result<Command, String> {
    let keys = Keys::read(rest, &["lanes", "gen"])?;
    let one_lane = match keys.number("lanes")? {
        None | Some(2) => false,
        Some(1) => true,
        Some(n) => return Err(format!("lanes={n}: 1 or 2 wanted")),
    };
    let generation = keys.number("gen")?.unwrap_or(4);
    if !(2..=4).contains(&generation) {
        return Err(format!("gen={generation}: 2, 3 or 4 wanted"));
    }
    Ok(Command::Retrain { cable: cable(name, names)?, one_lane, generation: generation as u8 })
}

fn rule(name: &str, class: &str, rest: &[&str], names: &dyn Names) -> Result<Rule, String> {
    let keys = Keys::read(rest, &["from", "to", "nth", "count", "p", "type", "hop", "by"])?;
    let class = match class {
        "reply" => PacketClass::Reply,
        "event" => PacketClass::Event,
        "xdomain" => PacketClass::Xdomain,
        "control" => PacketClass::Control,
        "frame" => PacketClass::Frame,
        other => return Err(format!("'{other}': reply, event, xdomain, control or frame wanted")),
    };
    let damage = match name {
        "drop" => Damage::Drop,
        "corrupt" => Damage::Corrupt,
        "duplicate" => Damage::Duplicate,
        "reorder" => Damage::Reorder(keys.time("by")?.unwrap_or(REORDER_WINDOW)),
        _ => Damage::Delay(keys.time("by")?.ok_or("by=TIME wanted")?),
    };
    if class == PacketClass::Frame && matches!(damage, Damage::Delay(_) | Damage::Reorder(_)) {
        return Err("frames stay in order on a path: drop, corrupt or duplicate wanted".to_owned());
    }
    let kind =
        match keys.get("type") {
            None => None,
            Some(name) => Some((1..=18).find(|k| crate::xdomain::type_name(*k) == name).ok_or_else(|| {
                format!("'{name}': the name of an XDomain message type wanted, such as uuid-request")
            })?),
        };
    let chance = keys.get("p").map_or(Ok(1.0), |p| p.parse().map_err(|_| format!("'{p}': a number from 0 to 1")))?;
    if !(0.0..=1.0).contains(&chance) {
        return Err(format!("p={chance}: a number from 0 to 1 wanted"));
    }
    // Without a number, a rule with a probability goes on, one without hits once.
    let endless = if chance < 1.0 { u64::MAX } else { 1 };
    Ok(Rule {
        class,
        damage,
        from: keys.get("from").map(|h| host(h, names)).transpose()?,
        to: keys.get("to").map(|h| host(h, names)).transpose()?,
        kind,
        hop: keys.number("hop")?.map(|h| h as u16),
        skip: keys.number("nth")?.map_or(0, |n| n.saturating_sub(1)),
        left: keys.number("count")?.unwrap_or(endless),
        chance,
    })
}

fn cable(name: &str, names: &dyn Names) -> Result<usize, String> {
    names.cable(name).ok_or_else(|| format!("no cable '{name}'"))
}

fn host(name: &str, names: &dyn Names) -> Result<usize, String> {
    names.host(name).ok_or_else(|| format!("no host '{name}'"))
}

fn number(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| format!("'{text}': a number wanted"))
}

/// `key=value` words.
struct Keys<'a>(Vec<(&'a str, &'a str)>);

impl<'a> Keys<'a> {
    fn read(words: &[&'a str], known: &[&str]) -> Result<Keys<'a>, String> {
        let read = |word: &&'a str| match word.split_once('=') {
            Some((key, value)) if known.contains(&key) => Ok((key, value)),
            _ => Err(format!("'{word}': one of {} with '=' and a value wanted", known.join(", "))),
        };
        words.iter().map(read).collect::<Result<_, _>>().map(Keys)
    }

    fn get(&self, key: &str) -> Option<&'a str> {
        self.0.iter().find(|(k, _)| *k == key).map(|(_, v)| *v)
    }

    fn number(&self, key: &str) -> Result<Option<u64>, String> {
        self.get(key).map(number).transpose()
    }

    fn time(&self, key: &str) -> Result<Option<Time>, String> {
        self.get(key).map(|t| time::parse(t).ok_or_else(|| format!("'{t}': a time such as 200ms wanted"))).transpose()
    }
}
