//! Packets in words, as a protocol analyser shows them. Everything shown comes from a guest: nothing is trusted.

use std::fmt::Write as _;

use super::{Direction, What};
use crate::control::{Address, pdf, route, unseal};
use crate::peer::network::PROTOCOL as NETWORK;
use crate::xdomain::property::{Directory, Value};
use crate::xdomain::{Body, Message, discovery, type_name};

/// One line for what a record holds; `full_len` is its length before a trace cut it.
pub fn describe(what: &What<'_>, full_len: usize) -> String {
    match what {
        What::Event(text) => format!("* {}", printable(text)),
        What::Control { direction, pdf, bytes } => format!("{} {}", arrow(*direction), control(*pdf, bytes)),
        What::Frame { direction, hop, ring, sof, eof, damaged, bytes } => {
            let damaged = if *damaged { " DAMAGED" } else { "" };
            let known = frame(*sof, *eof, bytes, full_len);
            format!(
                "{} FRAME hop {hop} ring {ring} sof {sof} eof {eof} {full_len} bytes{damaged}{known}",
                arrow(*direction)
            )
        }
    }
}

/// From the driver, to the driver.
fn arrow(direction: Direction) -> char {
    if direction == Direction::Out { '>' } else { '<' }
}

/// Text of a guest without what would move a terminal's cursor.
fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '.' } else { c }).collect()
}

fn hex(words: &[u32]) -> String {
    words.iter().fold(String::new(), |mut all, w| {
        let _ = write!(all, " {w:08x}");
        all
    })
}

/// A control packet with its CRC.
pub fn control(kind: u8, bytes: &[u8]) -> String {
    let words = match unseal(bytes) {
        Ok(words) => words,
        Err(error) => return format!("PDF {kind}: {error}"),
    };
    let route = route(&words);
    let reply = words.first().is_some_and(|w| w >> 31 == 1);
    match kind {
        pdf::READ | pdf::WRITE => {
            let name = if kind == pdf::READ { "READ " } else { "WRITE" };
            let (Some(word), data) = (words.get(2), words.get(3..).unwrap_or(&[])) else {
                return format!("{name} cut short:{}", hex(&words));
            };
            let at = Address::decode(*word);
            let what = if reply { "done " } else { "" };
            format!(
                "{name} {what}route {route:x} adapter {} {} {:#04x}+{} seq {}{}",
                at.adapter,
                at.space.name(),
                at.offset,
                at.len,
                at.seq,
                hex(data)
            )
        }
        pdf::ERROR => {
            let word = words.get(2).copied().unwrap_or(0);
            let name = match word & 0xff {
                0 => "not connected",
                1 => "link error",
                2 => "invalid space",
                4 => "no such adapter",
                7 => "hot plug acknowledged",
                8 => "loop",
                15 => "locked",
                _ => "unknown",
            };
            format!("ERROR route {route:x} {} ({name}) adapter {}", word & 0xff, word >> 8 & 0x3f)
        }
        pdf::EVENT => {
            let word = words.get(2).copied().unwrap_or(0);
            let kind = if word >> 31 == 1 { "unplug" } else { "plug" };
            format!("EVENT route {route:x} {kind} adapter {}", word & 0x3f)
        }
        pdf::XDOMAIN_REQUEST => format!("XDOMAIN request route {route:x} {}", xdomain(&words)),
        pdf::XDOMAIN_RESPONSE => format!("XDOMAIN response route {route:x} {}", xdomain(&words)),
        _ => format!("PDF {kind}{}", hex(&words)),
    }
}

fn xdomain(words: &[u32]) -> String {
    let Some(message) = Message::decode(words) else {
        return format!("cut short:{}", hex(words));
    };
    let text = if message.protocol == discovery() {
        discovery_text(&message)
    } else if message.protocol == NETWORK {
        network(&message.words)
    } else {
        format!("protocol {}{}", message.protocol, hex(&message.words))
    };
    format!("seq {} {text}", message.seq)
}

