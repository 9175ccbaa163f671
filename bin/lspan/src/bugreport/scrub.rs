//! Takes secrets out of a text: those of this user that are known, and whatever looks like one.

use std::path::PathBuf;

use linkspan_fabric::keys;

const REMOVED: &str = "[removed]";

/// Words in the name of a value that is nobody's business.
const WORDS: [&str; 13] = [
    "password",
    "passwd",
    "passphrase",
    "secret",
    "token",
    "apikey",
    "api-key",
    "_key",
    "-key",
    "credential",
    "cookie",
    "bearer",
    "psk",
];

/// Names that contain such a word, or that of a key, and hold none: a file's name, a mode.
const HARMLESS: [&str; 2] = ["LINKSPAN_PSK_FILE", "LINKSPAN_PSK_MODE"];

/// Lines of the machine's tree that have long words without being keys: names of modules for devices.
const NAMED: &str = "/sys/";

/// And the one with addresses of 32 digits.
const ADDRESSES: &str = "/proc/net/ipv6_route\t";

/// Digits or letters in a row that are taken for a key: 128 bits as hexadecimal digits.
const LONG: usize = 32;

/// What is taken out.
#[derive(Debug, Default)]
pub(super) struct Scrub {
    /// Contents of this user's key files, each line.
    known: Vec<String>,
    /// The home folder, which has the user's name.
    home: Option<String>,
}

impl Scrub {
    /// Knows this user's keys, so that they are found wherever they are.
    pub(super) fn of_this_user() -> Scrub {
        let var = |name: &str| std::env::var_os(name);
        let mut files: Vec<PathBuf> = var("LINKSPAN_PSK_FILE").map(PathBuf::from).into_iter().collect();
        if let Ok(dir) = keys::dir(&var) {
            files.extend(std::fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path()));
        }
        let mut known = Vec::new();
        for file in files.iter().take(64) {
            let small = std::fs::metadata(file).is_ok_and(|meta| meta.is_file() && meta.len() < 1 << 16);
            let text = if small { std::fs::read_to_string(file).unwrap_or_default() } else { String::new() };
            known.extend(text.split_whitespace().filter(|word| word.len() >= 16).map(str::to_owned));
        }
        let home = var("HOME").map(|home| home.to_string_lossy().into_owned()).filter(|home| home.len() > 1);
        Scrub { known, home }
    }

    /// The text without them.
    pub(super) fn text(&self, text: &str) -> String {
        let mut clean = String::with_capacity(text.len());
        let mut pem = false;
        for line in text.split_inclusive('\n') {
            if line.contains("-----BEGIN") {
                pem = true;
                clean.push_str(&format!("{REMOVED}\n"));
            }
            if !pem {
                clean.push_str(&self.line(line));
            }
            pem &= !line.contains("-----END");
        }
        clean
    }

    fn line(&self, line: &str) -> String {
        let mut line = line.to_owned();
        for secret in &self.known {
            line = line.replace(secret.as_str(), REMOVED);
        }
        if let Some(home) = &self.home {
            line = line.replace(&format!("{home}/"), "~/");
        }
        let line = login(&values(&line));
        if line.starts_with(ADDRESSES) {
            return line;
        }
        let line = digits(&line);
        if line.starts_with(NAMED) { line } else { mixed(&line) }
    }
}

/// Values behind a name that has one of the words in it: `token=x`, `"api_key": "x"`, `--password x`, and in a row of JSON `"name": "X_TOKEN",
/// "value": ...` on the next line is caught by its form alone.
fn values(line: &str) -> String {
    let mut lower = line.to_ascii_lowercase();
    for name in HARMLESS {
        lower = lower.replace(&name.to_ascii_lowercase(), &"-".repeat(name.len()));
    }
    let mut cut: Option<usize> = None;
    for word in WORDS {
        for (at, _) in lower.match_indices(word) {
            // Behind the rest of the name and what divides it from its value.
            let rest = &line[at + word.len()..];
            let name = rest.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_' || c == '-')).unwrap_or(rest.len());
            let value = rest[name..].trim_start_matches(['=', ':', ' ', '"', '\'', '\t']);
            let from = line.len() - value.len();
            let divider = &line[at + word.len() + name..from];
            // A blank divides an option from its value, and otherwise words of a sentence.
            let option = line[..at].rsplit(char::is_whitespace).next().is_some_and(|head| head.starts_with("--"));
            let divides =
                divider.contains(['=', ':', '"', '\'']) || !divider.is_empty() && (option || word == "bearer");
            if divides && !value.trim().is_empty() {
                cut = Some(cut.map_or(from, |old| old.min(from)));
            }
        }
    }
    match cut {
        Some(at) if line.is_char_boundary(at) => {
            // A row of JSON stays one.
            let end = line.trim_end();
            let tail = end.strip_suffix(',').map_or("", |_| ",");
            let quote = if end.trim_end_matches(',').ends_with('"') { "\"" } else { "" };
            let newline = if line.ends_with('\n') { "\n" } else { "" };
            format!("{}{REMOVED}{quote}{tail}{newline}", &line[..at])
        }
        _ => line.to_owned(),
    }
}

/// Names and passwords in front of a host.
fn login(line: &str) -> String {
    let mut clean = String::new();
    let mut rest = line;
    while let Some(at) = rest.find("://") {
        let (before, behind) = rest.split_at(at + 3);
        clean.push_str(before);
        let end = behind.find(|c: char| c.is_whitespace() || matches!(c, '/' | '"' | '\'')).unwrap_or(behind.len());
        match behind[..end].rfind('@') {
            Some(sign) => {
                clean.push_str(REMOVED);
                rest = &behind[sign..];
            }
            None => rest = behind,
        }
    }
    clean + rest
}

/// Rows of hexadecimal digits that are too long to be a number, wherever they stand.
fn digits(line: &str) -> String {
    parts(line, |c| c.is_ascii_hexdigit(), |row| row.len() >= LONG)
}

/// Words that are too long to be a name: 40 characters of base64 with digits and letters of both cases.
fn mixed(line: &str) -> String {
    let word = |c: char| c.is_ascii_alphanumeric() || matches!(c, '+' | '=' | '_');
    let key = |word: &str| {
        let has = |kind: fn(&u8) -> bool| word.bytes().any(|byte| kind(&byte));
        word.len() >= 40 && has(u8::is_ascii_digit) && has(u8::is_ascii_uppercase) && has(u8::is_ascii_lowercase)
    };
    // In the alphabet of base64 paths are words too; a key of 32 bytes has 43 characters and one that fills up.
    let sealed = |word: &str| word.len() == 44 && word.ends_with('=');
    let line = parts(line, |c| word(c) || matches!(c, '/' | '-'), sealed);
    parts(&line, word, key)
}

/// The line without those longest rows of such characters that are secret.
fn parts(line: &str, of: impl Fn(char) -> bool, secret: impl Fn(&str) -> bool) -> String {
    let (mut clean, mut rest) = (String::new(), line);
    while let Some(at) = rest.find(&of) {
        let (before, from) = rest.split_at(at);
        let (row, behind) = from.split_at(from.find(|c| !of(c)).unwrap_or(from.len()));
        clean.push_str(before);
        clean.push_str(if secret(row) { REMOVED } else { row });
        rest = behind;
    }
    clean + rest
}

#[cfg(test)]
mod tests;
