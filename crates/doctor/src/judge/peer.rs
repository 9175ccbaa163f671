//! What a peer answered.

use super::{Case, by_hand};
use crate::finding::Step;
use crate::list::*;
use crate::probe::{Asked, Tcp};

pub(super) fn judge(case: &mut Case<'_>, asked: &Asked) {
    let snap = case.snap;
    let peer = asked.peer.to_string();
    let Some(source) = asked.source else {
        let what = format!("there is no route to {peer}: no interface has an address of its subnet");
        case.add(
            &NET_NO_ROUTE,
            &peer,
            what,
            by_hand(format!(
                "give the interface that leads there an address beside {peer}, with the same length of prefix"
            )),
        );
        return;
    };
    let out = snap.survey.iter().map(|(iface, _)| iface).find(|iface| iface.addrs.iter().any(|a| a.ip == source));
    let name = out.map_or("?", |iface| &iface.name);
    let silent = matches!(asked.tcp, Tcp::Silent | Tcp::Unreachable);
    match asked.answers {
        Some(false) if silent => {
            let what = format!("{peer} answers neither a ping nor a connection over {name}");
            case.add(&NET_UNREACHABLE, &peer, what, by_hand(format!("look at the cable of {name}; on the other host run `lspan doctor`, which names a missing address or a firewall")));
            return;
        }
        Some(true) if silent => {
            let what =
                format!("{peer} answers a ping over {name}, and a connection to port {} gets no answer", asked.port);
            case.add(
                &FIREWALL_PEER,
                &peer,
                what,
                by_hand(format!(
                    "on the host of {peer}: sudo lspan doctor, which names the rule and the command that lets {name} in"
                )),
            );
        }
        None if silent => {
            case.fact(format!("{peer} does not answer at port {}; pings may not be sent by this user", asked.port))
        }
        _ => {}
    }
    if let (Some(passes), Some(mtu)) = (asked.passes, asked.mtu) {
        let what = format!("packets of more than {passes} bytes to {peer} vanish; {name} sends up to {mtu}");
        let mut steps = snap.manager(name).mtu(name, passes);
        steps.push(Step::Do(format!("the same at the other end; or an MTU of {mtu} on every switch between")));
        case.add(&NET_BLACK_HOLE, &peer, what, steps);
    }
    if asked.tcp == Tcp::Refused {
        case.fact(format!(
            "{peer} can be reached and nothing listens at port {}: type `lspan perf serve` there",
            asked.port
        ));
    }
}

#[cfg(test)]
mod tests;
