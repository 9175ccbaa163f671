//! `release`: everything that a version is handed out as, in one folder, with sums, a bill of materials and the licences of all parts.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::licences::{Part, notices};
use super::{deb, epoch, place, sbom, shipped, source, wheel};
use crate::capi::install::version;
use crate::run::{self, Outcome};
use crate::tree::{self, Source};

/// What is built, by name, which `--without` takes, and the words behind `package`.
pub(super) const STEPS: [(&str, &[&str]); 9] = [
    ("tar", &["tar"]),
    ("tar-aarch64", &["tar", "--for", "aarch64"]),
    ("wheel", &["wheel", "--sdist"]),
    ("wheel-aarch64", &["wheel", "--for", "aarch64"]),
    ("image", &["image"]),
    ("deb-bookworm", &["deb", "--on", "bookworm"]),
    ("deb-trixie", &["deb", "--on", "trixie"]),
    ("rpm", &["rpm"]),
    ("arch", &["arch"]),
];

/// What stands for the version in [`NAMED`].
const VERSION: &str = "{version}";

/// Files that name the version by hand, and how: the first place in each that begins like it.
const NAMED: [(&str, &str); 13] = [
    ("CHANGELOG.md", "\n## [{version}]"),
    ("debian/changelog", "linkspan ({version}-"),
    ("bindings/python/Cargo.toml", "\nversion = \"{version}\""),
    ("bin/linkspan-desktop/Cargo.toml", "\nversion = \"{version}\""),
    ("bin/linkspan-desktop/data/org.linkspan.Desktop.metainfo.xml", "<release version=\"{version}\""),
    ("bin/linkspan-desktop/data/linkspan-desktop.1", "\"linkspan {version}\""),
    ("bin/linkspan-tray/data/linkspan-tray.1", "\"linkspan {version}\""),
    ("bin/linkspand/data/linkspand.8", "\"linkspan {version}\""),
    ("packaging/kubernetes/overlays/amd/kustomization.yaml", "localhost/linkspan, newTag: {version} "),
    ("packaging/kubernetes/overlays/nvidia/kustomization.yaml", "localhost/linkspan, newTag: {version} "),
    ("README.md", "target/packages/linkspan-{version}-"),
    ("docs/install.md", "tar -xf linkspan-{version}-"),
    ("docs/containers.md", "localhost/linkspan:{version} "),
];

/// How names of files and images that are handed out begin, up to the version.
const HANDED_OUT: [&str; 3] = ["linkspan-", "linkspan:", ".so."];

/// Sums of all other files, as sha256sum(1) reads them.
const SUMS: &str = "SHA256SUMS";

/// `--without STEP`, as often as wanted.
pub(crate) fn run(root: &Path, words: &[&str]) -> Outcome {
    let made = left_out(words).and_then(|without| make(root, &without));
    match made {
        Ok(dir) => {
            println!("{}", dir.display());
            Outcome::Done
        }
        Err(why) => Outcome::Failed(why),
    }
}

/// The steps that are left out.
fn left_out<'a>(words: &[&'a str]) -> Result<Vec<&'a str>, String> {
    let mut without = Vec::new();
    let mut words = words.iter();
    while let Some(word) = words.next() {
        match (*word, words.next()) {
            ("--without", Some(step)) if STEPS.iter().any(|(name, _)| name == step) => without.push(*step),
            ("--without", _) => {
                let names: Vec<&str> = STEPS.iter().map(|(name, _)| *name).collect();
                return Err(format!("release --without takes {}", names.join(", ")));
            }
            (other, _) => return Err(format!("release has no option {other}; it has --without STEP")),
        }
    }
    Ok(without)
}

