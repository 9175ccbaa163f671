//! Which names a transfer leaves alone, by the rules of gitignore(5).

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use ignore::gitignore::{Gitignore, GitignoreBuilder};

use crate::name::{RelPath, escape};
use crate::wire::RULES_MAX;

/// A rule that is none.
#[derive(Debug, thiserror::Error)]
#[error("LS1825 the rule {rule:?} about names cannot be used: {why}")]
pub struct BadRule {
    rule: String,
    why: String,
}

/// Compiled rules; of several that match the last one counts.
#[derive(Debug)]
pub struct Rules(Gitignore);

impl Default for Rules {
    fn default() -> Rules {
        Rules(Gitignore::empty())
    }
}

impl Rules {
    /// Reads rules, one text for each line of a file of them.
    ///
    /// # Errors
    /// [`BadRule`]: a pattern that is none, or more than travel to a peer.
    pub fn new(lines: &[String]) -> Result<Rules, BadRule> {
        let bad = |rule: &str, why: String| BadRule { rule: escape(rule.as_bytes()), why };
        let mut builder = GitignoreBuilder::new("");
        for line in lines {
            if line.len() > RULES_MAX.1 {
                return Err(bad("", format!("it is longer than {} bytes", RULES_MAX.1)));
            }
            builder.add_line(None, line).map_err(|error| bad(line, error.to_string()))?;
        }
        if lines.len() > RULES_MAX.0 {
            return Err(bad("", format!("there are more than {} rules", RULES_MAX.0)));
        }
        Ok(Rules(builder.build().map_err(|error| bad("", error.to_string()))?))
    }

    /// Whether the entry itself is left alone; what is below a directory that is does not come up.
    pub(crate) fn leave(&self, path: &RelPath, is_dir: bool) -> bool {
        !self.0.is_empty() && self.0.matched(Path::new(OsStr::from_bytes(path.bytes())), is_dir).is_ignore()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_those_of_gitignore_and_a_bad_one_is_named() {
        let rules = ["*.tmp", "!keep.tmp", "/top", "build/"].map(str::to_owned);
        let rules = Rules::new(&rules).unwrap();
        let leave = |path: &str, dir| rules.leave(&RelPath::new(path.as_bytes()).unwrap(), dir);
        assert!(leave("a.tmp", false) && leave("sub/a.tmp", false) && !leave("sub/keep.tmp", false));
        assert!(leave("top", false) && !leave("sub/top", false));
        assert!(leave("sub/build", true) && !leave("sub/build", false));
        let error = Rules::new(&["[z-a]".to_owned()]).unwrap_err().to_string();
        assert!(error.contains("LS1825") && error.contains("[z-a]"), "{error}");
        assert!(Rules::new(&vec![String::new(); 257]).is_err());
    }
}
