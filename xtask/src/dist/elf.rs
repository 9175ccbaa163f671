//! A reader for the little of ELF that the release checks need.
//!
//! Layouts and numbers: System V ABI, chapters 4 and 5, and the symbol versioning part of the LSB core specification
//! (<https://refspecs.linuxfoundation.org/LSB_5.0.0/LSB-Core-generic/LSB-Core-generic/symversion.html>).

/// What a shared object or program asks of its loader, and offers.
#[derive(Debug, Default)]
pub(crate) struct Elf {
    /// Libraries it names (`DT_NEEDED`).
    pub(crate) needed: Vec<String>,
    /// Symbol versions it needs, as `GLIBC_2.34`, sorted and without repeats.
    pub(crate) versions: Vec<String>,
    /// Symbols it defines for others, sorted.
    pub(crate) exports: Vec<String>,
    /// The same symbols with the version that each is given (`name@@VERSION`), sorted; empty without versions.
    pub(crate) versioned: Vec<(String, String)>,
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

const SHT_DYNAMIC: u32 = 6;
const SHT_DYNSYM: u32 = 11;
const SHT_GNU_VERNEED: u32 = 0x6fff_fffe;
const SHF_ALLOC: u64 = 2;
const SHT_GNU_VERDEF: u32 = 0x6fff_fffd;
const SHT_GNU_VERSYM: u32 = 0x6fff_ffff;
const SHN_ABS: u16 = 0xfff1;
const DT_NEEDED: u64 = 1;
const DT_SONAME: u64 = 14;
const DT_FLAGS: u64 = 30;
const DT_FLAGS_1: u64 = 0x6fff_fffb;
const DF_BIND_NOW: u64 = 8;
const DF_1_NOW: u64 = 1;
const DF_1_NODELETE: u64 = 8;
const PT_GNU_RELRO: u32 = 0x6474_e552;

/// One section header.
struct Section {
    kind: u32,
    flags: u64,
    offset: usize,
    size: usize,
    link: usize,
}

impl Elf {
    /// Reads a 64-bit little-endian file; `None` where the bytes are anything else or contradict themselves.
    pub(crate) fn read(bytes: &[u8]) -> Option<Elf> {
        if bytes.get(..6)? != b"\x7fELF\x02\x01" {
            return None;
        }
        let sections = sections(bytes)?;
        let strings = |section: &Section| sections.get(section.link).and_then(|s| part(bytes, s.offset, s.size));
        let mut elf = Elf {
            loaded: sections.iter().filter(|s| s.flags & SHF_ALLOC != 0).map(|s| s.size as u64).sum(),
            ..Elf::default()
        };
        let (mut symbols, mut numbers, mut given) = (Vec::new(), &[][..], Vec::new());
        for section in &sections {
            match section.kind {
                SHT_DYNAMIC => elf.dynamic(part(bytes, section.offset, section.size)?, strings(section)?)?,
                SHT_DYNSYM => symbols = exports(part(bytes, section.offset, section.size)?, strings(section)?)?,
                SHT_GNU_VERSYM => numbers = part(bytes, section.offset, section.size)?,
                SHT_GNU_VERDEF => given = definitions(part(bytes, section.offset, section.size)?, strings(section)?)?,
                SHT_GNU_VERNEED => {
                    elf.versions = versions(part(bytes, section.offset, section.size)?, strings(section)?)?
                }
                _ => {}
            }
        }
        for (at, name) in &symbols {
            // The upper bit hides a version that is not the default one.
            let number = u16_at(numbers, 2 * at).map(|n| n & 0x7fff);
            let version = given.iter().find(|(index, _)| Some(*index) == number);
            elf.versioned.extend(version.map(|(_, version)| (name.clone(), version.clone())));
        }
        elf.exports = symbols.into_iter().map(|(_, name)| name).collect();
        elf.relro = has_relro(bytes)?;
        elf.versioned.sort_unstable();
        elf.exports.sort_unstable();
        elf.versions.sort_unstable();
        elf.versions.dedup();
        Some(elf)
    }