fn make(root: &Path, without: &[&str]) -> Result<PathBuf, String> {
    let version = version(root)?;
    ready(root, &version)?;
    let steps = || STEPS.into_iter().filter(|(name, _)| !without.contains(name));
    for (name, words) in steps() {
        if super::is_made(root, name) {
            println!("== {name}: made of this commit before");
            continue;
        }
        println!("== {name}");
        match super::run(root, words) {
            Outcome::Done => {}
            Outcome::Failed(why) => return Err(format!("{name}: {why}")),
            // A release that lacks a part says so by its command.
            Outcome::Skipped(why) => return Err(format!("{name} cannot be built here: {why} (--without {name})")),
        }
    }
    let dir = place(root).join(format!("linkspan-{version}"));
    let _ = fs::remove_dir_all(&dir);
    fs::create_dir_all(&dir).map_err(|e| format!("{}: {e}", dir.display()))?;
    for (name, words) in steps() {
        collect(root, words, &version, &dir)
            .map_err(|why| format!("{name}: {why}; make it anew: cargo xtask package {}", words.join(" ")))?;
    }
    // Those that lie there may be of another commit; of one they are always the same, also for the sums in PKGBUILD.
    source::make(root, &place(root).join("source"))?;
    copy(&place(root).join("source"), &dir, |_| true)?;

    let apart = [root.join("bindings/python"), root.join("bin/linkspan-desktop")];
    let whole = |workspace| Part { workspace, packages: &[], edges: "normal" };
    let parts = [shipped(root), whole(&apart[0]), whole(&apart[1])];
    write(&dir.join(format!("linkspan-{version}.cdx.json")), &sbom::text(&version, &epoch(root)?, &parts)?)?;
    write(&dir.join("THIRD-PARTY"), &notices(&parts)?)?;
    for name in ["LICENSE-MIT", "LICENSE-APACHE", "CHANGELOG.md"] {
        super::stage::put(&root.join(name), &dir.join(name))?;
    }
    // Of the driver.
    super::stage::put(&root.join("kernel/LICENSE-GPL-2.0"), &dir.join("LICENSE-GPL-2.0"))?;
    sums(&dir)?;
    Ok(dir)
}

/// Whether the tree is one version, and that alone.
fn ready(root: &Path, version: &str) -> Result<(), String> {
    if run::is_dev() {
        return Err("a release is built with optimisation: unset XTASK_PROFILE".to_owned());
    }
    let git = |words: &[&str]| run::output(Command::new("git").args(words).current_dir(root));
    let changed = super::changes(root)?;
    if !changed.is_empty() {
        return Err(format!("a release is made of a commit, and there are changes:\n{changed}"));
    }
    let tag = format!("v{version}");
    let tagged = git(&["tag", "--points-at", "HEAD"])?.lines().any(|line| line == tag);
    agree(version, tagged, |name| fs::read_to_string(root.join(name)).map_err(|e| format!("{name}: {e}")))?;
    named(version, &tree::sources(root))?;
    if !tagged && !git(&["tag", "--list", &tag])?.is_empty() {
        return Err(format!("{tag} is another commit: raise the version"));
    }
    if !tagged {
        println!("this commit has no tag {tag}: what is made is a trial of the release");
    }
    Ok(())
}

/// Whether all that name a version name this one, and the section of a commit that has its tag (`tagged`) has a day.
fn agree(version: &str, tagged: bool, read: impl Fn(&str) -> Result<String, String>) -> Result<(), String> {
    for (file, wanted) in NAMED {
        let (before, after) = wanted.split_once(VERSION).ok_or("NAMED has a text without a version")?;
        let text = read(file)?;
        let found = text.split_once(before).map(|(_, rest)| rest);
        if !found.is_some_and(|rest| rest.starts_with(&format!("{version}{after}"))) {
            let wanted = wanted.replace(VERSION, version);
            return Err(format!("{file} does not have `{}` as its first such place", wanted.trim()));
        }
    }
    let unreleased = format!("## [{version}] - unreleased");
    if tagged && read("CHANGELOG.md")?.contains(&unreleased) {
        return Err(format!("CHANGELOG.md says `{unreleased}`, and this commit is tagged: it takes the day"));
    }
    Ok(())
}

