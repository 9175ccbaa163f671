use super::debian;

#[test]
fn the_main_archive_is_found_among_others() {
    let list = "Node Source|Node Source|https://example.com/node/\n\
                Debian|Debian-Security|http://example.com/debian-security/\n\
                Debian|Debian|http://example.org/debian/\nDebian|Debian|http://example.com/debian/\n";
    assert_eq!(debian(list).as_deref(), Some("http://example.org/debian"));
    assert_eq!(debian("Ubuntu|Ubuntu|http://example.com/ubuntu/\n"), None);
    assert_eq!(debian(""), None);
}
