//! Generic netlink messages: written attribute by attribute, read without trust in any length.

/// `struct nlmsghdr`: length u32, type u16, flags u16, sequence u32, port u32. Then `struct genlmsghdr`: command, version,
/// two bytes of zero.
const HEAD: usize = 16;
const GENERIC: usize = 4;

/// Bit of an attribute's type that says that attributes are inside (`NLA_F_NESTED`), and the bits that are not its number.
const NESTED: u16 = 1 << 15;
const NUMBER: u16 = 0x3fff;

/// `NLM_F_REQUEST`, `NLM_F_ACK`, `NLM_F_DUMP`.
pub(crate) const REQUEST: u16 = 1;
pub(crate) const ACK: u16 = 4;
pub(crate) const DUMP: u16 = 0x300;

/// `NLMSG_ERROR`, `NLMSG_DONE`.
pub(crate) const ERROR: u16 = 2;
pub(crate) const DONE: u16 = 3;

/// Flags of an error message: the request is not repeated in it, attributes follow.
const CAPPED: u16 = 0x100;
const TEXTS: u16 = 0x200;
/// `NLMSGERR_ATTR_MSG`.
const TEXT: u16 = 1;

/// A message that no kernel sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("LS1330 a netlink message of the kernel cannot be read ({0}); this kernel is newer than we know")]
pub struct BadMessage(pub(crate) &'static str);

/// A request being written.
#[derive(Clone, Debug)]
pub(crate) struct Request(Vec<u8>);

impl Request {
    pub(crate) fn new(family: u16, flags: u16, command: u8, version: u8) -> Request {
        let mut bytes = vec![0; 4];
        bytes.extend_from_slice(&family.to_ne_bytes());
        bytes.extend_from_slice(&(REQUEST | flags).to_ne_bytes());
        bytes.extend_from_slice(&[0; 8]);
        bytes.extend_from_slice(&[command, version, 0, 0]);
        Request(bytes)
    }

    pub(crate) fn bytes(mut self, kind: u16, value: &[u8]) -> Request {
        // Attributes here are names, numbers and lists of queues: far below 64 KiB.
        let len = (value.len() + 4) as u16;
        self.0.extend_from_slice(&len.to_ne_bytes());
        self.0.extend_from_slice(&kind.to_ne_bytes());
        self.0.extend_from_slice(value);
        self.0.resize(self.0.len().next_multiple_of(4), 0);
        self
    }

    pub(crate) fn u32(self, kind: u16, value: u32) -> Request {
        self.bytes(kind, &value.to_ne_bytes())
    }

    pub(crate) fn u8(self, kind: u16, value: u8) -> Request {
        self.bytes(kind, &[value])
    }

    pub(crate) fn nest(self, kind: u16, fill: impl FnOnce(Request) -> Request) -> Request {
        let inside = fill(Request(Vec::new()));
        self.bytes(kind | NESTED, &inside.0)
    }

    /// The whole message, with its length and number.
    pub(crate) fn finish(mut self, sequence: u32) -> Vec<u8> {
        let len = self.0.len() as u32;
        self.0[..4].copy_from_slice(&len.to_ne_bytes());
        self.0[8..12].copy_from_slice(&sequence.to_ne_bytes());
        self.0
    }
}

/// What one message of an answer is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NetlinkReply<'a> {
    /// Attributes of an object.
    Object(Attrs<'a>),
    /// The request is done: 0, or an error number with the kernel's text.
    End(i32, Option<String>),
}

/// The messages of one datagram that answer request `sequence`.
pub(crate) fn answers(mut bytes: &[u8], sequence: u32) -> Result<Vec<NetlinkReply<'_>>, BadMessage> {
    let mut all = Vec::new();
    while let Some(head) = bytes.first_chunk::<HEAD>() {
        let [a, b, c, d, e, f, g, h, i, j, k, l, ..] = *head;
        let len = u32::from_ne_bytes([a, b, c, d]) as usize;
        let (kind, flags) = (u16::from_ne_bytes([e, f]), u16::from_ne_bytes([g, h]));
        let body = bytes.get(HEAD..len).ok_or(BadMessage("a length beyond its end"))?;
        bytes = bytes.get(len.next_multiple_of(4)..).unwrap_or_default();
        if u32::from_ne_bytes([i, j, k, l]) != sequence {
            continue;
        }
        all.push(match kind {
            ERROR | DONE => end(kind, flags, body)?,
            _ => NetlinkReply::Object(Attrs(body.get(GENERIC..).ok_or(BadMessage("a message without a command"))?)),
        });
    }
    Ok(all)
}

