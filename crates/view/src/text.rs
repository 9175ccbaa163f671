//! Text for people: ours, and what comes from elsewhere made harmless.

/// Most characters of a text from elsewhere that are shown.
pub const LONGEST: usize = 160;

/// A text of ours. All of them pass here, for a translation to be put in their place.
pub fn tr(text: &str) -> String {
    text.to_owned()
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

/// The same with a length of its own.
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
