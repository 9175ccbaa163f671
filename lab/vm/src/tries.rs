//! Second tries. On a busy machine a guest can be late for a reason outside of the test; a defect comes again.

/// Which try of a test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Nth {
    /// In its turn.
    First,
    /// After all the others, because it failed.
    Second,
}

/// What a test came to.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Came {
    /// It held at once.
    Passed,
    /// It held when it was run once more.
    Second {
        /// How it failed before.
        first: String,
    },
    /// It did not hold.
    Failed,
}

/// Runs all tests, then those that failed once more, unless they may be run but `once`.
pub(crate) fn all<T: Copy>(
    tests: &[T],
    once: bool,
    mut run: impl FnMut(T, Nth) -> Result<(), String>,
) -> Vec<(T, Came)> {
    let (mut came, mut again) = (Vec::new(), Vec::new());
    for &test in tests {
        match run(test, Nth::First) {
            Ok(()) => came.push((test, Came::Passed)),
            Err(_) if once => came.push((test, Came::Failed)),
            Err(first) => again.push((test, first)),
        }
    }
    for (test, first) in again {
        let held = run(test, Nth::Second).is_ok();
        came.push((test, if held { Came::Second { first } } else { Came::Failed }));
    }
    came
}

#[cfg(test)]
mod tests;
