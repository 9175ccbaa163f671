use std::process::Command;

use super::word;

#[test]
fn a_shell_reads_each_word_as_it_was() {
    assert_eq!(word("/usr/lib/x86_64-linux-gnu/a.so"), "/usr/lib/x86_64-linux-gnu/a.so");
    for text in ["", "a b", "it's", "$(reboot)", "`x`;y", "\"q\"", "*", "~/x", "a\\b", "n\nl", "ä", "-n"] {
        let line = format!("printf %s {}", word(text));
        let said = Command::new("sh").args(["-c", &line]).output().unwrap();
        assert_eq!(String::from_utf8_lossy(&said.stdout), text, "{line}");
    }
}
