//! `lspan status`: what this machine has and what is used of it.

mod json;
mod text;

pub(crate) use text::XDOMAIN_OFF;

use linkspan_fabric::keys::Keyring;
use linkspan_fabric::{Device, Fabric, chain};
use linkspan_thunderbolt::Cables;
use linkspan_topology::{Cable, Interface, LAST_RESORT, Machine, Roots, Verdict, cables};
use linkspan_verbs::Rdma;

use crate::cli::StatusArgs;
use crate::exit::{Exit, Failure};
use crate::fabric;
use crate::out::Out;

/// Everything that is shown.
struct View<'a> {
    machine: &'a Machine,
    survey: &'a [(Interface, Verdict)],
    devices: &'a [Device],
    cables: &'a [Cable],
}

pub(crate) fn run(args: &StatusArgs) -> Result<Exit, Failure> {
    let fabric = fabric::shown()?;
    let mut out = Out::default();
    if args.json {
        let set = environment();
        show(&fabric, |view| out.json(&json::status(view, &set), true))??;
    } else {
        out.text(&text(&fabric)?)?;
    }
    exit(fabric)
}

/// How the view ends the program.
fn exit(fabric: Result<Fabric, Failure>) -> Result<Exit, Failure> {
    let fabric = fabric?;
    // Who asks for the loopback interface by name wants no other.
    let chosen = |name: &str| fabric.config().interfaces.as_ref().is_some_and(|filter| filter.asks_for(name));
    let alone = fabric.devices().iter().all(|one| one.loopback && !one.ports.iter().any(|port| chosen(&port.name)));
    Ok(if alone || fabric.last_resort().is_some() { Exit::Degraded } else { Exit::Ok })
}

/// The view for the default command, and how it ends the program.
pub(crate) fn view() -> Result<(String, Result<Exit, Failure>), Failure> {
    let fabric = fabric::shown()?;
    Ok((text(&fabric)?, exit(fabric)))
}

fn show<T>(fabric: &Result<Fabric, Failure>, with: impl FnOnce(&View<'_>) -> T) -> Result<T, Failure> {
    let (survey, devices) = match fabric {
        Ok(fabric) => (fabric.survey().to_vec(), fabric.devices()),
        Err(_) => (linkspan_fabric::survey(&fabric::settings()?)?, Vec::new()),
    };
    let machine = Machine::read(&Roots::default());
    let cables = cables(&machine, &survey);
    Ok(with(&View { machine: &machine, survey: &survey, devices: &devices, cables: &cables }))
}

/// The whole view as text.
fn text(fabric: &Result<Fabric, Failure>) -> Result<String, Failure> {
    let mut text = show(fabric, text::text)?;
    if let Ok(fabric) = fabric {
        text.push_str(&text::rdma_limits(&fabric.transport::<Rdma>().map(Rdma::ports).unwrap_or_default()));
        text.push_str(&text::cables_used(&fabric.transport::<Cables>().map(Cables::ports).unwrap_or_default()));
        let config = fabric.config();
        text.push_str(&format!(
            "paths: {}{}\n",
            match config.path.forced() {
                None =>
                    "shared memory on one host; between hosts RDMA where both have it, else a Thunderbolt or USB4 cable that joins them, else TCP, whose \
                     payload lands in GPU memory where both have set their cards up (lspan devmem)".to_owned(),
                Some(path) => format!("{}, forced by LINKSPAN_PATH", fabric.title(path)),
            },
            if config.strict { "; strict: a downgrade is an error" } else { "" }
        ));
    }
    match Keyring::find() {
        Ok(None) => {}
        Ok(Some(ring)) => {
            let names = ring.names();
            if !names.is_empty() {
                text.push_str(&format!("paired peers: {} (lspan key list)\n", names.join(", ")));
            }
        }
        Err(error) => text.push_str(&format!("paired peers: {}\n", chain(&error))),
    }
    let set = environment();
    for (name, instead) in linkspan_doctor::older_names(set.iter().map(String::as_str)) {
        text.push_str(&format!("{name} is of an older project, and linkspan does not read it; instead: {instead}\n"));
    }
    Ok(text)
}

/// Names of the environment; of the plugin that NCCL loads its value too.
fn environment() -> Vec<String> {
    let with_value = |name: String, value: std::ffi::OsString| match name == "NCCL_NET_PLUGIN" {
        true => format!("{name}={}", value.to_string_lossy()),
        false => name,
    };
    std::env::vars_os().filter_map(|(name, value)| Some(with_value(name.into_string().ok()?, value))).collect()
}

fn addresses(iface: &Interface) -> Vec<String> {
    iface.addrs.iter().map(|addr| format!("{}/{}", addr.ip, addr.prefix)).collect()
}

fn reason(verdict: &Verdict) -> Option<String> {
    match verdict {
        Verdict::Usable => None,
        Verdict::LastResort => Some(LAST_RESORT.to_owned()),
        Verdict::LeftOut(reason) => Some(reason.to_string()),
    }
}

#[cfg(test)]
mod tests;
