use super::*;

fn once(gbit_s: f64) -> Result<Once, String> {
    Ok(Once { gbit_s, latency_us: None, path: "tcp <eth0>".into(), downgrades: Vec::new() })
}

fn three() -> (Vec<String>, Vec<Cell>) {
    let names = ["a", "user@b", "c"].map(str::to_owned).to_vec();
    let rates = [(0, 1, 10.0), (1, 0, 10.2), (0, 2, 9.9), (2, 0, 10.0), (1, 2, 4.0)];
    let mut cells: Vec<Cell> =
        rates.map(|(from, to, rate)| Cell { from, to, result: once(rate) }).into_iter().collect();
    cells.push(Cell { from: 2, to: 1, result: Err("LS0732 no answer".into()) });
    (names, cells)
}

#[test]
fn hosts_and_their_addresses() {
    assert_eq!(place("user@b").unwrap(), MatrixHost { name: "user@b".into(), addr: "b".into() });
    assert_eq!(place("c=fe80::1%eth0").unwrap().addr, "fe80::1%eth0");
    for bad in ["", "-oProxyCommand=x", "a b", "a=", "=b", "a=-x"] {
        assert!(place(bad).is_err(), "{bad}");
    }
}

#[test]
fn equal_reasons_of_pairs_are_said_once() {
    let (names, mut cells) = three();
    let degraded = |cell: &mut Cell| cell.result.as_mut().unwrap().downgrades.push("LS0517 eth0".into());
    cells[..2].iter_mut().for_each(degraded);
    let text = text(&names, &cells, &[]);
    assert!(text.contains("\n# a to user@b, user@b to a: degraded: LS0517 eth0\n"), "{text}");
}

#[test]
fn two_rates_have_the_median_between_them() {
    let cells = |rates: [f64; 2]| {
        let cell = |(from, rate)| Cell { from, to: 1 - from, result: once(rate) };
        rates.into_iter().enumerate().map(cell).collect::<Vec<_>>()
    };
    assert!(outliers(&cells([10.0, 6.9])).is_empty(), "0.82 of 8.45");
    assert_eq!(outliers(&cells([10.0, 5.0])), [(1, 0)]);
}

#[test]
fn a_pair_that_stands_out_is_named_in_all_forms() {
    let (names, cells) = three();
    let outliers = outliers(&cells);
    assert_eq!(outliers, [(1, 2)]);
    let text = text(&names, &cells, &outliers);
    assert!(
        text.contains("4.00 !") && text.contains("! user@b to c: 4.00 Gb/s") && text.contains("# c to user@b: LS0732"),
        "{text}"
    );
    let page = report(&names, &cells, &outliers, &HostInfo::default());
    assert_eq!(page.matches("class=out").count(), 2, "the outlier and the one that failed");
    assert!(page.contains("tcp &lt;eth0&gt;") && !page.contains("<eth0>"), "what a peer says is text");
    let value = document(&names, &cells, &outliers);
    assert_eq!(crate::schema::problems("matrix-1.json", &value), Vec::<String>::new());
    assert_eq!(value["pairs"][4]["outlier"], true);
}

#[test]
fn an_address_of_ipv6_has_nothing_that_a_shell_takes_for_a_pattern() {
    for (host, port, shown) in [
        ("a=fd00::1", 24_680, "fd00::1:24680"),
        ("a=[fd00::1]", 80, "fd00::1:00080"),
        ("a=10.0.0.1", 80, "10.0.0.1:80"),
        ("a", 24_680, "a:24680"),
    ] {
        assert_eq!(peer(&place(host).unwrap(), port), shown);
    }
}
