//! What the release checks need of an ELF file.

use std::collections::BTreeSet;

use object::elf::{
    DF_1_NODELETE, DF_1_NOW, DF_BIND_NOW, DT_FLAGS, DT_FLAGS_1, DT_NEEDED, DT_SONAME, PT_GNU_RELRO, SHF_ALLOC,
};
use object::read::elf::{ElfFile64, ProgramHeader, SectionHeader};
use object::{ExportFlags, ExportTarget, LittleEndian, NameOrOrdinal, Object};

/// What a shared object or program asks of its loader, and offers.
#[derive(Debug, Default)]
pub(crate) struct Elf {
    /// Libraries it names (`DT_NEEDED`).
    pub(crate) needed: Vec<String>,
    /// Symbol versions it needs, as `GLIBC_2.34`.
    pub(crate) versions: BTreeSet<String>,
    /// Symbols it defines for others, each with its version, or `Base` where it has none.
    pub(crate) exports: BTreeSet<(String, String)>,
    /// The name it is to be asked for by (`DT_SONAME`).
    pub(crate) soname: Option<String>,
    /// All symbols are bound when it is loaded (`-z now`).
    pub(crate) now: bool,
    /// It stays loaded (`-z nodelete`).
    pub(crate) nodelete: bool,
    /// Tables are read-only after that (`-z relro`).
    pub(crate) relro: bool,
    /// Bytes that are mapped into memory, debug sections not among them.
    pub(crate) loaded: u64,
}

impl Elf {
    /// Reads a 64-bit little-endian file.
    pub(crate) fn read(bytes: &[u8]) -> object::Result<Elf> {
        let file = ElfFile64::<LittleEndian>::parse(bytes)?;
        let sections = file.elf_section_table();
        let mut elf = Elf {
            relro: file.elf_program_headers().iter().any(|part| part.p_type(LittleEndian) == PT_GNU_RELRO),
            loaded: sections
                .iter()
                .filter(|section| section.sh_flags(LittleEndian).contains(SHF_ALLOC))
                .map(|section| section.sh_size(LittleEndian))
                .sum(),
            ..Elf::default()
        };
        let dynamic = file.elf_dynamic_table()?;
        for entry in &dynamic {
            match entry.tag {
                DT_NEEDED => elf.needed.push(text(dynamic.string(entry)?)),
                DT_SONAME => elf.soname = Some(text(dynamic.string(entry)?)),
                DT_FLAGS => elf.now |= entry.val & DF_BIND_NOW.0 != 0,
                DT_FLAGS_1 => {
                    elf.now |= entry.val & DF_1_NOW.0 != 0;
                    elf.nodelete = entry.val & DF_1_NODELETE.0 != 0;
                }
                _ => {}
            }
        }
        // Not those of the imported symbols alone: a file may need a version that none of its symbols has.
        if let Some((libraries, strings)) = sections.gnu_verneed(LittleEndian, bytes)? {
            let strings = sections.strings(LittleEndian, bytes, strings)?;
            for library in libraries {
                for version in library?.1 {
                    elf.versions.insert(text(version?.name(LittleEndian, strings)?));
                }
            }
        }
        for export in file.exports()? {
            let export = export?;
            // A version has an absolute symbol of its own.
            if let NameOrOrdinal::Name(name) = export.name()
                && let ExportFlags::Elf { version, .. } = export.flags()
                && !matches!(export.target(), ExportTarget::Absolute { .. })
            {
                elf.exports.insert((text(name), text(version.unwrap_or(b"Base"))));
            }
        }
        Ok(elf)
    }

    /// Highest version it needs of a library whose versions begin with `prefix`.
    pub(crate) fn newest(&self, prefix: &str) -> Option<(u32, u32)> {
        self.versions.iter().filter_map(|v| version(v, prefix)).max()
    }
}

/// `GLIBC_2.34` or `GLIBC_2.2.5` as numbers; later parts do not matter.
pub(crate) fn version(name: &str, prefix: &str) -> Option<(u32, u32)> {
    let mut parts = name.strip_prefix(prefix)?.split('.');
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
