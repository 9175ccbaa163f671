//! Places on peers as they are typed, opened and asked for.

/// Which bytes stand for themselves in a URL (RFC 3986, unreserved).
fn plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~')
}

/// As part of a `linkspan://` place.
pub(super) fn encoded(bytes: &[u8]) -> String {
    let one = |&byte: &u8| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") };
    bytes.iter().map(one).collect()
}

/// The bytes of a part.
fn decoded(text: &str) -> Vec<u8> {
    let (mut bytes, mut rest) = (Vec::new(), text.as_bytes());
    while let Some((&first, after)) = rest.split_first() {
        let digits = after.get(..2).and_then(|two| std::str::from_utf8(two).ok());
        let byte = digits.filter(|_| first == b'%').and_then(|two| u8::from_str_radix(two, 16).ok());
        bytes.push(byte.unwrap_or(first));
        rest = if byte.is_some() { &after[2..] } else { after };
    }
    bytes
}

/// As people read it; what is no text has its `%` and digits left.
fn read(text: &str) -> String {
    String::from_utf8(decoded(text)).unwrap_or_else(|_| text.to_owned())
}

/// A peer, a share of it, and a path in that share.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PlaceAt {
    /// As it is typed.
    peer: String,
    /// Share and path, encoded.
    parts: Vec<String>,
}

impl PlaceAt {
    /// `PEER`, `PEER:SHARE/PATH`, `[PEER]:SHARE/PATH` or `linkspan://PEER/SHARE/PATH`. `None`: no peer is named.
    pub(super) fn parse(text: &str) -> Option<PlaceAt> {
        let text = text.trim();
        let (peer, parts): (String, Vec<String>) = match text.strip_prefix("linkspan://") {
            Some(rest) => {
                let (peer, path) = rest.split_once('/').unwrap_or((rest, ""));
                (read(peer), path.split('/').map(|part| encoded(&decoded(part))).collect())
            }
            None => {
                let (peer, path) = match text.strip_prefix('[') {
                    Some(rest) => rest.split_once(']').map(|(peer, path)| (peer, path.trim_start_matches(':')))?,
                    None => text.split_once(':').unwrap_or((text, "")),
                };
                (peer.to_owned(), path.split('/').map(|part| encoded(part.as_bytes())).collect())
            }
        };
        let parts = parts.into_iter().filter(|part| !part.is_empty()).collect();
        (!peer.is_empty()).then_some(PlaceAt { peer, parts })
    }

    /// As the service takes it, the place of a directory.
    pub(super) fn text(&self) -> String {
        let parts: String = self.parts.iter().map(|part| format!("/{part}")).collect();
        format!("linkspan://{}{parts}/", encoded(self.peer.as_bytes()))
    }

    /// What is called so in it.
    pub(super) fn below(&self, name: &[u8]) -> PlaceAt {
        let parts = self.parts.iter().cloned().chain([encoded(name)]).collect();
        PlaceAt { peer: self.peer.clone(), parts }
    }

    /// The directory that it is in; of a share the peer. `None`: it is a peer.
    pub(super) fn above(&self) -> Option<PlaceAt> {
        let (_, parts) = self.parts.split_last()?;
        Some(PlaceAt { peer: self.peer.clone(), parts: parts.to_vec() })
    }

    /// The same as a file's place.
    pub(super) fn file(&self) -> String {
        self.text().trim_end_matches('/').to_owned()
    }

    /// A peer of this name.
    pub(super) fn of_peer(name: &str) -> PlaceAt {
        PlaceAt { peer: name.to_owned(), parts: Vec::new() }
    }

    pub(super) fn peer(&self) -> &str {
        &self.peer
    }

    /// Its share, if it names one.
    pub(super) fn share(&self) -> Option<String> {
        self.parts.first().map(|share| read(share))
    }

    /// As people read it.
    pub(super) fn title(&self) -> String {
        let path: Vec<String> = self.parts.iter().map(|part| read(part)).collect();
        let peer = if self.peer.contains(':') { format!("[{}]", self.peer) } else { self.peer.clone() };
        format!("{peer}:{}", path.join("/"))
    }
}

#[cfg(test)]
mod tests {
    use super::PlaceAt;

    #[test]
    fn a_place_is_read_in_each_spelling_and_written_so_that_any_name_is_possible() {
        for (typed, text, title) in [
            ("mini2", "linkspan://mini2/", "mini2:"),
            ("mini2:", "linkspan://mini2/", "mini2:"),
            (" mini2:in/a b/ ", "linkspan://mini2/in/a%20b/", "mini2:in/a b"),
            ("[127.0.0.1:7100]:in", "linkspan://127.0.0.1%3A7100/in/", "[127.0.0.1:7100]:in"),
            ("linkspan://mini2/in/a%20b", "linkspan://mini2/in/a%20b/", "mini2:in/a b"),
        ] {
            let place = PlaceAt::parse(typed).unwrap();
            assert_eq!((place.text().as_str(), place.title().as_str()), (text, title), "{typed}");
            assert_eq!(PlaceAt::parse(&place.text()), Some(place));
        }
        for none in ["", "  ", ":in", "[", "linkspan://"] {
            assert_eq!(PlaceAt::parse(none), None, "{none}");
        }
        let place = PlaceAt::parse("a:in").unwrap().below(b"x%/\xff");
        assert_eq!((place.file().as_str(), place.share().unwrap().as_str()), ("linkspan://a/in/x%25%2F%FF", "in"));
        assert_eq!(PlaceAt::parse(&place.text()), Some(place.clone()), "a part that is no text stays the same one");
        assert_eq!(place.title(), "a:in/x%25%2F%FF");
        assert_eq!(place.above().unwrap().above().unwrap().above(), None);
    }
}