fn end(kind: u16, flags: u16, body: &[u8]) -> Result<NetlinkReply<'static>, BadMessage> {
    let Some(code) = body.first_chunk::<4>() else {
        // The end of a dump may have no code.
        return if kind == DONE {
            Ok(NetlinkReply::End(0, None))
        } else {
            Err(BadMessage("an error without a number"))
        };
    };
    let code = i32::from_ne_bytes(*code);
    let mut text = None;
    if flags & TEXTS != 0 {
        // Behind the number stands the head of the request, and without the flag its body too.
        let mut skip = 4;
        if kind == ERROR {
            let head =
                body.get(4..8).and_then(|b| b.first_chunk::<4>()).ok_or(BadMessage("an error without its request"))?;
            skip += if flags & CAPPED != 0 { HEAD } else { (u32::from_ne_bytes(*head) as usize).next_multiple_of(4) };
        }
        let attrs = Attrs(body.get(skip..).ok_or(BadMessage("an error shorter than its request"))?);
        text = attrs
            .get(TEXT)?
            .map(|t| String::from_utf8_lossy(t.split(|&b| b == 0).next().unwrap_or_default()).into_owned());
    }
    Ok(NetlinkReply::End(code, text))
}

/// Attributes in a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Attrs<'a>(pub(crate) &'a [u8]);

impl<'a> Attrs<'a> {
    /// Each attribute with its number.
    pub(crate) fn all(self) -> Result<Vec<(u16, &'a [u8])>, BadMessage> {
        let (mut rest, mut all) = (self.0, Vec::new());
        while let Some(&[a, b, c, d]) = rest.first_chunk::<4>() {
            let (len, kind) = (usize::from(u16::from_ne_bytes([a, b])), u16::from_ne_bytes([c, d]));
            all.push((kind & NUMBER, rest.get(4..len).ok_or(BadMessage("an attribute beyond its message"))?));
            rest = rest.get(len.next_multiple_of(4)..).unwrap_or_default();
        }
        Ok(all)
    }

    /// The first with this number.
    pub(crate) fn get(self, kind: u16) -> Result<Option<&'a [u8]>, BadMessage> {
        Ok(self.all()?.into_iter().find(|(k, _)| *k == kind).map(|(_, value)| value))
    }

    pub(crate) fn u32(self, kind: u16) -> Result<Option<u32>, BadMessage> {
        let number =
            |v: &[u8]| v.try_into().map(u32::from_ne_bytes).map_err(|_| BadMessage("a number of another size"));
        self.get(kind)?.map(number).transpose()
    }

    /// An unsigned integer of a free width: 4 bytes, or 8.
    pub(crate) fn uint(self, kind: u16) -> Result<Option<u64>, BadMessage> {
        let number = |v: &[u8]| match (v.try_into().map(u32::from_ne_bytes), v.try_into().map(u64::from_ne_bytes)) {
            (Ok(n), _) => Ok(u64::from(n)),
            (_, Ok(n)) => Ok(n),
            _ => Err(BadMessage("a number of another size")),
        };
        self.get(kind)?.map(number).transpose()
    }

    pub(crate) fn u16(self, kind: u16) -> Result<Option<u16>, BadMessage> {
        let number =
            |v: &[u8]| v.try_into().map(u16::from_ne_bytes).map_err(|_| BadMessage("a number of another size"));
        self.get(kind)?.map(number).transpose()
    }

    pub(crate) fn u8(self, kind: u16) -> Result<Option<u8>, BadMessage> {
        let number = |v: &[u8]| v.first().copied().ok_or(BadMessage("a number of another size"));
        self.get(kind)?.map(number).transpose()
    }
}

#[cfg(test)]
mod tests;
