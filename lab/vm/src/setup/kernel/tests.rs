use super::newest;

fn names(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

#[test]
fn the_newest_plain_kernel_by_number_not_by_letter() {
    let all = names(&[
        "linux-image-7.2.9+deb13-amd64",
        "linux-image-7.2.12+deb13-amd64",
        "linux-image-7.2.13+deb13-cloud-amd64",
        "linux-image-7.2.13+deb13-rt-amd64",
        "linux-image-7.2.13+deb13-amd64-unsigned",
        "linux-image-7.2.13+deb13-amd64-dbg",
    ]);
    assert_eq!(newest(&all).as_deref(), Some("7.2.12+deb13-amd64"));
    assert_eq!(newest(&names(&["linux-image-7.2.13+deb13-rt-amd64"])), None);
}
