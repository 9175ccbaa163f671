//! What the tools say, as they say it.

use super::*;

#[test]
fn a_silent_build_has_nothing_to_say() {
    assert_eq!(read("\n  \n"), (Vec::new(), true));
}

#[test]
fn what_sparse_says_is_kept() {
    let line = "main.c:70:25: warning: incorrect type in argument 1 (different address spaces)";
    assert_eq!(read(&format!("{line}\n")), (vec![line.to_owned()], true));
}

#[test]
fn a_kernel_that_does_not_take_sparse_is_told_and_the_compiler_still_heard() {
    let said = "make[2]: /usr/src/linux-headers-7.3.4+deb13-common/scripts/checker-valid.sh: No such file or directory\n\
                /usr/src/linux-headers-7.3.4+deb13-common/Makefile:1311: C=2 specified, but sparse is not available or not up to date\n\
                flow.c:12:5: warning: variable 'n' set but not used [-Wunused-but-set-variable]\n";
    let (found, sparse) = read(said);
    assert!(!sparse);
    assert_eq!(found, ["flow.c:12:5: warning: variable 'n' set but not used [-Wunused-but-set-variable]"]);
}
