use super::{Needs, needs};

#[test]
fn only_what_guests_run_is_built() {
    for (line, wanted) in [
        ("setup --kernel 6.12", Needs::Runner),
        ("module /tmp/mine", Needs::Runner),
        ("shell --module mine.ko --hosts 3", Needs::Cable),
        ("run tb-pair --kernel debug --once tb-lanes", Needs::Cable),
        ("shell --sys 13", Needs::Programs),
        ("run tb-pair use-cable", Needs::Programs),
        ("run --once all", Needs::Programs),
    ] {
        assert_eq!(needs(&line.split(' ').collect::<Vec<_>>()), wanted, "{line}");
    }
}
