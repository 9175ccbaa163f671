use super::*;

fn figure(name: &str) -> Figure {
    let all = RUNS.iter().flat_map(|run| run.figures);
    *all.into_iter().find(|f| f.name == name).unwrap_or_else(|| panic!("no figure {name}"))
}

#[test]
fn numbers_are_those_of_our_side_in_the_output_of_each_program() {
    let lat =
        "lat v12 8 B, 12 rounds: half round trip 6.480 us (6.1..7.0), bare TCP 5.760 us (5..6), ratio 1.120 (1..2)\n";
    assert_eq!(number(&figure("tcp-8B"), lat), Some(6.48));
    let bw = "bw v12 1048576 B, window 8, 12 rounds of 64: plugin 2.020 GB/s (1.9..2.1), bare TCP 2.050 GB/s (2..3), \
              ratio 0.970 (0.8..1.1), CPU s/GB both sides 1.020 (1.0..1.1), bare 0.980 (0.9..1.0)\n";
    assert_eq!(number(&figure("tcp-stream-1MiB"), bw), Some(2.02));
    assert_eq!(number(&figure("tcp-cpu-1MiB"), bw), Some(1.02));
    let rounds = "round 0: tcp turn 5.1 us, alone 9.0 us, bare 4.1 us\n\
                  tcp: turn median 4.910 us, 4.840 to 5.840; 1.20 of bare (1.18..1.44)\n\
                  tcp: alone median 9.120 us, 9.090 to 10.300; 1.11 of bare (1.09..1.25)\n";
    assert_eq!(number(&figure("one-sided-8B"), rounds), Some(4.91));
    assert_eq!(number(&figure("one-sided-8B-acknowledged"), rounds), Some(9.12));
    assert_eq!(number(&figure("one-sided-shm-8B"), rounds), None);
    let rates = "tcp 1 MiB, target waiting: 7.47 GB/s (6.56..7.56); a bare stream 2.92; ratio 2.5 (2..3)\n\
                 64 peers connected: median 79 ms, 77 to 116\n";
    assert_eq!(number(&figure("one-sided-1MiB"), rates), Some(7.47));
    assert_eq!(number(&figure("connect-64"), rates), Some(79.0));
}

#[test]
fn ratios_are_speeds() {
    assert!(ratio(Sense::Less, 10.0, 5.0) > 1.0);
    assert!(ratio(Sense::More, 10.0, 5.0) < 1.0);
}

#[test]
fn names_are_unique_and_five_are_quick() {
    let mut names: Vec<&str> = RUNS.iter().flat_map(|run| run.figures).map(|f| f.name).collect();
    assert_eq!(RUNS.iter().flat_map(|run| run.figures).filter(|f| f.quick).count(), 5);
    names.sort_unstable();
    let count = names.len();
    names.dedup();
    assert_eq!(names.len(), count);
}
