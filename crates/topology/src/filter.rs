//! `LINKSPAN_IFNAME`: which interfaces may be used, in the syntax of NCCL_SOCKET_IFNAME.

/// A filter on interface names.
///
/// The text is a comma-separated list. `eth,ib` allows names that begin with one of them, `=eth0,eth1` allows
/// exactly these, `^docker,lo` forbids names that begin with one of them and `^=eth3` forbids exactly that one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IfFilter {
    source: String,
    text: String,
    names: Vec<String>,
    exclude: bool,
    exact: bool,
}

/// A filter that cannot be meant.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BadFilter {
    /// No name in the list.
    #[error(
        "LS0601 {source_name}={text:?} names no interface; write names or prefixes as in `eth0,ib`, `=eth0` (exact), `^docker,lo` (all but these), or unset it"
    )]
    Empty {
        /// Variable or option.
        source_name: String,
        /// Its value.
        text: String,
    },
    /// A name that no interface can have.
    #[error(
        "LS0602 {source_name}={text:?}: {name:?} cannot be an interface name ({why}); the list is comma-separated, with `^` or `=` only at its very beginning"
    )]
    Name {
        /// Variable or option.
        source_name: String,
        /// Its value.
        text: String,
        /// The part at fault.
        name: String,
        /// What is wrong with it.
        why: &'static str,
    },
}

/// Longest interface name: IFNAMSIZ of `linux/if.h` is 16 with the final zero.
const NAME_MAX: usize = 15;

impl IfFilter {
    /// Parses `text`; `source` is the variable or option it came from, for messages.
    ///
    /// # Errors
    /// [`BadFilter::Empty`]: the list names nothing. [`BadFilter::Name`]: a name in it cannot be an interface's.
    pub fn parse(source: &str, text: &str) -> Result<IfFilter, BadFilter> {
        let (exclude, rest) = match text.trim().strip_prefix('^') {
            Some(rest) => (true, rest),
            None => (false, text.trim()),
        };
        let (exact, rest) = match rest.strip_prefix('=') {
            Some(rest) => (true, rest),
            None => (false, rest),
        };
        let names: Vec<String> =
            rest.split(',').map(str::trim).filter(|name| !name.is_empty()).map(str::to_owned).collect();
        if names.is_empty() {
            return Err(BadFilter::Empty { source_name: source.into(), text: text.into() });
        }
        for name in &names {
            if let Some(why) = impossible(name) {
                return Err(BadFilter::Name { source_name: source.into(), text: text.into(), name: name.clone(), why });
            }
        }
        Ok(IfFilter { source: source.into(), text: text.into(), names, exclude, exact })
    }

    /// The filter from the environment: `LINKSPAN_IFNAME`, else `NCCL_SOCKET_IFNAME`; `None` where neither is set.
    /// `get` looks a variable up.
    ///
    /// # Errors
    /// Those of [`IfFilter::parse`], for the variable that counts.
    pub fn from_env(get: impl Fn(&str) -> Option<String>) -> Result<Option<IfFilter>, BadFilter> {
        for source in ["LINKSPAN_IFNAME", "NCCL_SOCKET_IFNAME"] {
            if let Some(text) = get(source) {
                return IfFilter::parse(source, &text).map(Some);
            }
        }
        Ok(None)
    }

    /// Whether an interface of this name may be used.
    pub fn allows(&self, name: &str) -> bool {
        self.hit(name) != self.exclude
    }

    /// Whether the name is allowed because the list asks for it, not because it forgot to forbid it.
    pub fn asks_for(&self, name: &str) -> bool {
        !self.exclude && self.hit(name)
    }

    /// The variable or option and its value, as `LINKSPAN_IFNAME=^lo`.
    pub fn shown(&self) -> String {
        format!("{}={}", self.source, self.text)
    }

    /// Whether the list has whole names, not prefixes.
    pub fn is_exact(&self) -> bool {
        self.exact
    }

    /// Names of the list that match none of `present`: of whole names usually spelling mistakes.
    pub fn unmatched<'a>(&'a self, present: &[&str]) -> Vec<&'a str> {
        let one = |name: &String| present.iter().any(|have| self.one(name, have));
        self.names.iter().filter(|name| !one(name)).map(String::as_str).collect()
    }

    fn hit(&self, name: &str) -> bool {
        self.names.iter().any(|wanted| self.one(wanted, name))
    }

    fn one(&self, wanted: &str, name: &str) -> bool {
        if self.exact { name == wanted } else { name.starts_with(wanted) }
    }
}

fn impossible(name: &str) -> Option<&'static str> {
    if name.len() > NAME_MAX {
        return Some("longer than 15 bytes");
    }
    // dev_valid_name() of the kernel: no white space, no `/`, no `:`. `^` and `=` are possible there but are always
    // a misplaced sign here.
    if name.bytes().any(|byte| byte.is_ascii_whitespace() || byte.is_ascii_control() || b"/:^=".contains(&byte)) {
        return Some("it contains a character that names do not have");
    }
    None
}

#[cfg(test)]
mod tests;
