//! `shell`: guests joined by the virtual cable, and a prompt for each of them.

use std::io::{BufRead, IsTerminal, Write};
use std::time::Duration;

use crate::cache::Cache;
use crate::cli::Words;
use crate::error::{Error, Result};
use crate::guest::Guest;
use crate::lab::Lab;
use crate::modules::name_of;
use crate::run;
use crate::suite::system::host;
use crate::suite::tb;
use crate::tries::Nth;
use crate::vcable::Cable;

/// How long the guests may be used, and one command may run.
const DAY: Duration = Duration::from_secs(24 * 3600);

const HELP: &str = "\
  COMMAND            runs in the guest of the prompt
  GUEST              the prompt goes to that guest
  GUEST: COMMAND     runs in that guest; all: COMMAND in each
  cable: WORDS       to the virtual cable: stats, unplug CABLE, replug CABLE, drop frame nth=3, ...
  quit               judges the kernels' logs and ends
";

/// Boots, loads what was asked for, and reads commands to the end.
pub(crate) fn run(words: &Words) -> Result<()> {
    let cache = Cache::open()?;
    if let Some(system) = words.chosen_systems.first() {
        return whole(&cache, system);
    }
    let mut lab = Lab::new(&cache, &words.one_kernel(), &words.modules, &run::puts())?;
    lab.begin("shell", Nth::First)?;
    let (topology, names) = match words.hosts {
        1 => ("peer", &["a"][..]),
        2 => ("pair", &["a", "b"][..]),
        _ => ("triangle", &["a", "b", "c"][..]),
    };
    let cable = Cable::start(&lab, &["--topology", topology])?;
    let mut specs = Vec::new();
    for name in names {
        let mut spec = lab.guest(name);
        spec.cables.push(cable.socket(name));
        spec.deadline = DAY;
        specs.push(spec);
    }
    let guests = lab.boot_all(&specs.iter().collect::<Vec<_>>())?;
    let given: Vec<String> = words.modules.iter().map(|file| name_of(file)).collect();
    for guest in &guests {
        tb::load(guest)?;
        for module in given.iter().chain(&words.load) {
            guest.sh(&format!("modprobe {module}"))?;
        }
    }
    // Two hosts always find each other; in a triangle each has two peers, and a peer in software comes by itself.
    if words.hosts == 2 {
        guests.iter().try_for_each(tb::found)?;
    }
    println!("cable `{topology}`, guests {}; `help` tells the rest", names.join(", "));
    converse(&guests, &cable)?;
    lab.finish(guests)?;
    cable.finish()
}

/// The same with two whole systems.
fn whole(cache: &Cache, system: &str) -> Result<()> {
    let mut lab = Lab::system(cache, system, &run::puts())?;
    lab.begin("shell", Nth::First)?;
    let pair = host::pair(&mut lab, &[], |spec| spec.deadline = DAY)?;
    println!("cable `pair`, guests a, b; `help` tells the rest");
    converse(&pair.guests, &pair.cable)?;
    host::end(&mut lab, pair)
}

fn converse(guests: &[Guest], cable: &Cable) -> Result<()> {
    let tty = std::io::stdin().is_terminal();
    let mut at = 0;
    prompt(tty, guests, at);
    for line in std::io::stdin().lock().lines().map_while(std::result::Result::ok) {
        let line = line.trim();
        let (to, command) = line.split_once(": ").unwrap_or(("", line));
        match (to, command) {
            ("", "quit") => break,
            ("", "help") => print!("{HELP}"),
            ("", "") => {}
            ("cable", words) => match cable.tell(words) {
                Ok(answer) => println!("{answer}"),
                Err(error) => println!("{error}"),
            },
            ("all", command) => guests.iter().try_for_each(|guest| act(guest, command))?,
            _ => match guests.iter().position(|guest| guest.name() == to || (to.is_empty() && guest.name() == command))
            {
                Some(n) if to.is_empty() => at = n,
                Some(n) => act(&guests[n], command)?,
                None => act(&guests[at], line)?,
            },
        }
        prompt(tty, guests, at);
    }
    Ok(())
}

fn prompt(tty: bool, guests: &[Guest], at: usize) {
    if tty {
        print!("{}> ", guests[at].name());
        let _ = std::io::stdout().flush();
    }
}

/// Runs one command; only a guest that is gone ends the session.
fn act(guest: &Guest, command: &str) -> Result<()> {
    match guest.run(DAY, command) {
        Ok(said) => {
            print!("{}{}", said.out, said.err);
            if said.code != 0 {
                println!("({} ended with {})", guest.name(), said.code);
            }
            Ok(())
        }
        Err(error @ (Error::Gone { .. } | Error::Kernel { .. })) => Err(error),
        Err(error) => {
            println!("{error}");
            Ok(())
        }
    }
}