fn discovery_text(message: &Message) -> String {
    let kind = message.kind().unwrap_or(0);
    let name = type_name(kind);
    match message.body() {
        None => format!("{name} type {kind}{}", hex(&message.words)),
        Some(Body::UuidResponse { source, route }) => format!("{name} {source} route {route:x}"),
        Some(Body::PropertiesRequest { source, target, offset }) => {
            format!("{name} of {target} by {source} from word {offset}")
        }
        Some(Body::PropertiesResponse { source, offset, total, generation, data, .. }) => {
            let mut text =
                format!("{name} of {source} generation {generation} words {offset}+{} of {total}", data.len());
            if offset == 0
                && data.len() >= usize::from(total)
                && let Ok(directory) = Directory::parse(&data[..total.into()])
            {
                let _ = write!(text, " {}", properties(&directory));
            }
            text
        }
        Some(Body::Changed { source }) => format!("{name} of {source}"),
        Some(Body::Error { code }) => {
            let why = ["success", "unknown packet", "unknown domain", "not supported", "not ready"];
            format!("{name} {code} ({})", why.get(code as usize).unwrap_or(&"unknown"))
        }
        Some(Body::LinkStatusResponse { supported_width, target_width, supported_speed, target_speed, .. }) => {
            format!(
                "{name} width {supported_width:#x} target {target_width:#x} speed {supported_speed:#x} target {target_speed:#x}"
            )
        }
        Some(Body::LinkChangeRequest { width, speed }) => format!("{name} width {width:#x} speed {speed:#x}"),
        Some(Body::LinkChangeResponse { status }) => format!("{name} status {status}"),
        Some(_) => name.to_owned(),
    }
}

/// A directory on one line.
pub fn properties(directory: &Directory) -> String {
    let one = |(key, value): &(String, Value)| {
        let value = match value {
            Value::Number(n) => format!("{n:#x}"),
            Value::Text(text) => format!("'{}'", printable(text)),
            Value::Data(words) => format!("data{}", hex(words)),
            Value::Directory(inner) => properties(inner),
            Value::Unknown(kind) => format!("type {kind:#x}"),
        };
        format!("{}={value}", printable(key))
    };
    format!("{{{}}}", directory.entries.iter().map(one).collect::<Vec<_>>().join(" "))
}

/// Messages of USB4NET: two UUIDs, a type, a number, and what the type adds.
fn network(words: &[u32]) -> String {
    let at = |i: usize| words.get(i).copied().unwrap_or(0);
    match words.get(8) {
        Some(0) => format!("usb4net login version {} transmit HopID {}", at(10), at(11)),
        Some(1) => format!("usb4net login-response status {}", at(10)),
        Some(2) => "usb4net logout".to_owned(),
        Some(3) => format!("usb4net status {}", at(10)),
        _ => format!("usb4net{}", hex(words)),
    }
}

/// What a frame is to the services that are known.
fn frame(sof: u8, eof: u8, bytes: &[u8], full_len: usize) -> String {
    // Twelve bytes of USB4NET: size, index, number of the packet, frames of the packet, little-endian.
    if let (1, 2, Some(head)) = (sof, eof, bytes.first_chunk::<12>()) {
        let word = |i: usize| u32::from_le_bytes([head[i], head[i + 1], head[i + 2], head[i + 3]]);
        let half = |i: usize| u16::from_le_bytes([head[i], head[i + 1]]);
        let (size, index, id, count) = (word(0), half(4), half(6), word(8));
        if size as usize + 12 == full_len && u32::from(index) < count {
            return format!(" usb4net packet {id} frame {} of {count}, {size} bytes", index + 1);
        }
    }
    if (sof, eof, full_len) == (1, 3, 256) {
        return " usb4stream close".to_owned();
    }
    let head = bytes.iter().take(16).fold(String::new(), |mut all, b| {
        let _ = write!(all, "{b:02x}");
        all
    });
    format!(" {head}")
}

#[cfg(test)]
mod tests;
