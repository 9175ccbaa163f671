//! Just enough of Rust's lexical grammar to tell code from comments and strings.
//!
//! Reference: <https://doc.rust-lang.org/reference/tokens.html>. Numbers come out as words, multi-character operators
//! as single marks; nothing here needs more.

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
    /// A string literal, escapes resolved as far as text needs.
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
    Lexer { rest: text, line: 1, out: Vec::new() }.run()
}

struct Lexer<'a> {
    rest: &'a str,
    line: usize,
    out: Vec<Token>,
}

impl<'a> Lexer<'a> {
    fn run(mut self) -> Vec<Token> {
        while let Some(c) = self.rest.chars().next() {
            if self.rest.starts_with("//") {
                self.line_comment();
            } else if self.rest.starts_with("/*") {
                self.block_comment();
            } else if let Some((skip, hashes)) = raw_string(self.rest) {
                self.raw(skip, hashes);
            } else if c == '"' || self.rest.starts_with("b\"") || self.rest.starts_with("c\"") {
                self.string(if c == '"' { 1 } else { 2 });
            } else if c == '\'' {
                self.quote();
            } else if c == '_' || c.is_alphanumeric() {
                let end = self.rest.find(|c: char| c != '_' && !c.is_alphanumeric()).unwrap_or(self.rest.len());
                let word = self.take(end).to_owned();
                self.push(Kind::Word(word), self.line);
            } else {
                if !c.is_whitespace() {
                    self.push(Kind::Mark(c), self.line);
                }
                self.take(c.len_utf8());
            }
        }
        self.out
    }

    fn push(&mut self, kind: Kind, line: usize) {
        self.out.push(Token { kind, line, last: self.line });
    }

    fn take(&mut self, n: usize) -> &'a str {
        let (head, tail) = self.rest.split_at(n);
        self.line += head.matches('\n').count();
        self.rest = tail;
        head
    }

    fn line_comment(&mut self) {
        let line = self.line;
        let end = self.rest.find('\n').unwrap_or(self.rest.len());
        let text = self.take(end);
        if let Some(doc) = text.strip_prefix("///") {
            self.push(Kind::Doc(doc.trim().to_owned()), line);
        } else if !text.starts_with("//!") {
            self.push(Kind::Note(text[2..].trim().to_owned()), line);
        }
    }

    fn block_comment(&mut self) {
        let mut depth = 0usize;
        while !self.rest.is_empty() {
            if self.rest.starts_with("/*") {
                depth += 1;
                self.take(2);
            } else if self.rest.starts_with("*/") {
                depth -= 1;
                self.take(2);
                if depth == 0 {
                    return;
                }
            } else {
                let n = self.rest.chars().next().map_or(0, char::len_utf8);
                self.take(n);
            }
        }
    }

    fn raw(&mut self, skip: usize, hashes: usize) {
        let line = self.line;
        self.take(skip);
        let close = format!("\"{}", "#".repeat(hashes));
        let end = self.rest.find(&close).unwrap_or(self.rest.len());
        let text = self.take(end).to_owned();
        self.take(close.len().min(self.rest.len()));
        self.push(Kind::Text(text), line);
    }

    fn string(&mut self, skip: usize) {
        let line = self.line;
        self.take(skip);
        let mut text = String::new();
        while let Some(c) = self.rest.chars().next() {
            self.take(c.len_utf8());
            match c {
                '"' => break,
                '\\' => {
                    let escaped = self.rest.chars().next().unwrap_or('\\');
                    self.take(escaped.len_utf8().min(self.rest.len()));
                    match escaped {
                        'n' | 't' | 'r' => text.push(' '),
                        '\n' => {
                            let blanks = self.rest.len() - self.rest.trim_start().len();
                            self.take(blanks);
                        }
                        other => text.push(other),
                    }
                }
                other => text.push(other),
            }
        }
        self.push(Kind::Text(text), line);
    }

    /// A character literal is skipped; a lifetime leaves its name behind as a word.
    fn quote(&mut self) {
        self.take(1);
        let mut chars = self.rest.chars();
        match (chars.next(), chars.next()) {
            (Some('\\'), Some(second)) => {
                self.take(1 + second.len_utf8());
                let end = self.rest.find('\'').map_or(self.rest.len(), |at| at + 1);
                self.take(end);
            }
            (Some(first), Some('\'')) => {
                self.take(first.len_utf8() + 1);
            }
            _ => {}
        }
    }
}

/// Length of the opening of a raw string (`r"`, `br##"`, ...) at the start of `text`, and its number of hashes.
fn raw_string(text: &str) -> Option<(usize, usize)> {
    let prefix =
        ["r", "br", "cr"].into_iter().find(|p| text.strip_prefix(p).is_some_and(|t| t.starts_with(['"', '#'])))?;
    let rest = &text[prefix.len()..];
    let hashes = rest.len() - rest.trim_start_matches('#').len();
    rest[hashes..].starts_with('"').then_some((prefix.len() + hashes + 1, hashes))
}

#[cfg(test)]
mod tests;
