use super::*;

fn env(pairs: &'static [(&'static str, &'static str)]) -> impl Fn(&str) -> Option<String> {
    move |name| pairs.iter().find(|p| p.0 == name).map(|p| p.1.to_owned())
}

#[test]
fn every_default_is_one_the_parameter_takes() {
    for param in ALL.iter().filter(|p| !p.default.is_empty()) {
        let get = |_: &str| Some(param.default.to_owned());
        assert_eq!(param.read(&get), Ok(Some(param.default.to_owned())), "{}", param.name);
    }
}

#[test]
fn wrong_values_name_the_parameter_the_value_and_the_way_out() {
    let error = STREAMS.read(&env(&[("LINKSPAN_TCP_STREAMS", "nine")])).unwrap_err().to_string();
    for part in ["LINKSPAN_TCP_STREAMS", "nine", "0 to 8", "lspan env"] {
        assert!(error.contains(part), "{error}");
    }
    assert!(STRICT.switch(&env(&[("LINKSPAN_STRICT", "yes")])).is_err());
}

#[test]
fn misspelt_names_are_found() {
    assert_eq!(unknown(["LINKSPAN_STRIKT", "LINKSPAN_STRICT", "PATH"].into_iter()), ["LINKSPAN_STRIKT"]);
}
