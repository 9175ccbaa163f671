//! Golden bytes written by hand from the kernel's headers (little-endian machines), and lengths that lie.
#![allow(clippy::unwrap_used)]

use super::*;

#[cfg(target_endian = "little")]
#[test]
fn bind_receive_is_what_the_kernel_reads() {
    // NETDEV_CMD_BIND_RX for interface 3, queue 5 of kind rx, descriptor 9.
    let request = Request::new(20, ACK, 13, 1).u32(1, 3).nest(2, |queue| queue.u32(1, 5).u32(3, 0)).u32(3, 9).finish(7);
    #[rustfmt::skip]
    let golden = [
        56, 0, 0, 0, 20, 0, 5, 0, 7, 0, 0, 0, 0, 0, 0, 0,
        13, 1, 0, 0,
        8, 0, 1, 0, 3, 0, 0, 0,
        20, 0, 2, 128, 8, 0, 1, 0, 5, 0, 0, 0, 8, 0, 3, 0, 0, 0, 0, 0,
        8, 0, 3, 0, 9, 0, 0, 0,
    ];
    assert_eq!(request, golden);
}

fn message(kind: u16, flags: u16, sequence: u32, body: &[u8]) -> Vec<u8> {
    let mut out = ((16 + body.len()) as u32).to_ne_bytes().to_vec();
    out.extend_from_slice(&kind.to_ne_bytes());
    out.extend_from_slice(&flags.to_ne_bytes());
    out.extend_from_slice(&sequence.to_ne_bytes());
    out.extend_from_slice(&[0; 4]);
    out.extend_from_slice(body);
    out.resize(out.len().next_multiple_of(4), 0);
    out
}

#[test]
fn answers_are_taken_apart() {
    let object = Request::new(20, 0, 10, 1).u32(1, 4).bytes(9, b"name\0").finish(7);
    let mut error = (-95i32).to_ne_bytes().to_vec();
    error.extend_from_slice(&[36, 0, 0, 0, 20, 0, 5, 0, 7, 0, 0, 0, 0, 0, 0, 0]);
    error.extend_from_slice(&Request(Vec::new()).bytes(1, b"no such thing\0").0);
    let all = [object.clone(), message(20, 0, 6, &[9; 40]), message(ERROR, TEXTS | CAPPED, 7, &error)].concat();
    let answers = answers(&all, 7).unwrap();
    let [NetlinkReply::Object(attrs), NetlinkReply::End(-95, Some(text))] = &answers[..] else { panic!("{answers:?}") };
    assert_eq!(
        (attrs.u32(1).unwrap(), attrs.get(9).unwrap(), attrs.u32(2).unwrap()),
        (Some(4), Some(&b"name\0"[..]), None)
    );
    assert_eq!(text, "no such thing");
    assert_eq!(attrs.u32(9), Err(BadMessage("a number of another size")));
    // Without the flag the request stands in between, whole.
    let mut long = (-22i32).to_ne_bytes().to_vec();
    long.extend_from_slice(&object);
    long.extend_from_slice(&Request(Vec::new()).bytes(1, b"why\0").0);
    let long = message(ERROR, TEXTS, 7, &long);
    assert_eq!(super::answers(&long, 7).unwrap(), [NetlinkReply::End(-22, Some("why".into()))]);
    assert_eq!(super::answers(&message(DONE, 0, 7, &[]), 7).unwrap(), [NetlinkReply::End(0, None)]);
}

#[test]
fn lengths_that_lie_are_refused() {
    let good = Request::new(20, 0, 10, 1).u32(1, 4).nest(2, |q| q.u32(1, 1)).finish(7);
    for at in 0..good.len() {
        for value in [0, 1, 3, 15, 17, 127, 255] {
            let mut bytes = good.clone();
            bytes[at] = value;
            // Refused or read as something else; never a panic, never a loop.
            if let Ok(answers) = answers(&bytes, 7) {
                for answer in answers {
                    if let NetlinkReply::Object(attrs) = answer {
                        let _ = attrs.all();
                    }
                }
            }
        }
    }
    let mut long = good.clone();
    long[0] = 200;
    assert_eq!(answers(&long, 7), Err(BadMessage("a length beyond its end")));
    let mut wide = good;
    wide[20] = 200;
    let Ok(all) = answers(&wide, 7) else { panic!("the envelope is whole") };
    let NetlinkReply::Object(attrs) = &all[0] else { panic!("an object") };
    assert_eq!(attrs.all(), Err(BadMessage("an attribute beyond its message")));
    assert_eq!(answers(&message(ERROR, 0, 7, &[1, 2]), 7), Err(BadMessage("an error without a number")));
}
