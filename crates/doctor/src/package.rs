//! Packages: how they are installed here, and which one a file is of, by the lists that package managers keep in files: dpkg's, and those of
//! wheels.

use linkspan_topology::Roots;

use crate::finding::Step;
use crate::shell::word;

/// Where dpkg keeps a list of files for each package (dpkg-query(1)).
const DPKG: &str = "/var/lib/dpkg/info";

/// Where rpm keeps its database, which no list of text is beside.
const RPM: [&str; 2] = ["/usr/lib/sysimage/rpm", "/var/lib/rpm"];

/// Longest list that is read, bytes: that of a kernel's package has a MiB.
const LIST_MAX: u64 = 8 << 20;

/// Package managers, and how they install. Some SUSE systems have dnf beside their own.
const MANAGERS: [(&str, &str); 4] = [
    ("/usr/bin/apt-get", "sudo apt install"),
    ("/usr/bin/zypper", "sudo zypper install"),
    ("/usr/bin/dnf", "sudo dnf install"),
    ("/usr/bin/pacman", "sudo pacman -S"),
];

/// The command that installs something, whose packages are named for each of [`MANAGERS`], empty where none is known.
pub(crate) fn install(roots: &Roots, names: [&str; 4]) -> Option<String> {
    let ((_, command), names) = MANAGERS.iter().zip(names).find(|((program, _), _)| roots.has(program))?;
    (!names.is_empty()).then(|| format!("{command} {names}"))
}

/// How an older file is taken away: by the package manager that put it there, else by hand.
pub(crate) fn remove(roots: &Roots, file: &str) -> Vec<Step> {
    if let Some(package) = dpkg(roots, file) {
        return vec![
            Step::Run(format!("sudo apt remove {}", word(&package))),
            Step::Do(format!("or install the newer release of {package}: its package has put the older file there")),
        ];
    }
    if let Some((python, wheel)) = wheel(roots, file) {
        return vec![
            Step::Run(format!("{} -m pip uninstall --yes {}", word(&python), word(&wheel))),
            Step::Do(format!("or install the newer release of {wheel}: it has put the older file there")),
        ];
    }
    let system = file.starts_with("/usr/") && !file.starts_with("/usr/local/") || file.starts_with("/lib");
    if system && RPM.iter().any(|base| roots.has(base)) {
        let file = word(file);
        return vec![Step::Do(format!(
            "`rpm -qf {file}` names the package that has put the older file there: `sudo dnf remove` it, or install its newer release; where none \
             has, `sudo rm {file}`"
        ))];
    }
    vec![Step::Run(format!("sudo rm {}", word(file)))]
}

/// The Debian package of a file. Of a system with merged folders it may list `/lib` for `/usr/lib`.
fn dpkg(roots: &Roots, file: &str) -> Option<String> {
    let (folder, name) = file.rsplit_once('/')?;
    let top = roots.at("/").canonicalize().ok()?;
    let real = roots.at(folder).canonicalize().ok()?;
    let real = format!("/{}/{name}", real.strip_prefix(top).ok()?.display());
    let names = [file, &real, real.strip_prefix("/usr").unwrap_or(&real)];
    let lists = std::fs::read_dir(roots.at(DPKG)).ok()?.flatten().map(|entry| entry.file_name());
    let lists = lists.filter_map(|list| Some(list.to_str()?.strip_suffix(".list")?.to_owned()));
    let has = |package: &String| {
        let text = roots.bytes(&format!("{DPKG}/{package}.list"), LIST_MAX).unwrap_or_default();
        text.split(|b| *b == b'\n').any(|line| names.iter().any(|name| name.as_bytes() == line))
    };
    lists.into_iter().find(has)
}

/// The Python and the wheel of a file: its `RECORD` lists it (the specification "Recording installed projects").
fn wheel(roots: &Roots, file: &str) -> Option<(String, String)> {
    let (site, below) = file.split_once("/site-packages/").or_else(|| file.split_once("/dist-packages/"))?;
    let folder = &file[..file.len() - below.len() - 1];
    let names = roots.names(folder).into_iter().filter(|name| name.ends_with(".dist-info"));
    let has = |info: &String| {
        let text = roots.bytes(&format!("{folder}/{info}/RECORD"), LIST_MAX).unwrap_or_default();
        String::from_utf8_lossy(&text).lines().any(|line| line.split(',').next() == Some(below))
    };
    let info = names.into_iter().find(has)?;
    let own = site.rsplit_once("/lib").map(|(prefix, _)| format!("{prefix}/bin/python3"));
    let python = own.filter(|python| roots.has(python)).unwrap_or_else(|| "python3".to_owned());
    Some((python, info.split('-').next()?.to_owned()))
}

#[cfg(test)]
mod tests;
