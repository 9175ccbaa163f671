//! Little-endian fields, one behind the other; texts and lists with their length before them.

use crate::fs::{Ident, Kind, Time};

/// Bytes that are no message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Malformed(pub &'static str);

/// Appends fields.
#[derive(Debug, Default)]
pub(crate) struct Writer(pub(crate) Vec<u8>);

impl Writer {
    pub(crate) fn u8(&mut self, n: u8) -> &mut Writer {
        self.0.push(n);
        self
    }

    pub(crate) fn flag(&mut self, on: bool) -> &mut Writer {
        self.u8(u8::from(on))
    }

    pub(crate) fn u16(&mut self, n: u16) -> &mut Writer {
        self.raw(&n.to_le_bytes())
    }

    pub(crate) fn u32(&mut self, n: u32) -> &mut Writer {
        self.raw(&n.to_le_bytes())
    }

    pub(crate) fn u64(&mut self, n: u64) -> &mut Writer {
        self.raw(&n.to_le_bytes())
    }

    pub(crate) fn raw(&mut self, bytes: &[u8]) -> &mut Writer {
        self.0.extend_from_slice(bytes);
        self
    }

    /// At most 65,535 bytes travel; no caller has more.
    pub(crate) fn bytes(&mut self, bytes: &[u8]) -> &mut Writer {
        let bytes = &bytes[..bytes.len().min(usize::from(u16::MAX))];
        self.u16(bytes.len() as u16).raw(bytes)
    }

    pub(crate) fn kind(&mut self, kind: Kind) -> &mut Writer {
        self.u8(match kind {
            Kind::File => 0,
            Kind::Dir => 1,
            Kind::Symlink => 2,
            Kind::Special => 3,
        })
    }

    pub(crate) fn time(&mut self, time: Time) -> &mut Writer {
        self.u64(time.sec as u64).u32(time.nsec)
    }

    pub(crate) fn ident(&mut self, ident: &Ident) -> &mut Writer {
        self.u64(ident.dev).u64(ident.ino).u64(ident.size).time(ident.mtime).time(ident.ctime)
    }
}

/// Ends a chain of fields.
pub(crate) fn end(_: &mut Writer) {}

/// Takes fields off; what is too short is an error.
#[derive(Debug)]
pub(crate) struct Reader<'a>(pub(crate) &'a [u8]);

impl<'a> Reader<'a> {
    pub(crate) fn raw(&mut self, len: usize) -> Result<&'a [u8], Malformed> {
        let (head, rest) = self.0.split_at_checked(len).ok_or(Malformed("it is cut"))?;
        self.0 = rest;
        Ok(head)
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        self.raw(N)?.try_into().map_err(|_| Malformed("it is cut"))
    }

    pub(crate) fn u8(&mut self) -> Result<u8, Malformed> {
        Ok(self.array::<1>()?[0])
    }

    pub(crate) fn flag(&mut self) -> Result<bool, Malformed> {
        match self.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(Malformed("a flag is neither 0 nor 1")),
        }
    }

    pub(crate) fn u16(&mut self) -> Result<u16, Malformed> {
        Ok(u16::from_le_bytes(self.array()?))
    }

    pub(crate) fn u32(&mut self) -> Result<u32, Malformed> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    pub(crate) fn u64(&mut self) -> Result<u64, Malformed> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    pub(crate) fn bytes(&mut self) -> Result<&'a [u8], Malformed> {
        let len = self.u16()?;
        self.raw(usize::from(len))
    }

    pub(crate) fn text(&mut self) -> Result<String, Malformed> {
        String::from_utf8(self.bytes()?.to_vec()).map_err(|_| Malformed("a text is not UTF-8"))
    }

    pub(crate) fn kind(&mut self) -> Result<Kind, Malformed> {
        Ok(match self.u8()? {
            0 => Kind::File,
            1 => Kind::Dir,
            2 => Kind::Symlink,
            3 => Kind::Special,
            _ => return Err(Malformed("an entry is of no known kind")),
        })
    }

    pub(crate) fn time(&mut self) -> Result<Time, Malformed> {
        let (sec, nsec) = (self.u64()? as i64, self.u32()?);
        if nsec < 1_000_000_000 { Ok(Time { sec, nsec }) } else { Err(Malformed("a time has too many nanoseconds")) }
    }

    pub(crate) fn ident(&mut self) -> Result<Ident, Malformed> {
        let (dev, ino, size) = (self.u64()?, self.u64()?, self.u64()?);
        Ok(Ident { dev, ino, size, mtime: self.time()?, ctime: self.time()? })
    }

    /// A list of at most `most`; memory grows with what is really there.
    pub(crate) fn list<T>(
        &mut self,
        most: usize,
        mut one: impl FnMut(&mut Reader<'a>) -> Result<T, Malformed>,
    ) -> Result<Vec<T>, Malformed> {
        let count = usize::from(self.u16()?);
        if count > most {
            return Err(Malformed("a list is too long"));
        }
        let mut all = Vec::new();
        for _ in 0..count {
            all.push(one(self)?);
        }
        Ok(all)
    }
}
