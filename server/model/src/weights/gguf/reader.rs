//! A cursor over untrusted bytes that cannot run past their end.

use super::Fault;

/// Longest name of a key or tensor.
const MAX_NAME: usize = 4096;

pub(super) struct Reader<'a> {
    bytes: &'a [u8],
    position: usize,
}

impl<'a> Reader<'a> {
    pub(super) const fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, position: 0 }
    }

    pub(super) const fn position(&self) -> usize {
        self.position
    }

    pub(super) const fn left(&self) -> usize {
        self.bytes.len() - self.position
    }

    pub(super) fn bytes(&mut self, len: usize) -> Result<&'a [u8], Fault> {
        if len > self.left() {
            let at = self.position;
            return Err(Fault::Damaged(format!("it ends at byte {at}, inside its header")));
        }
        let taken = &self.bytes[self.position..self.position + len];
        self.position += len;
        Ok(taken)
    }

    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N], Fault> {
        Ok(self.bytes(N)?.try_into().expect("bytes(N) returned N bytes"))
    }

    pub(super) fn u32(&mut self) -> Result<u32, Fault> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    pub(super) fn u64(&mut self) -> Result<u64, Fault> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    /// A count of things of at least `min_bytes` each: never more than the bytes left could hold.
    pub(super) fn count(&mut self, what: &str, min_bytes: usize) -> Result<usize, Fault> {
        let count = self.u64()?;
        match usize::try_from(count) {
            Ok(small) if small <= self.left() / min_bytes => Ok(small),
            _ => Err(Fault::Damaged(format!("it claims {count} {what}, more than fit"))),
        }
    }

    /// The name of a key or a tensor.
    pub(super) fn name(&mut self) -> Result<String, Fault> {
        let len = self.count("bytes of a name", 1)?;
        let bytes = self.bytes(len)?;
        match std::str::from_utf8(bytes) {
            Ok(name) if len <= MAX_NAME => Ok(name.to_owned()),
            _ => Err(Fault::Damaged("a name is too long or not UTF-8".to_owned())),
        }
    }

    /// A string value; what is not UTF-8 is replaced, since people write descriptions in anything.
    pub(super) fn text(&mut self) -> Result<String, Fault> {
        let len = self.count("bytes of a string", 1)?;
        Ok(String::from_utf8_lossy(self.bytes(len)?).into_owned())
    }
}
