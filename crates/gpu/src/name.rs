//! Names that people give memory: `host`, `cuda:0`, `hip:1`.

use std::fmt;
use std::str::FromStr;

use crate::{GpuError, Kind};

/// Where memory is to be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MemoryName {
    /// In host memory.
    #[default]
    Host,
    /// On the device of this kind and number; `cuda` and `hip` alone mean number 0.
    Device(Kind, usize),
}

impl FromStr for MemoryName {
    type Err = GpuError;

    fn from_str(text: &str) -> Result<MemoryName, GpuError> {
        let bad = || GpuError::Name { name: text.to_owned() };
        if text == "host" {
            return Ok(MemoryName::Host);
        }
        let (kind, number) = text.split_once(':').unwrap_or((text, "0"));
        let kind = match kind {
            "cuda" => Kind::Cuda,
            "hip" => Kind::Hip,
            _ => return Err(bad()),
        };
        let plain = !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit());
        let number = number.parse().ok().filter(|&n: &usize| plain && n < 4096).ok_or_else(bad)?;
        Ok(MemoryName::Device(kind, number))
    }
}

impl fmt::Display for MemoryName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MemoryName::Host => f.write_str("host"),
            MemoryName::Device(kind, number) => write!(f, "{kind}:{number}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_and_written_alike() {
        for name in ["host", "cuda:0", "hip:11"] {
            assert_eq!(name.parse::<MemoryName>().map(|n| n.to_string()), Ok(name.to_owned()));
        }
        assert_eq!("hip".parse(), Ok(MemoryName::Device(Kind::Hip, 0)));
        for bad in ["", "cuda:", "cuda:-1", "cuda:+1", "cuda:99999", "sim:0", "gpu", "host:0"] {
            assert!(bad.parse::<MemoryName>().is_err_and(|e| e.to_string().starts_with("LS1312")), "{bad}");
        }
    }
}
