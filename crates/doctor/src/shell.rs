//! Words of command lines that somebody types.

/// A word as a shell takes it whole: as it is where nothing in it means anything to a shell, else in quotes.
pub(crate) fn word(text: &str) -> String {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"_-./:=@,+%".contains(&b);
    if !text.is_empty() && text.bytes().all(plain) {
        return text.to_owned();
    }
    format!("'{}'", text.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests;
