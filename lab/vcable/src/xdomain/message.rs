//! One XDomain message. Source: USB4 inter-domain service protocol and `drivers/thunderbolt/tb_msgs.h` of Linux.

use super::Uuid;

/// UUID of the discovery protocol, b638d70e-42ff-40bb-97c2-90e2c0b2ff07.
pub fn discovery() -> Uuid {
    Uuid([0xb6, 0x38, 0xd7, 0x0e, 0x42, 0xff, 0x40, 0xbb, 0x97, 0xc2, 0x90, 0xe2, 0xc0, 0xb2, 0xff, 0x07])
}

const UUID_REQUEST_OLD: u32 = 1;
const UUID_RESPONSE: u32 = 2;
const PROPERTIES_REQUEST: u32 = 3;
const PROPERTIES_RESPONSE: u32 = 4;
const CHANGED_REQUEST: u32 = 5;
const CHANGED_RESPONSE: u32 = 6;
const ERROR_RESPONSE: u32 = 7;
const UUID_REQUEST: u32 = 12;
const LINK_STATUS_REQUEST: u32 = 15;
const LINK_STATUS_RESPONSE: u32 = 16;
const LINK_CHANGE_REQUEST: u32 = 17;
const LINK_CHANGE_RESPONSE: u32 = 18;

/// Name of a discovery message type.
pub fn type_name(kind: u32) -> &'static str {
    match kind {
        UUID_REQUEST_OLD => "uuid-request-old",
        UUID_RESPONSE => "uuid-response",
        PROPERTIES_REQUEST => "properties-request",
        PROPERTIES_RESPONSE => "properties-response",
        CHANGED_REQUEST => "properties-changed",
        CHANGED_RESPONSE => "properties-changed-ack",
        ERROR_RESPONSE => "error",
        UUID_REQUEST => "uuid-request",
        LINK_STATUS_REQUEST => "link-status-request",
        LINK_STATUS_RESPONSE => "link-status-response",
        LINK_CHANGE_REQUEST => "link-change-request",
        LINK_CHANGE_RESPONSE => "link-change-response",
        _ => "unknown",
    }
}

/// What a discovery message says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Body {
    /// Who are you?
    UuidRequest {
        /// The older number of the same request.
        old: bool,
    },
    /// I am.
    UuidResponse {
        /// Sender.
        source: Uuid,
        /// Route as the sender sees the link.
        route: u64,
    },
    /// Give me your properties from this word on.
    PropertiesRequest {
        /// Who asks.
        source: Uuid,
        /// Who is asked.
        target: Uuid,
        /// First word.
        offset: u16,
    },
    /// A part of the property block.
    PropertiesResponse {
        /// Who answers.
        source: Uuid,
        /// Who asked.
        target: Uuid,
        /// First word.
        offset: u16,
        /// Words of the whole block.
        total: u16,
        /// Changes with the block.
        generation: u32,
        /// The part.
        data: Vec<u32>,
    },
    /// My properties changed.
    Changed {
        /// Whose.
        source: Uuid,
    },
    /// Noted.
    ChangedAck,
    /// No.
    Error {
        /// 1 unknown packet, 2 unknown domain, 3 not supported, 4 not ready.
        code: u32,
    },
    /// How is your link?
    LinkStatusRequest,
    /// Supported and target width and speed.
    LinkStatusResponse {
        /// 0 is success.
        status: u32,
        /// Supported width.
        supported_width: u8,
        /// Target width.
        target_width: u8,
        /// Supported speeds.
        supported_speed: u8,
        /// Target speed.
        target_speed: u8,
    },
    /// Set your link to this.
    LinkChangeRequest {
        /// Target width; 3 is dual.
        width: u8,
        /// Target speed.
        speed: u8,
    },
    /// Done or not.
    LinkChangeResponse {
        /// 0 is success.
        status: u32,
    },
}

/// A message: header words and, for the discovery protocol, the decoded body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// Route, without the reply bit.
    pub route: u64,
    /// Sequence number, 2 bits.
    pub seq: u8,
    /// Protocol.
    pub protocol: Uuid,
    /// Words behind the protocol UUID; the first is the message type.
    pub words: Vec<u32>,
}

impl Message {
    /// From the words of an XDomain packet; `None` when the header is cut short or the length field lies.
    pub fn decode(packet: &[u32]) -> Option<Message> {
        let [hi, lo, length, u0, u1, u2, u3, words @ ..] = packet else {
            return None;
        };
        // The length counts the words behind the three header words.
        let length_words = (length & 0x3f) as usize;
        let words = words.get(..length_words.checked_sub(4)?)?;
        Some(Message {
            route: u64::from(hi & 0x3f_ffff) << 32 | u64::from(*lo),
            seq: (length >> 27 & 3) as u8,
            protocol: Uuid::from_words([*u0, *u1, *u2, *u3]),
            words: words.to_vec(),
        })
    }

