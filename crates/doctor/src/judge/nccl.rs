//! NCCL and RCCL: which plugin will be taken, and what the environment says.

use super::{Case, by_hand, run};
use crate::finding::Step;
use crate::list::*;
use crate::loader::older;
use crate::package;
use crate::shell::word;
use crate::snapshot::PLUGINS;

/// Files of settings that NCCL reads where the environment does not say otherwise (NCCL's documentation, "Environment Variables").
const CONF: &str = "/etc/nccl.conf";

pub(super) fn judge(case: &mut Case<'_>) {
    names(case);
    let snap = case.snap;
    let asked = value(case, "NCCL_NET_PLUGIN").is_some_and(|list| list.split(',').any(|one| one == "linkspan"));
    if asked && let Some(net) = value(case, "NCCL_NET").filter(|net| !net.eq_ignore_ascii_case("linkspan")) {
        let what = format!("NCCL_NET={net}, while NCCL_NET_PLUGIN asks for linkspan: NCCL takes {net}");
        case.add(&NCCL_OTHER_NET, "NCCL_NET", what, unset(case, "NCCL_NET"));
    }
    // NCCL looks for one name, RCCL for the other; a host has one of the two.
    if asked && snap.plugins.iter().all(Vec::is_empty) {
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

/// Older names in the environment and in NCCL's own file.
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
    let conf = conf(case);
    for (name, instead) in crate::older::names(conf.iter().map(|(name, _)| name.as_str())) {
        let what = format!("{CONF} sets {name}, of an older project; instead: {instead}");
        case.add(&NCCL_OLD_NAMES, name, what, run(format!("sudo sed -i '/^{name}=/d' {CONF}")));
    }
}

/// Lines `NAME=VALUE` of NCCL's file.
fn conf(case: &Case<'_>) -> Vec<(String, String)> {
    let text = case.snap.text(CONF).unwrap_or_default();
    let lines = text.lines().filter(|line| !line.starts_with('#')).filter_map(|line| line.split_once('='));
    let plain = |name: &&str| !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
    lines.filter(|(name, _)| plain(name)).map(|(name, value)| (name.to_owned(), value.trim().to_owned())).collect()
}

/// What NCCL takes for a name: the environment's value, else that of its file.
fn value(case: &Case<'_>, name: &str) -> Option<String> {
    let own = case.snap.env(name).map(str::to_owned);
    own.or_else(|| conf(case).into_iter().find(|(key, _)| key == name).map(|(_, value)| value))
}

fn unset(case: &Case<'_>, name: &str) -> Vec<Step> {
    match case.snap.env(name) {
        Some(_) => run(format!("unset {name}")),
        None => run(format!("sudo sed -i '/^{name}=/d' {CONF}")),
    }
}
