//! What a process and `lspan devmem up` say to each other: total over any bytes, and one spelling each.
#![no_main]

use libfuzzer_sys::fuzz_target;
use linkspan_fabric::devmem::wire::{ANSWER_MAX, BrokerReply, BrokerRequest};

fuzz_target!(|bytes: &[u8]| {
    if let Some(question) = BrokerRequest::decode(bytes) {
        assert_eq!(BrokerRequest::decode(&question.encode()), Some(question));
    }
    if let Some(answer) = BrokerReply::decode(bytes) {
        let encoded = answer.encode();
        assert!(encoded.len() <= ANSWER_MAX);
        let again = BrokerReply::decode(&encoded).expect("what we write can be read");
        assert_eq!(again.0.is_ok(), answer.0.is_ok());
        if let Err(why) = again.0 {
            assert!(!why.chars().any(char::is_control));
        }
    }
});
