use proptest::prelude::*;

use super::*;

/// The merged hash of `bytes` in chunks of `chunk`, pushed in the order of `keys`.
fn merged(bytes: &[u8], chunk: usize, keys: &[u64]) -> Value {
    let mut order: Vec<usize> = (0..bytes.len().div_ceil(chunk)).collect();
    order.sort_by_key(|&n| keys.get(n % keys.len().max(1)).map_or(0, |k| k.wrapping_mul(n as u64 + 1)));
    let mut merger = Merger::default();
    for &n in &order {
        let part = &bytes[n * chunk..bytes.len().min((n + 1) * chunk)];
        merger.push(n as u64, value((n * chunk) as u64, part));
    }
    merger.finish(order.len() as u64).unwrap()
}

proptest! {
    #[test]
    fn merged_values_are_the_hash_of_the_whole(
        len in 1025usize..70_000, shift in 0u32..3, seed: u8, keys in proptest::collection::vec(any::<u64>(), 1..9),
    ) {
        let chunk = 1024 << shift;
        prop_assume!(len > chunk);
        let bytes: Vec<u8> = (0..len).map(|n| (n as u8).wrapping_mul(31) ^ seed ^ (n >> 8) as u8).collect();
        prop_assert_eq!(merged(&bytes, chunk, &keys), whole(&bytes));
    }
}

#[test]
fn a_file_of_which_chunks_are_missing_has_no_hash() {
    let mut merger = Merger::default();
    merger.push(1, [0; 32]);
    assert_eq!((merger.merged(), merger.finish(2)), (0, None));
}
