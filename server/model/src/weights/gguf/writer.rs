//! Writes GGUF files for tests, good ones and bad ones.

/// Writes GGUF bytes as the format describes them.
#[derive(Clone)]
pub(crate) struct Writer {
    pub(crate) version: u32,
    pub(crate) metadata: Vec<Vec<u8>>,
    pub(crate) tensors: Vec<Vec<u8>>,
    pub(crate) data: Vec<u8>,
    pub(crate) alignment: usize,
}

/// A length and the bytes.
pub(crate) fn text(text: &str) -> Vec<u8> {
    [&(text.len() as u64).to_le_bytes(), text.as_bytes()].concat()
}

/// An element type, a count, and the elements.
pub(crate) fn array(kind: u32, count: u64, values: &[u8]) -> Vec<u8> {
    [&kind.to_le_bytes()[..], &count.to_le_bytes(), values].concat()
}

impl Writer {
    pub(crate) fn new() -> Self {
        let (metadata, tensors, data) = (Vec::new(), Vec::new(), Vec::new());
        Self { version: 3, metadata, tensors, data, alignment: 32 }
    }

    pub(crate) fn meta(mut self, key: &str, kind: u32, value: &[u8]) -> Self {
        self.metadata.push([&text(key)[..], &kind.to_le_bytes(), value].concat());
        self
    }

    pub(crate) fn tensor_at(mut self, name: &str, dims: &[u64], kind: u32, offset: u64) -> Self {
        let mut entry = text(name);
        entry.extend((dims.len() as u32).to_le_bytes());
        dims.iter().for_each(|dim| entry.extend(dim.to_le_bytes()));
        entry.extend(kind.to_le_bytes());
        entry.extend(offset.to_le_bytes());
        self.tensors.push(entry);
        self
    }

    pub(crate) fn tensor(mut self, name: &str, dims: &[u64], kind: u32, bytes: &[u8]) -> Self {
        self.data.resize(self.data.len().next_multiple_of(self.alignment), 0);
        let offset = self.data.len() as u64;
        self.data.extend(bytes);
        self.tensor_at(name, dims, kind, offset)
    }

    pub(crate) fn header(&self, tensors: u64, metadata: u64) -> Vec<u8> {
        let mut out = [&b"GGUF"[..], &self.version.to_le_bytes()].concat();
        out.extend(tensors.to_le_bytes());
        out.extend(metadata.to_le_bytes());
        out.extend(self.metadata.concat());
        out.extend(self.tensors.concat());
        out.resize(out.len().next_multiple_of(self.alignment), 0);
        out
    }

    pub(crate) fn build(&self) -> Vec<u8> {
        let header = self.header(self.tensors.len() as u64, self.metadata.len() as u64);
        [header, self.data.clone()].concat()
    }
}
