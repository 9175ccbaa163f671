//! The configuration: `linkspand.toml`, then `linkspand.d/*.toml` in the order of their names.

use std::fmt::Write as _;
use std::io;
use std::path::{Path, PathBuf};

use serde::Deserialize;

/// Where it is.
pub(crate) const FOLDER: &str = "/etc/linkspan";

/// Why it cannot be had.
#[derive(Debug)]
pub(crate) enum ConfigError {
    /// A file cannot be read.
    Read(PathBuf, io::Error),
    /// It is not TOML, or has a key or a value that there is none of.
    Toml(PathBuf, Box<toml::de::Error>),
    /// A number out of its range.
    Range(PathBuf, &'static str, u64, std::ops::RangeInclusive<u64>),
    /// A path that depends on where the service was started.
    Relative(PathBuf, PathBuf),
}

impl std::fmt::Display for ConfigError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ConfigError::Read(file, error) => write!(f, "LS3231 {} cannot be read: {error}", file.display()),
            ConfigError::Toml(file, error) => {
                write!(f, "LS3232 {} cannot be understood: {}", file.display(), error.to_string().trim_end())
            }
            ConfigError::Range(file, key, value, range) => {
                let (least, most) = (range.start(), range.end());
                write!(f, "LS3233 {}: {key} is {value}, and must be {least} to {most}", file.display())
            }
            ConfigError::Relative(file, path) => {
                write!(f, "LS3234 {}: statistics is {}, and must be an absolute path", file.display(), path.display())
            }
        }
    }
}

/// One file.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    events: Option<u64>,
    interval_s: Option<u64>,
    statistics: Option<PathBuf>,
}

/// A value and the file that it is from; `None`: nobody has set it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Set<T> {
    value: T,
    origin: Option<PathBuf>,
}

impl<T> Set<T> {
    fn default(value: T) -> Set<T> {
        Set { value, origin: None }
    }

    fn to(&mut self, value: Option<T>, file: &Path) {
        if let Some(value) = value {
            *self = Set { value, origin: Some(file.to_owned()) };
        }
    }
}

/// What can be configured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Config {
    events: Set<u64>,
    interval_s: Set<u64>,
    statistics: Set<PathBuf>,
}

/// Events that are kept; one takes about 500 bytes.
const EVENTS: std::ops::RangeInclusive<u64> = 1..=65_536;

/// Seconds between two looks at the statistics.
const INTERVAL_S: std::ops::RangeInclusive<u64> = 1..=3600;

impl Default for Config {
    fn default() -> Config {
        Config {
            events: Set::default(1024),
            interval_s: Set::default(2),
            statistics: Set::default("/run/linkspan/stats".into()),
        }
    }
}

impl Config {
    /// Reads the files in this folder. None are needed, nor is the usual folder.
    pub(crate) fn read(folder: &Path) -> Result<Config, ConfigError> {
        if folder != Path::new(FOLDER) {
            std::fs::metadata(folder).map_err(|error| ConfigError::Read(folder.to_owned(), error))?;
        }
        let mut config = Config::default();
        let parts = folder.join("linkspand.d");
        let mut files = vec![folder.join("linkspand.toml")];
        match std::fs::read_dir(&parts) {
            Ok(entries) => {
                let paths = entries.flatten().map(|entry| entry.path());
                let mut more: Vec<PathBuf> =
                    paths.filter(|path| path.extension().is_some_and(|e| e == "toml")).collect();
                more.sort();
                files.extend(more);
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(ConfigError::Read(parts, error)),
        }
        for file in files {
            match std::fs::read_to_string(&file) {
                Ok(text) => config.add(&file, &text)?,
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(ConfigError::Read(file, error)),
            }
        }
        Ok(config)
    }

    fn add(&mut self, file: &Path, text: &str) -> Result<(), ConfigError> {
        let read: File = toml::from_str(text).map_err(|error| ConfigError::Toml(file.to_owned(), Box::new(error)))?;
        for (key, value, range) in [("events", read.events, EVENTS), ("interval_s", read.interval_s, INTERVAL_S)] {
            if let Some(value) = value.filter(|value| !range.contains(value)) {
                return Err(ConfigError::Range(file.to_owned(), key, value, range));
            }
        }
        if let Some(path) = read.statistics.as_ref().filter(|path| !path.is_absolute()) {
            return Err(ConfigError::Relative(file.to_owned(), path.clone()));
        }
        self.events.to(read.events, file);
        self.interval_s.to(read.interval_s, file);
        self.statistics.to(read.statistics, file);
        Ok(())
    }

    pub(crate) fn events(&self) -> usize {
        self.events.value as usize
    }

    pub(crate) fn interval(&self) -> std::time::Duration {
        std::time::Duration::from_secs(self.interval_s.value)
    }

    pub(crate) fn statistics(&self) -> &Path {
        &self.statistics.value
    }

    /// As a file would have it; with `origin`, where each value comes from.
    pub(crate) fn text(&self, origin: bool) -> String {
        let quoted = toml::Value::String(self.statistics.value.display().to_string()).to_string();
        let rows = [
            ("events", self.events.value.to_string(), &self.events.origin),
            ("interval_s", self.interval_s.value.to_string(), &self.interval_s.origin),
            ("statistics", quoted, &self.statistics.origin),
        ];
        let mut text = String::new();
        for (key, value, from) in rows {
            let from = match (origin, from) {
                (false, _) => String::new(),
                (true, None) => " # default".to_owned(),
                (true, Some(file)) => format!(" # {}", file.display()),
            };
            let _ = writeln!(text, "{key} = {value}{from}");
        }
        text
    }
}

#[cfg(test)]
mod tests;
