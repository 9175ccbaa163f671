//! What a process and `lspan devmem up` say to each other: total over any bytes, and one spelling each.
#![no_main]

use libfuzzer_sys::fuzz_target;
use linkspan_fabric::devmem::wire::{ANSWER_MAX, Answer, Question};

fuzz_target!(|bytes: &[u8]| {
    if let Some(question) = Question::decode(bytes) {
        assert_eq!(Question::decode(&question.encode()), Some(question));
    }
    if let Some(answer) = Answer::decode(bytes) {
        let encoded = answer.encode();
        assert!(encoded.len() <= ANSWER_MAX);
        let again = Answer::decode(&encoded).expect("what we write can be read");
        assert_eq!(again.0.is_ok(), answer.0.is_ok());
        if let Err(why) = again.0 {
            assert!(!why.chars().any(char::is_control));
        }
    }
});
