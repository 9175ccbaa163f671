use super::{Texts, collect, with, without};

const BARE: &str = "\
\"\"\"The module.\"\"\"

class Lender(Protocol):
    \"\"\"Stays.\"\"\"

    def lend(self) -> int: ...

@final
class View:
    @property
    def nbytes(self) -> int: ...
    def view(
        self,
        offset: int = 0,
    ) -> View: ...
    def __len__(self) -> int: ...

def forked() -> None: ...
";

const RUST: &str = "
/// A range.
#[pyclass(frozen)]
pub(crate) struct View { a: u8 }
#[pymethods]
impl View {
    /// Bytes in it.
    #[getter]
    fn nbytes(&self) -> usize { 0 }
    /// A part.
    ///
    /// Args:
    ///     offset: Where it begins.
    fn view(&self, offset: usize) -> View { View { a: 0 } }
    fn __len__(&self) -> usize { 0 }
}
";

#[test]
fn texts_are_put_into_the_stub_and_taken_out_again() {
    let mut texts = Texts::new();
    collect(RUST, &mut texts);
    let full = with(BARE, &texts);
    let part = "    ) -> View:\n        \"\"\"A part.\n\n        Args:\n            offset: Where it begins.\n        \"\"\"\n";
    assert!(full.contains(part), "{full}");
    assert!(full.contains("class View:\n    \"\"\"A range.\"\"\"\n\n    @property\n    def nbytes(self) -> int:\n        \"\"\"Bytes in it.\"\"\"\n"));
    assert!(full.contains("    def __len__(self) -> int: ...\n") && full.contains("    \"\"\"Stays.\"\"\"\n"));
    assert_eq!(without(&full), BARE);
    assert_eq!(with(&without(&full), &texts), full);
}
