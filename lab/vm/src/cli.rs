//! The words of the command line.

use std::path::PathBuf;

use crate::cache::{KERNELS, SYSTEMS};

/// What was asked for.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Words {
    /// The first word.
    pub(crate) command: String,
    /// Words without a dash.
    pub(crate) names: Vec<String>,
    /// `--kernel`.
    pub(crate) chosen: Vec<String>,
    /// `--sys`.
    pub(crate) chosen_systems: Vec<String>,
    /// `--module`.
    pub(crate) modules: Vec<PathBuf>,
    /// `--load`.
    pub(crate) load: Vec<String>,
    /// `--hosts`.
    pub(crate) hosts: usize,
    /// `--once`.
    pub(crate) once: bool,
    /// `--seed`.
    pub(crate) seed: u64,
}

impl Words {
    /// Reads them; `None` where they make no sense.
    pub(crate) fn read(args: &[String]) -> Option<Words> {
        let (command, rest) = args.split_first()?;
        let mut words = Words { command: command.clone(), hosts: 2, seed: 1, ..Words::default() };
        if matches!(command.as_str(), "--help" | "-h") {
            words.command = "help".to_owned();
        }
        let mut rest = rest.iter();
        while let Some(word) = rest.next() {
            match word.as_str() {
                "--kernel" => words.chosen.push(rest.next()?.clone()),
                "--sys" => words.chosen_systems.push(rest.next()?.clone()),
                "--module" => words.modules.push(PathBuf::from(rest.next()?)),
                "--load" => words.load.push(rest.next()?.clone()),
                "--hosts" => words.hosts = rest.next()?.parse().ok().filter(|n| (1..=3).contains(n))?,
                "--seed" => words.seed = rest.next()?.parse().ok()?,
                "--once" => words.once = true,
                word if word.starts_with('-') => return None,
                word => words.names.push(word.to_owned()),
            }
        }
        Some(words)
    }

    /// The kernels asked for; all where neither kernels nor systems are.
    pub(crate) fn kernels(&self) -> Vec<String> {
        if self.chosen.is_empty() && self.chosen_systems.is_empty() {
            return KERNELS.iter().map(|kernel| kernel.name.to_owned()).collect();
        }
        self.chosen.clone()
    }

    /// The systems asked for; all where neither kernels nor systems are.
    pub(crate) fn systems(&self) -> Vec<String> {
        if self.chosen.is_empty() && self.chosen_systems.is_empty() {
            return SYSTEMS.iter().map(|system| system.name.to_owned()).collect();
        }
        self.chosen_systems.clone()
    }

    /// The one kernel of commands that take one: the newest where none is named.
    pub(crate) fn one_kernel(&self) -> String {
        self.chosen.first().cloned().unwrap_or_else(|| KERNELS[0].name.to_owned())
    }
}

#[cfg(test)]
mod tests;
