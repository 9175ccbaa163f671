//! The README and the pages of `docs/start` and others that say hosts, typed in as they are printed.
//!
//! A page says in comments, which readers do not see, what the blocks of commands are for:
//!
//! - `<!-- hosts: A ADDRESS, B ADDRESS; ... -->`: the cables, each with its two ends.
//! - `<!-- on A, B -->` before a block: it is typed on these hosts, and every command must succeed.
//! - `<!-- on A until TEXT -->`: it runs on until the page ends; the rest waits for a line that begins with TEXT.
//!
//! In a block of `console` the commands are the lines after `$ `, and the others are what they print: each must be said, in this order, with
//! other numbers where it has any; one that ends with `...` is the beginning of a line. Of a command that runs on only the line that is waited
//! for must be said.
//!
//! Blocks without a comment need what a namespace lacks. What hosts `export` stays for their later blocks. A word that begins with `LSPA` is what
//! followed `lspan pair` in a line that was waited for. Two things differ from what is printed: `scp` is a script that copies into the other host's home, and `lspan files
//! serve` has `--as-root`, for the tests run as root.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::tests::CABLES;
use crate::world::{Node, Outcome, World};

/// How long a block may take: every way to a peer measured, on a loaded machine.
const SOON: Duration = Duration::from_secs(300);

#[derive(Debug)]
struct Block<'a> {
    hosts: Vec<&'a str>,
    until: Option<&'a str>,
    text: String,
    /// Lines that the commands print.
    printed: Vec<&'a str>,
}

struct Page<'a> {
    /// Two ends each: a host and its address.
    cables: Vec<[(&'a str, &'a str); 2]>,
    blocks: Vec<Block<'a>>,
}

/// Types in every page that has hosts.
pub(crate) fn run() -> Outcome<String> {
    let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
    let folder = root.join("docs/start");
    let entries = fs::read_dir(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let mut files: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    files.extend(["README.md", "docs/performance.md", "docs/pairing.md"].map(|name| root.join(name)));
    files.sort();
    let mut said = Vec::new();
    for file in &files {
        let text = fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))?;
        let name = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let page = parse(&text).map_err(|why| format!("{name}: {why}"))?;
        if !page.cables.is_empty() {
            follow(&page).map_err(|why| format!("{name}: {why}"))?;
            said.push(format!("{name}: {} blocks", page.blocks.len()));
        }
    }
    if said.len() < 6 { Err(format!("only {said:?}")) } else { Ok(said.join(", ")) }
}

/// A line with one sign for each word that begins with a digit or is a fingerprint, and one space between words.
fn shape(line: &str) -> String {
    let fingerprint = |word: &str| word.len() == 19 && word.split('-').all(|part| part.len() == 4);
    let varies = |word: &str| word.starts_with(|c: char| c.is_ascii_digit()) || fingerprint(word);
    let words = line.split_whitespace().map(|word| if varies(word) { "#" } else { word });
    words.collect::<Vec<_>>().join(" ")
}

/// What is typed, with the join line that was printed in place of the page's.
fn joined(text: &str, line: &str) -> String {
    let words = text.split_inclusive(char::is_whitespace);
    words
        .map(|word| if word.starts_with("LSPA") { word.replace(word.trim_end(), line) } else { word.to_owned() })
        .collect()
}

/// Whether what was said is a line that a page prints, numbers aside; one that ends with `...` is the beginning of one.
fn prints(printed: &str, said: &str) -> bool {
    match printed.strip_suffix("...") {
        Some(begin) => shape(said).starts_with(&shape(begin)),
        None => shape(said) == shape(printed),
    }
}

fn parse(text: &str) -> Outcome<Page<'_>> {
    let mut page = Page { cables: Vec::new(), blocks: Vec::new() };
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        let Some(comment) = line.strip_prefix("<!-- ").and_then(|rest| rest.strip_suffix(" -->")) else { continue };
        if let Some(hosts) = comment.strip_prefix("hosts: ") {
            for cable in hosts.split("; ") {
                let ends: Vec<_> = cable.split(", ").filter_map(|end| end.split_once(' ')).collect();
                page.cables.push(ends.try_into().map_err(|_| format!("a cable with two ends: {cable}"))?);
            }
        } else if let Some(on) = comment.strip_prefix("on ") {
            let (hosts, until) = on.split_once(" until ").map_or((on, None), |(hosts, text)| (hosts, Some(text)));
            let fence = lines.next();
            let (mut text, mut printed) = (String::new(), Vec::new());
            for line in lines.by_ref().take_while(|line| *line != "```") {
                match (fence, line.strip_prefix("$ ")) {
                    (Some("```sh"), _) => text.push_str(&format!("{line}\n")),
                    (Some("```console"), Some(command)) => text.push_str(&format!("{command}\n")),
                    (Some("```console"), None) => printed.push(line),
                    _ => return Err(format!("no block of commands below {comment:?}")),
                }
            }
            page.blocks.push(Block { hosts: hosts.split(", ").collect(), until, text, printed });
        }
    }
    Ok(page)
}

