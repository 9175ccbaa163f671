//! Rust's tokens with their lines, so that code is told from comments and strings. Multi-character operators come as single marks.

use ra_ap_rustc_lexer::{DocStyle, FrontmatterAllowed, LiteralKind, TokenKind, tokenize};
use syn::{LitStr, parse_str};

/// One token and the lines it stands on (from 1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Token {
    /// What it is.
    pub(crate) kind: Kind,
    /// The line it starts on, from 1.
    pub(crate) line: usize,
    /// The line it ends on: texts may be longer than one.
    pub(crate) last: usize,
}

/// What a token is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// An identifier, keyword or number.
    Word(String),
    /// A string literal, its escapes resolved; of bytes and C strings as it is written.
    Text(String),
    /// An outer doc comment `///`, without the slashes.
    Doc(String),
    /// A line comment `//`, without the slashes.
    Note(String),
    /// Any other single character.
    Mark(char),
}

/// The tokens of a source text. Total: text that is not Rust gives some tokens, never an error.
pub(crate) fn tokens(text: &str) -> Vec<Token> {
    let (mut rest, mut line, mut out) = (text, 1, Vec::new());
    for token in tokenize(text, FrontmatterAllowed::No) {
        let (shown, behind) = rest.split_at(token.len as usize);
        let last = line + shown.matches('\n').count();
        out.extend(kind(token.kind, shown).map(|kind| Token { kind, line, last }));
        (rest, line) = (behind, last);
    }
    out
}

fn kind(kind: TokenKind, shown: &str) -> Option<Kind> {
    let word = |word: &str| Some(Kind::Word(word.to_owned()));
    match kind {
        TokenKind::LineComment { doc_style: None } => Some(Kind::Note(shown[2..].trim().to_owned())),
        TokenKind::LineComment { doc_style: Some(DocStyle::Outer) } => Some(Kind::Doc(shown[3..].trim().to_owned())),
        TokenKind::LineComment { .. } | TokenKind::BlockComment { .. } | TokenKind::Whitespace => None,
        TokenKind::Literal { kind: LiteralKind::Char { .. } | LiteralKind::Byte { .. }, .. } => None,
        TokenKind::Literal { kind: LiteralKind::Int { .. } | LiteralKind::Float { .. }, .. } => word(shown),
        TokenKind::Literal { .. } => Some(Kind::Text(parse_str(shown).map_or(shown.to_owned(), |t: LitStr| t.value()))),
        TokenKind::Lifetime { .. } => word(&shown[1..]),
        TokenKind::Ident | TokenKind::RawIdent => word(shown),
        _ => shown.chars().next().map(Kind::Mark),
    }
}

#[cfg(test)]
mod tests;