/// Whether pages name files of this version alone; what tells of the past may name others.
fn named(version: &str, pages: &[Source]) -> Result<(), String> {
    let past = |path: &str| path.starts_with("bench/") || ["CHANGELOG.md", "docs/verified.md"].contains(&path);
    for page in pages.iter().filter(|page| page.path.ends_with(".md") && !past(&page.path)) {
        for before in HANDED_OUT {
            for rest in page.text.split(before).skip(1) {
                let found = rest.split(|c: char| !c.is_ascii_digit() && c != '.').next().unwrap_or_default();
                let found = found.trim_end_matches('.');
                if found.split('.').count() == 3 && found != version {
                    return Err(format!("{} names `{before}{found}`; this is {version}", page.path));
                }
            }
        }
    }
    Ok(())
}

/// Copies what a step has made.
fn collect(root: &Path, words: &[&str], version: &str, dir: &Path) -> Result<(), String> {
    let place = place(root);
    let ends = |name: &str, end: &str| name.ends_with(end);
    match words {
        ["tar", rest @ ..] => {
            let machine = rest.last().copied().unwrap_or(std::env::consts::ARCH);
            copy(&place, dir, |name| {
                name.starts_with(&format!("linkspan-{version}-{machine}-")) && ends(name, ".tar.xz")
            })
        }
        ["wheel", "--for", machine] => copy(&wheel::folder(root, machine), dir, |name| ends(name, ".whl")),
        ["wheel", ..] => copy(&place.join("wheels"), dir, |name| ends(name, ".whl") || ends(name, ".tar.gz")),
        ["image"] => {
            copy(&place, dir, |name| name.starts_with(&format!("linkspan-{version}-")) && ends(name, ".image.tar"))
        }
        ["deb", _, release] => {
            // Of the newer release what the older one cannot build.
            let window = |name: &str| name.starts_with("linkspan-gui") || name.starts_with("linkspan-desktop_");
            let wanted = |name: &str| *release == deb::RELEASES[0] || window(name);
            copy(&place.join(release), dir, |name| ends(name, ".deb") && wanted(name))
        }
        ["rpm"] => {
            copy(&place.join("rpm/RPMS/noarch"), dir, |name| ends(name, ".rpm"))?;
            copy(&place.join("rpm/RPMS").join(std::env::consts::ARCH), dir, |name| ends(name, ".rpm"))
        }
        _ => copy(&place.join("arch"), dir, |name| name == "PKGBUILD" || name == "linkspan.install"),
    }
}

/// Copies the files of a folder whose names are wanted; there is at least one.
fn copy(from: &Path, to: &Path, wanted: impl Fn(&str) -> bool) -> Result<(), String> {
    let mut found = false;
    for entry in fs::read_dir(from).map_err(|e| format!("{}: {e}", from.display()))?.flatten() {
        let (path, name) = (entry.path(), entry.file_name());
        if path.is_file() && name.to_str().is_some_and(&wanted) {
            fs::copy(&path, to.join(&name)).map_err(|e| format!("{}: {e}", path.display()))?;
            found = true;
        }
    }
    if found { Ok(()) } else { Err(format!("{} has nothing to hand out", from.display())) }
}

fn write(file: &Path, text: &str) -> Result<(), String> {
    fs::write(file, text).map_err(|e| format!("{}: {e}", file.display()))
}

