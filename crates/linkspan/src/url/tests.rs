use proptest::prelude::*;

use super::*;

fn sample() -> Url {
    let token = linkspan_proto::login::Token::new([7; 16]);
    let mut handle = Handle::new(0x1122, token, 0x33);
    let addr = linkspan_proto::handle::Addr { ip: "10.1.2.3".parse().unwrap(), port: 4000, prefix: 24 };
    handle.push(addr).unwrap();
    Url::new(UrlKind::Transport, 0xAABB, handle.encode())
}

#[test]
fn a_url_goes_through_text_and_keeps_its_form() {
    let text = sample().to_string();
    assert!(text.starts_with("linkspan://1/ALuqAAAAAAAATFNQTg"), "{text}");
    assert_eq!(text.len(), "linkspan://1/".len() + CHARS);
    assert_eq!(text.parse::<Url>().unwrap(), sample());
    assert_eq!(format!(" {text}\n").parse::<Url>().unwrap(), sample(), "spaces around it do no harm");
}

#[test]
fn debug_and_errors_redact_the_secret() {
    let (url, text) = (sample(), sample().to_string());
    assert_eq!(format!("{url:?}"), "linkspan://1/<secret>@10.1.2.3:4000");
    assert_eq!(url.redacted(), format!("{url:?}"));
    let body = text.rsplit('/').next().unwrap();
    for broken in [body.to_owned(), text[..60].to_owned(), format!("{text}x"), text.replace("//1/", "//2/")] {
        let told = format!("{0} {0:?}", broken.parse::<Url>().unwrap_err());
        assert!(!told.contains(&body[40..60]), "{told}");
    }
}

#[test]
fn parse_errors_say_what_is_wrong() {
    let text = sample().to_string();
    let error = |t: &str| t.parse::<Url>().unwrap_err();
    assert_eq!(error("tcp://somewhere"), UrlError::Scheme);
    assert_eq!(error("linkspan://7/abc"), UrlError::Version("7".into()));
    assert_eq!(error(&text[..100]), UrlError::Length { got: 87 });
    assert_eq!(error(&format!("{text}AAAA")), UrlError::Length { got: CHARS + 4 });
    assert_eq!(error(&text.replacen("ALu", "A*u", 1)), UrlError::Character { at: 15, found: '*' });
    let mut swapped = text.clone().into_bytes();
    swapped.swap(20, 30);
    if swapped != text.as_bytes() {
        assert_eq!(error(std::str::from_utf8(&swapped).unwrap()), UrlError::Checksum);
    }
    for (code, wrong) in [("LS1120", "x".to_owned()), ("LS1122", text[..50].to_owned())] {
        assert!(error(&wrong).to_string().starts_with(code));
    }
}

proptest! {
    #[test]
    fn any_text_is_a_url_or_an_error(text in "\\PC{0,300}") {
        let _ = text.parse::<Url>();
        let _ = format!("linkspan://1/{text}").parse::<Url>();
    }

    #[test]
    fn one_wrong_character_is_found(at in 13usize..13 + CHARS, with in 0usize..64) {
        let mut text = sample().to_string().into_bytes();
        let was = std::mem::replace(&mut text[at], ALPHABET[with]);
        let parsed = String::from_utf8(text).unwrap().parse::<Url>();
        prop_assert_eq!(parsed.is_ok(), was == ALPHABET[with]);
    }
}
