//! Which TCP rails hand payload to the kernel by reference instead of having it copied (`LINKSPAN_ZEROCOPY`).

use linkspan_tcp::ZeroCopyPolicy;
use linkspan_topology::{Interface, Verdict};

use crate::params::{BadParam, ZEROCOPY};

/// Least and most that the parameter takes, bytes: a page, and more than any chunk has.
const RANGE: std::ops::RangeInclusive<usize> = 4096..=1 << 30;

/// What `auto` lends, bytes: of shorter payloads the notice costs about what the copy does. Published figures cross between 10 KiB
/// (Linux: Documentation/networking/msg_zerocopy.rst) and 100 KiB; chunks of a stream have 512 KiB.
const FROM: usize = 256 << 10;

/// Slowest link on which it does, Mb/s: one core copies at slower ones' speed with time to spare.
const LEAST_MBPS: u32 = 25_000;

/// What `LINKSPAN_ZEROCOPY` asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ZeroCopy {
    /// On links of 25 Gb/s and more, from 256 KiB on.
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
        let fast = || survey.iter().any(|(i, _)| i.name == name && i.speed_mbps >= Some(LEAST_MBPS));
        match self {
            ZeroCopy::From(from) => {
                (ZeroCopyPolicy::From(from), format!("; zero-copy sends from {from} bytes, as asked for"))
            }
            ZeroCopy::Auto if fast() => {
                (ZeroCopyPolicy::From(FROM), "; zero-copy sends from 256 KiB until the kernel copies".to_owned())
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
    fn links_of_25_gb_per_second_lend_and_slower_ones_copy() {
        let fix = linkspan_topology::fixture::Fixture::new();
        let entry =
            linkspan_topology::AddrEntry { name: "eth7".into(), ip: [10, 0, 0, 1].into(), prefix: 24, scope: 0 };
        let list = linkspan_topology::interfaces(&fix.roots(), &[entry]);
        let plain = list.into_iter().find(|i| i.name == "eth7").expect("it has an address");
        let of = |speed_mbps| [(Interface { speed_mbps, ..plain.clone() }, Verdict::Usable)];
        let never = (ZeroCopyPolicy::Never, String::new());
        for (speed, lends) in [(Some(25_000), true), (Some(400_000), true), (Some(10_000), false), (None, false)] {
            let want = if lends { ZeroCopyPolicy::From(256 << 10) } else { ZeroCopyPolicy::Never };
            assert_eq!(ZeroCopy::Auto.on(&of(speed), "eth7").0, want, "{speed:?}");
        }
        assert_eq!(ZeroCopy::Auto.on(&of(Some(100_000)), "eth8"), never, "another interface");
        assert_eq!(ZeroCopy::Never.on(&of(Some(100_000)), "eth7"), never);
        let (zero_copy, why) = ZeroCopy::From(65536).on(&of(None), "eth7");
        assert_eq!(zero_copy, ZeroCopyPolicy::From(65536));
        assert!(why.contains("65536"), "{why}");
    }
}
