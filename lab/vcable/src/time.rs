//! Virtual time: nanoseconds since the world began.

/// Nanoseconds since the world began. The server maps it to the monotonic clock, tests step it by hand.
pub type Time = u64;

/// One microsecond.
pub const US: Time = 1_000;
/// One millisecond.
pub const MS: Time = 1_000_000;
/// One second.
pub const SEC: Time = 1_000_000_000;

/// A time as seconds and microseconds, as it appears in traces.
pub fn display(t: Time) -> String {
    format!("{}.{:06}", t / SEC, t % SEC / US)
}

/// Reads `10ns`, `5us`, `20ms`, `3s`; a bare number is milliseconds.
pub fn parse(text: &str) -> Option<Time> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let number: u64 = text.get(..digits)?.parse().ok()?;
    let unit = match &text[digits..] {
        "ns" => 1,
        "us" => US,
        "ms" | "" => MS,
        "s" => SEC,
        _ => return None,
    };
    number.checked_mul(unit)
}
