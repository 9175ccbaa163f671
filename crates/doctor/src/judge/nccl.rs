//! NCCL and RCCL: which plugin will be taken, and what the environment says.

use super::{Case, by_hand, run};
use crate::finding::Step;
use crate::list::*;
use crate::loader::older;
use crate::package;
use crate::shell::word;
use crate::snapshot::{PLUGINS, Snapshot};

/// The file of settings that NCCL reads last.
const CONF: &str = "/etc/nccl.conf";

/// Whether a value of NCCL_NET_PLUGIN has linkspan: by its name, or by a file.
pub fn takes_linkspan(list: &str) -> bool {
    list.split(',').any(is_linkspan)
}

fn is_linkspan(one: &str) -> bool {
    one == "linkspan" || one.contains("-net-linkspan.so")
}

pub(super) fn judge(case: &mut Case<'_>) {
    names(case);
    let snap = case.snap;
    let list = snap.nccl("NCCL_NET_PLUGIN").unwrap_or_default();
    let asked = takes_linkspan(&list);
    if asked && let Some(net) = snap.nccl("NCCL_NET").filter(|net| !net.eq_ignore_ascii_case("linkspan")) {
        let what = format!("NCCL_NET={net}, while NCCL_NET_PLUGIN asks for linkspan: NCCL takes {net}");
        case.add(&NCCL_OTHER_NET, "NCCL_NET", what, snap.nccl_unset("NCCL_NET"));
    }
    // NCCL looks for one name, RCCL for the other; a host has one of the two.
    let path = list.split(',').find(|one| is_linkspan(one) && one.contains('/'));
    if let Some(path) = path {
        if !snap.sources.roots.has(path) {
            let what = format!("NCCL_NET_PLUGIN asks for {path}, and there is no such file");
            case.add(&NCCL_NOT_FOUND, "", what, by_hand("correct the path; inside a container it has to be mounted"));
        }
    } else if asked && snap.plugins.iter().all(Vec::is_empty) {
        let what = format!(
            "NCCL_NET_PLUGIN asks for linkspan, and neither {} nor {} is in LD_LIBRARY_PATH, ld.so.cache or the usual folders",
            PLUGINS[0], PLUGINS[1]
        );
        let steps = "put the folder with the plugin into LD_LIBRARY_PATH, or run ldconfig after installing it; inside a container it has to be mounted";
        case.add(&NCCL_NOT_FOUND, "", what, by_hand(steps));
    }
    for (name, found) in PLUGINS.iter().zip(&snap.plugins) {
        let Some((first, others)) = found.split_first() else { continue };
        let newer = others.iter().find(|other| older(first.version.as_deref(), other.version.as_deref()));
        if let Some(newer) = newer {
            let shown = |version: &Option<String>| version.clone().unwrap_or_else(|| "an unknown release".into());
            let what = format!(
                "{name}: the loader takes {} ({}) before {} ({})",
                first.file,
                shown(&first.version),
                newer.file,
                shown(&newer.version)
            );
            case.add(&NCCL_SHADOWED, name, what, package::remove(&snap.sources.roots, &first.file));
        } else if !asked {
            case.fact(format!("{} is installed; NCCL takes it with NCCL_NET_PLUGIN=linkspan", first.file));
        }
    }
}

/// Older names in the environment and in NCCL's own files.
fn names(case: &mut Case<'_>) {
    let snap = case.snap;
    let with_value = |(name, value): (&String, &String)| match &**name == "NCCL_NET_PLUGIN" {
        true => format!("{name}={value}"),
        false => name.clone(),
    };
    let set: Vec<String> = snap.sources.env.iter().map(with_value).collect();
    for (name, instead) in crate::older::names(set.iter().map(String::as_str)) {
        let variable = name.split('=').next().unwrap_or(name);
        let what = format!("{name} is set, of an older project; instead: {instead}");
        case.add(&NCCL_OLD_NAMES, variable, what, run(format!("unset {}", word(variable))));
    }
    for one in snap.conf() {
        for (name, instead) in crate::older::names(std::iter::once(one.name.as_str())) {
            let what = format!("{} sets {name}, of an older project; instead: {instead}", one.file);
            case.add(&NCCL_OLD_NAMES, name, what, vec![one.taken_out()]);
        }
    }
}

/// A line `NAME=VALUE` of one of NCCL's files.
pub(crate) struct Line {
    file: String,
    pub(crate) name: String,
    pub(crate) value: String,
}

impl Line {
    fn taken_out(&self) -> Step {
        let sudo = if self.file == CONF { "sudo " } else { "" };
        Step::Run(format!("{sudo}sed -i '/^{}=/d' {}", self.name, word(&self.file)))
    }
}

impl Snapshot {
    /// What NCCL and RCCL take for a name: the environment's value, else that of their files, which do not replace it.
    pub fn nccl(&self, name: &str) -> Option<String> {
        let own = self.env(name).map(str::to_owned);
        own.or_else(|| self.conf().into_iter().find(|one| one.name == name).map(|one| one.value))
    }

    /// What takes a name out of all places: what is set in one is hidden by another.
    pub fn nccl_unset(&self, name: &str) -> Vec<Step> {
        let env = self.env(name).map(|_| Step::Run(format!("unset {name}")));
        let lines = self.conf().into_iter().filter(|one| one.name == name).map(|one| one.taken_out());
        env.into_iter().chain(lines).collect()
    }

    /// The lines of NCCL's files, of which the first of a name counts: the user's goes before that of the machine (src/misc/param.cc of NCCL).
    pub(crate) fn conf(&self) -> Vec<Line> {
        let own = self.env("NCCL_CONF_FILE").filter(|file| !file.is_empty()).map(str::to_owned);
        let own = own.or_else(|| Some(format!("{}/.nccl.conf", self.env("HOME")?)));
        let lines = |file: String| {
            let text = self.text(&file).unwrap_or_default();
            let lines = text.lines().filter(|line| !line.starts_with('#')).filter_map(|line| line.split_once('='));
            let plain = |name: &str| !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
            let line = |(name, value): (&str, &str)| Line {
                file: file.clone(),
                name: name.to_owned(),
                value: value.trim().to_owned(),
            };
            lines.filter(|(name, _)| plain(name)).map(line).collect::<Vec<_>>()
        };
        own.into_iter().chain([CONF.to_owned()]).flat_map(lines).collect()
    }
}
