use proptest::prelude::*;

use super::*;

const MARK: RelayMark = RelayMark([7, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 255]);

#[test]
fn answers_come_back_as_they_were() {
    for hops in [Hops::Rdma(MARK), Hops::Tcp("b has none".into()), Hops::Tcp(String::new())] {
        assert_eq!(Hops::parse(&hops.text()), hops);
    }
    // Mesh servers of an earlier version say nothing, and nothing else is a mark.
    for text in ["", "rdma", "rdma 00", "rdma zz0102030405060708090a0b0c0d0eff", "rdma é7010203040506070809a0b0c0d0eff"]
    {
        assert_eq!(Hops::parse(text), Hops::Tcp(String::new()), "{text}");
    }
}

#[test]
fn every_hop_is_named() {
    assert_eq!(shown("rdma", &["b".into()]), "2 hops: rdma via b, rdma");
    assert_eq!(shown("tcp", &["b".into(), "c".into()]), "3 hops: tcp via b, tcp via c, tcp");
}

proptest! {
    /// However the bytes come in pieces: all before the mark pass, in order, and none of it.
    #[test]
    fn a_mark_is_found_wherever_it_is(
        before in proptest::collection::vec(any::<u8>(), 0..200),
        cuts in proptest::collection::vec(1usize..40, 1..40),
    ) {
        prop_assume!(MARK.find(&before) == Err(before.len()));
        let all = [&before[..], &MARK.0[..]].concat();
        // Pieces that end within its first three bytes are not told from chance; a mark is written at once.
        let mut ends: Vec<usize> = cuts.iter().scan(0, |at, n| { *at += n; Some(*at) }).collect();
        ends.retain(|&end| end < all.len() && !(before.len() + 1..before.len() + 4).contains(&end));
        ends.push(all.len());
        let (mut held, mut passed, mut from) = (Vec::new(), Vec::new(), 0);
        let mut found = false;
        for end in ends {
            held.extend_from_slice(&all[from..end]);
            from = end;
            let (n, here) = match MARK.find(&held) { Ok(at) => (at, true), Err(n) => (n, false) };
            passed.extend(held.drain(..n));
            found = here;
        }
        prop_assert!(found);
        prop_assert_eq!(passed, before);
        prop_assert_eq!(&held[..], &MARK.0[..]);
    }

    #[test]
    fn any_answer_is_read(text in ".*") {
        let _ = Hops::parse(&text);
    }
}