/// Writes the sums of all files in a folder, and checks them as users do.
fn sums(dir: &Path) -> Result<(), String> {
    let list = fs::read_dir(dir).map_err(|e| format!("{}: {e}", dir.display()))?;
    let mut names: Vec<_> = list.flatten().map(|entry| entry.file_name()).filter(|name| name != SUMS).collect();
    names.sort();
    let text = run::output(Command::new("sha256sum").arg("--").args(&names).current_dir(dir))?;
    write(&dir.join(SUMS), &text)?;
    run::output(Command::new("sha256sum").args(["--check", "--strict", "--quiet", SUMS]).current_dir(dir)).map(|_| ())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::super::{part, release_part};
    use super::{NAMED, STEPS, VERSION, agree, copy, left_out, named, sums, version};
    use crate::tree::{self, Source};

    #[test]
    fn steps_are_left_out_by_name_alone() {
        assert_eq!(left_out(&["--without", "rpm", "--without", "tar"]), Ok(vec!["rpm", "tar"]));
        assert!(left_out(&["--without"]).is_err() && left_out(&["--without", "snap"]).is_err());
        assert!(left_out(&["deb"]).is_err());
    }

    #[test]
    fn what_a_release_consists_of_is_known_by_the_words_that_make_it_and_that_overwrite_it() {
        for (name, words) in STEPS {
            assert_eq!((part(words), release_part(words)), (Some(name), Some(name)));
        }
        for again in [&["deb", "--on", "trixie", "--again"], &["deb", "--again", "--on", "trixie"]] {
            assert_eq!(part(again), None);
        }
        assert_eq!((part(&["wheel"]), release_part(&["wheel"])), (Some("wheel"), None));
        let own = ["tar", "--for", std::env::consts::ARCH];
        assert_eq!((part(&own), release_part(&own)), (Some("tar"), None));
    }

    #[test]
    fn every_place_names_the_same_version_and_what_is_tagged_has_a_day() {
        let says = |file: &str, version: &str| {
            let texts = NAMED.iter().filter(|(name, _)| *name == file).map(|(_, text)| text.replace(VERSION, version));
            Ok(texts.collect::<String>())
        };
        assert_eq!(agree("1.2.4", true, |file| says(file, "1.2.4")), Ok(()));
        for (other, _) in NAMED {
            // The version before is first there, as where it was not raised.
            let left = |file: &str| {
                let now = says(file, "1.2.4")?;
                if file == other { says(file, "1.2.3").map(|was| was + &now) } else { Ok(now) }
            };
            assert!(agree("1.2.4", false, left).unwrap_err().starts_with(other));
            let gone = |file: &str| if file == other { Ok(String::new()) } else { says(file, "1.2.4") };
            assert!(agree("1.2.4", false, gone).unwrap_err().starts_with(other));
        }
        let unreleased = |file: &str| {
            let more = if file == "CHANGELOG.md" { " - unreleased\n" } else { "" };
            says(file, "1.2.4").map(|text| text + more)
        };
        assert_eq!(agree("1.2.4", false, unreleased), Ok(()));
        assert!(agree("1.2.4", true, unreleased).unwrap_err().contains("it takes the day"));
    }

    #[test]
    fn the_files_of_this_tree_name_its_version() {
        let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let read = |name: &str| fs::read_to_string(root.join(name)).map_err(|e| format!("{name}: {e}"));
        assert_eq!(agree(&version(root).unwrap(), false, read), Ok(()));
        assert_eq!(named(&version(root).unwrap(), &tree::sources(root)), Ok(()));
    }

    #[test]
    fn a_page_that_names_a_file_of_another_version_anywhere_is_refused() {
        let said = |path: &str, text: &str| named("1.2.4", &[Source { path: path.to_owned(), text: text.to_owned() }]);
        let now = "tar -xf linkspan-1.2.4-x86_64.tar.xz of linkspan:1.2.4. Then lib/linkspan.so, `.so.0`, `.so.1.2.4`, linkspan-VERSION";
        assert_eq!(said("README.md", now), Ok(()));
        for was in ["linkspan-1.2.3-x86_64.tar.xz", "localhost/linkspan:1.2.3 ", "`.so.1.2.3`."] {
            assert!(said("docs/a.md", &format!("{now} {was}")).unwrap_err().starts_with("docs/a.md names"), "{was}");
            assert_eq!(said("CHANGELOG.md", was), Ok(()));
        }
    }

    #[test]
    fn every_file_has_a_sum_and_a_folder_without_files_is_no_release() {
        let dir = std::env::temp_dir().join(format!("linkspan-sums-{}", std::process::id()));
        let (from, to) = (dir.join("from"), dir.join("to"));
        for folder in [&from, &to] {
            fs::create_dir_all(folder).unwrap();
        }
        assert!(copy(&from, &to, |_| true).is_err());
        fs::write(from.join("a"), "a").unwrap();
        fs::write(from.join("b"), "b").unwrap();
        copy(&from, &to, |name| name == "a").unwrap();
        sums(&to).unwrap();
        let text = fs::read_to_string(to.join("SHA256SUMS")).unwrap();
        // SHA-256 of the letter a (FIPS 180-4).
        assert_eq!(text, "ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb  a\n");
        fs::remove_dir_all(dir).unwrap();
    }
}