/// The hosts of a page: each has a home of its own.
struct Typist<'a> {
    world: &'a World,
    homes: PathBuf,
    exported: BTreeMap<String, String>,
    path: String,
}

impl Typist<'_> {
    fn start(&self, host: &str, text: &str) -> Outcome<Node> {
        let home = self.homes.join(host);
        let inside = |part: &str| home.join(part).to_string_lossy().into_owned();
        let (config, state, stats) = (inside(".config"), inside(".local/state"), inside("stats"));
        let at = home.to_string_lossy().into_owned();
        let env = [
            CABLES,
            ("HOME", &*at),
            ("XDG_CONFIG_HOME", &config),
            ("XDG_STATE_HOME", &state),
            ("LINKSPAN_STATS_DIR", &stats),
            ("PATH", &self.path),
        ];
        let exported = self.exported.get(host).map_or("", String::as_str);
        let script = format!("hostname {host}\ncd\nexec 2>&1\n{exported}{text}");
        self.world.program(host, &env, &["unshare", "--uts", "bash", "-euc", &script])
    }
}

fn follow(page: &Page<'_>) -> Outcome<String> {
    let mut hosts: Vec<&str> = page.cables.iter().flatten().map(|(host, _)| *host).collect();
    hosts.sort_unstable();
    hosts.dedup();
    let world = World::new(&hosts)?;
    for (n, [a, b]) in page.cables.iter().enumerate() {
        world.cable(&format!("cab{n}"), *a, *b)?;
    }
    let homes = std::env::temp_dir().join(format!("linkspan-guides-{}", std::process::id()));
    let _ = fs::remove_dir_all(&homes);
    let typed = type_in(page, &world, &homes, &hosts);
    let _ = fs::remove_dir_all(&homes);
    typed
}

fn type_in(page: &Page<'_>, world: &World, homes: &Path, hosts: &[&str]) -> Outcome<String> {
    let failed = |error: std::io::Error| format!("{}: {error}", homes.display());
    for host in hosts {
        fs::create_dir_all(homes.join(host).join("stats")).map_err(failed)?;
    }
    let scp = homes.join("bin/scp");
    fs::create_dir_all(homes.join("bin")).map_err(failed)?;
    fs::write(&scp, format!("#!/bin/sh\nexec cp -p \"$1\" \"{}/${{2%:}}/\"\n", homes.display())).map_err(failed)?;
    fs::set_permissions(&scp, fs::Permissions::from_mode(0o755)).map_err(failed)?;
    let lspan = PathBuf::from(world.lspan_path()?);
    let beside = lspan.parent().unwrap_or(Path::new("/")).display().to_string();
    let path = format!("{}/bin:{beside}:{}", homes.display(), std::env::var("PATH").unwrap_or_default());
    let mut typist = Typist { world, homes: homes.to_owned(), exported: BTreeMap::new(), path };
    let (mut line, mut running) = (String::new(), Vec::new());
    for block in &page.blocks {
        let text = joined(&block.text, &line).replace("files serve", "files serve --as-root");
        for host in &block.hosts {
            let mut node = typist.start(host, &text)?;
            match block.until {
                Some(begin) => {
                    let rest = node.expect(begin, SOON).map_err(|why| format!("{text}{why}"))?;
                    if begin == "lspan pair" {
                        line = rest;
                    }
                    running.push(node);
                }
                None => {
                    let (code, said) = node.end(SOON)?;
                    if code != Some(0) {
                        return Err(format!("on {host}: {text}exit code {code:?}: {said}"));
                    }
                    let mut lines = said.lines();
                    if let Some(line) = block.printed.iter().find(|line| !lines.any(|said| prints(line, said))) {
                        return Err(format!("on {host}: {text}does not print {line:?} where the page does: {said}"));
                    }
                }
            }
            let exports = text.lines().filter(|line| line.starts_with("export ")).map(|line| format!("{line}\n"));
            typist.exported.entry((*host).to_owned()).or_default().extend(exports);
        }
    }
    Ok(format!("{} blocks", page.blocks.len()))
}
