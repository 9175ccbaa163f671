use super::*;

#[test]
fn presets_are_what_their_names_say() {
    let shape = |name: &str| {
        let t = Topology::preset(name).unwrap();
        (t.hosts.len(), t.cables.len())
    };
    assert_eq!(PRESETS.map(shape), [(2, 1), (2, 2), (4, 2), (3, 2), (3, 3), (2, 1), (2, 2)]);
    assert_eq!(Topology::preset("ring"), None);
}

#[test]
fn all_words_of_a_host_and_a_cable() {
    let text = "# two\nhost a ports=2 hops=12 router=v2 irq=intel msi pm=off gen=4 lanes=2 edge=status machine=m # one\n\
                peer p\n\ncable x a:2 p width=dual gen=3 unplugged";
    let t = Topology::parse(text).unwrap();
    let a = &t.hosts[0];
    assert_eq!((a.ports, a.hops, a.generation, a.lanes, a.machine.as_str()), (2, 12, 4, 2, "m"));
    assert!(
        a.version_2
            && a.intel
            && a.msi
            && !a.pm
            && t.hosts[1].pm
            && a.edge == Edge::Status
            && !a.peer
            && t.hosts[1].peer
    );
    let cable = &t.cables[0];
    assert_eq!(cable.ends, [End { host: 0, port: 2 }, End { host: 1, port: 1 }]);
    assert_eq!((cable.width, cable.generation, cable.plugged), (Width::Dual, 3, false));
}

#[test]
fn wrong_lines_say_where_and_what() {
    for (text, line, what) in [
        ("host a\nhost a", 2, "twice"),
        ("host ../a", 1, "letters"),
        ("host a\ncable x a:1 b:1", 2, "no host 'b'"),
        ("host a\nhost b\ncable x a:1 b:2", 3, "from 1 to 1"),
        ("host a\nhost b ports=2\ncable x a:1 b:1\ncable y a:1 b:2", 4, "taken"),
        ("host a ports=2\ncable x a:1 a:1", 2, "taken"),
        ("host a colour=red", 1, "wanted"),
        ("bridge a", 1, "wanted"),
    ] {
        match Topology::parse(text) {
            Err(Error::Topology { line: at, what: said }) => {
                assert!(at == line && said.contains(what), "{text}: {at} {said}");
            }
            other => panic!("{text}: {other:?}"),
        }
    }
}
