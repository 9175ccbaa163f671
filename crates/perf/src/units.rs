//! Sizes, times and rates as people write and read them.

use std::time::Duration;

/// Largest message of a test.
pub const SIZE_MAX: u64 = 1 << 30;

/// Longest duration or timeout of a test: one day, far below what nanoseconds in 64 bits hold.
pub const TIME_MAX: Duration = Duration::from_secs(24 * 3600);

/// Longest pace of a jitter test: a server ends sessions in which nothing happens for a minute.
pub const INTERVAL_MAX: Duration = Duration::from_secs(30);

/// A value that cannot be understood; the text says what would be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BadValue {
    /// Not a size.
    #[error("LS0711 {0:?} is not a size; write bytes as in 8, 64K, 1.5M or 1G (binary units)")]
    Size(String),
    /// A size out of range.
    #[error("LS0712 size {0:?} is out of range; sizes go from 1 to 1G")]
    SizeRange(String),
    /// A list or range of sizes that is none.
    #[error(
        "LS0713 {text:?} is not a list of sizes: {why}; write 8,64K,1M or a range 8..1M with a factor as in 8..1M:4"
    )]
    Sizes {
        /// The text.
        text: String,
        /// What is wrong.
        why: String,
    },
    /// Not a time.
    #[error("LS0714 {0:?} is not a time; write a number and ns, us, ms, s, m or h, as in 500ms or 10s")]
    Time(String),
    /// A time out of range.
    #[error("LS0715 time {0:?} is out of range; times go from 1ns to {1}")]
    TimeRange(String, &'static str),
}

/// Parses one size: a number with an optional binary unit K, M or G (also KiB, KB, k, ...).
///
/// # Errors
/// [`BadValue::Size`]: not a size. [`BadValue::SizeRange`]: not within 1 byte to 1 GiB.
pub fn size(text: &str) -> Result<u64, BadValue> {
    let bad = || BadValue::Size(text.to_owned());
    let (number, unit) = split(text).ok_or_else(bad)?;
    let shift = match &*unit.to_ascii_lowercase() {
        "" | "b" => 0,
        "k" | "kb" | "kib" => 10,
        "m" | "mb" | "mib" => 20,
        "g" | "gb" | "gib" => 30,
        _ => return Err(bad()),
    };
    let bytes = scaled(number, 1 << shift).ok_or_else(bad)?;
    if !(1..=u128::from(SIZE_MAX)).contains(&bytes) {
        return Err(BadValue::SizeRange(text.to_owned()));
    }
    Ok(bytes as u64)
}

/// Parses a list of sizes and ranges: `8,64K,1M..64M,1K..1M:4`. A range multiplies by 2, or by the factor after `:`.
///
/// # Errors
/// [`BadValue::Size`], [`BadValue::SizeRange`], [`BadValue::Sizes`], each with the part at fault.
pub fn sizes(text: &str) -> Result<Vec<u64>, BadValue> {
    let bad = |why: &str| BadValue::Sizes { text: text.to_owned(), why: why.to_owned() };
    let mut list = Vec::new();
    for part in text.split(',').map(str::trim) {
        if part.is_empty() {
            return Err(bad("a part of it is empty"));
        }
        let Some((first, rest)) = part.split_once("..") else {
            list.push(size(part)?);
            continue;
        };
        let (last, factor) = match rest.split_once(':') {
            Some((last, factor)) => (last, factor.parse::<u64>().ok().filter(|&factor| (2..=1024).contains(&factor))),
            None => (rest, Some(2)),
        };
        let factor = factor.ok_or_else(|| bad("the factor after `:` is not a whole number from 2 to 1024"))?;
        let (mut next, last) = (size(first)?, size(last)?);
        if next > last {
            return Err(bad("the range ends before it begins"));
        }
        while next <= last {
            list.push(next);
            next *= factor;
        }
    }
    Ok(list)
}

/// Parses a time: a number and ns, us, ms, s, m or h. A bare number is seconds.
///
/// # Errors
/// [`BadValue::Time`]: not a time. [`BadValue::TimeRange`]: not within 1 ns to 24 h.
pub fn time(text: &str) -> Result<Duration, BadValue> {
    let bad = || BadValue::Time(text.to_owned());
    let (number, unit) = split(text).ok_or_else(bad)?;
    let ns: u64 = match unit {
        "ns" => 1,
        "us" | "µs" => 1_000,
        "ms" => 1_000_000,
        "s" | "" => 1_000_000_000,
        "m" | "min" => 60 * 1_000_000_000,
        "h" => 3600 * 1_000_000_000,
        _ => return Err(bad()),
    };
    let ns = scaled(number, ns).ok_or_else(bad)?;
    if !(1..=TIME_MAX.as_nanos()).contains(&ns) {
        return Err(BadValue::TimeRange(text.to_owned(), "24h"));
    }
    Ok(Duration::from_nanos(ns as u64))
}

/// Parses the pace of a jitter test, as [`time`].
///
/// # Errors
/// As [`time`]; [`BadValue::TimeRange`] also above 30 s.
pub fn interval(text: &str) -> Result<Duration, BadValue> {
    let interval = time(text)?;
    if interval > INTERVAL_MAX { Err(BadValue::TimeRange(text.to_owned(), "30s")) } else { Ok(interval) }
}

/// Splits a number from the unit behind it.
fn split(text: &str) -> Option<(&str, &str)> {
    let text = text.trim();
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    (end > 0).then(|| (&text[..end], text[end..].trim_start()))
}

/// `number * unit` for a decimal number of at most nine places behind the point.
fn scaled(number: &str, unit: u64) -> Option<u128> {
    let (whole, part) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() || whole.len() > 18 || part.len() > 9 || part.contains('.') {
        return None;
    }
    let whole: u128 = whole.parse().ok()?;
    let places = 10u128.pow(part.len() as u32);
    let part: u128 = if part.is_empty() { 0 } else { part.parse().ok()? };
    Some(whole * u128::from(unit) + part * u128::from(unit) / places)
}

/// A size as short as it can be said exactly: `64K`, `1M`, `1000`.
pub fn show_size(bytes: u64) -> String {
    for (shift, unit) in [(30, "G"), (20, "M"), (10, "K")] {
        if bytes >= 1 << shift && bytes.is_multiple_of(1 << shift) {
            return format!("{}{unit}", bytes >> shift);
        }
    }
    bytes.to_string()
}

/// Nanoseconds as microseconds with three significant places or so.
pub fn show_us(ns: f64) -> String {
    let us = ns / 1000.0;
    match us {
        us if us < 10.0 => format!("{us:.3}"),
        us if us < 100.0 => format!("{us:.2}"),
        us if us < 1000.0 => format!("{us:.1}"),
        us => format!("{us:.0}"),
    }
}

/// Bytes in a time as decimal gigabytes per second.
pub fn gbyte_s(bytes: u64, ns: u64) -> f64 {
    if ns == 0 { 0.0 } else { bytes as f64 / ns as f64 }
}

/// Bytes in a time as decimal gigabits per second.
pub fn gbit_s(bytes: u64, ns: u64) -> f64 {
    gbyte_s(bytes, ns) * 8.0
}

#[cfg(test)]
mod tests;
