//! Which TCP rails hand payload to the kernel by reference instead of having it copied (`LINKSPAN_ZEROCOPY`).

use linkspan_tcp::ZeroCopyPolicy;
use linkspan_topology::{Interface, Verdict};

use crate::params::{BadParam, ZEROCOPY};

/// Least and most that the parameter takes, bytes: a page, and more than any chunk has.
const RANGE: std::ops::RangeInclusive<usize> = 4096..=1 << 30;

/// What `LINKSPAN_ZEROCOPY` asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ZeroCopy {
    /// On real network cards, where it is measured to cost less.
    #[default]
    Auto,
    /// Nowhere.
    Never,
    /// On every link to another machine, from so many bytes on.
    From(usize),
}

impl ZeroCopy {
    pub(crate) fn read(get: &dyn Fn(&str) -> Option<String>) -> Result<ZeroCopy, BadParam> {
        let value = ZEROCOPY.read(get)?.unwrap_or_else(|| ZEROCOPY.default.to_owned());
        match (value.as_str(), value.parse()) {
            ("auto", _) => Ok(ZeroCopy::Auto),
            ("0", _) => Ok(ZeroCopy::Never),
            (_, Ok(from)) if RANGE.contains(&from) => Ok(ZeroCopy::From(from)),
            _ => {
                let want = format!("it takes auto, 0, or bytes from {} to {}", RANGE.start(), RANGE.end());
                Err(BadParam { name: ZEROCOPY.name.to_owned(), value, want })
            }
        }
    }

    /// What a stream over the interface called `name` sends by reference, and the words for its reason.
    pub(crate) fn on(self, survey: &[(Interface, Verdict)], name: &str) -> (ZeroCopyPolicy, String) {
        let real = || survey.iter().any(|(i, _)| i.name == name && i.pci_path.is_some());
        match self {
            ZeroCopy::From(from) => {
                (ZeroCopyPolicy::From(from), format!("; zero-copy sends from {from} bytes, as asked for"))
            }
            ZeroCopy::Auto if real() => {
                (ZeroCopyPolicy::Measured, "; zero-copy sends where measured to cost less".to_owned())
            }
            ZeroCopy::Auto | ZeroCopy::Never => (ZeroCopyPolicy::Never, String::new()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn zerocopy(value: &str) -> Result<ZeroCopy, BadParam> {
        ZeroCopy::read(&|name| (name == "LINKSPAN_ZEROCOPY").then(|| value.to_owned()))
    }

    #[test]
    fn what_the_parameter_takes() {
        assert_eq!(zerocopy(""), Ok(ZeroCopy::Auto));
        assert_eq!(zerocopy("auto"), Ok(ZeroCopy::Auto));
        assert_eq!(zerocopy("0"), Ok(ZeroCopy::Never));
        assert_eq!(zerocopy("65536"), Ok(ZeroCopy::From(65536)));
        for bad in ["1", "4095", "64K", "on", "-1", "1073741825", "auto "] {
            let error = zerocopy(bad).unwrap_err().to_string();
            for part in ["LINKSPAN_ZEROCOPY", bad, "auto, 0", "4096"] {
                assert!(error.contains(part), "{error}");
            }
        }
    }

    #[test]
    fn real_cards_are_measured_and_others_left_alone() {
        let fix = linkspan_topology::fixture::Fixture::new();
        let entry =
            linkspan_topology::AddrEntry { name: "eth7".into(), ip: [10, 0, 0, 1].into(), prefix: 24, scope: 0 };
        let list = linkspan_topology::interfaces(&fix.roots(), &[entry]);
        let plain = list.into_iter().find(|i| i.name == "eth7").expect("it has an address");
        let card = Interface { pci_path: Some("/sys/devices/pci0000:00/0000:00:02.0".into()), ..plain.clone() };
        assert_eq!(ZeroCopy::Auto.on(&[(card.clone(), Verdict::Usable)], "eth7").0, ZeroCopyPolicy::Measured);
        assert_eq!(ZeroCopy::Auto.on(&[(card.clone(), Verdict::Usable)], "eth8").0, ZeroCopyPolicy::Never);
        assert_eq!(
            ZeroCopy::Auto.on(&[(plain.clone(), Verdict::Usable)], "eth7"),
            (ZeroCopyPolicy::Never, String::new())
        );
        assert_eq!(ZeroCopy::Never.on(&[(card, Verdict::Usable)], "eth7").0, ZeroCopyPolicy::Never);
        let (zero_copy, why) = ZeroCopy::From(65536).on(&[(plain, Verdict::Usable)], "eth7");
        assert_eq!(zero_copy, ZeroCopyPolicy::From(65536));
        assert!(why.contains("65536"), "{why}");
    }
}