    fn dynamic(&mut self, dynamic: &[u8], strings: &[u8]) -> Option<()> {
        for entry in dynamic.chunks_exact(16) {
            let value = u64_at(entry, 8)?;
            let named = || text(strings, usize::try_from(value).ok()?);
            match u64_at(entry, 0)? {
                DT_NEEDED => self.needed.push(named()?),
                DT_SONAME => self.soname = Some(named()?),
                DT_FLAGS => self.now |= value & DF_BIND_NOW != 0,
                DT_FLAGS_1 => {
                    self.now |= value & DF_1_NOW != 0;
                    self.nodelete = value & DF_1_NODELETE != 0;
                }
                _ => {}
            }
        }
        Some(())
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

fn sections(bytes: &[u8]) -> Option<Vec<Section>> {
    let table = usize::try_from(u64_at(bytes, 0x28)?).ok()?;
    let (size, count) = (u16_at(bytes, 0x3a)? as usize, u16_at(bytes, 0x3c)? as usize);
    let mut found = Vec::with_capacity(count);
    for n in 0..count {
        let head = part(bytes, table.checked_add(n.checked_mul(size)?)?, 64)?;
        found.push(Section {
            kind: u32_at(head, 4)?,
            flags: u64_at(head, 8)?,
            offset: usize::try_from(u64_at(head, 24)?).ok()?,
            size: usize::try_from(u64_at(head, 32)?).ok()?,
            link: u32_at(head, 40)? as usize,
        });
    }
    Some(found)
}

/// Whether a program header asks for tables that are read-only after loading.
fn has_relro(bytes: &[u8]) -> Option<bool> {
    let table = usize::try_from(u64_at(bytes, 0x20)?).ok()?;
    let (size, count) = (u16_at(bytes, 0x36)? as usize, u16_at(bytes, 0x38)? as usize);
    let kinds = (0..count).map(|n| u32_at(bytes, table.checked_add(n.checked_mul(size)?)?));
    kinds.collect::<Option<Vec<u32>>>().map(|kinds| kinds.contains(&PT_GNU_RELRO))
}

/// Exported names with their numbers in the table.
fn exports(symbols: &[u8], strings: &[u8]) -> Option<Vec<(usize, String)>> {
    let mut found = Vec::new();
    for (at, symbol) in symbols.chunks_exact(24).enumerate() {
        // st_info's upper half is the binding: 1 global, 2 weak. st_shndx 0 means that others define it.
        // A version has an absolute symbol of its own.
        let (binding, section) = (symbol[4] >> 4, u16_at(symbol, 6)?);
        if section != 0 && section != SHN_ABS && matches!(binding, 1 | 2) {
            found.push((at, text(strings, u32_at(symbol, 0)? as usize)?));
        }
    }
    Some(found)
}

/// Versions that the file gives to its symbols, by their numbers.
fn definitions(table: &[u8], strings: &[u8]) -> Option<Vec<(u16, String)>> {
    let (mut found, mut at) = (Vec::new(), 0usize);
    loop {
        let definition = part(table, at, 20)?;
        let name = part(table, at.checked_add(u32_at(definition, 12)? as usize)?, 8)?;
        found.push((u16_at(definition, 4)?, text(strings, u32_at(name, 0)? as usize)?));
        match u32_at(definition, 16)? {
            0 => return Some(found),
            next => at = at.checked_add(next as usize)?,
        }
    }
}

fn versions(table: &[u8], strings: &[u8]) -> Option<Vec<String>> {
    let (mut found, mut at) = (Vec::new(), 0usize);
    loop {
        let library = part(table, at, 16)?;
        let mut aux = at.checked_add(u32_at(library, 8)? as usize)?;
        for _ in 0..u16_at(library, 2)? {
            let entry = part(table, aux, 16)?;
            found.push(text(strings, u32_at(entry, 8)? as usize)?);
            aux = aux.checked_add(u32_at(entry, 12)? as usize)?;
        }
        match u32_at(library, 12)? {
            0 => return Some(found),
            next => at = at.checked_add(next as usize)?,
        }
    }
}

fn part(bytes: &[u8], offset: usize, len: usize) -> Option<&[u8]> {
    bytes.get(offset..offset.checked_add(len)?)
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    part(bytes, at, 2)?.try_into().ok().map(u16::from_le_bytes)
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    part(bytes, at, 4)?.try_into().ok().map(u32::from_le_bytes)
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    part(bytes, at, 8)?.try_into().ok().map(u64::from_le_bytes)
}

fn text(strings: &[u8], at: usize) -> Option<String> {
    let rest = strings.get(at..)?;
    let end = rest.iter().position(|b| *b == 0)?;
    String::from_utf8(rest[..end].to_vec()).ok()
}
