//! Text for people: ours, and what comes from elsewhere made harmless.

use std::path::Path;
use std::sync::OnceLock;

use gettextrs::{bind_textdomain_codeset, bindtextdomain, gettext, textdomain};

/// Most characters of a text from elsewhere that are shown.
pub const LONGEST: usize = 160;

/// Set where there are catalogues.
static TRANSLATED: OnceLock<()> = OnceLock::new();

/// Has texts of ours in the language of the program's locale from now on: by gettext, from the catalogues of this name in `share/locale`
/// beside the program's folder, as in `/usr/bin` and `/usr/share/locale`. Texts are in English without it, and where it fails.
pub fn set_catalogues(catalogue: &str) {
    let program = std::env::current_exe().ok();
    if let Some(prefix) = program.as_deref().and_then(Path::parent).and_then(Path::parent) {
        let _ = bindtextdomain(catalogue, prefix.join("share/locale"));
    }
    let _ = bind_textdomain_codeset(catalogue, "UTF-8");
    if textdomain(catalogue).is_ok() {
        let _ = TRANSLATED.set(());
    }
}

/// A text of ours, in the language of the program. All of them pass here, and stand in the catalogues of `bin/linkspan-desktop/po`.
pub fn tr(text: &str) -> String {
    // Of the empty text a catalogue has its own head.
    if TRANSLATED.get().is_some() && !text.is_empty() { gettext(text) } else { text.to_owned() }
}

/// A text of ours with each `{name}` replaced. A value is never looked at for further names.
pub(crate) fn fill(text: &str, values: &[(&str, &str)]) -> String {
    let (mut out, mut rest) = (String::new(), text);
    while let Some((before, after)) = rest.split_once('{') {
        out.push_str(before);
        let Some((name, after)) = after.split_once('}') else {
            out.push('{');
            rest = after;
            continue;
        };
        out.push_str(values.iter().find(|(known, _)| *known == name).map_or("", |(_, value)| value));
        rest = after;
    }
    out + rest
}

/// A text from elsewhere as it may be shown: one line of at most [`LONGEST`] characters, without controls, and so set apart that its
/// direction of writing changes nothing around it (Unicode Bidirectional Algorithm, UAX #9: FSI and PDI).
pub fn shown(text: &str) -> String {
    cut(text, LONGEST)
}

/// An error of a service in full: its way out stands at the end.
pub(crate) fn sentence(text: &str) -> String {
    cut(text, 1000)
}

/// The same as [`shown`] with a length of its own.
pub(crate) fn cut(text: &str, longest: usize) -> String {
    let steers =
        |c: char| matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{61c}');
    let mut clean = String::new();
    let mut characters = text.chars().filter(|c| !steers(*c));
    for c in characters.by_ref().take(longest) {
        clean.push(if c.is_control() || matches!(c, '\u{2028}' | '\u{2029}') { ' ' } else { c });
    }
    if characters.next().is_some() {
        clean.push('…');
    }
    let clean = clean.trim();
    if clean.is_ascii() { clean.to_owned() } else { format!("\u{2068}{clean}\u{2069}") }
}

/// A rate on the line.
pub(crate) fn gbit(mbps: u64) -> String {
    let (whole, tenth) = (mbps / 1000, mbps % 1000 / 100);
    if tenth == 0 { format!("{whole} Gb/s") } else { format!("{whole}.{tenth} Gb/s") }
}

/// A rate of payload, in units of 10^6 or 10^9 bytes.
pub(crate) fn bytes_rate(bytes_s: f64) -> String {
    if bytes_s >= 1e9 { format!("{:.2} GB/s", bytes_s / 1e9) } else { format!("{:.1} MB/s", bytes_s / 1e6) }
}

/// A number of bytes, in units of 10^3.
pub(crate) fn bytes(n: u64) -> String {
    match n {
        0..1000 => format!("{n} B"),
        1000..1_000_000 => format!("{:.1} kB", n as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.1} MB", n as f64 / 1e6),
        _ => format!("{:.2} GB", n as f64 / 1e9),
    }
}

/// The size of a message, in units of 1024 where it is one of them.
pub(crate) fn size(n: u64) -> String {
    const UNITS: [(u64, &str); 3] = [(1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
    let whole = UNITS.iter().find(|(unit, _)| n >= *unit && n.is_multiple_of(*unit));
    whole.map_or_else(|| format!("{n} B"), |(unit, name)| format!("{} {name}", n / unit))
}

/// How long ago that is, coarsely: it changes once a minute.
pub(crate) fn ago(seconds: u64) -> String {
    let (text, n) = match seconds {
        0..60 => return tr("just now"),
        60..3600 => (tr("{n} min ago"), seconds / 60),
        3600..86_400 => (tr("{n} h ago"), seconds / 3600),
        _ => (tr("{n} d ago"), seconds / 86_400),
    };
    fill(&text, &[("n", &n.to_string())])
}