    /// Words of the packet. Nothing but short messages can be made: at most 56 words behind the protocol.
    pub fn encode(&self) -> Vec<u32> {
        let words = &self.words[..self.words.len().min(56)];
        let mut packet = vec![(self.route >> 32) as u32 & 0x3f_ffff, self.route as u32];
        packet.push((words.len() as u32 + 4) & 0x3f | u32::from(self.seq & 3) << 27);
        packet.extend(self.protocol.words());
        packet.extend_from_slice(words);
        packet
    }

    /// Message type of the discovery protocol.
    pub fn kind(&self) -> Option<u32> {
        (self.protocol == discovery()).then(|| self.words.first().copied()).flatten()
    }

    /// Whether this answers something.
    pub fn is_response(kind: u32) -> bool {
        matches!(
            kind,
            UUID_RESPONSE
                | PROPERTIES_RESPONSE
                | CHANGED_RESPONSE
                | ERROR_RESPONSE
                | LINK_STATUS_RESPONSE
                | LINK_CHANGE_RESPONSE
        )
    }

    /// The body of a discovery message; `None` for other protocols, unknown types and short messages.
    pub fn body(&self) -> Option<Body> {
        let w = |i: usize| self.words.get(i).copied();
        let uuid = |i: usize| Some(Uuid::from_words([w(i)?, w(i + 1)?, w(i + 2)?, w(i + 3)?]));
        Some(match self.kind()? {
            UUID_REQUEST_OLD => Body::UuidRequest { old: true },
            UUID_REQUEST => Body::UuidRequest { old: false },
            UUID_RESPONSE => {
                Body::UuidResponse { source: uuid(1)?, route: u64::from(w(5)? & 0x3f_ffff) << 32 | u64::from(w(6)?) }
            }
            PROPERTIES_REQUEST => Body::PropertiesRequest { source: uuid(1)?, target: uuid(5)?, offset: w(9)? as u16 },
            PROPERTIES_RESPONSE => Body::PropertiesResponse {
                source: uuid(1)?,
                target: uuid(5)?,
                offset: w(9)? as u16,
                total: (w(9)? >> 16) as u16,
                generation: w(10)?,
                data: self.words.get(11..)?.to_vec(),
            },
            CHANGED_REQUEST => Body::Changed { source: uuid(1)? },
            CHANGED_RESPONSE => Body::ChangedAck,
            ERROR_RESPONSE => Body::Error { code: w(1)? },
            LINK_STATUS_REQUEST => Body::LinkStatusRequest,
            LINK_STATUS_RESPONSE => {
                let [supported_width, target_width, supported_speed, target_speed] = w(2)?.to_le_bytes();
                Body::LinkStatusResponse { status: w(1)?, supported_width, target_width, supported_speed, target_speed }
            }
            LINK_CHANGE_REQUEST => {
                let [width, speed, ..] = w(1)?.to_le_bytes();
                Body::LinkChangeRequest { width, speed }
            }
            LINK_CHANGE_RESPONSE => Body::LinkChangeResponse { status: w(1)? },
            _ => return None,
        })
    }

    /// A discovery message.
    pub fn discovery(route: u64, seq: u8, body: &Body) -> Message {
        let mut words = Vec::new();
        match body {
            Body::UuidRequest { old } => words.push(if *old { UUID_REQUEST_OLD } else { UUID_REQUEST }),
            Body::UuidResponse { source, route } => {
                words.push(UUID_RESPONSE);
                words.extend(source.words());
                words.extend([(route >> 32) as u32, *route as u32]);
            }
            Body::PropertiesRequest { source, target, offset } => {
                words.push(PROPERTIES_REQUEST);
                words.extend(source.words());
                words.extend(target.words());
                words.push(u32::from(*offset));
            }
            Body::PropertiesResponse { source, target, offset, total, generation, data } => {
                words.push(PROPERTIES_RESPONSE);
                words.extend(source.words());
                words.extend(target.words());
                words.extend([u32::from(*offset) | u32::from(*total) << 16, *generation]);
                words.extend_from_slice(data);
            }
            Body::Changed { source } => {
                words.push(CHANGED_REQUEST);
                words.extend(source.words());
            }
            Body::ChangedAck => words.push(CHANGED_RESPONSE),
            Body::Error { code } => words.extend([ERROR_RESPONSE, *code]),
            Body::LinkStatusRequest => words.push(LINK_STATUS_REQUEST),
            Body::LinkStatusResponse { status, supported_width, target_width, supported_speed, target_speed } => {
                let packed = [*supported_width, *target_width, *supported_speed, *target_speed];
                words.extend([LINK_STATUS_RESPONSE, *status, u32::from_le_bytes(packed)]);
            }
            Body::LinkChangeRequest { width, speed } => {
                words.extend([LINK_CHANGE_REQUEST, u32::from_le_bytes([*width, *speed, 0, 0])]);
            }
            Body::LinkChangeResponse { status } => words.extend([LINK_CHANGE_RESPONSE, *status]),
        }
        Message { route, seq, protocol: discovery(), words }
    }
}

#[cfg(test)]
mod tests;
