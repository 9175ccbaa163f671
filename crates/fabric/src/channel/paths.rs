//! The paths of a connection as text: rails with one reason stand together, and the reason is stated once.

use linkspan_transport::RailInfo;

/// Rails of one transport with the same reason.
struct Group<'a> {
    transport: &'a str,
    reason: &'a str,
    paths: Vec<&'a str>,
}

fn groups<'a>(rails: impl Iterator<Item = &'a RailInfo>) -> Vec<Group<'a>> {
    let mut groups: Vec<Group<'_>> = Vec::new();
    for RailInfo { transport, path, reason, .. } in rails {
        match groups.iter_mut().find(|group| (group.transport, group.reason) == (*transport, reason)) {
            Some(group) => group.paths.push(path),
            None => groups.push(Group { transport, reason, paths: vec![path] }),
        }
    }
    groups
}

/// All of it in one line.
pub(super) fn line<'a>(rails: impl Iterator<Item = &'a RailInfo>) -> String {
    let groups = groups(rails);
    let text =
        groups.iter().map(|Group { transport, reason, paths }| format!("{transport} {} ({reason})", paths.join(", ")));
    let text = text.collect::<Vec<_>>().join("; ");
    match groups.iter().map(|group| group.paths.len()).sum() {
        0 => "no rail".into(),
        1 => text,
        rails => format!("{rails} rails: {text}"),
    }
}

/// A line for each rail, below the reason that several have.
pub(super) fn lines<'a>(rails: impl Iterator<Item = &'a RailInfo>) -> Vec<String> {
    let mut lines = Vec::new();
    for Group { transport, reason, paths } in groups(rails) {
        if let [path] = paths[..] {
            lines.push(format!("{transport} {path} ({reason})"));
        } else {
            lines.push(format!("{transport}, {} rails ({reason}):", paths.len()));
            lines.extend(paths.iter().map(|path| format!("  {path}")));
        }
    }
    lines
}

#[cfg(test)]
mod tests;
