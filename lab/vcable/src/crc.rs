//! CRC-32C (Castagnoli), as it ends each control packet.

/// CRC-32C with initial value and final inversion of all ones. Bit by bit: control packets are short and rare.
pub(crate) fn crc32c(data: &[u8]) -> u32 {
    extend(0, data)
}

/// The CRC-32C of what `crc` is of, and `data` behind it.
pub(crate) fn extend(crc: u32, data: &[u8]) -> u32 {
    !data.iter().fold(!crc, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |c, _| if c & 1 == 1 { c >> 1 ^ 0x82f6_3b78 } else { c >> 1 })
    })
}

#[cfg(test)]
#[test]
fn check_value() {
    // The check value of the CRC catalogue.
    assert_eq!(crc32c(b"123456789"), 0xe306_9283);
}
